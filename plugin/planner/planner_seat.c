#include "planner_seat.h"

/* The first tree: a position of which the lowest set bit is 2^k hangs below the next multiple of
 * 2^(k+1) that is no multiple of 2^(k+2), which lies on either side of it; where that one does not
 * exist, below the position without that bit. Position 0 is the root. (NCCL: src/graph/trees.cc.)
 */
static int first_parent(int position, int n)
{
    int bit = position & -position, up;

    if (position == 0) {
        return -1;
    }
    up = (position ^ bit) | (bit << 1);
    return up < n ? up : position ^ bit;
}

/* The second tree is the first one mirrored, with an odd number of positions shifted by one, so
 * that who is inner in one is mostly a leaf in the other. */
int planner_seat_parent(int tree, int position, int n)
{
    int p;

    if (tree == 0) {
        return first_parent(position, n);
    }
    if (n % 2 == 0) {
        p = first_parent(n - 1 - position, n);
        return p < 0 ? -1 : n - 1 - p;
    }
    p = first_parent((position + n - 1) % n, n);
    return p < 0 ? -1 : (p + 1) % n;
}

void planner_seat_loads(int n, double *load)
{
    for (int i = 0; i < n; i++) {
        load[i] = 0;
    }
    for (int tree = 0; tree < 2; tree++) {
        for (int i = 0; i < n; i++) {
            int p = planner_seat_parent(tree, i, n);

            if (p >= 0) {
                load[i] += 0.5;
                load[p] += 0.5;
            }
        }
    }
}

double planner_seat_time(const double *b, int n, const int *order, const double *load)
{
    double longest = 0;

    for (int i = 0; i < n; i++) {
        double t = load[i] / b[order[i]];

        longest = t > longest ? t : longest;
    }
    return longest;
}

/* The place in order[] of the degraded node that is next by share, then by place, after the one at
 * @last; -1: there is none. */
static int next_find(const double *b, int n, const int *order, int last)
{
    int next = -1;

    for (int i = 0; i < n; i++) {
        double share = b[order[i]];

        if (share >= 1 ||
            (last >= 0 && (share < b[order[last]] || (share == b[order[last]] && i <= last)))) {
            continue;
        }
        if (next < 0 || share < b[order[next]]) {
            next = i;
        }
    }
    return next;
}

static int lightest_find(int n, const double *load, const int *seat)
{
    int lightest = -1;

    for (int i = 0; i < n; i++) {
        if (seat[i] < 0 && (lightest < 0 || load[i] < load[lightest])) {
            lightest = i;
        }
    }
    return lightest;
}

/* Of two nodes that sit the other way round, exchanging them makes neither load over share larger
 * than the larger of both was. Nodes with share 1 are all the same. */
double planner_seat_assign(const double *b, int n, const int *order, const double *load, int *seat)
{
    double before = planner_seat_time(b, n, order, load), after;
    int last = -1, empty = 0;

    for (int i = 0; i < n; i++) {
        seat[i] = -1;
    }
    while ((last = next_find(b, n, order, last)) >= 0) {
        seat[lightest_find(n, load, seat)] = order[last];
    }
    for (int i = 0; i < n; i++) {
        if (b[order[i]] < 1) {
            continue;
        }
        while (seat[empty] >= 0) {
            empty++;
        }
        seat[empty] = order[i];
    }
    after = planner_seat_time(b, n, seat, load);
    if (before > after) {
        return after;
    }
    for (int i = 0; i < n; i++) {
        seat[i] = order[i];
    }
    return before;
}
