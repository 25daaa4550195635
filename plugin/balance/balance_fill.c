#include "balance_fill_int.h"

#include <string.h>

#define FRACTION 24 /* bits below one Mb/s; 23 + 24 bits leave room for sums */

static uint64_t entries_count(const struct balance_net *net)
{
    uint64_t n = 0;

    for (uint32_t p = 0; p < net->paths; p++) {
        n += net->path[p].n;
    }
    return n;
}

static bool path_is_fit(const struct balance_net *net, const struct balance_path *p)
{
    if (p->n == 0 || p->n > BALANCE_PATH_RES) {
        return false;
    }
    for (int i = 0; i < p->n; i++) {
        if (p->res[i] >= net->resources) {
            return false;
        }
        for (int k = 0; k < i; k++) {
            if (p->res[k] == p->res[i]) {
                return false;
            }
        }
    }
    return true;
}

static bool net_is_fit(const struct balance_net *net)
{
    uint32_t next = 0;

    if (net->flows == 0 || net->flows > BALANCE_FLOWS || net->paths == 0 ||
        net->paths > BALANCE_PATHS || net->resources == 0 || net->resources > BALANCE_RESOURCES) {
        return false;
    }
    for (uint32_t f = 0; f < net->flows; f++) {
        const struct balance_flow *w = &net->flow[f];

        if (w->share == 0 || w->share > 256 || w->n == 0 || w->n > BALANCE_FLOW_PATHS ||
            w->first != next || w->n > net->paths - next) {
            return false;
        }
        next += w->n;
    }
    if (next != net->paths) {
        return false;
    }
    for (uint32_t p = 0; p < net->paths; p++) {
        if (!path_is_fit(net, &net->path[p])) {
            return false;
        }
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        if (net->mbps[r] > BALANCE_MBPS_MAX) {
            return false;
        }
    }
    return true;
}

/* There are no more prefixes than resources of paths but for the last ones, and the one of none. */
static size_t prefixes_most(size_t paths, size_t entries)
{
    return entries - paths + 1;
}

/* A power of two; at most half of them are used. */
static uint32_t slots_count(size_t prefixes)
{
    uint32_t n = 2;

    while (n < 2 * prefixes) {
        n *= 2;
    }
    return n;
}

size_t balance_fill_size_most(size_t r, size_t f, size_t p, size_t e)
{
    size_t s = prefixes_most(p, e);

    return (4 * r + 3 * BALANCE_EXTRA + 3 * p + 2 * f + 2 * s) * sizeof(double) +
           (3 * r + 1 + 2 * p) * sizeof(uint64_t) +
           (e + 2 * p + 1 + s + slots_count(s)) * sizeof(uint32_t) +
           (e + s + p + r) * sizeof(uint16_t) + 8;
}

static size_t size_get(const struct balance_net *net)
{
    return balance_fill_size_most(net->resources, net->flows, net->paths, entries_count(net));
}

size_t balance_fill_size(const struct balance_net *net)
{
    return net_is_fit(net) ? size_get(net) : 0;
}

static void work_begin(const struct balance_net *net, void *memory, struct balance_work *w)
{
    size_t r = net->resources, p = net->paths, e = entries_count(net), s = prefixes_most(p, e);
    double *d = memory;
    uint64_t *u;
    uint32_t n = 0;

    memset(memory, 0, size_get(net));
    w->slots = slots_count(s);
    w->per_mbps = d, w->load = d + r, w->dual = w->load + r + BALANCE_EXTRA;
    w->dual_mean = w->dual + r + BALANCE_EXTRA;
    w->part = w->dual_mean + r + BALANCE_EXTRA, w->best = w->part + p;
    w->cost = w->best + p, w->least = w->cost + p, w->scale = w->least + net->flows;
    w->carry = w->scale + net->flows, w->prefix_cost = w->carry + s;
    u = (uint64_t *)(void *)(w->prefix_cost + s);
    w->left = u, w->sum = u + r, w->begin = u + 2 * r;
    w->rate = w->begin + r + 1, w->theta = w->rate + p;
    w->at = (uint32_t *)(void *)(w->theta + p);
    w->user = w->at + p + 1;
    w->up = w->user + e, w->slot = w->up + s, w->prefix = w->slot + w->slots;
    w->res = (uint16_t *)(void *)(w->prefix + p);
    w->leaf = w->res + e, w->last = w->leaf + s, w->live = w->last + p;
    for (size_t i = 0; i < r; i++) {
        w->per_mbps[i] = net->mbps[i] ? 1.0 / net->mbps[i] : 0;
    }
    for (size_t i = 0; i < p; i++) {
        for (int k = 0; k < net->path[i].n; k++) {
            w->res[n++] = net->path[i].res[k];
        }
        w->at[i + 1] = n;
    }
}

/* --- progressive filling, the last step --- */

static void filling_begin(const struct balance_net *net, struct balance_work *w)
{
    for (uint32_t i = 0; i < w->at[net->paths]; i++) {
        w->begin[w->res[i] + 1]++;
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        w->begin[r + 1] += w->begin[r];
        w->sum[r] = w->begin[r]; /* where the next one goes */
        w->left[r] = (uint64_t)net->mbps[r] << FRACTION;
    }
    for (uint32_t p = 0; p < net->paths; p++) {
        w->theta[p] = (uint64_t)(w->best[p] * BALANCE_ONE);
        for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++) {
            w->user[w->sum[w->res[i]]++] = p;
        }
    }
    memset(w->sum, 0, net->resources * sizeof(w->sum[0]));
    for (uint32_t p = 0; p < net->paths; p++) {
        for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++) {
            w->sum[w->res[i]] += w->theta[p];
        }
    }
}

/* A path rises no more; its resources are free of it. */
static void path_stop(struct balance_work *w, uint32_t p, uint64_t level)
{
    w->rate[p] = level * w->theta[p];
    for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++) {
        w->sum[w->res[i]] -= w->theta[p];
    }
    w->theta[p] = 0;
}

/*
 * All paths rise together, each as fast as its part, until a resource is full; its paths stop and
 * the others go on. Each turn fills at least one resource, so there are no more turns than
 * resources. level * sum never exceeds the capacity of a resource, which is below 2^48: all that is
 * in its sum has risen to level.
 */
static void filling_run(const struct balance_net *net, struct balance_work *w)
{
    uint64_t level = 0, room;

    for (;;) {
        room = UINT64_MAX;
        for (uint32_t r = 0; r < net->resources; r++) {
            if (w->sum[r] > 0 && w->left[r] / w->sum[r] < room) {
                room = w->left[r] / w->sum[r];
            }
        }
        if (room == UINT64_MAX) {
            return;
        }
        level += room;
        for (uint32_t r = 0; r < net->resources; r++) {
            w->left[r] -= room * w->sum[r];
        }
        for (uint32_t r = 0; r < net->resources; r++) {
            /* what is all but full counts as full: the next turn would raise the others by less
             * than 1 part in 256 */
            if (w->sum[r] == 0 || w->left[r] >= w->sum[r] * (1 + (level >> 8))) {
                continue;
            }
            for (uint64_t u = w->begin[r]; u < w->begin[r + 1]; u++) {
                if (w->theta[w->user[u]] > 0) {
                    path_stop(w, w->user[u], level);
                }
            }
        }
    }
}

/* Largest remainders, the first of equal ones first: the weights of a flow add up to BALANCE_ONE.
 */
static void weights_stripe(const struct balance_work *w, const struct balance_flow *f,
                           uint32_t *weight)
{
    uint64_t rest[BALANCE_FLOW_PATHS], sum = 0, given = 0;

    for (uint32_t p = f->first; p < f->first + f->n; p++) {
        sum += w->rate[p] >> 16;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        uint64_t scaled = sum > 0 ? (w->rate[f->first + i] >> 16) * BALANCE_ONE : BALANCE_ONE;
        uint64_t by = sum > 0 ? sum : f->n;

        weight[f->first + i] = (uint32_t)(scaled / by);
        rest[i] = scaled % by;
        given += scaled / by;
    }
    for (; given < BALANCE_ONE; given++) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < f->n; i++) {
            best = rest[i] > rest[best] ? i : best;
        }
        weight[f->first + best]++;
        rest[best] = 0;
    }
}

int balance_fill(const struct balance_net *net, void *memory, uint32_t *rate, uint32_t *weight,
                 struct balance_result *result)
{
    struct balance_result found;
    struct balance_work w;

    if (!net_is_fit(net)) {
        return -1;
    }
    work_begin(net, memory, &w);
    found = balance_search(net, w);
    filling_begin(net, &w);
    filling_run(net, &w);
    for (uint32_t p = 0; rate != NULL && p < net->paths; p++) {
        rate[p] = (uint32_t)(w.rate[p] >> FRACTION);
    }
    for (uint32_t f = 0; weight != NULL && f < net->flows; f++) {
        weights_stripe(&w, &net->flow[f], weight);
    }
    if (result != NULL) {
        *result = found;
    }
    return 0;
}

bool balance_weights_differ(const uint32_t *now, const uint32_t *next, unsigned n, unsigned percent)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t big = now[i] > next[i] ? now[i] : next[i],
                 small = now[i] > next[i] ? next[i] : now[i];

        if (big - small > BALANCE_LITTLE && (big - small) * 100 > big * percent) {
            return true;
        }
    }
    return false;
}
