#include "place_plan.h"

#include <stdbool.h>
#include <stddef.h>

#include "planner/planner_bound.h"
#include "planner/planner_choose.h"
#include "planner/planner_seat.h"

const char *place_plan_name(enum place_plan_verdict v)
{
    static const char *const names[PLACE_PLAN_VERDICTS] = {
        "as good as any",
        "back to the user's own",
        "another order of hosts",
        "a rank knows nothing of its NICs, or has none left",
        "hosts have different numbers of ranks",
        "one host",
        "too many hosts"};

    return (unsigned)v < PLACE_PLAN_VERDICTS ? names[v] : "?";
}

/* Ranks into nodes, in the order of their first ranks. */
static int nodes_find(const struct place_facts *const *facts, int n,
                      const struct place_plan_work *w)
{
    int nodes = 0;

    for (int r = 0; r < n; r++) {
        int k = nodes - 1; /* ranks of a host follow each other as a rule */

        while (k >= 0 && w->host[k] != facts[r]->host) {
            k--;
        }
        if (k < 0) {
            k = nodes++;
            w->host[k] = facts[r]->host;
            w->per[k] = 0;
        }
        w->node[r] = k;
        w->per[k]++;
    }
    return nodes;
}

/* load[node]: what its ranks use, in NICs; load[n + node]: what is usable, the least that one of
 * them knows, since they see the same NICs. False: a rank does not know, or has none left. */
static bool nics_find(const struct place_facts *const *facts, int n, int nodes,
                      const struct place_plan_work *w)
{
    double *used = w->load, *usable = w->load + n;

    for (int k = 0; k < nodes; k++) {
        used[k] = 0;
        usable[k] = UINT16_MAX;
    }
    for (int r = 0; r < n; r++) {
        const struct place_facts *f = facts[r];
        int k = w->node[r];

        if (f->usable == 0 || f->used == 0 || f->mbps == 0) {
            return false;
        }
        /* Each has NICs of its own as a rule, and a host has no more than it has. */
        used[k] = used[k] + f->used < f->nics ? used[k] + f->used : f->nics;
        usable[k] = f->usable < usable[k] ? f->usable : usable[k];
    }
    return true;
}

/*
 * share[] of what the best node uses when all is well; the rate of that one, MB/s. 0: not known. A
 * NIC that no connection is at home on is no loss, and stands in for one that is lost.
 */
static double shares_find(const struct place_facts *const *facts, int n, int nodes,
                          const struct place_plan_work *w)
{
    const double *used = w->load, *usable = w->load + n;
    double rate = 0;

    if (!nics_find(facts, n, nodes, w)) {
        return 0;
    }
    for (int r = 0; r < n; r++) {
        int k = w->node[r];
        double all = used[k] * facts[r]->mbps;

        rate = all > rate ? all : rate;
        w->share[k] = (usable[k] < used[k] ? usable[k] : used[k]) * facts[r]->mbps;
    }
    for (int k = 0; k < nodes; k++) {
        w->share[k] /= rate;
    }
    return rate;
}

/* order[position]: nodes by their first rank in the communicator in use. */
static void order_find(int n, int nodes, const int *now, const struct place_plan_work *w)
{
    int at = 0;

    for (int k = 0; k < nodes; k++) {
        w->first[k] = -1;
    }
    for (int r = 0; r < n; r++) { /* seat[] for a moment: user's rank by rank in use */
        w->seat[now != NULL ? now[r] : r] = r;
    }
    for (int i = 0; i < n; i++) {
        int k = w->node[w->seat[i]];

        if (w->first[k] < 0) {
            w->first[k] = i;
            w->order[at++] = k;
        }
    }
}

static void ranks_give(int n, int nodes, const struct place_plan_work *w, int *newrank)
{
    int next = 0;

    for (int i = 0; i < nodes; i++) {
        w->first[w->seat[i]] = next;
        next += w->per[w->seat[i]];
    }
    for (int r = 0; r < n; r++) {
        newrank[r] = w->first[w->node[r]]++;
    }
}

static enum place_plan_verdict judge(const struct place_plan *p, bool is_own)
{
    if (p->degraded == 0 || p->own_us < p->best_us * PLACE_PLAN_GAIN) {
        return is_own ? PLACE_PLAN_STAY : PLACE_PLAN_OWN;
    }
    return p->now_us < p->best_us * PLACE_PLAN_GAIN ? PLACE_PLAN_STAY : PLACE_PLAN_OTHER;
}

static enum place_plan_verdict obstacle(int nodes, const struct place_plan_work *w)
{
    if (nodes < 2) {
        return PLACE_PLAN_FEW;
    }
    for (int k = 1; k < nodes; k++) {
        if (w->per[k] != w->per[0]) {
            return PLACE_PLAN_UNEVEN;
        }
    }
    return nodes > PLANNER_NODES ? PLACE_PLAN_MANY : PLACE_PLAN_STAY;
}

/* Node 0, 1, ... in the order of the user's own communicator, which NCCL runs by what is faster. */
static double own_time(const struct planner_facts *f, const struct planner_plan *plan,
                       const struct place_plan_work *w)
{
    int nodes = f->net.nodes;
    double ring = plan->row[PLANNER_RING].us, tree;

    for (int k = 0; k < nodes; k++) {
        w->first[k] = k;
    }
    planner_seat_loads(nodes, w->load);
    tree = planner_cost_tree(&f->net, f->bytes, planner_seat_time(f->b, nodes, w->first, w->load));
    return tree < ring || w->no_ring ? tree : ring;
}

void place_plan_make(const struct place_facts *const *facts, int n, const int *now,
                     const struct place_plan_work *w, struct place_plan *p, int *newrank)
{
    struct planner_facts f = {.bytes = PLACE_PLAN_BYTES, .b = w->share, .order = w->order};
    struct planner_plan plan;
    int bad;

    *p = (struct place_plan){.hosts = nodes_find(facts, n, w)};
    p->verdict = obstacle(p->hosts, w);
    if (p->verdict != PLACE_PLAN_STAY) {
        return;
    }
    f.net = (struct planner_net){
        .nodes = p->hosts, .gpus = w->per[0], .rate = shares_find(facts, n, p->hosts, w)};
    order_find(n, p->hosts, now, w);
    if (planner_choose(&f, &plan, w->seat, w->load, &bad) != 0) {
        p->verdict = PLACE_PLAN_UNKNOWN;
        return;
    }
    for (int k = 0; k < p->hosts; k++) {
        p->degraded += w->share[k] < 1;
    }
    p->best_us = plan.row[PLANNER_SEATS].us;
    p->own_us = own_time(&f, &plan, w);
    p->now_us = now != NULL ? plan.row[PLANNER_TREE].us : p->own_us;
    p->verdict = judge(p, now == NULL);
    if (p->verdict == PLACE_PLAN_OTHER) {
        ranks_give(n, p->hosts, w, newrank);
    }
}
