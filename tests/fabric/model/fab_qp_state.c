/* Birth, states and end of a queue pair. */
#include "fab_qp.h"
#include "fab_spine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One move of the state machine of a reliable connection, with the attributes that verbs demand and
 * allow for it. */
struct move {
    enum ibv_qp_state from, to;
    int required, optional;
};

static const struct move moves[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
         IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PKEY_INDEX | IBV_QP_PORT},
};

static void hash_add(struct fab_qp *qp)
{
    struct fab_nic *nic = qp->nic;
    struct fab_qp **slot = &nic->qp_hash[qp->qpn & (FAB_QP_HASH - 1)];

    qp->hash_next = *slot;
    *slot = qp;
    qp->nic_next = nic->qps;
    qp->nic_prev = &nic->qps;
    if (nic->qps) {
        nic->qps->nic_prev = &qp->nic_next;
    }
    nic->qps = qp;
    nic->nqps++;
}

static void hash_remove(struct fab_qp *qp)
{
    struct fab_qp **pp = &qp->nic->qp_hash[qp->qpn & (FAB_QP_HASH - 1)];

    while (*pp != qp) {
        pp = &(*pp)->hash_next;
    }
    *pp = qp->hash_next;
    *qp->nic_prev = qp->nic_next;
    if (qp->nic_next) {
        qp->nic_next->nic_prev = qp->nic_prev;
    }
    qp->nic->nqps--;
}

static int check_init(const struct fab_qp_init *init, const struct fab_pd *pd)
{
    const struct ibv_qp_cap *cap = &init->cap;
    int rc = fab_ctx_check(pd->ctx);

    if (rc) {
        return rc;
    }
    if (init->type != IBV_QPT_RC) {
        return EOPNOTSUPP;
    }
    if (!init->scq || !init->rcq || init->scq->ctx != pd->ctx || init->rcq->ctx != pd->ctx) {
        return EINVAL;
    }
    if (init->srq && init->srq->pd->ctx != pd->ctx) {
        return EINVAL;
    }
    if (cap->max_send_wr > FAB_MAX_QP_WR || cap->max_recv_wr > FAB_MAX_QP_WR ||
        cap->max_send_sge > FAB_MAX_SGE || cap->max_recv_sge > FAB_MAX_SGE ||
        cap->max_inline_data > FAB_MAX_INLINE) {
        return EINVAL;
    }
    return pd->ctx->nic->nqps < FAB_MAX_QP ? 0 : ENOMEM;
}

static void free_queues(struct fab_qp *qp)
{
    free(qp->sq_mem);
    fab_rq_fini(&qp->rq);
    free(qp->spipe);
    free(qp->rpipe);
}

static int alloc_queues(struct fab_qp *qp)
{
    size_t stride = sizeof(struct fab_wqe) + qp->cap.max_send_sge * sizeof(struct ibv_sge) +
                    qp->cap.max_inline_data;

    qp->sq_stride = (uint32_t)((stride + 7) & ~(size_t)7);
    if (qp->cap.max_send_wr) {
        qp->sq_mem = malloc((size_t)qp->cap.max_send_wr * qp->sq_stride);
    }
    qp->spipe = fab_pipe_new(qp, true);
    qp->rpipe = fab_pipe_new(qp, false);
    if (fab_rq_init(&qp->rq, qp->srq ? 0 : qp->cap.max_recv_wr, qp->cap.max_recv_sge) ||
        !qp->spipe || !qp->rpipe || (qp->cap.max_send_wr && !qp->sq_mem)) {
        free_queues(qp);
        return ENOMEM;
    }
    return 0;
}

int fab_qp_init(struct fab_qp *qp, struct fab_pd *pd, const struct fab_qp_init *init)
{
    struct fab_nic *nic = pd->ctx->nic;
    int rc = check_init(init, pd);

    if (rc) {
        return rc;
    }
    *qp = (struct fab_qp){.nic = nic,
                          .ctx = pd->ctx,
                          .pd = pd,
                          .scq = init->scq,
                          .rcq = init->rcq,
                          .srq = init->srq,
                          .user = init->user,
                          .cap = init->cap,
                          .sig_all = init->sig_all != 0,
                          .state = IBV_QPS_RESET};
    if (init->srq) {
        qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
    }
    qp->timer.fire = fab_qp_req_timer;
    qp->timer.owner = qp;
    qp->qpn = nic->eng->ops->qpn_alloc(nic->eng, nic);
    if (!qp->qpn) {
        return ENOMEM;
    }
    rc = alloc_queues(qp);
    if (rc) {
        nic->eng->ops->qpn_free(nic->eng, nic, qp->qpn);
        return rc;
    }
    hash_add(qp);
    pd->refs++;
    qp->scq->refs++;
    qp->rcq->refs++;
    if (qp->srq) {
        qp->srq->refs++;
    }
    return 0;
}

void fab_qp_fini(struct fab_qp *qp)
{
    struct fab_nic *nic = qp->nic;

    nic->eng->ops->timer_cancel(nic->eng, &qp->timer);
    fab_nic_tx_remove(nic, qp);
    fab_qp_resp_reset(qp);
    fab_cq_purge(qp->scq, qp);
    if (qp->rcq != qp->scq) {
        fab_cq_purge(qp->rcq, qp);
    }
    if (qp->srq && qp->rx_recv) {
        fab_rq_release(&qp->srq->rq, qp->rx_recv);
    }
    fab_pipe_orphan(qp->spipe);
    fab_pipe_orphan(qp->rpipe);
    hash_remove(qp);
    nic->eng->ops->qpn_free(nic->eng, nic, qp->qpn);
    free(qp->sq_mem);
    fab_rq_fini(&qp->rq);
    qp->pd->refs--;
    qp->scq->refs--;
    qp->rcq->refs--;
    if (qp->srq) {
        qp->srq->refs--;
    }
}

/* Silently, as RESET does it: work requests and completions are forgotten, DMA under way is not
 * waited for. */
static int reset(struct fab_qp *qp)
{
    struct fab_nic *nic = qp->nic;
    struct fab_pipe *s = qp->spipe->head ? fab_pipe_new(qp, true) : qp->spipe;
    struct fab_pipe *r = qp->rpipe->head ? fab_pipe_new(qp, false) : qp->rpipe;

    if (!s || !r) {
        if (s != qp->spipe) {
            free(s);
        }
        if (r != qp->rpipe) {
            free(r);
        }
        return ENOMEM;
    }
    nic->eng->ops->timer_cancel(nic->eng, &qp->timer);
    fab_nic_tx_remove(nic, qp);
    fab_qp_resp_reset(qp);
    fab_cq_purge(qp->scq, qp);
    if (qp->rcq != qp->scq) {
        fab_cq_purge(qp->rcq, qp);
    }
    if (s != qp->spipe) {
        fab_pipe_orphan(qp->spipe);
    }
    if (r != qp->rpipe) {
        fab_pipe_orphan(qp->rpipe);
    }
    r->failed = false;
    qp->spipe = s;
    qp->rpipe = r;
    if (qp->srq && qp->rx_recv) {
        fab_rq_release(&qp->srq->rq, qp->rx_recv);
    }
    qp->rx_recv = NULL;
    if (!qp->srq) {
        fab_rq_reset(&qp->rq);
    }
    qp->sq_freed = qp->sq_done = qp->sq_cur = qp->sq_posted = 0;
    qp->cur_pkt = qp->since_ackreq = qp->reads_out = 0;
    qp->linger_until = 0;
    qp->rnr_wait = qp->rewound = qp->nak_sent = qp->comm_est = qp->sqd_drained = qp->send_stuck =
        false;
    memset(&qp->attr, 0, sizeof qp->attr);
    qp->ece_told = false;
    qp->ece = 0;
    qp->state = IBV_QPS_RESET;
    return 0;
}

void fab_qp_error(struct fab_qp *qp)
{
    if (qp->state == IBV_QPS_ERR) {
        return;
    }
    qp->state = IBV_QPS_ERR;
    qp->nic->eng->ops->timer_cancel(qp->nic->eng, &qp->timer);
    qp->rnr_wait = false;
    fab_qp_resp_reset(qp);
    fab_pipe_flush(qp->spipe);
    if (fab_nic_makes_up(qp->nic) && !qp->srq) {
        fab_qp_make_up_recvs(qp);
    } else {
        fab_pipe_flush(qp->rpipe);
    }
}

/* The command: a library with its own account flushes at once, and the device takes a while to
 * stop. */
static void to_error(struct fab_qp *qp)
{
    enum fab_provider p = qp->nic->provider;

    if (qp->state == IBV_QPS_ERR || fab_provider_is_plain(p) || p == FAB_PROVIDER_SEND_REFUSED ||
        qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT) {
        fab_qp_error(qp);
        return;
    }
    qp->state = IBV_QPS_ERR;
    qp->linger_until = fab_now(qp->nic->eng) + qp->nic->cfg.linger_ns;
    qp->nic->eng->ops->timer_cancel(qp->nic->eng, &qp->timer);
    qp->rnr_wait = false;
    if (fab_nic_makes_up(qp->nic)) {
        fab_qp_flush_sends(qp);
        fab_qp_make_up_recvs(qp);
    }
}

void fab_qp_fatal(struct fab_qp *qp, enum ibv_event_type type)
{
    fab_qp_error(qp);
    fab_ctx_event(qp->ctx, type, qp->user);
}

static const struct move *find_move(enum ibv_qp_state from, enum ibv_qp_state to)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (moves[i].from == from && moves[i].to == to) {
            return &moves[i];
        }
    }
    return NULL;
}

static bool ranges_ok(const struct fab_ib *ib, const struct ibv_qp_attr *a, int mask)
{
    return !(
        (mask & IBV_QP_PORT && a->port_num != 1) ||
        (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0) ||
        (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096)) ||
        (mask & IBV_QP_DEST_QPN && a->dest_qp_num > 0xffffff) ||
        (mask & IBV_QP_TIMEOUT && a->timeout > 31) ||
        (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) ||
        (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) ||
        (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) ||
        (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > FAB_MAX_RD_ATOM) ||
        (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > FAB_MAX_RD_ATOM) ||
        (mask & IBV_QP_AV &&
         ((!a->ah_attr.is_global && (!ib->lid || ib->grh_required)) || a->ah_attr.port_num != 1 ||
          a->ah_attr.grh.sgid_index >= FAB_GID_TABLE)));
}

static void copy_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
    if (mask & IBV_QP_PKEY_INDEX) {
        to->pkey_index = from->pkey_index;
    }
    if (mask & IBV_QP_PORT) {
        to->port_num = from->port_num;
    }
    if (mask & IBV_QP_ACCESS_FLAGS) {
        to->qp_access_flags = from->qp_access_flags;
    }
    if (mask & IBV_QP_AV) {
        to->ah_attr = from->ah_attr;
    }
    if (mask & IBV_QP_PATH_MTU) {
        to->path_mtu = from->path_mtu;
    }
    if (mask & IBV_QP_DEST_QPN) {
        to->dest_qp_num = from->dest_qp_num;
    }
    if (mask & IBV_QP_RQ_PSN) {
        to->rq_psn = from->rq_psn & FAB_PSN_MASK;
    }
    if (mask & IBV_QP_SQ_PSN) {
        to->sq_psn = from->sq_psn & FAB_PSN_MASK;
    }
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
        to->max_dest_rd_atomic = from->max_dest_rd_atomic;
    }
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) {
        to->max_rd_atomic = from->max_rd_atomic;
    }
    if (mask & IBV_QP_MIN_RNR_TIMER) {
        to->min_rnr_timer = from->min_rnr_timer;
    }
    if (mask & IBV_QP_TIMEOUT) {
        to->timeout = from->timeout;
    }
    if (mask & IBV_QP_RETRY_CNT) {
        to->retry_cnt = from->retry_cnt;
    }
    if (mask & IBV_QP_RNR_RETRY) {
        to->rnr_retry = from->rnr_retry;
    }
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) {
        to->en_sqd_async_notify = from->en_sqd_async_notify;
    }
}

/* A label counts in a global address handle alone, and only where the driver looks at it. */
static void way_set(struct fab_qp *qp)
{
    const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
    const struct fab_ib *ib = &qp->nic->cfg.ib;
    bool labelled = ah->is_global && qp->nic->provider != FAB_PROVIDER_MLX4;

    qp->dlid = 0;
    if (ib->lid == 0) {
        qp->sport = fab_udp_sport(labelled ? ah->grh.flow_label : 0, qp->qpn, qp->attr.dest_qp_num);
    } else if (ah->is_global && fab_gid_subnet(&ah->grh.dgid) != ib->subnet) {
        qp->sport = 0; /* routers write LIDs of their own */
    } else {
        qp->sport = (uint16_t)(ib->lid + (ah->src_path_bits & ((1u << ib->lmc) - 1)));
        qp->dlid = ah->dlid;
    }
}

/* What entering @state starts, after the attributes are in place. */
static void enter(struct fab_qp *qp, enum ibv_qp_state from)
{
    if (from == IBV_QPS_INIT && qp->state == IBV_QPS_RTR) {
        qp->epsn = qp->attr.rq_psn;
        qp->dest_qpn = qp->attr.dest_qp_num;
        way_set(qp);
        qp->ece = qp->ece_told ? qp->ece & qp->nic->cfg.ece.options : 0;
        qp->self = (struct fab_addr){
            .host = qp->nic->host, .nic = qp->nic->nic, .epoch = qp->nic->gid_epoch};
    }
    if (from == IBV_QPS_RTR && qp->state == IBV_QPS_RTS) {
        qp->next_psn = qp->una_psn = qp->max_psn = qp->attr.sq_psn;
        qp->retry_left = qp->attr.retry_cnt;
        qp->rnr_left = qp->attr.rnr_retry;
    }
    if (qp->state == IBV_QPS_SQD && from == IBV_QPS_RTS) {
        qp->sqd_drained = false;
    }
    fab_qp_kick(qp);
}

int fab_qp_modify(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state, from = qp->state;
    const struct move *m;
    struct fab_addr peer;
    int rc = fab_ctx_check(qp->ctx);

    if (rc) {
        return rc;
    }
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state) {
        return EINVAL;
    }
    if (mask & IBV_QP_STATE && (to == IBV_QPS_RESET || to == IBV_QPS_ERR)) {
        if (mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE)) {
            return EINVAL;
        }
        if (to == IBV_QPS_RESET) {
            return reset(qp);
        }
        if (qp->nic->hung && !fab_provider_is_plain(qp->nic->provider)) {
            return ETIMEDOUT;
        }
        if (qp->state == IBV_QPS_ERR && qp->rq.queued && !fab_nic_makes_up(qp->nic)) {
            fab_pipe_flush(qp->rpipe);
        }
        to_error(qp);
        return 0;
    }
    m = find_move(from, to);
    if (!m || (mask & m->required) != m->required ||
        mask & ~(IBV_QP_STATE | m->required | m->optional) ||
        !ranges_ok(&qp->nic->cfg.ib, attr, mask)) {
        return EINVAL;
    }
    if (mask & IBV_QP_AV) {
        rc = qp->nic->eng->ops->resolve(qp->nic->eng, qp->nic, &attr->ah_attr, &peer);
        if (rc) {
            return rc;
        }
        qp->peer = peer;
    }
    copy_attr(&qp->attr, attr, mask);
    qp->state = to;
    enter(qp, from);
    return 0;
}

void fab_qp_query(struct fab_qp *qp, struct ibv_qp_attr *attr)
{
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->cap = qp->cap;
    attr->path_mig_state = IBV_MIG_MIGRATED;
    attr->sq_draining = qp->state == IBV_QPS_SQD && !qp->sqd_drained;
}

static bool ece_open(const struct fab_qp *qp)
{
    return qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT;
}

int fab_qp_ece_query(struct fab_qp *qp, struct ibv_ece *ece)
{
    const struct fab_ece *own = &qp->nic->cfg.ece;

    if (!own->vendor) {
        return EOPNOTSUPP;
    }
    *ece = (struct ibv_ece){.vendor_id = own->vendor,
                            .options = ece_open(qp) ? own->options : qp->ece};
    return 0;
}

int fab_qp_ece_set(struct fab_qp *qp, const struct ibv_ece *ece)
{
    if (!qp->nic->cfg.ece.vendor) {
        return EOPNOTSUPP;
    }
    qp->nic->cnt.ece_late += !ece_open(qp);
    if (!ece_open(qp) || ece->comp_mask || ece->vendor_id != qp->nic->cfg.ece.vendor) {
        return EINVAL;
    }
    qp->ece = ece->options;
    qp->ece_told = true;
    return 0;
}
