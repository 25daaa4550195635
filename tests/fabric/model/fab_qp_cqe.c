/* Completions of a queue pair, and its flush. */
#include "fab_qp.h"

#include <string.h>

/* Vendor codes differ by device; these only have to differ from each other. */
static uint32_t vendor_err(enum ibv_wc_status status)
{
    return 0x80 + (uint32_t)status;
}

static void fill(struct fab_qp *qp, struct fab_cqe *c, uint64_t wr_id, enum ibv_wc_status status)
{
    memset(&c->wc, FAB_POISON, sizeof c->wc);
    c->qp = qp;
    c->wc.wr_id = wr_id;
    c->wc.status = status;
    c->wc.qp_num = qp->qpn;
    c->wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : vendor_err(status);
}

/* What a library says of a work request that the device has told nothing about. */
static void made_up(struct fab_qp *qp, struct fab_cqe *c)
{
    if (!fab_nic_makes_up(qp->nic)) {
        return;
    }
    c->wc.vendor_err = 0;
    c->codeless = qp->nic->provider == FAB_PROVIDER_BNXT;
    qp->nic->cnt.flushes_made_up++;
}

static enum ibv_wc_opcode send_opcode(int opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    default:
        return IBV_WC_SEND;
    }
}

void fab_qp_send_cqe(struct fab_qp *qp, const struct fab_wqe *w, enum ibv_wc_status status)
{
    struct fab_cqe c = {.send_index = w->index + 1};

    fill(qp, &c, w->wr_id, status);
    if (status == IBV_WC_WR_FLUSH_ERR) {
        made_up(qp, &c);
    }
    if (status == IBV_WC_SUCCESS) {
        c.wc.opcode = send_opcode(w->opcode);
        c.wc.wc_flags = 0;
        if (w->opcode == IBV_WR_RDMA_READ) {
            c.wc.byte_len = (uint32_t)w->length;
        }
    }
    fab_cq_push(qp->scq, &c, false);
}

void fab_qp_recv_cqe(struct fab_qp *qp, struct fab_rwqe *r, enum ibv_wc_status status, uint32_t len,
                     const struct fab_hdr *h)
{
    struct fab_cqe c = {.rq = fab_qp_rq(qp), .slot = r};

    fill(qp, &c, r->wr_id, status);
    if (status == IBV_WC_WR_FLUSH_ERR) {
        made_up(qp, &c);
    } else {
        qp->nic->cnt.late_arrivals += qp->state == IBV_QPS_ERR && fab_nic_makes_up(qp->nic);
    }
    if (status == IBV_WC_SUCCESS) {
        c.wc.opcode = h->op == FAB_OP_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        c.wc.byte_len = len;
        c.wc.wc_flags = h->flags & FAB_F_IMM ? IBV_WC_WITH_IMM : 0;
        if (h->flags & FAB_F_IMM) {
            c.wc.imm_data = h->imm;
        }
        c.wc.src_qp = h->src_qpn;
        c.wc.pkey_index = 0;
        c.wc.slid = 0;
        c.wc.sl = 0;
        c.wc.dlid_path_bits = 0;
    }
    fab_cq_push(qp->rcq, &c, h && h->flags & FAB_F_SOLICITED);
}

void fab_qp_flush_sends(struct fab_qp *qp)
{
    while (qp->sq_done < qp->sq_posted) {
        fab_qp_send_cqe(qp, fab_qp_wqe(qp, qp->sq_done++), IBV_WC_WR_FLUSH_ERR);
    }
    qp->sq_cur = qp->sq_done;
    qp->cur_pkt = 0;
}

void fab_qp_flush_recvs(struct fab_qp *qp)
{
    struct fab_rwqe *r = qp->rx_recv;

    qp->rx_recv = NULL;
    if (r) {
        fab_qp_recv_cqe(qp, r, IBV_WC_WR_FLUSH_ERR, 0, NULL);
    }
    if (qp->srq) {
        fab_ctx_event(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp->user);
        return;
    }
    while ((r = fab_rq_take(&qp->rq)) != NULL) {
        fab_qp_recv_cqe(qp, r, IBV_WC_WR_FLUSH_ERR, 0, NULL);
    }
}

void fab_qp_make_up_recvs(struct fab_qp *qp)
{
    for (struct fab_rwqe *r = qp->rq.head; r; r = r->next) {
        struct fab_cqe c = {.slot = NULL};

        if (r->told) {
            continue;
        }
        r->told = true;
        fill(qp, &c, r->wr_id, IBV_WC_WR_FLUSH_ERR);
        made_up(qp, &c);
        c.qp = qp;
        fab_cq_push(qp->rcq, &c, false);
    }
}
