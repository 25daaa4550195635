/*
 * The network of the lab: every NIC of every VM is connected to this process by a UNIX socket (QEMU's -netdev stream: 4
 * bytes of length, big-endian, then the frame). lab_switch HOSTS SEED PIDFILE NAME  sockets in the current folder:
 * h0.n0 ... and "switch" for commands; returns when they are there Commands are lines; the last line of each answer
 * begins with "ok" or "error": PORT cut|loss|dup|corrupt|delay|rate|heal ...     as lab_impair_parse; PORT: h0:n1,
 * h0:m, h0:all (its data NICs), all (all data NICs) reset                                             every port
 * healthy show [PORT]                                       state and counters
 */
#include "tests/lab/lab_switch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LINE_MAX_LEN 256
#define WORDS_MAX    6

struct lab_switch lab_sw;

struct client {
    struct lab_watch watch;
    struct lab_buf rx;
};

/* Whether @p is meant by @name. */
static bool port_matches(const struct lab_port *p, const char *name)
{
    if (strcmp(p->name, name) == 0) {
        return true;
    }
    return p->segment < LAB_RAILS &&
           (strcmp(name, "all") == 0 || (strncmp(name, p->name, 3) == 0 && strcmp(name + 3, "all") == 0));
}

/* An answer is short and the client reads it: it goes out at once. A client that does not read gets no more of it. */
static void answer(struct client *c, const char *text)
{
    (void)!send(c->watch.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void command_show(struct client *c, const char *name)
{
    struct lab_port *p;
    char text[1024], state[320];
    int shown = 0, n, k;

    for (p = lab_sw.port; p < lab_sw.port + lab_sw.ports; p++) {
        if (name != NULL && !port_matches(p, name)) {
            continue;
        }
        lab_impair_print(p->im, state, sizeof(state));
        n = snprintf(text, sizeof(text), "%s %s queued=%zu", p->name, p->conn.fd >= 0 ? "connected" : "no-vm",
                     p->queued);
        for (k = 0; k < LAB_COUNTS; k++) {
            n += snprintf(text + n, sizeof(text) - (size_t)n, " %s=%llu", lab_count_name((enum lab_count)k),
                          (unsigned long long)p->count[k]);
        }
        snprintf(text + n, sizeof(text) - (size_t)n, " state: %s\n", state);
        answer(c, text);
        shown++;
    }
    answer(c, shown > 0 ? "ok\n" : "error no such port\n");
}

static void command_impair(struct client *c, char **word, int n)
{
    char text[512], state[320] = "";
    const char *wrong = NULL;
    struct lab_port *p;
    int done = 0;

    for (p = lab_sw.port; p < lab_sw.port + lab_sw.ports && wrong == NULL; p++) {
        if (port_matches(p, word[0])) {
            wrong = lab_impair_parse(word + 1, n - 1, p->im);
            lab_impair_print(p->im, state, sizeof(state));
            done++;
        }
    }
    if (wrong != NULL) {
        snprintf(text, sizeof(text), "error expected: %s\n", wrong);
    } else if (done == 0) {
        snprintf(text, sizeof(text), "error no port %s\n", word[0]);
    } else {
        snprintf(text, sizeof(text), "ok %s %s\n", word[0], state);
    }
    answer(c, text);
}

static void command_run(struct client *c, char *line)
{
    char *word[WORDS_MAX + 1], *save = NULL, *w;
    struct lab_port *p;
    int n = 0;

    for (w = strtok_r(line, " ", &save); w != NULL && n <= WORDS_MAX; w = strtok_r(NULL, " ", &save)) {
        word[n++] = w;
    }
    if (n == 0 || n > WORDS_MAX) {
        answer(c, "error expected: PORT FAULT ..., reset, or show [PORT]\n");
    } else if (n == 1 && strcmp(word[0], "reset") == 0) {
        for (p = lab_sw.port; p < lab_sw.port + lab_sw.ports; p++) {
            memset(p->im, 0, sizeof(p->im));
        }
        answer(c, "ok reset\n");
    } else if (n <= 2 && strcmp(word[0], "show") == 0) {
        command_show(c, n == 2 ? word[1] : NULL);
    } else {
        command_impair(c, word, n);
    }
}

static void client_ready(struct lab_watch *w, uint32_t events)
{
    struct client *c = (struct client *)((char *)w - offsetof(struct client, watch));
    char *end;
    ssize_t n = recv(w->fd, lab_buf_room(&c->rx, LINE_MAX_LEN), LINE_MAX_LEN, MSG_DONTWAIT);

    if (n > 0) {
        c->rx.tail += (size_t)n;
        while ((end = memchr(c->rx.mem + c->rx.head, '\n', lab_buf_len(&c->rx))) != NULL) {
            char *line = c->rx.mem + c->rx.head;
            size_t len = (size_t)(end - line) + 1;
            *end = '\0';
            command_run(c, line);
            lab_buf_take(&c->rx, len);
        }
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || lab_buf_len(&c->rx) > LINE_MAX_LEN) {
        lab_watch_close(w);
        lab_buf_free(&c->rx);
        free(c);
    }
}

static void control_ready(struct lab_watch *w, uint32_t events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC);
    struct client *c = fd >= 0 ? calloc(1, sizeof(*c)) : NULL;

    if (c != NULL) {
        c->watch = (struct lab_watch){.ready = client_ready, .fd = fd};
        lab_watch_set(&c->watch, EPOLLIN);
    } else if (fd >= 0) {
        close(fd);
    }
}

static void timer_ready(struct lab_watch *w, uint32_t events)
{
    uint64_t ticks;

    (void)!read(w->fd, &ticks, sizeof(ticks));
}

static void timer_arm(int fd, uint64_t at)
{
    struct itimerspec t = {0};

    if (at != UINT64_MAX) {
        t.it_value.tv_sec = (time_t)(at / LAB_NS_PER_S);
        t.it_value.tv_nsec = (long)(at % LAB_NS_PER_S) + (at == 0);
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* The caller's command returns when the sockets are there: the rest goes on in a child with nothing of the caller's
 * open but standard error, which is the switch's log. PIDFILE "-": stays in the foreground and says "ready". */
static void daemon_start(const char *pidfile)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *f;
    pid_t pid;

    if (strcmp(pidfile, "-") == 0) {
        puts("ready");
        fflush(stdout);
        return;
    }
    pid = fork();
    if (pid < 0 || null < 0) {
        lab_die(1, "switch: fork: %s", strerror(errno));
    }
    if (pid > 0) {
        f = fopen(pidfile, "we");
        if (f == NULL || fprintf(f, "%d\n", (int)pid) < 0 || fclose(f) != 0) {
            kill(pid, SIGKILL);
            lab_die(1, "switch: %s: %s", pidfile, strerror(errno));
        }
        exit(0);
    }
    setsid();
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
}

int main(int argc, char **argv)
{
    struct lab_watch control = {.ready = control_ready}, timer = {.ready = timer_ready};
    long hosts, seed;
    int i;

    if (argc != 5 || lab_number_parse(argv[1], 1, LAB_HOSTS_MAX, &hosts) != 0 ||
        lab_number_parse(argv[2], 0, INT64_MAX, &seed) != 0) {
        lab_die(2, "usage: lab_switch HOSTS SEED PIDFILE NAME (which is there to be seen in the list of processes)");
    }
    lab_sw.rng = (uint64_t)seed;
    lab_watch_init();
    timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    control.fd = lab_unix_listen("switch");
    if (timer.fd < 0 || control.fd < 0) {
        lab_die(1, "switch: set-up: %s", strerror(errno));
    }
    lab_watch_set(&timer, EPOLLIN);
    lab_watch_set(&control, EPOLLIN);
    for (i = 0; i < (int)hosts * LAB_SEGMENTS; i++) {
        lab_port_open(&lab_sw.port[lab_sw.ports++], i / LAB_SEGMENTS, i % LAB_SEGMENTS);
    }
    daemon_start(argv[3]);
    for (;;) {
        timer_arm(timer.fd, lab_ports_settle(lab_clock_now()));
        lab_watch_run();
    }
}
