/*
 * bench_pair --plugin FILE --softfab FILE --fabric NAME WHAT [NUMBER]
 *
 * WHAT: setup; stall, with the number of runs; load, of connections; last and last-silent, of the
 * run, by which the host is chosen whose NICs are lost
 *
 * Starts both sides under `softfab exec`; exit status 0 when both ended well.
 * BENCH_PAIR_UNDER="0:COMMAND ..." runs side 0 under a command, a profiler's; 1: side 1.
 */
#include "tests/bench/pair.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_time.h"

#define LIMIT_S   300
#define LOAD_MAX  16000
#define UNDER_MAX 16 /* words of BENCH_PAIR_UNDER */

uint64_t pair_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

void pair_rest(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};

    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}

double pair_cpu_ms(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static int compare(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return a < b ? -1 : a > b;
}

struct pair_spread pair_spread_get(uint64_t *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), compare);
    return (struct pair_spread){.p25 = (double)v[n / 4] / 1e6,
                                .median = (double)v[n / 2] / 1e6,
                                .p99 = (double)v[n * 99 / 100] / 1e6,
                                .most = (double)v[n - 1] / 1e6};
}

/* The time at which all of this side's connections stood. */
static uint64_t listen_all(int n, int dev, void **comm)
{
    char(*mine)[ABI_HANDLE_BYTES] = calloc((size_t)n, sizeof(*mine)),
    (*theirs)[ABI_HANDLE_BYTES] = calloc((size_t)n, sizeof(*theirs));
    void **listen = calloc((size_t)n, sizeof(*listen));
    uint64_t stood;
    int left = n;

    NEED(mine && theirs && listen, "out of memory");
    for (int i = 0; i < n; i++) {
        OK(drv.net->listen((dev + i) % drv.ndev, mine[i], &listen[i]));
    }
    for (int i = 0; i < n; i++) { /* all of them at once would fill both sockets */
        drv_swap(mine[i], theirs[i], sizeof(*mine));
    }
    while (left > 0) {
        for (int i = 0; i < n; i++) {
            if (comm[i] == NULL) {
                OK(drv.net->accept(listen[i], &comm[i], NULL));
                left -= comm[i] != NULL;
            }
        }
        sched_yield();
    }
    stood = pair_now();
    for (int i = 0; i < n; i++) {
        OK(drv.net->close_listen(listen[i]));
    }
    free(mine);
    free(theirs);
    free(listen);
    return stood;
}

static uint64_t connect_all(int n, int dev, void **comm)
{
    char(*none)[ABI_HANDLE_BYTES] = calloc((size_t)n, sizeof(*none)),
    (*handle)[ABI_HANDLE_BYTES] = calloc((size_t)n, sizeof(*handle));
    int left = n;

    NEED(none && handle, "out of memory");
    for (int i = 0; i < n; i++) {
        drv_swap(none[i], handle[i], sizeof(*none));
    }
    while (left > 0) {
        for (int i = 0; i < n; i++) {
            if (comm[i] == NULL) {
                OK(drv.net->connect((dev + i) % drv.ndev, handle[i], &comm[i], NULL));
                left -= comm[i] != NULL;
            }
        }
        sched_yield();
    }
    free(none);
    free(handle);
    return pair_now();
}
uint64_t pair_connect(int n, int dev, void **comm)
{
    uint64_t start, mine, theirs;

    memset(comm, 0, (size_t)n * sizeof(*comm));
    drv_barrier();
    start = pair_now();
    mine = drv.side ? listen_all(n, dev, comm) : connect_all(n, dev, comm);
    drv_swap(&mine, &theirs, sizeof(mine));
    return (mine > theirs ? mine : theirs) - start;
}

void pair_close(int n, void **comm)
{
    for (int i = 0; i < n; i++) {
        OK(drv.side ? drv.net->close_recv(comm[i]) : drv.net->close_send(comm[i]));
    }
}

#define SETUP_ONE  20
#define SETUP_MANY 6

void pair_setup_run(void)
{
    uint64_t one[SETUP_ONE], many[SETUP_MANY], first;
    struct pair_spread o, m;
    void *comm[64];

    first = pair_connect(1, 0, comm);
    pair_close(1, comm);
    for (int i = 0; i < SETUP_ONE; i++) {
        pair_rest(30 * PAIR_NS_MS);
        one[i] = pair_connect(1, i, comm);
        pair_close(1, comm);
    }
    for (int i = 0; i < SETUP_MANY; i++) {
        pair_rest(300 * PAIR_NS_MS);
        many[i] = pair_connect(64, 0, comm);
        pair_close(64, comm);
    }
    o = pair_spread_get(one, SETUP_ONE);
    m = pair_spread_get(many, SETUP_MANY);
    if (drv.side) {
        printf(
            "{\"nics\": %d, \"first_ms\": %.3f, \"one\": {\"n\": %d, \"median_ms\": %.3f, \"max_ms\": %.3f}, "
            "\"of_64\": {\"n\": %d, \"median_ms\": %.3f, \"max_ms\": %.3f}}\n",
            drv.ndev, (double)first / 1e6, SETUP_ONE, o.median, o.most, SETUP_MANY, m.median,
            m.most);
    }
}

/* --- both sides --- */

static void too_long(int sig)
{
    static const char text[] = "bench_pair: not through within its limit\n";
    ssize_t n = write(2, text, sizeof(text) - 1);

    (void)n;
    _exit(1);
}

static int side_run(int side, const char *peer, const char *plugin, const char *what, int runs)
{
    drv.name = what;
    drv.side = side;
    drv.peer = atoi(peer);
    drv.plugin = plugin;
    signal(SIGALRM, too_long);
    alarm(LIMIT_S);
    pair_fabric_open();
    drv_load();
    drv_init();
    if (strcmp(what, "setup") == 0) {
        pair_setup_run();
    } else if (strcmp(what, "load") == 0) {
        pair_load_run(runs);
    } else if (strcmp(what, "idle") == 0) {
        pair_idle_run(runs);
    } else if (strcmp(what, "stream") == 0) {
        pair_stream_run(runs);
    } else if (strcmp(what, "crowd") == 0) {
        pair_crowd_run(runs);
    } else if (strncmp(what, "calls", 5) == 0) {
        pair_calls_run(what, runs);
    } else if (strncmp(what, "last", 4) == 0) {
        pair_last_run(runs, strcmp(what, "last-silent") == 0);
    } else {
        pair_stall_run(runs);
    }
    fflush(stdout);
    return 0;
}

/* The words that this side is run under, put into @argv; how many. */
static int under_put(char **argv, int side)
{
    const char *under = getenv("BENCH_PAIR_UNDER");
    char *words, *save;
    int n = 0;

    if (under == NULL || atoi(under) != side || (words = strchr(under, ':')) == NULL ||
        (words = strdup(words + 1)) == NULL) {
        return 0;
    }
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (n == UNDER_MAX) {
            fprintf(stderr, "bench_pair: BENCH_PAIR_UNDER has more than %d words\n", UNDER_MAX);
            _exit(2);
        }
        argv[n++] = w;
    }
    return n;
}

/* argv: --plugin FILE --softfab FILE --fabric NAME WHAT [RUNS] */
static pid_t side_start(char **argv, int argc, int side, const int *fd)
{
    char self[PATH_MAX], host[16], number[16];
    char *start[7 + UNDER_MAX + 8] = {argv[4], "exec", "--name", argv[6], "--host", host, "--"};
    char *rest[] = {self, "--side", host, number, argv[2], argv[7], argc > 8 ? argv[8] : "8", NULL};
    int at;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    pid_t parent = getpid(), pid = fork();

    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    self[n > 0 ? n : 0] = '\0';
    snprintf(host, sizeof(host), "%d", side);
    snprintf(number, sizeof(number), "%d", fd[side]);
    close(fd[1 - side]);
    at = 7 + under_put(start + 7, side);
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
        start[at++] = rest[i];
    }
    execv(argv[4], start);
    fprintf(stderr, "%s: %s\n", argv[4], strerror(errno));
    _exit(127);
}

static const struct {
    const char *name;
    int most; /* of its number */
} whats[] = {{"setup", 64},
             {"stall", 64},
             {"load", LOAD_MAX},
             {"idle", LOAD_MAX},
             {"stream", 100000000},
             {"crowd", LOAD_MAX},
             {"calls", 1000000},
             {"calls-empty-send", 1000000},
             {"calls-empty-recv", 1000000},
             {"calls-no-receive", 1000000},
             {"last", 99},
             {"last-silent", 99}};

static bool what_is_known(const char *name, const char *number)
{
    for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++) {
        if (strcmp(whats[i].name, name) == 0) {
            return number == NULL || (atoi(number) >= 1 && atoi(number) <= whats[i].most);
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    int fd[2], status, bad = 0;
    pid_t pid[2];

    if (argc == 7 && strcmp(argv[1], "--side") == 0) {
        return side_run(atoi(argv[2]), argv[3], argv[4], argv[5], atoi(argv[6]));
    }
    if (argc < 8 || argc > 9 || strcmp(argv[1], "--plugin") != 0 ||
        strcmp(argv[3], "--softfab") != 0 || strcmp(argv[5], "--fabric") != 0 ||
        !what_is_known(argv[7], argc > 8 ? argv[8] : NULL)) {
        fprintf(stderr, "usage: bench_pair --plugin FILE --softfab FILE --fabric NAME "
                        "setup|stall|load|idle|stream|crowd|calls|calls-empty-send|"
                        "calls-empty-recv|calls-no-receive|last|last-silent [NUMBER]\n");
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) {
        perror("socketpair");
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        pid[i] = side_start(argv, argc, i, fd);
    }
    close(fd[0]);
    close(fd[1]);
    for (int i = 0; i < 2; i++) {
        bad |= pid[i] < 0 || waitpid(pid[i], &status, 0) != pid[i] || !WIFEXITED(status) ||
               WEXITSTATUS(status) != 0;
    }
    return bad;
}
