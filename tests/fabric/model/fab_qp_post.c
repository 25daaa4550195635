/* Posting work requests. */
#include "fab_qp.h"

#include <errno.h>
#include <string.h>

/* Whether the data is taken at the post. mana's library knows no such flag, though its queue pairs
 * are given what is asked for: the work request reads memory, by the key that it has. */
static bool is_inline(const struct fab_qp *qp, const struct ibv_send_wr *wr)
{
    return (wr->send_flags & IBV_SEND_INLINE) != 0 && qp->nic->provider != FAB_PROVIDER_MANA;
}

static int check_send(const struct fab_qp *qp, const struct ibv_send_wr *wr, uint64_t *length)
{
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        break;
    case IBV_WR_RDMA_READ:
        if (wr->send_flags & IBV_SEND_INLINE) {
            return EINVAL;
        }
        break;
    default:
        return EOPNOTSUPP;
    }
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge) {
        return EINVAL;
    }
    *length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        *length += wr->sg_list[i].length;
    }
    if (is_inline(qp, wr) && *length > qp->cap.max_inline_data) {
        return EINVAL;
    }
    return 0;
}

static void copy_inline(struct fab_wqe *w, const struct ibv_send_wr *wr, uint8_t *to)
{
    w->inl = to;
    w->nsge = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
}

static int post_one(struct fab_qp *qp, const struct ibv_send_wr *wr)
{
    uint64_t length;
    struct fab_wqe *w;
    int rc = check_send(qp, wr, &length);

    if (rc) {
        return rc;
    }
    if (qp->sq_posted - qp->sq_freed >= qp->cap.max_send_wr) {
        return ENOMEM;
    }
    w = fab_qp_wqe(qp, qp->sq_posted);
    *w = (struct fab_wqe){.qp = qp,
                          .index = qp->sq_posted,
                          .wr_id = wr->wr_id,
                          .length = length,
                          .raddr = wr->wr.rdma.remote_addr,
                          .rkey = wr->wr.rdma.rkey,
                          .imm = wr->imm_data,
                          .opcode = (int)wr->opcode,
                          .flags = (int)wr->send_flags,
                          .nsge = (uint32_t)wr->num_sge};
    w->item.kind = FAB_ITEM_SEND_CQE;
    if (is_inline(qp, wr)) {
        copy_inline(w, wr, (uint8_t *)(w->sge + qp->cap.max_send_sge));
    } else if (wr->num_sge) {
        memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof *w->sge);
    }
    qp->sq_posted++;
    return 0;
}

/* Whether the driver takes the first of a list and then fails. */
static bool list_is_cut(struct fab_nic *nic)
{
    nic->cnt.lists++;
    if (nic->list_cut == 0 || nic->cnt.lists % nic->list_cut != 0) {
        return false;
    }
    nic->cnt.lists_cut++;
    return true;
}

/* A library that keeps its own account takes nothing for a queue pair that it knows to be in ERR.
 */
static bool library_refuses(struct fab_qp *qp, bool send)
{
    enum fab_provider p = qp->nic->provider;

    if (qp->state != IBV_QPS_ERR || fab_provider_is_plain(p) || p == FAB_PROVIDER_IONIC ||
        (p == FAB_PROVIDER_SEND_REFUSED && !send)) {
        return false;
    }
    qp->nic->cnt.posts_refused++;
    return true;
}

int fab_qp_post_send(struct fab_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    const struct ibv_send_wr *first = wr;
    int rc = fab_ctx_check_data(qp->ctx);

    if (!rc &&
        (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR)) {
        rc = EINVAL;
    }
    if (!rc && library_refuses(qp, true)) {
        rc = EINVAL;
    }
    for (; wr && !rc; wr = wr->next) {
        if (first && wr == first->next && list_is_cut(qp->nic)) {
            rc = ENOMEM;
        } else {
            rc = post_one(qp, wr);
        }
        if (rc) {
            break;
        }
    }
    if (rc) {
        *bad = wr;
    }
    if (qp->state == IBV_QPS_ERR && fab_nic_makes_up(qp->nic)) {
        fab_qp_flush_sends(qp);
    } else if (qp->state == IBV_QPS_ERR && qp->sq_done < qp->sq_posted) {
        fab_pipe_flush(qp->spipe);
    } else {
        fab_qp_kick(qp);
    }
    return rc;
}

int fab_qp_post_recv(struct fab_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int rc = fab_ctx_check_data(qp->ctx);

    if (!rc && (qp->state == IBV_QPS_RESET || qp->srq)) {
        rc = EINVAL;
    }
    if (!rc && library_refuses(qp, false)) {
        rc = EINVAL;
    }
    for (; wr && !rc; wr = wr->next) {
        rc = fab_rq_post(&qp->rq, wr);
        if (rc) {
            break;
        }
    }
    if (rc) {
        *bad = wr;
    }
    if (qp->state == IBV_QPS_ERR && fab_nic_makes_up(qp->nic)) {
        fab_qp_make_up_recvs(qp);
    } else if (qp->state == IBV_QPS_ERR && qp->rq.queued && !qp->nic->recv_kept) {
        fab_pipe_flush(qp->rpipe);
    }
    return rc;
}
