#include "r2_locate_probe.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_rules.h"
#include "core/r2_inst.h"
#include "probe/health/r2_counters.h"
#include "probe/health/r2_cross.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_loopback.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_watch.h"
#include "r2_gossip.h"

#define OWN_MIN R2_MS(250) /* own probes; longer where the probes' own limits are */
#define OWN_MAX                                                                                    \
    R2_MS(2000) /* what the pair of a busy NIC has not answered by then may come later: HELD_MOST  \
                in r2_locate.c */
#define ASKED_NS R2_MS(1000) /* a pair that was given up within that time has been probed */
#define TOGETHER_NS                                                                                \
    R2_MS(1000) /* two pairs whose last signs of life, or whose cases, lie no further apart failed \
                   at the same time */

enum probe_port r2_locate_port(const struct r2_inst *inst, int nic)
{
    switch (ib_nic_state_get(&inst->nics.nic[nic])) {
    case IB_NIC_UP:
        return PROBE_PORT_UP;
    case IB_NIC_DOWN:
        return inst->nics.nic[nic].failing
                   ? PROBE_PORT_NA
                   : PROBE_PORT_DOWN; /* one that cannot be read is not known */
    default:
        return PROBE_PORT_GONE;
    }
}

static struct r2_pair *pair_of(const struct r2_inst *inst, const struct r2_case_probe *a)
{
    return r2_pair_find(inst, a->peer, a->nic, a->peer_nic);
}

static void own_probe_end(struct r2_case_probe *a, enum probe_outcome outcome)
{
    a->outcome = (uint8_t)outcome;
    a->ended = 1;
}

/*
 * Asks as the watchdog does: a pair that does not answer is given up, here as anywhere. One that
 * was given up within this incident has been probed already; one that is being made anew, often
 * because the other end has given it up for the same fault, is probed as soon as it stands; one
 * that never stood cannot be.
 */
static void own_probe_begin(const struct r2_case *k, struct r2_case_probe *a, struct r2_pair *pair)
{
    *a = (struct r2_case_probe){.peer = pair->peer,
                                .nic = pair->nic,
                                .peer_nic = pair->peer_nic,
                                .guid = pair->far.guid,
                                .peer_port = pair->far.port,
                                .answers = pair->probe.answers};
    snprintf(a->host, sizeof(a->host), "%s", pair->peer->host);
    if (r2_locate_port(pair->inst, pair->nic) == PROBE_PORT_GONE) {
        own_probe_end(a, PROBE_NA); /* not touched any more */
    } else if (r2_pair_ready(pair)) {
        r2_watch_probe(pair);
    } else if (pair->probe.silent_at && pair->probe.silent_at + ASKED_NS >= k->opened) {
        own_probe_end(a, PROBE_TIMEOUT);
    } else if (pair->probe.answers && pair->build.state != R2_PAIR_BROKEN &&
               pair->build.state != R2_PAIR_DEAD) {
        r2_watch_probe(pair);
    } else {
        a->alone = pair->probe.unanswered;
        own_probe_end(a, PROBE_NA);
    }
}

static void own_probe_poll(struct r2_inst *inst, const struct r2_case *k, struct r2_case_probe *a,
                           uint64_t clock)
{
    struct r2_pair *pair = a->ended ? NULL : pair_of(inst, a);

    if (a->ended) {
        return;
    }
    if (pair == NULL) {
        own_probe_end(a, PROBE_NA);
    } else if (pair->probe.answers != a->answers) {
        own_probe_end(a, PROBE_OK);
    } else if (pair->probe.silent_at >= k->opened && pair->probe.silent_at) {
        own_probe_end(a, PROBE_TIMEOUT);
    } else if (clock >= k->until.own) {
        a->alone = r2_pair_is_probing(pair) || pair->probe.unanswered;
        own_probe_end(a, PROBE_NA);
    }
}

static int same_host(const struct r2_case *k, const struct r2_pair *pair)
{
    return strcmp(pair->peer->host, k->peer->host) == 0;
}

/* A cross pair that has never answered tells nothing: its rails need not reach each other. */
static int tells(const struct r2_pair *pair)
{
    return pair->probe.answers || r2_cross_carries(pair);
}

/* Remote ports other than those of the pair's own card, those of third hosts first. */
static void probe_aux(struct r2_inst *inst, struct r2_case *k)
{
    for (int round = 0; round < 2; round++) {
        for (struct r2_pair *pair = inst->index.pairs; pair && k->probes.n_aux < R2_CASE_AUX;
             pair = pair->next) {
            int same_card = pair->peer && pair->far.guid == k->peer_guid &&
                            (k->peer_guid || pair->peer == k->peer);

            if (pair->peer && pair->nic == k->nic && same_host(k, pair) == round && !same_card &&
                tells(pair)) {
                own_probe_begin(k, &k->probes.aux[k->probes.n_aux++], pair);
            }
        }
    }
}

/* One of its ports is an auxiliary one, of ours or of the peer's: an answer over @pair shows that
 * this port is well. */
static int vouches(const struct r2_inst *inst, const struct r2_case *k, const struct r2_pair *pair)
{
    const struct r2_pair *ours = r2_pair_find(inst, k->peer, k->nic, pair->peer_nic),
                         *theirs = r2_pair_find(inst, k->peer, pair->nic, k->peer_nic);

    return (ours && tells(ours)) || (theirs && tells(theirs));
}

/* Other pairs of the two processes: those that carry connections first, and of these those that
 * vouch for an auxiliary port. */
static void probe_more(struct r2_inst *inst, struct r2_case *k)
{
    for (int round = 0; round < 3; round++) {
        for (struct r2_pair *pair = inst->index.pairs; pair && k->probes.n_more < R2_CASE_MORE;
             pair = pair->next) {
            const struct r2_case_probe *had = k->probes.n_more ? &k->probes.more[0] : NULL;
            int carries = r2_cross_carries(pair);

            if (pair->peer == k->peer && pair->nic != k->nic && pair->peer_nic != k->peer_nic &&
                (had == NULL || (pair->nic != had->nic && pair->peer_nic != had->peer_nic)) &&
                (round == 0   ? carries && vouches(inst, k, pair)
                 : round == 1 ? carries
                              : tells(pair))) {
                own_probe_begin(k, &k->probes.more[k->probes.n_more++], pair);
            }
        }
    }
}

uint64_t r2_locate_limit(const struct r2_inst *inst, const struct r2_pair *pair)
{
    uint64_t probe = pair && pair->probe.limit ? pair->probe.limit : R2_MS(inst->cfg.t_probe_ms);

    return 4 * probe < OWN_MIN ? OWN_MIN : 4 * probe < OWN_MAX ? 4 * probe : OWN_MAX;
}

void r2_locate_probe(struct r2_inst *inst, struct r2_case *k, struct r2_pair *pair)
{
    k->probes.direct =
        (struct r2_case_probe){.peer = k->peer, .nic = k->nic, .peer_nic = k->peer_nic};
    if (pair == NULL) {
        own_probe_end(&k->probes.direct, PROBE_NA);
    } else {
        own_probe_begin(k, &k->probes.direct, pair);
    }
    k->loopback.probes = inst->diagnosis.loop[k->nic].questions;
    r2_loopback_probe(inst, k->nic, inst->watch.clock, r2_locate_limit(inst, pair) / 2);
    probe_aux(inst, k);
    probe_more(inst, k);
    r2_counters_request(inst, k->nic); /* behind all that somebody waits for */
}

/* @asked: how many there are that do not fail together; with @by_host those of one host count once.
 */
static uint8_t any(const struct r2_case_probe *a, int n, int by_host, uint8_t *asked)
{
    uint8_t best = PROBE_NA;

    *asked = 0;
    for (int i = 0; i < n; i++) {
        int again = 0;

        for (int j = 0; by_host && j < i; j++) {
            again |= a[j].outcome != PROBE_NA && strcmp(a[j].host, a[i].host) == 0;
        }
        *asked += a[i].outcome != PROBE_NA && !again;
        if (a[i].outcome == PROBE_OK) {
            best = PROBE_OK;
        } else if (a[i].outcome != PROBE_NA && best == PROBE_NA) {
            best = a[i].outcome;
        }
    }
    return best;
}

/* A process that says nothing at all does not say that its queue pairs are in order: what did not
 * answer counts as silent, for it or its host may be gone. */
static void count_alone(struct r2_case_probe *a, int n, const struct r2_peer *peer)
{
    for (int i = 0; i < n; i++) {
        if (a[i].alone && a[i].peer == peer) {
            a[i].outcome = PROBE_TIMEOUT;
        }
    }
}

/* When a pair last gave a sign of life: an answer, or a send that completed. Clock of the watch,
 * ns; 0: never. */
static uint64_t alive_at(const struct r2_pair *pair)
{
    uint64_t done = pair ? r2_load_done_at(pair) : 0;

    return pair && pair->probe.last_ok > done ? pair->probe.last_ok : done;
}

/*
 * Whether @a is silent since the pair of @k is. One other pair that is silent may have been broken
 * for long, unseen, as nothing was sent over it; one that worked until the same second has the same
 * cause.
 */
static bool has_failed_together(const struct r2_inst *inst, const struct r2_case *k,
                                const struct r2_case_probe *a)
{
    uint64_t here, there;

    if (a->peer == NULL || a->outcome != PROBE_TIMEOUT) {
        return 0;
    }
    here = alive_at(pair_of(inst, &k->probes.direct));
    there = alive_at(pair_of(inst, a));
    return here && there && (here > there ? here - there : there - here) <= TOGETHER_NS;
}

/* The pair of @a has a case that was opened with @k, in which its other end reports that it reaches
 * others. */
static bool reaches_others(const struct r2_inst *inst, const struct r2_case *k,
                           const struct r2_case_probe *a)
{
    for (int i = 0; i < R2_CASES; i++) {
        const struct r2_case *o = &inst->diagnosis.cases[i];
        uint64_t apart = o->opened > k->opened ? o->opened - k->opened : k->opened - o->opened;

        if (o->state != R2_CASE_FREE && o->peer == a->peer && o->nic == a->nic &&
            o->peer_nic == a->peer_nic && apart <= TOGETHER_NS && o->theirs.complete &&
            o->theirs.report.end.aux == PROBE_OK) {
            return true;
        }
    }
    return false;
}

bool r2_locate_aux_reaches_others(const struct r2_inst *inst, const struct r2_case *k)
{
    for (int i = 0; i < k->probes.n_aux; i++) {
        const struct r2_case_probe *a = &k->probes.aux[i];

        if (a->peer && r2_locate_is_silent(inst, a->outcome, a->guid, a->peer_port) &&
            reaches_others(inst, k, a)) {
            return true;
        }
    }
    return false;
}

bool r2_locate_is_silent(const struct r2_inst *inst, uint8_t outcome, uint64_t guid, uint8_t port)
{
    return (outcome == PROBE_TIMEOUT || outcome == PROBE_ERROR) &&
           !r2_gossip_port_is_blamed(inst, guid, port);
}

/* Those that are evidence. */
static int aux_that_counts(const struct r2_inst *inst, const struct r2_case *k,
                           struct r2_case_probe out[R2_CASE_AUX])
{
    int n = 0;

    for (int i = 0; i < k->probes.n_aux; i++) {
        const struct r2_case_probe *a = &k->probes.aux[i];

        if (a->outcome == PROBE_OK ||
            r2_locate_is_silent(inst, a->outcome, a->guid, a->peer_port)) {
            out[n++] = *a;
        }
    }
    return n;
}

void r2_locate_take_stock(const struct r2_inst *inst, struct r2_case *k)
{
    struct r2_case_probe aux[R2_CASE_AUX];
    int n_aux = aux_that_counts(inst, k, aux);

    k->facts.direct = k->probes.direct.outcome;
    k->facts.local.aux = any(aux, n_aux, 1, &k->facts.local.aux_n);
    k->facts.others = any(k->probes.more, k->probes.n_more, 0, &k->facts.others_n);
    for (int i = 0; i < k->probes.n_more && k->facts.others_n < PROBE_SEVERAL; i++) {
        if (has_failed_together(inst, k, &k->probes.more[i])) {
            k->facts.others_n = PROBE_SEVERAL;
        }
    }
}

struct probe_end r2_locate_far_end(const struct r2_inst *inst, const struct fo_locate *m)
{
    struct probe_end end = m->end;
    uint8_t silent = 0;

    for (int i = 0; i < m->n_aux; i++) {
        silent += r2_locate_is_silent(inst, m->aux[i].outcome, m->aux[i].guid, m->aux[i].port);
    }
    if (end.aux == PROBE_TIMEOUT || end.aux == PROBE_ERROR) {
        end.aux_n = end.aux_n < silent ? end.aux_n : silent; /* whose hosts are not known here */
        end.aux = silent ? end.aux : PROBE_NA;
    }
    return end;
}

/* Returns whether it is still open. */
static int own_probe_stamp(struct r2_case_probe *a, uint64_t now)
{
    a->at = a->ended && a->at == 0 ? now : a->at;
    return !a->ended;
}

int r2_locate_gather(struct r2_inst *inst, struct r2_case *k, uint64_t clock)
{
    const struct r2_loopback *l = &inst->diagnosis.loop[k->nic];
    int open = l->questions == k->loopback.probes;
    uint64_t now = r2_now(inst);

    own_probe_poll(inst, k, &k->probes.direct, clock);
    open |= own_probe_stamp(&k->probes.direct, now);
    for (int i = 0; i < k->probes.n_aux; i++) {
        own_probe_poll(inst, k, &k->probes.aux[i], clock);
        open |= own_probe_stamp(&k->probes.aux[i], now);
    }
    for (int i = 0; i < k->probes.n_more; i++) {
        own_probe_poll(inst, k, &k->probes.more[i], clock);
        open |= own_probe_stamp(&k->probes.more[i], now);
    }
    k->facts.local.port = (uint8_t)r2_locate_port(inst, k->nic);
    if (l->questions != k->loopback.probes && k->facts.local.loop == PROBE_NA) {
        k->facts.local.loop = l->outcome;
        k->loopback.at = now;
    }
    r2_locate_take_stock(inst, k);
    return !open || clock >= k->until.own || k->facts.local.port != PROBE_PORT_UP;
}

void r2_locate_peer_silent(const struct r2_inst *inst, struct r2_case *k)
{
    count_alone(&k->probes.direct, 1, k->peer);
    count_alone(k->probes.aux, k->probes.n_aux, k->peer);
    count_alone(k->probes.more, k->probes.n_more, k->peer);
    r2_locate_take_stock(inst, k);
}

void r2_locate_probe_drop(struct r2_case *k, const struct r2_peer *peer)
{
    for (int i = 0; i < k->probes.n_aux; i++) {
        if (k->probes.aux[i].peer == peer) {
            k->probes.aux[i].peer = NULL;
            if (!k->probes.aux[i].ended) {
                own_probe_end(&k->probes.aux[i], PROBE_NA);
            }
        }
    }
}

void r2_locate_direct_set(const struct r2_inst *inst, struct r2_case *k, enum probe_outcome o)
{
    own_probe_end(&k->probes.direct, o);
    k->probes.direct.at = r2_now(inst);
    r2_locate_take_stock(inst, k);
}

/* The pair whose answer @a lacks; NULL: it has one, or that pair is gone. */
static const struct r2_pair *unanswered(const struct r2_inst *inst, const struct r2_case_probe *a)
{
    return a->peer && a->outcome == PROBE_NA ? pair_of(inst, a) : NULL;
}

static bool is_out(const struct r2_inst *inst, const struct r2_case_probe *a, int n,
                   enum r2_rule rule)
{
    for (int i = 0; i < n && r2_rule(rule); i++) {
        const struct r2_pair *pair = unanswered(inst, &a[i]);

        if (pair && r2_pair_is_judged(pair)) {
            return 1;
        }
    }
    return 0;
}

int r2_locate_open(const struct r2_inst *inst, const struct r2_case *k)
{
    return is_out(inst, &k->probes.direct, 1, R2_RULE_LATE_ANSWER) ||
           is_out(inst, k->probes.aux, k->probes.n_aux, R2_RULE_LATE_AUX) ||
           is_out(inst, k->probes.more, k->probes.n_more, R2_RULE_LATE_AUX);
}

/* 1: it has come. */
static int take_late(const struct r2_inst *inst, const struct r2_case *k, struct r2_case_probe *a)
{
    const struct r2_pair *pair = unanswered(inst, a);

    if (pair == NULL) {
        return 0;
    }
    if (pair->probe.answers != a->answers) {
        own_probe_end(a, PROBE_OK);
    } else if (pair->probe.silent_at && pair->probe.silent_at >= k->opened) {
        own_probe_end(a, PROBE_TIMEOUT);
    } else {
        return 0;
    }
    a->at = r2_now(inst);
    return 1;
}

int r2_locate_late(const struct r2_inst *inst, struct r2_case *k)
{
    int n = r2_rule(R2_RULE_LATE_ANSWER) && take_late(inst, k, &k->probes.direct);

    if (n && k->probes.direct.outcome == PROBE_TIMEOUT) {
        k->confirm.on = 1; /* silent when all else had answered */
        k->confirm.answers = pair_of(inst, &k->probes.direct)->probe.answers;
    }
    for (int i = 0; i < k->probes.n_aux && r2_rule(R2_RULE_LATE_AUX); i++) {
        n += take_late(inst, k, &k->probes.aux[i]);
    }
    for (int i = 0; i < k->probes.n_more && r2_rule(R2_RULE_LATE_AUX); i++) {
        n += take_late(inst, k, &k->probes.more[i]);
    }
    if (n) {
        r2_locate_take_stock(inst, k);
    }
    return n != 0;
}
