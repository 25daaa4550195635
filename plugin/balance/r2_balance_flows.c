/*
 * What processes of this host send (docs/balance.md, "The whole host"): what ours say in the host
 * registry, and what others do. Sums over connections follow what changes of one: no look walks
 * those that rest.
 */
#include "core/r2_registry.h"
#include "probe/health/r2_watch.h"
#include "r2_balance_int.h"

#include <string.h>

/* --- ours --- */

static struct r2_balance_home *home_of(const struct r2_comm *c)
{
    struct r2_balance *b = c->inst->balance;

    return c->flow->stands >= R2_FLOW_STANDS ? &b->stood[c->dev] : &b->home[c->dev];
}

static void home_add(struct r2_comm *c, int sign)
{
    struct r2_balance_home *h = home_of(c);

    h->conns += (uint32_t)sign;
    for (uint32_t m = c->flow->over; m; m &= m - 1) {
        h->over[__builtin_ctz(m)] += (uint32_t)sign;
    }
    h->demand += sign > 0 ? c->flow->demand : -c->flow->demand;
    c->inst->balance->spread += (uint32_t)sign * c->flow->spread;
}

void r2_flow_plan(struct r2_comm *c, uint32_t plan)
{
    struct r2_balance *b = c->inst->balance;

    if (plan == c->flow->plan) {
        return;
    }
    if (c->flow->plan) {
        home_add(c, -1);
    }
    c->flow->plan = plan;
    c->flow->over = 0;
    for (uint32_t m = plan; m; m &= m - 1) {
        c->flow->over |= 1u << c->conn.path[__builtin_ctz(m)].nic;
    }
    c->flow->spread = plan && ib_conn_pairs(&c->conn, plan) > 1;
    if (plan) {
        home_add(c, 1);
    }
    b->due = b->rows_due = 1;
}

void r2_flow_stands(struct r2_comm *c, uint8_t stands)
{
    if (c->flow->plan) {
        home_add(c, -1);
    }
    c->flow->stands = stands;
    if (c->flow->plan) {
        home_add(c, 1);
    }
}

static void busy_leave(struct r2_comm *c)
{
    if (c->flow->busy_prev) {
        *c->flow->busy_prev = c->flow->busy_next;
        if (c->flow->busy_next) {
            c->flow->busy_next->flow->busy_prev = c->flow->busy_prev;
        }
        c->flow->busy_prev = NULL;
    }
}

static void busy_enter(struct r2_comm *c)
{
    struct r2_comm **first = &c->inst->balance->busy;

    if (c->flow->busy_prev) {
        return;
    }
    c->flow->busy_next = *first;
    c->flow->busy_prev = first;
    if (*first) {
        (*first)->flow->busy_prev = &c->flow->busy_next;
    }
    *first = c;
}

void r2_flow_gone(struct r2_comm *c)
{
    r2_flow_plan(c, 0);
    busy_leave(c);
}

/* Half of it is from the last check, a quarter from the one before: what all connections do at the
 * same time is compared, nothing else. */
static bool demand_follow(struct r2_comm *c, uint64_t ns)
{
    uint64_t bytes = c->watch->load.moved - c->flow->marked, before = c->flow->demand;

    c->flow->is_fresh = bytes != 0;
    c->flow->marked = c->watch->load.moved;
    c->flow->demand =
        before / 2 + (bytes < UINT32_MAX * 1024ull ? bytes * 1000000 / (ns / 1000 + 1) : 0) / 2;
    if (c->flow->plan) {
        home_of(c)->demand += c->flow->demand - before;
    }
    if (bytes == 0 && c->flow->demand == 0) {
        busy_leave(c);
    }
    return c->flow->demand != before;
}

bool r2_flow_tick(struct r2_inst *inst, uint64_t ns)
{
    struct r2_comm *next;
    bool changed = 0;

    for (struct r2_comm *c = r2_comms_stirred(inst); c; c = c->list.stirred_next) {
        if (c->is_send) {
            busy_enter(c);
        }
    }
    for (struct r2_comm *c = ns ? inst->balance->busy : NULL; c; c = next) {
        next = c->flow->busy_next;
        changed |= demand_follow(c, ns);
    }
    return changed;
}

void r2_flows_publish(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    int others = 0;

    for (int i = 0; i < inst->nics.count; i++) {
        const struct r2_balance_home *h = &b->home[i];
        struct r2_host_registry_flow f;

        memset(&f, 0, sizeof(f));
        f.conns = h->conns;
        f.demand = h->demand;
        for (int k = 0; k < inst->nics.count; k++) {
            f.rows |= h->over[k] ? 1u << k : 0;
        }
        if (memcmp(&f, &b->published[i], sizeof(f)) != 0) {
            r2_host_registry_flow_set(inst->share.registry, i, &f);
            others |= f.rows != b->published[i].rows;
            b->published[i] = f;
        }
    }
    if (others) {
        /* where they go concerns everybody now; how much, with the next tick */
        r2_host_registry_ring(inst->share.registry);
    }
}

/* --- those of others --- */

/* Rows of slot @slot as NICs of ours, bit by bit; a row that is none of ours is 0. All of them. */
static uint32_t rows_match(const struct r2_inst *inst, int slot,
                           uint32_t ours[R2_HOST_REGISTRY_NICS])
{
    struct r2_host_registry_nic row;
    uint32_t all = 0;

    for (int r = 0; r < R2_HOST_REGISTRY_NICS; r++) {
        ours[r] = 0;
        if (!r2_host_registry_slot_nic(inst->share.registry, slot, r, &row)) {
            continue;
        }
        for (int i = 0; i < inst->nics.count; i++) {
            if (inst->nics.nic[i].guid == row.guid && inst->nics.nic[i].port == row.port) {
                ours[r] = 1u << i;
            }
        }
        all |= ours[r];
    }
    return all;
}

static uint32_t rows_of(const uint32_t ours[R2_HOST_REGISTRY_NICS], uint32_t rows)
{
    uint32_t nics = 0;

    for (uint32_t m = rows; m; m &= m - 1) {
        nics |= ours[__builtin_ctz(m)];
    }
    return nics;
}

/* Nobody sends that much: sums over all slots fit. */
static uint64_t bounded(uint64_t bytes)
{
    return bytes < UINT64_MAX / 65536 ? bytes : 0;
}

/* Flows over the same NICs are one. */
static void other_add(struct r2_balance *b, uint32_t nics, uint32_t conns, uint64_t demand)
{
    uint32_t i;

    for (i = 0; i < b->others && b->other[i].nics != nics; i++) {
    }
    if (nics == 0 || i == BALANCE_PLAN_OTHERS) {
        return;
    }
    if (i == b->others) {
        b->other[b->others++] = (struct balance_other){.nics = nics};
    }
    b->other[i].conns += conns < 65536 ? conns : 65536;
    b->other[i].demand += bounded(demand);
}

static void flows_hear(struct r2_inst *inst, int slot, const uint32_t ours[R2_HOST_REGISTRY_NICS],
                       bool says_out)
{
    struct r2_balance *b = inst->balance;
    struct r2_host_registry_flow f;

    for (int r = 0; r < R2_HOST_REGISTRY_NICS; r++) {
        if (r2_host_registry_slot_flow(inst->share.registry, slot, r, &f)) {
            uint32_t nics = rows_of(ours, f.rows);

            other_add(b, nics, f.conns, f.demand);
            for (uint32_t m = says_out ? 0 : nics; m; m &= m - 1) {
                b->theirs.out[__builtin_ctz(m)] +=
                    bounded(f.demand) / (uint32_t)__builtin_popcount(nics);
            }
        }
    }
}

static void room_hear(struct r2_balance *b, const uint32_t ours[R2_HOST_REGISTRY_NICS],
                      const struct r2_host_registry_room *room)
{
    struct r2_balance_theirs *t = &b->theirs;

    for (int r = 0; r < R2_HOST_REGISTRY_NICS; r++) {
        const struct r2_host_registry_room_nic *n = &room->nic[r];
        int nic = __builtin_ctz(ours[r] | 1u << 31);

        if (n->demand) {
            other_add(b, rows_of(ours, n->rows), 1, n->demand);
        }
        if (ours[r] == 0) {
            continue;
        }
        t->out[nic] += bounded(n->out);
        t->out_bound[nic] += bounded(n->out_bound);
        t->in[nic] += bounded(n->in);
        t->in_bound[nic] += bounded(n->in_bound);
        t->in_fixed[nic] += bounded(n->in_fixed);
    }
    t->move += bounded(room->move);
    t->nics |= rows_of(ours, room->move_rows);
    t->hosts |= room->hosts;
    t->stands[0] |= room->stands[0];
    t->stands[1] |= room->stands[1];
}

/* What slot @slot says of who stands in, if it is said now. */
static bool says_room(const struct r2_inst *inst, int slot, uint64_t now,
                      struct r2_host_registry_room *room)
{
    return r2_host_registry_slot_room(inst->share.registry, slot, room) && now < room->until;
}

bool r2_flows_hear(struct r2_inst *inst)
{
    struct r2_balance *b = inst->balance;
    struct balance_other before[BALANCE_PLAN_OTHERS];
    struct r2_host_registry_room room;
    uint32_t n = b->others;
    uint64_t now = r2_now(inst);
    bool is_due = b->spread != 0 || r2_room_is_due(inst);

    memcpy(before, b->other, n * sizeof(before[0]));
    b->others = 0;
    memset(&b->theirs, 0, sizeof(b->theirs));
    for (int s = 0; inst->share.registry && s < R2_HOST_REGISTRY_SLOTS; s++) {
        uint32_t ours[R2_HOST_REGISTRY_NICS];
        bool says = says_room(inst, s, now, &room);

        if ((!says && !is_due) || !r2_host_registry_slot_alive(inst->share.registry, s) ||
            rows_match(inst, s, ours) == 0) {
            continue;
        }
        flows_hear(inst, s, ours, says);
        if (says) {
            room_hear(b, ours, &room);
        }
    }
    return b->others != n || memcmp(before, b->other, n * sizeof(before[0])) != 0;
}
