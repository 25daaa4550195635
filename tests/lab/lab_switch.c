/*
 * The network of the lab: every NIC of every VM is connected to this process by a UNIX socket
 * (QEMU's -netdev stream: 4 bytes of length, big-endian, then the frame).
 *
 *   lab_switch HOSTS SEED PIDFILE NAME
 *
 * Sockets in the current folder: h0.n0 ... and "switch" for commands; it returns when they are
 * there. Commands are lines; the last line of each answer begins with "ok" or "error":
 *
 *   PORT cut|loss|dup|corrupt|delay|rate|heal ...  as lab_impair_parse; PORT: h0:n1, h0:m, h0:all
 *                                                  (its data NICs), all (all data NICs)
 *   h0:n1-h2:n1 cut [both|out|in], heal            what passes between these two ports; out: from
 *                                                  the first to the second
 *   rail1 cut, heal                                between any two ports of a rail
 *   rail1/3 cut, heal                              what takes spine 3 of a rail (lab_spine.h);
 *                                                  rail1/most cut: of the spine that most frames
 *                                                  have taken
 *   reset                                          every port and spine healthy, their frames
 *                                                  counted anew
 *   show [PORT]                                    state and counters; without PORT of spines, too
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
    return p->segment < LAB_RAILS && (strcmp(name, "all") == 0 || (strncmp(name, p->name, 3) == 0 &&
                                                                   strcmp(name + 3, "all") == 0));
}

/* An answer is short and the client reads it: it goes out at once. A client that does not read gets
 * no more of it. */
static void answer(struct client *c, const char *text)
{
    (void)!send(c->watch.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The impairments in words, then the hosts from which it is cut. */
static void port_state(const struct lab_port *p, char *out, size_t size)
{
    size_t n;

    lab_impair_print(p->im, out, size);
    if (p->held || p->stuck) {
        n = strlen(out);
        snprintf(out + n, size - n, "%s%s", p->held ? ", its sender waits" : "",
                 p->stuck ? ", its NIC takes nothing" : "");
    }
    for (int h = 0; h < LAB_HOSTS_MAX; h++) {
        n = strlen(out);
        if (p->cut_to >> h & 1) {
            snprintf(out + n, size - n, ", nothing to h%d", h);
        }
    }
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
        port_state(p, state, sizeof(state));
        n = snprintf(text, sizeof(text), "%s %s queued=%zu", p->name,
                     p->conn.fd >= 0 ? "connected" : "no-vm", p->queued);
        for (k = 0; k < LAB_COUNTS; k++) {
            n += snprintf(text + n, sizeof(text) - (size_t)n, " %s=%llu",
                          lab_count_name((enum lab_count)k), (unsigned long long)p->count[k]);
        }
        snprintf(text + n, sizeof(text) - (size_t)n, " state: %s\n", state);
        answer(c, text);
        shown++;
    }
    for (int rail = 0; rail < LAB_RAILS && name == NULL; rail++) {
        for (k = 0; k < LAB_SPINES; k++) {
            const struct lab_spine *s = &lab_sw.spine[rail][k];

            snprintf(text, sizeof(text), "rail%d/%d frames=%llu dropped=%llu state: %s\n", rail, k,
                     (unsigned long long)s->frames, (unsigned long long)s->dropped,
                     s->cut ? "cut" : "healthy");
            answer(c, text);
        }
    }
    answer(c, shown > 0 ? "ok\n" : "error no such port\n");
}

/* What passes between @a and @b; @out: from @a to @b, @in: the other way. */
static void pair_cut(struct lab_port *a, struct lab_port *b, bool cut, bool out, bool in)
{
    if (out) {
        a->cut_to = cut ? a->cut_to | 1u << b->host : a->cut_to & ~(1u << b->host);
    }
    if (in) {
        b->cut_to = cut ? b->cut_to | 1u << a->host : b->cut_to & ~(1u << a->host);
    }
}

/* Every two ports of @segment of which one is @of, or any when that is NULL. */
static void segment_cut(int segment, const struct lab_port *of, bool cut)
{
    struct lab_port *end = lab_sw.port + lab_sw.ports;

    for (struct lab_port *a = lab_sw.port; a < end; a++) {
        for (struct lab_port *b = a + 1; b < end; b++) {
            if (a->segment == segment && b->segment == segment &&
                (of == NULL || a == of || b == of)) {
                pair_cut(a, b, cut, true, true);
            }
        }
    }
}

static struct lab_port *port_find(const char *name, size_t len)
{
    for (struct lab_port *p = lab_sw.port; p < lab_sw.port + lab_sw.ports; p++) {
        if (strlen(p->name) == len && strncmp(p->name, name, len) == 0) {
            return p;
        }
    }
    return NULL;
}

/* "K" or "most": a spine of @rail; -1: neither. */
static int spine_find(long rail, const char *text)
{
    const struct lab_spine *s = lab_sw.spine[rail];
    long k;
    int most = 0;

    if (strcmp(text, "most") == 0) {
        for (int i = 1; i < LAB_SPINES; i++) {
            most = s[i].frames > s[most].frames ? i : most;
        }
        return most;
    }
    return lab_number_parse(text, 0, LAB_SPINES - 1, &k) == 0 ? (int)k : -1;
}

/* railN, or railN/K: NULL when it was taken, else what is wrong. */
static const char *rail_set(char *name, bool cut)
{
    char *slash = strchr(name, '/');
    long rail;
    int k;

    if (slash != NULL) {
        *slash = '\0';
    }
    if (lab_number_parse(name + strlen("rail"), 0, LAB_RAILS - 1, &rail) != 0) {
        return "a rail, such as rail1";
    }
    if (slash == NULL) {
        segment_cut((int)rail, NULL, cut);
        return NULL;
    }
    k = spine_find(rail, slash + 1);
    if (k < 0) {
        return "a spine of a rail, such as rail1/3 or rail1/most";
    }
    lab_sw.spine[rail][k].cut = cut;
    slash[0] = '/';
    slash[1] = (char)('0' + k); /* it is said which one that is */
    slash[2] = '\0';
    return NULL;
}

/* Two ports, a rail, or a spine of one: NULL when @word was taken, else what is wrong. */
static const char *between_set(char **word, int n)
{
    static const char *const usage =
        "PORT-PORT cut [both|out|in] or heal, railN or railN/K cut or heal";
    const char *dash = strchr(word[0], '-'), *dir = n == 3 ? word[2] : "both";
    bool cut = n > 1 && strcmp(word[1], "cut") == 0;
    struct lab_port *a, *b;

    if (n < 2 || n > 3 || (!cut && (n > 2 || strcmp(word[1], "heal") != 0))) {
        return usage;
    }
    if (dash == NULL) {
        return n > 2 ? usage : rail_set(word[0], cut);
    }
    a = port_find(word[0], (size_t)(dash - word[0]));
    b = port_find(dash + 1, strlen(dash + 1));
    if (a == NULL || b == NULL || a == b || a->segment != b->segment) {
        return "two ports of one rail, such as h0:n1-h2:n1";
    }
    if (strcmp(dir, "both") != 0 && strcmp(dir, "out") != 0 && strcmp(dir, "in") != 0) {
        return usage;
    }
    pair_cut(a, b, cut, strcmp(dir, "in") != 0, strcmp(dir, "out") != 0);
    return NULL;
}

static void command_between(struct client *c, char **word, int n)
{
    const char *wrong = between_set(word, n);
    char text[300];

    if (wrong != NULL) {
        snprintf(text, sizeof(text), "error expected: %s\n", wrong);
    } else {
        snprintf(text, sizeof(text), "ok %.60s %s\n", word[0], word[1]);
    }
    answer(c, text);
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
            if (wrong == NULL && strcmp(word[1], "heal") == 0) {
                segment_cut(p->segment, p, false);
            }
            port_state(p, state, sizeof(state));
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

    for (w = strtok_r(line, " ", &save); w != NULL && n <= WORDS_MAX;
         w = strtok_r(NULL, " ", &save)) {
        word[n++] = w;
    }
    if (n == 0 || n > WORDS_MAX) {
        answer(c, "error expected: PORT FAULT ..., reset, or show [PORT]\n");
    } else if (n == 1 && strcmp(word[0], "reset") == 0) {
        for (p = lab_sw.port; p < lab_sw.port + lab_sw.ports; p++) {
            memset(p->im, 0, sizeof(p->im));
            p->cut_to = 0;
        }
        memset(lab_sw.spine, 0, sizeof(lab_sw.spine));
        answer(c, "ok reset\n");
    } else if (n <= 2 && strcmp(word[0], "show") == 0) {
        command_show(c, n == 2 ? word[1] : NULL);
    } else if (strchr(word[0], '-') != NULL || strncmp(word[0], "rail", 4) == 0) {
        command_between(c, word, n);
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
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
        lab_buf_len(&c->rx) > LINE_MAX_LEN) {
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

/* The caller's command returns when the sockets are there: the rest goes on in a child with nothing
 * of the caller's open but standard error, which is the switch's log. PIDFILE "-": stays in the
 * foreground and says "ready". */
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
        lab_die(
            2,
            "usage: lab_switch HOSTS SEED PIDFILE NAME (which is there to be seen in the list of processes)");
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
