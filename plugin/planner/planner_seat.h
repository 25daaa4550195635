/*
 * Positions ("seats") of nodes in NCCL's double binary tree, which its Tree and NVLSTree use
 * between nodes, and what each carries. A position is that of the node's first rank in rank order.
 * Two trees have half of the data each; a node sends and receives D/2 for each of its edges: to
 * reduce in one direction, with the result in the other. Pure; any thread; does not block.
 * docs/collectives.md.
 */
#ifndef PLANNER_SEAT_H
#define PLANNER_SEAT_H

/* The parent of @position in @tree, 0 or 1, of @n positions; -1: it is the root. */
int planner_seat_parent(int tree, int position, int n);

/* load[position], in D; for n >= 2. */
void planner_seat_loads(int n, double *load);

/* The time of the tree, D/B, with node order[i] in position i; load[] of planner_seat_loads(). */
double planner_seat_time(const double *b, int n, const int *order, const double *load);

/*
 * seat[position] becomes the order of nodes with the least time, which is returned: the smaller a
 * node's share, the lighter its seat. order[], the present order, is kept where it is as good;
 * healthy nodes keep theirs among each other.
 */
double planner_seat_assign(const double *b, int n, const int *order, const double *load, int *seat);

#endif
