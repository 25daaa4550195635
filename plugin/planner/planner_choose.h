/*
 * All strategies for an all_reduce beside each other, and which to use. Facts in, plan out: pure,
 * memory of the caller, any thread, does not block. docs/collectives.md.
 */
#ifndef PLANNER_CHOOSE_H
#define PLANNER_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "planner_cost.h"

enum planner_strategy {
    PLANNER_RING,      /* NCCL's, over all that NICs still carry (Balance) */
    PLANNER_TREE,      /* NCCL's, in the present order */
    PLANNER_SEATS,     /* NCCL's tree, degraded nodes in its light seats */
    PLANNER_R2,        /* R2CCL-AllReduce, pipelined: the worst node partly outside */
    PLANNER_ATTACH,    /* the same with a leaf in place of the broadcast */
    PLANNER_RECURSION, /* R2CCL's recursion, with the best shares */
    PLANNER_LEAVES,    /* the same with leaves */
    PLANNER_STARS,     /* weighted stars */
    PLANNER_STRATEGIES
};

struct planner_row {
    double load;   /* the longest load over share, D/B; 0: not known (more than PLANNER_LEVELS) */
    double us;     /* for the size, with latency */
    bool is_nccls; /* NCCL runs it; the others want a network, or a plugin, that reduces */
};

struct planner_facts {
    struct planner_net net;
    uint64_t bytes;
    const double *b;  /* per node: its share, above 0 and at most 1 */
    const int *order; /* present positions; NULL: node 0, 1, ... */
};

struct planner_plan {
    struct planner_row row[PLANNER_STRATEGIES];
    struct planner_row healthy[2]; /* PLANNER_RING, PLANNER_TREE with nothing lost */
    double bound;                  /* D/B: no schedule is faster */
    double paper_share, paper_us; /* Y* and the printed time; 0 unless one node alone is degraded */
    enum planner_strategy use;    /* the fastest that NCCL runs */
    enum planner_strategy fastest; /* of all */
};

/* "ring", "tree", ...; NULL for a number that is none. */
const char *planner_choose_name(enum planner_strategy s);

/*
 * seat[position] becomes the order of nodes for PLANNER_SEATS; @work: two doubles for each node.
 * -1: there are fewer than 2 or more than PLANNER_NODES nodes, fewer than 1 GPU, the rate is not
 * above 0, or a share is out of its range; *bad is its node, -1 if it is something else.
 */
int planner_choose(const struct planner_facts *f, struct planner_plan *plan, int *seat,
                   double *work, int *bad);

#endif
