/* Completions of a sender's work requests: what each accounts for. And the tail probe, which is
 * nothing but one. */
#include <errno.h>
#include <string.h>

#include "base/r2_keep.h"
#include "ib_fence_proof.h"
#include "ib_send_int.h"

static inline __attribute__((always_inline)) void account(struct ib_send *tx, struct ib_path *p,
                                                          uint64_t wr_id, int good)
{
    struct ib_smsg *m = IB_SEND_SLOT(tx, ib_wr_value(wr_id));
    struct ib_part *part;

    R2_KEEP(m);
    part = &m->part[ib_wr_part(wr_id)];
    R2_KEEP(part);
    IB_RLX_ADD(p->sq.used, p->open ? -1 : 0); /* the end of the incarnation has accounted for all */
    IB_RLX_ADD(p->count.cqes, 1);
    if (m->seq == ib_wr_value(wr_id) && part->wr_out && part->path == p->index &&
        part->inc == p->inc) {
        if (__builtin_expect(!good, 0)) {
            p->failed = 1; /* who wrote that is for the fence to find out (P13, P16.4) */
            return;
        }
        part->wr_out = 0;
        m->wrs_out--;
        IB_RLX_ADD(p->count.bytes_done, part->len);
        m->arrived |= (uint16_t)(1u << ib_wr_part(wr_id));
    }
}

static __attribute__((noinline, cold)) void account_tail(struct ib_path *p)
{
    IB_RLX_ADD(p->sq.used, p->open ? -1 : 0);
    IB_RLX_ADD(p->sq.tails, p->open ? -1 : 0);
    IB_RLX_ADD(p->count.cqes, 1);
}

/* The write before a record. */
static __attribute__((noinline)) void account_bulk(struct ib_path *p)
{
    IB_RLX_ADD(p->sq.used, p->open ? -1 : 0);
    IB_RLX_ADD(p->sq.bulk, p->open ? -1 : 0);
}

/* What is no good completion of a plain part. @drain: who wrote it is told apart. */
static __attribute__((noinline)) void other_completion(struct ib_send *tx, struct ib_path *p,
                                                       const struct ibv_wc *wc, int drain)
{
    switch (ib_wr_kind(wc->wr_id)) {
    case IB_WR_BOUNCE: /* else its bytes in the ring are the NIC's until the fence has ended, too */
        if (wc->status == IBV_WC_SUCCESS) {
            ib_send_bounce_sent(tx, p);
        }
        account(tx, p, wc->wr_id, wc->status == IBV_WC_SUCCESS);
        break;
    case IB_WR_RECORD:
        account_bulk(p);
        /* fall through */
    case IB_WR_DATA:
        account(tx, p, wc->wr_id, wc->status == IBV_WC_SUCCESS);
        break;
    case IB_WR_MARK_SEND:
        p->marker.out |= IB_MARK_SEND;
        p->marker.by_nic |= drain && ib_path_is_nics(wc) ? IB_MARK_SEND : 0;
        break;
    case IB_WR_MARK_RECV:
        p->marker.out |= IB_MARK_RECV;
        p->marker.by_nic |= drain && ib_path_is_nics(wc) ? IB_MARK_RECV : 0;
        break;
    case IB_WR_TAIL:
        account_tail(p);
        break;
    default:
        break;
    }
    if (wc->status != IBV_WC_SUCCESS && ib_conn_up(tx->conn, p->index)) {
        ib_conn_wc_fault(tx->conn, p->index, wc);
    }
}

static inline __attribute__((always_inline)) void
take_each(struct ib_send *tx, struct ib_path *p, const struct ibv_wc *wc, int n, int drain)
{
    for (; n > 0; n--, wc++) {
        if (__builtin_expect(ib_wr_kind(wc->wr_id) == IB_WR_DATA && wc->status == IBV_WC_SUCCESS,
                             1)) {
            account(tx, p, wc->wr_id, 1);
        } else {
            other_completion(tx, p, wc, drain);
        }
    }
}

void ib_send_take_wcs(struct ib_send *tx, struct ib_path *p, struct ibv_wc *wc, int n)
{
    for (;;) {
        if (__builtin_expect(n < 0, 0)) {
            ib_conn_call_fault(tx->conn, p->index, EIO);
            return;
        }
        take_each(tx, p, wc, n, 0);
        if (n < IB_SEND_POLL_BATCH) {
            return;
        }
        n = ibv_poll_cq(p->cq, IB_SEND_POLL_BATCH, wc);
    }
}

int ib_send_drain_path(struct ib_send *tx, struct ib_path *p)
{
    struct ibv_wc wc[IB_SEND_POLL_BATCH];
    int n;

    do {
        memset(wc, 0, sizeof(wc)); /* what a library leaves of a completion as it was reads 0 */
        n = ibv_poll_cq(p->cq, IB_SEND_POLL_BATCH, wc);
        if (n < 0) {
            ib_conn_call_fault(tx->conn, p->index, EIO);
            return -1;
        }
        take_each(tx, p, wc, n, 1);
    } while (n == IB_SEND_POLL_BATCH);
    return 0;
}

#define TAILS_OUT                                                                                  \
    8 /* more say nothing that these do not, and would fill a queue that is paused                 \
       */

void ib_send_tail_probe(struct ib_send *tx, struct ib_path *p)
{
    struct ibv_send_wr wr = {.wr_id = ib_wr_id(IB_WR_TAIL, 0, 0),
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    int rc;

    if (tx->posting_stopped || !ib_conn_up(tx->conn, p->index) || p->sq.used > p->cap.sq_depth ||
        (tx->lanes >> p->index & 1) || p->sq.tails >= TAILS_OUT) {
        return;
    }
    tx->polls |= (uint8_t)(1u << p->index);
    IB_RLX_ADD(p->sq.used, 1);
    IB_RLX_ADD(p->sq.tails, 1);
    IB_RLX_ADD(p->count.wrs, 1);
    rc = ibv_post_send(p->qp, &wr, &bad);
    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
    }
}
