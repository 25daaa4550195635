/* What of a dead incarnation may still reach R (P35): S announces it, and R holds back the done of
 * nothing else (P17, P18). */
#include "fo_internal.h"

#include "base/r2_rules.h"

void fo_live_report(struct fo_conn *fc, int p, struct r2_parts *out)
{
    struct fo_path *fp = &fc->path[p];

    if (!r2_rule(R2_RULE_LIVE_FROZEN)) {
        ib_send_live(fc->tx, p, fc->conn->path[p].inc,
                     &fp->live); /* rule off: without what is posted again since */
    }
    *out = fp->live;
}

void fo_live_take(struct fo_conn *fc, int p, const struct r2_parts *live)
{
    struct fo_path *fp = &fc->path[p];

    if (!fc->rx || fp->live_known) {
        return;
    }
    fp->live_known = 1;
    if (fp->state == FO_FENCED) {
        ib_recv_quarantine_only(fc->rx, p, live, &fp->live);
    } else {
        fp->live = *live;
        ib_recv_live(fc->rx, p, &fp->live);
    }
}

int fo_live_quarantine(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];
    int held = 0;

    if (fp->soft) {
        ib_recv_quarantine(fc->rx, p);
        if (fp->peer_stopped || fc->bye.peer) {
            ib_recv_quarantine_peer_stopped(fc->rx, p);
        }
    } else {
        held = ib_recv_quarantine_gpu(fc->rx, p);
    }
    if (!fp->live_known) {
        fp->live.n = (uint16_t)r2_ledger_snapshot(&fc->rx->ledger, &fp->live.base, fp->live.mask,
                                                  R2_LEDGER_WINDOW);
    }
    ib_recv_live_over(fc->rx, p);
    return held;
}
