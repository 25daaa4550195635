/* The sender's half when an incarnation of a path is over: accounting of its work requests, what
 * the receiver has, what is posted again. */
#include "ib_send_int.h"

#include "base/r2_rules.h"

int ib_send_drain(struct ib_send *tx, int p)
{
    return ib_send_drain_path(tx, &tx->conn->path[p]);
}

/* Calls for every busy message of the window. */
#define FOR_EACH_BUSY(tx, m)                                                                       \
    for (unsigned i_ = 0; i_ < R2_LEDGER_WINDOW; i_++)                                             \
        if ((m = &(tx)->msg[i_])->busy)

/*
 * ... and for every one that no acknowledgement covers, also where its done was reported
 * (NCCL_R2_ACK=cqe): on an idle connection none is checked. A slot that was never used has no
 * parts.
 */
#define FOR_EACH_OPEN(tx, m)                                                                       \
    for (uint64_t s_ = (tx)->sack; s_ < (tx)->sposted; s_++)                                       \
        if ((m = &(tx)->msg[s_ % R2_LEDGER_WINDOW])->seq == s_)

static void keep_in_mind(struct ib_send *tx, struct ib_smsg *m, int p)
{
    m->soft |= (uint8_t)(1u << p);
    tx->soft |= (uint8_t)(1u << p);
}

void ib_send_incarnation_closed(struct ib_send *tx, int p, uint32_t inc, enum ib_send_close how)
{
    struct ib_smsg *m;

    ib_send_bounce_incarnation_closed(tx, p, inc, how != IB_SEND_CLOSE_HARD);
    if (tx->conn->path[p].sq.used == 0 && !tx->conn->path[p].failed &&
        how != IB_SEND_CLOSE_FLUSHED) {
        return; /* every work request is accounted for */
    }
    FOR_EACH_BUSY(tx, m)
    {
        for (unsigned k = 0; k < m->nparts; k++) {
            struct ib_part *part = &m->part[k];

            if (part->path != p || part->inc != inc) {
                continue;
            }
            if (how == IB_SEND_CLOSE_FLUSHED || (how == IB_SEND_CLOSE_SOFT && part->wr_out)) {
                keep_in_mind(tx, m, p);
            }
            m->wrs_out = (uint8_t)(m->wrs_out - (part->wr_out != 0));
            part->wr_out = 0;
        }
    }
    IB_RLX_SET(tx->conn->path[p].sq.used, 0);
    IB_RLX_SET(tx->conn->path[p].sq.bulk, 0);
    IB_RLX_SET(tx->conn->path[p].sq.tails, 0);
    IB_RLX_SET(tx->conn->path[p].count.bytes_done, tx->conn->path[p].count.bytes);
}

void ib_send_soft_over(struct ib_send *tx, int p)
{
    struct ib_smsg *m;

    ib_send_bounce_soft_over(tx, p);
    if (!((tx->soft >> p) & 1)) {
        return;
    }
    tx->soft &= (uint8_t) ~(1u << p);
    FOR_EACH_BUSY(tx, m)
    {
        m->soft &= (uint8_t) ~(1u << p);
    }
}

int ib_send_live_parts(const struct ib_send *tx, int p, uint32_t inc)
{
    const struct ib_smsg *m;
    int n = 0;

    FOR_EACH_OPEN(tx, m)
    {
        for (unsigned k = 0; k < m->nparts; k++) {
            if (!((m->unposted | m->ledger) & (1u << k)) && m->part[k].path == p &&
                m->part[k].inc == inc) {
                n++;
            }
        }
    }
    return n;
}

static unsigned live_mask(const struct ib_send *tx, const struct ib_smsg *m, int p, uint32_t inc)
{
    unsigned mask = 0;

    for (unsigned k = 0; k < m->nparts; k++) {
        if (!((m->unposted | m->ledger) & (1u << k)) && m->part[k].path == p &&
            m->part[k].inc == inc && !ib_send_bounce_waits(tx, p, inc, m->seq, k)) {
            mask |= 1u << k;
        }
    }
    return mask;
}

void ib_send_live(const struct ib_send *tx, int p, uint32_t inc, struct r2_parts *out)
{
    const struct ib_smsg *m;

    out->base = tx->sack;
    out->n = 0;
    if (!r2_rule(R2_RULE_LIVE_PARTS)) {
        return; /* rule off: nothing is ever live */
    }
    FOR_EACH_OPEN(tx, m)
    {
        unsigned mask = live_mask(tx, m, p, inc);

        if (mask == 0 || m->seq - out->base >= R2_LEDGER_WINDOW) {
            continue; /* R opens nothing beyond the window of what it has acknowledged (P8) */
        }
        while (out->n < m->seq - out->base) {
            out->mask[out->n++] = 0;
        }
        out->mask[out->n++] = (uint16_t)mask;
    }
}

int ib_send_reaches_all(const struct ib_send *tx, uint32_t paths)
{
    uint64_t first = tx->cts_seen > R2_LEDGER_WINDOW ? tx->cts_seen - R2_LEDGER_WINDOW : 0;

    for (uint64_t seq = first; seq < tx->cts_seen; seq++) {
        const struct ib_cts *e = &tx->cts[seq % R2_LEDGER_WINDOW];
        int reached = e->seq != seq; /* R has posted seq + 256, whose entry is not whole yet: with
                                        this one it is done */

        for (uint32_t m = paths; m; m &= m - 1) {
            reached |= e->rkey[__builtin_ctz(m)] != 0;
        }
        if (!reached) {
            return 0;
        }
    }
    return 1;
}

int ib_send_lost_parts(const struct ib_send *tx, int p, uint32_t inc)
{
    const struct ib_smsg *m;
    int n = 0;

    FOR_EACH_OPEN(tx, m)
    {
        for (unsigned k = 0; k < m->nparts && !m->busy; k++) {
            n += !(m->ledger & (1u << k)) && m->part[k].path == p && m->part[k].inc == inc;
        }
    }
    return n;
}

uint16_t ib_send_oldest_live(const struct ib_send *tx, int p, uint32_t inc, uint64_t *seq)
{
    const struct ib_smsg *m;

    FOR_EACH_OPEN(tx, m)
    {
        unsigned mask = 0;

        for (unsigned k = 0; k < m->nparts; k++) {
            int there = !m->part[k].wr_out && m->part[k].path == p && m->part[k].inc == inc;

            mask |= (unsigned)there << k;
        }
        mask &= m->arrived & ~(unsigned)(m->unposted | m->ledger);
        if (mask) {
            *seq = m->seq;
            return (uint16_t)mask;
        }
    }
    return 0;
}

void ib_send_ledger(struct ib_send *tx, uint64_t base, const uint16_t *masks, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct ib_smsg *m = IB_SEND_SLOT(tx, base + i);

        if (m->seq == base + i) {
            m->ledger |= (uint16_t)(masks[i] & ((1u << m->nparts) - 1));
            m->unposted &= (uint16_t)~m->ledger;
        }
    }
}

/* P4 switched off: a retransmission cuts the message anew at other places. */
static void recut(struct ib_send *tx, struct ib_smsg *m)
{
    uint32_t moved = m->nparts > 1 ? (m->part[0].len / 2) & ~(uint32_t)(R2_STRIPE_ALIGN - 1) : 0;

    m->part[0].len -= moved;
    m->part[1].off -= moved;
    m->part[1].len += moved;
}

static int unpost_message(struct ib_send *tx, struct ib_smsg *m, int p, uint32_t inc)
{
    int n = 0;

    for (unsigned k = 0; k < m->nparts; k++) {
        struct ib_part *part = &m->part[k];
        uint16_t bit = (uint16_t)(1u << k);
        int mine = part->path == p && part->inc == inc;

        if (!mine && !r2_rule(R2_RULE_RETRANSMIT)) {
            mine = 1; /* rule off: whatever the ledger lacks is retransmitted */
        }
        if (!mine || (m->unposted & bit) || (r2_rule(R2_RULE_LEDGER) && (m->ledger & bit))) {
            continue;
        }
        m->unposted |= bit;
        m->arrived &= (uint16_t)~bit;
        tx->count.retransmitted_parts++;
        tx->count.retransmitted_bytes += part->len;
        n++;
    }
    if (n && !r2_rule(R2_RULE_FROZEN_CUT) && m->nparts > 1) {
        recut(tx, m);
    }
    return n;
}

int ib_send_unpost(struct ib_send *tx, int p, uint32_t inc)
{
    struct ib_smsg *m;
    int n = 0;

    if (tx->sack == tx->sposted && r2_rule(R2_RULE_LEDGER)) {
        return 0; /* idle */
    }
    FOR_EACH_BUSY(tx, m)
    {
        if (m->seq >= tx->sack || !r2_rule(R2_RULE_LEDGER)) {
            n += unpost_message(tx, m, p, inc);
        }
    }
    if (n) {
        tx->pending |= IB_SEND_UNPOSTED;
    }
    return n;
}
