#include "r2_gossip.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_notify.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_probation.h"
#include "probe/health/r2_watch.h"
#include "probe/probe_verdict.h"
#include "r2_verdict.h"

#define SAY_MOST 20 /* x T_repeat */

/* --- subjects --- */

struct probe_subject r2_subject_nic(const struct r2_inst *inst, int nic)
{
    return (struct probe_subject){.a = inst->nics.nic[nic].guid, .pa = inst->nics.nic[nic].port};
}

struct probe_subject r2_subject_remote(const struct r2_pair *pair)
{
    return (struct probe_subject){.a = pair->far.guid, .pa = pair->far.port};
}

struct probe_subject r2_subject_path(const struct r2_inst *inst, const struct r2_pair *pair)
{
    struct probe_subject l = r2_subject_nic(inst, pair->nic), r = r2_subject_remote(pair);
    int first = l.a < r.a || (l.a == r.a && l.pa < r.pa);

    return first ? (struct probe_subject){.a = l.a, .pa = l.pa, .b = r.a, .pb = r.pa}
                 : (struct probe_subject){.a = r.a, .pa = r.pa, .b = l.a, .pb = l.pa};
}

struct probe_subject r2_subject_process(const struct r2_inst *inst, const struct r2_peer *peer)
{
    const uint64_t *uuid = inst->oob->ops->peer_uuid(peer->oob);

    return (struct probe_subject){
        .a = uuid[0], .pa = PROBE_GOSSIP_PROCESS, .b = uuid[1], .pb = PROBE_GOSSIP_PROCESS};
}

static int same(const struct probe_subject *x, const struct probe_subject *y)
{
    return x->a == y->a && x->pa == y->pa && x->b == y->b && x->pb == y->pb;
}

/* Whether what is said of @s concerns @pair. */
static int concerns(const struct r2_inst *inst, const struct probe_subject *s,
                    const struct r2_pair *pair)
{
    struct probe_subject local = r2_subject_nic(inst, pair->nic), remote = r2_subject_remote(pair),
                         path = r2_subject_path(inst, pair);

    return same(s, &local) || (pair->far.guid && (same(s, &remote) || same(s, &path)));
}

/* --- the table --- */

int r2_gossip_open(struct r2_inst *inst)
{
    inst->diagnosis.gossip = malloc(sizeof(*inst->diagnosis.gossip));
    if (inst->diagnosis.gossip == NULL) {
        return -1;
    }
    probe_gossip_init(inst->diagnosis.gossip);
    return 0;
}

void r2_gossip_close(struct r2_inst *inst)
{
    free(inst->diagnosis.gossip);
    inst->diagnosis.gossip = NULL;
}

void r2_gossip_join(struct r2_inst *inst, struct r2_peer *peer, const char *host)
{
    uint64_t taken[PROBE_GOSSIP_NEIGHBOURS / 64] = {0};

    snprintf(peer->host, sizeof(peer->host), "%s", host);
    if (peer->gossip.no >= 0) {
        return;
    }
    for (const struct r2_peer *p = inst->index.peers; p; p = p->next) {
        if (p != peer && p->gossip.no >= 0) {
            taken[p->gossip.no / 64] |= 1ull << (p->gossip.no % 64);
        }
    }
    for (int i = 0; i < PROBE_GOSSIP_NEIGHBOURS; i++) {
        if (!(taken[i / 64] >> (i % 64) & 1)) {
            peer->gossip.no = i;
            probe_gossip_join(inst->diagnosis.gossip, i);
            return;
        }
    }
    if (!inst->diagnosis.crowded) {
        inst->diagnosis.crowded = 1;
        R2_INFO(
            "more than %d peer processes: the others are notified of NIC failures by their neighbours",
            PROBE_GOSSIP_NEIGHBOURS);
    }
}

void r2_gossip_leave(struct r2_inst *inst, struct r2_peer *peer)
{
    if (peer->gossip.no >= 0) {
        probe_gossip_leave(inst->diagnosis.gossip, peer->gossip.no);
    }
}

/* Something is new: every neighbour is notified now. */
static void spread(struct r2_inst *inst)
{
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        p->gossip.repeat.at = 0;
        p->gossip.repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    }
    r2_inst_wake(inst);
}

static void apply_avoid(struct r2_inst *inst, const struct r2_peer *peer)
{
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->list.all_next) {
        if (c->peer && (peer == NULL || c->peer == peer) &&
            atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
            r2_comm_visit(c);
            R2_NOTIFY(inst, on_advice, c);
            r2_comm_unvisit(c);
        }
    }
}

/* What avoided it need not any more; what waits for it asks now. */
static void good_again(struct r2_inst *inst, const struct probe_report *w)
{
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->peer && concerns(inst, &w->subject, pair)) {
            pair->avoid = 0;
            r2_probation_on_good_report(pair);
        }
    }
    apply_avoid(inst, NULL);
    r2_verdict_over(inst, &w->subject);
}

int r2_gossip_publish(struct r2_inst *inst, struct probe_report *w)
{
    const struct probe_report *known = probe_gossip_find(inst->diagnosis.gossip, &w->subject);

    if (known && known->blame == w->blame) {
        return 0;
    }
    w->origin = inst->diagnosis.origin;
    probe_gossip_next_version(inst->diagnosis.gossip, w);
    probe_gossip_put(inst->diagnosis.gossip, w, -1);
    R2_NOTIFY(inst, on_report, inst, w, R2_REPORT_SELF, NULL);
    spread(inst);
    return 1;
}

int r2_gossip_clear(struct r2_inst *inst, const struct probe_subject *s)
{
    const struct probe_report *known = probe_gossip_find(inst->diagnosis.gossip, s);
    struct probe_report w;

    if (known == NULL || known->blame == PROBE_BLAME_NONE) {
        return 0;
    }
    w = *known;
    w.blame = PROBE_BLAME_NONE;
    w.confidence = 100;
    if (!r2_gossip_publish(inst, &w)) {
        return 0;
    }
    good_again(inst, &w);
    return 1;
}

/* --- hearing --- */

/* It is new here. Own pairs decide about own work: they are probed now. */
static void heard(struct r2_inst *inst, const struct probe_report *w, enum r2_report_from from,
                  const char *who)
{
    int bad = w->blame != PROBE_BLAME_NONE;

    R2_INFO("news from %s: %s %s: %s", who, w->host, w->nic,
            bad ? probe_blame_name(probe_blame_mirror(w->blame)) : "good again");
    if (!bad) {
        good_again(inst, w);
    }
    for (struct r2_pair *pair = inst->index.pairs; pair && bad; pair = pair->next) {
        if (pair->peer && concerns(inst, &w->subject, pair)) {
            r2_watch_probe(pair);
        }
    }
    R2_NOTIFY(inst, on_report, inst, w, from, who);
    spread(inst);
}

static void confirm(struct r2_inst *inst, struct r2_peer *peer, const struct probe_report *w)
{
    union fo_body b;

    memset(&b, 0, sizeof(b));
    b.report_ok =
        (struct fo_report_ok){.subject = w->subject, .version = w->version, .origin = w->origin};
    r2_peer_emit(inst, peer, FO_MSG_REPORT_OK, &b);
}

void r2_gossip_on_report(struct r2_inst *inst, struct r2_peer *peer, const struct probe_report *w)
{
    int fresh = probe_gossip_put(inst->diagnosis.gossip, w, peer->gossip.no);

    confirm(inst, peer, w);
    if (fresh) {
        heard(inst, w, R2_REPORT_PEER,
              peer->host[0] ? peer->host : inst->oob->ops->peer_str(peer->oob));
    } else {
        peer->gossip.repeat.at = 0; /* ours may be newer */
    }
}

void r2_gossip_on_ok(struct r2_inst *inst, struct r2_peer *peer, const struct fo_report_ok *m)
{
    int i = 0;

    if (peer->gossip.no >= 0) {
        probe_gossip_sent(inst->diagnosis.gossip, peer->gossip.no, &m->subject, m->version,
                          m->origin);
    }
    if (peer->gossip.no >= 0 && peer->gossip.more &&
        probe_gossip_unsent(inst->diagnosis.gossip, peer->gossip.no, &i)) {
        peer->gossip.repeat.at = 0; /* there was no room for it the last time */
    }
}

void r2_gossip_heard(struct r2_inst *inst, const struct probe_report *w, const char *who)
{
    if (probe_gossip_put(inst->diagnosis.gossip, w, -1)) {
        heard(inst, w, R2_REPORT_HOST, who);
    }
}

/* --- saying --- */

uint64_t r2_gossip_send(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    uint64_t most = SAY_MOST * (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    const struct probe_report *w;
    int i = 0, n = 0;

    if (peer->gossip.no < 0 ||
        probe_gossip_unsent(inst->diagnosis.gossip, peer->gossip.no, &i) == NULL) {
        return UINT64_MAX;
    }
    if (now < peer->gossip.repeat.at) {
        return peer->gossip.repeat.at;
    }
    i = 0;
    while (n < R2_GOSSIP_AT_ONCE &&
           (w = probe_gossip_unsent(inst->diagnosis.gossip, peer->gossip.no, &i)) != NULL) {
        union fo_body b;

        memset(&b, 0, sizeof(b));
        b.report = *w;
        r2_peer_emit(inst, peer, FO_MSG_REPORT, &b);
        n++;
    }
    if (peer->gossip.repeat.interval == 0) {
        peer->gossip.repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    }
    peer->gossip.more = n == R2_GOSSIP_AT_ONCE;
    peer->gossip.repeat.at = now + peer->gossip.repeat.interval;
    peer->gossip.repeat.interval =
        2 * peer->gossip.repeat.interval < most ? 2 * peer->gossip.repeat.interval : most;
    return peer->gossip.repeat.at;
}

/* --- what it is good for --- */

static int blamed(const struct r2_inst *inst, const struct r2_pair *pair)
{
    struct probe_subject s[3] = {r2_subject_nic(inst, pair->nic), r2_subject_remote(pair),
                                 r2_subject_path(inst, pair)};

    for (int i = 0; i < (pair->far.guid ? 3 : 1); i++) {
        const struct probe_report *w = probe_gossip_find(inst->diagnosis.gossip, &s[i]);

        if (w && w->blame != PROBE_BLAME_NONE) {
            return 1;
        }
    }
    return 0;
}

uint32_t r2_gossip_avoid(const struct r2_comm *c)
{
    uint32_t mask = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        struct r2_pair *pair =
            r2_pair_find(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);

        if (pair && pair->probe.last_ok == 0 && blamed(c->inst, pair)) {
            pair->avoid = 1;
            r2_watch_probe(pair); /* the answer ends it, or the silence ends the incarnation */
        }
        mask |= (uint32_t)(pair && pair->avoid) << p;
    }
    return mask;
}

/* Some path over @pair was up after its connection's last step. */
static int in_use(const struct r2_pair *pair)
{
    for (struct r2_comm *c = pair->peer ? pair->peer->comms : NULL; c; c = c->list.peer_next) {
        for (uint32_t m = c->shown.up; m; m &= m - 1) {
            const struct ib_path *path = &c->conn.path[__builtin_ctz(m)];

            if (path->nic == pair->nic && path->peer_nic == pair->peer_nic) {
                return 1;
            }
        }
    }
    return 0;
}

/* Some path over what @s names is down and returns when its pair is good: it neither waits for the
 * administrator nor is drained. */
static bool is_missed(struct r2_inst *inst, const struct probe_subject *s)
{
    for (struct r2_comm *c = r2_comm_first(inst); c && inst->cfg.failback != R2_FAILBACK_NEVER;
         c = c->list.all_next) {
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE ||
            atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            const struct ib_path *path = &c->conn.path[p];
            int stays = (c->shown.up | c->shown.out) >> p & 1 || r2_drain_has(c, p);
            const struct r2_pair *pair =
                stays ? NULL : r2_pair_find(inst, c->peer, path->nic, path->peer_nic);

            if (pair && concerns(inst, s, pair)) {
                return 1;
            }
        }
    }
    return 0;
}

/*
 * Own reports, unless a path waits for the pair to answer for longer: the receiver alone asks for
 * how long, and the sender may have found it out. Where a queue pair has answered that was made
 * since, for a connection that works, whoever's they are: who said it may be gone, and then nobody
 * would take it back, and what fails next would pass for known.
 */
static void answered(struct r2_pair *pair, int first)
{
    struct r2_inst *inst = pair->inst;
    struct probe_subject s[3] = {r2_subject_nic(inst, pair->nic), r2_subject_remote(pair),
                                 r2_subject_path(inst, pair)};

    if (pair->avoid && pair->peer) {
        pair->avoid = 0;
        apply_avoid(inst, pair->peer);
    }
    for (int i = 0; !pair->probation.interest && i < (pair->far.guid ? 3 : 1); i++) {
        const struct probe_report *w = probe_gossip_find(inst->diagnosis.gossip, &s[i]);
        int mine = w && w->origin == inst->diagnosis.origin;

        if (w && w->blame != PROBE_BLAME_NONE &&
            ((mine && !is_missed(inst, &s[i])) || ((mine || first) && in_use(pair)))) {
            r2_gossip_clear(inst, &s[i]);
        }
    }
}

bool r2_gossip_port_is_blamed(const struct r2_inst *inst, uint64_t guid, uint8_t port)
{
    struct probe_subject s = {.a = guid, .pa = port};
    const struct probe_report *w = guid ? probe_gossip_find(inst->diagnosis.gossip, &s) : NULL;

    return w && w->blame != PROBE_BLAME_NONE;
}

int r2_gossip_blamed(const struct r2_pair *pair)
{
    return blamed(pair->inst, pair);
}

const struct probe_report *r2_gossip_reason(const struct r2_pair *pair, enum r2_gossip_place *place)
{
    const struct r2_inst *inst = pair->inst;
    const struct {
        enum r2_gossip_place place;
        struct probe_subject subject;
    } row[] = {{R2_GOSSIP_HERE, r2_subject_nic(inst, pair->nic)},
               {R2_GOSSIP_THERE, r2_subject_remote(pair)},
               {R2_GOSSIP_THERE, r2_subject_process(inst, pair->peer)},
               {R2_GOSSIP_BETWEEN, r2_subject_path(inst, pair)}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        const struct probe_report *w = probe_gossip_find(inst->diagnosis.gossip, &row[i].subject);

        if (w && w->blame != PROBE_BLAME_NONE) {
            *place = row[i].place;
            return w;
        }
    }
    return NULL;
}

int r2_gossip_peer_blamed(const struct r2_inst *inst, const struct r2_peer *peer)
{
    struct probe_subject s = r2_subject_process(inst, peer);
    const struct probe_report *w = probe_gossip_find(inst->diagnosis.gossip, &s);

    return w && w->blame != PROBE_BLAME_NONE;
}

int r2_gossip_about(const struct probe_subject *s, const struct r2_pair *pair)
{
    struct probe_subject process = r2_subject_process(pair->inst, pair->peer);

    return same(s, &process) || concerns(pair->inst, s, pair);
}

static void on_pair(struct r2_pair *pair, enum r2_pair_verdict verdict, uint64_t ns)
{
    if (verdict == R2_PAIR_ANSWERED || verdict == R2_PAIR_FIRST) {
        answered(pair, verdict == R2_PAIR_FIRST);
    }
}

const struct r2_subscriber r2_gossip_subscriber = {.on_pair = on_pair};
