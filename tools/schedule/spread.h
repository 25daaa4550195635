/*
 * The transfers of a schedule over the NICs of nodes, in elements: where chunks begin, which part
 * of a transfer goes by which NIC, what each NIC carries by that. NIC k reaches NIC k. Pure: every
 * node finds the same. One thread; memory that is not there ends the process (util_mem_alloc()).
 */
#ifndef SCHEDULE_SPREAD_H
#define SCHEDULE_SPREAD_H

#include <stddef.h>

#include "tools/schedule/steps.h"

#define SPREAD_NICS 16

struct spread {
    const struct steps *steps;
    int nics;
    size_t count;                 /* elements of the data */
    size_t *begin;                /* [chunks + 1] */
    double (*until)[SPREAD_NICS]; /* [connection]: the part that NICs up to this one carry */
};

/*
 * @up: of each node a bit for each NIC that works. What a connection carries goes by the NICs that
 * work at both ends, so that those of each node are as even as they can be; with none in common by
 * all of them, and the network finds a way. The caller closes it; @steps stays.
 */
void spread_open(struct spread *p, const struct steps *steps, const uint32_t *up, int nics,
                 size_t count);
void spread_close(struct spread *p);

/* The elements of @op that go by @nic. */
void spread_part(const struct spread *p, int op, int nic, size_t *begin, size_t *n);
/* The NIC by which a signal of @op's connection goes: the first that carries something. */
int spread_first(const struct spread *p, int op);

struct spread_load {
    uint64_t sent[SPREAD_NICS], received[SPREAD_NICS]; /* elements */
};

/* load[node] */
void spread_loads(const struct spread *p, struct spread_load *load);

#endif
