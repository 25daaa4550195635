/*
 * Schedules of an all_reduce between nodes, whose GPUs have reduced already (g = 1 in the planner),
 * for the simulator. docs/collectives.md.
 */
#ifndef SCHEDULE_SCHED_H
#define SCHEDULE_SCHED_H

#include "plugin/planner/planner_choose.h"
#include "tools/schedule/steps.h"

/* What is beyond planner_strategy. */
enum {
    SCHED_SERIAL =
        PLANNER_STRATEGIES /* R2CCL-AllReduce as printed: Y*, one stage behind the other */,
    SCHED_KINDS
};

const char *sched_name(int kind);

#define SCHED_ABREAST 4

struct sched {
    int nodes;
    const double *b;
    const int
        *order;   /* the node of each position of a tree, or of a ring; NULL: 0, 1, ... (rings) */
    int pieces;   /* each node's part of a ring, a tree's half, a root's share is cut so often */
    int abreast;  /* pieces that a ring's connections carry in turn, so that one waits for the next
                     node  while another goes on: at most SCHED_ABREAST; 0: one */
    double share; /* above 0: Y of PLANNER_R2, PLANNER_ATTACH and SCHED_SERIAL, not the best one */
};

/* What the planner says of it; 0: it has too many levels. */
double sched_load(const struct sched *c, int kind);

/* The schedule; NULL: it has too many levels, or nobody is degraded where that is
 * needed. The caller closes it (steps_close()). */
struct steps *sched_make(const struct sched *c, int kind);

#endif
