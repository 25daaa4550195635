#include "ib_ack_flush.h"

#include <errno.h>

#include "base/r2_rules.h"

#define LIMIT_FENCES 10 /* as for a read of a flush: the path's NIC reads no more */

static struct ib_unread_part *slot(struct ib_unread *u, uint16_t n)
{
    return &u->part[n % R2_LEDGER_WINDOW];
}

enum r2_ledger_result ib_ack_flush_arrival(struct ib_recv *rx, struct ib_path *p, struct ib_imm imm,
                                           uint32_t bytes, int *wait)
{
    struct ib_unread *u = &rx->flush->ack->path[p->index];
    uint64_t seq = r2_ledger_seq(&rx->ledger, imm.seq);
    enum r2_ledger_result r;

    *wait = 0;
    if (seq == UINT64_MAX || !rx->msg[seq % R2_LEDGER_WINDOW].gpu) {
        return R2_LEDGER_NEW; /* the ledger says what is wrong */
    }
    if (rx->flush->none >> p->index & 1) {
        return R2_LEDGER_NEW; /* memory of the host, whose key went out while there was no lane at
                                 all */
    }
    if ((uint16_t)(u->come - u->taken) >= R2_LEDGER_WINDOW) {
        return R2_LEDGER_WINDOW_ERR; /* S has more parts out than a receive queue holds (P2) */
    }
    r = r2_ledger_see(&rx->ledger, imm.seq, imm.k, imm.nparts);
    if (r != R2_LEDGER_NEW) {
        return r;
    }
    if (bytes == 0) { /* nothing to be read, perhaps not even a registered byte */
        r2_ledger_unsee(&rx->ledger, seq, imm.k);
        return R2_LEDGER_NEW;
    }
    *wait = 1;
    if (u->come == u->taken) {
        u->since = 0;
    }
    u->inc = p->inc;
    *slot(u, u->come++) =
        (struct ib_unread_part){.seq = seq, .bytes = bytes, .k = imm.k, .nparts = imm.nparts};
    rx->flush->ack->parts++;
    rx->unread++;
    rx->unread_pending = 1;
    return R2_LEDGER_NEW;
}

static void post_reads(struct ib_recv *rx, int p)
{
    struct ib_unread *u = &rx->flush->ack->path[p];

    while (u->posted != u->come) {
        const struct ib_rmsg *m = &rx->msg[slot(u, u->posted)->seq % R2_LEDGER_WINDOW];

        if (ib_flush_read(rx->flush, p, m->data, m->mr,
                          ib_wr_id(IB_WR_ACK_FLUSH, (unsigned)p, u->inc)) != 0) {
            return;
        }
        u->posted++;
    }
}

void ib_ack_flush_step(struct ib_recv *rx)
{
    struct ib_conn *l = rx->conn;
    uint64_t now = ib_conn_now(l), limit = (uint64_t)l->cfg->t_fence_ms * LIMIT_FENCES * 1000000;

    ib_flush_poll(rx->flush, now);
    for (int p = 0; p < l->npaths; p++) {
        struct ib_unread *u = &rx->flush->ack->path[p];

        if (u->come == u->taken) {
            continue;
        }
        u->since = u->since ? u->since : now;
        if (!rx->posting_stopped) {
            post_reads(rx, p);
        }
        if (ib_conn_up(l, p) && r2_elapsed(now, u->since) > limit) {
            ib_conn_call_fault(l, p, ETIMEDOUT);
        }
    }
}

void ib_ack_flush_back(struct ib_flush *f, int p, uint32_t inc, uint64_t now)
{
    struct ib_unread *u = &f->ack->path[p];

    if (inc == u->inc && u->back != u->posted) {
        u->back++;
        u->since = now;
    }
}

void ib_ack_flush_broken(struct ib_flush *f, int lane)
{
    for (int p = 0; f->ack && p < f->conn->npaths; p++) {
        if (f->lane_of[p] == lane) {
            f->ack->path[p].posted = f->ack->path[p].back;
        }
    }
}

int ib_ack_flush_next(struct ib_recv *rx, int *path, struct ib_unread_part *part)
{
    for (int p = 0; p < rx->conn->npaths; p++) {
        struct ib_unread *u = &rx->flush->ack->path[p];

        if (u->taken != u->back) {
            *path = p;
            *part = *slot(u, u->taken++);
            rx->unread--;
            return 1;
        }
    }
    return 0;
}

void ib_ack_flush_closed(struct ib_recv *rx, int p)
{
    struct ib_unread *u;

    if (!rx->flush || !rx->flush->ack || !r2_rule(R2_RULE_UNREAD)) {
        return;
    }
    u = &rx->flush->ack->path[p];
    for (; u->taken != u->come; u->taken++) {
        r2_ledger_unsee(&rx->ledger, slot(u, u->taken)->seq, slot(u, u->taken)->k);
        rx->flush->ack->dropped++;
        rx->unread--;
    }
    u->back = u->posted = u->come;
    u->inc = 0; /* no incarnation has this number: reads that are out still count for nothing */
}
