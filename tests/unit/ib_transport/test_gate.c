/* The gate between NCCL's thread and visitors: who is inside is alone, also when the kernel refuses
 * the barrier that it accepted at the start. */
#include "plugin/base/r2_time.h"
#include "tests/unit/suite.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "plugin/ib_transport/r2_gate.h"
#include "plugin/base/r2_log.h"

static _Atomic int expedited, global; /* calls */
static int refuse_expedited, refuse_global;
static int lines;
static char last[200];

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);

/* Nothing else of what runs here calls it: membarrier(cmd, flags, cpu). */
long __wrap_syscall(long nr, ...)
{
    long cmd, flags, cpu;
    va_list ap;

    va_start(ap, nr);
    cmd = va_arg(ap, int);
    flags = va_arg(ap, int);
    cpu = va_arg(ap, int);
    va_end(ap);
    ck_assert_int_eq(nr, __NR_membarrier);
    if (cmd == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        expedited++;
        if (refuse_expedited) {
            errno = ENOMEM;
            return -1;
        }
    } else if (cmd == MEMBARRIER_CMD_GLOBAL) {
        global++;
        if (refuse_global) {
            errno = EPERM;
            return -1;
        }
    }
    return __real_syscall(nr, cmd, flags, cpu);
}

static void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (level == R2_LOG_WARN) {
        lines++;
        strncpy(last, msg, sizeof(last) - 1);
    }
}

static struct r2_gate gate;
static _Atomic int inside; /* of one thread at a time; relaxed: it is the gate that orders it */
static _Atomic int stop, turned_away;
static _Atomic uint64_t entered;

static int inside_get(void)
{
    return atomic_load_explicit(&inside, memory_order_relaxed);
}
static void inside_set(int who)
{
    atomic_store_explicit(&inside, who, memory_order_relaxed);
}

static void *owner(void *arg)
{
    while (!stop) {
        if (!r2_gate_enter(&gate)) {
            turned_away++;
            continue;
        }
        if (inside_get() != 0) {
            return "the owner is in with a visitor";
        }
        inside_set(1);
        entered++;
        if (inside_get() != 1) {
            return "a visitor came in to the owner";
        }
        inside_set(0);
        r2_gate_leave(&gate);
    }
    return NULL;
}

static uint64_t now_ns(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

enum strictness { LOOSE, STRICT, CHANGING };

static void make_strict(void)
{
    r2_gate_mark(&gate, R2_GATE_STRICT);
    r2_gates_barrier();
    r2_gate_mark(&gate, R2_GATE_FREE);
}

/* An owner that enters all the time, and @n visits; returns how long the shortest of them took to
 * come in. */
static uint64_t visits(int n, enum strictness how)
{
    uint64_t shortest = UINT64_MAX;
    pthread_t thread;
    void *wrong;

    r2_gate_init(&gate);
    stop = turned_away = 0;
    entered = 0;
    inside_set(0);
    expedited = global = 0;
    ck_assert_int_eq(pthread_create(&thread, NULL, owner, NULL), 0);
    while (entered == 0) {
        sched_yield();
    }
    if (how != LOOSE) {
        make_strict();
    }
    for (int i = 0; i < n; i++) {
        uint64_t from = now_ns(), took;

        r2_gate_visit(&gate);
        took = now_ns() - from;
        shortest = took < shortest ? took : shortest;
        ck_assert_int_eq(inside_get(), 0);
        inside_set(2);
        int alone = 0; /* an assertion of Check is a system call: one for each visit */
        while (alone < 1000 && inside_get() == 2) {
            alone++;
        }
        ck_assert_int_eq(alone, 1000);
        inside_set(0);
        r2_gate_unvisit(&gate);
        if (how == CHANGING) {
            i % 2 ? make_strict() : r2_gate_loosen(&gate);
        }
    }
    stop = 1;
    ck_assert_int_eq(pthread_join(thread, &wrong), 0);
    ck_assert_msg(wrong == NULL, "%s", (char *)wrong);
    r2_gate_destroy(&gate);
    return shortest;
}

/* Gates are strict for ever where a race detector looks on. */
static int strict(void)
{
    struct r2_gate g;
    int word;

    r2_gate_init(&g);
    word = atomic_load(&g.word);
    r2_gate_destroy(&g);
    return word != 0;
}

static void setup(void)
{
    refuse_expedited = refuse_global = 0;
    lines = 0;
    r2_log_sink_set(sink);
    r2_gate_setup(1);
}

static void teardown(void)
{
    r2_log_sink_set(NULL);
}

START_TEST(visitor_and_owner_exclude_each_other)
{
    visits(500, LOOSE);
    ck_assert_int_eq(expedited, strict() ? 0 : 500);
    ck_assert_int_eq(global, 0);
    ck_assert_int_eq(lines, 0);
}
END_TEST

/* A strict gate costs a barrier once. */
START_TEST(strict_gates_cost_their_visitors_nothing)
{
    visits(20000, STRICT);
    ck_assert_int_eq(expedited, strict() ? 0 : 1);
    ck_assert_int_eq(lines, 0);
}
END_TEST

/* ... and one that becomes strict and loose all the time lets nobody in beside the other. */
START_TEST(a_gate_that_changes_excludes_all_the_same)
{
    visits(20000, CHANGING);
    ck_assert_int_eq(lines, 0);
}
END_TEST

/* The barrier of this process is refused: one of all processes stands in, and it is said once. */
START_TEST(the_barrier_fails_later)
{
    refuse_expedited = 1;
    visits(20, LOOSE);
    r2_log_flush();
    ck_assert_int_eq(global, strict() ? 0 : 20);
    ck_assert_int_eq(lines, !strict());
    ck_assert(strict() || strstr(last, "slow form works"));
}
END_TEST

/* ... that one, too: the owner's store has had the time to be seen. */
START_TEST(both_barriers_fail)
{
    uint64_t shortest;

    refuse_expedited = refuse_global = 1;
    shortest = visits(20, LOOSE);
    r2_log_flush();
    ck_assert(strict() || shortest >= 1000000);
    ck_assert_int_eq(global, strict() ? 0 : 20);
    ck_assert_int_eq(lines, !strict());
}
END_TEST

static struct r2_gate kept;
static _Atomic int kept_in;

static void *owner_keeps(void *arg)
{
    static const struct timespec while_kept = {.tv_nsec = 300000000};

    r2_gate_enter(&kept);
    kept_in = 1;
    nanosleep(&while_kept, NULL);
    r2_gate_leave(&kept);
    return arg;
}

static uint64_t cpu_ns(void)
{
    return r2_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* An owner that has lost its core inside the gate gets the visitor's: who waits does not compute.
 */
START_TEST(a_visitor_that_waits_leaves_its_core)
{
    pthread_t owner;
    uint64_t cpu;

    r2_gate_init(&kept);
    ck_assert_int_eq(pthread_create(&owner, NULL, owner_keeps, NULL), 0);
    while (!kept_in) {
        sched_yield();
    }
    cpu = cpu_ns();
    if (_i) {
        ck_assert_int_eq(r2_gate_visit_for(&kept, 60000000000ull), 1);
    } else {
        r2_gate_visit(&kept);
    }
    cpu = cpu_ns() - cpu;
    r2_gate_unvisit(&kept);
    pthread_join(owner, NULL);
    r2_gate_destroy(&kept);
    ck_assert_msg(cpu < 100000000, "%llu ns of 300 ms", (unsigned long long)cpu);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, visitor_and_owner_exclude_each_other);
    tcase_add_test(t, strict_gates_cost_their_visitors_nothing);
    tcase_add_test(t, a_gate_that_changes_excludes_all_the_same);
    tcase_add_test(t, the_barrier_fails_later);
    tcase_add_test(t, both_barriers_fail);
    tcase_add_loop_test(t, a_visitor_that_waits_leaves_its_core, 0, 2);
}

int main(void)
{
    return suite_run("gate", 60, setup, teardown, add);
}
