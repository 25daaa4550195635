/* verbs_watch: options, and the loop that watches. */
#include "tests/lab/verbs_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_time.h"

extern char **environ;

static const char help[] =
    "verbs_watch --listen ADDR:PORT | --connect ADDR:PORT [options]\n"
    "\n"
    "One RC queue pair to the other verbs_watch, writes with immediate both ways; prints what verbs reports, one JSON\n"
    "object per line, times in ms since the first mark (the fault).\n"
    "\n"
    "  --dev NAME --port 1 --gid N      device [first], port, GID index [the last IPv4 one]\n"
    "  --mtu BYTES                      path MTU [the ports' active one]\n"
    "  --timeout 14 --retry 3 --rnr 7   of the queue pair\n"
    "  --label 0                        flow label of the queue pair, which chooses its way\n"
    "  --size 4096 --depth 8            bytes per write, writes outstanding\n"
    "  --pace 20ms                      fills the window this often only [whenever a write is done]\n"
    "  --recv-only                      this end writes nothing\n"
    "  --observe 3s                     ends this long after the first mark\n"
    "  --stall 100ms                    a flow without success for this long has stopped\n"
    "  --limit 60s                      longest wait for the peer, and for the first mark\n"
    "  --fault-cmd CMD --after 1s       CMD, run by sh from the start, reads a line when the fault is due: then "
    "\"fault\"\n"
    "                                   is marked; when it ends, \"done\"; what it prints is taken like standard "
    "input\n"
    "\n"
    "Standard input: 'fault' or 'mark NAME' marks now and tells the peer, 'end' ends. Exit: 0 observed, 1 set-up "
    "failed,\n"
    "2 wrong use, 3 a verbs call blocks (it says which), 5 no mark came.\n";

uint64_t vw_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

/* ---- options ---- */

/* "3s", "100ms"; 0 if it is not that. */
static uint64_t time_parse(const char *text)
{
    char *end;
    double v = strtod(text, &end);

    if (!(v > 0 && v < 1e6)) {
        return 0;
    }
    if (strcmp(end, "s") == 0) {
        return (uint64_t)(v * 1e9);
    }
    return strcmp(end, "ms") == 0 ? (uint64_t)(v * 1e6) : 0;
}

struct option_row {
    struct option opt;
    enum { TEXT, NUMBER, TIME, FLAG } type;
    long min, max;
    void *to;
};

static int option_take(const struct option_row *r)
{
    char *end;
    long v;

    switch (r->type) {
    case TEXT:
        *(const char **)r->to = optarg;
        return 0;
    case FLAG:
        *(bool *)r->to = true;
        return 0;
    case TIME:
        *(uint64_t *)r->to = time_parse(optarg);
        if (*(uint64_t *)r->to) {
            return 0;
        }
        fprintf(stderr, "verbs_watch: --%s '%s' is not a time such as 3s or 100ms\n", r->opt.name,
                optarg);
        return -1;
    case NUMBER:
        v = strtol(optarg, &end, 10);
        *(int *)r->to = (int)v;
        if (end != optarg && !*end && v >= r->min && v <= r->max) {
            return 0;
        }
        fprintf(stderr, "verbs_watch: --%s '%s' is not a number from %ld to %ld\n", r->opt.name,
                optarg, r->min, r->max);
        return -1;
    }
    return -1;
}

static int options_parse(struct vw_opts *o, int argc, char **argv)
{
    const struct option_row rows[] = {
        {{"listen", 1}, TEXT, 0, 0, &o->listen_at},
        {{"connect", 1}, TEXT, 0, 0, &o->connect_to},
        {{"dev", 1}, TEXT, 0, 0, &o->dev},
        {{"fault-cmd", 1}, TEXT, 0, 0, &o->fault_cmd},
        {{"port", 1}, NUMBER, 1, 255, &o->ib_port},
        {{"gid", 1}, NUMBER, 0, 255, &o->gid_index},
        {{"mtu", 1}, NUMBER, 256, 4096, &o->mtu},
        {{"timeout", 1}, NUMBER, 0, 31, &o->timeout},
        {{"retry", 1}, NUMBER, 0, 7, &o->retry},
        {{"rnr", 1}, NUMBER, 0, 7, &o->rnr},
        {{"label", 1}, NUMBER, 0, 0xfffff, &o->label},
        {{"size", 1}, NUMBER, 1, 1 << 20, &o->size},
        {{"depth", 1}, NUMBER, 1, 1024, &o->depth},
        {{"observe", 1}, TIME, 0, 0, &o->observe_ns},
        {{"pace", 1}, TIME, 0, 0, &o->pace_ns},
        {{"stall", 1}, TIME, 0, 0, &o->stall_ns},
        {{"limit", 1}, TIME, 0, 0, &o->limit_ns},
        {{"after", 1}, TIME, 0, 0, &o->fault_after_ns},
        {{"recv-only", 0}, FLAG, 0, 0, &o->recv_only},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct option longs[ROWS + 1] = {0};
    int opt, index;

    for (int i = 0; i < ROWS; i++) {
        longs[i] = rows[i].opt;
    }
    while ((opt = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (opt == '?' || option_take(&rows[index])) {
            return -1;
        }
    }
    if (optind < argc || !o->listen_at == !o->connect_to) {
        fprintf(stderr, "verbs_watch: %s\n",
                optind < argc ? argv[optind]
                              : "one of --listen and --connect is needed (verbs_watch --help)");
        return -1;
    }
    return 0;
}

/* ---- who speaks to us: standard input, the peer, the fault command ---- */

static void word_take(struct vw *w, char *line, bool from_peer)
{
    if (strcmp(line, "end") == 0 || strcmp(line, "bye") == 0) {
        *(from_peer ? &w->peer_done : &w->ended) = true;
    } else if (strcmp(line, "fault") == 0) {
        vw_mark(w, "fault", vw_now(), !from_peer);
    } else if (strncmp(line, "mark ", 5) == 0 || strncmp(line, "m ", 2) == 0) {
        vw_mark(w, strchr(line, ' ') + 1, vw_now(), !from_peer);
    } else {
        fprintf(stderr, "verbs_watch: '%s' is none of fault, mark NAME, end\n", line);
    }
}

static void lines_take(struct vw *w, char *buf, uint32_t *len, uint32_t got, bool from_peer)
{
    char *nl;

    *len += got;
    while ((nl = memchr(buf, '\n', *len)) != NULL) {
        uint32_t n = (uint32_t)(nl - buf) + 1;

        *nl = '\0';
        word_take(w, buf, from_peer);
        *len -= n;
        memmove(buf, buf + n, *len);
    }
}

static void words_read(struct vw *w, struct vw_words *in)
{
    ssize_t n = read(in->fd, in->line + in->len, sizeof in->line - in->len);

    if (n > 0) {
        lines_take(w, in->line, &in->len, (uint32_t)n, false);
    } else if (n == 0 || errno != EAGAIN) {
        if (in->fd != STDIN_FILENO) {
            close(in->fd);
        }
        in->fd = -1;
    }
}

static void peer_read(struct vw *w)
{
    ssize_t n = recv(w->tcp, w->said.line + w->said.len, sizeof w->said.line - w->said.len, 0);

    if (n > 0) {
        lines_take(w, w->said.line, &w->said.len, (uint32_t)n, true);
    } else if (n == 0 || errno != EAGAIN) {
        if (!w->peer_done) {
            vw_note(w, VW_PEER, "closed the TCP connection");
        }
        close(w->tcp);
        w->tcp = -1;
        w->peer_done = true;
    }
}

/* Started before the traffic: what a busy machine needs to start a command must not count as part
 * of the failure. */
static int fault_prepare(struct vw *w)
{
    char *argv[] = {"sh", "-c", (char *)w->o.fault_cmd, NULL};
    posix_spawn_file_actions_t actions;
    int in[2], out[2], rc;

    if (!w->o.fault_cmd) {
        return 0;
    }
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
        fprintf(stderr, "verbs_watch: pipe: %s\n", strerror(errno));
        return -1;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    rc = posix_spawnp(&w->fault_pid, "sh", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    w->fault_go = in[1];
    w->ordered.fd = out[0];
    if (rc) {
        fprintf(stderr, "verbs_watch: cannot run sh: %s\n", strerror(rc));
    }
    return rc ? -1 : 0;
}

static void fault_run(struct vw *w, uint64_t now)
{
    int status;

    if (w->fault_go >= 0 && now - w->start >= w->o.fault_after_ns) {
        vw_mark(w, "fault", vw_now(), true);
        if (write(w->fault_go, "go\n", 3) != 3) {
            vw_note(w, VW_CALL, "fault command is not there");
        }
        close(w->fault_go);
        w->fault_go = -1;
    }
    if (w->fault_pid > 0 && waitpid(w->fault_pid, &status, WNOHANG) == w->fault_pid) {
        w->fault_pid = 0;
        if (status) {
            vw_note(w, VW_CALL, "fault command failed, wait status %d", status);
        }
        vw_mark(w, "done", vw_now(), true);
    }
}

/* ---- the loop ---- */

static void completions(struct vw *w)
{
    struct ibv_cq *cq;
    void *context;
    unsigned int n = 0;

    while (ibv_get_cq_event(w->chan, &cq, &context) == 0) {
        n++;
    }
    if (n) {
        ibv_ack_cq_events(w->cq, n);
        if (ibv_req_notify_cq(w->cq, 0)) {
            vw_note(w, VW_CALL, "req_notify_cq failed");
        }
    }
    vw_poll(w); /* also without an event: one may be lost with its device */
}

static void wait_something(struct vw *w, uint64_t tick)
{
    struct pollfd p[] = {{.fd = w->chan->fd, .events = POLLIN},
                         {.fd = w->ctx->async_fd, .events = POLLIN},
                         {.fd = w->tcp, .events = POLLIN},
                         {.fd = w->typed.fd, .events = POLLIN},
                         {.fd = w->ordered.fd, .events = POLLIN}};
    uint64_t now = vw_now(), left = tick > now ? tick - now : 0;
    struct timespec ts = {.tv_sec = (time_t)(left / 1000000000),
                          .tv_nsec = (long)(left % 1000000000)};

    if (ppoll(p, 5, &ts, NULL) <= 0) {
        return;
    }
    if (p[1].revents) {
        vw_events(w);
    }
    if (p[2].revents) {
        peer_read(w);
    }
    if (p[3].revents) {
        words_read(w, &w->typed);
    }
    if (p[4].revents) {
        words_read(w, &w->ordered);
    }
}

/* 0, or 5 when there was no mark in time. */
static int watch(struct vw *w)
{
    uint64_t tick = vw_now() + VW_TICK_NS, now, bye = 0;

    for (;;) {
        wait_something(w, w->o.pace_ns && w->fill_next < tick ? w->fill_next : tick);
        completions(w);
        now = vw_now();
        if (w->o.pace_ns && now >= w->fill_next) {
            vw_send_fill(w);
            w->fill_next = now + w->o.pace_ns;
        }
        if (now >= tick) {
            vw_guard("a look at the device");
            vw_events(w);
            vw_look(w, now);
            vw_guard(NULL);
            vw_stall_check(w, now);
            fault_run(w, now);
            now = vw_now(); /* a mark may be later than the look */
            tick = now + VW_TICK_NS;
        }
        if (!w->marks && !w->ended && now - w->start > w->o.limit_ns) {
            fprintf(stderr, "verbs_watch: no mark came\n");
            return 5;
        }
        if (w->marks && now - w->mark[0].at >= w->o.observe_ns) {
            w->ended = true;
        }
        if (!w->ended) {
            continue;
        }
        /* The other end still watches: destroying our queue pair would be one more fault for it. */
        if (!bye) {
            bye = now;
            vw_notes_print(w);
            vw_tell(w, "bye\n");
        }
        if (w->peer_done || now - bye > 10000 * VW_NSEC_MS) {
            return 0;
        }
    }
}

int main(int argc, char **argv)
{
    static struct vw w = {.o = {.ib_port = 1,
                                .gid_index = -1,
                                .timeout = 14,
                                .retry = 3,
                                .rnr = 7,
                                .size = 4096,
                                .depth = 8,
                                .observe_ns = 3000 * VW_NSEC_MS,
                                .stall_ns = 100 * VW_NSEC_MS,
                                .limit_ns = 60000 * VW_NSEC_MS,
                                .fault_after_ns = 1000 * VW_NSEC_MS},
                          .typed.fd = STDIN_FILENO,
                          .ordered.fd = -1,
                          .fault_go = -1,
                          .tcp = -1};
    int rc;

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return 0;
    }
    if (options_parse(&w.o, argc, argv)) {
        return 2;
    }
    if (vw_open(&w) || fault_prepare(&w) || vw_connect(&w)) {
        return 1;
    }
    vw_look_init(&w);
    w.start = w.send.last_ok = w.recv.last_ok = vw_now();
    printf(
        "{\"run\": \"%s\", \"device\": \"%s\", \"mtu\": %d, \"timeout\": %d, \"retry\": %d, \"rnr\": %d, \"size\": %u, "
        "\"depth\": %u, \"pace_ms\": %llu, \"observe_ms\": %llu, \"writes\": %s}\n",
        w.o.listen_at ? "server" : "client", ibv_get_device_name(w.ctx->device), w.o.mtu,
        w.o.timeout, w.o.retry, w.o.rnr, w.o.size, w.o.depth,
        (unsigned long long)(w.o.pace_ns / VW_NSEC_MS),
        (unsigned long long)(w.o.observe_ns / VW_NSEC_MS), w.o.recv_only ? "false" : "true");
    fflush(stdout);
    vw_send_fill(&w);
    rc = watch(&w);
    if (rc == 0) {
        vw_end(&w);
    }
    return rc;
}
