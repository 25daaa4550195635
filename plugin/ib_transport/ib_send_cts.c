/* What R writes into the memory of S: CTS and acknowledgements (P8, P10, P12, P14). */
#include <stdatomic.h>
#include <string.h>

#include "base/r2_keep.h"
#include "ib_send_int.h"

/* A posted part has arrived at R: it is no longer out on the incarnation that it was posted on
 * last.
 */
static inline __attribute__((always_inline)) void part_acked(struct ib_conn *l,
                                                             const struct ib_part *part)
{
    struct ib_path *p = &l->path[part->path];

    R2_KEEP(p);
    if (p->inc == part->inc && p->parts_out > 0) {
        p->parts_out--;
    }
}

/* All of @m has arrived. */
static __attribute__((noinline)) void message_acked(struct ib_conn *l, struct ib_smsg *m)
{
    for (unsigned k = 0; k < m->nparts; k++) {
        if (!(m->unposted & (1u << k))) {
            part_acked(l, &m->part[k]);
        }
    }
    m->unposted = 0;
}

int ib_send_acked(struct ib_send *tx, uint64_t acked)
{
    uint64_t seq = tx->sack;

    if (acked <= seq) {
        return 0;
    }
    if (acked > tx->unmatched) {
        tx->count.bad_ack++;
        return -1;
    }
    do {
        struct ib_smsg *m = IB_SEND_SLOT(tx, seq);

        R2_KEEP(m);
        if (m->seq != seq) {
            continue;
        }
        if (__builtin_expect(m->nparts == 1 && !m->unposted, 1)) {
            part_acked(tx->conn, &m->part[0]);
        } else {
            message_acked(tx->conn, m);
        }
    } while (++seq < acked);
    IB_RLX_SET(tx->sack, acked);
    return 0;
}

/* The 32 low bits that a CTS carries (P8). */
static void acked_low(struct ib_send *tx, uint32_t low)
{
    uint32_t ahead = low - (uint32_t)tx->sack;

    if (ahead != 0 && ahead <= tx->unmatched - tx->sack) {
        ib_send_acked(tx, tx->sack + ahead);
    }
}

static __attribute__((noinline, cold)) int out_of_group(struct ib_send *tx)
{
    tx->count.bad_cts++;
    if (tx->cts_seen > 0) {
        tx->conn->sink.peer_broken(tx->conn->sink.arg, "a CTS out of its group");
    }
    return 0;
}

/* An entry that is whole, but of a group, or that is no buffer at all: 1 when it is the one that is
 * due. */
static __attribute__((noinline)) int take_in_group(struct ib_send *tx, const struct ib_cts *e)
{
    if (e->n - 1u >= 8 || e->index >= e->n) {
        return 0;
    }
    if (e->index != tx->due || (tx->due != 0 && e->n != tx->due_of)) {
        return out_of_group(tx);
    }
    tx->due = e->index + 1 < e->n ? (uint8_t)(e->index + 1) : 0;
    tx->due_of = e->n;
    return 1;
}

/*
 * The entry of @seq, the next one, of which seq was seen in @slot: 1, and tx->cts has it, once it
 * is whole and the one that is due. The copy is made in its place there, which nobody reads before
 * cts_seen is above it: what it overwrites is of seq - 256, whose message R has reported done, as
 * it has posted @seq.
 */
static inline __attribute__((always_inline)) int take_one(struct ib_send *tx,
                                                          const struct ib_cts *slot, uint64_t seq)
{
    struct ib_cts *e = &tx->cts[seq % R2_LEDGER_WINDOW];

    R2_KEEP(e);
    R2_KEEP(seq);
    memcpy(e, slot, sizeof(*e));
    atomic_signal_fence(memory_order_seq_cst); /* what is checked is what was copied: the NIC may
                                                  write the slot again */
    if (!ib_cts_whole(e, seq)) {
        return 0; /* untouched slot 0, or torn: read again later */
    }
    if (__builtin_expect(!ib_cts_alone(e) || tx->due != 0, 0) && !take_in_group(tx, e)) {
        return 0;
    }
    IB_RLX_SET(tx->cts_seen, seq + 1);
    acked_low(tx, e->acked);
    return 1;
}

/* The window bounds it: R is at most 256 ahead of what we acknowledged taking. */
int ib_send_take_cts(struct ib_send *tx, const struct ib_path *p)
{
    const struct ib_ring *ring = p->mem.ring;
    uint64_t first = tx->cts_seen, end = tx->group + R2_LEDGER_WINDOW, seq = first;

    if (!p->open) {
        return 0;
    }
    for (; seq < end; seq++) {
        const struct ib_cts *slot = &ring->entry[seq % R2_LEDGER_WINDOW];

        /* pairs with the NIC's write: seq is checked first, the rest is proved by the check */
        if (__atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) != seq || !take_one(tx, slot, seq)) {
            break;
        }
    }
    return (int)(seq - first);
}

/*
 * The words of a ring that acks go round (P14): the one behind the last that was taken, until
 * nothing newer is there. Wide turns look at the one behind it as well, and at one of the others:
 * words that never came are passed over.
 */
static void take_ack_words(struct ib_send *tx, struct ib_path *p, int wide)
{
    unsigned at = p->ack.at;
    uint64_t acked = __atomic_load_n(&p->mem.ring->ack[at], __ATOMIC_ACQUIRE);

    for (int n = 0; acked <= p->ack.alone && n < 2 * wide; n++) {
        at = (p->ack.at + (n ? ++p->ack.poll : 1u)) % IB_ACKS;
        acked = __atomic_load_n(&p->mem.ring->ack[at], __ATOMIC_ACQUIRE);
    }
    for (int n = 0; n < IB_ACKS && acked > p->ack.alone; n++) { /* a peer may go on for ever */
        p->ack.alone = acked;
        p->ack.at = (uint16_t)(at = (at + 1) % IB_ACKS);
        ib_send_acked(tx, acked);
        acked = __atomic_load_n(&p->mem.ring->ack[at], __ATOMIC_ACQUIRE);
    }
}

void ib_send_take_acks(struct ib_send *tx, struct ib_path *p, int wide)
{
    uint64_t acked;

    if (p->open != IB_OPEN_ONE) {
        take_ack_words(tx, p, wide);
        return;
    }
    acked = __atomic_load_n(&p->mem.ring->ack[0], __ATOMIC_ACQUIRE);
    if (ib_send_acked(tx, acked) == 0) {
        p->ack.alone = acked;
    }
}

void ib_send_poll_rings_wide(struct ib_send *tx, int acks)
{
    struct ib_conn *l = tx->conn;
    int took;

    if (tx->ring_hot->open && ib_send_has_cts(tx, tx->ring_hot)) {
        ib_send_take_cts(tx, tx->ring_hot);
    }
    do {
        took = 0;
        for (struct ib_path *p = l->path, *end = p + l->npaths; p < end; p++) {
            if (!p->open) {
                continue;
            }
            if (p != tx->ring_hot && ib_send_has_cts(tx, p) && ib_send_take_cts(tx, p)) {
                tx->ring_hot = p;
                took = 1; /* the one behind it may be in the ring of a path before it */
            }
            if (acks && (p->open != IB_OPEN_ONE || ib_send_has_ack(p))) {
                ib_send_take_acks(tx, p, 1);
            }
        }
    } while (took);
}
