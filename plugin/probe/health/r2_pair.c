#include "r2_pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "r2_counters.h"
#include "r2_cross.h"
#include "r2_inband.h"
#include "r2_loopback.h"
#include "r2_pair_int.h"

#define AGAIN_MIN_NS                                                                               \
    R2_MS(100) /* between two attempts to make a queue pair that does not come to stand */
#define AGAIN_MAX_NS R2_MS(10000)

static const char *const state_names[R2_PAIR_STATES] = {
    "new", "building", "open", "connecting", "connected", "broken", "dead", "destroying"};

/* Row: from. */
void r2_pair_move(struct r2_pair *pair, enum r2_pair_state to)
{
    static const unsigned char legal[R2_PAIR_STATES][R2_PAIR_STATES] = {
        [R2_PAIR_NEW] = {[R2_PAIR_BUILD] = 1},
        [R2_PAIR_BUILD] = {[R2_PAIR_OPEN] = 1, [R2_PAIR_BROKEN] = 1},
        [R2_PAIR_OPEN] = {[R2_PAIR_JOIN] = 1, [R2_PAIR_DEAD] = 1, [R2_PAIR_DESTROY] = 1},
        [R2_PAIR_JOIN] = {[R2_PAIR_JOINED] = 1, [R2_PAIR_BROKEN] = 1},
        [R2_PAIR_JOINED] = {[R2_PAIR_DEAD] = 1, [R2_PAIR_DESTROY] = 1},
        [R2_PAIR_BROKEN] = {[R2_PAIR_DESTROY] = 1},
        [R2_PAIR_DEAD] = {[R2_PAIR_DESTROY] = 1},
        [R2_PAIR_DESTROY] = {[R2_PAIR_BUILD] = 1},
    };

    if (!legal[pair->build.state][to]) {
        R2_WARN("probe of NIC pair %u-%u cannot go from %s to %s", pair->nic, pair->peer_nic,
                state_names[pair->build.state], state_names[to]);
        return;
    }
    R2_TRACE("probe of NIC pair %u-%u, incarnation %u: %s -> %s", pair->nic, pair->peer_nic,
             pair->inc, state_names[pair->build.state], state_names[to]);
    pair->build.state = to;
    r2_pair_probe_move(pair, R2_PROBE_IDLE);
    pair->announce.repeat.at = 0;
    pair->announce.repeat.interval = R2_MS(pair->inst->cfg.t_repeat_ms);
}

/* --- jobs --- */

static void pair_done(struct ib_job *job);

static void submit(struct r2_pair *pair, enum r2_pair_state state, void (*run)(struct ib_job *))
{
    r2_pair_move(pair, state);
    pair->build.rc = 0;
    pair->job.run = run;
    pair->job.done = pair_done;
    ib_workers_submit(pair->inst->jobs.workers, pair->inst->nics.nic[pair->nic].device_index,
                      &pair->job);
}

static void build_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);
    uint32_t psn;

    pair->inst->env.random(pair->inst->env.arg, &psn, sizeof(psn));
    pair->build.rc = s == IB_NIC_FATAL || s == IB_NIC_GONE
                         ? EIO
                         : probe_qp_create(&pair->qp, &pair->inst->nics, pair->nic, psn);
    if (pair->build.rc == 0 && !pair->build.plain) {
        r2_inband_create(pair);
    }
}

static void join_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    pair->build.rc =
        probe_qp_connect(&pair->qp, &pair->inst->nics, pair->nic, &pair->far.addr, &pair->far.alt);
    if (pair->build.rc == 0) {
        r2_inband_connect(pair);
    }
}

static void destroy_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    probe_qp_destroy(&pair->qp, &pair->inst->nics);
    ib_inband_destroy(&pair->inband, &pair->inst->nics);
}

static void quiet_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    probe_qp_quiet(&pair->qp, &pair->inst->nics);
    ib_inband_quiet(&pair->inband, &pair->inst->nics);
}

static void end_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    ib_inband_quiet(&pair->inband, &pair->inst->nics);
}

/*
 * A queue pair on a shared receive queue takes the buffers along that it has filled and that nobody
 * has looked at when it is destroyed: nothing may come in any more, and what is there be taken,
 * before it is.
 */
static void take_down(struct r2_pair *pair)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    submit(pair, R2_PAIR_DESTROY,
           pair->inband.qp && s != IB_NIC_FATAL && s != IB_NIC_GONE ? end_run : destroy_run);
}

void r2_pair_give_up(struct r2_pair *pair)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    r2_pair_move(pair, R2_PAIR_DEAD);
    if (s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return; /* not touched any more */
    }
    pair->job.run = quiet_run;
    pair->job.done = pair_done;
    ib_workers_submit(pair->inst->jobs.workers, pair->inst->nics.nic[pair->nic].device_index,
                      &pair->job);
}

static void build(struct r2_pair *pair)
{
    pair->inst->probing.inc += 1 + (pair->inst->probing.inc + 1 == 0);
    pair->inc = pair->inst->probing.inc;
    pair->announce.peer_inc = pair->announce.peer_for = 0;
    pair->carried.peer_qpn = pair->carried.peer_psn = 0;
    pair->build.again = pair->announce.answer = pair->announce.inquire = pair->probe.check = 0;
    pair->announce.owes = pair->announce.works = 0;
    pair->build.plain &= !r2_cross_carries(pair);
    r2_ways_begin_probe(pair);
    pair->probe.last_ok = pair->probe.slowest = 0;
    pair->probe.greeted = pair->probe.silent = 0;
    submit(pair, R2_PAIR_BUILD, build_run);
}

static void pair_free(struct r2_pair *pair)
{
    *pair->prev = pair->next;
    if (pair->next) {
        pair->next->prev = pair->prev;
    }
    free(pair->pace);
    free(pair);
}

static void pair_done(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    r2_inband_built(pair);
    if (pair->build.state == R2_PAIR_DESTROY && pair->job.run == end_run) {
        r2_inband_quieted(pair);
        pair->job.run = destroy_run;
        ib_workers_submit(pair->inst->jobs.workers, pair->inst->nics.nic[pair->nic].device_index,
                          &pair->job);
        return;
    }
    if (pair->build.state == R2_PAIR_DESTROY) {
        r2_inband_destroyed(pair);
        if (pair->peer == NULL) {
            pair_free(pair);
        } else {
            build(pair);
        }
        return;
    }
    if (pair->build.state == R2_PAIR_DEAD) {
        if (pair->peer == NULL || pair->build.again) {
            take_down(pair);
        }
        return;
    }
    if (pair->build.rc != 0) {
        R2_INFO_MANY(R2_LOG_NO_PROBE, "NIC pair %s - %u of %s has no probe: %s while %s",
                     pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
                     pair->peer ? pair->inst->oob->ops->peer_str(pair->peer->oob) : "?",
                     strerror(pair->build.rc), state_names[pair->build.state]);
        r2_pair_move(pair, R2_PAIR_BROKEN);
    } else {
        r2_pair_move(pair, pair->build.state == R2_PAIR_BUILD ? R2_PAIR_OPEN : R2_PAIR_JOINED);
        if (pair->build.state == R2_PAIR_JOINED) {
            r2_ways_on_joined(pair);
        }
    }
    if (pair->peer == NULL || pair->build.again) {
        take_down(pair);
    }
    r2_inst_wake(pair->inst);
}

void r2_pair_join(struct r2_pair *pair)
{
    memcpy(pair->far.alt.way, pair->ways.wish.way, sizeof(pair->far.alt.way));
    submit(pair, R2_PAIR_JOIN, join_run);
}

void r2_pair_rebuild(struct r2_pair *pair)
{
    pair->build.again = 1;
    pair->probe.wanted = r2_pair_is_judged(pair) ? pair->probe.limit : pair->probe.wanted;
    if (!pair->job.busy) {
        take_down(pair);
    }
}

void r2_pair_again(struct r2_pair *pair)
{
    uint64_t now = r2_now(pair->inst);

    if (now >= pair->build.at) {
        pair->build.wait = 2 * pair->build.wait < AGAIN_MIN_NS   ? AGAIN_MIN_NS
                           : 2 * pair->build.wait < AGAIN_MAX_NS ? 2 * pair->build.wait
                                                                 : AGAIN_MAX_NS;
        pair->build.at = now + pair->build.wait;
        r2_pair_rebuild(pair);
    } else if (pair->build.state == R2_PAIR_JOINED) {
        pair->probe.wanted = r2_pair_is_judged(pair) ? pair->probe.limit : pair->probe.wanted;
        r2_pair_move(pair, R2_PAIR_DEAD);
    }
}

/* --- who wants one --- */

static unsigned bucket_of(const struct r2_peer *peer, int nic, int peer_nic)
{
    uint64_t key = (uint64_t)(uintptr_t)peer >> 4;

    key = key * 0x9e3779b97f4a7c15ull >> 32;
    return (unsigned)(key + (unsigned)nic * IB_MAX_NICS + (unsigned)peer_nic) % R2_PAIR_BUCKETS;
}

static void enter(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;
    struct r2_pair **bucket = &inst->index.pair[bucket_of(pair->peer, pair->nic, pair->peer_nic)];

    pair->next = inst->index.pairs;
    pair->prev = &inst->index.pairs;
    if (pair->next) {
        pair->next->prev = &pair->next;
    }
    inst->index.pairs = pair;
    pair->peer_next = pair->peer->pairs;
    pair->peer->pairs = pair;
    pair->hash_next = *bucket;
    pair->hash_prev = bucket;
    if (pair->hash_next) {
        pair->hash_next->hash_prev = &pair->hash_next;
    }
    *bucket = pair;
}

/* All pairs of a peer do so together: their list is left to the caller. */
static void leave_peer(struct r2_pair *pair)
{
    *pair->hash_prev = pair->hash_next;
    if (pair->hash_next) {
        pair->hash_next->hash_prev = pair->hash_prev;
    }
    pair->peer = NULL;
}

struct r2_pair *r2_pair_find(const struct r2_inst *inst, const struct r2_peer *peer, int nic,
                             int peer_nic)
{
    struct r2_pair *pair;

    for (pair = inst->index.pair[bucket_of(peer, nic, peer_nic)];
         pair && !(pair->peer == peer && pair->nic == nic && pair->peer_nic == peer_nic);
         pair = pair->hash_next) {
    }
    return pair;
}

struct r2_pair *r2_pair_want(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic)
{
    return r2_pair_meet(inst, peer, nic, peer_nic, 0);
}

struct r2_pair *r2_pair_meet(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic,
                             int plain)
{
    struct r2_pair *pair = r2_pair_find(inst, peer, nic, peer_nic);

    if (pair) {
        return pair;
    }
    pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        return NULL; /* detection falls back on RC */
    }
    pair->inst = inst;
    pair->peer = peer;
    pair->nic = (uint8_t)nic;
    pair->peer_nic = (uint8_t)peer_nic;
    pair->build.plain = (uint8_t)plain;
    enter(pair);
    build(pair);
    return pair;
}

void r2_pairs_want(struct r2_comm *c)
{
    if (!c->inst->cfg.watchdog || !c->inst->cfg.failover) {
        return;
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];
        struct r2_pair *pair;

        if (!ib_conn_up(&c->conn, p)) {
            continue;
        }
        r2_loopback_want(c->inst, path->nic);
        r2_counters_want(c->inst, path->nic);
        pair = r2_pair_want(c->inst, c->peer, path->nic, path->peer_nic);
        if (pair && r2_pair_failed(pair)) {
            r2_pair_again(pair);
        }
    }
    r2_cross_want(c);
}

void r2_pair_renew(struct r2_pair *pair)
{
    if (r2_pair_failed(pair)) {
        if (!r2_cross_hopeless(pair)) {
            r2_pair_rebuild(pair);
        }
    } else {
        pair->announce.repeat.at = 0;
        pair->announce.answer = pair->build.state == R2_PAIR_JOINED;
    }
}

void r2_pair_leave(struct r2_pair *pair)
{
    r2_pair_give_up(pair);
    pair->probe.wanted = 0;
}

void r2_pair_fail(struct r2_pair *pair)
{
    if (pair->build.state == R2_PAIR_JOINED && !r2_pair_is_judged(pair)) {
        r2_pair_give_up(pair);
    }
}

void r2_pairs_drop(struct r2_peer *peer)
{
    for (struct r2_pair *pair = peer->pairs; pair; pair = pair->peer_next) {
        leave_peer(pair);
        if (!pair->job.busy) {
            take_down(pair); /* ends in a job: it is there until that is back */
        }
    }
    peer->pairs = NULL;
}

void r2_pairs_free(struct r2_inst *inst, uint64_t still_running)
{
    struct r2_pair **p = &inst->index.pairs;

    memset(inst->index.pair, 0, sizeof(inst->index.pair)); /* nobody finds any from here on */
    while (*p) {
        struct r2_pair *pair = *p;

        if (pair->peer) {
            pair->peer->pairs = NULL;
        }
        if (still_running >> inst->nics.nic[pair->nic].device_index & 1) {
            p = &pair->next; /* its job may be the one, and the driver would keep whoever calls it
                              */
        } else {
            *p = pair->next;
            if (pair->next) {
                pair->next->prev = p;
            }
            probe_qp_destroy(&pair->qp, &inst->nics);
            ib_inband_destroy(&pair->inband, &inst->nics);
            free(pair->pace);
            free(pair);
        }
    }
}
