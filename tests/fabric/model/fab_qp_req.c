/*
 * Requester: from work requests to packets, and from acknowledgements to completions.
 *
 * [una_psn, max_psn) is on its way. Cumulative acknowledgement moves una_psn and completes work
 * requests from sq_done on; going back means sending again from una_psn. A read counts as one
 * packet number per response packet and is acknowledged only by its responses.
 */
#include "fab_qp.h"

#include <string.h>

static bool sending(const struct fab_qp *qp)
{
    return (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) && !qp->send_stuck;
}

static bool psn_before(uint32_t a, uint32_t b)
{
    return fab_psn_diff(a, b) >= 1u << 23;
}

static uint64_t rto(const struct fab_qp *qp)
{
    return fab_timeout_ns(qp->attr.timeout) * qp->nic->cfg.slow_timer;
}

static void timer_stop(struct fab_qp *qp)
{
    qp->nic->eng->ops->timer_cancel(qp->nic->eng, &qp->timer);
}

static void timer_start(struct fab_qp *qp, uint64_t ns)
{
    qp->nic->eng->ops->timer_set(qp->nic->eng, &qp->timer, fab_now(qp->nic->eng) + ns);
}

/* Time runs for the retransmission timer whenever something is unacknowledged. */
static void timer_restart(struct fab_qp *qp)
{
    if (qp->rnr_wait) {
        return;
    }
    if (qp->una_psn == qp->max_psn || !rto(qp)) {
        timer_stop(qp);
    } else {
        timer_start(qp, rto(qp));
    }
}

void fab_qp_kick(struct fab_qp *qp)
{
    if (sending(qp)) {
        fab_nic_tx_add(qp->nic, qp);
    }
}

void fab_qp_req_fail(struct fab_qp *qp, enum ibv_wc_status status)
{
    struct fab_wqe *w;

    if (qp->sq_done < qp->sq_posted) {
        w = fab_qp_wqe(qp, qp->sq_done++);
        w->status = status;
        w->item.kind = FAB_ITEM_SEND_CQE;
        fab_pipe_put(qp->spipe, &w->item, qp->nic->eng->ops->cqe_delay(qp->nic->eng, qp->nic));
    }
    fab_qp_error(qp);
}

/* ---- sending ---- */

static int check_local(struct fab_qp *qp, const struct fab_wqe *w)
{
    int access = w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

    if (w->length > FAB_MAX_MSG) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (w->opcode == IBV_WR_RDMA_READ && qp->attr.max_rd_atomic == 0) {
        return IBV_WC_LOC_QP_OP_ERR;
    }
    if (w->inl) {
        return 0;
    }
    for (uint32_t i = 0; i < w->nsge; i++) {
        const struct ibv_sge *s = &w->sge[i];

        if (s->length && !fab_mr_find(qp->nic, qp->pd, s->lkey, s->addr, s->length, access)) {
            return IBV_WC_LOC_PROT_ERR;
        }
    }
    return 0;
}

/* The work request at sq_cur begins to be sent: it gets its packet numbers. */
static void start(struct fab_qp *qp, struct fab_wqe *w)
{
    uint32_t seg = qp->nic->cfg.seg_bytes;

    w->local_error = check_local(qp, w);
    if (w->local_error) {
        return;
    }
    w->psn = qp->next_psn;
    w->npkts = w->length ? (uint32_t)((w->length + seg - 1) / seg) : 1;
    qp->next_psn = fab_psn_add(qp->next_psn, w->npkts);
    if (w->opcode == IBV_WR_RDMA_READ) {
        qp->reads_out++;
    }
}

/* No way out for requests. What is on its way is not touched: the error falls due when all before
 * @w is through. */
static bool no_route(struct fab_qp *qp, struct fab_wqe *w)
{
    if (!qp->nic->link.send_error && !qp->ctx->unplugged) {
        return false;
    }
    w->local_error = IBV_WC_LOC_QP_OP_ERR;
    qp->nic->cnt.send_errors++;
    if (qp->sq_done == qp->sq_cur) {
        fab_qp_req_fail(qp, IBV_WC_LOC_QP_OP_ERR);
    }
    return true;
}

/* Whether the work request @w at sq_cur may put a packet on the wire now; starts it when it is new.
 */
static bool may_send(struct fab_qp *qp, struct fab_wqe *w)
{
    uint32_t next;

    if (w->local_error) {
        return false;
    }
    if (!w->npkts) {
        if (qp->state == IBV_QPS_SQD) {
            return false;
        }
        if (w->flags & IBV_SEND_FENCE && qp->reads_out) {
            return false;
        }
        if (w->opcode == IBV_WR_RDMA_READ && qp->reads_out &&
            qp->reads_out >= qp->attr.max_rd_atomic) {
            return false;
        }
        if (fab_psn_diff(qp->next_psn, qp->una_psn) >= qp->nic->cfg.window) {
            return false;
        }
        start(qp, w);
        if (w->local_error && qp->sq_done == qp->sq_cur) {
            fab_qp_req_fail(qp, w->local_error);
        }
        return !w->local_error;
    }
    /* A read that is asked for again begins at the first response that is missing. */
    next = fab_psn_add(w->psn, w->opcode == IBV_WR_RDMA_READ ? w->rd_got : qp->cur_pkt);
    return fab_psn_diff(next, qp->una_psn) < qp->nic->cfg.window;
}

static bool gather(struct fab_qp *qp, const struct fab_wqe *w, uint64_t off, uint32_t len,
                   uint8_t *out)
{
    if (w->inl) {
        memcpy(out, w->inl + off, len);
        return true;
    }
    for (uint32_t i = 0; i < w->nsge && len; i++) {
        uint64_t n = w->sge[i].length;
        const uint8_t *src;

        if (off >= n) {
            off -= n;
            continue;
        }
        n = n - off < len ? n - off : len;
        src = fab_mr_find(qp->nic, qp->pd, w->sge[i].lkey, w->sge[i].addr + off, n, 0);
        if (!src) {
            return false;
        }
        fab_memory_copy(qp->nic->eng, out, src, n);
        out += n;
        len -= (uint32_t)n;
        off = 0;
    }
    return len == 0;
}

/* Room for @len bytes of payload towards the peer, with the header fields that all packets of @qp
 * share. */
static struct fab_pkt *new_pkt(struct fab_qp *qp, enum fab_op op, uint32_t psn, uint32_t len)
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
                                  .op = op,
                                  .psn = psn,
                                  .len = len};
    }
    return pkt;
}

static void sent(struct fab_qp *qp, struct fab_pkt *pkt, uint32_t end_psn)
{
    struct fab_engine *eng = qp->nic->eng;

    if (psn_before(qp->max_psn, end_psn)) {
        qp->max_psn = end_psn;
    }
    if (!qp->timer.slot && rto(qp)) {
        timer_start(qp, rto(qp));
    }
    qp->nic->cnt.tx_packets++;
    qp->nic->cnt.tx_bytes += pkt->h.len;
    eng->ops->pkt_send(eng, qp->nic, qp, pkt);
}

static void next_wqe(struct fab_qp *qp)
{
    qp->sq_cur++;
    qp->cur_pkt = 0;
}

static int tx_read(struct fab_qp *qp, struct fab_wqe *w)
{
    uint64_t off = (uint64_t)w->rd_got * qp->nic->cfg.seg_bytes;
    struct fab_pkt *pkt = new_pkt(qp, FAB_OP_READ, fab_psn_add(w->psn, w->rd_got), 0);

    if (!pkt) {
        return -1;
    }
    pkt->h.flags = FAB_F_FIRST | FAB_F_LAST;
    pkt->h.raddr = w->raddr + off;
    pkt->h.rlen = w->length - off;
    pkt->h.rkey = w->rkey;
    next_wqe(qp);
    sent(qp, pkt, fab_psn_add(w->psn, w->npkts));
    return 1;
}

static uint8_t data_flags(struct fab_qp *qp, const struct fab_wqe *w)
{
    uint8_t flags = 0;

    if (qp->cur_pkt == 0) {
        flags |= FAB_F_FIRST;
    }
    if (qp->cur_pkt + 1 == w->npkts) {
        flags |= FAB_F_LAST | FAB_F_ACKREQ;
        if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            flags |= FAB_F_IMM;
        }
        if (w->flags & IBV_SEND_SOLICITED) {
            flags |= FAB_F_SOLICITED;
        }
    }
    /* An acknowledgement each quarter of the window keeps a long message flowing. */
    if (flags & FAB_F_ACKREQ || ++qp->since_ackreq >= qp->nic->cfg.window / 4) {
        flags |= FAB_F_ACKREQ;
        qp->since_ackreq = 0;
    }
    return flags;
}

static int tx_data(struct fab_qp *qp, struct fab_wqe *w)
{
    uint32_t seg = qp->nic->cfg.seg_bytes, psn = fab_psn_add(w->psn, qp->cur_pkt);
    uint64_t off = (uint64_t)qp->cur_pkt * seg;
    uint32_t len = w->length - off < seg ? (uint32_t)(w->length - off) : seg;
    bool write = w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct fab_pkt *pkt = new_pkt(qp, write ? FAB_OP_WRITE : FAB_OP_SEND, psn, len);

    if (!pkt) {
        return -1;
    }
    if (!gather(qp, w, off, len, pkt->data)) {
        /* The region went away after the check: the work request fails when those before it are
         * through. */
        qp->nic->eng->ops->pkt_free(qp->nic->eng, pkt);
        w->local_error = IBV_WC_LOC_PROT_ERR;
        if (qp->sq_done == qp->sq_cur) {
            fab_qp_req_fail(qp, IBV_WC_LOC_PROT_ERR);
        }
        return 0;
    }
    pkt->h.raddr = w->raddr + off;
    pkt->h.rlen = w->length;
    pkt->h.rkey = w->rkey;
    pkt->h.imm = w->imm;
    pkt->h.flags = data_flags(qp, w);
    if (++qp->cur_pkt == w->npkts) {
        next_wqe(qp);
    }
    sent(qp, pkt, fab_psn_add(psn, 1));
    return 1;
}

/* In SQD nothing new is begun; once all that was begun is through, the program hears of it. */
static void check_drained(struct fab_qp *qp)
{
    if (qp->state != IBV_QPS_SQD || qp->sqd_drained || qp->una_psn != qp->next_psn) {
        return;
    }
    qp->sqd_drained = true;
    if (qp->attr.en_sqd_async_notify) {
        fab_ctx_event(qp->ctx, IBV_EVENT_SQ_DRAINED, qp->user);
    }
}

int fab_qp_req_tx(struct fab_qp *qp)
{
    struct fab_wqe *w;

    if (!sending(qp) || qp->rnr_wait) {
        return 0;
    }
    check_drained(qp);
    if (qp->sq_cur >= qp->sq_posted) {
        return 0;
    }
    w = fab_qp_wqe(qp, qp->sq_cur);
    if (!may_send(qp, w) || no_route(qp, w)) {
        return 0;
    }
    return w->opcode == IBV_WR_RDMA_READ ? tx_read(qp, w) : tx_data(qp, w);
}

/* ---- hearing back ---- */

static void rewind_to_una(struct fab_qp *qp)
{
    struct fab_wqe *w = fab_qp_wqe(qp, qp->sq_done);

    qp->sq_cur = qp->sq_done;
    qp->cur_pkt = w->npkts && w->opcode != IBV_WR_RDMA_READ ? fab_psn_diff(qp->una_psn, w->psn) : 0;
    qp->since_ackreq = 0;
    qp->rewound = true;
}

/* One more try from the oldest unacknowledged packet, if one is left. */
static void retry(struct fab_qp *qp)
{
    bool forever = qp->attr.retry_cnt == 7 && qp->nic->retry7_forever;

    if (!forever && qp->retry_left == 0) {
        qp->nic->cnt.retry_exceeded++;
        fab_qp_req_fail(qp, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    if (!forever) {
        qp->retry_left--;
    }
    rewind_to_una(qp);
    timer_restart(qp);
    fab_qp_kick(qp);
}

static void progress(struct fab_qp *qp)
{
    qp->retry_left = qp->attr.retry_cnt;
    qp->rnr_left = qp->attr.rnr_retry;
    qp->rewound = false;
    timer_restart(qp);
    check_drained(qp);
}

static void done(struct fab_qp *qp, struct fab_wqe *w)
{
    qp->sq_done++;
    if (w->opcode == IBV_WR_RDMA_READ) {
        qp->reads_out--;
    }
    if (qp->sq_cur < qp->sq_done) {
        qp->sq_cur = qp->sq_done;
        qp->cur_pkt = 0;
    }
    w->status = IBV_WC_SUCCESS;
    w->item.kind = FAB_ITEM_SEND_CQE;
    if (qp->sig_all || w->flags & IBV_SEND_SIGNALED) {
        fab_pipe_put(qp->spipe, &w->item, qp->nic->eng->ops->cqe_delay(qp->nic->eng, qp->nic));
    }
}

/*
 * Everything before @psn is acknowledged. False if a read before it lacks responses: that read was
 * lost on its way back, and is asked for again (once until something moves).
 */
static bool advance(struct fab_qp *qp, uint32_t psn)
{
    uint32_t old = qp->una_psn;
    bool whole = true;
    struct fab_wqe *w;

    /* A completion may break its CQ and with it this queue pair. */
    while (sending(qp) && qp->sq_done < qp->sq_posted) {
        w = fab_qp_wqe(qp, qp->sq_done);
        if (!w->npkts) {
            break;
        }
        if (w->opcode == IBV_WR_RDMA_READ && w->rd_got < w->npkts) {
            uint32_t want = fab_psn_add(w->psn, w->rd_got);

            if (psn_before(want, psn)) {
                psn = want;
                whole = false;
            }
            break;
        }
        if (psn_before(psn, fab_psn_add(w->psn, w->npkts))) {
            break;
        }
        done(qp, w);
    }
    if (!sending(qp)) {
        return false;
    }
    if (psn != old) {
        qp->una_psn = psn;
        w = fab_qp_wqe(qp, qp->sq_done);
        /* The cursor may stand before what is acknowledged now, after going back. */
        if (qp->sq_cur == qp->sq_done && qp->sq_done < qp->sq_posted && w->npkts &&
            w->opcode != IBV_WR_RDMA_READ && qp->cur_pkt < fab_psn_diff(psn, w->psn)) {
            qp->cur_pkt = fab_psn_diff(psn, w->psn);
        }
        progress(qp);
    }
    if (!whole && !qp->rewound) {
        retry(qp);
    }
    return whole;
}

/* A local error found ahead of time falls due when everything before it is through. */
static void due_error(struct fab_qp *qp)
{
    struct fab_wqe *w;

    if (!sending(qp) || qp->sq_done >= qp->sq_posted || qp->sq_done != qp->sq_cur) {
        return;
    }
    w = fab_qp_wqe(qp, qp->sq_done);
    if (w->local_error) {
        fab_qp_req_fail(qp, w->local_error);
    }
}

static void rnr(struct fab_qp *qp, uint8_t code)
{
    if (qp->attr.rnr_retry != 7) {
        if (qp->rnr_left == 0) {
            qp->nic->cnt.rnr_exceeded++;
            fab_qp_req_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        qp->rnr_left--;
    }
    rewind_to_una(qp);
    qp->rnr_wait = true;
    timer_start(qp, fab_rnr_ns(code));
}

static void nak(struct fab_qp *qp, const struct fab_hdr *h)
{
    switch (h->syn) {
    case FAB_NAK_RNR:
        if (!qp->rnr_wait) {
            rnr(qp, h->rnr_code);
        }
        break;
    case FAB_NAK_SEQ:
        if (!qp->rnr_wait) {
            retry(qp);
        }
        break;
    case FAB_NAK_INV:
        fab_qp_req_fail(qp, IBV_WC_REM_INV_REQ_ERR);
        break;
    case FAB_NAK_ACCESS:
        fab_qp_req_fail(qp, IBV_WC_REM_ACCESS_ERR);
        break;
    default:
        fab_qp_req_fail(qp, IBV_WC_REM_OP_ERR);
        break;
    }
}

static bool in_flight(const struct fab_qp *qp, uint32_t psn)
{
    return fab_psn_diff(psn, qp->una_psn) < fab_psn_diff(qp->max_psn, qp->una_psn);
}

void fab_qp_req_ack(struct fab_qp *qp, const struct fab_hdr *h)
{
    if (!sending(qp) || !in_flight(qp, h->psn)) {
        return;
    }
    if (h->syn == FAB_ACK) {
        if (advance(qp, fab_psn_add(h->psn, 1))) {
            due_error(qp);
        }
    } else if (advance(qp, h->psn)) {
        nak(qp, h);
    }
    fab_qp_kick(qp);
}

void fab_qp_req_read(struct fab_qp *qp, struct fab_pkt *pkt)
{
    struct fab_engine *eng = qp->nic->eng;
    uint32_t seg = qp->nic->cfg.seg_bytes;
    struct fab_wqe *w;
    uint64_t off;

    if (!sending(qp) || !in_flight(qp, pkt->h.psn) || !advance(qp, pkt->h.psn) ||
        qp->sq_done >= qp->sq_posted) {
        goto drop;
    }
    w = fab_qp_wqe(qp, qp->sq_done);
    if (!w->npkts || w->opcode != IBV_WR_RDMA_READ ||
        pkt->h.psn != fab_psn_add(w->psn, w->rd_got)) {
        goto drop;
    }
    off = (uint64_t)w->rd_got * seg;
    if (pkt->h.len != (w->length - off < seg ? w->length - off : seg) ||
        !fab_pkt_scatter(pkt, w->sge, w->nsge, off)) {
        goto drop;
    }
    pkt->recv = NULL;
    pkt->read = w;
    pkt->item.kind = FAB_ITEM_PKT;
    fab_pkt_regions(qp->nic, pkt);
    w->rd_got++;
    qp->una_psn = fab_psn_add(pkt->h.psn, 1);
    fab_pipe_put(qp->spipe, &pkt->item, eng->ops->dma_delay(eng, qp->nic, pkt->h.len));
    /* With no delay the bytes were written inside that call, and their failure may have ended the
     * queue pair. */
    if (!sending(qp)) {
        return;
    }
    if (w->rd_got == w->npkts) {
        done(qp, w);
    }
    if (!sending(qp)) {
        return;
    }
    progress(qp);
    due_error(qp);
    fab_qp_kick(qp);
    return;
drop:
    eng->ops->pkt_free(eng, pkt);
    fab_qp_kick(qp);
}

void fab_qp_req_timer(struct fab_timer *t)
{
    struct fab_qp *qp = t->owner;

    if (qp->nic->hung || qp->ctx->dead || !sending(qp)) {
        return;
    }
    if (qp->rnr_wait) {
        qp->rnr_wait = false;
        fab_qp_kick(qp);
        return;
    }
    if (qp->una_psn == qp->max_psn) {
        return;
    }
    qp->nic->cnt.timeouts++;
    retry(qp);
}

void fab_qp_req_resume(struct fab_qp *qp)
{
    if (!sending(qp)) {
        return;
    }
    if (qp->rnr_wait && !qp->timer.slot) {
        fab_qp_req_timer(&qp->timer);
    } else if (!qp->timer.slot) {
        timer_restart(qp);
    }
    fab_qp_kick(qp);
}
