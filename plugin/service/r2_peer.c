#include "r2_peer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/r2_drain.h"
#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_hang.h"
#include "probe/diagnosis/r2_slowness.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/health/r2_inband.h"
#include "probe/health/r2_pair.h"
#include "r2_close.h"
#include "r2_reconnect.h"
#include "r2_setup.h"

#define REFUSED_ASK_NS R2_MS(250) /* a few chances of an answer within the limit */
#define REFUSED_LIMIT_NS                                                                           \
    1000000000ull /* a host that refuses for so long has no such process any more */
#define CHANNEL_LIMIT_NS                                                                           \
    10000000000ull /* a channel that has not come back within that time is said */

struct r2_peer *r2_peer_get(struct r2_inst *inst, struct r2_oob_peer *oob)
{
    struct r2_peer *p = r2_peer_find(inst, oob);

    if (p == NULL) {
        p = calloc(1, sizeof(*p));
        if (p == NULL) {
            return NULL;
        }
        p->oob = oob;
        p->last_contact = r2_now(inst);
        r2_peer_enter(inst, p);
        p->gossip.no = -1;
        p->hang.rank = PROBE_HANG_RANK_NONE;
        p->gossip.blamed = (uint8_t)r2_gossip_peer_blamed(inst, p); /* words outlive connections */
    }
    inst->oob->ops->peer_ref(oob);
    p->refs++;
    return p;
}

void r2_peer_put(struct r2_inst *inst, struct r2_peer *peer)
{
    struct r2_oob_peer *oob = peer->oob;

    if (--peer->refs == 0) {
        r2_locate_drop(inst, peer);
        r2_pairs_drop(peer);
        r2_peers_step(inst, r2_now(inst)); /* last messages first */
        r2_gossip_leave(inst, peer);
        r2_hang_leave(inst, peer);
        r2_slowness_leave(inst, peer);
        r2_peer_unlink(inst, peer);
        free(peer->transfer);
        free(peer);
    }
    inst->oob->ops->peer_put(oob);
}

void r2_peer_post(struct r2_inst *inst, struct r2_peer *peer)
{
    uint64_t now;
    int lost;

    if (peer->out.len == 0) {
        return;
    }
    now = r2_now(inst);
    r2_inband_request(inst, peer, now);
    lost = inst->oob->ops->send(peer->oob, peer->out.buf, peer->out.len) !=
           0; /* what is lost is repeated */
    if (!lost) {
        r2_inband_owed(inst, peer, now);
    }
    if (lost || r2_inband_due(inst, peer, now)) {
        r2_inband_send(inst, peer, peer->out.buf, peer->out.len);
    }
    peer->out.len = 0;
}

static uint64_t send_nics(struct r2_inst *inst, struct r2_peer *p, uint64_t now)
{
    if (p->down.mask == 0) {
        return UINT64_MAX;
    }
    if (now >= p->down.repeat.at) {
        for (uint32_t m = p->down.mask; m; m &= m - 1) {
            int nic = __builtin_ctz(m);
            union fo_body b = {.nic_down = {.nic = (uint8_t)nic,
                                            .reason = IB_FAULT_PORT,
                                            .gen = p->down.gen[nic]}};

            r2_peer_emit(inst, p, FO_MSG_NIC_DOWN, &b);
        }
        p->down.repeat.at = now + p->down.repeat.interval;
        if (p->down.repeat.interval < (uint64_t)inst->cfg.t_repeat_ms * 20000000) {
            p->down.repeat.interval *= 2;
        }
    }
    return p->down.repeat.at;
}

void r2_peer_channel_up(void *instance, struct r2_oob_peer *oob)
{
    struct r2_inst *inst = instance;
    struct r2_peer *peer = r2_peer_find(inst, oob);

    if (peer == NULL) {
        return;
    }
    peer->refused_since = 0;
    peer->channel.lost = peer->channel.logged = 0;
    r2_inband_channel(inst, peer);
    peer->last_contact = r2_now(inst);
    peer->down.repeat.at = peer->gossip.repeat.at = 0;
    for (struct r2_pair *pair = peer->pairs; pair; pair = pair->peer_next) {
        pair->announce.repeat.at = 0;
    }
    /* what was lost with the old channel is announced again at once */
    for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        r2_comm_visit(c);
        r2_setup_on_channel(c);
        c->repeat.at = 0;
        for (int p = 0; p < c->conn.npaths; p++) {
            c->fo.path[p].send_at = c->ret->path[p].send_at = 0;
        }
        r2_comm_unvisit(c);
        r2_comm_kick(c);
    }
}

void r2_peer_channel_down(void *instance, struct r2_oob_peer *oob, int refused)
{
    struct r2_inst *inst = instance;
    struct r2_peer *peer = r2_peer_find(inst, oob);

    if (peer == NULL) {
        return;
    }
    if (peer->channel.lost == 0) {
        peer->channel.lost = r2_now(inst);
        for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
            r2_comm_visit(c);
            ib_conn_stir(&c->conn); /* who waits for its program is looked after from here on */
            r2_comm_unvisit(c);
        }
    }
    if (!refused) {
        peer->refused_since = 0;
    } else if (peer->refused_since == 0) {
        peer->refused_since = r2_now(inst);
    }
}

/* Data goes on without it; the next failure is settled over NICs at best: people are to mend it
 * before. Nothing new where its process or host is blamed. */
static uint64_t check_channel(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    if (peer->channel.lost == 0 || peer->channel.logged || peer->host[0] == '\0') {
        return UINT64_MAX; /* without a name: no connection to it has ever stood, and set-up has a
                              limit of its own */
    }
    if (r2_elapsed(now, peer->channel.lost) < CHANNEL_LIMIT_NS) {
        return peer->channel.lost + CHANNEL_LIMIT_NS;
    }
    if (r2_gossip_peer_blamed(inst, peer)) {
        return UINT64_MAX; /* it may speak again over NICs, and the channel be lost still */
    }
    peer->channel.logged = 1;
    if (r2_peer_is_missed(peer)) {
        r2_verdict_channel(inst, peer);
    }
    return UINT64_MAX;
}

uint64_t r2_peers_step(struct r2_inst *inst, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        next = r2_earlier(next, send_nics(inst, p, now));
        next = r2_earlier(next, r2_drain_send(inst, p, now));
        next = r2_earlier(next, r2_gossip_send(inst, p, now));
        next = r2_earlier(next, r2_peer_check_gone(inst, p, now));
        next = r2_earlier(next, check_channel(inst, p, now));
        r2_peer_post(inst, p);
    }
    return next;
}

/*
 * A host refuses where the process has ended, and where a firewall of the management network
 * rejects: then its process answers over the NICs, and the answer takes the refusal back. Returns
 * the next time.
 */
static uint64_t ask_over_nics(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    uint64_t limit = peer->refused_since + REFUSED_LIMIT_NS, next;

    if (r2_elapsed(now, peer->asked_at) >= REFUSED_ASK_NS && r2_inband_ask(inst, peer)) {
        peer->asked_at = now;
    }
    next = peer->asked_at + REFUSED_ASK_NS;
    return next > now && next < limit ? next : limit;
}

uint64_t r2_peer_check_gone(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    char what[160];

    if (peer->refused_since == 0) {
        return UINT64_MAX;
    }
    if (r2_elapsed(now, peer->refused_since) < REFUSED_LIMIT_NS) {
        return ask_over_nics(inst, peer, now);
    }
    if (r2_peer_is_missed(peer)) {
        r2_locate_peer(inst, peer, PROBE_ERROR);
    }
    snprintf(what, sizeof(what), "peer process at %s is gone: its host refuses connections",
             inst->oob->ops->peer_str(peer->oob));
    for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        r2_comm_visit(c);
        c->end->bye_ok = 1; /* nobody is left to answer */
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
            fo_on_gone(&c->fo, what);
        } else if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) < R2_SETUP_DONE) {
            c->fo.cause.code = PROBE_CODE_P01;
            r2_setup_fail(c, "%s", what);
        }
        r2_comm_unvisit(c);
        r2_comm_kick(c);
    }
    peer->refused_since = 0; /* said once; a later refusal starts anew */
    return UINT64_MAX;
}
