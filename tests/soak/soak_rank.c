/* A process of a schedule: loads the plugin, drives each communicator in a thread of its own, lap
 * after lap. */
#include "plugin/base/r2_time.h"
#include "tests/soak/soak.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define QUIET_NS (10000 * SOAK_MS) /* what the plugin does behind a close has ended after this */
#define STILL_NS (1000 * SOAK_MS)  /* ... and when nothing has changed for so long */
#define HEAP_GROWTH                                                                                \
    (8 << 10)       /* from the second lap to the last; one connection takes more than 100 KiB */
#define HEAP_LAPS 8 /* fewer laps show nothing */

struct soak_rank soak_rank;
static struct soak_plan plan;

uint64_t soak_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

void soak_fail(const char *fmt, ...)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    va_list ap;

    pthread_mutex_lock(&once); /* not given back: the first reason counts */
    va_start(ap, fmt);
    vsnprintf(soak_rank.mine->why, sizeof(soak_rank.mine->why), fmt, ap);
    va_end(ap);
    atomic_store(&soak_rank.mine->failed, 1);
    fprintf(stderr, "%.6f p%d FAILED %s\n", (double)soak_now() / 1e9, soak_rank.index,
            soak_rank.mine->why);
    _exit(1);
}

static void nap(uint64_t us)
{
    struct timespec ts = {0, (long)us * 1000};

    nanosleep(&ts, NULL);
}

struct worker {
    pthread_t thread;
    struct soak_end *end;
    int count;
};

/* As NCCL's progress thread: polls all it has. With naps it is the slow one. */
static void *worker_run(void *arg)
{
    struct worker *w = arg;

    for (;;) {
        int open = 0, moved = 0;
        for (int i = 0; i < w->count; i++) {
            moved |= soak_end_turn(&w->end[i]);
            open += w->end[i].state != SOAK_CLOSED;
        }
        if (open == 0) {
            return NULL;
        }
        if (!moved && plan.nap_us) {
            nap((uint64_t)plan.nap_us);
        } else if (!moved) {
            sched_yield();
        }
    }
}

static void worker_fill(struct worker *w, int comm)
{
    w->end = calloc((size_t)plan.conns * 2, sizeof(*w->end));
    w->count = 0;
    if (w->end == NULL) {
        soak_fail("memory");
    }
    for (int i = 0; i < plan.conns; i++) {
        if (plan.conn[i].comm != comm) {
            continue;
        }
        if (plan.conn[i].to == soak_rank.index) {
            soak_end_init(&w->end[w->count++], i, 0);
        }
        if (plan.conn[i].from == soak_rank.index) {
            soak_end_init(&w->end[w->count++], i, 1);
        }
    }
}

static int files_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    if (d == NULL) {
        soak_fail("/proc/self/fd: %s", strerror(errno));
    }
    while (readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

void soak_conductor_ring(void)
{
    uint64_t one = 1;

    if (write(soak_rank.trigger_fd, &one, sizeof(one)) != sizeof(one)) {
        soak_fail("the conductor cannot be told");
    }
}

/* Everybody is through with this lap; what the killed one had is nobody's. */
static void lap_meet(int lap)
{
    uint64_t since = soak_now();

    atomic_fetch_add(&soak_rank.board->in_lap[lap], 1);
    soak_conductor_ring(); /* who injects looks whether it was the last one */
    while (atomic_load(&soak_rank.board->in_lap[lap]) < atomic_load(&soak_rank.board->ranks)) {
        if (soak_now() - since > 60000 * SOAK_MS) {
            soak_fail("the others do not end lap %d", lap);
        }
        nap(500);
    }
}

struct quiet {
    int files;
    int64_t heap;
};

static struct quiet quiet_look(void)
{
    struct mallinfo2 m = mallinfo2();

    return (struct quiet){files_open(), (int64_t)(m.uordblks + m.hblkhd)};
}

/*
 * After a lap the plugin must get back to what it had after the second one: the first one loads,
 * meets its peers, and fills what incarnations as long as the process. It closes behind our back,
 * so this looks until it is so.
 */
static void quiet_wait(int lap)
{
    static struct quiet measure;
    struct quiet q = quiet_look(), before;
    uint64_t since = soak_now(), same = since;

    while (lap < 2 && soak_now() - same < STILL_NS && soak_now() - since < QUIET_NS) {
        before = q;
        nap(5000);
        q = quiet_look();
        same = q.files == before.files && q.heap == before.heap ? same : soak_now();
    }
    if (lap < 2) {
        measure = q;
    }
    while (q.files > measure.files || q.heap > measure.heap + HEAP_GROWTH) {
        if (soak_now() - since > QUIET_NS) {
            soak_fail(
                "after lap %d %d files are open and %lld bytes of heap in use, after lap 1 %d and %lld",
                lap, q.files, (long long)q.heap, measure.files, (long long)measure.heap);
        }
        nap(5000);
        q = quiet_look();
    }
    fprintf(stderr, "%.6f p%d lap %d: %d files, %lld bytes of heap\n", (double)soak_now() / 1e9,
            soak_rank.index, lap, q.files, (long long)q.heap);
    atomic_store(&soak_rank.mine->heap_growth, q.heap - measure.heap);
}

static void lap_run(int lap)
{
    struct worker w[SOAK_COMMS];

    soak_rank.lap = lap;
    for (int i = 0; i < plan.comms; i++) {
        worker_fill(&w[i], i);
    }
    for (int i = 0; i < plan.comms; i++) {
        if (pthread_create(&w[i].thread, NULL, worker_run, &w[i]) != 0) {
            soak_fail("thread");
        }
    }
    for (int i = 0; i < plan.comms; i++) {
        pthread_join(w[i].thread, NULL);
    }
    lap_meet(lap);
    for (int i = 0; i < plan.comms; i++) {
        for (int k = 0; k < w[i].count; k++) {
            soak_end_free(&w[i].end[k]);
        }
        free(w[i].end);
    }
    if (plan.laps >= HEAP_LAPS) {
        quiet_wait(lap);
    }
}

/* The processes of a job may run NCCLs of different age: the seed says which table each of them
 * uses. */
static int plugin_version(void)
{
    return ABI_VIEW_OLDEST +
           (int)((plan.seed + (uint64_t)soak_rank.index) % (ABI_VIEW_NEWEST - ABI_VIEW_OLDEST + 1));
}

static void plugin_load(const char *path)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int rc;

    if (lib == NULL) {
        soak_fail("%s", dlerror());
    }
    if ((soak_rank.net = abi_view_find(lib, plugin_version())) == NULL) {
        soak_fail("no %s in %s", abi_view_symbol(plugin_version()), path);
    }
    rc = soak_rank.net->init(soak_logger);
    if (rc != ABI_SUCCESS || soak_rank.net->devices(&soak_rank.ndev) != ABI_SUCCESS) {
        soak_fail("init returned %d: %s", rc, soak_last_warn());
    }
    if (soak_rank.ndev != plan.nics) {
        soak_fail("%d devices, the host has %d NICs", soak_rank.ndev, plan.nics);
    }
}

/* argv: RANK CLASS SEED PLUGIN BOARD_FD TRIGGER_FD */
int soak_rank_main(int argc, char **argv)
{
    if (argc != 6) {
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    soak_plan_draw(&plan, atoi(argv[1]), strtoull(argv[2], NULL, 10));
    soak_rank.plan = &plan;
    soak_rank.index = atoi(argv[0]);
    soak_rank.host = soak_rank.index % plan.hosts;
    soak_rank.trigger_fd = atoi(argv[5]);
    soak_rank.board =
        mmap(NULL, sizeof(*soak_rank.board), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[4]), 0);
    if (soak_rank.board == MAP_FAILED) {
        perror("r2_soak: board");
        return 2;
    }
    soak_rank.mine = &soak_rank.board->rank[soak_rank.index];
    plugin_load(argv[3]);
    for (int lap = 0; lap < plan.laps; lap++) {
        lap_run(lap);
    }
    while (!atomic_load(&soak_rank.board->over)) { /* what is still to break breaks under a plugin
                                                      without connections */
        nap(1000);
    }
    return 0;
}
