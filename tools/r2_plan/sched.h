/*
 * Schedules of an all_reduce between nodes, whose GPUs have reduced already (g = 1 in the planner),
 * for the simulator. docs/collectives.md.
 */
#ifndef R2_PLAN_SCHED_H
#define R2_PLAN_SCHED_H

#include "plugin/planner/planner_choose.h"
#include "tools/r2_plan/sim.h"

/* What is beyond planner_strategy. */
enum {
    SCHED_SERIAL =
        PLANNER_STRATEGIES /* R2CCL-AllReduce as printed: Y*, one stage behind the other */,
    SCHED_KINDS
};

const char *sched_name(int kind);

struct sched {
    int nodes;
    const double *b;
    const int *order; /* of PLANNER_TREE and PLANNER_SEATS: the node of each position */
    int pieces;   /* each node's part of a ring, a tree's half, a root's share is cut so often */
    double share; /* above 0: Y of PLANNER_R2, PLANNER_ATTACH and SCHED_SERIAL, not the best one */
};

/* What the planner says of it; 0: it has too many levels. */
double sched_load(const struct sched *c, int kind);

/* The schedule, ready to run; NULL: it has too many levels, or nobody is degraded where that is
 * needed. The caller closes it. */
struct sim *sched_make(const struct sched *c, int kind);

#endif
