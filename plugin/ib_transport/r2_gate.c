#include "r2_gate.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "base/r2_time.h"

#define DRAIN_NS                                                                                   \
    1000000 /* a store leaves its processor by itself in less than a thousandth of it */

static int single_threaded;
static int always_strict;         /* no membarrier, or a race detector; written by r2_gate_setup */
static _Atomic int failed_logged; /* relaxed: one line is enough */

static int membarrier(int cmd)
{
    return (int)syscall(__NR_membarrier, cmd, 0, 0);
}

void r2_gate_setup(int threads)
{
    static int decided; /* gates that are loose need the barrier that they were made for */

    single_threaded = !threads;
    if (single_threaded || decided) {
        return;
    }
    decided = 1;
#ifdef __SANITIZE_THREAD__
    always_strict = 1;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    always_strict = 1;
#endif
#endif
    if (!always_strict && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) {
        always_strict = 1;
    }
}

void r2_gate_init(struct r2_gate *g)
{
    atomic_init(&g->in, 0);
    atomic_init(&g->word, always_strict ? R2_GATE_STRICT | R2_GATE_FREE : 0);
    pthread_mutex_init(&g->visit, NULL);
}

void r2_gate_destroy(struct r2_gate *g)
{
    pthread_mutex_destroy(&g->visit);
}

/*
 * The kernel refuses what it accepted at the start (no memory; a filter of calls that came later).
 * What is left is slow: a barrier of all processes, or to wait until the owner's store is out.
 */
static __attribute__((noinline, cold)) void barrier_failed(int err)
{
    const struct timespec drain = {.tv_nsec = DRAIN_NS};
    int global = membarrier(MEMBARRIER_CMD_GLOBAL) == 0;

    if (!global) {
        nanosleep(&drain, NULL);
    }
    if (!atomic_exchange_explicit(&failed_logged, 1, memory_order_relaxed)) {
        R2_WARN(
            "membarrier fails: %s; changes of connections take longer from here: %s", strerror(err),
            global ? "its slow form works" : "its slow form fails as well, 1 ms is waited instead");
    }
}

void r2_gates_barrier(void)
{
    if (!always_strict && !single_threaded && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
        barrier_failed(errno);
    }
}

/* The mutex is held: the owner, if it is not inside by now, is turned away from here on. */
static void announce(struct r2_gate *g)
{
    if (!(atomic_fetch_or_explicit(&g->word, R2_GATE_VISITOR, memory_order_seq_cst) &
          R2_GATE_FREE)) {
        r2_gates_barrier();
    }
}

#define YIELDS 64 /* an owner that runs is out of the gate in microseconds */
#define NAP_NS                                                                                     \
    50000 /* one that does not has no core, or is in a driver: its core is left to it              \
           */

/* The @n-th turn of a wait. The owner pays for no event that could end it. */
static void wait_turn(unsigned n)
{
    static const struct timespec nap = {.tv_nsec = NAP_NS};

    if (n < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

void r2_gate_visit(struct r2_gate *g)
{
    if (single_threaded) {
        return;
    }
    pthread_mutex_lock(&g->visit);
    announce(g);
    for (unsigned n = 0; atomic_load_explicit(&g->in, memory_order_seq_cst); n++) {
        wait_turn(n);
    }
}

static uint64_t monotonic_ns(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

int r2_gate_visit_for(struct r2_gate *g, uint64_t ns)
{
    uint64_t from = monotonic_ns();
    unsigned n = 0;

    if (single_threaded) {
        return 1;
    }
    while (pthread_mutex_trylock(&g->visit) != 0) {
        if (monotonic_ns() - from >= ns) {
            return 0;
        }
        wait_turn(n++);
    }
    announce(g);
    while (atomic_load_explicit(&g->in, memory_order_seq_cst)) {
        if (monotonic_ns() - from >= ns) {
            r2_gate_unvisit(g);
            return 0;
        }
        wait_turn(n++);
    }
    return 1;
}

void r2_gate_unvisit(struct r2_gate *g)
{
    if (single_threaded) {
        return;
    }
    atomic_fetch_and_explicit(&g->word, ~R2_GATE_VISITOR, memory_order_release);
    pthread_mutex_unlock(&g->visit);
}

/* The exchange orders the store before the load of a word that any visitor, who has ordered its own
 * store before its load of @in, is in. */
int r2_gate_enter_strict(struct r2_gate *g)
{
    if (atomic_load_explicit(&g->word, memory_order_relaxed) & R2_GATE_STRICT) {
        atomic_exchange_explicit(&g->in, 1, memory_order_seq_cst);
    }
    if (atomic_load_explicit(&g->word, memory_order_seq_cst) & R2_GATE_VISITOR) {
        atomic_store_explicit(&g->in, 0, memory_order_release);
        return 0;
    }
    return 1;
}

void r2_gate_mark(struct r2_gate *g, int bit)
{
    atomic_fetch_or_explicit(&g->word, bit, memory_order_seq_cst);
}

void r2_gate_loosen(struct r2_gate *g)
{
    if (!always_strict) {
        atomic_fetch_and_explicit(&g->word, R2_GATE_VISITOR, memory_order_seq_cst);
    }
}
