#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "fo_internal.h"

#define DRAIN_STEP R2_MS(1) /* while a drained path still carries something; doubling */
#define DRAIN_MOST R2_MS(100)

/* --- state of the connection --- */

static void sink_fault(void *arg, int p, const struct ib_fault_info *info)
{
    fo_fault(arg, p, info);
}

static void sink_broken(void *arg, const char *what)
{
    fo_fail(arg, R2_ERR_PEER, "the peer breaks the protocol: %s", what);
}

static void sink_lost(void *arg, const char *what)
{
    fo_fail(arg, R2_ERR_SYSTEM, "%s", what);
}

static void fence_notify(void *arg)
{
    struct fo_conn *fc = arg;

    fc->ops.kick(fc->ops.arg);
}

static int drain_send(void *half, int p)
{
    return ib_send_drain(half, p);
}

static int drain_recv(void *half, int p)
{
    return ib_recv_drain(half, p);
}

static void fence_bind(struct fo_conn *fc, int p)
{
    struct ib_fence *f = &fc->path[p].fence;

    f->conn = fc->conn;
    f->path = &fc->conn->path[p];
    f->half = fc->tx ? (void *)fc->tx : (void *)fc->rx;
    f->drain = fc->tx ? drain_send : drain_recv;
    f->notify = fence_notify;
    f->notify_arg = fc;
}

int fo_conn_init(struct fo_conn *fc)
{
    struct ib_conn *l = fc->conn;

    l->sink = (struct ib_sink){
        .arg = fc, .path_fault = sink_fault, .peer_broken = sink_broken, .lost = sink_lost};
    for (int p = 0; p < l->npaths; p++) {
        struct fo_path *fp = &fc->path[p];

        fence_bind(fc, p);
        if (fc->tx && (fp->snap = calloc(1, sizeof(*fp->snap))) == NULL) {
            return -1;
        }
    }
    return 0;
}

void fo_conn_free(struct fo_conn *fc)
{
    for (int p = 0; p < IB_MAX_PATHS; p++) {
        free(fc->path[p].snap);
        fc->path[p].snap = NULL;
    }
}

int fo_busy(const struct fo_conn *fc)
{
    for (int p = 0; p < IB_MAX_PATHS; p++) {
        if (fc->path[p].fence.job.busy) {
            return 1;
        }
    }
    return 0;
}

/* What the paths that are down say of themselves: a device or a port speaks for itself, of a pair
 * that failed the part is not known. */
static void code_find(struct fo_conn *fc)
{
    for (int p = 0; p < fc->conn->npaths; p++) {
        const struct fo_path *fp = &fc->path[p];
        int theirs = fp->why.fault != IB_FAULT_PORT && fp->why.fault != IB_FAULT_DEVICE &&
                     fp->peer_reason != IB_FAULT_NONE;
        enum ib_fault fault = theirs ? (enum ib_fault)fp->peer_reason : fp->why.fault;
        enum probe_code code = fault == IB_FAULT_DEVICE ? PROBE_CODE_N01
                               : fault == IB_FAULT_PORT ? PROBE_CODE_L01
                                                        : PROBE_CODE_F03;

        if (fp->state < FO_DOWN || fault == IB_FAULT_NONE || fault == IB_FAULT_CLOSE ||
            fault == IB_FAULT_ADMIN || fault == IB_FAULT_REHEARSAL) {
            continue;
        }
        if (fc->cause.code == PROBE_CODE_NONE ||
            code < fc->cause.code) { /* in the order of the codes: a device, a port, a pair */
            fc->cause.code = (uint8_t)code;
            fc->cause.theirs = (uint8_t)theirs;
        }
    }
}

void fo_fail(struct fo_conn *fc, enum r2_status status, const char *fmt, ...)
{
    va_list ap;

    if (fc->error != R2_OK) {
        return;
    }
    if (status == R2_ERR_COMM || fc->nopath_since) {
        code_find(fc);
    }
    fc->cause.peer_code = fc->bye.code;
    fc->cause.by_peer = fc->bye.peer != FO_BYE_NONE && fc->nopath_since == 0;
    fc->error = status;
    va_start(ap, fmt);
    vsnprintf(fc->why, sizeof(fc->why), fmt, ap);
    va_end(ap);
    if (!fc->closing && !fc->posting_stopped) {
        R2_WARN_MANY(R2_LOG_ENDS, "%s ends: %s (%s)", fc->label, fc->why, r2_status_name(status));
    }
}

static void replan(struct fo_conn *fc, int lost)
{
    if (fc->tx) {
        ib_send_replan(fc->tx);
    } else if (lost >= 0) {
        ib_recv_path_down(fc->rx, lost);
    } else {
        ib_recv_replan(fc->rx);
    }
}

/* The only writer of an incarnation's state. */
int fo_move(struct fo_conn *fc, int p, enum fo_state to, const char *why)
{
    struct fo_path *fp = &fc->path[p];
    enum fo_state from = fp->state;

    if (!fo_incarnation_move(&fp->state, to)) {
        return 0;
    }
    if (to == FO_UP) {
        IB_RLX_SET(fc->conn->up,
                   fc->conn->up | 1u << p); /* the watchdog reads it without the gate */
        ib_path_open(&fc->conn->path[p]);
    } else {
        IB_RLX_SET(fc->conn->up, fc->conn->up & ~(1u << p));
    }
    if (!fc->closing && !fc->posting_stopped && from != FO_NONE) {
        R2_INFO_MANY(to == FO_DOWN ? R2_LOG_DOWN : R2_LOG_FENCED, "%s path %d life %u %s -> %s: %s",
                     fc->label, p, fc->conn->path[p].inc, fo_state_name(from), fo_state_name(to),
                     why);
    }
    return 1;
}

static int waits(const struct fo_conn *fc)
{
    return fc->tx ? fc->tx->sposted > fc->tx->sack : fc->rx->ledger.acked < fc->rx->ledger.rpost;
}

uint64_t fo_got_through(const struct fo_conn *fc)
{
    return fc->tx ? fc->tx->sack : fc->rx->ledger.acked;
}

uint64_t fo_no_progress_since(const struct fo_conn *fc)
{
    return fo_got_through(fc) == fc->no_progress.at ? fc->no_progress.since : 0;
}

/*
 * A path again. That its NIC pair answered does not say that anything will get through: where
 * messages wait and none does before it is lost, the time without a path goes on, or a path that
 * only looks well would keep the connection from ever giving up.
 */
static void path_restored(struct fo_conn *fc)
{
    if (fc->nopath_since) {
        fc->no_progress.since = waits(fc) ? fc->nopath_since : 0;
        fc->no_progress.at = fo_got_through(fc);
    }
    fc->nopath_since = 0;
}

void fo_path_up(struct fo_conn *fc, int p)
{
    if (fo_move(fc, p, FO_UP, "set up")) {
        path_restored(fc);
        replan(fc, -1);
    }
}

bool fo_may_return(const struct fo_conn *fc, int p)
{
    const struct fo_path *fp = &fc->path[p];

    int settled = fp->settled || (fc->rx && !r2_rule(R2_RULE_SETTLED));

    if (fp->state != FO_FENCED || !settled || fp->again || fp->soft || fp->quarantine_until ||
        fp->fence.job.busy ||
        (fp->fence.stage != IB_FENCE_HARD && fp->fence.stage != IB_FENCE_IDLE)) {
        return 0;
    }
    if (fc->error != R2_OK || fc->closing || fc->bye.peer || fc->posting_stopped || fc->torn_down) {
        return 0;
    }
    return fc->rx ||
           (fp->snapshot && !((fc->tx->soft >> p) & 1) && fc->conn->path[p].sq.used == 0 &&
            ib_send_live_parts(fc->tx, p, fc->conn->path[p].inc) == 0);
}

void fo_path_setup_aborted(struct fo_conn *fc, int p, const struct ib_fault_info *info)
{
    uint64_t since = fc->nopath_since;

    fo_path_up(fc, p);
    fo_fault(fc, p, info);
    fc->nopath_since = since ? since : fc->nopath_since; /* nothing could be posted in between */
}

void fo_incarnation_superseded(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];

    if (fp->state == FO_FENCED && !fp->snapshot &&
        ib_send_live_parts(fc->tx, p, fc->conn->path[p].inc) == 0) {
        fp->snapshot = fp->settled = 1;
    }
}

void fo_incarnation_begin(struct fo_conn *fc, int p)
{
    struct fo_path *fp = &fc->path[p];
    struct fo_fenced *snap = fp->snap;

    memset(fp, 0, sizeof(*fp));
    fp->snap = snap;
    fence_bind(fc, p);
}

void fo_path_setup_failed(struct fo_conn *fc, int p)
{
    if (fo_move(fc, p, FO_FENCED, "never stood")) {
        fc->path[p].settled = 1;
        fc->path[p].peer_stopped = 1;
        fc->path[p].snapshot = 1;
    }
}

void fo_stop_posting(struct fo_conn *fc)
{
    fc->posting_stopped = 1;
    if (fc->tx) {
        fc->tx->posting_stopped = 1;
    } else {
        fc->rx->posting_stopped = 1;
    }
}

static bool is_halted(const struct fo_conn *fc, int p)
{
    const struct fo_path *fp = &fc->path[p];
    enum ib_nic_state nic = ib_nic_state_get(&fc->conn->nics->nic[fc->conn->path[p].nic]);
    uint64_t now = ib_conn_now(fc->conn);

    if (fp->state == FO_UP) {
        return 0;
    }
    if (fp->state == FO_NONE || fp->fence.stage == IB_FENCE_IDLE) {
        return 1; /* what is being built is posted on, at either end, only when it is up here */
    }
    /* R: what a removed device wrote, and what is for the memory of a GPU, crosses PCIe still (P17,
     * P18): its quarantine says until when. */
    if (fc->rx && (nic == IB_NIC_GONE || fp->fence.stage == IB_FENCE_HARD ||
                   atomic_load_explicit(&fp->fence.job_gone, memory_order_acquire))) {
        return fp->state == FO_FENCED && !fp->soft && !fp->quarantine_until;
    }
    /* FATAL may be what a port's reader was told, of a device that goes on: its driver knows. Pairs
     * with the worker's release. */
    if (nic == IB_NIC_GONE || (nic == IB_NIC_FATAL &&
                               atomic_load_explicit(&fp->fence.job_rc, memory_order_acquire) > 0)) {
        return 1;
    }
    if (fp->state == FO_FENCED && !fp->soft && fp->fence.erred_at &&
        now - fp->fence.erred_at >= R2_MS(fo_cfg(fc)->t_pcie_ms)) {
        return 1; /* the quarantine ended by time (P18), and the device knows of ERR */
    }
    /* Whatever its library flushes (P16.4). Pairs with the worker's release. */
    return ib_fence_is_quiet(&fp->fence, now) ||
           atomic_load_explicit(&fp->fence.job_gone, memory_order_acquire);
}

uint32_t fo_unhalted(const struct fo_conn *fc)
{
    uint32_t mask = 0;

    for (int p = 0; r2_rule(R2_RULE_ABORT_ERR) && p < fc->conn->npaths; p++) {
        mask |= (uint32_t)!is_halted(fc, p) << p;
    }
    return mask;
}

/* --- faults --- */

/* Statuses that point at a bug or a broken registration rather than at a path: worth one try
 * elsewhere (P9). */
static bool is_bug(const struct ib_fault_info *i)
{
    if (i->fault == IB_FAULT_DATA) {
        return 1;
    }
    return i->fault == IB_FAULT_WC &&
           (i->wc_status == IBV_WC_REM_ACCESS_ERR || i->wc_status == IBV_WC_LOC_PROT_ERR ||
            i->wc_status == IBV_WC_LOC_LEN_ERR || i->wc_status == IBV_WC_REM_INV_REQ_ERR);
}

static void describe(const struct fo_conn *fc, int p, const struct ib_fault_info *i, char *out,
                     size_t len)
{
    const struct ib_nics *nics = fc->conn->nics;
    const char *nic = nics->nic[fc->conn->path[p].nic].name;

    if (i->fault == IB_FAULT_WC) {
        snprintf(out, len, "completion status %d (%s) vendor_err 0x%x on %s", i->wc_status,
                 nics->v->wc_status_str((enum ibv_wc_status)i->wc_status), (unsigned)i->vendor_err,
                 nic);
    } else if (i->fault == IB_FAULT_CALL) {
        snprintf(out, len, "call failed with errno %d (%s) on %s", i->err, strerror(i->err), nic);
    } else {
        snprintf(out, len, "%s, local NIC %s, remote NIC %u", ib_fault_name(i->fault), nic,
                 fc->conn->path[p].peer_nic);
        if ((i->fault == IB_FAULT_TAIL || i->fault == IB_FAULT_WAY) && fc->conn->path[p].way) {
            size_t n = strlen(out);

            snprintf(out + n, len - n, ", way %u", fc->conn->path[p].way);
        }
    }
}

static void check_policy(struct fo_conn *fc, const char *what)
{
    int left = ib_conn_pairs(fc->conn, ib_conn_carrying(fc->conn, fc->conn->up));

    if (fc->closing || fc->bye.peer) {
        return;
    }
    if (!fo_cfg(fc)->failover) {
        fo_fail(fc, R2_ERR_COMM, "NCCL_R2_FAILOVER=off and %s", what);
    } else if (left > 0 && left < fo_cfg(fc)->min_nics) {
        fo_fail(fc, R2_ERR_COMM, "%d NIC pairs left, NCCL_R2_MIN_NICS=%lld; last: %s", left,
                (long long)fo_cfg(fc)->min_nics, what);
    }
}

void fo_check_paths(struct fo_conn *fc)
{
    int n = ib_conn_pairs(fc->conn, ib_conn_carrying(fc->conn, fc->conn->up));

    if (n > 0 && n < fo_cfg(fc)->min_nics) {
        fo_fail(fc, R2_ERR_COMM, "set up with %d NIC pairs, NCCL_R2_MIN_NICS=%lld", n,
                (long long)fo_cfg(fc)->min_nics);
    }
}

/* Whether somebody waits for the end of (p): parts to post again, or receives that they are for
 * (P29). */
static bool is_waited_for(const struct fo_conn *fc, int p)
{
    if (fc->rx) {
        return fc->rx->ledger.acked < fc->rx->ledger.rpost;
    }
    return fc->conn->path[p].sq.used || ib_send_live_parts(fc->tx, p, fc->conn->path[p].inc) > 0;
}

/* A path has gone with what was posted on it, as those before it: any other one does no better. */
static void check_vain(struct fo_conn *fc, uint64_t now, const char *what)
{
    uint64_t since = fo_vain_since(fc), ns = since ? r2_elapsed(now, since) : 0;

    if (ns >= R2_MS(fo_cfg(fc)->t_give_up_ms) && !fc->closing && !fc->bye.peer) {
        fo_fail(fc, R2_ERR_COMM, "no path has carried anything for %llu ms; last: %s",
                (unsigned long long)(ns / 1000000), what);
    }
}

__attribute__((noinline, cold)) void fo_fault(struct fo_conn *fc, int p,
                                              const struct ib_fault_info *info)
{
    struct fo_path *fp = &fc->path[p];
    uint64_t now = ib_conn_now(fc->conn);
    char what[sizeof(fc->last_fault)];
    bool vain;

    if (fc->torn_down) {
        return;
    }
    describe(fc, p, info, what, sizeof(what));
    if (!fo_move(fc, p, FO_DOWN, what)) {
        return;
    }
    memcpy(fc->last_fault, what, sizeof(what));
    fp->why = *info;
    fp->down_since = now;
    fp->acked_at_down = fc->rx ? fc->rx->ledger.acked : fc->tx->sack;
    fp->send_at = now;
    fp->interval = R2_MS(fo_cfg(fc)->t_repeat_ms);
    if (fc->tx) { /* before anything is posted again, and before copies that wait are stopped */
        ib_send_live(fc->tx, p, fc->conn->path[p].inc, &fp->live);
    }
    fc->switches++;
    vain = fo_vain_on_lost(fc, p, now);
    if (fc->rx && fc->conn->path[p].count.cqes) {
        fc->no_progress.since = 0; /* something got through */
    }
    if (fc->conn->up == 0) {
        fc->nopath_since = fc->no_progress.since && fo_got_through(fc) == fc->no_progress.at
                               ? fc->no_progress.since
                               : now;
        fc->no_progress.since = 0;
    }
    if (fc->rx && !r2_rule(R2_RULE_RECV_FENCE)) {
        ib_fence_without(&fp->fence); /* rule off: the ledger is sent without a fence */
    } else {
        ib_fence_begin(&fp->fence, fc->workers, now, is_waited_for(fc, p));
    }
    replan(fc, p);
    if (is_bug(info) && !fc->closing && !fc->bye.peer && ++fc->bug_faults > 1) {
        fo_fail(fc, R2_ERR_COMM, "a replay repeats what no other path can mend: %s", what);
    }
    if (vain) {
        check_vain(fc, now, what);
    }
    check_policy(fc, what);
    fc->ops.kick(fc->ops.arg);
}

void fo_abort(struct fo_conn *fc)
{
    struct ib_fault_info info = {.fault = IB_FAULT_CLOSE};

    fo_stop_posting(fc);
    for (int p = 0; r2_rule(R2_RULE_ABORT_ERR) && p < fc->conn->npaths; p++) {
        if (fc->path[p].state == FO_UP) {
            fo_fault(fc, p, &info);
        }
    }
}

/* The peer posts nothing on (p) any more; what it posted before may still be under way. */
void fo_peer_stopped(struct fo_conn *fc, int p, uint64_t now)
{
    struct fo_path *fp = &fc->path[p];

    if (!fp->peer_stopped) {
        fp->peer_stopped = 1;
        fp->stopped_at = now;
    }
    if (fc->rx) {
        ib_recv_quarantine_peer_stopped(fc->rx, p);
    }
}

void fo_drain(struct fo_conn *fc, uint32_t mask, uint32_t ends)
{
    if (fc->conn->drained == mask && fc->drain.ends == ends) {
        return;
    }
    fc->conn->drained = mask;
    fc->drain.ends = ends;
    fc->drain.wait = 0;
    replan(fc, -1);
    fc->ops.kick(fc->ops.arg);
}

/* Drained paths that may end, as far as the connection goes. */
static uint32_t drain_may_end(const struct fo_conn *fc)
{
    const struct ib_conn *l = fc->conn;

    if (fc->error != R2_OK || fc->closing || fc->bye.peer || fc->posting_stopped ||
        !fo_cfg(fc)->failover || !(l->up & ~l->drained)) {
        return 0;
    }
    return l->up & l->drained & fc->drain.ends;
}

int fo_rehearse(struct fo_conn *fc, uint32_t paths)
{
    struct ib_fault_info info = {.fault = IB_FAULT_REHEARSAL};
    const struct ib_conn *l = fc->conn;
    int n = 0;

    if (fc->tx && !ib_send_reaches_all(fc->tx, l->up & ~l->drained)) {
        return 0;
    }
    for (uint32_t m = drain_may_end(fc) & paths; m; m &= m - 1) {
        if ((drain_may_end(fc) >> __builtin_ctz(m) & 1) &&
            ib_conn_pairs(l, ib_conn_carrying(l, l->up)) > fo_cfg(fc)->min_nics) {
            fo_fault(fc, __builtin_ctz(m), &info);
            n++;
        }
    }
    return n;
}

uint64_t fo_step_drained(struct fo_conn *fc, uint64_t now)
{
    struct ib_fault_info info = {.fault = IB_FAULT_ADMIN};
    struct ib_conn *l = fc->conn;
    uint32_t left;

    if (!drain_may_end(fc)) {
        return UINT64_MAX;
    }
    ib_send_progress(fc->tx);
    if (!ib_send_reaches_all(fc->tx, l->up & ~l->drained)) {
        return UINT64_MAX;
    }
    for (uint32_t m = l->up & l->drained & fc->drain.ends; m && (l->up & ~l->drained); m &= m - 1) {
        int p = __builtin_ctz(m);

        if (ib_conn_pairs(l, ib_conn_carrying(l, l->up)) > fo_cfg(fc)->min_nics &&
            l->path[p].sq.used == 0 && ib_send_live_parts(fc->tx, p, l->path[p].inc) == 0) {
            fo_fault(fc, p, &info);
        }
    }
    left = l->up & l->drained & fc->drain.ends;
    if (!left || !(l->up & ~l->drained) ||
        ib_conn_pairs(l, ib_conn_carrying(l, l->up)) <= fo_cfg(fc)->min_nics) {
        return UINT64_MAX;
    }
    fc->drain.wait = fc->drain.wait == 0               ? DRAIN_STEP
                     : 2 * fc->drain.wait < DRAIN_MOST ? 2 * fc->drain.wait
                                                       : DRAIN_MOST;
    return now + fc->drain.wait;
}

void fo_on_nic_down(struct fo_conn *fc, int nic, enum ib_fault fault)
{
    struct ib_fault_info info = {.fault = fault, .err = fault == IB_FAULT_CALL ? EIO : 0};

    for (int p = 0; p < fc->conn->npaths; p++) {
        if (fc->conn->path[p].nic == nic) {
            fo_fault(fc, p, &info);
        }
    }
}

void fo_on_peer_nic_down(struct fo_conn *fc, int nic, uint32_t gen)
{
    struct ib_fault_info info = {.fault = IB_FAULT_PEER_NIC};

    for (int p = 0; p < fc->conn->npaths; p++) {
        const struct ib_path *path = &fc->conn->path[p];

        if (fc->path[p].state != FO_NONE && path->peer_nic == nic &&
            (int32_t)(gen - path->gen.peer) > 0) {
            fo_peer_stopped(fc, p, ib_conn_now(fc->conn));
            fo_fault(fc, p, &info);
        }
    }
}
