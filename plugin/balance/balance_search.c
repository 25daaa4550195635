/* The linear program of balance_fill(): downhill, with dual prices that prove how close it is. */
#include "balance_fill_int.h"

#include <string.h>

#define ROUNDS     96
#define CLOSE      0.98       /* of the bound: below what rates can be measured to */
#define SHARPEST   64         /* exponent of the dual prices in the end; see duals_set() */
#define FADE       0.75       /* of the mean of dual prices, per round */
#define PROOF      4          /* rounds from one bound by the mean to the next */
#define MORE       (1 + 1e-9) /* is an improvement: the last bits of sums are not */
#define SPARE      (1.0 / 16) /* of the highest load: what cannot get there decides nothing */
#define COST_LEAST 1e-300     /* of a path: adds nothing to a dual price, and can be divided by */
#define COST_NEVER 1e300      /* of a path that cannot be taken */

/*
 * Resources that are none: one with a path that cannot be taken, and those of paths whose last
 * resource does not count. Of these there are some, since a sum waits for the one before it.
 */
#define DEAD(net)    (net)->resources
#define NONE(net, p) ((net)->resources + 1 + (p) % BALANCE_NONES)

/* Prefix @up and one more resource. */
static uint32_t prefix_get(struct balance_work *w, uint32_t up, uint16_t res)
{
    uint32_t i = (uint32_t)((((uint64_t)up << 16 | res) * 0x9e3779b97f4a7c15ull) >> 32);

    for (;; i++) {
        uint32_t s = w->slot[i & (w->slots - 1)];

        if (s == 0) {
            break;
        }
        if (w->up[s] == up && w->leaf[s] == res) {
            return s;
        }
    }
    w->slot[i & (w->slots - 1)] = w->prefixes;
    w->up[w->prefixes] = up;
    w->leaf[w->prefixes] = res;
    return w->prefixes++;
}

static bool path_is_dead(const struct balance_work *w, uint32_t p)
{
    for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++) {
        if (w->per_mbps[w->res[i]] == 0) {
            return true;
        }
    }
    return false;
}

/*
 * Paths of different flows are the same on most of their way, port and links of this host, and then
 * differ. What a path has before its last resource is its prefix, and paths with the same one share
 * it; a prefix is a shorter one, which comes before it, and one more resource. What is summed up
 * over the resources of paths is summed up once per prefix. Prefix 0 is the one of no resources.
 */
static void prefixes_make(const struct balance_net *net, struct balance_work *w)
{
    w->prefixes = 1;
    w->n_live = 0;
    w->prefix_cost[0] = COST_LEAST;
    w->dual[DEAD(net)] = w->dual_mean[DEAD(net)] = COST_NEVER;
    for (uint32_t p = 0; p < net->paths; p++) {
        uint32_t last = w->at[p + 1] - 1;

        if (path_is_dead(w, p)) {
            w->last[p] = (uint16_t)DEAD(net);
            continue;
        }
        for (uint32_t i = w->at[p]; i < last; i++) {
            w->prefix[p] = prefix_get(w, w->prefix[p], w->res[i]);
        }
        w->last[p] = w->res[last];
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        if (net->mbps[r]) {
            w->live[w->n_live++] = (uint16_t)r;
        }
    }
}

/* What @part of path @p asks for, from its last resource and its prefix; loads_get() does the rest.
 */
static inline void part_lay(struct balance_work *w, uint32_t p, double part)
{
    w->load[w->last[p]] += part;
    w->carry[w->prefix[p]] += part;
}

/* Loads of the parts that have been laid; returns the highest, 0 when there is none. */
static double loads_get(struct balance_work *w)
{
    double most = 0;

    for (uint32_t s = w->prefixes - 1; s > 0; s--) {
        w->load[w->leaf[s]] += w->carry[s];
        w->carry[w->up[s]] += w->carry[s];
        w->carry[s] = 0;
    }
    for (uint32_t i = 0; i < w->n_live; i++) {
        double load = w->load[w->live[i]] * w->per_mbps[w->live[i]];

        w->load[w->live[i]] = load;
        most = load > most ? load : most;
    }
    return most;
}

static void loads_clear(const struct balance_net *net, struct balance_work *w)
{
    memset(w->load, 0, (net->resources + BALANCE_EXTRA) * sizeof(w->load[0]));
    memset(w->carry, 0, w->prefixes * sizeof(w->carry[0]));
}

/*
 * A resource that would stay far below the highest load if all who can use it sent all that they
 * have over it decides nothing, and the search goes on without it: remote ports, where flows go to
 * many hosts. No division has a highest load below 1 / @bound. Lays the parts again.
 */
static void spare_leave_out(const struct balance_net *net, struct balance_work *w, double bound)
{
    uint32_t n_live = 0;

    loads_clear(net, w);
    for (uint32_t f = 0; f < net->flows; f++) {
        for (uint32_t p = net->flow[f].first; p < net->flow[f].first + net->flow[f].n; p++) {
            part_lay(w, p, net->flow[f].share);
        }
    }
    loads_get(w);
    for (uint32_t i = 0; i < w->n_live; i++) {
        uint32_t r = w->live[i];

        w->left[r] = w->load[r] * bound < SPARE; /* a flag, until the last step */
        if (!w->left[r]) {
            w->live[n_live++] = (uint16_t)r;
        }
    }
    w->n_live = n_live;
    for (uint32_t s = 1; s < w->prefixes; s++) {
        w->leaf[s] = w->left[w->leaf[s]] ? (uint16_t)NONE(net, s) : w->leaf[s];
    }
    loads_clear(net, w);
    for (uint32_t p = 0; p < net->paths; p++) {
        if (w->last[p] < net->resources && w->left[w->last[p]]) {
            w->last[p] = (uint16_t)NONE(net, p);
        }
        part_lay(w, p, w->part[p]);
    }
}

/* --- parts --- */

/* Each flow in the ratio of what its paths could carry alone; paths with a resource that has
 * nothing left stay out. */
static void parts_begin(const struct balance_net *net, struct balance_work *w)
{
    for (uint32_t f = 0; f < net->flows; f++) {
        uint32_t from = net->flow[f].first, to = from + net->flow[f].n;
        double sum = 0;

        for (uint32_t p = from; p < to; p++) {
            uint32_t least = UINT32_MAX;

            for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++) {
                least = net->mbps[w->res[i]] < least ? net->mbps[w->res[i]] : least;
            }
            w->part[p] = least;
            sum += least;
        }
        for (uint32_t p = from; p < to && sum > 0; p++) {
            w->part[p] *= net->flow[f].share / sum;
            part_lay(w, p, w->part[p]);
        }
    }
}

/*
 * The dual price of a resource rises with the @sharp-th power of its load, so what the parts go
 * downhill on is the sum of all load^(sharp + 1): the larger the power, the more the highest load
 * alone counts. Returns what all capacity costs. Loads are 0 afterwards, for the next parts.
 */
static double duals_set(struct balance_work *w, double most, int sharp)
{
    double all = 0;

    for (uint32_t i = 0; i < w->n_live; i++) {
        uint32_t r = w->live[i];
        double dual = w->load[r] / most;

        for (int k = 1; k < sharp; k *= 2) {
            dual *= dual;
        }
        all += dual;
        w->dual[r] = dual * w->per_mbps[r];
        w->dual_mean[r] = w->dual_mean[r] * FADE + w->dual[r];
        w->load[r] = 0;
    }
    return all;
}

/* What all flows pay at least when each sends 1 per share, at these dual prices. Into cost[] of
 * each path, and least[] of each flow. */
static double costs_set(const struct balance_net *net, struct balance_work *w, const double *dual)
{
    double *prefix_cost = w->prefix_cost, *cost = w->cost, pay = 0;
    const uint32_t *prefix = w->prefix;
    const uint16_t *last = w->last;

    for (uint32_t s = 1; s < w->prefixes; s++) {
        prefix_cost[s] = prefix_cost[w->up[s]] + dual[w->leaf[s]];
    }
    for (uint32_t f = 0; f < net->flows; f++) {
        size_t from = net->flow[f].first, to = from + net->flow[f].n;
        double least = COST_NEVER;

        for (size_t p = from; p < to; p++) {
            double c = prefix_cost[prefix[p]] + dual[last[p]];

            cost[p] = c;
            least = c < least ? c : least;
        }
        w->least[f] = least;
        pay += least < COST_NEVER ? least * net->flow[f].share : 0;
    }
    return pay;
}

/* A path that costs more than its flow's cheapest gives some of its part away. Flow by flow in each
 * pass: their sums do not wait for each other. */
static void parts_move(const struct balance_net *net, struct balance_work *w, int sharp)
{
    double *part = w->part, *load = w->load, *carry = w->carry, keep = sharp / 2.0 - 1;
    const double *cost = w->cost;
    const uint32_t *prefix = w->prefix;
    const uint16_t *last = w->last;

    for (uint32_t f = 0; f < net->flows; f++) {
        size_t from = net->flow[f].first, to = from + net->flow[f].n;
        double least = w->least[f], sum = 0;

        for (size_t p = from; p < to; p++) {
            double x = part[p] * (least / cost[p] + keep);

            part[p] = x;
            sum += x;
        }
        w->scale[f] = sum > 0 ? net->flow[f].share / sum : 0;
    }
    for (uint32_t f = 0; f < net->flows; f++) {
        size_t from = net->flow[f].first, to = from + net->flow[f].n;
        double scale = w->scale[f];

        for (size_t p = from; p < to; p++) {
            double x = part[p] * scale;

            part[p] = x;
            load[last[p]] += x;
            carry[prefix[p]] += x;
        }
    }
}

static void bound_lower(struct balance_result *x, double all, double pay)
{
    if (pay > 0 && (x->bound == 0 || all / pay < x->bound)) {
        x->bound = all / pay;
    }
}

/*
 * Into best[]: parts at which the highest load is as low as it gets. Dual prices swing from round
 * to round, their mean much less: it proves sooner that no other parts are better.
 */
struct balance_result balance_search(const struct balance_net *net, struct balance_work work)
{
    struct balance_work *w = &work;
    struct balance_result x = {0, 0};
    int sharp = 4, since = 0;
    double mean = 0;

    prefixes_make(net, w);
    parts_begin(net, w);
    for (int round = 0; round < ROUNDS; round++) {
        double most = loads_get(w), all;

        if (!(most > 0)) {
            return x;
        }
        if (1 / most > x.least * MORE) {
            x.least = 1 / most;
            since = round;
            memcpy(w->best, w->part, net->paths * sizeof(w->part[0]));
        }
        all = duals_set(w, most, sharp);
        mean = mean * FADE + all;
        if (round % PROOF == PROOF - 1) {
            bound_lower(&x, mean, costs_set(net, w, w->dual_mean));
        }
        bound_lower(&x, all, costs_set(net, w, w->dual));
        if (x.bound > 0 && x.least >= x.bound * CLOSE) {
            break;
        }
        parts_move(net, w, sharp);
        if (round == 0) {
            spare_leave_out(net, w, x.bound);
        }
        if ((round - since >= 6 || round % 8 == 7) && sharp < SHARPEST) {
            sharp *= 2;
            since = round;
        }
    }
    return x;
}
