#include "tests/nccl/rank/nccl_yield.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GAP_NS   100000 /* yields further apart than this are no loop of one that waits */
#define IN_A_ROW 10     /* yields that are yields, before they sleep */
#define SLEEP_NS 20000  /* as long as a block of the stand-in sleeps (kernel_wait.c) */

/* Written once by nccl_yield_sleep(), before NCCL is loaded. Relaxed: a thread that misses it
 * yields. */
static atomic_bool sleeps;

void nccl_yield_sleep(void)
{
    atomic_store_explicit(&sleeps, true, memory_order_relaxed);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Takes the place of the C library's for everything in this process (sched.h). */
__attribute__((visibility("default"))) int sched_yield(void)
{
    static _Thread_local int64_t last;
    static _Thread_local unsigned in_a_row;
    int saved = errno;

    if (!atomic_load_explicit(&sleeps, memory_order_relaxed)) {
        return (int)syscall(SYS_sched_yield);
    }
    in_a_row = now_ns() - last < GAP_NS ? in_a_row + 1 : 1;
    if (in_a_row <= IN_A_ROW) {
        syscall(SYS_sched_yield);
    } else {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    last = now_ns();
    errno = saved;
    return 0;
}
