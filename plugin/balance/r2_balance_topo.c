/* What a topology says of the ways between the memory that a NIC's connections serve and each NIC.
 */
#include <stdbool.h>
#include <string.h>

#include "r2_balance.h"
#include "r2_balance_int.h"
#include "topo/topo_path.h"
#include "topo/topo_rank.h"
#include "topo/topo_route.h"

static bool is_same(const struct topo_nic *there, const struct ib_nic *nic)
{
    return there->port == nic->port && strcmp(there->name, nic->dev_name) == 0;
}

int r2_ways_place(const struct topo *t, const struct ib_nic *nic)
{
    for (int i = 0; i < t->nics; i++) {
        if (is_same(&t->nic[i], nic)) {
            return i;
        }
    }
    return -1;
}

void r2_ways_topo(struct topo *ours, const struct topo *t, const struct ib_nics *nics)
{
    if (t == NULL) {
        topo_clear(ours);
        return;
    }
    *ours = *t;
    ours->nics = 0;
    for (int i = 0; i < t->nics;
         i++) { /* in the order of before, which is that of their stable keys */
        int k = 0;

        while (k < nics->count && !is_same(&t->nic[i], &nics->nic[k])) {
            k++;
        }
        if (k < nics->count) {
            ours->nic[ours->nics++] = t->nic[i];
        }
    }
}

static bool is_better(const struct topo_choice *a, const struct topo_choice *b)
{
    return a->mbps != b->mbps ? a->mbps > b->mbps : a->class < b->class;
}

/*
 * Nobody tells a network plugin which GPU a connection serves: it is one to which no NIC is better,
 * as NCCL chooses; else the NIC's NUMA node. Of several such GPUs the one that reaches the NIC
 * best: a GPU without a NIC beside it has all far ones for its best.
 */
static int origin_find(const struct topo *t, int nic, struct topo_end *end)
{
    struct topo_choice choice[TOPO_NICS_MAX], best = {.nic = -1};

    for (int g = 0; g < t->gpus; g++) {
        struct topo_end from = {TOPO_END_GPU, g};
        int n = topo_rank(t, from, -1, choice);

        for (int i = 0; i < n && !is_better(&choice[0], &choice[i]); i++) {
            if (choice[i].nic == nic && (best.nic < 0 || is_better(&choice[i], &best))) {
                best = choice[i];
                *end = from;
            }
        }
    }
    if (best.nic >= 0) {
        return 0;
    }
    if (t->nic[nic].pci < 0 || t->pci[t->nic[nic].pci].numa < 0) {
        return -1;
    }
    *end = (struct topo_end){TOPO_END_NUMA, t->pci[t->nic[nic].pci].numa};
    return 0;
}

static void link_add(struct r2_ways *w, struct r2_way *way, uint32_t mbps, uint16_t *number)
{
    if (way->n == BALANCE_PLAN_WAYS || (*number == 0 && w->links == BALANCE_PLAN_LINKS)) {
        return;
    }
    if (*number == 0) {
        w->link[w->links++] = mbps;
        *number = (uint16_t)w->links;
    }
    way->link[way->n++] = (uint16_t)(*number - 1);
}

/* Links of which nothing is known are left out; @number: of each way of the topology + 1, 0 none
 * yet. */
static void links_add(struct r2_ways *w, const struct topo *t, const uint16_t *link, int n,
                      struct r2_way *way, uint16_t *number)
{
    for (int i = 0; i < n; i++) {
        uint32_t mbps = topo_link_capacity(t, link[i] / 2);

        if (mbps) {
            link_add(w, way, mbps, &number[link[i]]);
        }
    }
}

static void way_make(struct r2_ways *w, const struct topo *t, struct topo_end from, int nic,
                     uint32_t port, struct r2_way *way, uint16_t *number)
{
    uint16_t own = 0;
    struct topo_path path;

    if (topo_path_find(t, from, nic, &path) != 0 || path.class == TOPO_NONE) {
        return;
    }
    way->reach = path.mbps;
    if (from.kind == TOPO_END_GPU && path.class >= TOPO_PHB && port) {
        uint32_t most = (uint32_t)((uint64_t)port * BALANCE_BRIDGE_PERCENT / 100);

        way->reach = way->reach && way->reach < most ? way->reach : most;
        link_add(w, way, most, &own);
    }
    links_add(w, t, path.way, path.n, way, number);
}

/*
 * What a GPU sends by way of another one crosses the NVLinks of both, and PCI below one switch. By
 * way of the host it crosses what it would cross anyway, written to memory and read from there: the
 * limit between a GPU and a NIC that talk to each other through a host bridge is none for that.
 */
static void bounced_make(struct r2_ways *w, const struct topo *t, const struct topo_load *idle,
                         int gpu, int nic, int relay, struct r2_way *way, uint16_t *number)
{
    struct topo_route route;

    topo_route_choose(t, idle, gpu, nic, topo_nic_mbps(t, nic), relay == R2_VIA_GPU, &route);
    if (route.kind == TOPO_ROUTE_NONE) {
        return;
    }
    way->reach = route.mbps == UINT32_MAX ? 0 : route.mbps;
    links_add(w, t, route.way, route.n - 1, way,
              number); /* the last one is the port, which is told apart */
}

/* Equal ones get equal numbers, or all connections would have the same first backup. */
static void preferences_make(const struct topo *t, struct topo_end from, const int *place, int nics,
                             struct r2_way *way)
{
    struct topo_choice choice[TOPO_NICS_MAX];
    int n = topo_rank(t, from, -1, choice);
    uint8_t worth = 1;

    for (int i = n - 1; i >= 0; i--) {
        if (i < n - 1 && is_better(&choice[i], &choice[i + 1])) {
            worth += worth < R2_PREFERENCE_MOST;
        }
        for (int k = 0; k < nics; k++) {
            if (place[k] == choice[i].nic) {
                way[k].preference = worth;
            }
        }
    }
}

/* All ways of the connections of NIC @i; @place: of each NIC in @t. */
static void ways_from(struct r2_ways *w, const struct topo *t, int relay, const int *place, int i,
                      uint16_t *number)
{
    struct topo_load idle;
    struct topo_end from;

    if (place[i] < 0 || origin_find(t, place[i], &from) != 0) {
        return;
    }
    topo_load_begin(t, &idle);
    preferences_make(t, from, place, (int)w->nics, w->way[i]);
    for (uint32_t k = 0; k < w->nics; k++) {
        if (place[k] < 0) {
            continue;
        }
        way_make(w, t, from, place[k], w->port[k], &w->way[i][k], number);
        if (w->bounced == NULL) {
            continue;
        }
        w->bounced[i][k] = w->way[i][k];
        if (from.kind == TOPO_END_GPU) {
            w->bounced[i][k].n = 0;
            bounced_make(w, t, &idle, from.index, place[k], relay, &w->bounced[i][k], number);
        }
    }
}

void r2_ways_make(struct r2_ways *w, const struct ib_nics *nics, const struct topo *t, int relay,
                  struct r2_way (*bounced)[IB_MAX_NICS])
{
    static const struct r2_way unknown = {.preference = 1};
    uint16_t number[TOPO_WAYS] = {0};
    int place[IB_MAX_NICS];
    struct topo ours;

    memset(w, 0, sizeof(*w));
    w->nics = (uint32_t)nics->count;
    w->bounced = bounced;
    r2_ways_topo(&ours, t, nics);
    for (int i = 0; i < nics->count; i++) {
        uint32_t verbs = nics->nic[i].speed_mbps > 0 ? (uint32_t)nics->nic[i].speed_mbps : 0;

        place[i] = r2_ways_place(&ours, &nics->nic[i]);
        w->port[i] = place[i] >= 0 ? topo_nic_mbps(&ours, place[i]) : 0;
        w->port[i] =
            w->port[i] ? w->port[i] : verbs; /* sysfs tells it whole, verbs by lanes and a list of
                                                speeds; of a port that is down both guess alike */
    }
    for (int i = 0; i < nics->count; i++) {
        for (int k = 0; k < nics->count; k++) {
            w->way[i][k] = unknown;
            if (bounced) {
                bounced[i][k] = unknown;
            }
        }
        ways_from(w, &ours, relay, place, i, number);
    }
}
