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
#define PSN_ALT        0x5a5a5au /* the second queue pair's PSN differs by that */

static int lane_create(struct probe_qp *q, struct ib_nics *nics, int nic, struct probe_lane *l,
                       uint32_t psn)
{
    struct ibv_qp_init_attr init = {
        .send_cq = q->cq,
        .recv_cq = q->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {
            .max_send_wr = PROBE_QP_DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

    memset(l, 0, sizeof(*l));
    l->psn = psn & 0xffffff;
    l->qp = nics->v->create_qp(nics->nic[nic].pd, &init);
    if (l->qp == NULL) {
        return errno ? errno : ENOMEM;
    }
    return ib_rc_init(nics, nic, l->qp,
                      IBV_ACCESS_REMOTE_WRITE | (q->reads ? IBV_ACCESS_REMOTE_READ : 0));
}

static void lane_destroy(const struct ib_nics *nics, struct probe_lane *l)
{
    if (l->qp) {
        nics->v->destroy_qp(l->qp);
    }
    memset(l, 0, sizeof(*l));
}

int probe_qp_create(struct probe_qp *q, struct ib_nics *nics, int nic, uint32_t psn)
{
    int rc;

    q->answered = 0;
    q->unable = 0;
    q->cq = nics->v->create_cq(nics->nic[nic].ctx, PROBE_QP_DEPTH * (1 + q->two), NULL, NULL, 0);
    if (q->cq == NULL) {
        return errno ? errno : ENOMEM;
    }
    rc = lane_create(q, nics, nic, &q->lane[0], psn);
    if (rc == 0 && q->two && lane_create(q, nics, nic, &q->lane[1], psn ^ PSN_ALT) != 0) {
        lane_destroy(nics, &q->lane[1]); /* one is enough, where a device has no more */
    }
    return rc;
}

static int lane_connect(struct ib_nics *nics, int nic, const struct probe_lane *l,
                        const struct ib_rc_peer *peer)
{
    struct ib_rc rc = {.psn = l->psn,
                       .reads = 1,
                       .rnr_timer = IB_RC_RNR_TIMER,
                       .rnr_retry = IB_RC_RNR_RETRY,
                       .timeout = PROBE_QP_TIMEOUT,
                       .retry_cnt = PROBE_IB_RETRY,
                       .way = l->way};

    return ib_rc_connect(nics, nic, l->qp, &rc, peer);
}

int probe_qp_connect(struct probe_qp *q, struct ib_nics *nics, int nic,
                     const struct ib_path_addr *peer, const struct probe_qp_alt *alt)
{
    struct ib_rc_peer remote = {.port = &peer->port, .qpn = peer->qpn, .psn = peer->psn};
    int rc;

    q->lane[0].way = alt ? alt->way[0] : 0;
    rc = lane_connect(nics, nic, &q->lane[0], &remote);
    q->lane[0].used = rc == 0;
    if (rc == 0 && q->lane[1].qp && alt && alt->qpn) {
        remote.qpn = alt->qpn;
        remote.psn = alt->psn;
        q->lane[1].way = alt->way[1];
        q->lane[1].used = lane_connect(nics, nic, &q->lane[1], &remote) == 0;
    }
    return rc;
}

void probe_qp_quiet(struct probe_qp *q, const struct ib_nics *nics)
{
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        if (q->lane[i].qp) {
            /* where that fails the transport stops by itself, after two time-outs */
            (void)ib_rc_error(nics, q->lane[i].qp);
        }
    }
}

void probe_qp_destroy(struct probe_qp *q, const struct ib_nics *nics)
{
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        lane_destroy(nics, &q->lane[i]);
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
    out->qpn = q->lane[0].qp ? q->lane[0].qp->qp_num : 0;
    out->psn = q->lane[0].psn;
    ib_nic_addr_get(nics, nic, &out->port);
}

static int lane_post(struct probe_lane *l, unsigned lane, uint64_t at)
{
    struct ibv_send_wr wr = {.wr_id = at << 1 | lane,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    int rc;

    if (l->out >= PROBE_QP_DEPTH) {
        return EAGAIN;
    }
    rc = ib_verbs_err(ibv_post_send(l->qp, &wr, &bad));
    if (rc == 0) {
        l->waits = l->out ? l->waits : at;
        l->posted = at;
        l->out++;
    }
    l->failed |= rc != 0 && rc != ENOMEM; /* elsewhere it is taken, and comes back flushed */
    return rc;
}

int probe_qp_post(struct probe_qp *q, uint64_t at)
{
    int rc = EINVAL, taken = 0;

    for (int i = 0; i < PROBE_QP_LANES; i++) {
        if (q->lane[i].used && !q->lane[i].failed) {
            rc = lane_post(&q->lane[i], (unsigned)i, at);
            taken |= rc == 0;
        }
    }
    return taken ? 0 : rc;
}

int probe_qp_poll(struct probe_qp *q)
{
    struct ibv_wc wc[PROBE_QP_DEPTH * PROBE_QP_LANES];
    int n = ibv_poll_cq(q->cq, PROBE_QP_DEPTH * PROBE_QP_LANES, wc), answers = 0;

    for (int i = 0; i < n; i++) {
        struct probe_lane *l = &q->lane[wc[i].wr_id & 1]; /* the number may lack in an error */

        l->out = (uint16_t)(l->out - (l->out > 0));
        if (wc[i].status != IBV_WC_SUCCESS) {
            q->unable |= wc[i].status == IBV_WC_LOC_QP_OP_ERR;
            l->failed = 1;
            continue;
        }
        l->answered = wc[i].wr_id >> 1; /* in order */
        l->waits = l->posted;
        q->answered = q->answered > l->answered ? q->answered : l->answered;
        answers++;
    }
    if (answers > 0) {
        return 1;
    }
    return n < 0 || (q->lane[0].failed && (!q->lane[1].used || q->lane[1].failed)) ? -1 : 0;
}

unsigned probe_qp_out(const struct probe_qp *q)
{
    return q->lane[0].out > q->lane[1].out ? q->lane[0].out : q->lane[1].out;
}

int probe_qp_silent(const struct probe_qp *q, uint64_t least)
{
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        const struct probe_lane *l = &q->lane[i], *other = &q->lane[!i];

        if (l->used && other->used && (l->out || l->failed) && !other->failed &&
            other->answered >= l->waits + least) {
            return i;
        }
    }
    return -1;
}
