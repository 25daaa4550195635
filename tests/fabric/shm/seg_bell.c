/* Doorbells: one shared futex per slot. */
#include "tests/fabric/shm/seg.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t seg_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SEG_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/*
 * Ringer: publish work; read sleeping. Sleeper: set sleeping; look for work (both sides seq_cst).
 * So either the ringer sees the sleeper or the sleeper sees the work. Only the sleeper clears the
 * flag: a ringer that is killed before its system call leaves it set, and the next ringer wakes the
 * sleeper.
 */
void seg_bell_ring(struct seg *seg, int dst, uint64_t due)
{
    struct seg_slot *s = &seg->slot[dst];

    if (atomic_load_explicit(&s->sleeping, memory_order_seq_cst) != 0 &&
        atomic_load_explicit(&s->sleep_until, memory_order_relaxed) > due) {
        seg_bell_wake(seg, dst);
    }
}

void seg_bell_wake(struct seg *seg, int dst)
{
    struct seg_slot *s = &seg->slot[dst];

    atomic_fetch_add_explicit(&s->bell, 1, memory_order_seq_cst);
    syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void seg_bell_ring_all(struct seg *seg)
{
    for (int i = 0; i < SEG_SLOTS; i++) {
        seg_bell_wake(seg, i);
    }
}

uint32_t seg_bell_prepare(struct seg_map *m, uint64_t deadline)
{
    struct seg_slot *s = &m->seg->slot[m->slot];
    uint32_t ticket = atomic_load_explicit(&s->bell, memory_order_seq_cst);

    atomic_store_explicit(&s->sleep_until, deadline, memory_order_relaxed);
    atomic_store_explicit(&s->sleeping, 1, memory_order_seq_cst);
    return ticket;
}

uint32_t seg_bell_ticket(struct seg_map *m)
{
    return atomic_load_explicit(&m->seg->slot[m->slot].bell, memory_order_seq_cst);
}

void seg_bell_nap(struct seg_map *m, uint32_t ticket, uint64_t deadline)
{
    struct seg_slot *s = &m->seg->slot[m->slot];
    struct timespec ts = {.tv_sec = (time_t)(deadline / SEG_NSEC_PER_SEC),
                          .tv_nsec = (long)(deadline % SEG_NSEC_PER_SEC)};

    syscall(SYS_futex, &s->bell, FUTEX_WAIT_BITSET, ticket, deadline == UINT64_MAX ? NULL : &ts,
            NULL, FUTEX_BITSET_MATCH_ANY);
}

void seg_bell_wait(struct seg_map *m, uint32_t ticket, uint64_t deadline)
{
    seg_bell_nap(m, ticket, deadline);
    seg_bell_cancel(m);
}

void seg_bell_cancel(struct seg_map *m)
{
    atomic_store_explicit(&m->seg->slot[m->slot].sleeping, 0, memory_order_relaxed);
}
