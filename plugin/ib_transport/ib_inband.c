#include "ib_inband.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/r2_pages.h"
#include "ib_rc.h"

#define SLOTS      (IB_INBAND_RECVS + IB_INBAND_SENDS)
#define POOL_LEN   ((size_t)SLOTS * IB_INBAND_MESSAGE)
#define POLL_BATCH 16

/*
 * RC's own time-out is 1.07 s, and twice: a message that is lost is sent again by RC for about
 * three seconds, mostly sooner, when the next one shows as a sequence error. Monitors of whole
 * fleets count time-outs (local_ack_timeout_err) and take more than one a second for a sick NIC. A
 * receiver that has no buffer (its process stands still) is asked again every 10 ms, for ever: it
 * costs nobody anything, and no data waits behind it.
 */
#define TIMEOUT   18
#define RETRY     2
#define RNR_TIMER 20 /* 10.24 ms; IBTA table 45 */

static uint8_t *slot_mem(const struct ib_inband_pool *pool, int slot)
{
    return pool->mem + (size_t)slot * IB_INBAND_MESSAGE;
}

static int post_recv(struct ib_inband_pool *pool, int slot)
{
    struct ibv_sge sge = {.addr = (uintptr_t)slot_mem(pool, slot),
                          .length = IB_INBAND_MESSAGE,
                          .lkey = pool->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)slot, .sg_list = &sge, .num_sge = 1}, *bad;

    return ib_verbs_err(ibv_post_srq_recv(pool->srq, &wr, &bad));
}

static int open_all(struct ib_inband_pool *pool, struct ib_nics *nics, int nic)
{
    const struct ib_verbs *v = nics->v;
    const struct ib_nic *n = &nics->nic[nic];
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = IB_INBAND_RECVS, .max_sge = 1}};
    int rc = 0, flags;

    if (v->create_srq == NULL) {
        return EOPNOTSUPP;
    }
    pool->channel = v->create_comp_channel(n->ctx);
    if (pool->channel == NULL) {
        return errno ? errno : ENOMEM;
    }
    flags = fcntl(pool->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(pool->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return errno;
    }
    pool->cq = v->create_cq(n->ctx, SLOTS, NULL, pool->channel, 0);
    if (pool->cq == NULL) {
        return errno ? errno : ENOMEM;
    }
    pool->srq = v->create_srq(n->pd, &srq);
    if (pool->srq == NULL) {
        return errno ? errno : EOPNOTSUPP;
    }
    pool->mem = r2_pages_get(POOL_LEN);
    if (pool->mem == NULL) {
        return ENOMEM;
    }
    pool->mr = v->reg_mr(n->pd, pool->mem, POOL_LEN, IBV_ACCESS_LOCAL_WRITE);
    if (pool->mr == NULL) {
        return errno ? errno : ENOMEM;
    }
    for (int i = 0; i < IB_INBAND_RECVS && rc == 0; i++) {
        rc = post_recv(pool, i);
    }
    return rc ? rc : ib_verbs_err(ibv_req_notify_cq(pool->cq, 0));
}

int ib_inband_open(struct ib_inband_pool *pool, struct ib_nics *nics, int nic)
{
    if (!pool->tried) {
        pool->tried = 1;
        pool->rc = open_all(pool, nics, nic);
    }
    return pool->rc;
}

void ib_inband_close(struct ib_inband_pool *pool, const struct ib_nics *nics)
{
    const struct ib_verbs *v = nics->v;

    if (pool->srq) {
        v->destroy_srq(pool->srq);
    }
    if (pool->cq) {
        v->destroy_cq(pool->cq);
    }
    if (pool->channel) {
        v->destroy_comp_channel(pool->channel);
    }
    if (pool->mr == NULL || v->dereg_mr(pool->mr) == 0) {
        r2_pages_put(pool->mem,
                     POOL_LEN); /* a device that keeps the registration keeps the memory */
    }
    memset(pool, 0, sizeof(*pool));
}

int ib_inband_create(struct ib_inband_qp *q, const struct ib_inband_pool *pool,
                     struct ib_nics *nics, int nic, uint32_t psn)
{
    const struct ib_verbs *v = nics->v;
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .send_cq = pool->cq,
        .recv_cq = pool->cq,
        .srq = pool->srq,
        .cap = {.max_send_wr = IB_INBAND_QP_SENDS, .max_send_sge = 1, .max_recv_sge = 1}};

    *q = (struct ib_inband_qp){.psn = psn & 0xffffff};
    q->qp = v->create_qp(nics->nic[nic].pd, &init);
    if (q->qp == NULL) {
        return errno ? errno : ENOMEM;
    }
    q->qpn = q->qp->qp_num;
    return ib_rc_init(nics, nic, q->qp, 0);
}

int ib_inband_connect(struct ib_inband_qp *q, struct ib_nics *nics, int nic, unsigned way,
                      const struct ib_addr *port, uint32_t qpn, uint32_t psn)
{
    struct ib_rc attr = {.psn = q->psn,
                         .rnr_timer = RNR_TIMER,
                         .rnr_retry = IB_RC_RNR_RETRY,
                         .timeout = TIMEOUT,
                         .retry_cnt = RETRY,
                         .way = (uint8_t)way};
    struct ib_rc_peer remote = {.port = port, .qpn = qpn, .psn = psn};
    int rc = ib_rc_connect(nics, nic, q->qp, &attr, &remote);

    q->up = rc == 0;
    return rc;
}

void ib_inband_quiet(struct ib_inband_qp *q, const struct ib_nics *nics)
{
    if (q->qp) {
        (void)ib_rc_error(nics, q->qp); /* where that fails RC stops by itself */
    }
    q->up = 0;
}

void ib_inband_destroy(struct ib_inband_qp *q, const struct ib_nics *nics)
{
    if (q->qp) {
        q->stuck = nics->v->destroy_qp(q->qp) != 0;
    }
    q->qp = NULL;
    q->up = 0;
}

void ib_inband_reclaim(struct ib_inband_qp *q, struct ib_inband_pool *pool)
{
    for (int i = 0; i < IB_INBAND_SENDS; i++) {
        if (q->qpn && pool->owner[i] == q->qpn && !q->stuck) {
            pool->owner[i] = 0;
        }
    }
    memset(q, 0, sizeof(*q));
}

int ib_inband_send(struct ib_inband_qp *q, struct ib_inband_pool *pool, const void *msg, size_t len,
                   uint32_t imm)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .imm_data = htobe32(imm)},
                       *bad;
    int slot = IB_INBAND_SENDS, spare = 0, rc;

    if (!q->up) {
        return ENOTCONN;
    }
    for (int i = IB_INBAND_SENDS - 1; i >= 0; i--) {
        spare += pool->owner[i] == 0;
        slot = pool->owner[i] == 0 ? i : slot;
    }
    if (spare == 0 || q->out >= IB_INBAND_QP_SENDS || (spare <= IB_INBAND_SPARE && q->out > 0)) {
        return EAGAIN;
    }
    wr.wr_id = (uint64_t)(IB_INBAND_RECVS + slot) | (uint64_t)++pool->turn[slot] << 32;
    sge = (struct ibv_sge){.addr = (uintptr_t)slot_mem(pool, IB_INBAND_RECVS + slot),
                           .length = (uint32_t)len,
                           .lkey = pool->mr->lkey};
    memcpy(slot_mem(pool, IB_INBAND_RECVS + slot), msg, len);
    rc = ib_verbs_err(ibv_post_send(q->qp, &wr, &bad));
    if (rc == 0) {
        pool->owner[slot] = q->qpn;
        q->out++;
    }
    return rc;
}

static void completed(struct ib_inband_pool *pool, int nic, const struct ibv_wc *wc,
                      const struct ib_inband_sink *sink)
{
    int slot = (int)(uint32_t)wc->wr_id, i = slot - IB_INBAND_RECVS;

    if (i >= 0) {
        if (pool->owner[i] == wc->qp_num && pool->turn[i] == (uint32_t)(wc->wr_id >> 32)) {
            pool->owner[i] = 0;
            sink->sent(sink->arg, nic, wc->qp_num, wc->status != IBV_WC_SUCCESS);
        }
        return;
    }
    if (wc->status == IBV_WC_SUCCESS && wc->byte_len <= IB_INBAND_MESSAGE &&
        (wc->wc_flags & IBV_WC_WITH_IMM)) {
        sink->message(sink->arg, nic, wc->qp_num, slot_mem(pool, slot), wc->byte_len,
                      be32toh(wc->imm_data));
    }
    if (post_recv(pool, slot) != 0) {
        pool->sick = 1; /* the device is gone or sick: events tell */
    }
}

static void rearm(struct ib_inband_pool *pool, const struct ib_nics *nics)
{
    struct ibv_cq *cq;
    void *context;
    unsigned n = 0;

    while (n < SLOTS && nics->v->get_cq_event(pool->channel, &cq, &context) == 0) {
        n++;
    }
    if (n) {
        nics->v->ack_cq_events(pool->cq, n);
        ibv_req_notify_cq(pool->cq, 0);
    }
}

/* Events are taken and asked for before the queue is checked: what completes behind the last look
 * makes another one. */
void ib_inband_progress(struct ib_inband_pool *pool, const struct ib_nics *nics, int nic,
                        const struct ib_inband_sink *sink)
{
    struct ibv_wc wc[POLL_BATCH];
    int n;

    rearm(pool, nics);
    do {
        n = ibv_poll_cq(pool->cq, POLL_BATCH, wc);
        for (int i = 0; i < n; i++) {
            completed(pool, nic, &wc[i], sink);
        }
    } while (n == POLL_BATCH);
}
