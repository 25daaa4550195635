#include "planner_bound.h"

double planner_bound_least(const double *b, int n)
{
    double least = b[0];

    for (int i = 1; i < n; i++) {
        least = b[i] < least ? b[i] : least;
    }
    return least;
}

double planner_bound(const double *b, int n)
{
    double sum = 0, slowest = 1 / planner_bound_least(b, n), all;

    for (int i = 0; i < n; i++) {
        sum += b[i];
    }
    all = 2.0 * (n - 1) / sum;
    return slowest > all ? slowest : all;
}

double planner_bound_ring(int nodes, int gpus)
{
    double ranks = (double)nodes * gpus;

    return nodes < 2 ? 0 : 2 * (ranks - 1) / ranks;
}

double planner_bound_star(double share, int n)
{
    return 1 + (n - 2) * share;
}

/* T b_i - 1 is what node i has left when its own input is out; (n-2) s_i may use it. With T at its
 * second bound these add up to n - 2 exactly, with the first there is more than that. */
double planner_bound_stars(const double *b, int n, double *share)
{
    double t = planner_bound(b, n), sum = 0;

    for (int i = 0; i < n; i++) {
        double room = t * b[i] - 1;

        share[i] = room > 0 ? room : 0; /* below 0 by rounding alone */
        sum += share[i];
    }
    for (int i = 0; i < n; i++) {
        /* Two equal nodes have no room, and need none. */
        share[i] = sum > 0 ? share[i] / sum : 1.0 / n;
    }
    return t;
}
