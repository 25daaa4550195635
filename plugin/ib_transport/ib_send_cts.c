/* What R writes into the memory of S: CTS and acknowledgements (P8, P10, P12, P14). */
#include <stdatomic.h>
#include <string.h>

#include "ib_send_int.h"

int ib_send_acked(struct ib_send *tx, uint64_t acked)
{
    if (acked <= tx->sack) {
        return 0;
    }
    if (acked > tx->unmatched) {
        tx->count.bad_ack++;
        return -1;
    }
    for (uint64_t seq = tx->sack; seq < acked; seq++) {
        struct ib_smsg *m = IB_SEND_SLOT(tx, seq);

        if (m->seq == seq && m->nparts) {
            for (unsigned k = 0; k < m->nparts; k++) {
                struct ib_path *p = &tx->conn->path[m->part[k].path];

                if (!(m->unposted & (1u << k)) && p->inc == m->part[k].inc && p->parts_out > 0) {
                    p->parts_out--;
                }
            }
            m->unposted = 0;
        }
    }
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

static int take_one(struct ib_send *tx, const struct ib_ring *ring)
{
    const struct ib_cts *slot = &ring->entry[tx->cts_seen % R2_LEDGER_WINDOW];
    struct ib_cts e;

    /* pairs with the NIC's write: seq is checked first, the rest is proved by the check */
    if (__atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE) != tx->cts_seen) {
        return 0;
    }
    memcpy(&e, slot, sizeof(e));
    atomic_signal_fence(memory_order_seq_cst); /* what is checked is what was copied: the NIC may
                                                  write the slot again */
    if (!ib_cts_valid(&e, tx->cts_seen)) {
        return 0; /* untouched slot 0, or torn: read again later */
    }
    if (e.index != tx->due || (tx->due != 0 && e.n != tx->due_of)) {
        return out_of_group(tx);
    }
    tx->due = e.index + 1 < e.n ? (uint8_t)(e.index + 1) : 0;
    tx->due_of = e.n;
    tx->cts[tx->cts_seen % R2_LEDGER_WINDOW] = e;
    IB_RLX_ADD(tx->cts_seen, 1);
    acked_low(tx, e.acked);
    return 1;
}

/* The window bounds it: R is at most 256 ahead of what we acknowledged taking. */
int ib_send_take_cts(struct ib_send *tx, const struct ib_path *p)
{
    int n = 0;

    while (p->open && tx->cts_seen - tx->group < R2_LEDGER_WINDOW && take_one(tx, p->mem.ring)) {
        n++;
    }
    return n;
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

    ib_send_take_cts(tx, tx->ring_hot);
    do {
        took = 0;
        for (int i = 0; i < l->npaths && !took; i++) {
            struct ib_path *p = &l->path[i];

            if (p != tx->ring_hot && p->open && ib_send_has_cts(tx, p) && ib_send_take_cts(tx, p)) {
                tx->ring_hot = p;
                took = 1;
            }
        }
    } while (took);
    for (int i = 0; acks && i < l->npaths; i++) {
        struct ib_path *p = &l->path[i];

        if (p->open && (p->open != IB_OPEN_ONE || ib_send_has_ack(p))) {
            ib_send_take_acks(tx, p, 1);
        }
    }
}
