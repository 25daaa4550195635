/*
 * Close (protocol P25-P28): NCCL's close returns at once; the service thread says BYE with the
 * final ledger until it is answered, keeps the queue pairs until then, so that a last ack or its
 * hardware ACK is not turned into a fault of a healthy NIC, and only then destroys. A closed
 * receiver in that state is the tombstone: it answers whatever the sender still asks. The queue
 * pairs of an abort are in ERR at once (P27): what would still come is for memory that is another's
 * soon.
 */
#include "r2_close.h"

#include <stdbool.h>
#include <string.h>

#include "base/r2_log.h"
#include "base/r2_rules.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/diagnosis/r2_verdict.h"
#include "r2_conn.h"
#include "r2_reconnect.h"
#include "r2_setup.h"
#include "telemetry/r2_report.h"

#define COPY_POLL R2_MS(1)
#define TELL_AFTER                                                                                 \
    R2_MS(250) /* NCCL closes what has ended, as a rule; and the peer may find a reason of its own \
                */
#define TELL_MOST R2_MS(1000)

const char *r2_close_name(enum r2_close state)
{
    static const char *const names[R2_CLOSE_COUNT] = {"open", "BYE sent", "destroyed"};

    return (unsigned)state < R2_CLOSE_COUNT ? names[state] : "?";
}

/* What never stood, and nobody was notified of, has no BYE to say. */
void r2_close_move(struct r2_comm *c, enum r2_close to)
{
    static const unsigned char legal[R2_CLOSE_COUNT][R2_CLOSE_COUNT] = {
        [R2_CLOSE_OPEN] = {[R2_CLOSE_BYE] = 1, [R2_CLOSE_DESTROY] = 1},
        [R2_CLOSE_BYE] = {[R2_CLOSE_DESTROY] = 1},
    };
    enum r2_close from = (enum r2_close)atomic_load_explicit(&c->state.close, memory_order_relaxed);

    if (!legal[from][to]) {
        R2_WARN("%s close cannot go from %s to %s", c->label, r2_close_name(from),
                r2_close_name(to));
        return;
    }
    R2_TRACE("%s close %s -> %s", c->label, r2_close_name(from), r2_close_name(to));
    atomic_store_explicit(&c->state.close, to,
                          memory_order_relaxed); /* the gate orders what it means */
}

static void send_bye(struct r2_comm *c, int abort)
{
    union fo_body b;

    memset(&b.fenced, 0, offsetof(struct fo_fenced, mask));
    fo_snapshot(&c->fo, &b.fenced);
    b.fenced.dst = c->fo.peer;
    b.fenced.src = c->id;
    b.fenced.inc = abort ? r2_verdict_ended(c->inst) : PROBE_CODE_NONE;
    b.fenced.flags = (uint8_t)((abort ? FO_FLAG_ABORT : 0) | (c->is_send ? 0 : FO_FLAG_RECV));
    r2_peer_emit(c->inst, c->peer, FO_MSG_BYE, &b);
}

void r2_close_send_bye(struct r2_comm *c)
{
    send_bye(c, c->end->abort);
}

static uint64_t send_again(struct r2_comm *c, uint64_t now)
{
    if (now >= c->repeat.at) {
        r2_close_send_bye(c);
        c->repeat.at = now + c->repeat.interval;
        c->repeat.interval =
            c->repeat.interval < R2_MS(40) ? c->repeat.interval * 2 : c->repeat.interval;
    }
    return c->repeat.at;
}

uint64_t r2_close_send_abort(struct r2_comm *c, uint64_t now)
{
    return c->end->abort && !c->end->bye_ok ? send_again(c, now) : UINT64_MAX;
}

/* S: its incarnations are all fenced, hard: with its BYE R's holds end, and nothing may be posted
 * any more. */
static bool is_quiet(struct r2_comm *c)
{
    struct ib_fault_info info = {.fault = IB_FAULT_CLOSE};
    int quiet = 1;

    for (int p = 0; c->is_send && p < c->conn.npaths; p++) {
        const struct fo_path *fp = &c->fo.path[p];

        if (fp->state == FO_UP) {
            fo_fault(&c->fo, p, &info);
        }
        quiet &= fp->state == FO_FENCED && !fp->soft && fp->fence.stage != IB_FENCE_SOFT;
    }
    return quiet;
}

/*
 * The other end may wait for what this one will not do any more, and NCCL may learn late, or never,
 * that it has ended: R has acknowledgements under way that no request of NCCL's waits for.
 */
uint64_t r2_close_notify(struct r2_comm *c, uint64_t now)
{
    if (c->end->abort || c->fo.error == R2_OK || c->fo.bye.peer != FO_BYE_NONE || c->end->bye_ok) {
        return UINT64_MAX;
    }
    if (c->end->ended_at == 0) {
        c->end->ended_at = now;
        c->repeat.at = now + TELL_AFTER;
        c->repeat.interval = R2_MS(c->inst->cfg.t_repeat_ms);
    }
    if (now >= c->repeat.at && is_quiet(c)) {
        send_bye(c, 1);
        c->repeat.at = now + c->repeat.interval;
        c->repeat.interval =
            2 * c->repeat.interval < TELL_MOST ? 2 * c->repeat.interval : TELL_MOST;
    }
    return c->repeat.at > now ? c->repeat.at : UINT64_MAX; /* the end of a fence steps it */
}

void r2_close_send_nothing_left(struct r2_comm *c)
{
    union fo_body b;

    memset(&b.fenced, 0, offsetof(struct fo_fenced, mask));
    b.fenced.dst = c->fo.peer;
    b.fenced.src = c->id;
    b.fenced.flags = (uint8_t)(FO_FLAG_ABORT | (c->is_send ? 0 : FO_FLAG_RECV));
    r2_peer_emit(c->inst, c->peer, FO_MSG_BYE, &b);
}

/* What an incarnation did, and the connection by now: for NCCL_R2_LOG=trace. */
void r2_close_log_incarnation(const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];

    if (path->count.wrs || path->count.cqes) {
        R2_TRACE(
            "%s path %d life %u ends: wrs %llu cqes %llu bytes %llu records %u; in all messages %llu acks_alone %llu replayed %llu",
            c->label, p, path->inc, (unsigned long long)path->count.wrs,
            (unsigned long long)path->count.cqes, (unsigned long long)path->count.bytes,
            path->nrecords, (unsigned long long)(c->tx ? c->tx->sposted : c->rx->count.messages),
            (unsigned long long)(c->rx ? c->rx->count.acks_alone : 0),
            (unsigned long long)(c->tx ? c->tx->count.retransmitted_parts : 0));
    }
}

void r2_close_log_flush(const struct r2_comm *c)
{
    const struct ib_flush *f = c->flush.lane;

    if (f && f->reads) {
        R2_INFO(
            "%s flushed by %llu reads, %llu messages by another NIC than theirs, %llu lanes built again",
            c->label, (unsigned long long)f->reads, (unsigned long long)f->replaced,
            (unsigned long long)f->rebuilt);
    }
}

static void destroy_run(struct ib_job *job)
{
    struct r2_build *b = (struct r2_build *)job;

    ib_path_destroy(&b->comm->conn, &b->comm->conn.path[b->p]);
}

static void destroy_done(struct ib_job *job)
{
    struct r2_build *b = (struct r2_build *)job;

    b->rc = -1; /* gone */
    r2_comm_kick(b->comm);
}

/* Submits what can be destroyed now; returns how many paths are left. */
static int destroy_paths(struct r2_comm *c)
{
    int left = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        struct r2_build *b = &c->start->build[p];
        struct ib_path *path = &c->conn.path[p];

        if (b->job.busy || c->fo.path[p].fence.job.busy) {
            left++;
            continue;
        }
        if (path->qp == NULL && path->cq == NULL && path->mem.ring == NULL &&
            path->mem.records == NULL) {
            continue;
        }
        path->open = 0;
        b->comm = c;
        b->p = p;
        b->job.run = destroy_run;
        b->job.done = destroy_done;
        ib_workers_submit(c->inst->jobs.workers, c->inst->nics.nic[path->nic].device_index,
                          &b->job);
        left++;
    }
    return left;
}

static int over(const struct r2_comm *c, uint64_t now)
{
    uint64_t contact =
        c->peer->last_contact > c->end->closed_at ? c->peer->last_contact : c->end->closed_at;

    /* Once S has sent BYE it waits for nothing but BYE_OK, which strangers get, too; and it may
     * have forgotten us. */
    if (c->end->bye_ok ||
        (!c->is_send && (c->fo.bye.peer != FO_BYE_NONE || !r2_rule(R2_RULE_TOMBSTONE)))) {
        return 1;
    }
    return !c->inst->oob->ops->peer_is_up(c->peer->oob) &&
           r2_elapsed(now, contact) >= R2_MS(c->inst->cfg.t_linger_ms);
}

uint64_t r2_close_step(struct r2_comm *c, uint64_t now)
{
    uint64_t next;

    c->fo.closing = 1;
    r2_reconnect_stop(c);
    if (atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_BYE) {
        next = fo_step(&c->fo, now);
        if (!over(c, now)) {
            return r2_earlier(next, send_again(c, now));
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            r2_close_log_incarnation(c, p);
            r2_report_incarnation_over(c, p);
        }
        c->fo.torn_down = 1;
        c->conn.up = 0; /* nothing is posted or polled any more */
        r2_close_move(c, R2_CLOSE_DESTROY);
    }
    c->fo.torn_down = 1;
    if (destroy_paths(c) + r2_reconnect_close(c) > 0 || ib_flush_close(c->flush.lane) > 0) {
        return UINT64_MAX; /* the jobs' ends kick */
    }
    if (c->tx && !ib_send_bounce_end(c->tx, r2_elapsed(now, c->end->closed_at) >=
                                                r2_close_patience(&c->inst->cfg))) {
        return now + COPY_POLL; /* an abort: copies run still */
    }
    if (!r2_comm_leaves(c)) {
        return now + COPY_POLL;
    }
    r2_comm_unvisit(c);
    r2_comm_free(c);
    return 0;
}
