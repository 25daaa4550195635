/*
 * Gate: who may touch a connection's state. One owner (NCCL's thread, on the data path) and rare
 * visitors (the service thread, close).
 *
 * The owner pays no atomic read-modify-write and no fence instruction: it announces itself with a
 * plain store and looks for a visitor with a plain load. The store-load order that this needs
 * (Dekker) is paid by the visitor, with membarrier(2), which makes every running thread of the
 * process pass a full barrier between the visitor's store and its load:
 *
 *     owner                               visitor
 *     in = 1                              visitor = 1
 *     (compiler barrier)                  membarrier()
 *     if (visitor) in = 0, come later     while (in) yield, then nap
 *
 * Either the owner's store was before the barrier, and the visitor sees it and waits; or the
 * owner's load is after it, and the owner sees the visitor and turns away. The owner never waits:
 * the call returns "not yet" to NCCL. Visitors exclude each other by a mutex. Where membarrier is
 * missing, or a race detector must understand the order, the owner uses a sequentially consistent
 * exchange. Where it fails later, the visitor takes a slower barrier.
 */
#ifndef R2_GATE_H
#define R2_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct r2_gate {
    _Atomic int in;      /* the owner is inside; release by owner, acquire by visitor */
    _Atomic int visitor; /* a visitor wants in or is in; release by visitor, acquire by owner */
    pthread_mutex_t visit;
};

/* 1: owners must use the exchange (no membarrier, or a race detector). Written by r2_gate_setup
 * before any gate is used. */
extern int r2_gate_exchange;

/* Process-wide, once, before threads: registers for membarrier. @threads 0: single-threaded, gates
 * cost nothing. */
void r2_gate_setup(int threads);

void r2_gate_init(struct r2_gate *g);
void r2_gate_destroy(struct r2_gate *g);

/* Owner thread. 1 when inside; 0 when a visitor is there: do nothing, come again. */
static inline int r2_gate_enter(struct r2_gate *g)
{
    if (__builtin_expect(r2_gate_exchange, 0)) {
        atomic_exchange_explicit(&g->in, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&g->visitor, memory_order_seq_cst)) {
            atomic_store_explicit(&g->in, 0, memory_order_release);
            return 0;
        }
        return 1;
    }
    atomic_store_explicit(&g->in, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&g->visitor, memory_order_acquire), 0)) {
        atomic_store_explicit(&g->in, 0, memory_order_release);
        return 0;
    }
    return 1;
}

static inline void r2_gate_leave(struct r2_gate *g)
{
    atomic_store_explicit(&g->in, 0, memory_order_release);
}

/* Any other thread; waits for the owner to leave, which is soon: an owner inside never blocks. Not
 * recursive. */
void r2_gate_visit(struct r2_gate *g);
void r2_gate_unvisit(struct r2_gate *g);
/* As r2_gate_visit, for at most about @ns: at the end of the process, when an owner may be in a
 * driver for ever. 1 when inside; 0: not, and not to be left. */
int r2_gate_visit_for(struct r2_gate *g, uint64_t ns);

#endif
