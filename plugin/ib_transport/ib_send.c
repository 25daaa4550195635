#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/r2_rules.h"
#include "ib_fence_proof.h"
#include "ib_record.h"
#include "ib_send_int.h"

#define POLL_BATCH 8
/* Receive slots that only the oldest unacknowledged message may take: its retransmission must
 * always find room, or a window full of younger parts, none of which can be acknowledged before it,
 * would block it for ever (P2). */
#define REPLAY_RESERVE R2_MAX_PARTS

void ib_send_init(struct ib_send *tx, struct ib_conn *conn)
{
    memset(tx, 0, sizeof(*tx));
    tx->conn = conn;
    ib_send_replan(tx);
}

/* --- posting --- */

/* Whether @m can go over path @p at all: it is up, the buffer is registered at R's end, and at
 * ours, or goes by way of memory that is. */
static inline __attribute__((always_inline)) int path_eligible(struct ib_send *tx,
                                                               const struct ib_smsg *m, int p)
{
    const struct ib_conn *l = tx->conn;

    return ib_conn_up(l, p) && m->rkey[p] != 0 &&
           (__builtin_expect(ib_mr_lkey(m->mr, l->path[p].nic) != 0, 1) ||
            ib_send_stage_takes(tx, m, p));
}

static __attribute__((noinline)) uint32_t eligible_paths(struct ib_send *tx,
                                                         const struct ib_smsg *m)
{
    uint32_t mask = 0;

    for (int p = 0; p < tx->conn->npaths; p++) {
        if (path_eligible(tx, m, p)) {
            mask |= 1u << p;
        }
    }
    return mask;
}

static int path_room(const struct ib_send *tx, const struct ib_path *p, uint64_t seq)
{
    uint32_t limit = p->index < IB_MAX_PATHS ? tx->conn->rq_depth : 0;

    if (seq != tx->sack) {
        limit -= REPLAY_RESERVE;
    }
    return p->sq_used < p->sq_depth && p->parts_out < limit;
}

/* A part above the threshold of adaptive routing. It is live even when the call fails: the NIC may
 * have its data (P32). */
static __attribute__((noinline)) int post_pair(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                               struct ib_path *p)
{
    const struct ib_part *part = &m->part[k];
    struct ibv_sge sge = {.addr = (uintptr_t)m->data + part->off,
                          .length = part->len,
                          .lkey = ib_mr_lkey(m->mr, p->nic)};
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_RECORD, k, m->seq),
        .sg_list = &sge,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = m->raddr + part->off, .rkey = m->rkey[p->index]}};
    int rc = ib_record_post(p, &wr, ib_imm_pack(m->seq, k, m->nparts, IB_IMM_RECORD, p->inc));

    if (rc == 0 || r2_rule(R2_RULE_PAIR_LIVE)) {
        ib_send_part_posted(tx, m, k, p, 2);
        IB_RLX_ADD(p->bulk_out, 1);
    }
    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, rc);
        return -1;
    }
    return 0;
}

/* Posts part @k on path @p as one work request. 0, or -1 when the call failed and the path is down
 * now. */
static inline __attribute__((always_inline)) int post_one(struct ib_send *tx, struct ib_smsg *m,
                                                          unsigned k, struct ib_path *p, int nsge)
{
    const struct ib_part *part = &m->part[k];
    struct ibv_sge sge = {.addr = (uintptr_t)m->data + part->off,
                          .length = part->len,
                          .lkey = ib_mr_lkey(m->mr, p->nic)};
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_DATA, k, m->seq),
        .sg_list = &sge,
        .num_sge = nsge,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data = htonl(ib_imm_pack(m->seq, k, m->nparts, IB_IMM_DATA, p->inc)),
        .wr.rdma = {.remote_addr = m->raddr + part->off, .rkey = m->rkey[p->index]}};
    struct ibv_send_wr *bad;
    int rc = ibv_post_send(p->qp, &wr, &bad);

    if (__builtin_expect(rc != 0, 0)) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
        return -1;
    }
    ib_send_part_posted(tx, m, k, p, 1);
    return 0;
}

static __attribute__((noinline)) int post_plain(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                                struct ib_path *p)
{
    return post_one(tx, m, k, p, 1);
}

/* What is more than one plain work request. 0; 1: no room now; -1: the path is down now. */
static __attribute__((noinline)) int post_other(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                                struct ib_path *p)
{
    if (ib_send_stage_takes(tx, m, p->index)) {
        return ib_send_stage_begin(tx, m, k, p);
    }
    return m->part[k].len - 1 >= p->pair_min ? post_pair(tx, m, k, p) : post_plain(tx, m, k, p);
}

/* Posts part @k on path @p; as post_other(). An empty part passes the comparison, too, so that the
 * others are spared the one for it. */
static int post_part(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p)
{
    uint32_t len = m->part[k].len;

    if (__builtin_expect(len - 1 >= p->one_max, 0) && len != 0) {
        return post_other(tx, m, k, p);
    }
    return post_one(tx, m, k, p, len != 0);
}

/* The path for a part whose planned path cannot take it: the least loaded of the plan with room, of
 * all only where the plan's cannot. */
static struct ib_path *other_path(struct ib_send *tx, const struct ib_smsg *m, uint32_t eligible)
{
    struct ib_path *best = NULL;
    uint32_t planned = 0;

    for (int i = 0; i < tx->plan.n; i++) {
        planned |= 1u << tx->plan.path[i];
    }
    if (eligible & planned) {
        eligible &=
            planned; /* the primary alone while it is up, the first backup without balance */
    }

    for (int p = 0; p < tx->conn->npaths; p++) {
        struct ib_path *path = &tx->conn->path[p];

        if ((eligible & (1u << p)) && path_room(tx, path, m->seq) &&
            (!best || path->parts_out < best->parts_out)) {
            best = path;
        }
    }
    return best;
}

/* Posts what of @m is unposted and finds room. Returns whether anything stays unposted. */
static int post_message(struct ib_send *tx, struct ib_smsg *m)
{
    while (m->unposted) {
        unsigned k = (unsigned)__builtin_ctz(m->unposted);
        struct ib_path *p = &tx->conn->path[m->part[k].path];

        if (__builtin_expect(!path_eligible(tx, m, p->index), 0)) {
            uint32_t eligible = eligible_paths(tx, m);

            tx->starved |= eligible == 0;
            p = other_path(tx, m, eligible);
        } else if (!path_room(tx, p, m->seq)) {
            p = NULL; /* its room comes back; the choice by weight stands */
        }
        if (p == NULL) {
            return 1;
        }
        if (post_part(tx, m, k, p) > 0) {
            return 1;
        }
    }
    return 0;
}

/* Lowest seq first: retransmitted parts before new ones (P1, P22). */
static __attribute__((noinline)) void post_pending(struct ib_send *tx)
{
    if (tx->quiet) {
        return;
    }
    tx->starved = 0;
    tx->pending &= (uint8_t)~IB_SEND_UNPOSTED;
    for (uint64_t seq = tx->sack; seq < tx->sposted; seq++) {
        struct ib_smsg *m = IB_SEND_SLOT(tx, seq);

        if (m->busy && m->seq == seq && m->unposted && post_message(tx, m)) {
            tx->pending |= IB_SEND_UNPOSTED;
        }
    }
    if (!tx->starved) {
        IB_RLX_SET(tx->starved_since, 0);
    } else if (tx->starved_since == 0) {
        IB_RLX_SET(tx->starved_since, ib_conn_now(tx->conn));
    }
}

/* --- what R writes --- */

/*
 * Whether this turn looks into all rings (P10): each eighth one, and as long as the path that
 * served last is not up. R writes on another path only after a failure, so the other turns are
 * spared the loads.
 */
static inline int wide_turn(struct ib_send *tx)
{
    return (++tx->turn & 7) == 0 || !ib_conn_up(tx->conn, tx->ring_hot);
}

/* Takes the CTS, and with @acks the acknowledgements, that are there: where nothing is, two loads
 * say so. */
static inline __attribute__((always_inline)) void look(struct ib_send *tx, int acks)
{
    struct ib_path *p = &tx->conn->path[tx->ring_hot];

    if (__builtin_expect(wide_turn(tx) || !p->open, 0)) {
        ib_send_look_wide(tx, acks);
        return;
    }
    if (__builtin_expect(ib_send_has_cts(tx, p), 0)) {
        ib_send_take_cts(tx, p);
    }
    if (acks && __builtin_expect(ib_send_has_ack(p), 0)) {
        ib_send_take_acks(tx, p, 0);
    }
}

/* --- start --- */

/* Finds the receive for @tag inside the oldest group that is not fully matched; UINT64_MAX when its
 * CTS is not there (yet). */
static uint64_t match(struct ib_send *tx, uint32_t tag)
{
    const struct ib_cts *first;

    if (tx->group == tx->cts_seen) {
        return UINT64_MAX;
    }
    first = &tx->cts[tx->group % R2_LEDGER_WINDOW];
    for (unsigned i = 0; i < first->n && tx->group + i < tx->cts_seen; i++) {
        if (!(tx->matched & (1u << i)) && tx->cts[(tx->group + i) % R2_LEDGER_WINDOW].tag == tag) {
            return tx->group + i;
        }
    }
    return UINT64_MAX;
}

static void mark_matched(struct ib_send *tx, uint64_t seq)
{
    unsigned n = tx->cts[tx->group % R2_LEDGER_WINDOW].n;

    tx->matched |= (uint8_t)(1u << (seq - tx->group));
    if (seq >= tx->sposted) {
        IB_RLX_SET(tx->sposted, seq + 1);
    }
    if (tx->matched == (uint8_t)((1u << n) - 1)) {
        tx->group += n;
        tx->matched = 0;
    }
    tx->unmatched = tx->group + (unsigned)__builtin_ctz(~(unsigned)tx->matched);
}

static void stripe(struct ib_send *tx, struct ib_smsg *m)
{
    uint32_t max = tx->most;
    struct r2_stripe c;

    if (__builtin_expect(tx->ring_most != 0, 0) &&
        m->size <= (uint64_t)R2_MAX_PARTS * tx->ring_most) {
        max = tx->ring_most;
    }
    if (tx->plan.n == 0) { /* no path now: posted wherever one comes back */
        struct r2_plan any = {.n = 1};

        r2_plan_stripe(&any, ~0u, m->size, (uint32_t)tx->conn->cfg->stripe_min, max, &c);
    } else {
        uint32_t eligible;

        m->nparts = 0; /* of the message before */
        eligible = tx->plan.n == 1 ? ~0u : eligible_paths(tx, m);

        r2_plan_stripe(&tx->plan, eligible ? eligible : ~0u, m->size,
                       (uint32_t)tx->conn->cfg->stripe_min, max, &c);
    }
    m->nparts = c.nparts;
    for (unsigned k = 0; k < c.nparts; k++) {
        m->part[k] = (struct ib_part){.off = c.off[k], .len = c.len[k], .path = c.path[k]};
    }
    m->unposted = (uint16_t)((1u << m->nparts) - 1);
}

enum r2_status ib_send_start(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag,
                             struct ib_mr *mr, struct ib_smsg **out)
{
    const struct ib_cts *cts;
    struct ib_smsg *m;
    uint64_t seq;

    *out = NULL;
    look(tx, 0);
    seq = match(tx, tag);
    if (seq == UINT64_MAX) {
        IB_RLX_ADD(tx->misses, 1);
        return R2_OK;
    }
    m = IB_SEND_SLOT(tx, seq);
    if (m->busy) {
        return R2_OK;
    }
    cts = &tx->cts[seq % R2_LEDGER_WINDOW];
    m->seq = seq;
    m->data = data;
    m->mr = mr;
    m->size = size < cts->size ? size : cts->size;
    m->raddr = cts->addr;
    memcpy(m->rkey, cts->rkey, sizeof(m->rkey));
    m->busy = 1;
    m->wrs_out = 0;
    m->soft = 0;
    m->ledger = 0;
    m->arrived = 0;
    mark_matched(tx, seq);
    stripe(tx, m);
    tx->messages++;
    /* parts that wait go first (P1) */
    if (tx->pending & IB_SEND_UNPOSTED) {
        post_pending(tx);
    } else if (post_message(tx, m)) {
        tx->pending |= IB_SEND_UNPOSTED;
    }
    *out = m;
    return R2_OK;
}

/* --- completions --- */

static inline __attribute__((always_inline)) void account(struct ib_send *tx, struct ib_path *p,
                                                          uint64_t wr_id, int good)
{
    struct ib_smsg *m = IB_SEND_SLOT(tx, ib_wr_value(wr_id));
    struct ib_part *part = &m->part[ib_wr_part(wr_id)];

    IB_RLX_ADD(p->sq_used, p->open ? -1 : 0); /* the end of the incarnation has accounted for all */
    IB_RLX_ADD(p->cqes, 1);
    if (m->seq == ib_wr_value(wr_id) && part->wr_out && part->path == p->index &&
        part->inc == p->inc) {
        part->wr_out = 0;
        m->wrs_out--;
        IB_RLX_ADD(p->bytes_done, part->len);
        m->arrived |= (uint16_t)(good << ib_wr_part(wr_id));
    }
}

static __attribute__((noinline, cold)) void account_tail(struct ib_path *p)
{
    IB_RLX_ADD(p->sq_used, p->open ? -1 : 0);
    IB_RLX_ADD(p->tails_out, p->open ? -1 : 0);
    IB_RLX_ADD(p->cqes, 1);
}

/* Of a record the write before it; of a staged part its bytes in the ring. */
static __attribute__((noinline)) void account_more(struct ib_send *tx, struct ib_path *p,
                                                   uint64_t wr_id)
{
    if (ib_wr_kind(wr_id) == IB_WR_STAGED) {
        ib_send_stage_sent(tx, p);
    } else {
        IB_RLX_ADD(p->sq_used, p->open ? -1 : 0);
        IB_RLX_ADD(p->bulk_out, p->open ? -1 : 0);
    }
}

/* What is no good completion of a plain part. @drain: who wrote it is told apart. */
static __attribute__((noinline)) void other_completion(struct ib_send *tx, struct ib_path *p,
                                                       const struct ibv_wc *wc, int drain)
{
    switch (ib_wr_kind(wc->wr_id)) {
    case IB_WR_RECORD:
    case IB_WR_STAGED:
        account_more(tx, p, wc->wr_id);
        /* fall through */
    case IB_WR_DATA:
        account(tx, p, wc->wr_id, wc->status == IBV_WC_SUCCESS);
        break;
    case IB_WR_MARK_SEND:
        p->marks |= IB_MARK_SEND;
        p->marks_nic |= drain && ib_path_is_nics(wc) ? IB_MARK_SEND : 0;
        break;
    case IB_WR_MARK_RECV:
        p->marks |= IB_MARK_RECV;
        p->marks_nic |= drain && ib_path_is_nics(wc) ? IB_MARK_RECV : 0;
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

/* @drain, a constant: what a library leaves of a completion as it was reads 0. */
static inline __attribute__((always_inline)) int poll_path(struct ib_send *tx, struct ib_path *p,
                                                           int drain)
{
    struct ibv_wc wc[POLL_BATCH];
    int n;

    do {
        if (drain) {
            memset(wc, 0, sizeof(wc));
        }
        n = ibv_poll_cq(p->cq, POLL_BATCH, wc);
        if (__builtin_expect(n < 0, 0)) {
            ib_conn_call_fault(tx->conn, p->index, EIO);
            return -1;
        }
        for (int i = 0; i < n; i++) {
            if (__builtin_expect(
                    ib_wr_kind(wc[i].wr_id) == IB_WR_DATA && wc[i].status == IBV_WC_SUCCESS, 1)) {
                account(tx, p, wc[i].wr_id, 1);
            } else {
                other_completion(tx, p, &wc[i], drain);
            }
        }
    } while (n == POLL_BATCH);
    return 0;
}

int ib_send_drain_path(struct ib_send *tx, struct ib_path *p)
{
    return poll_path(tx, p, 1);
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

    if (tx->quiet || !ib_conn_up(tx->conn, p->index) || p->sq_used > p->sq_depth ||
        (tx->lanes >> p->index & 1) || p->tails_out >= TAILS_OUT) {
        return;
    }
    tx->polls |= (uint8_t)(1u << p->index);
    IB_RLX_ADD(p->sq_used, 1);
    IB_RLX_ADD(p->tails_out, 1);
    IB_RLX_ADD(p->wrs, 1);
    rc = ibv_post_send(p->qp, &wr, &bad);
    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
    }
}

/* A path of which all is accounted for is left out until something is posted on it again. */
static inline __attribute__((always_inline)) void poll_paths(struct ib_send *tx)
{
    struct ib_conn *l = tx->conn;

    for (uint32_t m = tx->polls & l->up; m; m &= m - 1) {
        struct ib_path *p = &l->path[__builtin_ctz(m)];

        if (p->sq_used == 0) {
            tx->polls &= (uint8_t) ~(m & -m);
        } else if (p->open) {
            poll_path(tx, p, 0);
        }
    }
}

void ib_send_progress(struct ib_send *tx)
{
    poll_paths(tx);
    look(tx, 1);
    if (__builtin_expect(tx->pending, 0)) {
        if (tx->pending & IB_SEND_STAGING) {
            ib_send_stage_turn(tx);
        }
        if (tx->pending & IB_SEND_UNPOSTED) {
            post_pending(tx);
        }
    }
}

static int all_parts(const struct ib_smsg *m, unsigned mask)
{
    return mask == (1u << m->nparts) - 1;
}

int ib_send_done(const struct ib_send *tx, const struct ib_smsg *m)
{
    if (m->wrs_out != 0 || m->soft != 0) {
        return 0;
    }
    if (tx->sack > m->seq || all_parts(m, m->ledger)) {
        return 1;
    }
    if (tx->conn->cfg->ack == R2_ACK_CQE || !r2_rule(R2_RULE_E2E_ACK)) {
        return all_parts(m, m->ledger | m->arrived);
    }
    return 0;
}

int ib_send_idle(const struct ib_send *tx)
{
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        if (tx->msg[i].busy) {
            return 0;
        }
    }
    return 1;
}

int ib_send_uses(const struct ib_send *tx, const struct ib_mr *mr)
{
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        if (tx->msg[i].busy && tx->msg[i].mr == mr) {
            return 1;
        }
    }
    return 0;
}
