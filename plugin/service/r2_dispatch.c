/* Records from a peer process to the connections they name. Service thread. */
#include "r2_dispatch.h"

#include <stdio.h>

#include "admin/r2_drain.h"
#include "admin/r2_failback.h"
#include "balance/r2_balance.h"
#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/diagnosis/r2_gossip.h"
#include "probe/diagnosis/r2_hang.h"
#include "probe/health/r2_inband.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_watch.h"
#include "probe/health/r2_way_notified.h"
#include "r2_close.h"
#include "r2_peer.h"
#include "r2_reconnect.h"
#include "r2_setup.h"

static void send_gone(struct r2_inst *inst, struct r2_peer *peer, enum fo_type as, uint32_t dst,
                      uint32_t src)
{
    union fo_body b = {.bye_ok = {.dst = dst, .src = src}};

    r2_peer_emit(inst, peer, as, &b);
}

/* Set-up failed here and the message was lost: the sender would repeat CONF until its time is over,
 * the receiver wait for ever. */
static void send_refused(struct r2_inst *inst, struct r2_peer *peer, uint32_t dst, uint32_t src)
{
    union fo_body b = {
        .refuse = {.dst = dst, .src = src, .why = "the connection is not known any more"}};

    r2_peer_emit(inst, peer, FO_MSG_REFUSE, &b);
}

static void setup_record(struct r2_comm *c, int type, const union fo_body *b)
{
    if (type == FO_MSG_REP && c->is_send) {
        r2_setup_on_rep(c, &b->rep);
    } else if (type == FO_MSG_CONF && !c->is_send) {
        r2_setup_on_conf(c, &b->conf);
    } else if (type == FO_MSG_READY && c->is_send) {
        r2_setup_on_ready(c, &b->ready);
    } else if (type == FO_MSG_RATES) {
        r2_balance_on_rates(c, &b->rates);
    } else if (type == FO_MSG_REFUSE) {
        r2_setup_fail(c, "the peer refuses: %s", b->refuse.why);
    }
}

static void settle_record(struct r2_comm *c, int type, const union fo_body *b, uint64_t now)
{
    switch (type) {
    case FO_MSG_DOWN:
        if (atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_BYE) {
            c->repeat.at = 0; /* the tombstone answers with its final ledger (P26) */
            r2_comm_kick(c);
        }
        if (!r2_reconnect_on_over(c, b->down.path, b->down.inc)) {
            fo_on_down(&c->fo, &b->down, now);
            r2_failback_on_down(c, &b->down);
        }
        break;
    case FO_MSG_FENCED:
        r2_reconnect_on_over(c, b->fenced.path, b->fenced.inc);
        fo_on_fenced(&c->fo, &b->fenced, now);
        break;
    case FO_MSG_SETTLED:
        fo_on_settled(&c->fo, &b->settled, now);
        break;
    case FO_MSG_BYE:
        fo_on_bye(&c->fo, &b->fenced, now);
        send_gone(c->inst, c->peer, FO_MSG_BYE_OK, c->fo.peer, c->id);
        break;
    case FO_MSG_BYE_OK:
        c->end->bye_ok = 1;
        r2_comm_kick(c);
        break;
    case FO_MSG_GONE:
        c->end->bye_ok = 1;
        fo_on_gone(&c->fo, "the peer does not know the connection any more");
        r2_comm_kick(c);
        break;
    case FO_MSG_OPEN:
        r2_reconnect_on_open(c, &b->open);
        break;
    case FO_MSG_OPEN_OK:
        r2_reconnect_on_open_ok(c, &b->open);
        break;
    case FO_MSG_OPEN_UP:
        r2_reconnect_on_open_up(c, &b->open);
        break;
    case FO_MSG_DELIVERY_QUERY:
        r2_watch_on_delivery_query(c, &b->delivery_query);
        break;
    case FO_MSG_CTS_REQUEST:
        r2_watch_on_cts_request(c, &b->cts_request);
        break;
    case FO_MSG_FAILBACK:
        r2_failback_on_record(c, &b->failback);
        break;
    case FO_MSG_FAILBACK_OK:
        r2_failback_on_ok(c, &b->failback);
        break;
    case FO_MSG_RATES:
        r2_balance_on_rates(c, &b->rates);
        break;
    default:
        break;
    }
}

/* Whether connection @c is the one that a record from @peer is for. One whose set-up has failed
 * stands until NCCL has heard of it, perhaps for ever, and is none. */
static bool is_addressed(const struct r2_comm *c, const struct r2_peer *peer, uint32_t src)
{
    return c && c->peer == peer && (c->fo.peer == 0 || c->fo.peer == src || src == 0) &&
           atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_FAILED;
}

static void to_comm(struct r2_inst *inst, struct r2_peer *peer, int type, const union fo_body *b,
                    uint64_t now)
{
    struct r2_comm *c;
    uint32_t dst = b->head.dst, src = b->head.src;
    int setup;

    if (!fo_is_addressed((enum fo_type)type)) {
        return;
    }
    c = r2_comm_find(inst, dst);
    if (!is_addressed(c, peer, src)) {
        inst->refused.unknown_records++;
        if (type == FO_MSG_BYE) {
            send_gone(inst, peer, FO_MSG_BYE_OK, src, dst);
        } else if (type == FO_MSG_DOWN || type == FO_MSG_FENCED) {
            send_gone(inst, peer, FO_MSG_GONE, src, dst);
        } else if (type == FO_MSG_CONF || type == FO_MSG_READY) {
            send_refused(inst, peer, src, dst);
        }
        return;
    }
    r2_comm_visit(c);
    setup = atomic_load_explicit(&c->state.setup, memory_order_relaxed);
    if (setup < R2_SETUP_DONE || type == FO_MSG_CONF) {
        setup_record(c, type, b);
    } else if (setup == R2_SETUP_DONE && type >= FO_MSG_DOWN) {
        settle_record(c, type, b, now);
    } else if (setup == R2_SETUP_DONE && type == FO_MSG_REFUSE) {
        fo_on_gone(&c->fo, "the peer's end of the set-up failed"); /* after READY was lost for as
                                                                      long as it waits */
    }
    r2_comm_unvisit(c);
}

/* The peer gave up one of its NICs: all incarnations over it end here too (P29). */
static void nic_down(struct r2_inst *inst, struct r2_peer *peer, const struct fo_nic_down *m)
{
    union fo_body b = {.nic_down = *m};

    r2_peer_emit(inst, peer, FO_MSG_NIC_DOWN_OK, &b);
    if ((int32_t)(m->gen - peer->down.dead_gen[m->nic]) <= 0) {
        return; /* known */
    }
    peer->down.dead_gen[m->nic] = m->gen;
    for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        r2_comm_visit(c);
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) == R2_SETUP_DONE) {
            fo_on_peer_nic_down(&c->fo, m->nic, m->gen);
        }
        r2_comm_unvisit(c);
    }
}

/* What it says is passed over, so that a connection which is being set up would only wait. */
static void other_version(struct r2_inst *inst, struct r2_peer *peer, unsigned version)
{
    char why[160];

    snprintf(
        why, sizeof(why),
        "the peer's nccl-net-r2 speaks version %u, this process version %d: all processes of a job need the same plugin",
        version, FO_PROTO_VERSION);
    if (inst->refused.foreign_messages++ == 0) {
        R2_WARN("%s: %s", inst->oob->ops->peer_str(peer->oob), why);
    }
    for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) < R2_SETUP_DONE) {
            r2_comm_visit(c);
            r2_setup_fail(c, "%s", why);
            r2_comm_unvisit(c);
        }
    }
}

void r2_dispatch_message(void *arg, struct r2_oob_peer *oob, const void *msg, size_t len)
{
    struct r2_inst *inst = arg;
    struct r2_peer *peer =
        r2_peer_get(inst, oob); /* held over the message: a refusal may be all there is to say */

    if (peer) {
        r2_inband_channel(inst, peer);
        r2_dispatch(inst, peer, msg, len);
        r2_peer_put(inst, peer);
    }
}

void r2_dispatch(struct r2_inst *inst, struct r2_peer *peer, const void *msg, size_t len)
{
    struct r2_reader r = {.p = msg, .end = (const uint8_t *)msg + len};
    uint64_t now = r2_now(inst);
    unsigned version = fo_foreign_version(msg, len);
    const char *why = NULL;
    union fo_body b;
    int type;

    peer->last_contact = now;
    peer->refused_since = 0;
    peer->channel.messages++;
    if (peer->gossip.blamed) {
        r2_locate_speaks(inst, peer);
    }
    if (version) {
        other_version(inst, peer, version);
    }
    while ((type = fo_unpack(&r, &b, &why)) > 0) {
        if (type == FO_MSG_REQ) {
            r2_setup_on_req(inst, peer, &b.req);
        } else if (type == FO_MSG_NIC_DOWN) {
            nic_down(inst, peer, &b.nic_down);
        } else if (type == FO_MSG_NIC_DOWN_OK) {
            if (b.nic_down.gen == peer->down.gen[b.nic_down.nic]) {
                peer->down.mask &= ~(1u << b.nic_down.nic);
            }
        } else if (type == FO_MSG_DRAIN) {
            r2_drain_on_drain(inst, peer, &b.drain);
        } else if (type == FO_MSG_DRAIN_OK) {
            r2_drain_on_ok(inst, peer, &b.drain);
        } else if (type == FO_MSG_PROBE) {
            r2_pair_on_probe(inst, peer, &b.probe);
        } else if (type == FO_MSG_LOCATE) {
            r2_locate_on(inst, peer, &b.locate);
        } else if (type == FO_MSG_REPORT) {
            r2_gossip_on_report(inst, peer, &b.report);
        } else if (type == FO_MSG_REPORT_OK) {
            r2_gossip_on_ok(inst, peer, &b.report_ok);
        } else if (type == FO_MSG_LOAD) {
            r2_load_on(inst, peer, &b.load);
        } else if (type == FO_MSG_HANG) {
            r2_hang_on_record(inst, peer, &b.hang);
        } else if (type == FO_MSG_WAY) {
            r2_way_notified_on_record(inst, peer, &b.way);
        } else {
            to_comm(inst, peer, type, &b, now);
        }
    }
    if (type < 0) {
        inst->refused.bad_messages++;
        if (inst->refused.bad_messages == 1) {
            R2_WARN("malformed message from %s dropped: %s", inst->oob->ops->peer_str(peer->oob),
                    why);
        }
    }
}
