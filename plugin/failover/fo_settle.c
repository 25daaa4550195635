/* How one incarnation is settled: fences and quarantines step by step, what is said to the peer
 * until it answers, what the peer announces. */
#include "fo_internal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "ib_transport/ib_ack_flush.h"

#define MAX_DOUBLING 20 /* the repetition interval grows up to 20 x T_repeat: 5 ms -> 100 ms */

/* --- closing an incarnation --- */

/* S: our fence has ended and R's ledger is here: what the ledger lacks of this incarnation is
 * posted again (P21). */
void fo_apply_snapshot(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];
    const struct fo_fenced *s = fp->snap;
    int n;

    if (fp->settled || !fp->snapshot || fp->state != FO_FENCED) {
        return;
    }
    ib_send_acked(fc->tx, s->acked);
    if (r2_rule(R2_RULE_LEDGER)) {
        ib_send_ledger(fc->tx, s->base, s->mask, s->n);
    }
    n = ib_send_unpost(fc->tx, p, fc->conn->path[p].inc);
    fp->settled = 1;
    if (fo_cfg(fc)->ack == R2_ACK_CQE && ib_send_lost_parts(fc->tx, p, fc->conn->path[p].inc) > 0) {
        fp->lost = 1;
        fo_fail(
            fc, R2_ERR_COMM,
            "what was sent over path %d was acknowledged by a NIC that lost it (NCCL_R2_ACK=cqe)",
            p);
    }
    if (!fp->peer_soft) {
        ib_send_soft_over(fc->tx, p); /* P19: R's hard fence releases our buffers */
    }
    if (n && !fc->closing) {
        R2_INFO_MANY(R2_LOG_SETTLED, "%s path %d life %u settled: %d parts to retransmit",
                     fc->label, p, fc->conn->path[p].inc, n);
    }
    ib_send_progress(fc->tx);
}

/* What R waits for does not come, whenever NCCL closes here: R ends now. */
static void send_lost(struct fo_conn *fc)
{
    union fo_body b;

    memset(&b.fenced, 0, offsetof(struct fo_fenced, mask));
    fo_snapshot(fc, &b.fenced);
    b.fenced.flags = FO_FLAG_ABORT;
    fc->ops.emit(fc->ops.arg, FO_MSG_BYE, &b);
}

/*
 * What we say of our fence: soft until the device has stopped, also where time has ended our own
 * quarantine, since the peer's is another one (P18 b, c; P19).
 */
static uint8_t fence_flag(const struct fo_path *fp)
{
    return fp->soft || fp->fence.stage == IB_FENCE_SOFT ? FO_FLAG_SOFT : 0;
}

void fo_send_settled(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];
    union fo_body b = {.settled = {.dst = fc->peer,
                                   .src = fc->self,
                                   .inc = fc->conn->path[p].inc,
                                   .path = (uint8_t)p,
                                   .flags = fence_flag(fp)}};

    fo_live_report(fc, p, &b.settled.live);
    fc->ops.emit(fc->ops.arg, FO_MSG_SETTLED, &b);
    if (fp->lost) {
        send_lost(fc); /* with each SETTLED, which answers until R has heard */
    }
}

/* A removed device starts no DMA any more; what had left it lands within T_pcie. */
static void removal_bounds_quarantine(struct fo_conn *fc, int p, uint64_t now)
{
    uint64_t until = now + R2_MS(fo_cfg(fc)->t_pcie_ms);

    if (atomic_load_explicit(&fc->path[p].fence.job_gone, memory_order_acquire) &&
        fc->path[p].quarantine_until > until) {
        fc->path[p].quarantine_until = until;
    }
}

static enum ib_send_close how_closed(const struct fo_conn *fc, int p)
{
    if (!fc->path[p].soft || fc->bye.peer) {
        return IB_SEND_CLOSE_HARD;
    }
    return fc->path[p].fence.flushed ? IB_SEND_CLOSE_FLUSHED : IB_SEND_CLOSE_SOFT;
}

void fo_sender_gone(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];

    fo_peer_stopped(fc, p, now);
    if (fc->bye.peer == FO_BYE_ORDERLY && fo_stop_bounds(fc, p)) {
        fp->quarantine_until = now + R2_MS(fo_cfg(fc)->t_packet_ms);
    } else if (!fp->settled) {
        fp->settled = fp->peer_soft = 1;
    }
}

/* Our fence has just closed the incarnation. */
static void on_fence_done(struct fo_conn *fc, int p, enum ib_fence_stage stage, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];
    int held;

    fp->soft = stage == IB_FENCE_SOFT ||
               (fc->rx && atomic_load_explicit(&fp->fence.job_gone, memory_order_acquire));
    if (!fo_move(fc, p, FO_FENCED, ib_fence_stage_name(stage))) {
        return;
    }
    fp->send_at = now;
    fp->interval = R2_MS(fo_cfg(fc)->t_repeat_ms);
    if (fc->tx) {
        ib_send_incarnation_closed(fc->tx, p, fc->conn->path[p].inc, how_closed(fc, p));
        if (fp->snapshot) {
            fo_apply_snapshot(fc, p);
            fo_send_settled(fc, p);
        }
        return;
    }
    ib_ack_flush_closed(fc->rx, p);
    held = fo_live_quarantine(fc, p);
    if (fp->soft) {
        fp->quarantine_until = UINT64_MAX;
        if (fc->bye.peer) {
            fo_sender_gone(fc, p, now);
        }
        removal_bounds_quarantine(fc, p, now);
    } else if (held) {
        fp->quarantine_until = now + R2_MS(fo_cfg(fc)->t_pcie_ms); /* P17 */
    }
}

/* A soft quarantine; for memory of a GPU the time of PCIe follows (P17). */
static void end_quarantine(struct fo_conn *fc, int p, const char *how)
{
    struct fo_path *fp = &fc->path[p];
    int pcie = fc->rx && fp->soft && ib_recv_quarantine_gpu_only(fc->rx, p) > 0;

    fp->soft = 0;
    fp->quarantine_until = pcie ? ib_conn_now(fc->conn) + R2_MS(fo_cfg(fc)->t_pcie_ms) : 0;
    if (fc->tx) {
        ib_send_soft_over(fc->tx, p);
    } else if (!pcie) {
        ib_recv_quarantine_end(fc->rx, p);
    }
    R2_INFO("%s path %d life %u: quarantine ends, %s", fc->label, p, fc->conn->path[p].inc, how);
}

/* Whether anything waits for the end of the quarantine of (p): else it ends unnoticed. */
static bool is_quarantined(const struct fo_conn *fc, int p)
{
    return fc->rx ? ib_recv_quarantined(fc->rx, p) > 0 : (fc->tx->soft >> p) & 1;
}

/* A soft fence: proof, or time in place of it (P18, P19). Returns its next deadline. */
static uint64_t step_soft(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];
    /* R counts from the word that S stopped: until then S may have gone on posting, however long
     * ago our own incarnation ended */
    uint64_t dead = (fc->rx && fp->stopped_at > fp->down_since ? fp->stopped_at : fp->down_since) +
                    r2_config_dead_ns(fo_cfg(fc));

    if (ib_fence_step(&fp->fence, fc->workers, now, now) == IB_FENCE_HARD &&
        (fc->tx || !atomic_load_explicit(&fp->fence.job_gone, memory_order_acquire))) {
        end_quarantine(fc, p, "the queue pair is quiet after all");
        if (fc->tx && fp->settled && !fc->closing && !fc->bye.peer) {
            fo_send_settled(fc, p); /* R's quarantine waits for a hard fence of ours */
        }
        return UINT64_MAX;
    }
    if (fc->rx) {
        removal_bounds_quarantine(fc, p, now);
    }
    if (fc->rx && fp->quarantine_until != UINT64_MAX && now >= fp->quarantine_until) {
        end_quarantine(fc, p, "the time of what was under way is over");
        return UINT64_MAX;
    }
    if (now >= dead && fp->settled && (fp->peer_soft || (fc->rx && !fo_stop_bounds(fc, p)))) {
        if (is_quarantined(fc, p)) {
            R2_WARN("%s path %d: %s; released after NCCL_R2_T_DEAD", fc->label, p,
                    fp->peer_soft ? "neither end could fence"
                                  : "a copy to memory of a GPU did not end");
        }
        end_quarantine(fc, p, "time alone");
        return UINT64_MAX;
    }
    return now < dead ? r2_earlier(dead, ib_fence_deadline(&fp->fence, now))
                      : ib_fence_deadline(&fp->fence, now);
}

/* The quarantine is over, the queue pair still not known to be quiet: as long as it is not, the
 * path cannot return (P23). */
static uint64_t step_late(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];
    enum ib_nic_state nic = ib_nic_state_get(&fc->conn->nics->nic[fc->conn->path[p].nic]);

    if (fo_cfg(fc)->failback == R2_FAILBACK_NEVER || nic == IB_NIC_FATAL || nic == IB_NIC_GONE ||
        fc->closing || fc->bye.peer) {
        return UINT64_MAX; /* nothing returns */
    }
    ib_fence_step(&fp->fence, fc->workers, now, now);
    return ib_fence_deadline(&fp->fence, now);
}

/* --- telling the peer --- */

void fo_send_down(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];
    const struct ib_path *path = &fc->conn->path[p];
    union fo_body b = {.down = {.dst = fc->peer,
                                .src = fc->self,
                                .inc = path->inc,
                                .path = (uint8_t)p,
                                .reason = (uint8_t)fp->why.fault,
                                .wc_status = (uint8_t)fp->why.wc_status}};

    if (fc->tx && ib_send_live_parts(fc->tx, p, path->inc) > 0) {
        b.down.flags |= FO_FLAG_WANTED;
    }
    if (fc->tx) {
        fo_live_report(fc, p, &b.down.live);
        b.down.flags |= fp->snapshot ? FO_FLAG_HEARD : 0;
    }
    if (fp->state == FO_FENCED) {
        b.down.flags |= (uint8_t)(FO_FLAG_FENCED | fence_flag(fp));
    }
    fc->ops.emit(fc->ops.arg, FO_MSG_DOWN, &b);
}

void fo_snapshot(const struct fo_conn *fc, struct fo_fenced *out)
{
    out->dst = fc->peer;
    out->src = fc->self;
    if (fc->rx) {
        out->acked = fc->rx->ledger.acked;
        out->n =
            (uint16_t)r2_ledger_snapshot(&fc->rx->ledger, &out->base, out->mask, R2_LEDGER_WINDOW);
    } else {
        out->acked =
            fc->tx->unmatched; /* a group that is matched in part ends with its first gap */
    }
}

static void send_fenced(struct fo_conn *fc, int p)
{
    union fo_body b;

    memset(&b.fenced, 0, offsetof(struct fo_fenced, mask));
    fo_snapshot(fc, &b.fenced);
    b.fenced.inc = fc->conn->path[p].inc;
    b.fenced.path = (uint8_t)p;
    b.fenced.flags = fence_flag(&fc->path[p]);
    fc->ops.emit(fc->ops.arg, FO_MSG_FENCED, &b);
}

/* What of (p) the peer has not answered yet. */
static int unanswered(const struct fo_conn *fc, int p)
{
    const struct fo_path *fp = &fc->path[p];

    if (fp->state != FO_DOWN && fp->state != FO_FENCED) {
        return 0;
    }
    if (fc->tx) {
        return !fp->snapshot;
    }
    return fp->state == FO_FENCED ? fp->again || !fp->settled : !fp->peer_stopped;
}

static uint64_t notify(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];

    if (fc->closing || fc->bye.peer || !unanswered(fc, p)) {
        return UINT64_MAX;
    }
    if (fc->posting_stopped && fp->why.fault == IB_FAULT_CLOSE && !fp->peer_stopped) {
        return UINT64_MAX; /* an abort: close follows, and BYE with it (P27) */
    }
    if (now >= fp->send_at) {
        if (fc->rx && fp->state == FO_FENCED) {
            send_fenced(fc, p);
            fp->again = 0;
        } else {
            fo_send_down(fc, p);
        }
        fp->send_at = now + fp->interval;
        fp->interval = fp->interval * 2 < R2_MS(fo_cfg(fc)->t_repeat_ms) * MAX_DOUBLING
                           ? fp->interval * 2
                           : R2_MS(fo_cfg(fc)->t_repeat_ms) * MAX_DOUBLING;
    }
    return fp->send_at;
}

/* --- step --- */

static uint64_t step_path(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];
    uint64_t next = UINT64_MAX;

    if (fp->state == FO_DOWN) {
        const struct ib_nic *nic = &fc->conn->nics->nic[fc->conn->path[p].nic];
        enum ib_fence_stage s =
            ib_fence_step(&fp->fence, fc->workers, now, fc->worker_alive[nic->device_index]);

        if (s == IB_FENCE_HARD || s == IB_FENCE_SOFT) {
            on_fence_done(fc, p, s, now);
        }
        next = ib_fence_deadline(&fp->fence, now);
    }
    if (fp->state == FO_FENCED && fp->soft) {
        next = step_soft(fc, p, now);
        next = fp->quarantine_until ? r2_earlier(next, fp->quarantine_until) : next;
    } else if (fp->state == FO_FENCED && fp->quarantine_until) {
        if (now >= fp->quarantine_until) {
            end_quarantine(fc, p, "what its NIC wrote has crossed PCIe");
        }
        next = fp->quarantine_until ? fp->quarantine_until : next;
    }
    if (fp->state == FO_FENCED && !fp->soft && fp->fence.stage == IB_FENCE_SOFT) {
        next = r2_earlier(next, step_late(fc, p, now));
    }
    return r2_earlier(next, notify(fc, p, now));
}

/* After the peer's BYE its queue pairs go: completions that did not come by now may never come
 * (P25). */
static void fence_after_bye(struct fo_conn *fc, uint64_t now)
{
    struct ib_fault_info info = {.fault = IB_FAULT_CLOSE};

    if (r2_elapsed(now, fc->bye.at) < R2_MS(fo_cfg(fc)->t_fence_ms)) {
        return;
    }
    for (int p = 0; p < fc->conn->npaths; p++) {
        if (fc->path[p].state == FO_UP && fc->conn->path[p].sq.used) {
            fo_fault(fc, p, &info);
        }
    }
}

/* Whether the missing answer about (p) keeps the connection from going on: the channel's loss alone
 * is no reason to end it. */
static int stuck(const struct fo_conn *fc, int p)
{
    if (fc->tx) {
        return ib_send_live_parts(fc->tx, p, fc->conn->path[p].inc) > 0;
    }
    return fc->rx->ledger.acked < fc->rx->ledger.rpost &&
           fc->rx->ledger.acked == fc->path[p].acked_at_down;
}

/*
 * R: S has closed in order and R lacks what it had sent: under e2e it would not have, under
 * NCCL_R2_ACK=cqe a NIC has acknowledged it. That may still come out of the completion queues;
 * nothing else brings it, and S does not answer any more.
 */
static uint64_t step_unfinished(struct fo_conn *fc, uint64_t now)
{
    const struct r2_ledger *g = &fc->rx->ledger;
    uint64_t until = fc->bye.at + R2_MS(fo_cfg(fc)->t_give_up_ms);
    int open = 0;

    if (g->acked < fc->bye.total) {
        ib_recv_progress(fc->rx); /* NCCL may not be calling */
    }
    if (g->acked >= fc->bye.total) {
        fo_check_bye(fc, 0);
        return UINT64_MAX;
    }
    for (int p = 0; p < fc->conn->npaths; p++) {
        open |= fc->path[p].state == FO_UP || fc->path[p].state == FO_DOWN;
    }
    if (open && now < until) {
        return until;
    }
    fo_fail(
        fc, R2_ERR_PEER,
        "the sender closed its end, and a NIC lost what it had acknowledged (NCCL_R2_ACK=cqe there)");
    return UINT64_MAX;
}

/*
 * The peer has gone, or says nothing, as is known since @at. Where no path is left here either,
 * that is why: the end that had lost them first gives up first, and its process may be gone before
 * our time is over.
 */
void fo_fail_peer(struct fo_conn *fc, uint64_t at, const char *what)
{
    if (fc->nopath_since) {
        fo_fail(fc, R2_ERR_PEER, "%s; no path for %llu ms; last: %s", what,
                (unsigned long long)(r2_elapsed(at, fc->nopath_since) / 1000000), fc->last_fault);
    } else {
        fo_fail(fc, R2_ERR_PEER, "%s", what);
    }
}

static uint64_t give_up(struct fo_conn *fc, uint64_t now)
{
    uint64_t limit = R2_MS(fo_cfg(fc)->t_give_up_ms), next = UINT64_MAX;

    if (fc->rx && fc->bye.peer == FO_BYE_ORDERLY && fc->error == R2_OK && !fc->closing) {
        return step_unfinished(fc, now);
    }
    if (fc->error != R2_OK || fc->closing || fc->bye.peer) {
        return next;
    }
    if (fc->nopath_since) {
        if (r2_elapsed(now, fc->nopath_since) >= limit) {
            fo_fail(fc, R2_ERR_COMM, "no path left for %llu ms; last: %s",
                    (unsigned long long)(limit / 1000000), fc->last_fault);
            return UINT64_MAX;
        }
        next = fc->nopath_since + limit;
    }
    if (fc->tx && fc->tx->starved_since &&
        fc->conn->up) { /* with no path at all it is the paths that are missing */
        if (r2_elapsed(now, fc->tx->starved_since) >= limit) {
            fo_fail(fc, R2_ERR_COMM, "a buffer is registered on none of the paths left");
            return UINT64_MAX;
        }
        next = r2_earlier(next, fc->tx->starved_since + limit);
    }
    for (int p = 0; p < fc->conn->npaths; p++) {
        const struct fo_path *fp = &fc->path[p];

        if (fp->down_since == 0 || !unanswered(fc, p) || !stuck(fc, p)) {
            continue; /* an incarnation that never stood holds nothing up */
        }
        if (r2_elapsed(now, fp->down_since) >= limit) {
            char what[80];

            snprintf(what, sizeof(what), "nothing from the peer about path %d for %llu ms", p,
                     (unsigned long long)(limit / 1000000));
            fo_fail_peer(fc, now, what);
            return UINT64_MAX;
        }
        next = r2_earlier(next, fp->down_since + limit);
    }
    return next;
}

uint64_t fo_step(struct fo_conn *fc, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    int touched = 0;

    if (fc->torn_down) {
        return next;
    }
    for (int p = 0; p < fc->conn->npaths; p++) {
        touched |= fc->path[p].state == FO_DOWN;
        next = r2_earlier(next, step_path(fc, p, now));
    }
    if (fc->tx && (fc->conn->up & fc->conn->drained)) {
        next = r2_earlier(next, fo_step_drained(fc, now));
    }
    if (fc->bye.peer && fc->tx && !fc->closing) {
        fence_after_bye(fc, now);
        next = r2_earlier(next,
                          ib_send_idle(fc->tx) ? UINT64_MAX : now + R2_MS(fo_cfg(fc)->t_fence_ms));
    }
    /* NCCL may not be calling: what the switch owes the peer (CTS, acks, parts) goes out from here
     */
    if ((touched || fc->nopath_since) && fc->error == R2_OK && fc->conn->up) {
        if (fc->tx) {
            ib_send_progress(fc->tx);
        } else {
            ib_recv_progress(fc->rx);
        }
    }
    return r2_earlier(next, give_up(fc, now));
}
