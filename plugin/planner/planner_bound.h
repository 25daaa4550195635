/*
 * What no all_reduce can beat, and the schedule that reaches it. Pure; does not block; any thread.
 * Times are in D/B: D the data of a rank, B what a healthy node carries in each direction. b[i] is
 * what node i has left of B, above 0 and at most 1; @n nodes, 2 at least. docs/collectives.md.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#define PLANNER_NODES 4096 /* at most, everywhere in this folder */

/* max(1/min b, 2(n-1)/sum b): every node sends and receives D at least, and all together send
 * 2(n-1) D. */
double planner_bound(const double *b, int n);

/* The smallest of b[]. */
double planner_bound_least(const double *b, int n);

/* What each node of a ring of @nodes with @gpus each sends and receives, in D: 2(r-1)/r for r
 * ranks. 0 for one node, whose ring crosses no wire. */
double planner_bound_ring(int nodes, int gpus);

/*
 * Weighted stars: share[i] of the data has node i as its root, which receives it from all others
 * and sends them the sum. The shares add up to 1. Returns the time, which is planner_bound().
 */
double planner_bound_stars(const double *b, int n, double *share);

/* Load of a root of @share: what it sends, and receives, in D. */
double planner_bound_star(double share, int n);

#endif
