#include "probe_qp.h"

#include <errno.h>
#include <string.h>

#include "ib_transport/ib_rc.h"

/*
 * RC's own time-out, 1.07 s, only ends what the watch has long given up: lost packets show as
 * sequence errors of the next probe. Monitors of whole fleets count time-outs of the transport
 * (local_ack_timeout_err) and take more than one a second for a sick NIC, so a pair that does not
 * answer is put in ERR when it is given up (probe_qp_quiet), mostly before the first.
 */
#define PROBE_IB_RETRY 1

int probe_qp_create(struct probe_qp *q, struct ib_nics *nics, int nic, uint32_t psn)
{
    const struct ib_verbs *v = nics->v;
    const struct ib_nic *n = &nics->nic[nic];
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC,
        .cap = {
            .max_send_wr = PROBE_QP_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

    q->out = 0;
    q->psn = psn & 0xffffff;
    q->cq = v->create_cq(n->ctx, PROBE_QP_DEPTH, NULL, NULL, 0);
    if (q->cq == NULL) {
        return errno ? errno : ENOMEM;
    }
    init.send_cq = init.recv_cq = q->cq;
    q->qp = v->create_qp(n->pd, &init);
    if (q->qp == NULL) {
        return errno ? errno : ENOMEM;
    }
    return ib_rc_init(nics, nic, q->qp,
                      IBV_ACCESS_REMOTE_WRITE | (q->reads ? IBV_ACCESS_REMOTE_READ : 0));
}

int probe_qp_connect(struct probe_qp *q, struct ib_nics *nics, int nic,
                     const struct ib_path_addr *peer)
{
    struct ib_rc rc = {.psn = q->psn,
                       .reads = 1,
                       .rnr_timer = IB_RC_RNR_TIMER,
                       .rnr_retry = IB_RC_RNR_RETRY,
                       .timeout = PROBE_QP_TIMEOUT,
                       .retry_cnt = PROBE_IB_RETRY};
    struct ib_rc_peer remote = {.port = &peer->port, .qpn = peer->qpn, .psn = peer->psn};

    return ib_rc_connect(nics, nic, q->qp, &rc, &remote);
}

void probe_qp_quiet(struct probe_qp *q, const struct ib_nics *nics)
{
    if (q->qp) {
        /* where that fails the transport stops by itself, after two time-outs */
        (void)ib_rc_error(nics, q->qp);
    }
}

void probe_qp_destroy(struct probe_qp *q, const struct ib_nics *nics)
{
    if (q->qp) {
        nics->v->destroy_qp(q->qp);
    }
    if (q->cq) {
        nics->v->destroy_cq(q->cq);
    }
    memset(q, 0, sizeof(*q));
}

void probe_qp_addr_get(const struct probe_qp *q, struct ib_nics *nics, int nic,
                       struct ib_path_addr *out)
{
    memset(out, 0, sizeof(*out));
    out->qpn = q->qp ? q->qp->qp_num : 0;
    out->psn = q->psn;
    ib_nic_addr_get(nics, nic, &out->port);
}

int probe_qp_post(struct probe_qp *q, uint64_t at)
{
    struct ibv_send_wr wr = {.wr_id = at,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    int rc;

    if (q->out >= PROBE_QP_DEPTH) {
        return EAGAIN;
    }
    rc = ib_verbs_err(ibv_post_send(q->qp, &wr, &bad));
    q->out = (uint16_t)(q->out + (rc == 0));
    q->refused |= rc != 0 && rc != ENOMEM; /* elsewhere it is taken, and comes back flushed */
    return rc;
}

int probe_qp_poll(struct probe_qp *q)
{
    struct ibv_wc wc[PROBE_QP_DEPTH];
    int n = ibv_poll_cq(q->cq, PROBE_QP_DEPTH, wc);

    if (n < 0) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            q->unable = wc[i].status == IBV_WC_LOC_QP_OP_ERR;
            return -1;
        }
        q->answered = wc[i].wr_id; /* in order */
    }
    q->out = (uint16_t)(q->out - n);
    return q->refused ? -1 : n > 0;
}
