/*
 * Shared by balance_fill.c (the net, progressive filling, weights) and balance_search.c (the linear
 * program). Private.
 */
#ifndef BALANCE_FILL_INT_H
#define BALANCE_FILL_INT_H

#include "balance_fill.h"

/* Resources beyond those of the net, which the search alone has: one of paths that cannot be taken,
 * and those of what decides nothing. */
#define BALANCE_NONES 8
#define BALANCE_EXTRA (1 + BALANCE_NONES)

/* All in the caller's memory. */
struct balance_work {
    double *per_mbps; /* per resource: 1 / capacity; 0: nothing left */
    double *load; /* per resource: part of its capacity that is asked for when each flow gets 1 per
                     share; and of the extra ones */
    double *dual; /* likewise */
    double *dual_mean; /* likewise: dual prices of all rounds, the latest count most */
    double *part,
        *best;    /* per path: of its flow; the parts of a flow add up to its share, or are all 0 */
    double *cost; /* per path */
    double *least;       /* per flow: the cost of its cheapest path */
    double *scale;       /* per flow: what brings the sum of its parts back to its share */
    double *carry;       /* per prefix: the parts that go by it; 0 but while loads are summed up */
    double *prefix_cost; /* per prefix: what its resources cost */
    uint64_t *left, *sum, *begin; /* per resource, for the last step */
    uint64_t *rate, *theta;       /* per path, likewise */
    uint32_t *user;               /* paths by resource */
    uint32_t *at;                 /* per path, + 1: where its resources begin in res[] */
    uint32_t *up;                 /* per prefix: the one that is shorter by one resource */
    uint32_t *slot;               /* prefixes by what they consist of; 0: free */
    uint32_t *prefix;             /* per path */
    uint16_t *res;                /* of all paths, packed */
    uint16_t *leaf;               /* per prefix: the last of its resources */
    uint16_t *last;               /* per path: its last resource */
    uint16_t *live;               /* resources that count in the search */
    uint32_t prefixes, slots, n_live;
};

/*
 * Fills in work.best[]: parts at which the highest load is as low as it gets; all of a flow's are
 * 0 where none of its paths can be taken. @work as work_begin() left it; by value, so that no store
 * to its arrays can change where they are. Returns the least and its bound (balance_fill.h). Pure;
 * does not block.
 */
struct balance_result balance_search(const struct balance_net *net, struct balance_work work);

#endif
