#include "balance_fill.h"

#include <string.h>

#define ROUNDS   96
#define CLOSE    0.98 /* of the bound: below what rates can be measured to */
#define FRACTION 24   /* bits below one Mb/s; 23 + 24 bits leave room for sums */
#define SHARPEST 64   /* exponent of the prices in the end; see prices_set() */

/* All in the caller's memory. */
struct work {
    double *per_mbps; /* per resource: 1 / capacity; 0: nothing left */
    double *load;     /* per resource: part of its capacity that is asked for when each flow gets 1 per share */
    double *price;    /* per resource */
    double *part, *best; /* per path: of its flow; the parts of a flow add up to its share, or are all 0 */
    double *cost;     /* per path */
    uint64_t *left, *sum, *begin; /* per resource, for the last step */
    uint64_t *rate, *theta;       /* per path, likewise */
    uint32_t *user;   /* paths by resource */
    uint32_t *at;     /* per path, + 1: where its resources begin in res[] */
    uint16_t *res;    /* of all paths, packed */
};

static uint64_t entries_count(const struct balance_net *net)
{
    uint64_t n = 0;

    for (uint32_t p = 0; p < net->paths; p++)
        n += net->path[p].n;
    return n;
}

static bool path_is_fit(const struct balance_net *net, const struct balance_path *p)
{
    if (p->n == 0 || p->n > BALANCE_PATH_RES)
        return false;
    for (int i = 0; i < p->n; i++) {
        if (p->res[i] >= net->resources)
            return false;
        for (int k = 0; k < i; k++) {
            if (p->res[k] == p->res[i])
                return false;
        }
    }
    return true;
}

static bool net_is_fit(const struct balance_net *net)
{
    uint32_t next = 0;

    if (net->flows == 0 || net->flows > BALANCE_FLOWS || net->paths == 0 || net->paths > BALANCE_PATHS ||
        net->resources == 0 || net->resources > BALANCE_RESOURCES)
        return false;
    for (uint32_t f = 0; f < net->flows; f++) {
        const struct balance_flow *w = &net->flow[f];

        if (w->share == 0 || w->share > 256 || w->n == 0 || w->n > BALANCE_FLOW_PATHS || w->first != next || w->n > net->paths - next)
            return false;
        next += w->n;
    }
    if (next != net->paths)
        return false;
    for (uint32_t p = 0; p < net->paths; p++) {
        if (!path_is_fit(net, &net->path[p]))
            return false;
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        if (net->mbps[r] > BALANCE_MBPS_MAX)
            return false;
    }
    return true;
}

static size_t size_get(const struct balance_net *net)
{
    size_t r = net->resources, p = net->paths, e = entries_count(net);

    return (3 * r + 3 * p) * sizeof(double) + (3 * r + 1 + 2 * p) * sizeof(uint64_t) + (e + p + 1) * sizeof(uint32_t) +
           e * sizeof(uint16_t) + 8;
}

size_t balance_fill_size(const struct balance_net *net)
{
    return net_is_fit(net) ? size_get(net) : 0;
}

static void work_begin(const struct balance_net *net, void *memory, struct work *w)
{
    uint32_t r = net->resources, p = net->paths, n = 0;
    double *d = memory;
    uint64_t *u;

    memset(memory, 0, size_get(net));
    w->per_mbps = d, w->load = d + r, w->price = d + 2 * r;
    w->part = d + 3 * r, w->best = w->part + p, w->cost = w->best + p;
    u = (uint64_t *)(void *)(w->cost + p);
    w->left = u, w->sum = u + r, w->begin = u + 2 * r;
    w->rate = w->begin + r + 1, w->theta = w->rate + p;
    w->at = (uint32_t *)(void *)(w->theta + p);
    w->user = w->at + p + 1;
    w->res = (uint16_t *)(void *)(w->user + entries_count(net));
    for (uint32_t i = 0; i < r; i++)
        w->per_mbps[i] = net->mbps[i] ? 1.0 / net->mbps[i] : 0;
    for (uint32_t i = 0; i < p; i++) {
        for (int k = 0; k < net->path[i].n; k++)
            w->res[n++] = net->path[i].res[k];
        w->at[i + 1] = n;
    }
}

/* Each flow in the ratio of what its paths could carry alone; paths with a resource that has nothing left stay out. */
static void parts_begin(const struct balance_net *net, struct work *w)
{
    for (uint32_t f = 0; f < net->flows; f++) {
        uint32_t from = net->flow[f].first, to = from + net->flow[f].n;
        double sum = 0;

        for (uint32_t p = from; p < to; p++) {
            uint32_t least = UINT32_MAX;

            for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
                least = net->mbps[w->res[i]] < least ? net->mbps[w->res[i]] : least;
            w->part[p] = least;
            sum += least;
        }
        for (uint32_t p = from; p < to && sum > 0; p++)
            w->part[p] *= net->flow[f].share / sum;
    }
}

/* Loads of the present parts; returns the highest, 0 when no flow can send at all. */
static double loads_set(const struct balance_net *net, struct work *w)
{
    double most = 0;

    memset(w->load, 0, net->resources * sizeof(w->load[0]));
    for (uint32_t p = 0; p < net->paths; p++) {
        for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
            w->load[w->res[i]] += w->part[p];
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        w->load[r] *= w->per_mbps[r];
        most = w->load[r] > most ? w->load[r] : most;
    }
    return most;
}

/*
 * The price of a resource rises with the @sharp-th power of its load, so the sum of all load^(sharp + 1) is what the parts go downhill on: the larger the power,
 * the more the highest load alone counts. Returns what all capacity costs.
 */
static double prices_set(const struct balance_net *net, struct work *w, double most, int sharp)
{
    double all = 0;

    for (uint32_t r = 0; r < net->resources; r++) {
        double price = w->load[r] / most;

        for (int k = 1; k < sharp; k *= 2)
            price *= price;
        all += w->per_mbps[r] > 0 ? price : 0;
        w->price[r] = price * w->per_mbps[r];
    }
    return all;
}

/* A path that costs more than its flow's cheapest gives some of its part away. Returns what all flows pay at least when each sends 1 per share. */
static double parts_move(const struct balance_net *net, struct work *w, int sharp)
{
    double pay = 0, keep = sharp / 2.0 - 1, scale = 1 / (1 + keep);

    for (uint32_t f = 0; f < net->flows; f++) {
        uint32_t from = net->flow[f].first, to = from + net->flow[f].n;
        double least = -1, sum = 0;

        for (uint32_t p = from; p < to; p++) {
            double cost = 0;

            for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
                cost += w->price[w->res[i]];
            w->cost[p] = cost;
            if (w->part[p] > 0 && (least < 0 || cost < least))
                least = cost;
        }
        if (least < 0)
            continue;
        pay += least * net->flow[f].share;
        for (uint32_t p = from; p < to; p++) {
            if (w->cost[p] > 0)
                w->part[p] *= (least / w->cost[p] + keep) * scale;
            sum += w->part[p];
        }
        for (uint32_t p = from; p < to; p++)
            w->part[p] *= net->flow[f].share / sum;
    }
    return pay;
}

/* Into best[]: parts at which the highest load is as low as it gets. */
static struct balance_result parts_find(const struct balance_net *net, struct work *w)
{
    struct balance_result x = {0, 0};
    int sharp = 4, since = 0;

    parts_begin(net, w);
    for (int round = 0; round < ROUNDS; round++) {
        double most = loads_set(net, w), all, pay;

        if (!(most > 0))
            return x;
        if (1 / most > x.least) {
            x.least = 1 / most;
            since = round;
            memcpy(w->best, w->part, net->paths * sizeof(w->part[0]));
        }
        all = prices_set(net, w, most, sharp);
        pay = parts_move(net, w, sharp);
        if (pay > 0 && (x.bound == 0 || all / pay < x.bound))
            x.bound = all / pay;
        if (x.bound > 0 && x.least >= x.bound * CLOSE)
            break;
        if ((round - since >= 6 || round % 8 == 7) && sharp < SHARPEST) {
            sharp *= 2;
            since = round;
        }
    }
    return x;
}

/* --- the last step: everybody rises until something is full --- */

static void rise_begin(const struct balance_net *net, struct work *w)
{
    for (uint32_t i = 0; i < w->at[net->paths]; i++)
        w->begin[w->res[i] + 1]++;
    for (uint32_t r = 0; r < net->resources; r++) {
        w->begin[r + 1] += w->begin[r];
        w->sum[r] = w->begin[r]; /* where the next one goes */
        w->left[r] = (uint64_t)net->mbps[r] << FRACTION;
    }
    for (uint32_t p = 0; p < net->paths; p++) {
        w->theta[p] = (uint64_t)(w->best[p] * BALANCE_ONE);
        for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
            w->user[w->sum[w->res[i]]++] = p;
    }
    memset(w->sum, 0, net->resources * sizeof(w->sum[0]));
    for (uint32_t p = 0; p < net->paths; p++) {
        for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
            w->sum[w->res[i]] += w->theta[p];
    }
}

/* A path rises no more; its resources are free of it. */
static void path_stop(struct work *w, uint32_t p, uint64_t level)
{
    w->rate[p] = level * w->theta[p];
    for (uint32_t i = w->at[p]; i < w->at[p + 1]; i++)
        w->sum[w->res[i]] -= w->theta[p];
    w->theta[p] = 0;
}

/*
 * All paths rise together, each as fast as its part, until a resource is full; its paths stop and the others go on. Each turn fills at least one resource, so
 * there are no more turns than resources. level * sum never exceeds the capacity of a resource, which is below 2^48: all that is in its sum has risen to level.
 */
static void parts_rise(const struct balance_net *net, struct work *w)
{
    uint64_t level = 0, room;

    for (;;) {
        room = UINT64_MAX;
        for (uint32_t r = 0; r < net->resources; r++) {
            if (w->sum[r] > 0 && w->left[r] / w->sum[r] < room)
                room = w->left[r] / w->sum[r];
        }
        if (room == UINT64_MAX)
            return;
        level += room;
        for (uint32_t r = 0; r < net->resources; r++)
            w->left[r] -= room * w->sum[r];
        for (uint32_t r = 0; r < net->resources; r++) {
            /* what is all but full counts as full: the next turn would raise the others by less than 1 part in 256 */
            if (w->sum[r] == 0 || w->left[r] >= w->sum[r] * (1 + (level >> 8)))
                continue;
            for (uint64_t u = w->begin[r]; u < w->begin[r + 1]; u++) {
                if (w->theta[w->user[u]] > 0)
                    path_stop(w, w->user[u], level);
            }
        }
    }
}

/* Largest remainders, the first of equal ones first: the weights of a flow add up to BALANCE_ONE. */
static void weights_cut(const struct work *w, const struct balance_flow *f, uint32_t *weight)
{
    uint64_t rest[BALANCE_FLOW_PATHS], sum = 0, given = 0;

    for (uint32_t p = f->first; p < f->first + f->n; p++)
        sum += w->rate[p] >> 16;
    for (uint32_t i = 0; i < f->n; i++) {
        uint64_t scaled = sum > 0 ? (w->rate[f->first + i] >> 16) * BALANCE_ONE : BALANCE_ONE;
        uint64_t by = sum > 0 ? sum : f->n;

        weight[f->first + i] = (uint32_t)(scaled / by);
        rest[i] = scaled % by;
        given += scaled / by;
    }
    for (; given < BALANCE_ONE; given++) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < f->n; i++)
            best = rest[i] > rest[best] ? i : best;
        weight[f->first + best]++;
        rest[best] = 0;
    }
}

int balance_fill(const struct balance_net *net, void *memory, uint32_t *rate, uint32_t *weight, struct balance_result *result)
{
    struct balance_result found;
    struct work w;

    if (!net_is_fit(net))
        return -1;
    work_begin(net, memory, &w);
    found = parts_find(net, &w);
    rise_begin(net, &w);
    parts_rise(net, &w);
    for (uint32_t p = 0; rate != NULL && p < net->paths; p++)
        rate[p] = (uint32_t)(w.rate[p] >> FRACTION);
    for (uint32_t f = 0; weight != NULL && f < net->flows; f++)
        weights_cut(&w, &net->flow[f], weight);
    if (result != NULL)
        *result = found;
    return 0;
}

bool balance_weights_differ(const uint32_t *now, const uint32_t *next, unsigned n, unsigned percent)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t big = now[i] > next[i] ? now[i] : next[i], small = now[i] > next[i] ? next[i] : now[i];

        if (big - small > BALANCE_LITTLE && (big - small) * 100 > big * percent)
            return true;
    }
    return false;
}
