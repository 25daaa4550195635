#include "r2_locate.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "probe/health/r2_loopback.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_incident.h"
#include "r2_locate_probe.h"
#include "r2_gossip.h"
#include "r2_verdict.h"

#define REPORT_NS R2_MS(2000)  /* a process that says nothing for so long counts as silent */
#define KEPT_NS   R2_MS(10000) /* a decided case answers the peer for so long */
#define HELD_NS   R2_MS(500)   /* an undecided verdict waits so long for a better one */
#define MOMENT_NS R2_MS(250)   /* ... one of a silence for the pair to answer after all */
#define HELD_MOST                                                                                  \
    R2_MS(4000) /* ... since it was opened, where a probe is still out: a busy NIC is given up to  \
                2 s */
#define SAY_MOST 20 /* x T_repeat */

static const char *const state_names[R2_CASE_STATES] = {"free", "probing", "waiting", "held",
                                                        "decided"};

/* The only writer of the state. */
static void case_move(struct r2_case *k, enum r2_case_state to)
{
    static const unsigned char legal[R2_CASE_STATES][R2_CASE_STATES] = {
        [R2_CASE_FREE] = {[R2_CASE_PROBING] = 1},
        [R2_CASE_PROBING] = {[R2_CASE_WAITING] = 1, [R2_CASE_DECIDED] = 1, [R2_CASE_FREE] = 1},
        [R2_CASE_WAITING] = {[R2_CASE_HELD] = 1, [R2_CASE_DECIDED] = 1, [R2_CASE_FREE] = 1},
        [R2_CASE_HELD] = {[R2_CASE_DECIDED] = 1, [R2_CASE_FREE] = 1},
        [R2_CASE_DECIDED] = {[R2_CASE_FREE] = 1},
    };

    if (!legal[k->state][to]) {
        R2_WARN("case %u cannot go from %s to %s", k->id, state_names[k->state], state_names[to]);
        return;
    }
    R2_TRACE("case %u, NIC pair %u-%u: %s -> %s", k->id, k->nic, k->peer_nic, state_names[k->state],
             state_names[to]);
    k->state = to;
}

static struct r2_case *find(struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic)
{
    for (int i = 0; i < R2_CASES; i++) {
        struct r2_case *k = &inst->diagnosis.cases[i];

        if (k->state != R2_CASE_FREE && k->peer == peer && k->nic == nic &&
            k->peer_nic == peer_nic) {
            return k;
        }
    }
    return NULL;
}

/* A free place, else that of the decided case that is kept the longest. */
static struct r2_case *place(struct r2_inst *inst)
{
    struct r2_case *old = NULL;

    for (int i = 0; i < R2_CASES; i++) {
        struct r2_case *k = &inst->diagnosis.cases[i];

        if (k->state == R2_CASE_FREE) {
            return k;
        }
        if (k->state == R2_CASE_DECIDED && (old == NULL || k->until.kept < old->until.kept)) {
            old = k;
        }
    }
    if (old) {
        case_move(old, R2_CASE_FREE);
    }
    return old;
}

/* --- opening --- */

static enum probe_incident judge_again(const struct r2_inst *inst, const struct r2_case *k,
                                       const struct r2_pair *pair, enum ib_fault fault,
                                       int peer_anew)
{
    struct probe_again a = {.open = k->state != R2_CASE_DECIDED,
                            .found = k->found,
                            .same_cause = fault == k->fault,
                            .new_incarnation =
                                pair && pair->probation.incarnations != k->before.incarnations,
                            .peer_anew = (uint8_t)peer_anew,
                            .repeats = k->before.repeats,
                            .since_opened = inst->watch.clock - k->opened};

    a.since_decided = a.open ? 0 : inst->watch.clock + KEPT_NS - k->until.kept;
    return probe_incident_judge(&a);
}

/* @peer_anew: the peer asks about another case than the one that it was answered about. */
static struct r2_case *open_case(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic,
                                 enum ib_fault fault, int peer_anew)
{
    struct r2_case *k = find(inst, peer, nic, peer_nic);
    struct r2_pair *pair = r2_pair_find(inst, peer, nic, peer_nic);
    enum probe_incident what = k ? judge_again(inst, k, pair, fault, peer_anew) : PROBE_ANEW;
    unsigned repeats = k ? k->before.repeats + 1 : 0, muted = k ? k->before.muted_next : 0;

    if (what != PROBE_ANEW) {
        k->before.muted_next += what == PROBE_MUTED;
        return k;
    }
    if (k) {
        case_move(k, R2_CASE_FREE);
    } else {
        k = place(inst);
    }
    if (k == NULL) {
        return NULL;
    }
    *k = (struct r2_case){.peer = peer,
                          .nic = (uint8_t)nic,
                          .peer_nic = (uint8_t)peer_nic,
                          .fault = fault,
                          .before.repeats = repeats,
                          .before.muted = muted};
    inst->diagnosis.case_id += 1 + (inst->diagnosis.case_id + 1 == 0);
    k->id = inst->diagnosis.case_id;
    k->since = r2_now(inst);
    k->opened = inst->watch.clock;
    k->until.own = k->opened + r2_locate_limit(inst, pair);
    k->theirs.until = k->opened + REPORT_NS;
    k->send.interval = R2_MS(inst->cfg.t_repeat_ms);
    k->peer_guid = pair ? pair->far.guid : 0;
    k->peer_port = pair ? pair->far.port : 0;
    k->before.incarnations = pair ? pair->probation.incarnations : 0;
    case_move(k, R2_CASE_PROBING);
    r2_locate_probe(inst, k, pair);
    inst->watch.probing = 1;
    return k;
}

void r2_locate_lost(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];

    switch (c->fo.path[p].why.fault) {
    case IB_FAULT_WC:
    case IB_FAULT_CALL:
    case IB_FAULT_QP:
    case IB_FAULT_SILENT:
    case IB_FAULT_UNDELIVERED:
    case IB_FAULT_STALL:
    case IB_FAULT_TAIL:
        break;
    default:
        return; /* the peer opens the case, or there is nothing to find out */
    }
    if (c->inst->cfg.watchdog && c->inst->cfg.failover && !c->fo.bye.peer) {
        open_case(c->inst, c->peer, path->nic, path->peer_nic, c->fo.path[p].why.fault, 0);
    }
}

bool r2_locate_has_case(const struct r2_pair *pair, uint64_t since)
{
    const struct r2_case *k = find(pair->inst, pair->peer, pair->nic, pair->peer_nic);

    return k && k->opened >= since;
}

static bool has_room(const struct r2_inst *inst)
{
    for (int i = 0; i < R2_CASES; i++) {
        if (inst->diagnosis.cases[i].state == R2_CASE_FREE) {
            return true;
        }
    }
    return false;
}

void r2_locate_silent(struct r2_pair *pair, uint64_t ns)
{
    struct r2_inst *inst = pair->inst;
    struct r2_case *k;

    if (!find(inst, pair->peer, pair->nic, pair->peer_nic) && !has_room(inst)) {
        return;
    }
    k = open_case(inst, pair->peer, pair->nic, pair->peer_nic, IB_FAULT_STALL, 0);
    if (k->opened == inst->watch.clock) {
        k->silent = ns; /* else it is one that has just been decided */
    }
}

void r2_locate_peer(struct r2_inst *inst, struct r2_peer *peer, enum probe_outcome process)
{
    struct r2_case k = {.peer = peer, .since = r2_now(inst), .fault = IB_FAULT_PEER, .process = 1};

    k.facts.peer = (uint8_t)process;
    k.facts.direct = process == PROBE_TIMEOUT ? PROBE_OK : PROBE_NA;
    r2_verdict_announce(inst, &k);
}

/* --- the peer's facts --- */

void r2_locate_on(struct r2_inst *inst, struct r2_peer *peer, const struct fo_locate *m)
{
    struct r2_case *k;

    if (m->peer_nic >= inst->nics.count || peer->refs < 2) {
        return; /* no such NIC; or no connection to that process (the message holds one reference
                   itself) */
    }
    k = find(inst, peer, m->peer_nic, m->nic);
    if (k == NULL ||
        (m->for_id == 0 && (k->theirs.id == 0 || (int32_t)(m->id - k->theirs.id) > 0) &&
         k->state == R2_CASE_DECIDED)) {
        int anew =
            k &&
            k->theirs.id !=
                0; /* else it has opened its own of the same incident before it heard of ours */

        k = (m->flags & FO_LOCATE_REQUEST) && inst->cfg.watchdog
                ? open_case(inst, peer, m->peer_nic, m->nic, IB_FAULT_PEER, anew)
                : NULL;
        if (k == NULL) {
            return;
        }
        k->theirs.first |= k->theirs.id == 0;
    }
    k->theirs.heard = 1;
    k->theirs.requested |= (m->flags & FO_LOCATE_REQUEST) != 0;
    if ((int32_t)(m->id - k->theirs.id) < 0) {
        return; /* late: of a case that it has closed */
    }
    k->theirs.id = m->id;
    if (m->for_id == k->id && !k->theirs.complete) {
        k->theirs.report = *m;
        k->theirs.at = r2_now(inst);
        k->theirs.complete = (m->flags & FO_LOCATE_FINAL) != 0;
    }
    inst->watch.probing = 1;
}

/* Asks when that is due. What only answers the peer asks nothing: two open cases would answer each
 * other for ever. */
static void send_case(struct r2_inst *inst, struct r2_case *k, uint64_t now)
{
    int due = now >= k->send.at,
        request = due && !k->theirs.complete && k->state != R2_CASE_DECIDED;
    union fo_body b = {
        .locate = {.nic = k->nic, .peer_nic = k->peer_nic, .id = k->id, .for_id = k->theirs.id}};
    uint64_t most = SAY_MOST * R2_MS(inst->cfg.t_repeat_ms);

    b.locate.end = k->facts.local;
    b.locate.direct = k->probes.direct.outcome;
    b.locate.n_aux = k->probes.n_aux;
    for (int i = 0; i < k->probes.n_aux; i++) {
        b.locate.aux[i] = (struct fo_locate_aux){.guid = k->probes.aux[i].guid,
                                                 .port = k->probes.aux[i].peer_port,
                                                 .outcome = k->probes.aux[i].outcome};
    }
    b.locate.flags = (uint8_t)((request ? FO_LOCATE_REQUEST : 0) |
                               (k->state == R2_CASE_PROBING ? 0 : FO_LOCATE_FINAL));
    r2_peer_emit(inst, k->peer, FO_MSG_LOCATE, &b);
    k->theirs.requested = 0;
    if (!due) {
        return;
    }
    k->send.at = now + k->send.interval;
    k->send.interval = 2 * k->send.interval < most ? 2 * k->send.interval : most;
}

/* --- deciding --- */

static int failed(uint8_t outcome)
{
    return outcome == PROBE_TIMEOUT || outcome == PROBE_ERROR;
}

static int peer_probe_ok(const struct fo_locate *m, uint64_t guid, uint8_t port)
{
    for (int i = 0; i < m->n_aux; i++) {
        if (guid && m->aux[i].guid == guid && m->aux[i].port == port &&
            m->aux[i].outcome == PROBE_OK) {
            return 1;
        }
    }
    return 0;
}

/* Whether that port, of another host or of this one, took part in a probe of ours that was
 * answered. */
static int own_probe_ok(const struct r2_inst *inst, const struct r2_case *k, uint64_t guid,
                        uint8_t port)
{
    for (int i = 0; i < k->probes.n_aux; i++) {
        if (guid && k->probes.aux[i].guid == guid && k->probes.aux[i].peer_port == port &&
            k->probes.aux[i].outcome == PROBE_OK) {
            return 1;
        }
    }
    for (int i = 0; i < k->probes.n_more; i++) {
        const struct ib_nic *ours = &inst->nics.nic[k->probes.more[i].nic];
        int is_it = (k->probes.more[i].guid == guid && k->probes.more[i].peer_port == port) ||
                    (ours->guid == guid && ours->port == port);

        if (guid && is_it && k->probes.more[i].outcome == PROBE_OK) {
            return 1;
        }
    }
    return 0;
}

/*
 * A single silent auxiliary port may be broken itself. It is not when it answers somebody else; and
 * where the other end reaches nobody either, one cause is likelier than three. Then it counts in
 * full.
 */
static void weigh_aux(const struct r2_inst *inst, struct r2_case *k)
{
    struct probe_end *l = &k->facts.local, *r = &k->facts.remote;
    int nobody = failed(l->aux) && failed(r->aux), r_alive = nobody;
    int l_alive = nobody || r2_locate_aux_reaches_others(inst, k);

    for (int i = 0; i < k->probes.n_aux; i++) {
        const struct r2_case_probe *a = &k->probes.aux[i];

        l_alive |= r2_locate_is_silent(inst, a->outcome, a->guid, a->peer_port) &&
                   (peer_probe_ok(&k->theirs.report, a->guid, a->peer_port) ||
                    own_probe_ok(inst, k, a->guid, a->peer_port));
    }
    for (int i = 0; i < k->theirs.report.n_aux; i++) {
        const struct fo_locate_aux *a = &k->theirs.report.aux[i];

        r_alive |= r2_locate_is_silent(inst, a->outcome, a->guid, a->port) &&
                   own_probe_ok(inst, k, a->guid, a->port);
    }
    if (l_alive && l->aux_n < PROBE_SEVERAL) {
        l->aux_n = PROBE_SEVERAL;
    }
    if (r_alive && r->aux_n < PROBE_SEVERAL) {
        r->aux_n = PROBE_SEVERAL;
    }
}

/* An answer to either end proves the pair; else what either of them has found counts. */
static uint8_t both(uint8_t here, uint8_t there)
{
    return here == PROBE_OK || there == PROBE_OK ? PROBE_OK : here != PROBE_NA ? here : there;
}

static void add_up(struct r2_inst *inst, struct r2_case *k)
{
    r2_locate_take_stock(inst, k);
    k->facts.peer = k->peer->refused_since                                ? PROBE_ERROR
                    : k->theirs.heard || k->peer->last_contact > k->since ? PROBE_OK
                                                                          : PROBE_TIMEOUT;
    if (k->facts.peer == PROBE_TIMEOUT) {
        r2_locate_peer_silent(inst, k);
    }
    if (k->theirs.complete) {
        k->facts.remote = r2_locate_far_end(inst, &k->theirs.report);
        k->facts.direct = both(k->facts.direct, k->theirs.report.direct);
        weigh_aux(inst, k);
        k->theirs.in_facts = 1;
    }
    k->found = probe_verdict(&k->facts).blame;
}

/*
 * What is blamed for silence alone: the answers that speak for all else may have come when a link,
 * or a switch, was back already that had been away for a moment. The pair is probed once more
 * before that is said.
 */
static bool is_silence(const struct r2_case *k)
{
    switch ((enum probe_blame)k->found) {
    case PROBE_BLAME_LOCAL_LINK:
        return k->facts.local.port != PROBE_PORT_DOWN;
    case PROBE_BLAME_REMOTE_LINK:
        return k->facts.remote.port != PROBE_PORT_DOWN;
    default:
        return k->found == PROBE_BLAME_PATH;
    }
}

static void confirm(struct r2_inst *inst, struct r2_case *k, uint64_t clock)
{
    struct r2_pair *pair = r2_pair_find(inst, k->peer, k->nic, k->peer_nic);

    k->confirm.on = 1;
    if (pair) {
        k->confirm.answers = pair->probe.answers;
        r2_pair_send_probe(pair, clock, 0);
    }
}

/* Whether it has answered. */
static int confirmed_well(const struct r2_inst *inst, const struct r2_case *k)
{
    const struct r2_pair *pair =
        k->confirm.on ? r2_pair_find(inst, k->peer, k->nic, k->peer_nic) : NULL;

    return pair && pair->probe.answers != k->confirm.answers;
}

/* 1: it is held, perhaps once more. */
static int hold_back(struct r2_inst *inst, struct r2_case *k, uint64_t clock)
{
    if (r2_rule(R2_RULE_ASK_AGAIN) && is_silence(k) && !k->confirm.on) {
        k->until.held = clock + MOMENT_NS;
        confirm(inst, k, clock);
    } else if (k->found == PROBE_BLAME_UNKNOWN && k->state == R2_CASE_WAITING) {
        k->until.held = r2_locate_open(inst, k) ? k->opened + HELD_MOST : clock + HELD_NS;
    } else {
        return 0;
    }
    if (k->state == R2_CASE_WAITING) {
        case_move(k, R2_CASE_HELD);
    }
    return 1;
}

static void decide(struct r2_inst *inst, struct r2_case *k, uint64_t clock)
{
    if (confirmed_well(inst, k)) {
        r2_locate_direct_set(inst, k, PROBE_OK);
    }
    add_up(inst, k);
    if (hold_back(inst, k, clock)) {
        return;
    }
    case_move(k, R2_CASE_DECIDED);
    k->until.kept = clock + KEPT_NS;
    r2_verdict_announce(inst, k);
}

/* What a port says of itself needs nobody else's report. */
static int settled_here(const struct r2_case *k)
{
    return k->facts.local.port != PROBE_PORT_UP && k->facts.local.port != PROBE_PORT_NA;
}

/* A process that refuses and that no connection misses has ended in order: nobody waits for the
 * verdict, and what does not answer from now on went with it. */
static bool has_left(const struct r2_peer *peer)
{
    return peer->refused_since && !r2_peer_is_missed(peer);
}

static int step(struct r2_inst *inst, struct r2_case *k, uint64_t clock, uint64_t now)
{
    if (k->state != R2_CASE_DECIDED && has_left(k->peer)) {
        case_move(k, R2_CASE_FREE);
        return 0;
    }
    if (k->state == R2_CASE_PROBING && r2_locate_gather(inst, k, clock)) {
        case_move(k, R2_CASE_WAITING);
        k->send.at = 0;
    }
    if (k->state == R2_CASE_WAITING && (k->theirs.complete || clock >= k->theirs.until ||
                                        k->peer->refused_since || settled_here(k))) {
        send_case(inst, k, now); /* it may still wait for ours */
        decide(inst, k, clock);
    }
    if (k->state == R2_CASE_HELD &&
        (clock >= k->until.held || (k->theirs.complete && !k->theirs.in_facts) ||
         confirmed_well(inst, k) || r2_locate_late(inst, k))) {
        decide(inst, k, clock);
    }
    if (k->state == R2_CASE_DECIDED && clock >= k->until.kept) {
        case_move(k, R2_CASE_FREE);
        return 0;
    }
    if (k->state == R2_CASE_DECIDED ? k->theirs.requested
                                    : (now >= k->send.at || k->theirs.requested)) {
        send_case(inst, k, now);
    }
    return k->state != R2_CASE_DECIDED;
}

void r2_locate_drop(struct r2_inst *inst, const struct r2_peer *peer)
{
    r2_verdict_forget(inst, peer);
    for (int i = 0; i < R2_CASES; i++) {
        struct r2_case *k = &inst->diagnosis.cases[i];

        if (k->state == R2_CASE_FREE) {
            continue;
        }
        if (k->peer == peer) {
            case_move(k, R2_CASE_FREE);
            continue;
        }
        r2_locate_probe_drop(k, peer);
    }
}

/* --- good again --- */

void r2_locate_speaks(struct r2_inst *inst, struct r2_peer *peer)
{
    struct probe_subject s = r2_subject_process(inst, peer);

    if (peer->gossip.blamed) {
        peer->gossip.blamed_until = r2_now(inst);
    }
    peer->gossip.blamed = 0;
    r2_gossip_clear(inst, &s);
}

void r2_locate_back(struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic)
{
    r2_verdict_forget_pair(inst, peer, nic, peer_nic); /* what fails from now on is another fault */
}

/* --- facts --- */

static void nic_failed(struct r2_inst *inst, int nic, enum ib_fault fault)
{
    struct r2_case k = {.nic = (uint8_t)nic, .fault = fault, .since = r2_now(inst)};

    k.facts.local.port = (uint8_t)r2_locate_port(inst, nic);
    r2_verdict_announce(inst, &k);
}

static void port_up(struct r2_inst *inst, int nic)
{
    struct probe_subject s = r2_subject_nic(inst, nic);

    r2_gossip_clear(inst, &s);
}

/* Both NICs, both links and the way between them carry work. */
static void pair_good(const struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;
    struct probe_subject s[3] = {r2_subject_nic(inst, pair->nic), r2_subject_remote(pair),
                                 r2_subject_path(inst, pair)};

    for (int i = 0; i < (pair->far.guid ? 3 : 1); i++) {
        r2_gossip_clear(inst, &s[i]);
    }
    r2_locate_back(inst, pair->peer, pair->nic, pair->peer_nic);
}

/* A driver that answers with errors blames nothing: what broke, if anything did, is probed as after
 * any failed call. */
static void on_nic(struct r2_inst *inst, int nic, enum r2_nic_change change)
{
    if (change == R2_NIC_UP) {
        port_up(inst, nic);
    } else if (change == R2_NIC_DOWN || change == R2_NIC_FATAL) {
        nic_failed(inst, nic, change == R2_NIC_DOWN ? IB_FAULT_PORT : IB_FAULT_DEVICE);
    }
}

static void on_pair(struct r2_pair *pair, enum r2_pair_verdict verdict, uint64_t ns)
{
    if (verdict == R2_PAIR_GOOD) {
        pair_good(pair);
    }
}

static void on_peer_silent(struct r2_inst *inst, struct r2_peer *peer)
{
    r2_locate_peer(inst, peer, PROBE_TIMEOUT);
}

/* Takes what has come in. */
static void on_watch(struct r2_inst *inst, uint64_t now, uint64_t tick)
{
    uint64_t clock = inst->watch.clock;
    int open = r2_loopbacks_watch(inst, clock);

    for (int i = 0; i < R2_CASES; i++) {
        if (inst->diagnosis.cases[i].state != R2_CASE_FREE) {
            open |= step(inst, &inst->diagnosis.cases[i], clock, now);
        }
    }
    inst->watch.probing |= open;
}

const struct r2_subscriber r2_locate_subscriber = {
    .on_nic = on_nic, .on_pair = on_pair, .on_peer_silent = on_peer_silent, .on_watch = on_watch};

int r2_locate_init(struct r2_inst *inst)
{
    inst->diagnosis.cases = calloc(R2_CASES, sizeof(*inst->diagnosis.cases));
    return inst->diagnosis.cases ? 0 : -1;
}
