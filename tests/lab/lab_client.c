#include "tests/lab/lab_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lab/lab_still.h"

struct link {
    const char *host;
    int fd;
    struct lab_buf rx, tx;
};

static void link_close(struct link *l)
{
    close(l->fd);
    lab_buf_free(&l->rx);
    lab_buf_free(&l->tx);
}

/* Sends what there is to send and reads what has come, at the latest until @deadline. Returns 1, 0
 * at the deadline, -1 when the agent is gone. @extra is polled too, when given. */
static int link_turn(struct link *l, struct pollfd *extra, uint64_t deadline)
{
    struct pollfd p[2] = {{.fd = l->fd, .events = POLLIN}, {.fd = -1}};
    ssize_t n;
    int rc;

    if (lab_buf_len(&l->tx) > 0) {
        p[0].events |= POLLOUT;
    }
    if (extra != NULL) {
        p[1] = *extra;
    }
    rc = poll(p, 2, lab_clock_left_ms(deadline));
    if (extra != NULL) {
        extra->revents = p[1].revents;
    }
    if (rc <= 0) {
        return rc < 0 && errno == EINTR ? 1 : rc;
    }
    if ((p[0].revents & POLLOUT) != 0) {
        n = send(l->fd, l->tx.mem + l->tx.head, lab_buf_len(&l->tx), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        }
        lab_buf_take(&l->tx, n > 0 ? (size_t)n : 0);
    }
    if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        n = recv(l->fd, lab_buf_room(&l->rx, 65536), 65536, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return -1;
        }
        l->rx.tail += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* The next message, or 0 at the deadline, -1 when the agent is gone or talks nonsense. */
static int link_message(struct link *l, struct lab_wire_msg *m, uint64_t deadline)
{
    int rc;

    while ((rc = lab_wire_get(&l->rx, m)) == 0) {
        rc = link_turn(l, NULL, deadline);
        if (rc <= 0) {
            return rc;
        }
    }
    return rc;
}

static int agent_port(const char *host, struct sockaddr_in *sa)
{
    char path[32], line[16];
    long port;

    snprintf(path, sizeof(path), "%.8s.port", host);
    if (lab_file_line(path, line, sizeof(line)) != 0 ||
        lab_number_parse(line, 1, 65535, &port) != 0) {
        return lab_complain("%s is not up", host);
    }
    sa->sin_family = AF_INET;
    sa->sin_port = htons((uint16_t)port);
    sa->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return 0;
}

/* Connects and says hello. QEMU's user network accepts for the VM, so that only the agent's answer
 * shows that it lives.
 */
static int link_open(struct link *l, const char *host, uint64_t deadline)
{
    struct sockaddr_in sa = {0};
    char secret[LAB_SECRET_LEN + 1];
    uint64_t hello = lab_clock_now() + LAB_HELLO_NS;
    struct lab_wire_msg m;
    int one = 1, rc;

    memset(l, 0, sizeof(*l));
    l->host = host;
    if (agent_port(host, &sa) != 0) {
        return -1;
    }
    if (lab_file_line("secret", secret, sizeof(secret)) != 0) {
        return lab_complain("no secret of the lab: %s", strerror(errno));
    }
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        lab_complain("%s cannot be reached: %s", host, strerror(errno));
        link_close(l);
        return -1;
    }
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    lab_wire_put(&l->tx, LAB_HELLO, secret, strlen(secret));
    rc = link_message(l, &m, hello < deadline ? hello : deadline);
    if (rc > 0 && m.type == LAB_READY) {
        lab_wire_drop(&l->rx, &m);
        return 0;
    }
    if (rc > 0) {
        lab_complain("%s refuses: %.*s", host, (int)m.len, m.body);
    } else {
        lab_complain(rc == 0 ? "%s does not answer" : "%s closed the connection", host);
    }
    link_close(l);
    return -1;
}

static void exec_request(struct link *l, const struct lab_exec *e)
{
    struct lab_buf b = {0};
    int i;

    lab_buf_put(&b, e->flags, strlen(e->flags) + 1);
    lab_buf_put(&b, e->cwd, strlen(e->cwd) + 1);
    for (i = 0; e->argv[i] != NULL; i++) {
        lab_buf_put(&b, e->argv[i], strlen(e->argv[i]) + 1);
    }
    if (lab_buf_len(&b) > LAB_WIRE_BODY_MAX) {
        lab_die(2, "the command is longer than %u bytes", LAB_WIRE_BODY_MAX);
    }
    lab_wire_put(&l->tx, LAB_EXEC, b.mem + b.head, lab_buf_len(&b));
    lab_buf_free(&b);
}

static void output_write(const struct lab_exec *e, const struct lab_wire_msg *m)
{
    int fd = m->type == LAB_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
    size_t done = 0;

    if (e->capture != NULL) {
        lab_buf_put(e->capture, m->body, m->len);
        return;
    }
    while (done < m->len) {
        ssize_t n = write(fd, m->body + done, m->len - done);
        if (n < 0 && errno != EINTR) {
            return; /* nobody reads it any more; the exit status still counts */
        }
        done += n > 0 ? (size_t)n : 0;
    }
}

/* Handles what the agent said. Returns the exit status once it is known, else -1. @told: set when
 * the agent has said all it knows of the command's threads. */
static int exec_messages(struct link *l, const struct lab_exec *e, bool *told)
{
    struct lab_wire_msg m;
    uint32_t code;
    int rc, status = -1;

    while (status < 0 && (rc = lab_wire_get(&l->rx, &m)) != 0) {
        if (rc < 0) {
            lab_complain("%s talks nonsense", l->host);
            return LAB_STATUS_LOST;
        }
        if (m.type == LAB_STDOUT || m.type == LAB_STDERR) {
            output_write(e, &m);
        } else if (m.type == LAB_TOLD) {
            *told = true;
        } else if (m.type == LAB_EXIT && m.len == sizeof(code)) {
            memcpy(&code, m.body, sizeof(code));
            status = (int)(ntohl(code) & 255);
        } else if (m.type == LAB_REFUSED) {
            lab_complain("%s refuses: %.*s", l->host, (int)m.len, m.body);
            status = LAB_STATUS_LOST;
        }
        lab_wire_drop(&l->rx, &m);
    }
    return status;
}

static void input_read(struct link *l, struct pollfd *in)
{
    char data[16384];
    ssize_t n;

    if ((in->revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
        return;
    }
    n = read(STDIN_FILENO, data, sizeof(data));
    if (n > 0) {
        lab_wire_put(&l->tx, LAB_STDIN, data, (size_t)n);
    } else if (n == 0 || errno != EINTR) {
        lab_wire_put(&l->tx, LAB_STDIN_END, NULL, 0);
        in->fd = -1;
    }
}

/* The limit is reached: what the command waits for, as the agent sees it; where the agent does not
 * answer, what QEMU sees of the VM. */
static void exec_explain(struct link *l, const struct lab_exec *e)
{
    uint64_t deadline = lab_clock_now() + LAB_WHY_NS;
    bool told = false;
    int status, rc = 1;

    lab_complain("%s: %s: limit reached, killed", e->host, e->argv[0]);
    lab_wire_put(&l->tx, LAB_WHY, NULL, 0);
    while ((status = exec_messages(l, e, &told)) < 0 && !told && rc > 0) {
        rc = link_turn(l, NULL, deadline);
    }
    if (status >= 0) {
        lab_complain("%s: %s: ended meanwhile with %d", e->host, e->argv[0], status);
    } else if (!told) {
        lab_complain("%s: its agent says nothing, either", e->host);
        lab_still_explain(e->host);
    }
}

int lab_client_exec(const struct lab_exec *e)
{
    bool told = false;
    bool with_input = strchr(e->flags, LAB_EXEC_STDIN) != NULL;
    struct pollfd in = {.fd = -1, .events = POLLIN};
    struct link l;
    int status, rc;

    if (link_open(&l, e->host, e->deadline) != 0) {
        return LAB_STATUS_LOST;
    }
    signal(SIGPIPE, SIG_IGN);
    exec_request(&l, e);
    if (with_input) {
        in.fd = STDIN_FILENO;
    }
    while ((status = exec_messages(&l, e, &told)) < 0) {
        in.revents = 0;
        rc = link_turn(&l, lab_buf_len(&l.tx) < 65536 ? &in : NULL, e->deadline);
        if (rc == 0) {
            exec_explain(&l, e);
            status = LAB_STATUS_LIMIT;
            break;
        }
        if (rc < 0) {
            lab_complain("%s went away", e->host);
            status = LAB_STATUS_LOST;
            break;
        }
        input_read(&l, &in);
    }
    link_close(&l);
    return status;
}

int lab_client_wait(const char *host, const char *name, uint64_t deadline)
{
    struct lab_wire_msg m;
    struct link l;
    int rc, fd;

    if (link_open(&l, host, deadline) != 0) {
        return -LAB_STATUS_LOST;
    }
    lab_wire_put(&l.tx, LAB_WAIT, name, strlen(name));
    rc = link_message(&l, &m, deadline);
    if (rc > 0 && m.type == LAB_FIRED) {
        fd = l.fd;
        lab_buf_free(&l.rx);
        lab_buf_free(&l.tx);
        return fd;
    }
    if (rc == 0) {
        lab_complain("%s: trigger %s did not come within the limit", host, name);
    } else if (rc > 0) {
        lab_complain("%s refuses: %.*s", host, (int)m.len, m.body);
    } else {
        lab_complain("%s went away before trigger %s", host, name);
    }
    link_close(&l);
    return rc == 0 ? -LAB_STATUS_LIMIT : -LAB_STATUS_LOST;
}

void lab_client_done(int fd, bool ok, const char *text)
{
    struct lab_buf b = {0};
    char answer[512];

    snprintf(answer, sizeof(answer), "%c%s", ok ? '+' : '-', text);
    lab_wire_put(&b, LAB_DONE, answer, strlen(answer));
    (void)!send(fd, b.mem + b.head, lab_buf_len(&b), MSG_NOSIGNAL);
    lab_buf_free(&b);
    close(fd);
}
