#include "r2_balance.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/health/r2_watch.h"
#include "r2_balance_int.h"

#define PERCENT 10 /* a weight that changes by less is not worth a new plan */
#define PAUSE                                                                                      \
    5000000u /* ns between two divisions, at least: a port takes its connections down one after    \
                the other */
#define DUTY                                                                                       \
    9 /* and so many times what the last one took: whatever rings, failures and traffic come first \
       */

#define HEARS 4 /* looks */

int r2_balance_open(struct r2_inst *inst, const struct topo *t)
{
    int relay = inst->cfg.relay != R2_VIA_NONE;
    struct r2_balance *b = calloc(1, sizeof(*b));
    struct r2_way(*bounced)[IB_MAX_NICS] = relay ? calloc(IB_MAX_NICS, sizeof(*bounced)) : NULL;

    if (b == NULL || (relay && bounced == NULL)) {
        free(b);
        free(bounced);
        return -1;
    }
    r2_ways_make(&b->ways, &inst->nics, t, inst->cfg.relay, bounced);
    inst->balance = b;
    return 0;
}

static void tables_free(struct r2_balance *b)
{
    free(b->comm);
    free(b->conn);
    free(b->demand);
    free(b->weight);
    free(b->work);
    b->comm = NULL;
    b->conn = NULL;
    b->demand = NULL;
    b->weight = NULL;
    b->work = NULL;
    b->room = 0;
    b->work_size = 0;
}

void r2_balance_close(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;

    if (b == NULL) {
        return;
    }
    tables_free(b);
    free(b->ways.bounced);
    free(b);
    inst->balance = NULL;
}

uint8_t r2_balance_preference(const struct r2_inst *inst, int dev, int nic)
{
    return inst->balance->ways.way[dev][nic].preference;
}

/* --- facts of one connection --- */

/* From what @c serves to the NIC of path @p. */
static const struct r2_way *way_of(const struct r2_comm *c, int p)
{
    const struct r2_ways *w = &c->inst->balance->ways;
    int nic = c->conn.path[p].nic;

    return c->flow->bounced >> p & 1 ? &w->bounced[c->dev][nic] : &w->way[c->dev][nic];
}

/* The NIC pairs of @paths, by their first path each, which go to @first. */
static void conn_make(const struct r2_comm *c, uint32_t paths, struct balance_conn *out,
                      uint8_t first[IB_MAX_PATHS])
{
    memset(out, 0, sizeof(*out));
    out->host = r2_room_host(c);
    for (uint32_t m = paths; m; m &= ~ib_conn_pair(&c->conn, __builtin_ctz(m))) {
        int p = __builtin_ctz(m);
        const struct r2_way *way = way_of(c, p);
        struct balance_pair *pair = &out->pair[out->n];

        pair->nic = c->conn.path[p].nic;
        pair->there = c->conn.path[p].peer_nic;
        pair->ways = way->n;
        memcpy(pair->way, way->link, sizeof(pair->way));
        pair->port_there = c->flow->port_there[p];
        pair->reach_there = c->flow->reach_there[p];
        pair->mbps_measured = c->flow->measured[p];
        pair->nic_measured = c->flow->nic_measured[p];
        first[out->n++] = (uint8_t)p;
    }
}

static void facts_begin(const struct r2_balance *b, struct balance_facts *f)
{
    memset(f, 0, sizeof(*f));
    f->nics = b->ways.nics;
    memcpy(f->port, b->ways.port, sizeof(f->port));
    f->links = b->ways.links;
    f->link = b->ways.link;
    f->conn = b->conn;
    f->demand = b->demand;
    f->others = b->others;
    f->other = b->other;
}
_Static_assert(IB_MAX_PATHS == BALANCE_PLAN_PATHS && IB_MAX_NICS == BALANCE_PLAN_NICS,
               "the same numbers");

/* Gate held. */
static void weights_set(struct r2_comm *c, const struct balance_conn *conn, const uint8_t *first,
                        const uint32_t *weight)
{
    for (uint32_t i = 0; i < conn->n; i++) {
        for (uint32_t m = ib_conn_pair(&c->conn, first[i]); m; m &= m - 1) {
            c->conn.weight[__builtin_ctz(m)] = weight[i];
        }
    }
}

void r2_balance_begin(struct r2_comm *c)
{
    uint32_t weight[BALANCE_PLAN_PATHS];
    uint8_t first[IB_MAX_PATHS];
    struct balance_conn conn;
    struct balance_facts f;

    facts_begin(c->inst->balance, &f);
    conn_make(c, (1u << c->conn.npaths) - 1, &conn, first);
    balance_plan_own(&f, &conn, weight);
    weights_set(c, &conn, first, weight);
}

void r2_balance_comm(struct r2_comm *c)
{
    struct r2_balance *b = c->inst->balance;
    uint32_t bounced = IB_RLX_GET(c->conn.relay.paths);
    bool is_open = atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE &&
                   atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN &&
                   c->fo.error == R2_OK;

    r2_room_comm(c, is_open);
    if (!c->is_send) {
        return;
    }
    r2_flow_plan(c, is_open ? ib_send_plan_paths(&c->conn) : 0);
    if (bounced != c->flow->bounced) {
        c->flow->bounced = bounced;
        b->due = 1;
    }
}

void r2_balance_comm_gone(struct r2_comm *c)
{
    r2_flow_gone(c);
    r2_room_comm(c, false);
    if (r2_comm_first(c->inst) == NULL) {
        r2_room_gone(c->inst);
        tables_free(c->inst->balance); /* a process may live long after its last connection */
    }
}

/* --- the other end --- */

void r2_balance_send(struct r2_comm *c)
{
    const struct r2_ways *w = &c->inst->balance->ways;
    union fo_body b;

    memset(&b.rates, 0, sizeof(b.rates));
    b.rates.dst = c->fo.peer;
    b.rates.src = c->id;
    b.rates.npaths = (uint8_t)c->conn.npaths;
    for (int p = 0; p < c->conn.npaths; p++) {
        b.rates.port[p] = r2_room_left(c, p);
        b.rates.reach[p] = w->way[c->dev][c->conn.path[p].nic].reach;
    }
    r2_peer_emit(c->inst, c->peer, FO_MSG_RATES, &b);
}

void r2_balance_on_rates(struct r2_comm *c, const struct fo_rates *m)
{
    if (!c->is_send || m->npaths != c->conn.npaths) {
        return;
    }
    for (int p = 0; p < m->npaths; p++) {
        uint32_t port = m->port[p] <= BALANCE_MBPS_MAX ? m->port[p] : 0;

        c->inst->balance->due |=
            c->flow->port_there[p] != port || c->flow->reach_there[p] != m->reach[p];
        c->flow->port_there[p] = port;
        c->flow->reach_there[p] = m->reach[p];
        if (c->flow->port_first[p] < port) {
            c->flow->port_first[p] = port;
        }
    }
    c->inst->balance->making.told |= r2_room_is_told(c, 0);
}

void r2_balance_measured(struct r2_comm *c, int p, uint32_t mbps, uint32_t nic_mbps)
{
    if (p >= 0 && p < c->conn.npaths &&
        (c->flow->measured[p] != mbps || c->flow->nic_measured[p] != nic_mbps)) {
        for (uint32_t m = ib_conn_pair(&c->conn, p); m; m &= m - 1) {
            c->flow->measured[__builtin_ctz(m)] = mbps;
            c->flow->nic_measured[__builtin_ctz(m)] = nic_mbps;
        }
        c->inst->balance->due = 1;
    }
}

uint32_t r2_balance_port(const struct r2_inst *inst, int nic)
{
    return inst->balance->ways.port[nic];
}

uint32_t r2_balance_limit(const struct r2_comm *c, int p)
{
    const struct r2_ways *w = &c->inst->balance->ways;
    int nic = c->conn.path[p].nic;
    const uint32_t limit[] = {w->port[nic], way_of(c, p)->reach, c->flow->port_first[p],
                              c->flow->reach_there[p]};
    uint32_t least = 0;

    for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++) {
        least = limit[i] && (least == 0 || limit[i] < least) ? limit[i] : least;
    }
    return least;
}

static void wide_follow(struct r2_comm *c)
{
    uint32_t wide = c->flow->is_slow ? UINT32_MAX : c->flow->room;

    if (c->conn.wide == wide) { /* nobody else writes it */
        return;
    }
    r2_comm_visit(c);
    c->conn.wide = wide;
    ib_send_replan(c->tx);
    r2_comm_unvisit(c);
    r2_comm_kick(c); /* r2_balance_comm() finds the new plan */
}

void r2_balance_wide(struct r2_comm *c, int on)
{
    if (c->is_send &&
        atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
        c->flow->is_slow = on != 0;
        wide_follow(c);
    }
}

void r2_balance_make_room(struct r2_comm *c, uint32_t room)
{
    c->flow->room = room;
    wide_follow(c);
}

/* --- dividing --- */

static int room_make(struct r2_balance *b, uint32_t n)
{
    uint32_t room = b->room ? b->room : 64;
    void *comm, *conn, *demand, *weight;

    if (n <= b->room) {
        return 0;
    }
    while (room < n) {
        room *= 2;
    }
    if ((comm = realloc(b->comm, room * sizeof(*b->comm))) != NULL) {
        b->comm = comm;
    }
    if ((conn = realloc(b->conn, room * sizeof(*b->conn))) != NULL) {
        b->conn = conn;
    }
    if ((demand = realloc(b->demand, room * sizeof(*b->demand))) != NULL) {
        b->demand = demand;
    }
    if ((weight = realloc(b->weight, room * sizeof(*b->weight))) != NULL) {
        b->weight = weight;
    }
    if (!comm || !conn || !demand || !weight) {
        return -1;
    }
    b->room = room;
    return 0;
}

static int work_make(struct r2_balance *b, size_t size)
{
    void *work;

    if (size <= b->work_size) {
        return 0;
    }
    work = malloc(size + size / 4);
    if (work == NULL) {
        return -1;
    }
    free(b->work);
    b->work = work;
    b->work_size = size + size / 4;
    return 0;
}

/* Connections that send, into the tables; how many. -1: out of memory, or too many. */
static int conns_list(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    uint32_t n = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        n += c->flow->plan != 0;
    }
    if (n > BALANCE_PLAN_CONNS || room_make(b, n) != 0) {
        return -1;
    }
    n = 0;
    for (struct r2_comm *c = r2_comm_first(inst); c && n < b->room; c = c->list.all_next) {
        uint8_t first[IB_MAX_PATHS];

        if (c->flow->plan) {
            b->comm[n] = c;
            conn_make(c, c->flow->plan, &b->conn[n], first);
            b->demand[n++] = c->flow->demand;
        }
    }
    return (int)n;
}

/* Of BALANCE_ONE, what the plan follows now: as ib_send_replan() makes it of conn->weight. */
static void weights_now(const struct r2_comm *c, const struct balance_conn *conn,
                        const uint8_t *first, uint32_t now[BALANCE_PLAN_PATHS])
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < conn->n; i++) {
        sum += c->conn.weight[first[i]];
    }
    for (uint32_t i = 0; i < conn->n; i++) {
        now[i] = (uint32_t)(sum ? c->conn.weight[first[i]] * (uint64_t)BALANCE_ONE / sum
                                : BALANCE_ONE / conn->n);
    }
}

/* The service thread is the only writer of weights: it reads them without the gate. */
static void publish(struct r2_comm *c, const uint32_t *weight)
{
    uint32_t now[BALANCE_PLAN_PATHS];
    uint8_t first[IB_MAX_PATHS];
    struct balance_conn conn;

    conn_make(c, c->flow->plan, &conn, first);
    if (conn.n < 2) {
        return;
    }
    weights_now(c, &conn, first, now);
    if (!balance_weights_differ(now, weight, conn.n, PERCENT)) {
        return;
    }
    r2_comm_visit(c);
    weights_set(c, &conn, first, weight);
    ib_send_replan(c->tx);
    r2_comm_unvisit(c);
    r2_comm_kick(c); /* statistics follow */
}

static void divide(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    struct balance_facts f;
    int n;

    if (b->spread == 0) {
        return; /* each plan has one NIC pair: there is nothing to divide */
    }
    r2_flows_hear(inst);
    n = conns_list(inst);
    facts_begin(b, &f);
    f.conns = n > 0 ? (uint32_t)n : 0;
    if (n < 0 || work_make(b, balance_plan_size(&f)) != 0) {
        if (!b->failed) {
            b->failed = 1;
            R2_WARN("no memory to divide traffic over NICs again: it stays divided as it is");
        }
        return;
    }
    if (balance_plan(&f, b->work, b->weight) == 0) {
        for (int i = 0; i < n; i++) {
            publish(b->comm[i], b->weight[i]);
        }
    }
}

/* Who begins to stand in rings; a bell that was not heard, or of before we came, is made up for
 * with each HEARS-th look. */
static bool hears(struct r2_inst *inst, int tick)
{
    return inst->share.registry && inst->cfg.balance && inst->nics.count > 1 &&
           (inst->share.rung || (tick && (inst->balance->spread || r2_room_is_due(inst) ||
                                          inst->share.looks % HEARS == 0 ||
                                          r2_host_registry_fd(inst->share.registry) < 0)));
}

uint64_t r2_balance_step(struct r2_inst *inst, uint64_t now, int tick)
{
    struct r2_balance *b = inst->balance;
    uint64_t begun;

    if (tick) {
        b->due |= r2_flow_tick(inst, b->poll_at ? r2_elapsed(now, b->poll_at) : 0) || b->failed;
        b->poll_at = now;
    }
    if (hears(inst, tick)) {
        b->due |= r2_flows_hear(inst);
    }
    if (tick) {
        r2_room_look(inst);
    }
    if (inst->share.registry && (tick || b->rows_due)) {
        b->rows_due = 0;
        r2_flows_publish(inst);
    }
    if (!b->due) {
        return UINT64_MAX;
    }
    if (b->done_at && now < b->done_at + b->pause) {
        return b->done_at + b->pause;
    }
    b->due = 0;
    begun = r2_now(inst);
    divide(inst);
    b->done_at = r2_now(inst);
    b->pause = r2_elapsed(b->done_at, begun) * DUTY;
    b->pause = b->pause > PAUSE ? b->pause : PAUSE;
    return UINT64_MAX;
}
