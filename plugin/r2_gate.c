#include "r2_gate.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

int r2_gate_exchange;
static int single_threaded;

static int membarrier(int cmd)
{
    return (int)syscall(__NR_membarrier, cmd, 0, 0);
}

void r2_gate_setup(int threads)
{
    single_threaded = !threads;
    if (single_threaded) {
        return;
    }
#ifdef __SANITIZE_THREAD__
    r2_gate_exchange = 1;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    r2_gate_exchange = 1;
#endif
#endif
    if (!r2_gate_exchange && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0) {
        r2_gate_exchange = 1;
    }
}

void r2_gate_init(struct r2_gate *g)
{
    atomic_init(&g->in, 0);
    atomic_init(&g->visitor, 0);
    pthread_mutex_init(&g->visit, NULL);
}

void r2_gate_destroy(struct r2_gate *g)
{
    pthread_mutex_destroy(&g->visit);
}

void r2_gate_visit(struct r2_gate *g)
{
    if (single_threaded) {
        return;
    }
    pthread_mutex_lock(&g->visit);
    atomic_store_explicit(&g->visitor, 1, memory_order_seq_cst);
    if (!r2_gate_exchange) {
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    while (atomic_load_explicit(&g->in, memory_order_seq_cst)) {
        sched_yield();
    }
}

void r2_gate_unvisit(struct r2_gate *g)
{
    if (single_threaded) {
        return;
    }
    atomic_store_explicit(&g->visitor, 0, memory_order_release);
    pthread_mutex_unlock(&g->visit);
}
