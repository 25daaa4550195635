/* Blocks: how they wait, and that they end when the job is aborted. */
#include <sched.h>
#include <time.h>

#include "tests/nccl/standin/kernel.h"

#define SPINS_PAUSE 20     /* looks with a pause of the processor in between, */
#define SPINS_YIELD 40     /* then yielding it, */
#define SPINS_SHORT 400    /* then sleeping SLEEP_SHORT, at last SLEEP_LONG */
#define SLEEP_SHORT 20000  /* ns */
#define SLEEP_LONG  200000 /* ns */
#define STACK_BYTES (256 << 10)

bool block_is_aborted(struct block *b)
{
    if (!__atomic_load_n(&b->aborted, __ATOMIC_RELAXED) && b->comm->abort_flag &&
        *b->comm->abort_flag) {
        __atomic_store_n(&b->aborted, 1, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&b->aborted, __ATOMIC_RELAXED);
}

bool block_waits(struct block *b, unsigned *spins)
{
    unsigned n = (*spins)++;

    if (n < SPINS_PAUSE) {
        __builtin_ia32_pause();
        return true;
    }
    if (n < SPINS_YIELD) {
        sched_yield();
    } else {
        struct timespec t = {0, n < SPINS_SHORT ? SLEEP_SHORT : SLEEP_LONG};

        nanosleep(&t, NULL);
    }
    return !block_is_aborted(b);
}

void block_wait_step(struct block *b, struct end *e, const uint64_t *p, uint64_t credit,
                     uint64_t want)
{
    unsigned spins = 0;

    while (e->seen + credit < want) {
        e->seen = __atomic_load_n(p, __ATOMIC_ACQUIRE);
        if (e->seen + credit < want && !block_waits(b, &spins)) {
            break;
        }
    }
}

void block_thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    pthread_attr_t a;

    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK_BYTES);
    if (pthread_create(t, &a, fn, arg) != 0) {
        gpu_die("no thread for a kernel");
    }
    pthread_attr_destroy(&a);
}
