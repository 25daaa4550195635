#include <arpa/inet.h>
#include <string.h>

#include "base/r2_keep.h"
#include "base/r2_rules.h"
#include "ib_record.h"
#include "ib_send_int.h"

void ib_send_init(struct ib_send *tx, struct ib_conn *conn)
{
    memset(tx, 0, sizeof(*tx));
    tx->conn = conn;
    tx->ring_hot = &conn->path[0];
    tx->wr.sg_list = &tx->sge;
    tx->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    tx->wr.send_flags = IBV_SEND_SIGNALED;
    tx->believed = conn->cfg->ack == R2_ACK_CQE ? UINT16_MAX : 0;
    ib_send_replan(tx);
}

/* --- a message --- */

/*
 * Posts a new message that is one part and not empty, where its path can take it at once: 0.
 * Else -1, and it is unposted as it was. What of it stands in @cts, which it has been made from, is
 * read there.
 */
static inline __attribute__((always_inline)) int post_whole(struct ib_send *tx, struct ib_smsg *m,
                                                            const struct ib_cts *cts, uint64_t seq,
                                                            const void *data, uint32_t len,
                                                            struct ib_mr *mr, unsigned index)
{
    struct ib_path *p = &tx->conn->path[index];
    uint32_t lkey, rkey = cts->rkey[index];
    struct ibv_send_wr *wr = &tx->wr, *bad;
    int rc;

    R2_KEEP(p);
    lkey = ib_mr_lkey(mr, p->nic);
    if (__builtin_expect(!ib_conn_up(tx->conn, (int)index) || rkey == 0 || lkey == 0 ||
                             len - 1 >= p->part.one_max || !ib_send_room(tx, p, seq),
                         0)) {
        return -1;
    }
    tx->sge.addr = (uintptr_t)data;
    tx->sge.length = len;
    tx->sge.lkey = lkey;
    wr->wr_id = ib_wr_id(IB_WR_DATA, 0, seq);
    wr->num_sge = 1;
    wr->imm_data = htonl(ib_imm_pack(seq, 0, 1, IB_IMM_DATA, p->inc));
    wr->wr.rdma.remote_addr = cts->addr;
    wr->wr.rdma.rkey = rkey;
    rc = ibv_post_send(p->qp, wr, &bad);
    if (__builtin_expect(rc != 0, 0)) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
        return -1;
    }
    m->part[0].inc = p->inc;
    m->part[0].wr_out = 1;
    m->wrs_out = 1; /* of one part all is out */
    m->unposted = 0;
    tx->polls |= (uint8_t)(1u << p->index);
    IB_RLX_ADD(p->sq.used, 1);
    p->parts_out++;
    IB_RLX_ADD(p->count.wrs, 1);
    IB_RLX_ADD(p->count.bytes, m->size);
    ib_conn_touch(tx->conn, p->index);
    return 0;
}

/* --- what R writes --- */

/*
 * Whether this turn looks into all rings (P10): each eighth one, and as long as the path that
 * served last is not up. R writes on another path only after a failure, so the other turns are
 * spared the loads.
 */
static inline __attribute__((always_inline)) int wide_turn(struct ib_send *tx, int acks)
{
    return (++tx->turn[acks] & 7) == 0 || !ib_conn_up(tx->conn, tx->ring_hot->index) ||
           !tx->ring_hot->open;
}

/* Takes the CTS and the acknowledgements that are there: where nothing is, two loads say so. */
static inline __attribute__((always_inline)) void poll_rings(struct ib_send *tx)
{
    struct ib_path *p = tx->ring_hot;

    if (__builtin_expect(wide_turn(tx, 1), 0)) {
        ib_send_poll_rings_wide(tx, 1);
        return;
    }
    if (__builtin_expect(ib_send_has_cts(tx, p), 0)) {
        ib_send_take_cts(tx, p);
    }
    if (__builtin_expect(ib_send_has_ack(p), 0)) {
        ib_send_take_acks(tx, p, 0);
    }
}

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

static __attribute__((noinline)) uint64_t match(const struct ib_send *tx, uint32_t tag)
{
    const struct ib_cts *first = &tx->cts[tx->group % R2_LEDGER_WINDOW];

    if (tx->group == tx->cts_seen) {
        return UINT64_MAX;
    }
    if (first->n != 1) {
        return match_group(tx, tag);
    }
    return first->tag == tag ? tx->group : UINT64_MAX;
}

/* The oldest CTS is not alone in its group, or of another tag. */
static __attribute__((noinline)) uint64_t match_apart(struct ib_send *tx, uint32_t tag)
{
    uint64_t seq = match(tx, tag);

    if (seq == UINT64_MAX) {
        if (wide_turn(tx, 0)) {
            ib_send_poll_rings_wide(tx, 0);
        } else {
            ib_send_take_cts(tx, tx->ring_hot);
        }
        seq = match(tx, tag);
    }
    return seq;
}

static __attribute__((noinline)) void mark_in_group(struct ib_send *tx, uint64_t seq, unsigned n)
{
    tx->matched |= (uint8_t)(1u << (seq - tx->group));
    if (tx->matched == (uint8_t)((1u << n) - 1)) {
        tx->group += n;
        tx->matched = 0;
    }
    IB_RLX_SET(tx->unmatched, tx->group + (unsigned)__builtin_ctz(~(unsigned)tx->matched));
}

/* @n: buffers of its group. Alone in it, the lowest seq without a message is the highest one with
 * a CTS that was looked at, so that all three go on to the next one. */
static inline void mark_matched(struct ib_send *tx, uint64_t seq, unsigned n)
{
    if (__builtin_expect(n != 1, 0)) {
        if (seq >= tx->sposted) {
            IB_RLX_SET(tx->sposted, seq + 1);
        }
        mark_in_group(tx, seq, n);
    } else {
        IB_RLX_SET(tx->sposted, seq + 1);
        IB_RLX_SET(tx->unmatched, seq + 1);
        tx->group = seq + 1;
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
        eligible = tx->plan.n == 1 ? ~0u : ib_send_eligible(tx, m);
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

/* The receive of @cts is matched, the slot @m free. As one part, whatever its size. */
static inline __attribute__((always_inline)) void begin(struct ib_smsg *m, const struct ib_cts *cts,
                                                        uint64_t seq, const void *data,
                                                        uint32_t size, struct ib_mr *mr,
                                                        unsigned path)
{
    m->seq = seq;
    m->data = data;
    m->mr = mr;
    m->raddr = cts->addr;
    memcpy(m->rkey, cts->rkey, sizeof(m->rkey));
    m->size = size;
    m->busy = 1;
    m->nparts = 1;
    m->wrs_out = 0;
    m->soft = 0;
    m->unposted = 1;
    m->ledger = 0;
    m->arrived = 0;
    m->part[0].off = 0;
    m->part[0].len = size;
    m->part[0].path = (uint8_t)path;
    m->part[0].wr_out = 0;
}

/* No receive for it is known. */
static __attribute__((noinline)) struct ib_smsg *refuse(struct ib_send *tx)
{
    IB_RLX_ADD(tx->misses, 1);
    ib_conn_stir(tx->conn);
    return NULL;
}

/* @m has begun and could not just be posted. Parts that wait go first (P1). */
static __attribute__((noinline)) struct ib_smsg *start_apart(struct ib_send *tx, struct ib_smsg *m)
{
    if (m->size >= tx->size.whole) {
        stripe(tx, m);
    } else {
        m->part[0].inc = 0; /* the slot's last message may have gone by an incarnation that lives */
    }
    if (tx->pending & IB_SEND_UNPOSTED) {
        ib_send_post_pending(tx);
    } else if (ib_send_post_message(tx, m)) {
        tx->pending |= IB_SEND_UNPOSTED;
        ib_conn_stir(tx->conn); /* who started it may not come back to try again */
    }
    return m;
}

/* A CTS is there, taken or in the ring of the path that served last. */
static __attribute__((noinline)) struct ib_smsg *
start(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag, struct ib_mr *mr)
{
    uint64_t seq = tx->group;
    const struct ib_cts *cts;
    struct ib_smsg *m;
    unsigned path;

    if (seq == tx->cts_seen && ib_send_take_cts(tx, tx->ring_hot) == 0) {
        return refuse(tx);
    }
    cts = &tx->cts[seq % R2_LEDGER_WINDOW];
    if (__builtin_expect(cts->n != 1 || cts->tag != tag, 0)) {
        seq = match_apart(tx, tag);
        if (seq == UINT64_MAX) {
            return refuse(tx);
        }
        cts = &tx->cts[seq % R2_LEDGER_WINDOW];
    }
    m = IB_SEND_SLOT(tx, seq);
    R2_KEEP(m);
    if (__builtin_expect(m->busy, 0)) {
        return NULL;
    }
    size = size < cts->size ? size : cts->size;
    path = tx->plan.path[0];
    begin(m, cts, seq, data, size, mr, path);
    mark_matched(tx, seq, cts->n);
    if (__builtin_expect(size < tx->size.whole && !(tx->pending & IB_SEND_UNPOSTED), 1) &&
        post_whole(tx, m, cts, seq, data, size, mr, path) == 0) {
        return m;
    }
    return start_apart(tx, m);
}

/* None is taken, and this turn looks into all rings. */
static __attribute__((noinline)) struct ib_smsg *
start_wide(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag, struct ib_mr *mr)
{
    ib_send_poll_rings_wide(tx, 0);
    return tx->group == tx->cts_seen ? refuse(tx) : start(tx, data, size, tag, mr);
}

/* NCCL asks again and again for a receive that is not there: that is found out before any register
 * is saved. */
struct ib_smsg *ib_send_start(struct ib_send *tx, const void *data, uint32_t size, uint32_t tag,
                              struct ib_mr *mr)
{
    if (tx->group == tx->cts_seen) {
        if (__builtin_expect(wide_turn(tx, 0), 0)) {
            return start_wide(tx, data, size, tag, mr);
        }
        if (!ib_send_has_cts(tx, tx->ring_hot)) {
            return refuse(tx);
        }
    }
    return start(tx, data, size, tag, mr);
}

/* A path of which all is accounted for is left out until something is posted on it again. */
static inline __attribute__((always_inline)) void poll_path(struct ib_send *tx, struct ib_path *p,
                                                            uint32_t bit)
{
    struct ibv_wc wc[IB_SEND_POLL_BATCH];

    if (p->sq.used == 0) {
        tx->polls &= (uint8_t)~bit;
    } else if (p->open) {
        int n = ibv_poll_cq(p->cq, IB_SEND_POLL_BATCH, wc);

        if (n != 0) {
            ib_send_take_wcs(tx, p, wc, n);
        }
    }
}

static __attribute__((noinline)) void poll_several(struct ib_send *tx, uint32_t paths)
{
    for (; paths; paths &= paths - 1) {
        struct ib_path *p = &tx->conn->path[(unsigned)__builtin_ctz(paths)];

        R2_KEEP(p);
        poll_path(tx, p, paths & -paths);
    }
}

/* Those with work requests out: mostly one, which is spared what a loop keeps. */
static inline __attribute__((always_inline)) void poll_paths(struct ib_send *tx)
{
    uint32_t paths = tx->polls & tx->conn->up;

    if (__builtin_expect((paths & (paths - 1)) != 0, 0)) {
        poll_several(tx, paths);
    } else if (paths) {
        struct ib_path *p = &tx->conn->path[(unsigned)__builtin_ctz(paths)];

        R2_KEEP(p);
        poll_path(tx, p, paths);
    }
}

static __attribute__((noinline)) void progress_rest(struct ib_send *tx)
{
    if (tx->pending & IB_SEND_BOUNCE) {
        ib_send_bounce_turn(tx);
    }
    if (tx->pending & IB_SEND_UNPOSTED) {
        ib_send_post_pending(tx);
    }
}

static inline __attribute__((always_inline)) void progress(struct ib_send *tx)
{
    poll_paths(tx);
    poll_rings(tx);
    if (__builtin_expect(tx->pending, 0)) {
        progress_rest(tx);
    }
}

void ib_send_progress(struct ib_send *tx)
{
    progress(tx);
}

int ib_send_test(struct ib_send *tx, struct ib_smsg *m, int *sizes)
{
    progress(tx);
    if (!ib_send_done(tx, m)) {
        return 0;
    }
    if (sizes) {
        sizes[0] = (int)m->size;
    }
    ib_send_retire(m);
    return 1;
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
