/* What the peer's records of one incarnation, and of its end of the connection, change here. */
#include "fo_internal.h"

#include <stdbool.h>

#include "base/r2_rules.h"

static int same_incarnation(const struct fo_conn *fc, int p, uint32_t inc)
{
    int same = p < fc->conn->npaths &&
               (fc->conn->path[p].inc == inc || !r2_rule(R2_RULE_FULL_INCARNATION));

    return same && fc->path[p].state != FO_NONE;
}

/* How the peer's fence ended. It only ever turns from soft to hard: an old record that comes late
 * must not take that back. */
static void peer_fence(struct fo_path *fp, int known, unsigned flags)
{
    int soft = (flags & FO_FLAG_SOFT) != 0;

    fp->peer_soft = (uint8_t)(known ? fp->peer_soft && soft : soft);
}

void fo_on_down(struct fo_conn *fc, const struct fo_down *m, uint64_t now)
{
    struct ib_fault_info info = {.fault = IB_FAULT_PEER};
    struct fo_path *fp = &fc->path[m->path];

    if (!same_incarnation(fc, m->path, m->inc)) {
        return; /* another incarnation: not answered */
    }
    if (m->reason == IB_FAULT_PORT || m->reason == IB_FAULT_DEVICE ||
        m->reason == IB_FAULT_REHEARSAL) {
        fp->peer_reason = m->reason;
    }
    fp->tail_lost |= m->reason == IB_FAULT_TAIL || m->reason == IB_FAULT_WAY;
    fo_peer_stopped(fc, m->path, now);
    fo_fault(fc, m->path, &info);
    fo_live_take(fc, m->path, &m->live);
    if (fc->rx && fp->state == FO_FENCED && !(m->flags & FO_FLAG_HEARD)) {
        fp->again = 1; /* S asks (again): it has not taken up our answer */
        fp->send_at = now;
    }
    fc->ops.kick(fc->ops.arg);
}

void fo_on_fenced(struct fo_conn *fc, const struct fo_fenced *m, uint64_t now)
{
    struct ib_fault_info info = {.fault = IB_FAULT_PEER};
    struct fo_path *fp = &fc->path[m->path];

    if (!fc->tx || !same_incarnation(fc, m->path, m->inc)) {
        return;
    }
    fo_peer_stopped(fc, m->path, now);
    fo_fault(fc, m->path, &info);
    peer_fence(fp, fp->snapshot, m->flags);
    if (!fp->snapshot) {
        *fp->snap = *m;
        fp->snapshot = 1;
    }
    if (fp->state == FO_FENCED) {
        fo_apply_snapshot(fc, m->path);
        if (!fp->peer_soft) {
            ib_send_soft_over(fc->tx, m->path);
        }
        fo_send_settled(fc, m->path);
    } else if (fp->state == FO_DOWN) {
        fo_send_down(fc,
                     m->path); /* what R need not quarantine it hears before our fence ends (P35) */
    }
    fc->ops.kick(fc->ops.arg);
}

void fo_on_settled(struct fo_conn *fc, const struct fo_settled *m, uint64_t now)
{
    struct fo_path *fp = &fc->path[m->path];

    if (!fc->rx || !same_incarnation(fc, m->path, m->inc) || fp->state != FO_FENCED) {
        return;
    }
    fo_peer_stopped(fc, m->path, now);
    fo_live_take(fc, m->path, &m->live);
    peer_fence(fp, fp->settled, m->flags);
    if (fp->soft && !fp->peer_soft && fo_stop_bounds(fc, m->path) &&
        fp->quarantine_until == UINT64_MAX) {
        fp->quarantine_until = now + R2_MS(fo_cfg(fc)->t_packet_ms); /* P18 (b) */
    }
    fp->settled = 1;
    fc->ops.kick(fc->ops.arg);
}

void fo_on_bye(struct fo_conn *fc, const struct fo_fenced *m, uint64_t now)
{
    int first = fc->bye.peer == FO_BYE_NONE;
    int abort = (m->flags & FO_FLAG_ABORT) != 0;

    fc->bye.peer = abort ? FO_BYE_ABORT : FO_BYE_ORDERLY;
    fc->bye.code = (uint8_t)(abort && m->inc < PROBE_CODES ? m->inc : PROBE_CODE_NONE);
    if (first) {
        fc->bye.at = now;
    }
    if (fc->tx) {
        ib_send_acked(fc->tx, m->acked);
        ib_send_ledger(fc->tx, m->base, m->mask, m->n);
        if (fc->tx->sposted > fc->tx->sack && (abort || fc->tx->unmatched > m->acked)) {
            fo_fail_peer(fc, fc->bye.at, "the receiver closed its end before it had everything");
        }
        for (int p = 0; p < fc->conn->npaths; p++) {
            ib_send_soft_over(
                fc->tx,
                p); /* R has what it will ever take: nothing of ours can reach it (P19, P25) */
        }
    } else {
        fc->bye.total = abort ? 0 : m->acked;
        for (int p = 0; p < fc->conn->npaths; p++) {
            if (fc->path[p].quarantine_until == UINT64_MAX) {
                fo_sender_gone(fc, p, now);
            }
        }
        fo_check_bye(fc, 0);
    }
    fc->ops.kick(fc->ops.arg);
}

void fo_check_bye(struct fo_conn *fc, int more)
{
    const struct r2_ledger *g = &fc->rx->ledger;

    if (fc->bye.peer != FO_BYE_NONE && g->acked < g->rpost + (uint64_t)more &&
        g->acked >= fc->bye.total) {
        fo_fail_peer(fc, fc->bye.at,
                     fc->bye.peer == FO_BYE_ABORT ? "the sender aborted"
                                                  : "the sender closed its end");
    }
}

void fo_on_gone(struct fo_conn *fc, const char *what)
{
    if (fc->bye.peer || fc->closing) {
        return;
    }
    fo_fail_peer(fc, ib_conn_now(fc->conn), what);
    fc->ops.kick(fc->ops.arg);
}
