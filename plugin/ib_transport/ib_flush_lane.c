/* The objects of a flush lane: a queue pair connected to itself, its completion queue, a landing
 * buffer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_pages.h"
#include "ib_flush.h"
#include "ib_rc.h"

#define LANDING_LEN 64
/* 67 ms: the read crosses no cable. How long it may take in all is decided by who waits for it. */
#define LANE_TIMEOUT 14
/* Of an event's context: no path has this number, so that a lane's error is nobody's fault but its
 * own. */
#define NO_PATH 15

static int make_landing(struct ib_flush *f, struct ib_lane *l)
{
    if (l->mr) {
        return 0;
    }
    if (!l->landing && (l->landing = r2_pages_get(LANDING_LEN)) == NULL) {
        return ENOMEM;
    }
    errno = 0;
    l->mr = f->conn->nics->v->reg_mr(f->conn->nics->nic[l->nic].pd, l->landing, LANDING_LEN,
                                     IBV_ACCESS_LOCAL_WRITE);
    return l->mr ? 0 : (errno ? errno : ENOMEM);
}

static int make_queues(struct ib_flush *f, struct ib_lane *l)
{
    const struct ib_verbs *v = f->conn->nics->v;
    struct ib_nic *nic = &f->conn->nics->nic[l->nic];
    struct ibv_qp_init_attr attr = {
        .qp_context = (void *)(uintptr_t)ib_conn_context(f->conn->conn_id, NO_PATH, 0),
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = IB_LANE_DEPTH,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };

    errno = 0;
    l->cq = v->create_cq(nic->ctx, IB_LANE_DEPTH + 1, NULL, NULL, 0);
    if (l->cq == NULL) {
        return errno ? errno : ENOMEM;
    }
    attr.send_cq = attr.recv_cq = l->cq;
    l->qp = v->create_qp(nic->pd, &attr);
    return l->qp ? 0 : (errno ? errno : ENOMEM);
}

static int lane_connect(struct ib_flush *f, struct ib_lane *l)
{
    struct ib_rc rc = {.psn = (uint32_t)ib_conn_now(f->conn) & 0xffffff,
                       .reads = 1,
                       .rnr_timer = IB_RC_RNR_TIMER,
                       .rnr_retry = IB_RC_RNR_RETRY,
                       .timeout = LANE_TIMEOUT,
                       .retry_cnt = 7,
                       .traffic_class = f->conn->traffic_class};
    struct ib_addr self;
    struct ib_rc_peer remote = {.port = &self, .qpn = l->qp->qp_num, .psn = rc.psn};
    int err =
        ib_rc_init(f->conn->nics, l->nic, l->qp, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);

    if (err != 0) {
        return err;
    }
    ib_nic_addr_get(f->conn->nics, l->nic, &self);
    return ib_rc_connect(f->conn->nics, l->nic, l->qp, &rc, &remote);
}

int ib_lane_make(struct ib_flush *f, struct ib_lane *l)
{
    int rc;

    if ((rc = make_landing(f, l)) != 0 || (rc = make_queues(f, l)) != 0) {
        return rc;
    }
    return lane_connect(f, l);
}

void ib_lane_unmake(struct ib_flush *f, struct ib_lane *l, int keep)
{
    struct ib_nics *nics = f->conn->nics;
    int ended = ib_nic_qp_destroy(nics, l->nic, l->qp);

    l->qp = NULL;
    if (l->cq && ended) {
        nics->v->destroy_cq(l->cq);
    }
    l->cq = NULL;
    if (keep && ended) {
        return;
    }
    if (ib_nic_mr_release(nics, l->nic, l->mr, ended)) {
        r2_pages_put(l->landing, LANDING_LEN);
    }
    l->mr = NULL;
    l->landing = NULL;
}

int ib_lane_read(struct ib_lane *l, const void *addr, uint32_t rkey, uint64_t wr_id)
{
    struct ibv_sge sge = {.addr = (uintptr_t)l->landing, .length = 1, .lkey = l->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = (uintptr_t)addr, .rkey = rkey}};
    struct ibv_send_wr *bad;

    return ib_verbs_err(ibv_post_send(l->qp, &wr, &bad));
}
