/* Completion queues. */
#include "fab_ibv_priv.h"

#include <stdlib.h>

struct fab_cq *fab_ibv_cq(struct ibv_cq *cq)
{
    return &((struct fab_ibv_cq *)cq)->m;
}

struct ibv_cq *fab_ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                 struct ibv_comp_channel *ch, int vector)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    struct fab_ibv_cq *cq = calloc(1, sizeof *cq);
    int rc = ENOMEM;

    if (cq) {
        fab_ibv_lock(fab_ibv_eng(ctx));
        rc = vector < 0 || vector >= ctx->num_comp_vectors
                 ? EINVAL
                 : fab_ibv_control(&c->m, FAB_CALL_CREATE);
        if (!rc) {
            rc = fab_cq_init(&cq->m, &c->m, cqe, cq);
        }
        if (!rc && ch) {
            ch->refcnt++;
        }
        fab_ibv_unlock(fab_ibv_eng(ctx));
    }
    if (rc) {
        free(cq);
        errno = rc;
        return NULL;
    }
    cq->ibv.context = ctx;
    cq->ibv.channel = ch;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = cqe;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    return &cq->ibv;
}

int fab_ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    int rc;

    fab_ibv_lock(fab_ibv_eng(cq->context));
    rc = fab_ctx_check(fab_ibv_cq(cq)->ctx);
    if (!rc) {
        rc = fab_cq_resize(fab_ibv_cq(cq), cqe);
    }
    if (!rc) {
        cq->cqe = cqe;
    }
    fab_ibv_unlock(fab_ibv_eng(cq->context));
    return rc;
}

int fab_ibv_destroy_cq(struct ibv_cq *ibv)
{
    struct fab_ibv_cq *cq = (struct fab_ibv_cq *)ibv;
    struct fab_engine *e = fab_ibv_eng(ibv->context);
    int rc;

    fab_ibv_lock(e);
    rc = cq->m.refs ? EBUSY : 0;
    if (!rc) {
        fab_ibv_queue_forget(&fab_ibv_ctx_of(ibv->context)->async, ibv, NULL);
        if (ibv->channel) {
            fab_ibv_queue_forget(&((struct fab_ibv_channel *)ibv->channel)->q, NULL, cq);
        }
    }
    fab_ibv_unlock(e);
    if (!rc) {
        rc = fab_ibv_wait_acked(e, &ibv->mutex, &ibv->cond, &ibv->comp_events_completed,
                                &cq->comp_got);
    }
    if (!rc) {
        rc = fab_ibv_wait_acked(e, &ibv->mutex, &ibv->cond, &ibv->async_events_completed,
                                &cq->async_got);
    }
    if (rc) {
        return rc;
    }
    fab_ibv_lock(e);
    fab_cq_fini(&cq->m);
    if (ibv->channel) {
        ibv->channel->refcnt--;
    }
    fab_ibv_unlock(e);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(cq);
    return 0;
}

int fab_ibv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    struct fab_engine *e = fab_ibv_eng(cq->context);
    int got;

    fab_ibv_lock(e);
    fab_ibv_progress(fab_ibv_cq(cq)->ctx);
    got = fab_cq_poll(fab_ibv_cq(cq), n, wc);
    if (got == 0 && e->ops->idle) {
        e->ops->idle(e);
    }
    fab_ibv_unlock(e);
    return got;
}

int fab_ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    int rc;

    fab_ibv_lock(fab_ibv_eng(cq->context));
    rc = fab_cq_arm(fab_ibv_cq(cq), solicited_only != 0);
    fab_ibv_unlock(fab_ibv_eng(cq->context));
    return rc;
}
