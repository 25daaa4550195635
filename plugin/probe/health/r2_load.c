#include "r2_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "r2_pair.h"
#include "r2_watch.h"

#define LATELY R2_MS(1000) /* who receives over a path is taken to go on with it */

/* --- counting --- */

int r2_load_open(struct r2_inst *inst)
{
    inst->watch.load = calloc(IB_MAX_NICS, sizeof(*inst->watch.load));
    return inst->watch.load ? 0 : -1;
}

/* An incarnation that ends counts what it had out as accounted for, which is no movement: @up is as
 * the last step left it. */
static void count_path(struct r2_comm *c, int p, int up, uint64_t now)
{
    const struct ib_path *path = &c->conn.path[p];
    struct r2_nic_load *l = &c->inst->watch.load[path->nic];
    uint64_t done = c->is_send ? IB_RLX_GET(path->count.bytes_done) : IB_RLX_GET(path->count.bytes);
    uint64_t posted = c->is_send ? IB_RLX_GET(path->count.bytes) : done;

    if (up && done > c->watch->load.seen[p]) {
        l->moved += done - c->watch->load.seen[p];
        l->moved_at = now;
        c->watch->load.moved_at[p] = c->inst->watch.clock;
        c->watch->load.moved += done - c->watch->load.seen[p];
    }
    c->watch->load.seen[p] = done; /* less than before: a new incarnation */
    if (up && posted > done) {
        uint64_t used = IB_RLX_GET(path->sq.used), /* read apart from each other */
            bulk = (uint64_t)IB_RLX_GET(path->sq.bulk) + IB_RLX_GET(path->sq.tails);

        l->queued += posted - done;
        l->front += (posted - done) / (used > bulk ? used - bulk : 1);
    }
}

/* What receives are open for is to come over the paths that brought something lately; where none
 * did, over any. */
static void count_wanted(struct r2_comm *c)
{
    uint64_t met = IB_RLX_GET(c->rx->load.met), wanted = IB_RLX_GET(c->rx->load.wanted);
    uint64_t done = IB_RLX_GET(c->rx->count.messages), opened = IB_RLX_GET(c->rx->load.opened),
             largest = IB_RLX_GET(c->rx->load.largest), share;
    uint32_t paths = 0;

    if (wanted <= met || opened <= done || c->shown.up == 0) {
        return; /* also where one was read later than the other */
    }
    for (uint32_t m = c->shown.up; m; m &= m - 1) {
        int p = __builtin_ctz(m);
        int lately = c->watch->load.moved_at[p] &&
                     c->inst->watch.clock - c->watch->load.moved_at[p] <= LATELY;

        paths |= lately ? 1u << p : 0;
    }
    paths = paths ? paths : c->shown.up;
    share = (wanted - met) / (unsigned)__builtin_popcount(paths);
    for (uint32_t m = paths; m; m &= m - 1) {
        struct r2_nic_load *l = &c->inst->watch.load[c->conn.path[__builtin_ctz(m)].nic];

        l->queued += share;
        l->front +=
            largest < share ? largest : share; /* who sends comes to that one, too, and until it
                                                  ends nothing of it counts as moved */
    }
}

static bool is_open(const struct r2_comm *c)
{
    return atomic_load_explicit(&c->state.setup, memory_order_acquire) == R2_SETUP_DONE &&
           atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN;
}

/* Who receives writes CTS, and so touches a path, too. */
static bool counts(const struct r2_comm *c)
{
    return is_open(c) && IB_RLX_GET(c->conn.touched);
}

static void count(struct r2_inst *inst, uint64_t now)
{
    for (int i = 0; i < inst->nics.count; i++) {
        inst->watch.load[i].queued = inst->watch.load[i].front = 0;
    }
    for (struct r2_comm *c = r2_comms_awake(inst); c; c = c->list.awake_next) {
        if (!counts(c)) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            count_path(c, p, (c->shown.up >> p) & 1, now);
        }
        if (!c->is_send) {
            count_wanted(c);
        }
    }
}

/* Of all processes of this host. */
static void load_get(struct r2_inst *inst, int nic, uint64_t now, struct probe_load *out)
{
    const struct ib_nic *n = &inst->nics.nic[nic];
    const struct r2_nic_load *l = &inst->watch.load[nic];
    struct r2_host_registry_load sum = {
        .moved = l->moved, .queued = l->queued, .front = l->front, .moved_at = l->moved_at};

    if (inst->share.registry) {
        r2_host_registry_load_add(inst->share.registry, n->guid, n->port, now, &sum);
    }
    out->moved = sum.moved;
    out->queued = sum.queued;
    out->front = sum.front;
    out->age = sum.moved_at == 0 ? UINT64_MAX : r2_elapsed(now, sum.moved_at);
    out->rate = l->peak.rate;
    out->at = now;
}

uint64_t r2_load_moved(struct r2_inst *inst, int nic, uint64_t now)
{
    struct probe_load l;

    load_get(inst, nic, now, &l);
    return l.moved;
}

void r2_load_step(struct r2_inst *inst, uint64_t now)
{
    count(inst, now);
    for (int i = 0; i < inst->nics.count; i++) {
        struct r2_nic_load *l = &inst->watch.load[i];

        if (inst->share.registry &&
            (l->moved != l->published.moved || l->queued != l->published.queued)) {
            l->published = (struct r2_host_registry_load){
                .moved = l->moved, .queued = l->queued, .front = l->front, .moved_at = l->moved_at};
            r2_host_registry_load_set(inst->share.registry, i, &l->published);
        }
        if (l->moved != l->peak_moved && now >= l->peak.at + PROBE_PEAK_NS) {
            struct probe_load sum;

            load_get(inst, i, now, &sum);
            probe_peak_take(&l->peak, now, sum.moved);
            l->peak_moved = l->moved;
        }
    }
}

/* --- asking --- */

void r2_load_request(struct r2_inst *inst, struct r2_peer *peer, uint8_t nic, uint8_t peer_nic)
{
    union fo_body b = {.load = {.nic = nic, .peer_nic = peer_nic, .flags = FO_LOAD_REQUEST}};

    r2_peer_emit(inst, peer, FO_MSG_LOAD, &b);
}

void r2_load_begin(struct r2_pair *pair)
{
    memset(&pair->probe.here, 0, sizeof(pair->probe.here));
    memset(&pair->probe.there, 0, sizeof(pair->probe.there));
}

void r2_load_tick(struct r2_pair *pair, uint64_t clock)
{
    struct probe_load own;

    load_get(pair->inst, pair->nic, r2_now(pair->inst), &own);
    probe_track_take(&pair->probe.here, &own, clock);
    r2_load_request(pair->inst, pair->peer, pair->nic, pair->peer_nic);
}

void r2_load_span_begin(struct r2_load_span *s, struct r2_inst *inst, int nic, uint64_t now)
{
    *s = (struct r2_load_span){.at = now, .moved = r2_load_moved(inst, nic, now)};
}

void r2_load_span_take(struct r2_load_span *s, const struct probe_load *l)
{
    if (l->at == 0 || l->at <= s->last_at) {
        return;
    }
    if (s->from_at == 0 || l->moved < s->last) { /* a process has gone, with what it had moved */
        s->from_at = l->at;
        s->from = l->moved;
    }
    s->last_at = l->at;
    s->last = l->moved;
    s->best = l->rate;
}

bool r2_load_span_get(const struct r2_load_span *s, struct r2_inst *inst, int nic, uint64_t now,
                      uint64_t least, struct r2_load_rate *here, struct r2_load_rate *there)
{
    uint64_t moved = r2_load_moved(inst, nic, now), ns = r2_elapsed(now, s->at);

    if (s->from_at == 0 || s->last_at - s->from_at < least || ns < least || moved < s->moved) {
        return false;
    }
    *here = (struct r2_load_rate){moved - s->moved, ns};
    *there = (struct r2_load_rate){s->last - s->from, s->last_at - s->from_at};
    return true;
}

void r2_load_on(struct r2_inst *inst, struct r2_peer *peer, const struct fo_load *m)
{
    struct probe_load l = {.moved = m->moved,
                           .queued = m->queued,
                           .front = m->front,
                           .age = m->age,
                           .rate = m->rate,
                           .at = m->at};
    struct r2_pair *pair;

    if (m->peer_nic >= inst->nics.count || peer->refs < 2) {
        return; /* no such NIC; or no connection to that process (the message holds one reference
                   itself) */
    }
    if (m->flags & FO_LOAD_REQUEST) {
        union fo_body b = {.load = {.nic = m->peer_nic, .peer_nic = m->nic}};

        load_get(inst, m->peer_nic, r2_now(inst), &l);
        b.load.moved = l.moved;
        b.load.queued = l.queued;
        b.load.front = l.front;
        b.load.age = l.age;
        b.load.rate = l.rate;
        b.load.at = l.at;
        r2_peer_emit(inst, peer, FO_MSG_LOAD, &b);
        return;
    }
    pair = r2_pair_find(inst, peer, m->peer_nic, m->nic);
    if (pair == NULL) {
        return;
    }
    if (m->flags & (FO_LOAD_SLOW | FO_LOAD_WORD)) {
        R2_NOTIFY(inst, on_slow_word, pair, m->flags);
        return;
    }
    R2_NOTIFY(inst, on_load, pair, &l);
    probe_track_take(&pair->probe.there, &l, inst->watch.clock);
}

/* --- judging --- */

bool r2_load_has_moved(struct r2_inst *inst, int nic, const char *but, uint64_t ns)
{
    uint64_t clock = inst->watch.clock;

    for (struct r2_comm *c = r2_comms_awake(inst); c; c = c->list.awake_next) {
        if (!is_open(c) || strcmp(c->far.host, inst->self.host) == 0 ||
            strcmp(c->far.host, but) == 0) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            uint64_t at = c->watch->load.moved_at[p];

            if (c->conn.path[p].nic == nic && at && r2_elapsed(clock, at) <= ns) {
                return true;
            }
        }
    }
    return false;
}

uint64_t r2_load_done_at(const struct r2_pair *pair)
{
    uint64_t last = 0;

    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        for (int p = 0; c->is_send && p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic) {
                last = c->watch->load.moved_at[p] > last ? c->watch->load.moved_at[p] : last;
            }
        }
    }
    return last;
}

/*
 * What moved longer ago says nothing of now. When the base deadline comes, a NIC that died with our
 * first work request has been silent for T_suspect and the limit, but for a tick: a later verdict
 * on one that is dead costs only what it had under way in messages that take long.
 */
static enum probe_activity end_of(const struct r2_pair *pair, const struct probe_track *t,
                                  uint64_t clock)
{
    uint64_t t_suspect = R2_MS(pair->inst->cfg.t_suspect_ms),
             lump = 2 * probe_load_expect(&t->last, t->last.front);
    uint64_t slack = t_suspect - t_suspect / 4;

    return probe_track_end(t, clock, pair->probe.limit + (slack > lump ? slack : lump));
}

uint64_t r2_load_deadline(const struct r2_pair *pair, uint64_t clock)
{
    const struct r2_config *cfg = &pair->inst->cfg;
    struct probe_case c = {.from = pair->probe.from,
                           .t_probe = R2_MS(cfg->t_probe_ms),
                           .limit = pair->probe.limit,
                           .most = R2_MS(cfg->t_stuck_ms)};

    if (clock < c.from + c.limit) {
        return c.from + c.limit; /* never sooner: what moves is not looked at yet */
    }
    c.done_at = r2_load_done_at(pair);
    c.here = end_of(pair, &pair->probe.here, clock);
    c.there = end_of(pair, &pair->probe.there, clock);
    c.queue_here = probe_load_expect(&pair->probe.here.last, pair->probe.here.last.queued);
    c.queue_there = probe_load_expect(&pair->probe.there.last, pair->probe.there.last.queued);
    return probe_case_deadline(&c);
}

void r2_load_print(const struct r2_pair *pair, uint64_t clock, char *out, size_t len)
{
    snprintf(out, len, "our NIC %s, theirs %s",
             probe_activity_name(end_of(pair, &pair->probe.here, clock)),
             probe_activity_name(end_of(pair, &pair->probe.there, clock)));
}
