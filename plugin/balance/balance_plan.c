#include "balance_plan.h"

#include <string.h>

#define SHARES   256 /* largest share of a flow; balance_fill.h */
#define NO_GROUP UINT32_MAX
#define RES_MOST                                                                                   \
    (1 + BALANCE_PLAN_WAYS + 4) /* of a path: our port, links, the port there, a limit of its own, \
                                   what pair and NIC were seen to carry */

_Static_assert(RES_MOST <= BALANCE_PATH_RES, "resources of a path");
_Static_assert(BALANCE_PLAN_GROUPS *BALANCE_PLAN_PATHS + BALANCE_PLAN_OTHERS * BALANCE_PLAN_NICS <=
                   BALANCE_PATHS,
               "paths of a net");
_Static_assert(BALANCE_PLAN_GROUPS + BALANCE_PLAN_OTHERS <= BALANCE_FLOWS, "flows of a net");

/* Equal connections. */
struct group {
    uint64_t hash, demand, conns;
    uint32_t first; /* the connection that others are compared with */
    uint32_t flow;  /* in the net */
};

/* A NIC pair with a measured rate, in a list per NIC there. */
struct measured {
    uint32_t next; /* place + 1; 0: the last */
    uint32_t res;
    uint8_t nic;
};

/* All in the caller's memory. */
struct work {
    struct balance_path *path;
    struct balance_flow *flow;
    struct group *group;
    uint32_t *of; /* per connection: its group, or NO_GROUP */
    uint32_t
        *mbps; /* per resource: ports, then links and what single paths have, as they are met */
    uint32_t *link;   /* by link: resource + 1; 0: none yet */
    uint32_t *remote; /* by place in host[] and NIC there: resource + 1; 0: none yet */
    uint32_t *seen;   /* ... place in measured[] + 1; 0: none yet */
    struct measured *measured;
    uint32_t
        slow[BALANCE_PLAN_NICS]; /* by NIC here: resource + 1 of its measured pairs; 0: none yet */
    uint32_t *host;
    uint32_t *group_at, *host_at; /* hash tables: place in group[] and host[] + 1; 0: free */
    uint32_t *weight;             /* per path of the net */
    void *fill;
    uint32_t groups, hosts, paths, flows, resources, measures;
    uint32_t places; /* of each hash table, a power of two: more than twice as many as there can be
                        entries */
};

/* --- numbers of others --- */

static uint32_t known(uint32_t mbps)
{
    return mbps <= BALANCE_MBPS_MAX ? mbps : 0;
}

/* The smaller of two limits; 0 is none. */
static uint32_t smaller(uint32_t a, uint32_t b)
{
    a = known(a);
    b = known(b);
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* --- memory --- */

static int facts_fit(const struct balance_facts *f)
{
    return f->nics > 0 && f->nics <= BALANCE_PLAN_NICS && f->links <= BALANCE_PLAN_LINKS &&
           f->conns > 0 && f->conns <= BALANCE_PLAN_CONNS && f->others <= BALANCE_PLAN_OTHERS;
}

static uint32_t groups_most(const struct balance_facts *f)
{
    return f->conns < BALANCE_PLAN_GROUPS ? f->conns : BALANCE_PLAN_GROUPS;
}

static uint32_t paths_most(const struct balance_facts *f)
{
    return groups_most(f) * BALANCE_PLAN_PATHS + f->others * BALANCE_PLAN_NICS;
}

static uint32_t resources_most(const struct balance_facts *f)
{
    return 2 * f->nics + f->links + groups_most(f) * BALANCE_PLAN_PATHS * 3;
}

static uint32_t places_count(const struct balance_facts *f)
{
    uint32_t n = 4;

    while (n <= 2 * groups_most(f)) {
        n *= 2;
    }
    return n;
}

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += (bytes + 7) & ~(size_t)7;
    return here;
}

static size_t layout(const struct balance_facts *f, struct work *w, uint8_t *base)
{
    uint32_t paths = paths_most(f), groups = groups_most(f), resources = resources_most(f);
    size_t at = 0, path, flow, group, of, mbps, link, remote, seen, measured, host, tables, weight,
           fill;

    path = take(&at, paths * sizeof(*w->path));
    flow = take(&at, (groups + f->others) * sizeof(*w->flow));
    group = take(&at, groups * sizeof(*w->group));
    of = take(&at, f->conns * sizeof(*w->of));
    mbps = take(&at, resources * sizeof(*w->mbps));
    link = take(&at, f->links * sizeof(*w->link));
    remote = take(&at, (size_t)groups * BALANCE_PLAN_NICS * sizeof(*w->remote));
    seen = take(&at, (size_t)groups * BALANCE_PLAN_NICS * sizeof(*w->seen));
    measured = take(&at, (size_t)groups * BALANCE_PLAN_PATHS * sizeof(*w->measured));
    host = take(&at, groups * sizeof(*w->host));
    tables = take(&at, (size_t)places_count(f) * 2 * sizeof(*w->host));
    weight = take(&at, paths * sizeof(*w->weight));
    fill = take(&at, balance_fill_size_most(resources, groups + f->others, paths,
                                            (size_t)paths * RES_MOST));
    if (base) {
        *w = (struct work){.path = (void *)(base + path),
                           .flow = (void *)(base + flow),
                           .group = (void *)(base + group),
                           .of = (void *)(base + of),
                           .mbps = (void *)(base + mbps),
                           .link = (void *)(base + link),
                           .remote = (void *)(base + remote),
                           .seen = (void *)(base + seen),
                           .measured = (void *)(base + measured),
                           .host = (void *)(base + host),
                           .group_at = (void *)(base + tables),
                           .weight = (void *)(base + weight),
                           .fill = base + fill,
                           .places = places_count(f)};
        w->host_at = w->group_at + w->places;
        memset(w->group_at, 0, (size_t)w->places * 2 * sizeof(*w->group_at));
    }
    return at;
}

size_t balance_plan_size(const struct balance_facts *f)
{
    return facts_fit(f) ? layout(f, NULL, NULL) : 0;
}

/* --- equal connections --- */

static size_t key_size(const struct balance_conn *c)
{
    return offsetof(struct balance_conn, pair) + c->n * sizeof(c->pair[0]);
}

static uint64_t key_hash(const struct balance_conn *c)
{
    const uint8_t *p = (const uint8_t *)c;
    uint64_t h = 0x9e3779b97f4a7c15ull, v;

    for (size_t i = 0; i < key_size(c); i += sizeof(v)) {
        memcpy(&v, p + i, sizeof(v));
        h = (h ^ v) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    return h;
}
_Static_assert(offsetof(struct balance_conn, pair) % 8 == 0 && sizeof(struct balance_pair) % 8 == 0,
               "the key is whole words");

static uint64_t add(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

/* The group of connection @i, a new one if need be; NO_GROUP: there are too many. */
static uint32_t group_find(const struct balance_facts *f, struct work *w, uint32_t i)
{
    const struct balance_conn *c = &f->conn[i];
    uint64_t hash = key_hash(c);
    uint32_t at;

    for (at = (uint32_t)hash & (w->places - 1); w->group_at[at]; at = (at + 1) & (w->places - 1)) {
        const struct group *g = &w->group[w->group_at[at] - 1];

        if (g->hash == hash && memcmp(&f->conn[g->first], c, key_size(c)) == 0) {
            return w->group_at[at] - 1;
        }
    }
    if (w->groups == BALANCE_PLAN_GROUPS) {
        return NO_GROUP;
    }
    w->group[w->groups++] = (struct group){.hash = hash, .first = i};
    w->group_at[at] = w->groups;
    return w->groups - 1;
}

static void groups_make(const struct balance_facts *f, struct work *w)
{
    w->groups = 0;
    for (uint32_t i = 0; i < f->conns; i++) {
        const struct balance_conn *c = &f->conn[i];

        w->of[i] = c->n > 0 && c->n <= BALANCE_PLAN_PATHS ? group_find(f, w, i) : NO_GROUP;
        if (w->of[i] != NO_GROUP) {
            struct group *g = &w->group[w->of[i]];

            g->conns++;
            g->demand = add(g->demand, f->demand[i]);
        }
    }
}

/* --- the net --- */

static uint32_t fastest_of(const uint32_t *port, uint32_t nics)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < nics; i++) {
        most = known(port[i]) > most ? port[i] : most;
    }
    return most ? most : BALANCE_MBPS_UNKNOWN;
}

static uint32_t host_number(struct work *w, uint32_t host)
{
    uint32_t at;

    for (at = (uint32_t)(host * 0x9e3779b97f4a7c15ull >> 32) & (w->places - 1); w->host_at[at];
         at = (at + 1) & (w->places - 1)) {
        if (w->host[w->host_at[at] - 1] == host) {
            return w->host_at[at] - 1;
        }
    }
    w->host[w->hosts++] = host;
    w->host_at[at] = w->hosts;
    return w->hosts - 1;
}

static void res_add(struct balance_path *p, uint32_t res)
{
    for (int i = 0; i < p->n; i++) {
        if (p->res[i] == res) {
            return;
        }
    }
    p->res[p->n++] = (uint16_t)res;
}

/* The port at the other end, one for all flows to that host. Where they contradict each other the
 * first counts. */
static void remote_add(struct work *w, struct balance_path *p, uint32_t host,
                       const struct balance_pair *pair)
{
    uint32_t *at;

    if (known(pair->port_there) == 0 || pair->there >= BALANCE_PLAN_NICS) {
        return;
    }
    at = &w->remote[host * BALANCE_PLAN_NICS + pair->there];
    if (*at == 0) {
        w->mbps[w->resources++] = pair->port_there;
        *at = w->resources;
    }
    res_add(p, *at - 1);
}

/* A resource of @mbps for everybody who comes to *at; of what is said of it the largest counts. */
static uint32_t shared_get(struct work *w, uint32_t *at, uint32_t mbps)
{
    if (*at == 0) {
        w->mbps[w->resources++] = mbps;
        *at = w->resources;
    } else if (mbps > w->mbps[*at - 1]) {
        w->mbps[*at - 1] = mbps;
    }
    return *at - 1;
}

/* The measured NIC pair, one for all flows over it. */
static struct measured *measured_find(struct work *w, uint32_t host,
                                      const struct balance_pair *pair)
{
    uint32_t *head = &w->seen[host * BALANCE_PLAN_NICS + pair->there];
    struct measured *m;

    for (uint32_t i = *head; i; i = w->measured[i - 1].next) {
        if (w->measured[i - 1].nic == pair->nic) {
            return &w->measured[i - 1];
        }
    }
    m = &w->measured[w->measures++];
    *m = (struct measured){.next = *head, .nic = pair->nic};
    *head = w->measures;
    return m;
}

/* What is slow is a NIC pair, and with several of them perhaps the NIC here, whoever sends over it.
 */
static void measured_add(struct work *w, struct balance_path *p, uint32_t host,
                         const struct balance_pair *pair)
{
    if (known(pair->mbps_measured) == 0 || pair->there >= BALANCE_PLAN_NICS ||
        pair->nic >= BALANCE_PLAN_NICS) {
        return;
    }
    res_add(p, shared_get(w, &measured_find(w, host, pair)->res, pair->mbps_measured));
    if (known(pair->nic_measured)) {
        res_add(p, shared_get(w, &w->slow[pair->nic], pair->nic_measured));
    }
}

static void pair_add(const struct balance_facts *f, struct work *w, uint32_t host,
                     const struct balance_pair *pair)
{
    struct balance_path *p = &w->path[w->paths++];

    p->n = 0;
    res_add(p, pair->nic < f->nics ? pair->nic : 0);
    for (int i = 0; i < pair->ways && i < BALANCE_PLAN_WAYS; i++) {
        uint32_t *at = pair->way[i] < f->links ? &w->link[pair->way[i]] : NULL;

        if (at && known(f->link[pair->way[i]])) {
            if (*at == 0) {
                w->mbps[w->resources++] = f->link[pair->way[i]];
                *at = w->resources;
            }
            res_add(p, *at - 1);
        }
    }
    remote_add(w, p, host, pair);
    measured_add(w, p, host, pair);
    if (known(pair->reach_there)) {
        w->mbps[w->resources] = pair->reach_there;
        res_add(p, w->resources++);
    }
}

static void flow_end(struct work *w, uint32_t first)
{
    w->flow[w->flows].first = first;
    w->flow[w->flows].n = (uint16_t)(w->paths - first);
    w->flows++;
}

/* 1 to SHARES: @demand against the largest. */
static uint16_t share_of(uint64_t demand, uint64_t most)
{
    uint64_t unit = most / SHARES;
    uint64_t s = most < SHARES ? demand * SHARES / most : demand / unit;

    return (uint16_t)(s < 1 ? 1 : s > SHARES ? SHARES : s);
}

/* What of a flow that others send can be placed here. */
static uint32_t nics_of(const struct balance_facts *f, const struct balance_other *o)
{
    return o->conns ? o->nics & (f->nics < 32 ? (1u << f->nics) - 1 : UINT32_MAX) : 0;
}

static void shares_set(const struct balance_facts *f, struct work *w)
{
    uint64_t demand = 0, conns = 0, most;
    uint32_t n = 0;

    for (uint32_t g = 0; g < w->groups; g++) {
        demand = w->group[g].demand > demand ? w->group[g].demand : demand;
        conns = w->group[g].conns > conns ? w->group[g].conns : conns;
    }
    for (uint32_t i = 0; i < f->others; i++) {
        if (nics_of(f, &f->other[i])) {
            demand = f->other[i].demand > demand ? f->other[i].demand : demand;
            conns = f->other[i].conns > conns ? f->other[i].conns : conns;
        }
    }
    most = demand ? demand : conns;
    for (uint32_t g = 0; g < w->groups; g++) {
        w->flow[n++].share = share_of(demand ? w->group[g].demand : w->group[g].conns, most);
    }
    for (uint32_t i = 0; i < f->others; i++) {
        if (nics_of(f, &f->other[i])) {
            w->flow[n++].share = share_of(demand ? f->other[i].demand : f->other[i].conns, most);
        }
    }
}

static void net_make(const struct balance_facts *f, struct work *w)
{
    uint32_t fastest = fastest_of(f->port, f->nics);

    w->resources = w->paths = w->flows = w->hosts = w->measures = 0;
    for (uint32_t i = 0; i < f->nics; i++) {
        w->mbps[w->resources++] = known(f->port[i]) ? f->port[i] : fastest;
    }
    memset(w->link, 0, f->links * sizeof(*w->link));
    memset(w->remote, 0, (size_t)w->groups * BALANCE_PLAN_NICS * sizeof(*w->remote));
    memset(w->seen, 0, (size_t)w->groups * BALANCE_PLAN_NICS * sizeof(*w->seen));
    memset(w->slow, 0, sizeof(w->slow));
    for (uint32_t g = 0; g < w->groups; g++) {
        const struct balance_conn *c = &f->conn[w->group[g].first];
        uint32_t first = w->paths, host = host_number(w, c->host);

        w->group[g].flow = w->flows;
        for (uint32_t i = 0; i < c->n; i++) {
            pair_add(f, w, host, &c->pair[i]);
        }
        flow_end(w, first);
    }
    for (uint32_t i = 0; i < f->others; i++) {
        uint32_t first = w->paths, nics = nics_of(f, &f->other[i]);

        for (uint32_t m = nics; m; m &= m - 1) {
            w->path[w->paths++] =
                (struct balance_path){.n = 1, .res = {(uint16_t)__builtin_ctz(m)}};
        }
        if (nics) {
            flow_end(w, first);
        }
    }
    shares_set(f, w);
}

/* --- weights --- */

/* In proportion to @rate; equal where all are 0. Largest remainders go to the first. */
static void weights_stripe(const uint32_t *rate, uint32_t n, uint32_t *weight)
{
    uint64_t sum = 0;
    uint32_t given = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += rate[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        weight[i] = (uint32_t)(sum ? rate[i] * (uint64_t)BALANCE_ONE / sum : BALANCE_ONE / n);
        given += weight[i];
    }
    for (uint32_t i = 0; given < BALANCE_ONE; i = (i + 1) % n) {
        if (weight[i]) {
            weight[i]++;
            given++;
        }
    }
}

void balance_plan_own(const struct balance_facts *f, const struct balance_conn *c,
                      uint32_t weight[BALANCE_PLAN_PATHS])
{
    uint32_t rate[BALANCE_PLAN_PATHS], n = c->n <= BALANCE_PLAN_PATHS ? c->n : 0,
                                       fastest = fastest_of(f->port, f->nics);

    memset(weight, 0, BALANCE_PLAN_PATHS * sizeof(*weight));
    for (uint32_t i = 0; i < n; i++) {
        const struct balance_pair *p = &c->pair[i];
        uint32_t least = p->nic < f->nics && known(f->port[p->nic]) ? f->port[p->nic] : fastest;

        for (int k = 0; k < p->ways && k < BALANCE_PLAN_WAYS; k++) {
            least = p->way[k] < f->links ? smaller(least, f->link[p->way[k]]) : least;
        }
        least = smaller(least, p->port_there);
        least = smaller(least, p->reach_there);
        least = smaller(least, p->nic_measured);
        rate[i] = smaller(least, p->mbps_measured);
    }
    if (n) {
        weights_stripe(rate, n, weight);
    }
}

/*
 * What is slow is judged by what it carries: without work nobody would see it recover. It keeps a
 * little, but no more than its share by the limits of this connection alone, which holds nobody up;
 * taken from the largest.
 */
static void measured_keep(const struct balance_facts *f, const struct balance_conn *c,
                          uint32_t *weight)
{
    uint32_t own[BALANCE_PLAN_PATHS], n = c->n <= BALANCE_PLAN_PATHS ? c->n : 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t most = 0, keep;

        if (!known(c->pair[i].mbps_measured) || weight[i] >= BALANCE_PLAN_KEEP) {
            continue;
        }
        balance_plan_own(f, c, own);
        keep = own[i] < BALANCE_PLAN_KEEP ? own[i] : BALANCE_PLAN_KEEP;
        for (uint32_t k = 1; k < n; k++) {
            most = weight[k] > weight[most] ? k : most;
        }
        if (keep > weight[i]) {
            weight[most] -= keep - weight[i];
            weight[i] = keep;
        }
    }
}

int balance_plan(const struct balance_facts *f, void *memory,
                 uint32_t (*weight)[BALANCE_PLAN_PATHS])
{
    struct balance_net net;
    struct work w;
    int divided = 0;

    if (!facts_fit(f)) {
        return -1;
    }
    layout(f, &w, memory);
    groups_make(f, &w);
    if (w.groups) {
        net_make(f, &w);
        net = (struct balance_net){w.mbps, w.path, w.flow, w.resources, w.paths, w.flows};
        divided = balance_fill(&net, w.fill, NULL, w.weight, NULL) == 0;
    }
    for (uint32_t i = 0; i < f->conns; i++) {
        const struct balance_conn *c = &f->conn[i];

        if (!divided || w.of[i] == NO_GROUP) {
            balance_plan_own(f, c, weight[i]);
        } else {
            memset(weight[i], 0, sizeof(weight[i]));
            memcpy(weight[i], &w.weight[w.flow[w.group[w.of[i]].flow].first],
                   c->n * sizeof(weight[i][0]));
        }
        measured_keep(f, c, weight[i]);
    }
    return 0;
}
