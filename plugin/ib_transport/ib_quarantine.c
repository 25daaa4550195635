/* Receives that a dead incarnation may still write into are not reported done (P17, P18), and only
 * those (P35). */
#include <stdbool.h>

#include "ib_recv.h"

#include "base/r2_rules.h"

#define SLOT(rx, s) (&(rx)->msg[(s) % R2_LEDGER_WINDOW])

void ib_recv_live(struct ib_recv *rx, int p, const struct r2_parts *live)
{
    rx->live[p] = live;
    rx->conn->path[p].plain = IB_IMM_NONE; /* every arrival takes the turn that compares it */
}

void ib_recv_live_over(struct ib_recv *rx, int p)
{
    rx->live[p] = NULL;
}

/* At the close of (p): whether its incarnation may still bring a part of @seq. */
static bool may_come(const struct ib_recv *rx, int p, uint64_t seq)
{
    unsigned there = rx->ledger.entry[seq % R2_LEDGER_WINDOW].mask;

    if (r2_ledger_complete(&rx->ledger, seq)) {
        return 0;
    }
    return rx->live[p] == NULL || (r2_parts_of(rx->live[p], seq) & ~there) != 0;
}

void ib_recv_quarantine(struct ib_recv *rx, int p)
{
    if (!r2_rule(R2_RULE_QUARANTINE)) {
        return;
    }
    rx->quarantining |= (uint8_t)(1u << p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        if (may_come(rx, p, seq)) {
            SLOT(rx, seq)->quarantined_by |= (uint8_t)(1u << p);
        }
    }
}

void ib_recv_quarantine_only(struct ib_recv *rx, int p, const struct r2_parts *live,
                             const struct r2_parts *had)
{
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        unsigned there = r2_parts_of(had, seq);

        if (!r2_rule(R2_RULE_LIVE_LEDGER)) { /* rule off: with copies that came since */
            there = rx->ledger.entry[seq % R2_LEDGER_WINDOW].mask;
        }
        if ((r2_parts_of(live, seq) & ~there) == 0) {
            SLOT(rx, seq)->quarantined_by &= (uint8_t) ~(1u << p);
        }
    }
}

int ib_recv_quarantined(const struct ib_recv *rx, int p)
{
    int n = 0;

    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        n += (SLOT(rx, seq)->quarantined_by >> p) & 1;
    }
    return n;
}

bool ib_recv_is_kept(const struct ib_recv *rx, int p)
{
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        if ((SLOT(rx, seq)->quarantined_by >> p & 1) && r2_ledger_complete(&rx->ledger, seq)) {
            return 1;
        }
    }
    return 0;
}

void ib_recv_quarantine_peer_stopped(struct ib_recv *rx, int p)
{
    rx->quarantining &= (uint8_t) ~(1u << p);
}

void ib_recv_quarantine_end(struct ib_recv *rx, int p)
{
    ib_recv_quarantine_peer_stopped(rx, p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        SLOT(rx, seq)->quarantined_by &= (uint8_t) ~(1u << p);
    }
}

int ib_recv_quarantine_gpu(struct ib_recv *rx, int p)
{
    int n = 0;

    for (uint64_t seq = rx->ledger.rdone;
         rx->flush && r2_rule(R2_RULE_QUARANTINE) && seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = SLOT(rx, seq);

        if (m->gpu && may_come(rx, p, seq)) {
            m->quarantined_by |= (uint8_t)(1u << p);
            n++;
        }
    }
    return n;
}

int ib_recv_quarantine_gpu_only(struct ib_recv *rx, int p)
{
    int n = 0;

    ib_recv_quarantine_peer_stopped(rx, p);
    for (uint64_t seq = rx->ledger.rdone; seq < rx->ledger.rpost; seq++) {
        struct ib_rmsg *m = SLOT(rx, seq);

        if (!m->gpu) {
            m->quarantined_by &= (uint8_t) ~(1u << p);
        }
        n += (m->quarantined_by >> p) & 1;
    }
    return n;
}
