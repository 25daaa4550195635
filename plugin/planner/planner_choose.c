#include "planner_choose.h"

#include <stddef.h>

#include "planner_bound.h"
#include "planner_level.h"
#include "planner_paper.h"
#include "planner_seat.h"

static const char *const names[PLANNER_STRATEGIES] = {
    "ring", "tree",      "tree, light seats",   "r2ccl, pipelined",
    "leaf", "recursion", "recursion by leaves", "weighted stars"};

const char *planner_choose_name(enum planner_strategy s)
{
    return (unsigned)s < PLANNER_STRATEGIES ? names[s] : NULL;
}

static int check(const struct planner_facts *f, int *bad)
{
    *bad = -1;
    if (f->net.nodes < 2 || f->net.nodes > PLANNER_NODES || f->net.gpus < 1 || !(f->net.rate > 0)) {
        return -1;
    }
    for (int i = 0; i < f->net.nodes; i++) {
        if (!(f->b[i] > 0 && f->b[i] <= 1)) {
            *bad = i;
            return -1;
        }
    }
    return 0;
}

static void nccl_rows(const struct planner_facts *f, struct planner_plan *p, int *seat,
                      double *load)
{
    int n = f->net.nodes;
    double ring = planner_bound_ring(n, f->net.gpus), heaviest = 0;

    planner_seat_loads(n, load);
    for (int i = 0; i < n; i++) {
        heaviest = load[i] > heaviest ? load[i] : heaviest;
    }
    p->healthy[PLANNER_RING].load = ring;
    p->healthy[PLANNER_TREE].load = heaviest;
    p->row[PLANNER_RING].load = ring / planner_bound_least(f->b, n);
    p->row[PLANNER_TREE].load = planner_seat_time(f->b, n, f->order, load);
    p->row[PLANNER_SEATS].load = planner_seat_assign(f->b, n, f->order, load, seat);
    for (int s = PLANNER_RING; s <= PLANNER_SEATS; s++) {
        double (*cost)(const struct planner_net *, uint64_t, double) =
            s == PLANNER_RING ? planner_cost_ring : planner_cost_tree;

        p->row[s].us = cost(&f->net, f->bytes, p->row[s].load);
        p->row[s].is_nccls = true;
        if (s < PLANNER_SEATS) {
            p->healthy[s].us = cost(&f->net, f->bytes, p->healthy[s].load);
            p->healthy[s].is_nccls = true;
        }
    }
}

static void other_rows(const struct planner_facts *f, struct planner_plan *p)
{
    struct planner_level level[PLANNER_LEVELS];
    int n = f->net.nodes, g = f->net.gpus;
    int levels = planner_level_isolate(f->b, n, level), hops[PLANNER_STRATEGIES];

    p->row[PLANNER_R2].load = planner_level_best(level, levels, g, PLANNER_BROADCAST);
    p->row[PLANNER_ATTACH].load = planner_level_best(level, levels, g, PLANNER_LEAF);
    levels = planner_level_find(f->b, n, level);
    if (levels > 0) {
        p->row[PLANNER_RECURSION].load = planner_level_best(level, levels, g, PLANNER_BROADCAST);
        p->row[PLANNER_LEAVES].load = planner_level_best(level, levels, g, PLANNER_LEAF);
    }
    p->row[PLANNER_STARS].load = planner_bound(f->b, n);
    /* A broadcast goes around the ring; a leaf's data in and out is two hops, and so is a star. */
    hops[PLANNER_R2] = hops[PLANNER_RECURSION] = n;
    hops[PLANNER_ATTACH] = hops[PLANNER_LEAVES] = hops[PLANNER_STARS] = 2;
    for (int s = PLANNER_R2; s < PLANNER_STRATEGIES; s++) {
        p->row[s].us =
            planner_cost_other(&f->net, f->bytes, p->row[s].load, s != PLANNER_STARS, hops[s]);
    }
}

static void paper_fill(const struct planner_facts *f, struct planner_plan *p)
{
    int degraded = 0, which = 0, n = f->net.nodes;
    double x;

    for (int i = 0; i < n; i++) {
        if (f->b[i] < 1) {
            degraded++;
            which = i;
        }
    }
    if (degraded != 1) {
        return;
    }
    x = 1 - f->b[which];
    p->paper_share = planner_paper_share(x, n, f->net.gpus);
    p->paper_us = planner_cost_other(&f->net, f->bytes,
                                     planner_paper_time(x, p->paper_share, n, f->net.gpus), 1, n);
}

int planner_choose(const struct planner_facts *facts, struct planner_plan *p, int *seat,
                   double *work, int *bad)
{
    struct planner_facts f = *facts;
    int *order;

    if (check(&f, bad) != 0) {
        return -1;
    }
    order = (int *)(work + f.net.nodes);
    for (int i = 0; f.order == NULL && i < f.net.nodes; i++) {
        order[i] = i;
    }
    f.order = f.order != NULL ? f.order : order;
    *p = (struct planner_plan){.bound = planner_bound(f.b, f.net.nodes)};
    nccl_rows(&f, p, seat, work);
    other_rows(&f, p);
    paper_fill(&f, p);
    for (int s = 1; s < PLANNER_STRATEGIES; s++) {
        const struct planner_row *r = &p->row[s];

        if (r->is_nccls && r->us < p->row[p->use].us) {
            p->use = s;
        }
        if (r->load > 0 && r->us < p->row[p->fastest].us) {
            p->fastest = s;
        }
    }
    return 0;
}
