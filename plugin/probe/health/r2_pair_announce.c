/* What the two ends of a probe queue pair announce to each other (docs/health.md). Service
 * thread. */
#include <stdio.h>
#include <string.h>

#include "core/r2_registry.h"
#include "r2_cross.h"
#include "r2_loopback.h"
#include "r2_pair.h"
#include "r2_pair_int.h"
#include "r2_probation.h"
#include "r2_way_notified.h"

#define SAY_MAX_NS R2_MS(10000)
#define STILL_NS                                                                                   \
    R2_MS(100) /* a probe that is out for longer will not be answered before RC's time-out */

int r2_pair_ready(const struct r2_pair *pair)
{
    return pair->build.state == R2_PAIR_JOINED && pair->announce.peer_for == pair->inc;
}

/* Asked once, in any case. But two ends that ask each other must not answer for ever: what is known
 * is not probed again. */
static int is_answer_wanted(const struct r2_pair *pair)
{
    return !r2_pair_ready(pair) || pair->announce.inquire || pair->probe.state == R2_PROBE_COUNTS ||
           (r2_pair_is_judged(pair) && !pair->probe.announced);
}

static void send_state(struct r2_pair *pair)
{
    const struct ib_nic *nic = &pair->inst->nics.nic[pair->nic];
    union fo_body b;

    memset(&b.probe, 0, sizeof(b.probe));
    b.probe.nic = pair->nic;
    b.probe.peer_nic = pair->peer_nic;
    b.probe.inc = pair->inc;
    b.probe.guid = nic->guid;
    b.probe.port = nic->port;
    snprintf(b.probe.name, sizeof(b.probe.name), "%.*s", FO_NIC_NAME - 1, nic->name);
    if (r2_pair_failed(pair)) {
        b.probe.for_inc = pair->announce.heard;
        b.probe.flags = (uint8_t)(FO_PROBE_LOST | (pair->probe.silent ? FO_PROBE_SILENT : 0));
        b.probe.addr.port.mtu = IBV_MTU_1024;
    } else {
        b.probe.for_inc = pair->build.state == R2_PAIR_JOINED ? pair->announce.peer_inc : 0;
        b.probe.flags = (uint8_t)((is_answer_wanted(pair) ? FO_PROBE_REQUEST : 0) |
                                  (pair->announce.back ? FO_PROBE_BACK : 0) |
                                  (pair->announce.works ? FO_PROBE_WORKS : 0));
        probe_qp_addr_get(&pair->qp, &pair->inst->nics, pair->nic, &b.probe.addr);
        b.probe.addr.way = pair->ways.wish.way[0];
        b.probe.turn = pair->ways.wish.turn;
        if (pair->qp.lane[1].qp) {
            b.probe.alt_qpn = pair->qp.lane[1].qp->qp_num;
            b.probe.alt_psn = pair->qp.lane[1].psn;
            b.probe.alt_way = pair->ways.wish.way[1];
        }
        b.probe.inband_qpn = pair->inband.qp ? pair->inband.qpn : 0;
        b.probe.inband_psn = pair->inband.psn;
        pair->announce.back = pair->announce.works = pair->announce.inquire = 0;
        pair->probe.announced = 1;
    }
    r2_peer_emit(pair->inst, pair->peer, FO_MSG_PROBE, &b);
    pair->announce.answer = 0;
}

void r2_pair_inquire(struct r2_pair *pair)
{
    pair->announce.inquire = pair->announce.answer = 1;
    r2_inst_wake(pair->inst);
}

uint64_t r2_pairs_announce(struct r2_inst *inst, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        int open = pair->build.state == R2_PAIR_OPEN || pair->build.state == R2_PAIR_JOINED;

        int waits = !r2_pair_ready(pair) || pair->probe.state == R2_PROBE_COUNTS;

        if (pair->peer && r2_pair_failed(pair) && pair->announce.answer) {
            send_state(pair);
        }
        if (pair->peer == NULL || !open || (!waits && !pair->announce.answer)) {
            continue;
        }
        if (now >= pair->announce.repeat.at || pair->announce.answer) {
            send_state(pair);
            pair->announce.repeat.at = now + pair->announce.repeat.interval;
            pair->announce.repeat.interval = 2 * pair->announce.repeat.interval < SAY_MAX_NS
                                                 ? 2 * pair->announce.repeat.interval
                                                 : SAY_MAX_NS;
        }
        next = waits ? r2_earlier(next, pair->announce.repeat.at) : next;
    }
    return next;
}

/*
 * It asks: is our end in order? Also where a probe is out that nobody waited for. But what has
 * been out for so long is not put again: the queue pair stands still, as in silent(), could not
 * tell the peer anything, and so is made anew.
 */
static void check(struct r2_pair *pair, uint64_t clock)
{
    if (r2_pair_is_probing(pair) &&
        clock - pair->probe.requested_at >= STILL_NS + 4 * pair->probe.slowest) {
        r2_pair_rebuild(pair);
        return;
    }
    pair->probe.check = 1;
    pair->probe.checked_at = clock;
    r2_pair_begin(pair, clock, 0);
}

/* The peer asks for what a probe of ours that begins now finds; it repeats that, but for STILL_NS,
 * behind which it is about another probe of its own. */
static void on_request(struct r2_pair *pair, uint64_t clock)
{
    if (!pair->announce.owes || r2_elapsed(clock, pair->announce.owes_since) >= STILL_NS) {
        pair->announce.owes_since = clock;
    }
    pair->announce.owes = 1;
    if (pair->probe.greeted && r2_pair_ready(pair) && !r2_pair_is_judged(pair)) {
        check(pair, clock);
    }
}

/* Word about the incarnation of the peer that we are connected to. */
static void on_known(struct r2_pair *pair, const struct fo_probe *m)
{
    pair->announce.peer_for =
        m->for_inc ? m->for_inc
                   : pair->announce.peer_for; /* a late word of before it was connected */
    if (pair->probe.state == R2_PROBE_COUNTS && pair->announce.peer_for == pair->inc) {
        /* its NIC may have stood still together with it: time for an answer from now on */
        r2_pair_probe_move(pair, R2_PROBE_TIMED);
        pair->probe.from = pair->inst->watch.clock;
        pair->probe.announced = 0; /* where it asks as well, ours may have been lost: it is put once
                                      more, so that the peer owes us what it finds */
    }
    if ((m->flags & FO_PROBE_WORKS) && pair->probe.state == R2_PROBE_TIMED) {
        r2_pair_probe_move(pair, R2_PROBE_GOOD);
        pair->probe.loops = pair->inst->diagnosis.loop[pair->nic].questions;
        r2_loopback_probe(pair->inst, pair->nic, pair->inst->watch.clock,
                          R2_MS(pair->inst->cfg.t_probe_ms));
    }
    if (m->flags & FO_PROBE_REQUEST) {
        on_request(pair, pair->inst->watch.clock);
    }
}

/*
 * The peer's queue pair serves one incarnation of ours and ours one of its. Incarnations of a
 * process only grow: an older one is late, and so is an announcement made for an older one of ours;
 * taking it up would tie us to a queue pair that is gone. What goes by two ways is heard twice:
 * what an incarnation said before it was connected means nothing behind the word of whom it serves.
 */
static void on_announcement(struct r2_pair *pair, const struct fo_probe *m)
{
    int anew;

    if (pair->announce.heard && (int32_t)(m->inc - pair->announce.heard) < 0) {
        return;
    }
    pair->announce.heard_for =
        m->for_inc || m->inc != pair->announce.heard ? m->for_inc : pair->announce.heard_for;
    anew = m->inc != pair->announce.heard;
    pair->announce.heard = m->inc;
    pair->announce.answer |= m->flags & FO_PROBE_REQUEST;
    if (r2_cross_hopeless(pair)) {
        return; /* LOST is all that there is to say */
    }
    if (r2_pair_failed(pair) && (m->flags & FO_PROBE_REQUEST)) {
        if (pair->build.state == R2_PAIR_BROKEN) {
            r2_probation_wanted(pair); /* the peer waits, and would for long */
        } else {
            r2_probation_for_peer(pair, anew);
        }
    } else if (m->inc == pair->announce.peer_inc) {
        on_known(pair, m);
    } else if (pair->announce.peer_inc != 0) {
        r2_pair_rebuild(pair);
    } else if (pair->build.state == R2_PAIR_OPEN &&
               (pair->announce.heard_for == 0 || pair->announce.heard_for == pair->inc)) {
        pair->announce.peer_inc = m->inc;
        pair->announce.peer_for = pair->announce.heard_for;
        pair->far.addr = m->addr;
        pair->far.alt.qpn = m->alt_qpn;
        pair->far.alt.psn = m->alt_psn;
        r2_ways_on_wish(pair, &(struct probe_way_wish){m->turn, {m->addr.way, m->alt_way}});
        r2_way_notified_join(pair);
        pair->carried.peer_qpn = m->inband_qpn;
        pair->carried.peer_psn = m->inband_psn;
        r2_pair_join(pair);
    }
}

/* A cross pair that the peer has given up without a report of silence, which is what it says of one
 * that has never answered. */
static int no_use(const struct r2_pair *pair, const struct fo_probe *m)
{
    return !(m->flags & FO_PROBE_SILENT) &&
           (pair->probe.answers == 0 || pair->build.state == R2_PAIR_OPEN) &&
           !r2_cross_carries(pair);
}

/* Which NIC it is does not change in the life of the peer's process. */
static void identify(struct r2_pair *pair, const struct fo_probe *m)
{
    pair->far.guid = m->guid;
    pair->far.port = m->port;
    memcpy(pair->far.name, m->name, sizeof(pair->far.name));
}

void r2_pair_on_probe(struct r2_inst *inst, struct r2_peer *peer, const struct fo_probe *m)
{
    enum ib_nic_state s;
    struct r2_pair *pair;

    if (m->peer_nic >= inst->nics.count || peer->refs < 2) {
        return; /* no such NIC; or no connection to that process (the message holds one reference
                   itself) */
    }
    s = ib_nic_state_get(&inst->nics.nic[m->peer_nic]);
    if (s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return; /* not touched any more */
    }
    pair = r2_pair_meet(inst, peer, m->peer_nic, m->nic, m->inband_qpn == 0);
    if (pair == NULL) {
        return;
    }
    identify(pair, m);
    if (pair->job.busy) {
        return; /* it will be announced again */
    }
    if (m->flags & FO_PROBE_BACK) {
        r2_probation_back(pair);
    }
    if (!(m->flags & FO_PROBE_LOST)) {
        on_announcement(pair, m);
    } else if (m->for_inc == pair->inc &&
               (pair->build.state == R2_PAIR_JOINED || pair->build.state == R2_PAIR_OPEN) &&
               no_use(pair, m)) {
        r2_pair_leave(pair);
    } else if (m->for_inc == pair->inc && pair->build.state == R2_PAIR_JOINED) {
        if (m->flags & FO_PROBE_SILENT) {
            pair->probe.silent_at = inst->watch.clock; /* it has asked over this very pair */
        }
        r2_pair_rebuild(pair); /* who asks here gets no answer whatever the NICs do */
    }
}
