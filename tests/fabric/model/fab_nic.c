/* A NIC: its queue pairs, the transmit ring, packets coming in, contexts. */
#include "fab_nic.h"

#include "fab_qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes out what waited; the list is the caller's. */
static struct fab_item *paused_take(struct fab_nic *nic)
{
    struct fab_item *first = nic->paused;

    nic->paused = NULL;
    nic->paused_end = NULL;
    nic->npaused = 0;
    return first;
}

int fab_nic_init(struct fab_nic *nic, struct fab_engine *eng, int host, int nr,
                 const struct fab_nic_cfg *cfg)
{
    nic->eng = eng;
    nic->host = (uint16_t)host;
    nic->nic = (uint16_t)nr;
    nic->cfg = *cfg;
    if (!nic->cfg.seg_bytes) {
        nic->cfg.seg_bytes = 4096;
    }
    if (nic->cfg.slow_timer < 1 || nic->cfg.slow_timer > 4) {
        nic->cfg.slow_timer = 1;
    }
    if (nic->cfg.window < 4) {
        nic->cfg.window = nic->cfg.window ? 4 : 64;
    }
    nic->link.rate = cfg->base_rate;
    nic->reorder_rng.s = (uint64_t)host << 8 | (unsigned)nr;
    nic->retry7_forever = cfg->retry7_forever;
    nic->qp_hash = calloc(FAB_QP_HASH, sizeof *nic->qp_hash);
    return nic->qp_hash ? 0 : -1;
}

void fab_nic_fini(struct fab_nic *nic)
{
    struct fab_item *next;

    for (struct fab_item *it = paused_take(nic); it; it = next) {
        next = it->next;
        nic->eng->ops->pkt_free(nic->eng, PKT_OF(it));
    }
    while (nic->orphans) {
        struct fab_pipe *p = nic->orphans;

        nic->orphans = p->next;
        fab_pipe_free(p);
    }
    free(nic->qp_hash);
    free(nic->mr);
    free(nic->mr_free);
    nic->qp_hash = NULL;
    nic->mr = NULL;
    nic->mr_free = NULL;
    nic->mr_slots = nic->mr_used = nic->mr_nfree = 0;
}

struct fab_qp *fab_nic_find_qp(struct fab_nic *nic, uint32_t qpn)
{
    struct fab_qp *qp = nic->qp_hash[qpn & (FAB_QP_HASH - 1)];

    while (qp && qp->qpn != qpn) {
        qp = qp->hash_next;
    }
    return qp;
}

/* ---- transmit ring: round robin, one packet per turn ---- */

static void ring_push(struct fab_nic *nic, struct fab_qp *qp)
{
    qp->tx_on = true;
    qp->tx_loop = qp->peer.host == nic->host && qp->peer.nic == nic->nic;
    nic->tx_loops += qp->tx_loop;
    qp->tx_next = NULL;
    qp->tx_prev = nic->tx_tail;
    if (nic->tx_tail) {
        nic->tx_tail->tx_next = qp;
    } else {
        nic->tx_head = qp;
    }
    nic->tx_tail = qp;
    nic->tx_count++;
}

void fab_nic_tx_add(struct fab_nic *nic, struct fab_qp *qp)
{
    if (!qp->tx_on) {
        ring_push(nic, qp);
    }
    if (!nic->hung && !qp->ctx->dead) {
        nic->eng->ops->tx_kick(nic->eng, nic);
    }
}

void fab_nic_tx_remove(struct fab_nic *nic, struct fab_qp *qp)
{
    if (!qp->tx_on) {
        return;
    }
    qp->tx_on = false;
    nic->tx_count--;
    nic->tx_loops -= qp->tx_loop;
    *(qp->tx_prev ? &qp->tx_prev->tx_next : &nic->tx_head) = qp->tx_next;
    *(qp->tx_next ? &qp->tx_next->tx_prev : &nic->tx_tail) = qp->tx_prev;
}

/* Answers and requests of one queue pair take turns, so that neither a long read nor a long write
 * starves the other. */
static int tx_one(struct fab_qp *qp)
{
    int a, b;

    if (qp->ctx->dead) {
        return 0;
    }
    qp->tx_turn = !qp->tx_turn;
    a = qp->tx_turn ? fab_qp_resp_tx(qp) : fab_qp_req_tx(qp);
    if (a > 0) {
        return a;
    }
    b = qp->tx_turn ? fab_qp_req_tx(qp) : fab_qp_resp_tx(qp);
    return b > 0 ? b : a < b ? a : b;
}

bool fab_nic_tx_next(struct fab_nic *nic, bool wire)
{
    uint32_t turns = nic->tx_count;

    if (nic->hung || (!wire && !nic->tx_loops)) {
        return false;
    }
    while (turns-- && nic->tx_head) {
        struct fab_qp *qp = nic->tx_head;
        int r;

        fab_nic_tx_remove(nic, qp);
        if (!wire && !qp->tx_loop) {
            ring_push(nic, qp);
            continue;
        }
        r = tx_one(qp);
        if (r != 0 && !qp->tx_on) {
            ring_push(nic, qp);
        }
        if (r > 0) {
            return true;
        }
    }
    return false;
}

/* ---- packets coming in ---- */

/*
 * A packet of a reliable connection does not carry the number of the queue pair that sent it. In an
 * InfiniBand subnet both of its LIDs have to be those of the queue pair's own address vector (IBTA
 * 9.6): one that takes another of a port's LIDs is dropped, and nobody hears of it.
 */
static bool from_peer(const struct fab_qp *qp, const struct fab_hdr *h)
{
    return h->src.host == qp->peer.host && h->src.nic == qp->peer.nic &&
           h->src.epoch == qp->peer.epoch && h->dst.epoch == qp->nic->gid_epoch &&
           (h->dlid == 0 || (h->dlid == qp->sport && h->sport == qp->dlid));
}

static bool is_paused(struct fab_nic *nic, struct fab_pkt *pkt)
{
    if (!nic->hung || nic->gone || !nic->cfg.pauses || nic->npaused == FAB_PAUSED) {
        return false;
    }
    pkt->item.next = NULL;
    *(nic->paused_end ? nic->paused_end : &nic->paused) = &pkt->item;
    nic->paused_end = &pkt->item.next;
    nic->npaused++;
    nic->cnt.rx_paused++;
    return true;
}

void fab_nic_resume(struct fab_nic *nic)
{
    struct fab_item *next;

    for (struct fab_item *it = paused_take(nic); it; it = next) {
        next = it->next;
        fab_nic_rx(nic, PKT_OF(it));
    }
}

void fab_nic_rx(struct fab_nic *nic, struct fab_pkt *pkt)
{
    struct fab_qp *qp = fab_nic_find_qp(nic, pkt->h.dst_qpn);
    uint64_t *why = NULL;

    if (is_paused(nic, pkt)) {
        return;
    }
    nic->cnt.rx_packets++;
    nic->cnt.rx_bytes += pkt->h.len;
    nic->cnt.rx_ghosts += (pkt->h.flags & FAB_F_GHOST) != 0;
    if (nic->hung || nic->gone) {
        why = &nic->cnt.rx_hung;
    } else if (!qp) {
        why = &nic->cnt.rx_no_qp;
    } else if (qp->ctx->dead || qp->ctx->unplugged || qp->state == IBV_QPS_RESET ||
               qp->state == IBV_QPS_INIT || (qp->state == IBV_QPS_ERR && !fab_qp_lingers(qp))) {
        why = &nic->cnt.rx_wrong_state;
    } else if (!from_peer(qp, &pkt->h)) {
        why = &nic->cnt.rx_wrong_source;
    }
    if (why) {
        (*why)++;
        nic->eng->ops->pkt_free(nic->eng, pkt);
        return;
    }
    if (pkt->h.op == FAB_OP_ACK) {
        fab_qp_req_ack(qp, &pkt->h);
        nic->eng->ops->pkt_free(nic->eng, pkt);
    } else if (pkt->h.op == FAB_OP_READ_RESP) {
        fab_qp_req_read(qp, pkt);
    } else {
        nic->cnt.lingered += qp->state == IBV_QPS_ERR;
        fab_qp_resp_rx(qp, pkt);
    }
}

/* ---- contexts ---- */

int fab_ctx_open(struct fab_ctx *ctx, struct fab_nic *nic, const struct fab_ctx_ops *ops,
                 void *user)
{
    if (nic->gone) {
        return nic->gone == FAB_FATAL ? EIO : ENODEV;
    }
    *ctx = (struct fab_ctx){.nic = nic, .ops = ops, .user = user, .next = nic->ctxs};
    nic->ctxs = ctx;
    return 0;
}

void fab_ctx_close(struct fab_ctx *ctx)
{
    struct fab_nic *nic = ctx->nic;
    struct fab_ctx **pp = &nic->ctxs;
    struct fab_pipe **op = &nic->orphans, *p;

    while (*pp != ctx) {
        pp = &(*pp)->next;
    }
    *pp = ctx->next;
    while ((p = *op) != NULL) {
        if (p->ctx == ctx) {
            *op = p->next;
            fab_pipe_free(p);
        } else {
            op = &p->next;
        }
    }
}

int fab_ctx_check(const struct fab_ctx *ctx)
{
    return ctx->dead ? EIO : 0;
}

int fab_ctx_call(struct fab_ctx *ctx)
{
    struct fab_nic *nic = ctx->nic;

    if (ctx->dead) {
        return EIO;
    }
    if (nic->call_error == 0) {
        return 0;
    }
    nic->call_error -= nic->call_error != UINT32_MAX;
    nic->cnt.calls_failed++;
    return EIO;
}

bool fab_ctx_removed(const struct fab_ctx *ctx)
{
    return ctx->dead == FAB_REMOVED && fab_now(ctx->nic->eng) >= ctx->dead_at;
}

int fab_ctx_check_data(const struct fab_ctx *ctx)
{
    return ctx->dead && !ctx->silent ? EIO : 0;
}

void fab_ctx_event(struct fab_ctx *ctx, enum ibv_event_type type, void *element)
{
    if (!ctx->dead) {
        ctx->ops->async(ctx, type, element);
    }
}
