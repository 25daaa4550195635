#include "ib_recv_int.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>

#include "base/r2_keep.h"
#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "ib_ack_flush.h"
#include "ib_fence_proof.h"
#include "ib_record.h"

#define POLL_BATCH  16
#define SWEEP_EVERY 32 /* empty turns between two checks of the paths that carry nothing (P3) */
#define HOT_FOR                                                                                    \
    64 /* a path that brought none of so many arrivals is no longer asked in every turn; messages  \
          that rotate use all of a plan */

void ib_recv_init(struct ib_recv *rx, struct ib_conn *conn, struct ib_ctl_src *ctl_src)
{
    memset(rx, 0, sizeof(*rx));
    rx->conn = conn;
    conn->ctl_src = ctl_src;
    rx->wr.sg_list = &rx->sge;
    rx->wr.num_sge = 1;
    rx->wr.opcode = IBV_WR_RDMA_WRITE;
    rx->wr.wr_id = ib_wr_id(IB_WR_CTL, 0, 0);
    r2_ledger_init(&rx->ledger);
    ib_recv_replan(rx);
}

void ib_recv_replan(struct ib_recv *rx)
{
    uint32_t usable = ib_conn_usable(rx->conn);

    rx->ctl_path = usable ? (uint8_t)__builtin_ctz(usable) : IB_MAX_PATHS;
    rx->hot |= (uint8_t)usable; /* S may take any of them from here on */
    rx->heard = 0;
    for (int i = 0; i < IB_KEYS; i++) {
        rx->keys[i].version = UINT64_MAX;
    }
}

/* --- arrivals --- */

static __attribute__((noinline, cold)) void bad_arrival(struct ib_recv *rx, struct ib_path *p,
                                                        struct ib_imm imm, enum r2_ledger_result r)
{
    struct ib_fault_info info = {.fault = IB_FAULT_DATA, .err = (int)r};

    rx->count.bad_arrivals++;
    if (r == R2_LEDGER_DUPLICATE) {
        rx->count.duplicates++;
    }
    R2_WARN("arrival %s: seq %04x part %u of %u life %u on path %u life %u, window [%llu, %llu)",
            r2_ledger_result_name(r), imm.seq, imm.k, imm.nparts, imm.inc, p->index, p->inc & 63,
            (unsigned long long)rx->ledger.rdone, (unsigned long long)rx->ledger.rpost);
    rx->conn->sink.path_fault(rx->conn->sink.arg, p->index, &info);
    if (r == R2_LEDGER_DENIED) {
        rx->conn->sink.peer_broken(
            rx->conn->sink.arg,
            "a part arrives over a path that, by the list of its sender, carries none of it");
    }
}

/* S has announced what the incarnation of @p may still bring, and this is not of it (P35). */
static bool is_denied(const struct ib_recv *rx, const struct ib_path *p, struct ib_imm imm)
{
    const struct r2_parts *live = rx->live[p->index];
    uint64_t seq;

    if (__builtin_expect(live == NULL, 1) || !r2_rule(R2_RULE_LIVE_PARTS)) {
        return 0; /* also of what carries a size record, or waits for its read, on a healthy path */
    }
    seq = r2_ledger_seq(&rx->ledger, imm.seq);
    return seq != UINT64_MAX && !((r2_parts_of(live, seq) >> imm.k) & 1);
}

/*
 * Not a write of this incarnation that carries the part's bytes and counts at once. 0: it counts,
 * @bytes says how many came. 1: it will, when a read has come back (P34). -1: it cannot be.
 */
static __attribute__((noinline)) int other_arrival(struct ib_recv *rx, struct ib_path *p,
                                                   const struct ibv_wc *wc, struct ib_imm imm,
                                                   uint32_t *bytes, enum r2_ledger_result *why)
{
    int wait = 0;

    *why = R2_LEDGER_WINDOW_ERR;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || imm.kind > IB_IMM_RECORD ||
        imm.inc != (p->inc & 63)) {
        return -1;
    }
    if (imm.kind == IB_IMM_RECORD && ib_record_take(p, wc, ntohl(wc->imm_data), bytes) != 0) {
        *why = R2_LEDGER_RECORD_ERR;
        return -1;
    }
    if (is_denied(rx, p, imm)) {
        *why = R2_LEDGER_DENIED;
        return -1;
    }
    if (rx->flush && rx->flush->ack) {
        *why = ib_ack_flush_arrival(rx, p, imm, *bytes, &wait);
        return *why == R2_LEDGER_NEW ? wait : -1;
    }
    return 0;
}

/* The ledger has taken a part that came over @p. @bit: of @p. */
static inline __attribute__((always_inline)) void counted(struct ib_recv *rx, struct ib_path *p,
                                                          uint8_t bit, struct ib_rmsg *m,
                                                          uint32_t bytes, enum r2_ledger_result r)
{
    IB_RLX_ADD(p->count.bytes, bytes);
    rx->carried |= bit;
    m->from |= bit;
    if (r == R2_LEDGER_COMPLETE) {
        IB_RLX_ADD(rx->count.messages, 1);
        IB_RLX_ADD(rx->load.met, m->size);
    }
}

/* An arrival that is not simply one whole message: of a cut one, with a size record, of another
 * incarnation, or wrong. @bit: of @p. */
static __attribute__((noinline)) void arrival_apart(struct ib_recv *rx, struct ib_path *p,
                                                    uint8_t bit, const struct ibv_wc *wc)
{
    struct ib_imm imm = ib_imm_unpack(ntohl(wc->imm_data));
    uint32_t bytes = wc->byte_len;
    enum r2_ledger_result r;
    int how;

    if (__builtin_expect(wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || imm.kind != p->plain ||
                             imm.inc != (p->inc & 63),
                         0) &&
        (how = other_arrival(rx, p, wc, imm, &bytes, &r)) != 0) {
        if (how < 0) {
            bad_arrival(rx, p, imm, r);
        }
        return;
    }
    r = r2_ledger_add(&rx->ledger, imm.seq, imm.k, imm.nparts, bytes);
    if (__builtin_expect(r > R2_LEDGER_COMPLETE, 0)) {
        bad_arrival(rx, p, imm, r);
        return;
    }
    counted(rx, p, bit, IB_RECV_SLOT(rx, imm.seq), bytes, r);
}

/*
 * The whole message in one part is told by one comparison: of its immediate the low half is the
 * incarnation and else 0 (kind DATA, part 0 of 1), and @p takes such arrivals as they come. What
 * that does not hold of, or the ledger refuses, is looked at again from the beginning.
 */
static inline __attribute__((always_inline)) void arrival(struct ib_recv *rx, struct ib_path *p,
                                                          const struct ibv_wc *wc)
{
    uint32_t imm = ntohl(wc->imm_data);
    uint8_t bit = (uint8_t)(1u << p->index);

    IB_RLX_ADD(p->count.cqes, 1);
    rx->seen |= bit;
    rx->hot |= bit;
    if (__builtin_expect(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM && p->plain == IB_IMM_DATA &&
                             (imm & 0xffff) == (p->inc & 63) &&
                             r2_ledger_add_whole(&rx->ledger, (uint16_t)(imm >> 16), wc->byte_len),
                         1)) {
        counted(rx, p, bit, IB_RECV_SLOT(rx, imm >> 16), wc->byte_len, R2_LEDGER_COMPLETE);
    } else {
        arrival_apart(rx, p, bit, wc);
    }
}
_Static_assert(IB_IMM_DATA == 0, "the low half of a whole message's immediate is its incarnation");
_Static_assert(65536 % R2_LEDGER_WINDOW == 0, "the slot of a seq is that of its low 16 bits");

/* CTS that are not out; arrivals whose read is back enter the ledger (P34). */
static __attribute__((noinline)) void do_pending(struct ib_recv *rx)
{
    struct ib_unread_part u;
    int p;

    if (rx->cts_pending) {
        ib_recv_write_pending_cts(rx);
    }
    if (rx->unread_pending) {
        ib_ack_flush_step(rx);
    }
    while (rx->unread && ib_ack_flush_next(rx, &p, &u)) {
        struct ib_path *path = &rx->conn->path[p];
        enum r2_ledger_result r;

        r2_ledger_unsee(&rx->ledger, u.seq, u.k);
        r = r2_ledger_add(&rx->ledger, (uint16_t)u.seq, u.k, u.nparts, u.bytes);
        if (r <= R2_LEDGER_COMPLETE) {
            counted(rx, path, (uint8_t)(1u << p), IB_RECV_SLOT(rx, u.seq), u.bytes, r);
        } else {
            bad_arrival(rx, path,
                        ib_imm_unpack(ib_imm_pack(u.seq, u.k, u.nparts, IB_IMM_NONE, path->inc)),
                        r);
        }
    }
    rx->unread_pending = rx->unread != 0;
}

/* The receive marker. Taken by an arrival it is no proof of a flush, and not posted any more: the
 * fence posts another one (P16.3). */
static __attribute__((noinline, cold)) void marker_out(struct ib_path *p, const struct ibv_wc *wc)
{
    if (wc->status == IBV_WC_SUCCESS) {
        p->marker.posted &= (uint8_t)~IB_MARK_RECV;
        return;
    }
    p->marker.out |= IB_MARK_RECV;
    p->marker.by_nic |= ib_path_is_nics(wc) ? IB_MARK_RECV : 0;
}

/* What is no good receive. */
static __attribute__((noinline)) void other_completion(struct ib_recv *rx, struct ib_path *p,
                                                       const struct ibv_wc *wc)
{
    enum ib_wr_kind kind = ib_wr_kind(wc->wr_id);

    if (kind == IB_WR_MARK_SEND) {
        p->marker.out |= IB_MARK_SEND;
        p->marker.by_nic |= ib_path_is_nics(wc) ? IB_MARK_SEND : 0;
    } else if (kind == IB_WR_MARK_RECV) {
        marker_out(p, wc);
    } else if (kind == IB_WR_CTL) {
        unsigned n = (unsigned)ib_wr_value(wc->wr_id);

        IB_RLX_ADD(p->count.cqes, 1);
        IB_RLX_ADD(p->sq.used, wc->status == IBV_WC_SUCCESS ? -(int)n : 0);
    }
    if (wc->status != IBV_WC_SUCCESS && ib_conn_up(rx->conn, p->index)) {
        ib_conn_wc_fault(rx->conn, p->index, wc);
    }
}

/* One completion. While the incarnation is open arrivals count (P16.5). Returns 1 when a receive
 * was consumed. */
static inline __attribute__((always_inline)) int completion(struct ib_recv *rx, struct ib_path *p,
                                                            const struct ibv_wc *wc)
{
    if (__builtin_expect(ib_wr_kind(wc->wr_id) != IB_WR_RECV || wc->status != IBV_WC_SUCCESS, 0)) {
        other_completion(rx, p, wc);
        return 0;
    }
    if (__builtin_expect(p->open, 1)) {
        arrival(rx, p, wc);
    } else {
        rx->count.ghosts++;
    }
    return 1;
}

/* Something came, @got completions. Of which paths the last HOT_FOR arrivals were is looked at
 * before, so that those of this turn count for the next time. */
static inline void note_heard(struct ib_recv *rx, int got)
{
    rx->idle = 0;
    rx->heard = (uint16_t)(rx->heard + got);
}

static inline void forget_quiet(struct ib_recv *rx)
{
    if (__builtin_expect(rx->heard >= HOT_FOR, 0)) {
        rx->hot = (uint8_t)(rx->seen | ((1u << rx->ctl_path) & rx->conn->up));
        rx->seen = 0;
        rx->heard = 0;
    }
}

/*
 * @n completions of @p are in @wc, room for POLL_BATCH: takes them and those behind them. The
 * receive queue is filled up again, in batches, before anything acknowledges more than it can
 * take (P2): of what has been consumed fewer than IB_RECV_BATCH are not posted again, which it has
 * more than S knows of. A fault on the way ends that: receives posted from here on would stand
 * behind the marker (P16.3). So no more is taken then than what was polled, which the slots that S
 * keeps free make up for; the rest is found when the incarnation is drained, and nothing new comes.
 * Returns how much there was; of a path that is down a batch.
 */
static __attribute__((noinline)) int take_completions(struct ib_recv *rx, struct ib_path *p,
                                                      struct ibv_wc *wc, int n)
{
    int total = 0, rc;

    forget_quiet(rx);
    for (;;) {
        int used = p->recvs_due;

        if (__builtin_expect(n < 0, 0)) {
            ib_conn_call_fault(rx->conn, p->index, EIO);
            return -1;
        }
        for (int i = 0; i < n; i++) {
            used += completion(rx, p, &wc[i]);
        }
        if (used >= IB_RECV_BATCH && ib_conn_up(rx->conn, p->index)) {
            if ((rc = ib_path_post_recvs(p, used)) != 0) {
                ib_conn_call_fault(rx->conn, p->index, rc);
            }
            used = 0;
        }
        p->recvs_due = (uint8_t)used;
        note_heard(rx, n);
        total += n;
        if (n < POLL_BATCH || !ib_conn_up(rx->conn, p->index)) {
            return total;
        }
        n = ibv_poll_cq(p->cq, POLL_BATCH, wc);
    }
}

static inline __attribute__((always_inline)) int poll_path(struct ib_recv *rx, struct ib_path *p)
{
    struct ibv_wc wc[POLL_BATCH];
    int n = ibv_poll_cq(p->cq, POLL_BATCH, wc);

    return __builtin_expect(n != 0, 0) ? take_completions(rx, p, wc, n) : 0;
}

/* The owed acknowledgement, when no CTS is going to carry it (P14). Where it has become more since
 * the last time, its time begins with the next turn, if it has not: a CTS mostly comes before. */
static __attribute__((noinline)) void ack(struct ib_recv *rx)
{
    struct r2_ledger *g = &rx->ledger;
    int fresh = g->acked != rx->ack_seen, due;

    rx->ack_seen = g->acked;
    if (rx->ctl_path == IB_MAX_PATHS) {
        return;
    }
    due = g->acked == g->rpost || g->acked - rx->ack_sent >= (g->rpost - rx->ack_sent + 1) / 2;
    if (!due && (!fresh || rx->ack_owed_since)) {
        uint64_t now = ib_conn_now(rx->conn);

        if (rx->ack_owed_since == 0) {
            rx->ack_owed_since = now;
        }
        due = r2_elapsed(now, rx->ack_owed_since) >= (uint64_t)rx->conn->cfg->t_ack_us * 1000;
    }
    if (due) {
        ib_recv_write_ack(rx, &rx->conn->path[rx->ctl_path]);
    }
}

/* No arrival for long: looks at all paths that are up. */
static __attribute__((noinline)) uint32_t sweep(struct ib_recv *rx)
{
    struct ib_conn *l = rx->conn;

    rx->idle = 1;
    rx->hot |= (uint8_t)((1u << rx->ctl_path) &
                         l->up); /* or its control writes would never get their slots back */
    return l->up;
}

static __attribute__((noinline)) void poll_several(struct ib_recv *rx, uint32_t paths)
{
    for (; paths; paths &= paths - 1) {
        struct ib_path *p = &rx->conn->path[(unsigned)__builtin_ctz(paths)];

        R2_KEEP(p);
        poll_path(rx, p);
    }
}

static inline __attribute__((always_inline)) void progress(struct ib_recv *rx)
{
    struct ib_conn *l = rx->conn;
    uint32_t paths = rx->hot & l->up;

    if (__builtin_expect(++rx->idle > SWEEP_EVERY, 0)) {
        paths = sweep(rx);
    }
    /* mostly one, which is spared what a loop keeps */
    if (__builtin_expect((paths & (paths - 1)) != 0, 0)) {
        poll_several(rx, paths);
    } else if (paths) {
        struct ib_path *p = &l->path[(unsigned)__builtin_ctz(paths)];

        R2_KEEP(p);
        poll_path(rx, p);
    }
    for (int i = 0; !r2_rule(R2_RULE_CLOSE_INCARNATION) && i < l->npaths; i++) {
        if (l->path[i].open && !ib_conn_up(l, i)) {
            poll_path(rx, &l->path[i]); /* rule off: closed incarnations still count */
        }
    }
    if (__builtin_expect(rx->pending, 0)) {
        do_pending(rx);
    }
    if (rx->ledger.acked > rx->ack_sent) {
        ack(rx);
    }
}

void ib_recv_progress(struct ib_recv *rx)
{
    progress(rx);
}

/* All below acked are complete, and what is complete from the oldest receive on is below acked: so
 * one comparison says it of a whole group. */
int ib_recv_test(struct ib_recv *rx, uint64_t first, int n, int *sizes)
{
    unsigned slot = (unsigned)(first % R2_LEDGER_WINDOW);

    progress(rx);
    if (first != rx->ledger.rdone || rx->ledger.acked - first < (uint64_t)n) {
        return 0;
    }
    if (__builtin_expect(n != 1, 0)) {
        if (!ib_recv_group_done(rx, first, n, sizes)) {
            return 0;
        }
    } else if (rx->msg[slot].quarantined_by) {
        return 0;
    } else if (sizes) {
        sizes[0] = (int)rx->ledger.entry[slot].bytes;
    }
    rx->ledger.rdone = first + (uint64_t)n;
    return 1;
}

int ib_recv_confirm(struct ib_recv *rx, int p)
{
    struct ib_path *path = &rx->conn->path[p];

    if (!ib_conn_up(rx->conn, p) || poll_path(rx, path) < 0) {
        return 0;
    }
    if (path->sq.ctl_run && !rx->posting_stopped && ib_conn_up(rx->conn, p)) {
        int rc;

        rx->signal = 1;
        rc = ib_recv_write_ack(rx, path);
        rx->signal = 0;
        if (rc == 0 || !ib_conn_up(rx->conn, p)) {
            return 0;
        }
    }
    return path->sq.used; /* also when the queue is so full that not even the question fits */
}

int ib_recv_group_done(const struct ib_recv *rx, uint64_t first, int n, int *sizes)
{
    for (int i = 0; i < n; i++) {
        if (!ib_recv_one_done(rx, first + (uint64_t)i, NULL)) {
            return 0;
        }
    }
    for (int i = 0; sizes && i < n; i++) {
        ib_recv_one_done(rx, first + (uint64_t)i, &sizes[i]);
    }
    return 1;
}

int ib_recv_uses(const struct ib_recv *rx, const struct ib_mr *mr)
{
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        if (rx->msg[seq % R2_LEDGER_WINDOW].mr == mr) {
            return 1;
        }
    }
    return 0;
}

/* --- failover --- */

int ib_recv_drain(struct ib_recv *rx, int p)
{
    struct ib_path *path = &rx->conn->path[p];
    struct ibv_wc wc[POLL_BATCH];
    int n;

    do {
        memset(wc, 0, sizeof(wc)); /* what a library leaves of a completion as it was reads 0 */
        n = ibv_poll_cq(path->cq, POLL_BATCH, wc);
        for (int i = 0; i < n; i++) {
            completion(rx, path, &wc[i]);
        }
    } while (n == POLL_BATCH);
    return n < 0 ? -1 : 0;
}

void ib_recv_path_down(struct ib_recv *rx, int p)
{
    struct ib_conn *l = rx->conn;

    rx->ack_sent = 0;
    for (int i = 0; i < l->npaths; i++) {
        if (ib_conn_up(l, i) && l->path[i].ack.sent > rx->ack_sent) {
            rx->ack_sent = l->path[i].ack.sent;
        }
    }
    rx->hot &= (uint8_t)l->up;
    rx->seen &= (uint8_t)l->up;
    ib_recv_replan(rx);
    if (!r2_rule(R2_RULE_CTS_REWRITE)) {
        return;
    }
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = IB_RECV_SLOT(rx, seq);

        if (m->cts_out && m->cts_path == p && m->cts_incarnation == l->path[p].inc) {
            m->cts_out = 0;
            rx->cts_pending = 1;
        }
    }
}
