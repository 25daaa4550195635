/* Receive queues, own and shared. */
#include "fab_qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t slot_size(const struct fab_rq *rq)
{
    return sizeof(struct fab_rwqe) + rq->max_sge * sizeof(struct ibv_sge);
}

int fab_rq_init(struct fab_rq *rq, uint32_t size, uint32_t max_sge)
{
    *rq = (struct fab_rq){.size = size, .max_sge = max_sge};
    if (size) {
        rq->mem = malloc(size * slot_size(rq));
        if (!rq->mem) {
            return ENOMEM;
        }
    }
    fab_rq_reset(rq);
    return 0;
}

void fab_rq_fini(struct fab_rq *rq)
{
    free(rq->mem);
    rq->mem = NULL;
    rq->size = 0;
    rq->head = rq->tail = rq->free = NULL;
}

void fab_rq_reset(struct fab_rq *rq)
{
    rq->used = rq->queued = 0;
    rq->head = rq->tail = rq->free = NULL;
    for (uint32_t i = rq->size; i-- > 0;) {
        struct fab_rwqe *w = (struct fab_rwqe *)(rq->mem + i * slot_size(rq));

        w->next = rq->free;
        rq->free = w;
    }
}

int fab_rq_post(struct fab_rq *rq, const struct ibv_recv_wr *wr)
{
    struct fab_rwqe *w = rq->free;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge) {
        return EINVAL;
    }
    if (!w) {
        return ENOMEM;
    }
    rq->free = w->next;
    w->told = false;
    w->next = NULL;
    w->wr_id = wr->wr_id;
    w->nsge = (uint32_t)wr->num_sge;
    w->length = 0;
    for (uint32_t i = 0; i < w->nsge; i++) {
        w->sge[i] = wr->sg_list[i];
        w->length += wr->sg_list[i].length;
    }
    if (rq->tail) {
        rq->tail->next = w;
    } else {
        rq->head = w;
    }
    rq->tail = w;
    rq->used++;
    rq->queued++;
    return 0;
}

struct fab_rwqe *fab_rq_take(struct fab_rq *rq)
{
    struct fab_rwqe *w = rq->head;

    if (!w) {
        return NULL;
    }
    rq->head = w->next;
    if (!rq->head) {
        rq->tail = NULL;
    }
    rq->queued--;
    return w;
}

void fab_rq_release(struct fab_rq *rq, struct fab_rwqe *w)
{
    w->next = rq->free;
    rq->free = w;
    rq->used--;
}

int fab_srq_init(struct fab_srq *srq, struct fab_pd *pd, const struct ibv_srq_attr *attr,
                 void *user)
{
    int rc = fab_ctx_check(pd->ctx);

    if (rc) {
        return rc;
    }
    if (attr->max_wr < 1 || attr->max_wr > FAB_MAX_QP_WR || attr->max_sge < 1 ||
        attr->max_sge > FAB_MAX_SGE) {
        return EINVAL;
    }
    if (pd->ctx->nic->nsrqs >= FAB_MAX_SRQ) {
        return ENOMEM;
    }
    *srq = (struct fab_srq){.pd = pd, .user = user};
    rc = fab_rq_init(&srq->rq, attr->max_wr, attr->max_sge);
    if (rc) {
        return rc;
    }
    pd->ctx->nic->nsrqs++;
    pd->refs++;
    return 0;
}

int fab_srq_fini(struct fab_srq *srq)
{
    if (srq->refs) {
        return EBUSY;
    }
    srq->pd->refs--;
    srq->pd->ctx->nic->nsrqs--;
    fab_rq_fini(&srq->rq);
    return 0;
}

int fab_srq_modify(struct fab_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
    int rc = fab_ctx_check(srq->pd->ctx);

    if (rc) {
        return rc;
    }
    if (mask & IBV_SRQ_MAX_WR) {
        return EOPNOTSUPP;
    }
    if (mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->rq.size) {
            return EINVAL;
        }
        srq->limit = attr->srq_limit;
    }
    return 0;
}

int fab_srq_post(struct fab_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int rc = fab_ctx_check(srq->pd->ctx);

    for (; wr && !rc; wr = wr->next) {
        rc = fab_rq_post(&srq->rq, wr);
        if (rc) {
            break;
        }
    }
    if (rc) {
        *bad = wr;
    }
    return rc;
}
