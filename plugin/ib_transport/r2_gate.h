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
 *     in = 1                              word |= VISITOR
 *     (compiler barrier)                  membarrier()
 *     if (word & VISITOR)                 while (in) yield, then nap
 *         in = 0, come later
 *
 * Either the owner's store was before the barrier, and the visitor sees it and waits; or the
 * owner's load is after it, and the owner sees the visitor and turns away. The owner never waits:
 * the call returns "not yet" to NCCL. Visitors exclude each other by a mutex.
 *
 * Where visits are frequent the barrier costs more than it saves. A *strict* gate has an owner that
 * orders by itself: it finds STRICT in the word that it loads anyway, announces itself once more
 * with a sequentially consistent exchange, and loads the word again. Visits cost no barrier then.
 * All of it lies in one word, so that a visitor who found the gate strict is seen by every owner
 * that finds it strict no more. A gate becomes strict in three steps, all of one thread:
 *
 *     word |= STRICT                      owners who load the word from here on order by themselves
 *     membarrier()                        those who had loaded it before have their store out
 *     word |= FREE                        visitors pay no barrier from here on
 *
 * Where membarrier is missing, or a race detector must understand the order, gates are strict for
 * ever. Where it fails later, the visitor takes a slower barrier.
 */
#ifndef R2_GATE_H
#define R2_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct r2_gate {
    _Atomic int in;   /* the owner is inside; release by owner, acquire by visitor */
    _Atomic int word; /* R2_GATE_*; release by visitor, acquire by owner */
    pthread_mutex_t visit;
};

enum {
    R2_GATE_VISITOR = 1, /* wants in or is in */
    R2_GATE_STRICT = 2,  /* the owner orders by itself */
    R2_GATE_FREE = 4,    /* with STRICT, which holds for all owners: a visit needs no barrier */
};

/* Process-wide, once, before threads: registers for membarrier. @threads 0: single-threaded, gates
 * cost nothing. */
void r2_gate_setup(int threads);

/* While no other thread knows @g. */
void r2_gate_init(struct r2_gate *g);
void r2_gate_destroy(struct r2_gate *g);

/* Owner thread, after r2_gate_enter_loose() returned 0. 1 when inside; 0 when a visitor is there.
 */
int r2_gate_enter_strict(struct r2_gate *g);

/* Owner thread. 1 when inside; 0: the word is not 0, and r2_gate_enter_strict() decides. */
static inline int r2_gate_enter_loose(struct r2_gate *g)
{
    atomic_store_explicit(&g->in, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return __builtin_expect(atomic_load_explicit(&g->word, memory_order_acquire) == 0, 1);
}

/* Owner thread. 1 when inside; 0 when a visitor is there: do nothing, come again. */
static inline int r2_gate_enter(struct r2_gate *g)
{
    return r2_gate_enter_loose(g) || r2_gate_enter_strict(g);
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

/*
 * One thread makes gates strict and loose. STRICT first, for any number of them; then one
 * r2_gates_barrier(); then FREE. A gate that no owner knows yet needs no barrier. Gates that are
 * strict for ever stay so.
 */
void r2_gate_mark(struct r2_gate *g, int bit);
void r2_gates_barrier(void);
void r2_gate_loosen(struct r2_gate *g);

#endif
