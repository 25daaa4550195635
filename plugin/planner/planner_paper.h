/*
 * R2CCL-AllReduce as its paper prints it (5.2, with the ring time of App. A: 5.2 itself prints a
 * denominator of n g where App. A has 2(ng-1)/(ng), and the threshold of 1/3 follows from App. A
 * alone). One of @n nodes with @gpus each has lost @x of its bandwidth, 0 < x < 1. To compare with:
 * the time prices the second stage at x B where the degraded node has (1-x) B, so that it is below
 * what is possible for x > 2/3 (planner_bound); nothing is decided by it. Pure; any thread.
 */
#ifndef PLANNER_PAPER_H
#define PLANNER_PAPER_H

/* Y*: the share of the data that the degraded node stays out of,
 * x + x(1-x) / (x + (g(n-1)-1) n). */
double planner_paper_share(double x, int n, int gpus);

/* Above this x the paper leaves the ring: ng / (3ng - 2). */
double planner_paper_threshold(int n, int gpus);

/* Two stages one after the other, for a share @y; D/B. */
double planner_paper_time(double x, double y, int n, int gpus);

#endif
