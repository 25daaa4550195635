/*
 * Responder: checks requests, accepts those with the expected number into the receive pipe, and
 * answers.
 *
 * A request is checked completely before it is accepted; from acceptance on its acknowledgement may
 * leave, whatever becomes of the bytes. Answers leave in order: read responses first, since an
 * acknowledgement covers everything before its number.
 */
#include "fab_qp.h"

#include <string.h>

static bool receiving(const struct fab_qp *qp)
{
    return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

static bool fatal_syn(uint8_t syn)
{
    return syn == FAB_NAK_INV || syn == FAB_NAK_ACCESS || syn == FAB_NAK_OP;
}

static void answer(struct fab_qp *qp, enum fab_syn syn)
{
    qp->ack_due = true;
    qp->ack_syn = (uint8_t)syn;
    fab_nic_tx_add(qp->nic, qp);
}

/* Refuses a request for good: the peer hears why, this queue pair ends. @pkt may be NULL. */
static void refuse(struct fab_qp *qp, struct fab_pkt *pkt, enum fab_syn syn)
{
    struct fab_counters *cnt = &qp->nic->cnt;

    if (syn == FAB_NAK_ACCESS) {
        cnt->access_naks++;
    } else {
        cnt->inv_naks++;
    }
    if (pkt) {
        qp->nic->eng->ops->pkt_free(qp->nic->eng, pkt);
    }
    fab_qp_error(qp);
    qp->ack_psn = qp->epsn;
    answer(qp, syn);
    if (syn != FAB_NAK_OP) {
        fab_ctx_event(qp->ctx,
                      syn == FAB_NAK_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
                      qp->user);
    }
}

static void drop(struct fab_qp *qp, struct fab_pkt *pkt)
{
    qp->nic->eng->ops->pkt_free(qp->nic->eng, pkt);
}

/* No receive work request for @pkt: it is not accepted, and neither is anything behind it until it
 * comes again. */
static void not_ready(struct fab_qp *qp, struct fab_pkt *pkt)
{
    qp->nic->cnt.rnr_naks++;
    qp->nic->cnt.srq_rnr_naks += qp->srq != NULL;
    qp->nak_sent = true;
    answer(qp, FAB_NAK_RNR);
    drop(qp, pkt);
}

static struct fab_rwqe *take_recv(struct fab_qp *qp)
{
    struct fab_rwqe *r = fab_rq_take(fab_qp_rq(qp));
    struct fab_srq *srq = qp->srq;

    if (r && srq && srq->limit && srq->rq.queued < srq->limit) {
        srq->limit = 0;
        fab_ctx_event(qp->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq->user);
    }
    return r;
}

static void accept(struct fab_qp *qp, struct fab_pkt *pkt, uint32_t npsn)
{
    struct fab_engine *eng = qp->nic->eng;

    if (pkt->h.flags & FAB_F_GHOST) {
        qp->nic->cnt.ghosts_landed++;
    }
    qp->epsn = fab_psn_add(qp->epsn, npsn);
    qp->nak_sent = false;
    if (pkt->h.op != FAB_OP_READ && pkt->h.flags & FAB_F_ACKREQ) {
        answer(qp, FAB_ACK);
    }
    pkt->item.kind = FAB_ITEM_PKT;
    if (pkt->h.op != FAB_OP_READ) {
        fab_pkt_regions(qp->nic, pkt);
    }
    fab_pipe_put(qp->rpipe, &pkt->item, eng->ops->dma_delay(eng, qp->nic, pkt->h.len));
}

/* A receive work request that cannot take the message completes with @status, and the queue pair
 * ends. */
static void recv_failed(struct fab_qp *qp, struct fab_pkt *pkt, enum ibv_wc_status status,
                        enum fab_syn syn)
{
    struct fab_engine *eng = qp->nic->eng;

    /* Through the pipe: after the segments before it, and before the flush that refuse() asks for.
     */
    pkt->npieces = 0;
    pkt->recv = qp->rx_recv;
    pkt->recv_status = (int)status;
    pkt->item.kind = FAB_ITEM_PKT;
    qp->rx_recv = NULL;
    fab_pipe_put(qp->rpipe, &pkt->item, eng->ops->dma_delay(eng, qp->nic, 0));
    refuse(qp, NULL, syn);
}

static void rx_send(struct fab_qp *qp, struct fab_pkt *pkt)
{
    struct fab_nic *nic = qp->nic;
    struct fab_hdr *h = &pkt->h;
    bool first = h->flags & FAB_F_FIRST;

    if (first != (qp->rx_op == FAB_RX_IDLE) || qp->rx_op == FAB_RX_WRITE) {
        refuse(qp, pkt, FAB_NAK_INV);
        return;
    }
    if (first) {
        qp->rx_recv = take_recv(qp);
        if (!qp->rx_recv) {
            not_ready(qp, pkt);
            return;
        }
        qp->rx_off = 0;
    }
    if (!fab_pkt_scatter(pkt, qp->rx_recv->sge, qp->rx_recv->nsge, qp->rx_off)) {
        recv_failed(qp, pkt, IBV_WC_LOC_LEN_ERR, FAB_NAK_INV);
        return;
    }
    for (uint32_t i = 0; i < pkt->npieces; i++) {
        const struct fab_piece *pc = &pkt->piece[i];

        if (!fab_mr_find(nic, qp->pd, pc->key, pc->addr, pc->len, IBV_ACCESS_LOCAL_WRITE)) {
            recv_failed(qp, pkt, IBV_WC_LOC_PROT_ERR, FAB_NAK_OP);
            return;
        }
    }
    qp->rx_off += h->len;
    qp->rx_op = h->flags & FAB_F_LAST ? FAB_RX_IDLE : FAB_RX_SEND;
    pkt->recv = NULL;
    if (h->flags & FAB_F_LAST) {
        pkt->recv = qp->rx_recv;
        pkt->recv_len = (uint32_t)qp->rx_off;
        pkt->recv_status = IBV_WC_SUCCESS;
        qp->rx_recv = NULL;
    }
    accept(qp, pkt, 1);
}

/* Memory that is registered and cannot be reached is a failure of the operation, not of who asked
 * for it. */
static enum fab_syn no_access(const struct fab_qp *qp, uint32_t key)
{
    return fab_mr_blocked(qp->nic, key) ? FAB_NAK_OP : FAB_NAK_ACCESS;
}

/* The first segment declares the extent of the write; the others have to continue it. */
static enum fab_syn check_write(struct fab_qp *qp, const struct fab_hdr *h)
{
    bool first = h->flags & FAB_F_FIRST;

    if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) || h->rlen > FAB_MAX_MSG) {
        return FAB_NAK_INV;
    }
    if (first != (qp->rx_op == FAB_RX_IDLE) || qp->rx_op == FAB_RX_SEND) {
        return FAB_NAK_INV;
    }
    if (first) {
        if (h->rlen &&
            !fab_mr_find(qp->nic, qp->pd, h->rkey, h->raddr, h->rlen, IBV_ACCESS_REMOTE_WRITE)) {
            return no_access(qp, h->rkey);
        }
    } else if (h->rkey != qp->rx_key || h->rlen != qp->rx_len ||
               h->raddr != qp->rx_addr + qp->rx_off) {
        return FAB_NAK_INV;
    }
    if ((first ? 0 : qp->rx_off) + h->len > h->rlen) {
        return FAB_NAK_INV;
    }
    if (h->flags & FAB_F_LAST && (first ? 0 : qp->rx_off) + h->len != h->rlen) {
        return FAB_NAK_INV;
    }
    return FAB_ACK;
}

static void rx_write(struct fab_qp *qp, struct fab_pkt *pkt)
{
    struct fab_hdr *h = &pkt->h;
    enum fab_syn syn = check_write(qp, h);

    if (syn != FAB_ACK) {
        refuse(qp, pkt, syn);
        return;
    }
    pkt->recv = NULL;
    if ((h->flags & (FAB_F_LAST | FAB_F_IMM)) == (FAB_F_LAST | FAB_F_IMM)) {
        pkt->recv = take_recv(qp);
        if (!pkt->recv) {
            not_ready(qp, pkt);
            return;
        }
        pkt->recv_len = (uint32_t)h->rlen;
        pkt->recv_status = IBV_WC_SUCCESS;
    }
    if (h->flags & FAB_F_FIRST) {
        qp->rx_addr = h->raddr;
        qp->rx_key = h->rkey;
        qp->rx_len = h->rlen;
        qp->rx_off = 0;
    }
    qp->rx_off += h->len;
    qp->rx_op = h->flags & FAB_F_LAST ? FAB_RX_IDLE : FAB_RX_WRITE;
    pkt->npieces = h->len != 0;
    pkt->piece[0] = (struct fab_piece){.addr = h->raddr, .key = h->rkey, .len = h->len};
    accept(qp, pkt, 1);
}

static enum fab_syn check_read(struct fab_qp *qp, const struct fab_hdr *h)
{
    if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || h->rlen > FAB_MAX_MSG) {
        return FAB_NAK_INV;
    }
    if (qp->rx_op != FAB_RX_IDLE ||
        qp->reads_in - qp->dup_reads_in >= qp->attr.max_dest_rd_atomic) {
        return FAB_NAK_INV;
    }
    if (h->rlen &&
        !fab_mr_find(qp->nic, qp->pd, h->rkey, h->raddr, h->rlen, IBV_ACCESS_REMOTE_READ)) {
        return no_access(qp, h->rkey);
    }
    return FAB_ACK;
}

static void rx_read(struct fab_qp *qp, struct fab_pkt *pkt)
{
    uint32_t seg = qp->nic->cfg.seg_bytes;
    enum fab_syn syn = check_read(qp, &pkt->h);

    if (syn != FAB_ACK) {
        refuse(qp, pkt, syn);
        return;
    }
    pkt->recv = NULL;
    pkt->npieces = 0;
    pkt->rd_off = 0;
    pkt->rd_dup = false;
    qp->reads_in++;
    accept(qp, pkt, pkt->h.rlen ? (uint32_t)((pkt->h.rlen + seg - 1) / seg) : 1);
}

/* A request executed before. Its acknowledgement may have been lost, so that is sent again; a read
 * is answered again.
 */
static void rx_duplicate(struct fab_qp *qp, struct fab_pkt *pkt)
{
    struct fab_engine *eng = qp->nic->eng;

    qp->nic->cnt.rx_duplicate++;
    if (pkt->h.op != FAB_OP_READ) {
        if (!qp->ack_due) {
            answer(qp, FAB_ACK);
        }
        drop(qp, pkt);
        return;
    }
    if (qp->dup_reads_in >= qp->attr.max_dest_rd_atomic || pkt->h.rlen > FAB_MAX_MSG ||
        (pkt->h.rlen && !fab_mr_find(qp->nic, qp->pd, pkt->h.rkey, pkt->h.raddr, pkt->h.rlen,
                                     IBV_ACCESS_REMOTE_READ))) {
        drop(qp, pkt);
        return;
    }
    pkt->recv = NULL;
    pkt->npieces = 0;
    pkt->rd_off = 0;
    pkt->rd_dup = true;
    pkt->item.kind = FAB_ITEM_PKT;
    qp->reads_in++;
    qp->dup_reads_in++;
    fab_pipe_put(qp->rpipe, &pkt->item, eng->ops->dma_delay(eng, qp->nic, 0));
}

void fab_qp_resp_rx(struct fab_qp *qp, struct fab_pkt *pkt)
{
    uint32_t d = fab_psn_diff(pkt->h.psn, qp->epsn);

    if (d >= 1u << 23) {
        rx_duplicate(qp, pkt);
        return;
    }
    if (d > 0) {
        qp->nic->cnt.rx_out_of_sequence++;
        if (!qp->nak_sent) {
            qp->nic->cnt.seq_naks++;
            qp->nak_sent = true;
            answer(qp, FAB_NAK_SEQ);
        }
        drop(qp, pkt);
        return;
    }
    if (qp->state == IBV_QPS_RTR && !qp->comm_est) {
        qp->comm_est = true;
        fab_ctx_event(qp->ctx, IBV_EVENT_COMM_EST, qp->user);
    }
    switch (pkt->h.op) {
    case FAB_OP_SEND:
        rx_send(qp, pkt);
        break;
    case FAB_OP_WRITE:
        rx_write(qp, pkt);
        break;
    case FAB_OP_READ:
        rx_read(qp, pkt);
        break;
    default:
        drop(qp, pkt);
        break;
    }
}

/* ---- answers ---- */

void fab_qp_resp_read(struct fab_qp *qp, struct fab_pkt *pkt)
{
    if (!receiving(qp)) {
        drop(qp, pkt);
        return;
    }
    pkt->item.next = NULL;
    if (qp->rd_tail) {
        qp->rd_tail->item.next = &pkt->item;
    } else {
        qp->rd_head = pkt;
    }
    qp->rd_tail = pkt;
    fab_nic_tx_add(qp->nic, qp);
}

static struct fab_pkt *next_read(struct fab_pkt *pkt)
{
    return pkt->item.next
               ? (struct fab_pkt *)((char *)pkt->item.next - offsetof(struct fab_pkt, item))
               : NULL;
}

static struct fab_pkt *new_answer(struct fab_qp *qp, enum fab_op op, uint32_t psn, uint32_t len)
{
    struct fab_engine *eng = qp->nic->eng;
    struct fab_pkt *pkt = eng->ops->pkt_alloc(eng, qp->nic, &qp->peer, qp->dest_qpn, len);

    if (pkt) {
        pkt->h = (struct fab_hdr){.src = qp->self,
                                  .dst = qp->peer,
                                  .src_qpn = qp->qpn,
                                  .dst_qpn = qp->dest_qpn,
                                  .sport = qp->sport,
                                  .dlid = qp->dlid,
                                  .op = (uint8_t)op,
                                  .psn = psn,
                                  .len = len};
    }
    return pkt;
}

static int send_answer(struct fab_qp *qp, struct fab_pkt *pkt)
{
    qp->nic->cnt.tx_packets++;
    qp->nic->cnt.tx_bytes += pkt->h.len;
    qp->nic->eng->ops->pkt_send(qp->nic->eng, qp->nic, qp, pkt);
    return 1;
}

static void pop_read(struct fab_qp *qp)
{
    struct fab_pkt *rd = qp->rd_head;

    qp->rd_head = next_read(rd);
    if (!qp->rd_head) {
        qp->rd_tail = NULL;
    }
    qp->reads_in--;
    qp->dup_reads_in -= rd->rd_dup;
    drop(qp, rd);
}

/* One segment of the read in front. */
static int tx_read_resp(struct fab_qp *qp)
{
    struct fab_pkt *rd = qp->rd_head, *pkt;
    uint32_t seg = qp->nic->cfg.seg_bytes;
    uint64_t left = rd->h.rlen - rd->rd_off;
    uint32_t len = left < seg ? (uint32_t)left : seg;
    const void *src = NULL;

    if (len) {
        src = fab_mr_find(qp->nic, qp->pd, rd->h.rkey, rd->h.raddr + rd->rd_off, len,
                          IBV_ACCESS_REMOTE_READ);
        if (!src) {
            uint32_t psn = fab_psn_add(rd->h.psn, (uint32_t)(rd->rd_off / seg));

            qp->rd_head = next_read(rd);
            if (!qp->rd_head) {
                qp->rd_tail = NULL;
            }
            refuse(qp, rd, no_access(qp, rd->h.rkey));
            qp->ack_psn = psn;
            return fab_qp_resp_tx(qp);
        }
    }
    pkt =
        new_answer(qp, FAB_OP_READ_RESP, fab_psn_add(rd->h.psn, (uint32_t)(rd->rd_off / seg)), len);
    if (!pkt) {
        return -1;
    }
    if (len) {
        fab_memory_copy(qp->nic->eng, pkt->data, src, len);
    }
    rd->rd_off += len;
    if (rd->rd_off == rd->h.rlen) {
        pkt->h.flags = FAB_F_LAST;
        pop_read(qp);
    }
    return send_answer(qp, pkt);
}

static int tx_ack(struct fab_qp *qp)
{
    uint32_t psn = qp->ack_syn == FAB_ACK ? fab_psn_add(qp->epsn, FAB_PSN_MASK) : qp->epsn;
    struct fab_pkt *pkt;

    if (fatal_syn(qp->ack_syn)) {
        psn = qp->ack_psn;
    }
    pkt = new_answer(qp, FAB_OP_ACK, psn, 0);
    if (!pkt) {
        return -1;
    }
    pkt->h.syn = qp->ack_syn;
    pkt->h.rnr_code = qp->attr.min_rnr_timer;
    qp->ack_due = false;
    return send_answer(qp, pkt);
}

int fab_qp_resp_tx(struct fab_qp *qp)
{
    if (qp->ctx->unplugged) {
        return 0;
    }
    if (!receiving(qp)) {
        return qp->ack_due && fatal_syn(qp->ack_syn) ? tx_ack(qp) : 0;
    }
    if (qp->rd_head) {
        return tx_read_resp(qp);
    }
    return qp->ack_due && qp->reads_in == 0 && !qp->rpipe->late ? tx_ack(qp) : 0;
}

void fab_qp_resp_reset(struct fab_qp *qp)
{
    while (qp->rd_head) {
        pop_read(qp);
    }
    qp->reads_in = qp->dup_reads_in = 0;
    qp->ack_due = false;
    qp->rx_op = FAB_RX_IDLE;
}
