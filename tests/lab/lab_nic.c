/*
 * Inside a VM: its NICs by the lab's names, n0..n3 (data) and m (management).
 *   lab_nic state [NIC...]      one line each, as below
 *   lab_nic await NIC WORDS MS  until the line of the NIC has one of the words: await n1
 *                               carrier=0 2000, await n1 up=0|absent 2000
 *   lab_nic setup [NIC...]      back to health: name, MTU, address, up, Soft-RoCE device; says what
 *                               it repaired
 *   lab_nic ifdown NIC          ip link set down
 *   lab_nic rdmadel NIC         rdma link del; does not wait for those who have it open
 *   lab_nic rails HOSTS [NIC...]  a datagram to every other host over each rail and back; says
 *                               which do not answer
 * Exit status 1: it did not come so; the reason is on standard error.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lab/lab_names.h"
#include "tests/lab/lab_netif.h"
#include "tests/lab/lab_wire.h"

#define SETUP_LIMIT_NS (20 * LAB_NS_PER_S)
#define RAILS_LIMIT_NS (3 * LAB_NS_PER_S)

static int host; /* number of this VM, from its name */

static int nic_parse(const char *text)
{
    int k = lab_nic_parse(text);

    if (k < 0) {
        lab_die(2, "'%s' is no NIC: n0 to n3 or m", text);
    }
    return k;
}

static void nic_state(int k, char *out, size_t size)
{
    struct lab_netif n;
    char mac[18], device[16], want[16], rdma[32];

    lab_nic_mac(host, k, mac);
    if (lab_netif_find(mac, &n) != 0) {
        snprintf(out, size, "%s absent", lab_nic_name(k));
        return;
    }
    snprintf(out, size, "%s %s up=%d carrier=%d mtu=%d addr=%s", lab_nic_name(k), n.name,
             (n.flags & IFF_UP) != 0, n.carrier, n.mtu, n.addr[0] != '\0' ? n.addr : "none");
    if (k != LAB_MGMT) {
        lab_nic_rdma(k, device);
        lab_nic_address(host, k, want);
        lab_rdma_state(device, want, rdma, sizeof(rdma));
        snprintf(out + strlen(out), size - strlen(out), " %s=%s", device, rdma);
    }
}

/* Whether @line has one of @words, which are separated by "|". */
static bool line_has(const char *line, const char *words)
{
    const char *w = words, *p;
    size_t n;

    for (;; w += n + 1) {
        n = strcspn(w, "|");
        for (p = line; *p != '\0'; p++) {
            if ((p == line || p[-1] == ' ') && strncmp(p, w, n) == 0 &&
                (p[n] == ' ' || p[n] == '\0')) {
                return true;
            }
        }
        if (w[n] == '\0') {
            return false;
        }
    }
}

/* Sleeps until an interface changes; RDMA devices say nothing by netlink when they change, so they
 * are looked at each 10 ms. */
static void monitor_wait(int fd, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int left = lab_clock_left_ms(deadline);
    char sink[4096];

    if (poll(&p, 1, left < 10 ? left : 10) > 0) {
        while (recv(fd, sink, sizeof(sink), 0) > 0) {
        }
    }
}

static int nic_await(int k, const char *word, uint64_t deadline)
{
    int fd = lab_netif_monitor();
    char line[160];

    for (;;) {
        nic_state(k, line, sizeof(line));
        if (line_has(line, word)) {
            break;
        }
        if (lab_clock_left_ms(deadline) == 0) {
            lab_complain("no %s within the limit: %s", word, line);
            close(fd);
            return -1;
        }
        monitor_wait(fd, deadline);
    }
    close(fd);
    return 0;
}

static int setup_failed(int k, const char *what)
{
    return lab_complain("%s: %s: %s", lab_nic_name(k), what, strerror(errno));
}

/* Name, MTU, address, up. */
static int netif_setup(int k, struct lab_netif *n)
{
    char name[IFNAMSIZ], addr[16];
    int mtu = k == LAB_MGMT ? 1500 : 4200; /* 4096 bytes of RDMA payload need 4200 */

    lab_nic_netif(k, name);
    lab_nic_address(host, k, addr);
    if (strcmp(n->name, name) != 0) {
        if (lab_netif_up(n->name, false) != 0 || lab_netif_rename(n->name, name) != 0) {
            return setup_failed(k, "rename");
        }
        strcpy(n->name, name);
        n->flags &= ~(unsigned)IFF_UP;
        printf("%s: renamed\n", lab_nic_name(k));
    }
    if (n->mtu != mtu) {
        if (lab_netif_mtu(name, mtu) != 0) {
            return setup_failed(k, "MTU");
        }
        printf("%s: MTU\n", lab_nic_name(k));
    }
    if ((n->flags & IFF_UP) == 0) {
        if (lab_netif_up(name, true) != 0) {
            return setup_failed(k, "up");
        }
        printf("%s: up\n", lab_nic_name(k));
    }
    if (strcmp(n->addr, addr) != 0) {
        if (lab_netif_address(name, addr) != 0) {
            return setup_failed(k, "address");
        }
        printf("%s: address\n", lab_nic_name(k));
    }
    return lab_netif_qdisc_reset(n->index) == 0 ? 0 : setup_failed(k, "queueing discipline");
}

static int nic_setup(int k)
{
    uint64_t deadline = lab_clock_now() + SETUP_LIMIT_NS;
    struct lab_netif n;
    char mac[18], device[16], addr[16], state[32], word[64];
    int fd = lab_netif_monitor();

    lab_nic_mac(host, k, mac);
    while (lab_netif_find(mac, &n) != 0) {
        if (lab_clock_left_ms(deadline) == 0) {
            close(fd);
            return setup_failed(k, "no such interface");
        }
        monitor_wait(fd, deadline);
    }
    close(fd);
    if (netif_setup(k, &n) != 0) {
        return -1;
    }
    if (k != LAB_MGMT) {
        lab_nic_rdma(k, device);
        lab_nic_address(host, k, addr);
        lab_rdma_state(device, addr, state, sizeof(state));
        if (strcmp(state, "leaving") == 0) {
            snprintf(word, sizeof(word), "%s=none", device);
            if (nic_await(k, word, deadline) != 0) {
                return lab_complain("%s: %s was deleted and a process still has it open",
                                    lab_nic_name(k), device);
            }
            snprintf(state, sizeof(state), "none");
        }
        if (strcmp(state, "none") == 0) {
            if (lab_rdma_add(device, n.name) != 0) {
                return setup_failed(k, "rdma link add");
            }
            printf("%s: rdma link\n", lab_nic_name(k));
        }
        snprintf(word, sizeof(word), "%s=ACTIVE", device);
        return nic_await(k, word, deadline);
    }
    return nic_await(k, "carrier=1", deadline);
}

static int nic_ifdown(int k)
{
    char name[IFNAMSIZ];

    lab_nic_netif(k, name);
    return lab_netif_up(name, false) == 0 ? nic_await(k, "up=0", lab_clock_now() + 2 * LAB_NS_PER_S)
                                          : setup_failed(k, "down");
}

/* The request blocks in the kernel until the last user has closed the device: a child waits for
 * that, we only see the device go. */
static int nic_rdmadel(int k)
{
    char device[16], word[64];
    pid_t pid;

    lab_nic_rdma(k, device);
    pid = fork();
    if (pid == 0) {
        if (lab_rdma_del(device) != 0) {
            lab_complain("%s: rdma link del: %s", lab_nic_name(k), strerror(errno));
        }
        _exit(0);
    }
    if (pid < 0) {
        return setup_failed(k, "fork");
    }
    snprintf(word, sizeof(word), "%s=none|%s=leaving", device, device);
    return nic_await(k, word, lab_clock_now() + 5 * LAB_NS_PER_S);
}

struct rail {
    int peer, nic, fd;
    bool answered;
};

/* A socket that sends over this rail and no other, whatever the routes say. */
static void rail_open(struct rail *r)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(LAB_ECHO_PORT)};
    char name[IFNAMSIZ], addr[16];

    lab_nic_netif(r->nic, name);
    lab_nic_address(r->peer, r->nic, addr);
    inet_pton(AF_INET, addr, &sa.sin_addr);
    r->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r->fd < 0 ||
        setsockopt(r->fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name)) != 0 ||
        connect(r->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        lab_complain("%s: echo socket: %s", lab_nic_name(r->nic), strerror(errno));
    }
}

static bool rail_take(struct rail *r, const char *token, size_t len)
{
    char got[4096];
    ssize_t n;

    while ((n = recv(r->fd, got, sizeof(got), 0)) >= 0) {
        if ((size_t)n == len && memcmp(got, token, len) == 0) {
            r->answered = true;
        }
    }
    return r->answered;
}

/* Sends to all that have not answered, again after 100, 200, 400 ms: what waits for a neighbour's
 * address may be dropped. */
static void rails_run(struct rail *r, int n)
{
    uint64_t start = lab_clock_now(), deadline = start + RAILS_LIMIT_NS, next = start,
             gap = 100 * LAB_NS_PER_MS;
    char token[4000]; /* fills a data NIC's MTU */
    struct pollfd p[LAB_HOSTS_MAX * LAB_NICS];
    int i, open = n;

    memset(token, 0, sizeof(token));
    if (getrandom(token, 16, 0) != 16) {
        lab_die(1, "no random bytes");
    }
    while (open > 0 && lab_clock_left_ms(deadline) > 0) {
        bool send_now = lab_clock_now() >= next;
        for (i = 0, open = 0; i < n; i++) {
            size_t len = r[i].nic == LAB_MGMT ? 1000 : sizeof(token);
            p[i] = (struct pollfd){.fd = rail_take(&r[i], token, len) ? -1 : r[i].fd,
                                   .events = POLLIN};
            open += p[i].fd >= 0;
            if (p[i].fd >= 0 && send_now) {
                (void)!send(r[i].fd, token, len, 0);
            }
        }
        if (send_now) {
            next = lab_clock_now() + gap;
            gap *= 2;
        }
        if (open > 0) {
            poll(p, (nfds_t)n, lab_clock_left_ms(next < deadline ? next : deadline));
        }
    }
}

static int nic_rails(int hosts, const bool *want)
{
    struct rail r[LAB_HOSTS_MAX * LAB_NICS];
    int n = 0, peer, k, i, dead = 0;

    for (peer = 0; peer < hosts; peer++) {
        for (k = 0; k < LAB_NICS && peer != host; k++) {
            if (want[k]) {
                r[n] = (struct rail){.peer = peer, .nic = k};
                rail_open(&r[n++]);
            }
        }
    }
    rails_run(r, n);
    for (i = 0; i < n; i++) {
        if (!r[i].answered) {
            printf("h%d:%s to h%d: no answer\n", host, lab_nic_name(r[i].nic), r[i].peer);
            dead++;
        }
        close(r[i].fd);
    }
    return dead == 0 ? 0 : -1;
}

static int each_nic(const bool *want, bool setup)
{
    char line[160];
    int k, rc = 0;

    for (k = 0; k < LAB_NICS; k++) {
        if (want[k] && setup) {
            rc |= nic_setup(k);
        } else if (want[k]) {
            nic_state(k, line, sizeof(line));
            puts(line);
        }
    }
    return rc;
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    bool want[LAB_NICS] = {false};
    char name[64] = "";
    long number;
    int i, first = strcmp(verb, "rails") == 0 ? 3 : 2, rc;

    gethostname(name, sizeof(name) - 1);
    host = lab_host_parse(name);
    if (host < 0) {
        lab_die(2, "lab_nic is for the lab's VMs, which are called h0 to h%d, not '%s'",
                LAB_HOSTS_MAX - 1, name);
    }
    if (argc == 5 && strcmp(verb, "await") == 0 &&
        lab_number_parse(argv[4], 0, 600000, &number) == 0) {
        rc = nic_await(nic_parse(argv[2]), argv[3],
                       lab_clock_now() + (uint64_t)number * LAB_NS_PER_MS);
        return rc == 0 ? 0 : 1;
    }
    for (i = first; i < argc; i++) {
        want[nic_parse(argv[i])] = true;
    }
    for (i = 0; i < LAB_NICS && argc <= first; i++) {
        want[i] = true;
    }
    if (strcmp(verb, "state") == 0 || strcmp(verb, "setup") == 0) {
        rc = each_nic(want, verb[1] == 'e');
    } else if (strcmp(verb, "rails") == 0 && argc > 2 &&
               lab_number_parse(argv[2], 1, LAB_HOSTS_MAX, &number) == 0) {
        rc = nic_rails((int)number, want);
    } else if (strcmp(verb, "ifdown") == 0 && argc == 3) {
        rc = nic_ifdown(nic_parse(argv[2]));
    } else if (strcmp(verb, "rdmadel") == 0 && argc == 3) {
        rc = nic_rdmadel(nic_parse(argv[2]));
    } else {
        lab_die(2, "usage: lab_nic state|setup|await|ifdown|rdmadel|rails ...");
    }
    return rc == 0 ? 0 : 1;
}
