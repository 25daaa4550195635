/* Shared by ib_send.c, ib_send_post.c, ib_send_wc.c and ib_send_cts.c (data path), ib_send_plan.c,
 * ib_send_bounce.c and ib_retransmit.c (after a failure). Gate held. */
#ifndef IB_SEND_INT_H
#define IB_SEND_INT_H

#include "ib_send.h"

#define IB_SEND_SLOT(tx, seq) (&(tx)->msg[(seq) % R2_LEDGER_WINDOW])

/* --- completions: ib_send_wc.c --- */

#define IB_SEND_POLL_BATCH 8

/* @n completions of @p are in @wc, room for IB_SEND_POLL_BATCH; takes them and those behind them.
 */
void ib_send_take_wcs(struct ib_send *tx, struct ib_path *p, struct ibv_wc *wc, int n);
/* Takes all completions of @p, which is down, and accounts for them; of markers it notes whether
 * the NIC wrote them itself. 0, or -1 when polling failed and the path was reported. */
int ib_send_drain_path(struct ib_send *tx, struct ib_path *p);

/* Part @k is live on @p, as @wrs work requests. */
static inline void ib_send_part_posted(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                       struct ib_path *p, int wrs)
{
    struct ib_part *part = &m->part[k];

    part->path = p->index;
    part->inc = p->inc;
    part->wr_out = 1;
    m->wrs_out++;
    m->unposted &= (uint16_t) ~(1u << k);
    tx->polls |= (uint8_t)(1u << p->index);
    IB_RLX_ADD(p->sq.used, wrs);
    p->parts_out++;
    IB_RLX_ADD(p->count.wrs, wrs);
    IB_RLX_ADD(p->count.bytes, part->len);
    ib_conn_touch(tx->conn, p->index);
}

/* --- posting: ib_send_post.c --- */

/* Receive slots that only the oldest unacknowledged message may take: its retransmission must
 * always find room, or a window full of younger parts, none of which can be acknowledged before it,
 * would block it for ever (P2). */
#define RETRANSMIT_RESERVE R2_MAX_PARTS

/* Whether a part of @seq finds room on @p. */
static inline int ib_send_room(const struct ib_send *tx, const struct ib_path *p, uint64_t seq)
{
    uint32_t limit = tx->conn->rq_depth;

    if (seq != tx->sack) {
        limit -= RETRANSMIT_RESERVE;
    }
    return p->sq.used < p->cap.sq_depth && p->parts_out < limit;
}

/* The paths that @m can go over now. */
uint32_t ib_send_eligible(struct ib_send *tx, const struct ib_smsg *m);
/* Posts what of @m is unposted and finds room. Returns whether anything stays unposted. */
int ib_send_post_message(struct ib_send *tx, struct ib_smsg *m);
/* Posts what is unposted, lowest seq first: retransmitted parts before new ones (P1, P22). */
void ib_send_post_pending(struct ib_send *tx);

/* --- what R writes: ib_send_cts.c --- */

/* Whether the ring of @p, which is open, may have the next CTS. Relaxed: a hint; who takes it loads
 * with acquire. */
static inline int ib_send_has_cts(const struct ib_send *tx, const struct ib_path *p)
{
    return __atomic_load_n(&p->mem.ring->entry[tx->cts_seen % R2_LEDGER_WINDOW].seq,
                           __ATOMIC_RELAXED) == tx->cts_seen;
}

/* Whether the next word has an acknowledgement that is newer than those taken here. A hint, too. */
static inline int ib_send_has_ack(const struct ib_path *p)
{
    return __atomic_load_n(&p->mem.ring->ack[p->ack.at], __ATOMIC_RELAXED) > p->ack.alone;
}

/* Takes all CTS that are in the ring of @p. Returns how many. */
int ib_send_take_cts(struct ib_send *tx, const struct ib_path *p);
/* Takes the acknowledgements of @p, which is open. @wide: also of words further on. */
void ib_send_take_acks(struct ib_send *tx, struct ib_path *p, int wide);
/* Takes what is there on all paths: CTS, and with @acks acknowledgements (P10, P14). */
void ib_send_poll_rings_wide(struct ib_send *tx, int acks);

/* --- by way of a bounce buffer: ib_send_bounce.c --- */

/* Whether the parts of @m can go over path @p that way now; takes a lane for it. */
int ib_send_bounce_takes(struct ib_send *tx, const struct ib_smsg *m, int p);
/* Begins part @k, which path @p takes. 0; 1: no room now; -1: the path is down now. */
int ib_send_bounce_begin(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p);
/* Posts what has been copied, gives lanes back; sets and clears IB_SEND_BOUNCE. */
void ib_send_bounce_turn(struct ib_send *tx);
/* Whether part @k of @seq is in the lane of (@p, @inc) and not posted. */
int ib_send_bounce_waits(const struct ib_send *tx, int p, uint32_t inc, uint64_t seq, unsigned k);
/* A bounced work request of @p is accounted for. */
void ib_send_bounce_sent(struct ib_send *tx, struct ib_path *p);
/* The plan or what is up has changed: nothing more is posted where a path went down. */
void ib_send_bounce_plan(struct ib_send *tx);
/* As ib_send_incarnation_closed(), ib_send_soft_over(). */
void ib_send_bounce_incarnation_closed(struct ib_send *tx, int p, uint32_t inc, int soft);
void ib_send_bounce_soft_over(struct ib_send *tx, int p);

#endif
