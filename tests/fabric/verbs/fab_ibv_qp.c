/* Queue pairs and shared receive queues. */
#include "fab_ibv_priv.h"

#include <stdlib.h>
#include <string.h>

struct fab_qp *fab_ibv_qp(struct ibv_qp *qp)
{
    return &((struct fab_ibv_qp *)qp)->m;
}

static struct fab_srq *srq_of(struct ibv_srq *srq)
{
    return srq ? &((struct fab_ibv_srq *)srq)->m : NULL;
}

struct ibv_qp *fab_ibv_create_qp(struct ibv_pd *ibv_pd, struct ibv_qp_init_attr *attr)
{
    struct fab_ibv_pd *pd = (struct fab_ibv_pd *)ibv_pd;
    struct fab_engine *e = fab_ibv_eng(ibv_pd->context);
    struct fab_ibv_qp *qp = calloc(1, sizeof *qp);
    struct fab_qp_init init = {.srq = srq_of(attr->srq),
                               .cap = attr->cap,
                               .type = attr->qp_type,
                               .sig_all = attr->sq_sig_all,
                               .scq = attr->send_cq ? fab_ibv_cq(attr->send_cq) : NULL,
                               .rcq = attr->recv_cq ? fab_ibv_cq(attr->recv_cq) : NULL,
                               .user = qp};
    int rc = ENOMEM;

    if (qp) {
        fab_ibv_lock(e);
        rc = fab_ibv_control(pd->m.ctx, FAB_CALL_CREATE);
        if (!rc) {
            rc = fab_qp_init(&qp->m, &pd->m, &init);
        }
        fab_ibv_unlock(e);
    }
    if (rc) {
        free(qp);
        errno = rc;
        return NULL;
    }
    attr->cap = qp->m.cap;
    qp->init = *attr;
    qp->ibv.context = ibv_pd->context;
    qp->ibv.qp_context = attr->qp_context;
    qp->ibv.pd = ibv_pd;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.srq = attr->srq;
    qp->ibv.handle = qp->ibv.qp_num = qp->m.qpn;
    qp->ibv.state = IBV_QPS_RESET;
    qp->ibv.qp_type = attr->qp_type;
    pthread_mutex_init(&qp->ibv.mutex, NULL);
    pthread_cond_init(&qp->ibv.cond, NULL);
    return &qp->ibv;
}

struct ibv_qp *fab_ibv_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
    if (attr->comp_mask != IBV_QP_INIT_ATTR_PD) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return fab_ibv_create_qp(attr->pd,
                             (struct ibv_qp_init_attr *)attr); /* the same layout up to comp_mask */
}

int fab_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_ibv_control(fab_ibv_qp(qp)->ctx, FAB_CALL_MODIFY_QP);
    if (!rc) {
        rc = fab_qp_modify(fab_ibv_qp(qp), attr, mask);
    }
    qp->state = fab_ibv_qp(qp)->state;
    fab_ibv_progress(fab_ibv_qp(qp)->ctx);
    fab_ibv_unlock(e);
    return rc;
}

int fab_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                     struct ibv_qp_init_attr *init)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_ctx_check(fab_ibv_qp(qp)->ctx);
    if (!rc) {
        fab_qp_query(fab_ibv_qp(qp), attr);
        qp->state = attr->qp_state;
        *init = ((struct fab_ibv_qp *)qp)->init;
    }
    fab_ibv_unlock(e);
    return rc;
}

int fab_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_qp_ece_query(fab_ibv_qp(qp), ece);
    fab_ibv_unlock(e);
    return rc;
}

int fab_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_qp_ece_set(fab_ibv_qp(qp), ece);
    fab_ibv_unlock(e);
    return rc;
}

int fab_ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct fab_ibv_qp *qp = (struct fab_ibv_qp *)ibv;
    struct fab_engine *e = fab_ibv_eng(ibv->context);
    struct fab_ibv_queue *async = &fab_ibv_ctx_of(ibv->context)->async;
    int rc;

    fab_ibv_lock(e);
    fab_ibv_queue_forget(async, ibv, NULL);
    fab_ibv_unlock(e);
    rc = fab_ibv_wait_acked(e, &ibv->mutex, &ibv->cond, &ibv->events_completed, &qp->async_got);
    if (rc) {
        return rc;
    }
    fab_ibv_lock(e);
    fab_qp_fini(&qp->m);
    fab_ibv_queue_forget(async, ibv, NULL); /* one may have come while the other was waited for */
    fab_ibv_unlock(e);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(qp);
    return 0;
}

int fab_ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_qp_post_send(fab_ibv_qp(qp), wr, bad);
    fab_ibv_progress(fab_ibv_qp(qp)->ctx);
    fab_ibv_unlock(e);
    return rc;
}

int fab_ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fab_engine *e = fab_ibv_eng(qp->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_qp_post_recv(fab_ibv_qp(qp), wr, bad);
    fab_ibv_unlock(e);
    return rc;
}

struct ibv_srq *fab_ibv_create_srq(struct ibv_pd *ibv_pd, struct ibv_srq_init_attr *attr)
{
    struct fab_ibv_pd *pd = (struct fab_ibv_pd *)ibv_pd;
    struct fab_engine *e = fab_ibv_eng(ibv_pd->context);
    struct fab_ibv_srq *srq = calloc(1, sizeof *srq);
    int rc = ENOMEM;

    if (srq) {
        fab_ibv_lock(e);
        rc = fab_ibv_control(pd->m.ctx, FAB_CALL_CREATE);
        if (!rc) {
            rc = fab_srq_init(&srq->m, &pd->m, &attr->attr, srq);
        }
        fab_ibv_unlock(e);
    }
    if (rc) {
        free(srq);
        errno = rc;
        return NULL;
    }
    srq->ibv.context = ibv_pd->context;
    srq->ibv.srq_context = attr->srq_context;
    srq->ibv.pd = ibv_pd;
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    return &srq->ibv;
}

int fab_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    int rc;

    fab_ibv_lock(fab_ibv_eng(srq->context));
    rc = fab_srq_modify(srq_of(srq), attr, mask);
    fab_ibv_unlock(fab_ibv_eng(srq->context));
    return rc;
}

int fab_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    struct fab_srq *m = srq_of(srq);
    int rc;

    fab_ibv_lock(fab_ibv_eng(srq->context));
    rc = fab_ctx_check(m->pd->ctx);
    if (!rc) {
        *attr = (struct ibv_srq_attr){
            .max_wr = m->rq.size, .max_sge = m->rq.max_sge, .srq_limit = m->limit};
    }
    fab_ibv_unlock(fab_ibv_eng(srq->context));
    return rc;
}

int fab_ibv_destroy_srq(struct ibv_srq *ibv)
{
    struct fab_ibv_srq *srq = (struct fab_ibv_srq *)ibv;
    struct fab_engine *e = fab_ibv_eng(ibv->context);
    int rc;

    fab_ibv_lock(e);
    rc = srq->m.refs ? EBUSY : 0;
    if (!rc) {
        fab_ibv_queue_forget(&fab_ibv_ctx_of(ibv->context)->async, ibv, NULL);
    }
    fab_ibv_unlock(e);
    if (!rc) {
        rc =
            fab_ibv_wait_acked(e, &ibv->mutex, &ibv->cond, &ibv->events_completed, &srq->async_got);
    }
    if (rc) {
        return rc;
    }
    fab_ibv_lock(e);
    fab_srq_fini(&srq->m);
    fab_ibv_unlock(e);
    pthread_mutex_destroy(&ibv->mutex);
    pthread_cond_destroy(&ibv->cond);
    free(srq);
    return 0;
}

int fab_ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fab_engine *e = fab_ibv_eng(srq->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_srq_post(srq_of(srq), wr, bad);
    fab_ibv_unlock(e);
    return rc;
}
