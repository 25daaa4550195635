/* Completion queues. */
#include "fab_cq.h"

#include "fab_qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int fab_cq_init(struct fab_cq *cq, struct fab_ctx *ctx, int cqe, void *user)
{
    int rc = fab_ctx_check(ctx);

    if (rc) {
        return rc;
    }
    if (cqe < 1 || cqe > FAB_MAX_CQE) {
        return EINVAL;
    }
    if (ctx->nic->ncqs >= FAB_MAX_CQ) {
        return ENOMEM;
    }
    *cq = (struct fab_cq){.ctx = ctx, .user = user, .size = (uint32_t)cqe};
    cq->ring = malloc(cq->size * sizeof *cq->ring);
    if (!cq->ring) {
        return ENOMEM;
    }
    ctx->nic->ncqs++;
    return 0;
}

int fab_cq_fini(struct fab_cq *cq)
{
    if (cq->refs) {
        return EBUSY;
    }
    cq->ctx->nic->ncqs--;
    free(cq->ring);
    cq->ring = NULL;
    return 0;
}

static struct fab_cqe *at(struct fab_cq *cq, uint32_t i)
{
    uint32_t pos = cq->head + i;

    return &cq->ring[pos >= cq->size ? pos - cq->size : pos];
}

int fab_cq_resize(struct fab_cq *cq, int cqe)
{
    struct fab_cqe *ring;

    if (cqe < 1 || cqe > FAB_MAX_CQE || (uint32_t)cqe < cq->count) {
        return EINVAL;
    }
    ring = malloc((size_t)cqe * sizeof *ring);
    if (!ring) {
        return ENOMEM;
    }
    for (uint32_t i = 0; i < cq->count; i++) {
        ring[i] = *at(cq, i);
    }
    free(cq->ring);
    cq->ring = ring;
    cq->size = (uint32_t)cqe;
    cq->head = 0;
    return 0;
}

/* Gives back the work-queue slots that @c stands for. */
static void release(struct fab_cqe *c)
{
    if (c->rq) {
        fab_rq_release(c->rq, c->slot);
    } else if (c->send_index > c->qp->sq_freed) {
        c->qp->sq_freed = c->send_index;
    }
}

int fab_cq_poll(struct fab_cq *cq, int n, struct ibv_wc *wc)
{
    int got = 0;

    if (fab_ctx_check_data(cq->ctx) && cq->count == 0) {
        return -EIO;
    }
    while (got < n && cq->count) {
        struct fab_cqe *c = at(cq, 0);

        uint32_t code = c->codeless ? wc[got].vendor_err : c->wc.vendor_err;

        wc[got] = c->wc;
        wc[got++].vendor_err = code;
        release(c);
        cq->head = cq->head + 1 == cq->size ? 0 : cq->head + 1;
        cq->count--;
    }
    return got;
}

int fab_cq_arm(struct fab_cq *cq, bool solicited_only)
{
    int rc = fab_ctx_check_data(cq->ctx);

    if (rc) {
        return rc;
    }
    if (!solicited_only) {
        cq->armed = FAB_CQ_ARMED;
    } else if (cq->armed == FAB_CQ_QUIET) {
        cq->armed = FAB_CQ_ARMED_SOLICITED;
    }
    return 0;
}

/* The CQ had no room. QPs on it cannot report anything any more, so they end too. */
static void overrun(struct fab_cq *cq)
{
    struct fab_qp *qp;

    cq->broken = true;
    cq->ctx->nic->cnt.cq_overruns++;
    fab_ctx_event(cq->ctx, IBV_EVENT_CQ_ERR, cq->user);
    for (qp = cq->ctx->nic->qps; qp; qp = qp->nic_next) {
        if ((qp->scq == cq || qp->rcq == cq) && qp->state != IBV_QPS_RESET &&
            qp->state != IBV_QPS_ERR) {
            fab_qp_fatal(qp, IBV_EVENT_QP_FATAL);
        }
    }
}

void fab_cq_push(struct fab_cq *cq, const struct fab_cqe *cqe, bool solicited)
{
    if (cq->broken) {
        return;
    }
    if (cq->count == cq->size) {
        overrun(cq);
        return;
    }
    *at(cq, cq->count) = *cqe;
    cq->count++;
    if (cq->armed == FAB_CQ_ARMED ||
        (cq->armed == FAB_CQ_ARMED_SOLICITED && (solicited || cqe->wc.status != IBV_WC_SUCCESS))) {
        cq->armed = FAB_CQ_QUIET;
        cq->ctx->ops->comp(cq->ctx, cq);
    }
}

void fab_cq_purge(struct fab_cq *cq, struct fab_qp *qp)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < cq->count; i++) {
        struct fab_cqe *c = at(cq, i);

        if (c->qp != qp) {
            *at(cq, kept++) = *c;
        } else if (c->rq && qp->srq) {
            fab_rq_release(c->rq, c->slot);
        }
    }
    cq->count = kept;
}
