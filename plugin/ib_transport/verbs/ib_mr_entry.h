/*
 * A registration on each NIC, as the cache keeps it (ib_mr.c), and the jobs that make and end it
 * (ib_mr_entry.c). For these two files.
 */
#ifndef IB_MR_ENTRY_H
#define IB_MR_ENTRY_H

#include <pthread.h>
#include <stdint.h>

#include "ib_mr.h"
#include "ib_mr_work.h"

/*
 * lock: the list, refs, stats, what is under way. No call into a driver is made under it: those run
 * on a thread for each NIC (ib_mr_work), and who needs them waits, for a NIC that hangs not long.
 * Who uses a handle on the data path does not take it.
 */
struct ib_mr_cache {
    struct ib_nics *nics;
    pthread_mutex_t lock;
    struct ib_mr_work work;
    struct ib_mr *head;
    struct ib_mr_stats stats;
    uintptr_t page;
    int relaxed;              /* IBV_ACCESS_RELAXED_ORDERING or 0 */
    _Atomic uint32_t refused; /* NICs that have refused some buffer; relaxed: a hint */
    int (*reaches)(void *arg, int nic, const struct ib_mr *mr,
                   const struct ibv_mr *m); /* const after init */
    void *reaches_arg;
    struct ib_mr_cache *next_left;
    _Atomic uint64_t kept; /* relaxed: a count */
};

/*
 * One NIC's job for an entry: at most one at a time, and a registration that nobody waits for any
 * more ends by itself.
 */
struct mr_job {
    struct ib_mr_job job; /* first */
    struct ib_mr_cache *cache;
    struct ib_mr_entry *e;
    int nic;
    struct ibv_mr *m; /* to be deregistered */
};

/* What the cache alone knows of a registration. */
struct ib_mr_entry {
    struct ib_mr mr;  /* first: freed as such */
    uint32_t pending; /* NICs on which it is being registered */
    uint32_t leaving; /* ... deregistered */
    uint32_t askers;  /* calls that ask NICs for it now: the descriptor is theirs */
    uint8_t gone;     /* no reference is left */
    int wholes;       /* so many references at least are of all of it; the others may be of parts.
                         The cache's lock */
    int err;          /* errno of the last NIC that refused */
    uint64_t took;    /* ns: the shortest registration of it; 0: none has ended */
    struct mr_job job[];
};

static inline struct ib_mr_entry *ib_mr_entry_of(struct ib_mr *mr)
{
    return (struct ib_mr_entry *)mr;
}

/*
 * Lock held. Waits until the bits of *left are gone, or enough: for those of a NIC whose driver
 * does not come back no longer than it takes to see that, unless it is being registered and no
 * other has it. Returns the NICs that are left.
 */
uint32_t ib_mr_entry_wait(struct ib_mr_cache *cache, struct ib_mr_entry *e, const uint32_t *left,
                          uint32_t mask);

/*
 * Lock held. On how many NICs of @mask it is registered when all have answered that do. One that
 * refused before is asked again only when there is no other. @key: what the caller has of the same
 * extent through a DMA-BUF, if it is one. *err: why none.
 */
int ib_mr_entry_register(struct ib_mr_cache *cache, struct ib_mr_entry *e, uint64_t mask,
                         const struct ib_mr *key, int *err);

/* Lock held. Whether that asks any NIC. */
bool ib_mr_entry_will_ask(const struct ib_mr_cache *cache, const struct ib_mr_entry *e,
                          uint64_t mask);

/* Lock held. No reference is left: nobody finds it any more, and its registrations go. */
void ib_mr_entry_drop(struct ib_mr_cache *cache, struct ib_mr_entry *e);

#endif
