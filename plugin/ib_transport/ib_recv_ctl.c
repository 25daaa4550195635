/* What a receiver writes to its sender: CTS of receives that it opens, acknowledgements. */
#include <stdbool.h>
#include <string.h>

#include "base/r2_keep.h"
#include "base/r2_rules.h"
#include "ib_flush.h"
#include "ib_recv_int.h"

/* One slot is left for a lone ack, so that CTS cannot starve it. */
static int ctl_room(const struct ib_path *p, int n)
{
    return p->sq.used + n < (int)p->cap.sq_depth;
}

/*
 * An RDMA write of @len bytes at @base + @off into the peer's ring at @off. 0, or -1 and the path
 * is down. What is the same in all of them stands in rx->wr; so does what does not matter: how many
 * writes an unsignaled one confirms, which has no completion but an error. What goes inline has its
 * key, too: mana's queue pairs report the inline size that was asked for, and its library looks at
 * no such flag.
 */
static inline __attribute__((always_inline)) int
write_from(struct ib_recv *rx, struct ib_path *p, uintptr_t base, size_t off, uint32_t len)
{
    struct ibv_send_wr *wr = &rx->wr, *bad;
    unsigned flags = __builtin_expect(len <= p->cap.max_inline, 1) ? IBV_SEND_INLINE : 0;
    unsigned run = p->sq.ctl_run + 1u;
    int rc;

    rx->sge.lkey = p->mem.ring_mr->lkey;
    rx->sge.addr = base + off;
    rx->sge.length = len;
    wr->wr.rdma.remote_addr = p->mem.peer_ring + off;
    wr->wr.rdma.rkey = p->mem.peer_ring_key;
    if (__builtin_expect(run >= IB_CTL_SIGNAL || rx->signal, 0)) {
        wr->wr_id = ib_wr_id(IB_WR_CTL, 0, run);
        flags |= IBV_SEND_SIGNALED;
        run = 0;
    }
    wr->send_flags = flags;
    p->sq.ctl_run = (uint16_t)run;
    IB_RLX_ADD(p->sq.used, 1);
    IB_RLX_ADD(p->count.wrs, 1);
    ib_conn_touch(rx->conn, p->index);
    rc = ibv_post_send(p->qp, wr, &bad);
    if (__builtin_expect(rc != 0, 0)) {
        ib_conn_call_fault(rx->conn, p->index, ib_verbs_err(rc));
        return -1;
    }
    return 0;
}

/* The same bytes of the control source. */
static inline __attribute__((always_inline)) int ctl_write(struct ib_recv *rx, struct ib_path *p,
                                                           size_t off, uint32_t len)
{
    return write_from(rx, p, (uintptr_t)rx->conn->ctl_src, off, len);
}

static void note_ack_sent(struct ib_recv *rx, struct ib_path *p)
{
    p->ack.sent = rx->ledger.acked;
    rx->ack_sent = rx->ledger.acked;
    rx->ack_owed_since = 0;
}

/* The keys of @mr by path, read anew. */
static __attribute__((noinline)) const struct ib_keys *read_keys(struct ib_recv *rx,
                                                                 struct ib_mr *mr, uint64_t version)
{
    struct ib_keys *keys = &rx->keys[version % IB_KEYS];
    const struct ib_conn *l = rx->conn;

    keys->version = version;
    for (int p = 0; p < IB_MAX_PATHS; p++) {
        keys->rkey[p] = p < l->npaths ? ib_mr_rkey(mr, l->path[p].nic) : 0;
    }
    return keys;
}

static inline const struct ib_keys *keys_of(struct ib_recv *rx, struct ib_mr *mr)
{
    uint64_t version = ib_mr_version(mr);
    const struct ib_keys *keys = &rx->keys[version % IB_KEYS];

    return __builtin_expect(keys->version == version, 1) ? keys : read_keys(rx, mr, version);
}

/* ... but for paths of which what came over them could not be flushed (P17). */
static __attribute__((noinline)) struct ib_keys keys_that_flush(struct ib_keys keys, unsigned lacks)
{
    for (; lacks; lacks &= lacks - 1) {
        keys.rkey[__builtin_ctz(lacks)] = 0;
    }
    return keys;
}

/*
 * The entry of @m in the control source, to be written on @p. It is filled as the words that it is
 * (struct ib_cts), which the check is made of. What of @m it has is passed by value: the caller has
 * that in registers.
 */
static inline __attribute__((always_inline)) void
fill_entry(struct ib_recv *rx, const struct ib_path *p, struct ib_rmsg *m, uint64_t seq, void *data,
           uint32_t size, uint32_t tag, struct ib_mr *mr, uint8_t n, uint8_t index, int gpu)
{
    uint64_t *e = (uint64_t *)&rx->conn->ctl_src->entry[seq % R2_LEDGER_WINDOW];
    const struct ib_keys *keys = keys_of(rx, mr);
    const uint64_t w2 = size | (uint64_t)tag << 32;
    uint64_t w7 = (uint32_t)rx->ledger.acked | (uint64_t)(n | (unsigned)index << 8) << 32;
    struct ib_keys some;

    if (__builtin_expect(gpu && rx->flush->lacks, 0)) {
        some = keys_that_flush(*keys, rx->flush->lacks);
        keys = &some;
    }
    w7 |= (uint64_t)ib_cts_check_words(seq, (uintptr_t)data, w2, keys->word[0], keys->word[1],
                                       keys->word[2], keys->word[3], w7)
          << IB_CTS_CHECK_SHIFT;
    e[0] = seq;
    e[1] = (uintptr_t)data;
    e[2] = w2;
    memcpy(&e[3], keys->word, sizeof(keys->word));
    e[7] = w7;
    m->cts_path = p->index;
    m->cts_incarnation = p->inc;
    m->cts_out = 1;
}

/* Writes the entries of seqs [first, first+n) on @p: one work request, two where the ring wraps. 0,
 * or -1 and the path is down. */
static inline __attribute__((always_inline)) int
write_entries(struct ib_recv *rx, struct ib_path *p, uint64_t first, int n)
{
    unsigned slot = (unsigned)(first % R2_LEDGER_WINDOW);
    int run = (int)(R2_LEDGER_WINDOW - slot);

    if (__builtin_expect(run < n, 0)) {
        if (ctl_write(rx, p, sizeof(struct ib_cts) * slot,
                      (uint32_t)sizeof(struct ib_cts) * (unsigned)run) != 0) {
            return -1;
        }
        slot = 0;
        n -= run;
    }
    return ctl_write(rx, p, sizeof(struct ib_cts) * slot,
                     (uint32_t)sizeof(struct ib_cts) * (unsigned)n);
}

/* Writes the CTS of @seq on @p. -1: path down, or no room. */
static __attribute__((noinline)) int write_cts(struct ib_recv *rx, struct ib_path *p, uint64_t seq)
{
    struct ib_rmsg *m = IB_RECV_SLOT(rx, seq);

    if (!ctl_room(p, 2)) {
        return -1;
    }
    fill_entry(rx, p, m, seq, m->data, m->size, m->tag, m->mr, m->n, m->index, m->gpu);
    return write_entries(rx, p, seq, 1);
}

/*
 * Where writes may overtake each other: the next word of the ring for a larger value, the same
 * one for the same, so that a late write finds its own word and no newer value there. A word
 * comes round again after IB_ACKS more acks alone, and no more writes than that are ever out: the
 * one before has completed, that is, it has been placed. Half of the room is for the end of a
 * burst, behind which NCCL may not call for long (until then a CTS can carry it, or a later turn),
 * and for who asks.
 */
static __attribute__((noinline)) int write_ack_word(struct ib_recv *rx, struct ib_path *p)
{
    uint64_t *word = rx->conn->ctl_src->ack[p->index];
    unsigned at = p->ack.at, slot;
    bool last = rx->ledger.acked == rx->ledger.rpost || rx->signal;

    if (!p->ar || p->sq.used >= (last ? IB_ACKS : IB_ACKS / 2)) {
        return -1;
    }
    at += rx->ledger.acked > p->ack.alone;
    slot = (at + IB_ACKS - 1) % IB_ACKS;
    word[slot] = rx->ledger.acked;
    if (write_from(rx, p, (uintptr_t)word - offsetof(struct ib_ring, ack),
                   offsetof(struct ib_ring, ack) + sizeof(*word) * slot, sizeof(*word)) != 0) {
        return -1;
    }
    p->ack.at = (uint16_t)(at % IB_ACKS);
    p->ack.alone = rx->ledger.acked;
    rx->count.acks_alone++;
    note_ack_sent(rx, p);
    return 0;
}

int ib_recv_write_ack(struct ib_recv *rx, struct ib_path *p)
{
    if (p->sq.used >= p->ack.room) {
        return write_ack_word(rx, p);
    }
    rx->conn->ctl_src->acked = rx->ledger.acked;
    if (ctl_write(rx, p, offsetof(struct ib_ring, ack), sizeof(uint64_t)) != 0) {
        return -1;
    }
    rx->count.acks_alone++;
    note_ack_sent(rx, p);
    return 0;
}

void ib_recv_write_pending_cts(struct ib_recv *rx)
{
    struct ib_conn *l = rx->conn;

    if (rx->posting_stopped) {
        return;
    }
    rx->cts_pending = 0;
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = IB_RECV_SLOT(rx, seq);

        if (m->cts_out || r2_ledger_complete(&rx->ledger, seq)) {
            continue;
        }
        if (rx->ctl_path == IB_MAX_PATHS || write_cts(rx, &l->path[rx->ctl_path], seq) != 0) {
            m->cts_out = 0;
            rx->cts_pending = 1;
            return;
        }
        rx->count.cts_rewritten++;
        /* S may have the entry already and not look at this one: what it carries of acked does not
         * count as told (P14) */
    }
}

void ib_recv_cts_again(struct ib_recv *rx, uint64_t from)
{
    struct ib_conn *l = rx->conn;

    if (!r2_rule(R2_RULE_CTS_REWRITE)) {
        return;
    }
    for (uint64_t seq = from > rx->ledger.rdone ? from : rx->ledger.rdone;
         seq < rx->ledger.rpost && !rx->posting_stopped; seq++) {
        if (r2_ledger_complete(&rx->ledger, seq)) {
            continue;
        }
        for (int p = 0; p < l->npaths; p++) {
            if (ib_conn_up(l, p) && write_cts(rx, &l->path[p], seq) != 0) {
                IB_RECV_SLOT(rx, seq)->cts_out =
                    0; /* no room: as soon as there is; or the path went down just now */
                rx->cts_pending = 1;
            }
        }
        rx->count.cts_rewritten++;
    }
}

/* Opens the receive that is buffer @i of @n of its group, and fills in its CTS for @p. */
static inline __attribute__((always_inline)) void open_one(struct ib_recv *rx, struct ib_path *p,
                                                           int n, int i, void *data, size_t size,
                                                           int tag, struct ib_mr *mr)
{
    uint64_t seq = r2_ledger_post(&rx->ledger, size);
    struct ib_rmsg *m = IB_RECV_SLOT(rx, seq);
    uint8_t gpu = rx->flush && ib_flush_wants(rx->flush, mr);

    R2_KEEP(m);
    *m = (struct ib_rmsg){.seq = seq,
                          .data = data,
                          .mr = mr,
                          .size = (uint32_t)size,
                          .tag = (uint32_t)tag,
                          .n = (uint8_t)n,
                          .index = (uint8_t)i,
                          .quarantined_by = rx->quarantining,
                          .gpu = gpu};
    fill_entry(rx, p, m, seq, data, (uint32_t)size, (uint32_t)tag, mr, (uint8_t)n, (uint8_t)i, gpu);
    IB_RLX_ADD(rx->load.wanted, size);
    if (size > rx->load.largest) {
        IB_RLX_SET(rx->load.largest, size);
    }
}

/* The CTS of a group could not be written: its path is down now. */
static __attribute__((noinline, cold)) void group_pending(struct ib_recv *rx, uint64_t first, int n)
{
    for (int i = 0; i < n; i++) {
        IB_RECV_SLOT(rx, first + (uint64_t)i)->cts_out = 0;
    }
    rx->cts_pending = 1;
}

/* @n is a constant where it is 1, as mostly. */
static inline __attribute__((always_inline)) uint64_t start(struct ib_recv *rx, int n,
                                                            void *const *data, const size_t *sizes,
                                                            const int *tags,
                                                            struct ib_mr *const *mrs)
{
    uint64_t first = rx->ledger.rpost;
    struct ib_path *p;

    if (rx->ctl_path == IB_MAX_PATHS || rx->cts_pending || !r2_ledger_room(&rx->ledger, n)) {
        return UINT64_MAX;
    }
    p = &rx->conn->path[rx->ctl_path];
    R2_KEEP(p);
    if (!ctl_room(p, 2)) {
        return UINT64_MAX;
    }
    if (rx->load.opened == rx->count.messages) {
        IB_RLX_SET(rx->load.largest, 0);
    }
    for (int i = 0; i < n; i++) {
        open_one(rx, p, n, i, data[i], sizes[i], tags[i], mrs[i]);
    }
    IB_RLX_ADD(rx->load.opened, n);
    if (__builtin_expect(write_entries(rx, p, first, n) != 0, 0)) {
        group_pending(rx, first, n);
    } else {
        note_ack_sent(rx, p);
    }
    return first;
}

static __attribute__((noinline)) uint64_t start_group(struct ib_recv *rx, int n, void *const *data,
                                                      const size_t *sizes, const int *tags,
                                                      struct ib_mr *const *mrs)
{
    return start(rx, n, data, sizes, tags, mrs);
}

uint64_t ib_recv_start(struct ib_recv *rx, int n, void *const *data, const size_t *sizes,
                       const int *tags, struct ib_mr *const *mrs)
{
    return __builtin_expect(n == 1, 1) ? start(rx, 1, data, sizes, tags, mrs)
                                       : start_group(rx, n, data, sizes, tags, mrs);
}

void ib_recv_tail_probe(struct ib_recv *rx, int p)
{
    if (!rx->posting_stopped && ib_conn_up(rx->conn, p) && ctl_room(&rx->conn->path[p], 1)) {
        rx->signal = 1;
        ib_recv_write_ack(rx, &rx->conn->path[p]);
        rx->signal = 0;
    }
}

void ib_recv_send_acks(struct ib_recv *rx)
{
    struct ib_conn *l = rx->conn;

    for (int p = 0; p < l->npaths && !rx->posting_stopped; p++) {
        if (ib_conn_up(l, p)) {
            ib_recv_write_ack(rx, &l->path[p]); /* no room there: S asks again */
        }
    }
}
