#include "balance_fill.h"

#include <string.h>

#define ROUNDS   96
#define CLOSE    0.98       /* of the bound: below what rates can be measured to */
#define FRACTION 24         /* bits below one Mb/s; 23 + 24 bits leave room for sums */
#define SHARPEST 64         /* exponent of the prices in the end; see prices_set() */
#define FADE     0.75       /* of the mean of prices, per round */
#define PROOF    4          /* rounds from one bound by the mean to the next */
#define MORE     (1 + 1e-9) /* is an improvement: the last bits of sums are not */
#define SPARE    (1.0 / 16) /* of the highest load: what cannot get there decides nothing */
#define NOTHING                                                                                    \
    1e-300         /* the least that a path costs: adds nothing to a price, and can be divided by */
#define DEAR 1e300 /* a path that cannot be taken */

/* All in the caller's memory. */
struct work {
    double *per_mbps; /* per resource: 1 / capacity; 0: nothing left */
    double *load;  /* per resource: part of its capacity that is asked for when each flow gets 1 per
                      share; and of NONE and DEAD */
    double *price; /* likewise */
    double *mean;  /* likewise: prices of all rounds, the latest count most */
    double *part,
        *best;    /* per path: of its flow; the parts of a flow add up to its share, or are all 0 */
    double *cost; /* per path */
    double *least; /* per flow: the cost of its cheapest path */
    double *scale; /* per flow: what brings the sum of its parts back to its share */
    double *carry; /* per stem: the parts that go by it; 0 but while loads are summed up */
    double *toll;  /* per stem: what its resources cost */
    uint64_t *left, *sum, *begin; /* per resource, for the last step */
    uint64_t *rate, *theta;       /* per path, likewise */
    uint32_t *user;               /* paths by resource */
    uint32_t *at;                 /* per path, + 1: where its resources begin in res[] */
    uint32_t *up;                 /* per stem: the one that is shorter by one resource */
    uint32_t *slot;               /* stems by what they consist of; 0: free */
    uint32_t *stem;               /* per path */
    uint16_t *res;                /* of all paths, packed */
    uint16_t *tip;                /* per stem: the last of its resources */
    uint16_t *last;               /* per path: its last resource */
    uint16_t *live;               /* resources that count in the search */
    uint32_t stems, slots, lives;
};

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

/* There are no more stems than resources of paths but for the last ones, and the one of none. */
static size_t stems_most(size_t paths, size_t entries)
{
    return entries - paths + 1;
}

/* A power of two; at most half of them are used. */
static uint32_t slots_count(size_t stems)
{
    uint32_t n = 2;

    while (n < 2 * stems) {
        n *= 2;
    }
    return n;
}

/*
 * Resources that are none: one with a path that cannot be taken, and those of paths whose last one
 * does not count. Of these there are some, since a sum waits for the one before it.
 */
#define DEAD(net)    (net)->resources
#define NONE(net, p) ((net)->resources + 1 + (p) % NONES)
#define NONES        8
#define EXTRA        (1 + NONES)

size_t balance_fill_size_most(size_t r, size_t f, size_t p, size_t e)
{
    size_t s = stems_most(p, e);

    return (4 * r + 3 * EXTRA + 3 * p + 2 * f + 2 * s) * sizeof(double) +
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

static void work_begin(const struct balance_net *net, void *memory, struct work *w)
{
    size_t r = net->resources, p = net->paths, e = entries_count(net), s = stems_most(p, e);
    double *d = memory;
    uint64_t *u;
    uint32_t n = 0;

    memset(memory, 0, size_get(net));
    w->slots = slots_count(s);
    w->per_mbps = d, w->load = d + r, w->price = w->load + r + EXTRA;
    w->mean = w->price + r + EXTRA;
    w->part = w->mean + r + EXTRA, w->best = w->part + p;
    w->cost = w->best + p, w->least = w->cost + p, w->scale = w->least + net->flows;
    w->carry = w->scale + net->flows, w->toll = w->carry + s;
    u = (uint64_t *)(void *)(w->toll + s);
    w->left = u, w->sum = u + r, w->begin = u + 2 * r;
    w->rate = w->begin + r + 1, w->theta = w->rate + p;
    w->at = (uint32_t *)(void *)(w->theta + p);
    w->user = w->at + p + 1;
    w->up = w->user + e, w->slot = w->up + s, w->stem = w->slot + w->slots;
    w->res = (uint16_t *)(void *)(w->stem + p);
    w->tip = w->res + e, w->last = w->tip + s, w->live = w->last + p;
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

/* --- what the search looks at --- */

/* Stem @up and one more resource. */
static uint32_t stem_get(struct work *w, uint32_t up, uint16_t res)
{
    uint32_t i = (uint32_t)((((uint64_t)up << 16 | res) * 0x9e3779b97f4a7c15ull) >> 32);

    for (;; i++) {
        uint32_t s = w->slot[i & (w->slots - 1)];

        if (s == 0) {
            break;
        }
        if (w->up[s] == up && w->tip[s] == res) {
            return s;
        }
    }
    w->slot[i & (w->slots - 1)] = w->stems;
    w->up[w->stems] = up;
    w->tip[w->stems] = res;
    return w->stems++;
}

static bool path_is_dead(const struct work *w, uint32_t p)
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
 * differ. What a path has before its last resource is its stem, and paths with the same one share
 * it; a stem is a shorter one, which comes before it, and one more resource. What is summed up over
 * the resources of paths is summed up once per stem. Stem 0 is the one of no resources.
 */
static void stems_make(const struct balance_net *net, struct work *w)
{
    w->stems = 1;
    w->lives = 0;
    w->toll[0] = NOTHING;
    w->price[DEAD(net)] = w->mean[DEAD(net)] = DEAR;
    for (uint32_t p = 0; p < net->paths; p++) {
        uint32_t last = w->at[p + 1] - 1;

        if (path_is_dead(w, p)) {
            w->last[p] = (uint16_t)DEAD(net);
            continue;
        }
        for (uint32_t i = w->at[p]; i < last; i++) {
            w->stem[p] = stem_get(w, w->stem[p], w->res[i]);
        }
        w->last[p] = w->res[last];
    }
    for (uint32_t r = 0; r < net->resources; r++) {
        if (net->mbps[r]) {
            w->live[w->lives++] = (uint16_t)r;
        }
    }
}

/* What @part of path @p asks for, from its last resource and its stem; loads_get() does the rest.
 */
static inline void part_lay(struct work *w, uint32_t p, double part)
{
    w->load[w->last[p]] += part;
    w->carry[w->stem[p]] += part;
}

/* Loads of the parts that have been laid; returns the highest, 0 when there is none. */
static double loads_get(struct work *w)
{
    double most = 0;

    for (uint32_t s = w->stems - 1; s > 0; s--) {
        w->load[w->tip[s]] += w->carry[s];
        w->carry[w->up[s]] += w->carry[s];
        w->carry[s] = 0;
    }
    for (uint32_t i = 0; i < w->lives; i++) {
        double load = w->load[w->live[i]] * w->per_mbps[w->live[i]];

        w->load[w->live[i]] = load;
        most = load > most ? load : most;
    }
    return most;
}

static void loads_clear(const struct balance_net *net, struct work *w)
{
    memset(w->load, 0, (net->resources + EXTRA) * sizeof(w->load[0]));
    memset(w->carry, 0, w->stems * sizeof(w->carry[0]));
}

/*
 * A resource that would stay far below the highest load if all who can use it sent all that they
 * have over it decides nothing, and the search goes on without it: remote ports, where flows go to
 * many hosts. No division has a highest load below 1 / @bound. Lays the parts again.
 */
static void spare_leave_out(const struct balance_net *net, struct work *w, double bound)
{
    uint32_t lives = 0;

    loads_clear(net, w);
    for (uint32_t f = 0; f < net->flows; f++) {
        for (uint32_t p = net->flow[f].first; p < net->flow[f].first + net->flow[f].n; p++) {
            part_lay(w, p, net->flow[f].share);
        }
    }
    loads_get(w);
    for (uint32_t i = 0; i < w->lives; i++) {
        uint32_t r = w->live[i];

        w->left[r] = w->load[r] * bound < SPARE; /* a flag, until the last step */
        if (!w->left[r]) {
            w->live[lives++] = (uint16_t)r;
        }
    }
    w->lives = lives;
    for (uint32_t s = 1; s < w->stems; s++) {
        w->tip[s] = w->left[w->tip[s]] ? (uint16_t)NONE(net, s) : w->tip[s];
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
static void parts_begin(const struct balance_net *net, struct work *w)
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
 * The price of a resource rises with the @sharp-th power of its load, so the sum of all load^(sharp
 * + 1) is what the parts go downhill on: the larger the power, the more the highest load alone
 * counts. Returns what all capacity costs. Loads are 0 afterwards, for the next parts.
 */
static double prices_set(struct work *w, double most, int sharp)
{
    double all = 0;

    for (uint32_t i = 0; i < w->lives; i++) {
        uint32_t r = w->live[i];
        double price = w->load[r] / most;

        for (int k = 1; k < sharp; k *= 2) {
            price *= price;
        }
        all += price;
        w->price[r] = price * w->per_mbps[r];
        w->mean[r] = w->mean[r] * FADE + w->price[r];
        w->load[r] = 0;
    }
    return all;
}

/* What all flows pay at least when each sends 1 per share, at these prices. Into cost[] of each
 * path, and least[] of each flow. */
static double costs_set(const struct balance_net *net, struct work *w, const double *price)
{
    double *toll = w->toll, *cost = w->cost, pay = 0;
    const uint32_t *stem = w->stem;
    const uint16_t *last = w->last;

    for (uint32_t s = 1; s < w->stems; s++) {
        toll[s] = toll[w->up[s]] + price[w->tip[s]];
    }
    for (uint32_t f = 0; f < net->flows; f++) {
        size_t from = net->flow[f].first, to = from + net->flow[f].n;
        double least = DEAR;

        for (size_t p = from; p < to; p++) {
            double c = toll[stem[p]] + price[last[p]];

            cost[p] = c;
            least = c < least ? c : least;
        }
        w->least[f] = least;
        pay += least < DEAR ? least * net->flow[f].share : 0;
    }
    return pay;
}

/* A path that costs more than its flow's cheapest gives some of its part away. Flow by flow in each
 * pass: their sums do not wait for each other. */
static void parts_move(const struct balance_net *net, struct work *w, int sharp)
{
    double *part = w->part, *load = w->load, *carry = w->carry, keep = sharp / 2.0 - 1;
    const double *cost = w->cost;
    const uint32_t *stem = w->stem;
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
            carry[stem[p]] += x;
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
 * Into best[]: parts at which the highest load is as low as it gets. Prices swing from round to
 * round, their mean much less: it proves sooner that no other parts are better.
 */
static struct balance_result parts_find(const struct balance_net *net, struct work *w)
{
    struct balance_result x = {0, 0};
    int sharp = 4, since = 0;
    double mean = 0;

    stems_make(net, w);
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
        all = prices_set(w, most, sharp);
        mean = mean * FADE + all;
        if (round % PROOF == PROOF - 1) {
            bound_lower(&x, mean, costs_set(net, w, w->mean));
        }
        bound_lower(&x, all, costs_set(net, w, w->price));
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

/* --- the last step: everybody rises until something is full --- */

static void rise_begin(const struct balance_net *net, struct work *w)
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
static void path_stop(struct work *w, uint32_t p, uint64_t level)
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
static void parts_rise(const struct balance_net *net, struct work *w)
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
static void weights_stripe(const struct work *w, const struct balance_flow *f, uint32_t *weight)
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
    struct work w;

    if (!net_is_fit(net)) {
        return -1;
    }
    work_begin(net, memory, &w);
    found = parts_find(net, &w);
    rise_begin(net, &w);
    parts_rise(net, &w);
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
