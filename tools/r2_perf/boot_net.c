#include "tools/r2_perf/boot_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

#define BOOT_NET_RETRY_MS 20

int boot_net_read(int fd, void *data, size_t n)
{
    for (char *p = data; n;) {
        ssize_t k = recv(fd, p, n, 0);
        if (k <= 0 && !(k < 0 && errno == EINTR)) {
            return -1;
        }
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

int boot_net_write(int fd, const void *data, size_t n)
{
    for (const char *p = data; n;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR) {
            return -1;
        }
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

/* Splits "host:port" at the last colon. */
static int boot_net_split(const char *text, char *host, size_t host_bytes, char *port,
                          size_t port_bytes)
{
    const char *colon = strrchr(text, ':');
    long number;
    if (!colon || colon == text || !util_int_parse(colon + 1, 1, 65535, &number)) {
        return -1;
    }
    snprintf(host, host_bytes, "%.*s", (int)(colon - text), text);
    snprintf(port, port_bytes, "%ld", number);
    return 0;
}

/* The address that other machines can most likely reach: the first interface that is up and not the
 * loopback. */
static void boot_net_own_address(char *out, size_t bytes)
{
    struct ifaddrs *list = NULL;
    snprintf(out, bytes, "127.0.0.1");
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        bool usable = i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
                      !(i->ifa_flags & IFF_LOOPBACK);
        if (usable && getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), out, (socklen_t)bytes,
                                  NULL, 0, NI_NUMERICHOST) == 0) {
            break;
        }
    }
    freeifaddrs(list);
}

/* Written aside and renamed: a reader sees all of it or nothing. */
static int boot_net_publish(const char *path, int port, uint64_t key, char *error,
                            size_t error_bytes)
{
    char host[64], tmp[1100];
    boot_net_own_address(host, sizeof(host));
    snprintf(tmp, sizeof(tmp), "%s.%d", path, (int)getpid());
    FILE *f = fopen(tmp, "wx");
    if (!f || fprintf(f, "%s:%d %llu\n", host, port, (unsigned long long)key) < 0 ||
        fclose(f) != 0 || rename(tmp, path) != 0) {
        snprintf(error, error_bytes, "--rendezvous %s: %s", path, strerror(errno));
        unlink(tmp);
        return -1;
    }
    return 0;
}

int boot_net_listen(const struct boot_place *place, char *error, size_t error_bytes)
{
    char host[256], port[8] = "0";
    if (place->listen_fd >= 0) {
        int listening = 0;
        socklen_t n = sizeof(listening);
        if (getsockopt(place->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) != 0 ||
            !listening) {
            snprintf(error, error_bytes, "descriptor %d from the launcher is not its socket",
                     place->listen_fd);
            return -1;
        }
        return place->listen_fd;
    }
    if (place->root[0] &&
        boot_net_split(place->root, host, sizeof(host), port, sizeof(port)) != 0) {
        snprintf(error, error_bytes, "--root %s is not HOST:PORT", place->root);
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    socklen_t n = sizeof(at);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    }
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(fd, BOOT_RANKS_MAX) != 0 || getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        snprintf(error, error_bytes, "rank 0 cannot listen on port %s: %s", port, strerror(errno));
        return -1;
    }
    if (!place->root[0] && boot_net_publish(place->rendezvous, ntohs(at.sin_port), place->key,
                                            error, error_bytes) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int boot_net_accept(int listen_fd, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = util_now_ns();
        struct pollfd p = {.fd = listen_fd, .events = POLLIN};
        int left = now < deadline_ns ? (int)((deadline_ns - now) / 1000000 + 1) : 0;
        int n = left ? poll(&p, 1, left) : 0;
        if (n == 0) {
            return -1;
        }
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC), one = 1;
        if (fd >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            return fd;
        }
    }
}

/* Where rank 0 is, as far as is known now; -1 when nobody has said yet. */
static int boot_net_root_find(const struct boot_place *place, char *host, size_t hb, char *port,
                              size_t pb, uint64_t *key)
{
    *key = place->key;
    if (place->port) {
        snprintf(host, hb, "127.0.0.1");
        snprintf(port, pb, "%d", place->port);
        return 0;
    }
    if (place->root[0]) {
        return boot_net_split(place->root, host, hb, port, pb);
    }
    char at[300];
    unsigned long long k;
    FILE *f = fopen(place->rendezvous, "r");
    int rc =
        f && fscanf(f, "%299s %llu", at, &k) == 2 ? boot_net_split(at, host, hb, port, pb) : -1;
    if (f) {
        fclose(f);
    }
    if (rc == 0) {
        *key = k;
    }
    return rc;
}

static int boot_net_try(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        return -1;
    }
    int fd = -1, one = 1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    return fd;
}

void boot_net_keep(int fd, uint64_t limit_ns)
{
    uint64_t third_s = limit_ns / R2_NS_PER_S / 3 + 1;
    int on = 1, every_s = third_s < 32767 ? (int)third_s : 32767; /* the kernel's most */
    unsigned limit_ms = (unsigned)every_s * 3000; /* in place of a count of probes: tcp(7) */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
}

int boot_net_connect(const struct boot_place *place, uint64_t deadline_ns, char *error,
                     size_t error_bytes)
{
    char host[256] = "", port[8] = "";
    uint64_t key;
    while (util_now_ns() < deadline_ns) {
        int fd = -1;
        if (boot_net_root_find(place, host, sizeof(host), port, sizeof(port), &key) == 0) {
            fd = boot_net_try(host, port);
        }
        if (fd >= 0 && boot_net_write(fd, &key, sizeof(key)) == 0) {
            return fd;
        }
        if (fd >= 0) {
            close(fd);
        }
        /* nothing announces that a process on another machine has begun to listen */
        poll(NULL, 0, BOOT_NET_RETRY_MS);
    }
    snprintf(error, error_bytes, "rank %d does not reach rank 0 (%s%s%s)", place->rank,
             host[0] ? host : place->rendezvous, host[0] ? ":" : "", port);
    return -1;
}
