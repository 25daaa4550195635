/*
 * Recursion over levels of bandwidth: level k is a ring of all nodes that have at least b_k, for a
 * share Y_k of the data; nodes with less take part in it from outside. The loads of a level:
 *
 *   a node outside   Y: its input goes out once, the result comes in once
 *   a member         c(m) Y, and for what comes from outside
 *                    PLANNER_BROADCAST  Y for each node outside: its input is sent around the ring
 *                    PLANNER_LEAF       Y/m for each: it has one partner per block, which adds it
 *
 * with c(m) = planner_bound_ring(). The single level of R2CCL-AllReduce is the case of two levels,
 * the worst node and the others. Pure; any thread; does not block. docs/collectives.md.
 */
#ifndef PLANNER_LEVEL_H
#define PLANNER_LEVEL_H

#define PLANNER_LEVELS 32

enum planner_scheme { PLANNER_BROADCAST, PLANNER_LEAF };

struct planner_level {
    double b;     /* of the nodes that belong to this level and to none above it */
    int nodes;    /* how many these are */
    int members;  /* of the ring: these and all above */
    double share; /* of the data; what a function below has put there */
};

/* Levels of b[], ascending, shares 0. How many; -1: more than PLANNER_LEVELS. */
int planner_level_find(const double *b, int n, struct planner_level *level);

/* Two levels: one node with the smallest b, all others at the pace of the second smallest. Returns
 * 2. */
int planner_level_isolate(const double *b, int n, struct planner_level *level);

/* Of a node of level @of, in D, with the shares that are in level[]. */
double planner_level_load(const struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme, int of);

/* Of the slowest level, with these shares; D/B. */
double planner_level_time(const struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme);

/* The shares of the paper, proportional to what each level adds in bandwidth; their time. */
double planner_level_proportional(struct planner_level *level, int levels, int gpus,
                                  enum planner_scheme scheme);

/* The shares with the least time, and that. */
double planner_level_best(struct planner_level *level, int levels, int gpus,
                          enum planner_scheme scheme);

#endif
