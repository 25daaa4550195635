#include <arpa/inet.h>
#include <string.h>

#include "base/r2_rules.h"
#include "ib_record.h"
#include "ib_send_int.h"

/* Receive slots that only the oldest unacknowledged message may take: its retransmission must
 * always find room, or a window full of younger parts, none of which can be acknowledged before it,
 * would block it for ever (P2). */
#define RETRANSMIT_RESERVE R2_MAX_PARTS

void ib_send_init(struct ib_send *tx, struct ib_conn *conn)
{
    memset(tx, 0, sizeof(*tx));
    tx->conn = conn;
    tx->ring_hot = &conn->path[0];
    tx->wr.sg_list = &tx->sge;
    tx->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    tx->wr.send_flags = IBV_SEND_SIGNALED;
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

static inline int path_room(const struct ib_send *tx, const struct ib_path *p, uint64_t seq)
{
    uint32_t limit = tx->conn->rq_depth;

    if (seq != tx->sack) {
        limit -= RETRANSMIT_RESERVE;
    }
    return p->sq.used < p->cap.sq_depth && p->parts_out < limit;
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
        IB_RLX_ADD(p->sq.bulk, 1);
    }
    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, rc);
        return -1;
    }
    return 0;
}

/* Posts part @k on path @p as one work request. 0, or -1 when the call failed and the path is down
 * now. What is the same in all of them stands in tx->wr. */
static inline __attribute__((always_inline)) int
post_one(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p, uint32_t lkey)
{
    const struct ib_part *part = &m->part[k];
    struct ibv_send_wr *wr = &tx->wr, *bad;
    int rc;

    tx->sge.addr = (uintptr_t)m->data + part->off;
    tx->sge.length = part->len;
    tx->sge.lkey = lkey;
    wr->wr_id = ib_wr_id(IB_WR_DATA, k, m->seq);
    wr->num_sge = part->len != 0;
    wr->imm_data = htonl(ib_imm_pack(m->seq, k, m->nparts, IB_IMM_DATA, p->inc));
    wr->wr.rdma.remote_addr = m->raddr + part->off;
    wr->wr.rdma.rkey = m->rkey[p->index];
    rc = ibv_post_send(p->qp, wr, &bad);
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
    return post_one(tx, m, k, p, ib_mr_lkey(m->mr, p->nic));
}

/* What is more than one plain work request. 0; 1: no room now; -1: the path is down now. */
static __attribute__((noinline)) int post_other(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                                struct ib_path *p)
{
    if (ib_send_stage_takes(tx, m, p->index)) {
        return ib_send_stage_begin(tx, m, k, p);
    }
    return m->part[k].len - 1 >= p->part.pair_min ? post_pair(tx, m, k, p)
                                                  : post_plain(tx, m, k, p);
}

/* Whether a part of @len bytes is one plain work request on @p. An empty part fails the comparison,
 * too, so that the others are spared the one for it. */
static inline int is_plain(const struct ib_path *p, uint32_t len)
{
    return __builtin_expect(len - 1 < p->part.one_max, 1) || len == 0;
}

/* Posts part @k on path @p; as post_other(). */
static int post_part(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p)
{
    return is_plain(p, m->part[k].len) ? post_plain(tx, m, k, p) : post_other(tx, m, k, p);
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

/*
 * Posts what of @m is unposted and finds room. Returns whether anything stays unposted.
 */
static __attribute__((noinline)) int post_message(struct ib_send *tx, struct ib_smsg *m)
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

/* The same for a new message, which mostly is one part that its path can take at once. */
static inline __attribute__((always_inline)) int post_new(struct ib_send *tx, struct ib_smsg *m)
{
    struct ib_path *p = &tx->conn->path[m->part[0].path];
    uint32_t lkey = ib_mr_lkey(m->mr, p->nic);

    if (__builtin_expect(m->nparts == 1 && ib_conn_up(tx->conn, p->index) &&
                             m->rkey[p->index] != 0 && lkey != 0 && path_room(tx, p, m->seq) &&
                             is_plain(p, m->part[0].len),
                         1) &&
        post_one(tx, m, 0, p, lkey) == 0) {
        return 0;
    }
    return post_message(tx, m);
}

/* Lowest seq first: retransmitted parts before new ones (P1, P22). */
static __attribute__((noinline)) void post_pending(struct ib_send *tx)
{
    if (tx->posting_stopped) {
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
        ib_conn_stir(tx->conn);
    }
}

/* --- what R writes --- */

/*
 * Whether this turn looks into all rings (P10): each eighth one, and as long as the path that
 * served last is not up. R writes on another path only after a failure, so the other turns are
 * spared the loads.
 */
static inline int wide_turn(struct ib_send *tx, int acks)
{
    return (++tx->turn[acks] & 7) == 0 || !ib_conn_up(tx->conn, tx->ring_hot->index);
}

/* Takes the CTS, and with @acks the acknowledgements, that are there: where nothing is, two loads
 * say so. */
static inline __attribute__((always_inline)) void poll_rings(struct ib_send *tx, int acks)
{
    struct ib_path *p = tx->ring_hot;

    if (__builtin_expect(wide_turn(tx, acks) || !p->open, 0)) {
        ib_send_poll_rings_wide(tx, acks);
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

/* Finds the receive for @tag inside the oldest group that is not fully matched, of which some CTS
 * is there; UINT64_MAX when its own is not (yet). */
static __attribute__((noinline)) uint64_t match_group(const struct ib_send *tx, uint32_t tag)
{
    const struct ib_cts *first = &tx->cts[tx->group % R2_LEDGER_WINDOW];

    for (unsigned i = 0; i < first->n && tx->group + i < tx->cts_seen; i++) {
        if (!(tx->matched & (1u << i)) && tx->cts[(tx->group + i) % R2_LEDGER_WINDOW].tag == tag) {
            return tx->group + i;
        }
    }
    return UINT64_MAX;
}

static inline uint64_t match(const struct ib_send *tx, uint32_t tag)
{
    const struct ib_cts *first = &tx->cts[tx->group % R2_LEDGER_WINDOW];

    if (tx->group == tx->cts_seen) {
        return UINT64_MAX;
    }
    if (__builtin_expect(first->n != 1, 0)) {
        return match_group(tx, tag);
    }
    return first->tag == tag ? tx->group : UINT64_MAX;
}

static __attribute__((noinline)) void mark_in_group(struct ib_send *tx, uint64_t seq, unsigned n)
{
    tx->matched |= (uint8_t)(1u << (seq - tx->group));
    if (tx->matched == (uint8_t)((1u << n) - 1)) {
        tx->group += n;
        tx->matched = 0;
    }
    tx->unmatched = tx->group + (unsigned)__builtin_ctz(~(unsigned)tx->matched);
}

/* @n: buffers of its group. */
static inline void mark_matched(struct ib_send *tx, uint64_t seq, unsigned n)
{
    if (seq >= tx->sposted) {
        IB_RLX_SET(tx->sposted, seq + 1);
    }
    if (__builtin_expect(n != 1, 0)) {
        mark_in_group(tx, seq, n);
    } else {
        tx->unmatched = ++tx->group;
    }
}

/* Of the paths of each NIC pair the one that carries @m, which is not cut over several of them. */
static __attribute__((noinline)) uint32_t one_each(struct ib_send *tx, const struct ib_smsg *m,
                                                   uint32_t eligible)
{
    struct r2_plan_seen seen = {.now = ib_conn_now(tx->conn), .n = tx->conn->npaths};

    for (int p = 0; p < tx->conn->npaths; p++) {
        seen.posted[p] = tx->conn->path[p].count.bytes;
        seen.done[p] = tx->conn->path[p].count.bytes_done;
    }
    return r2_plan_choose(&tx->plan, &tx->load, eligible, m->size, &seen);
}

/* What is cut, or has no path that is certain. */
static __attribute__((noinline)) void stripe(struct ib_send *tx, struct ib_smsg *m)
{
    uint32_t max = tx->size.most;
    struct r2_stripe c;

    if (__builtin_expect(tx->size.ring_most != 0, 0) &&
        m->size <= (uint64_t)R2_MAX_PARTS * tx->size.ring_most) {
        max = tx->size.ring_most;
    }
    if (tx->plan.n == 0) { /* no path now: posted wherever one comes back */
        struct r2_plan any = {.n = 1};

        r2_plan_stripe(&any, ~0u, m->size, (uint32_t)tx->conn->cfg->stripe_min, max, &c);
    } else {
        uint32_t eligible;

        m->nparts = 0; /* of the message before */
        eligible = tx->plan.n == 1 ? ~0u : eligible_paths(tx, m);
        eligible = eligible ? eligible : ~0u;
        if (tx->plan.whole) {
            eligible = one_each(tx, m, eligible);
        }
        r2_plan_stripe(&tx->plan, eligible, m->size, (uint32_t)tx->conn->cfg->stripe_min, max, &c);
    }
    m->nparts = c.nparts;
    for (unsigned k = 0; k < c.nparts; k++) {
        m->part[k] = (struct ib_part){.off = c.off[k], .len = c.len[k], .path = c.path[k]};
    }
    m->unposted = (uint16_t)((1u << m->nparts) - 1);
}

/* The receive @seq is matched, its slot free. */
static inline __attribute__((always_inline)) struct ib_smsg *
begin(struct ib_send *tx, uint64_t seq, const void *data, uint32_t size, struct ib_mr *mr)
{
    const struct ib_cts *cts = &tx->cts[seq % R2_LEDGER_WINDOW];
    struct ib_smsg *m = IB_SEND_SLOT(tx, seq);

    m->seq = seq;
    m->data = data;
    m->mr = mr;
    m->raddr = cts->addr;
    memcpy(m->rkey, cts->rkey, sizeof(m->rkey));
    m->size = size < cts->size ? size : cts->size;
    m->busy = 1;
    m->nparts = 1;
    m->wrs_out = 0;
    m->soft = 0;
    m->unposted = 1;
    m->ledger = 0;
    m->arrived = 0;
    mark_matched(tx, seq, cts->n);
    if (__builtin_expect(m->size < tx->size.whole, 1)) {
        m->part[0] = (struct ib_part){.len = m->size, .path = tx->plan.path[0]};
    } else {
        stripe(tx, m);
    }
    return m;
}

struct ib_smsg *ib_send_start(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag,
                              struct ib_mr *mr)
{
    uint64_t seq = match(tx, tag);
    struct ib_smsg *m;

    if (seq == UINT64_MAX) {
        poll_rings(tx, 0);
        seq = match(tx, tag);
    }
    if (seq == UINT64_MAX) {
        IB_RLX_ADD(tx->misses, 1);
        ib_conn_stir(tx->conn);
        return NULL;
    }
    if (IB_SEND_SLOT(tx, seq)->busy) {
        return NULL;
    }
    m = begin(tx, seq, data, size, mr);
    /* parts that wait go first (P1) */
    if (__builtin_expect(tx->pending & IB_SEND_UNPOSTED, 0)) {
        post_pending(tx);
    } else if (post_new(tx, m)) {
        tx->pending |= IB_SEND_UNPOSTED;
        ib_conn_stir(tx->conn); /* who started it may not come back to try again */
    }
    return m;
}

/* A path of which all is accounted for is left out until something is posted on it again. */
static inline __attribute__((always_inline)) void poll_paths(struct ib_send *tx)
{
    struct ib_conn *l = tx->conn;
    struct ibv_wc wc[IB_SEND_POLL_BATCH];

    for (uint32_t m = tx->polls & l->up; m; m &= m - 1) {
        struct ib_path *p = &l->path[__builtin_ctz(m)];

        if (p->sq.used == 0) {
            tx->polls &= (uint8_t) ~(m & -m);
        } else if (p->open) {
            int n = ibv_poll_cq(p->cq, IB_SEND_POLL_BATCH, wc);

            if (n != 0) {
                ib_send_take_wcs(tx, p, wc, n);
            }
        }
    }
}

void ib_send_progress(struct ib_send *tx)
{
    poll_paths(tx);
    poll_rings(tx, 1);
    if (__builtin_expect(tx->pending, 0)) {
        if (tx->pending & IB_SEND_STAGING) {
            ib_send_stage_turn(tx);
        }
        if (tx->pending & IB_SEND_UNPOSTED) {
            post_pending(tx);
        }
    }
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
