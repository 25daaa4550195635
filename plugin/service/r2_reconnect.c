#include "r2_reconnect.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "admin/r2_drain.h"
#include "admin/r2_failback.h"
#include "base/r2_log.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_locate.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_probation.h"
#include "probe/health/r2_watch.h"
#include "probe/health/r2_ways.h"
#include "r2_close.h"
#include "r2_setup.h"
#include "telemetry/r2_report.h"

#define OPEN_LIMIT                                                                                 \
    R2_MS(5000) /* an exchange that takes longer is given up: the next one takes the next number   \
                 */
#define AGAIN_MIN  R2_MS(1000) /* after an exchange that failed, and never longer than T_return */
#define AGAIN_MAX  300         /* x that */
#define AGAIN_LAST 4           /* x that, where no path is left */

static const char *const names[R2_RET_COUNT] = {"none",         "R building", "R announced",
                                                "R connecting", "S building", "S announced"};

static int builds(enum r2_ret_state s)
{
    return s == R2_RET_R_BUILD || s == R2_RET_R_JOIN || s == R2_RET_S_BUILD;
}

/* The only writer of the state of an exchange. Row: from. */
static void ret_move(struct r2_comm *c, int p, enum r2_ret_state to)
{
    static const unsigned char legal[R2_RET_COUNT][R2_RET_COUNT] = {
        [R2_RET_NONE] = {[R2_RET_R_BUILD] = 1, [R2_RET_S_BUILD] = 1},
        [R2_RET_R_BUILD] = {[R2_RET_R_SENT] = 1, [R2_RET_NONE] = 1},
        [R2_RET_R_SENT] = {[R2_RET_R_JOIN] = 1, [R2_RET_NONE] = 1},
        [R2_RET_R_JOIN] = {[R2_RET_NONE] = 1},
        [R2_RET_S_BUILD] = {[R2_RET_S_SENT] = 1, [R2_RET_NONE] = 1},
        [R2_RET_S_SENT] = {[R2_RET_NONE] = 1},
    };
    struct r2_ret *r = &c->ret->path[p];

    if (!legal[r->state][to]) {
        R2_WARN("%s path %d: its return cannot go from %s to %s", c->label, p, names[r->state],
                names[to]);
        return;
    }
    R2_TRACE("%s path %d life %u: return %s -> %s", c->label, p, c->conn.path[p].inc,
             names[r->state], names[to]);
    c->inst->reconnect.builds[c->conn.path[p].nic] += (uint16_t)(builds(to) - builds(r->state));
    r->state = to;
    r->send_at = 0;
    r->interval = R2_MS(c->inst->cfg.t_repeat_ms);
}

/* Nothing begins or goes on any more: what is open is put away by close. */
static int ended(const struct r2_comm *c)
{
    return atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN ||
           c->fo.error != R2_OK || c->fo.posting_stopped || c->fo.bye.peer != FO_BYE_NONE;
}

/* --- words --- */

static void send(struct r2_comm *c, int p, enum fo_type type)
{
    union fo_body b = {
        .open = {.dst = c->fo.peer, .src = c->id, .inc = c->conn.path[p].inc, .path = (uint8_t)p}};

    ib_path_addr_get(&c->conn, &c->conn.path[p], &b.open.addr);
    r2_peer_emit(c->inst, c->peer, type, &b);
}

static uint64_t repeat(struct r2_comm *c, int p, enum fo_type type, uint64_t now)
{
    struct r2_ret *r = &c->ret->path[p];

    if (now >= r->send_at) {
        send(c, p, type);
        r->send_at = now + r->interval;
        r->interval = r->interval < R2_MS(100) ? 2 * r->interval : r->interval;
    }
    return r->send_at;
}

/* The peer opens an incarnation that never stood, or will not stand, here. */
static void send_ended(struct r2_comm *c, int p, uint32_t inc)
{
    union fo_body b = {.down = {.dst = c->fo.peer,
                                .src = c->id,
                                .inc = inc,
                                .path = (uint8_t)p,
                                .reason = IB_FAULT_SETUP,
                                .flags = FO_FLAG_FENCED}};

    if (c->is_send && inc == c->conn.path[p].inc) {
        b.down.live = c->fo.path[p].live; /* it may have stood: the OPEN is late (P35) */
    }
    r2_peer_emit(c->inst, c->peer, FO_MSG_DOWN, &b);
}

/*
 * S does not take an incarnation of R. That word may be on its way for long, and R's OPEN is
 * repeated: what was refused once is refused for ever, though the reason may have gone. Else an
 * incarnation would be brought up at both ends, and then end on its own refusal.
 */
static void refuse(struct r2_comm *c, int p, uint32_t inc)
{
    c->ret->path[p].refused = inc;
    send_ended(c, p, inc);
}

static bool was_refused(const struct r2_comm *c, int p, uint32_t inc)
{
    return c->ret->path[p].refused && (int32_t)(inc - c->ret->path[p].refused) <= 0;
}

/* --- incarnations --- */

/*
 * The old incarnation's objects are put aside, the new one has its number and nothing else. Both
 * fences of the old incarnation have ended by now, so that T_packet from here covers what either
 * end had under way.
 */
static void next_incarnation(struct r2_comm *c, int p, uint32_t inc, unsigned way, uint64_t now)
{
    struct ib_path *path = &c->conn.path[p];
    struct r2_ret *r = &c->ret->path[p];

    r2_close_log_incarnation(c, p);
    r2_failback_next(c, p, inc);
    r2_report_incarnation_over(c, p);
    r->old = *path;
    r->has_old = 1;
    r->old_until = now + R2_MS(c->inst->cfg.t_packet_ms);
    r->since = now;
    r->refused = 0;
    *path = (struct ib_path){.index = path->index,
                             .nic = path->nic,
                             .peer_nic = path->peer_nic,
                             .way = (uint8_t)way,
                             .inc = inc};
    c->start->build[p].late = 0;
    memset(&c->watch->path[p], 0, sizeof(c->watch->path[p]));
    memset(&c->watch->ctl[p], 0, sizeof(c->watch->ctl[p]));
    c->watch->delivery_claim[p].since = 0;
    c->qp_lost &= (uint8_t) ~(1u << p);
    fo_incarnation_begin(&c->fo, p);
}

/* S, who does not know whether R has it up by now: an ordinary end, of which R is notified. */
static void give_up_open(struct r2_comm *c, int p)
{
    struct ib_fault_info info = {.fault = IB_FAULT_SETUP};

    ret_move(c, p, R2_RET_NONE);
    r2_failback_again(c, p);
    fo_path_setup_aborted(&c->fo, p, &info);
}

/* The new incarnation never stood at this end, and carries nothing at the other. */
static void give_up(struct r2_comm *c, int p, const char *why, uint64_t now)
{
    struct r2_ret *r = &c->ret->path[p];
    const struct ib_path *path = &c->conn.path[p];
    struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
    uint64_t base = R2_MS(c->inst->cfg.t_return_ms), most;

    R2_INFO("%s path %d life %u does not return: %s", c->label, p, c->conn.path[p].inc, why);
    if (r->state == R2_RET_S_BUILD) {
        send_ended(c, p, c->conn.path[p].inc); /* R waits for our queue pair */
    }
    ret_move(c, p, R2_RET_NONE);
    c->conn.path[p].open = 0;
    fo_path_setup_failed(&c->fo, p);
    base = base < AGAIN_MIN ? base : AGAIN_MIN;
    most = base * (ib_conn_rdma(&c->conn) ? AGAIN_MAX : AGAIN_LAST);
    r->pause = r->pause == 0 ? base : 2 * r->pause < most ? 2 * r->pause : most;
    r->not_before = now + r->pause;
    r->failed_at = now;
    if (pair && !c->is_send) {
        r->misses = pair->probation.misses;
        r2_probation_used(pair, 0);
        r2_comm_kick(c); /* the pair is asked anew meanwhile */
    }
}

/* 1: it is up. 0: its NIC failed meanwhile. */
static int stands(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    char way[48] = ""; /* what a switch's counters are searched for */

    if (path->udp_port) {
        snprintf(way, sizeof(way), ", way %u (UDP source port %u)", path->way, path->udp_port);
    } else if (path->dlid) {
        snprintf(way, sizeof(way), ", way %u (LID %u)", path->way, path->dlid);
    }
    ret_move(c, p, R2_RET_NONE);
    r2_failback_done(c, p);
    c->ret->path[p].pause = 0;
    r2_locate_back(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);
    R2_INFO_MANY(R2_LOG_BACK, "%s path %d life %u is up: its NIC pair is back%s", c->label, p,
                 c->conn.path[p].inc, way);
    if (c->flush.lane) {
        ib_flush_open(c->flush.lane, 1u << p);
    }
    fo_path_up(&c->fo, p);
    r2_setup_check_path(c, p);
    if (c->is_send) {
        ib_send_progress(c->tx);
    } else {
        ib_recv_progress(c->rx);
    }
    return ib_conn_up(&c->conn, p);
}

/* --- old incarnations --- */

static void old_run(struct ib_job *job)
{
    struct r2_ret *r = (struct r2_ret *)job;

    ib_path_destroy(&r->comm->conn, &r->old);
}

static void old_done(struct ib_job *job)
{
    struct r2_ret *r = (struct r2_ret *)job;

    r->has_old = 0;
    r2_comm_kick(r->comm);
}

static void destroy_old(struct r2_comm *c, int p)
{
    struct r2_ret *r = &c->ret->path[p];

    r->comm = c;
    r->job.run = old_run;
    r->job.done = old_done;
    ib_workers_submit(c->inst->jobs.workers, c->inst->nics.nic[r->old.nic].device_index, &r->job);
}

/* Gone after T_packet, and after the new queue pair was made, so that the number differs. */
static uint64_t step_old(struct r2_comm *c, int p, uint64_t now)
{
    struct r2_ret *r = &c->ret->path[p];

    if (!r->has_old || r->job.busy || r->state == R2_RET_R_BUILD || r->state == R2_RET_S_BUILD) {
        return UINT64_MAX;
    }
    if (now < r->old_until) {
        return r->old_until;
    }
    destroy_old(c, p);
    return UINT64_MAX;
}

void r2_reconnect_stop(struct r2_comm *c)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        if (c->ret->path[p].state != R2_RET_NONE) {
            ret_move(c, p, R2_RET_NONE);
        }
    }
    c->ret->waits = 0;
}

int r2_reconnect_close(struct r2_comm *c)
{
    int left = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        if (c->ret->path[p].has_old && !c->ret->path[p].job.busy) {
            destroy_old(c, p);
        }
        left += c->ret->path[p].has_old;
    }
    return left;
}

/* --- step --- */

static int admitted(struct r2_comm *c, int p)
{
    int nic = c->conn.path[p].nic;

    if (c->inst->reconnect.builds[nic] < R2_RECONNECT_AT_ONCE) {
        return 1;
    }
    c->ret->waits |= (uint8_t)(1u << p);
    c->ret->urgent = ib_conn_rdma(&c->conn) == 0;
    c->inst->reconnect.waiting |= 1u << nic;
    return 0;
}

/* Takes up to @room connections that wait for NIC @nic; returns how many there were. */
static int admit_some(struct r2_inst *inst, int nic, int urgent, int room)
{
    int n = 0;

    for (struct r2_comm *c = r2_comm_first(inst); c && n < room; c = c->list.all_next) {
        for (int p = 0; c->ret->waits && c->ret->urgent == urgent && p < c->conn.npaths; p++) {
            if ((c->ret->waits >> p & 1) && c->conn.path[p].nic == nic) {
                c->ret->waits &= (uint8_t) ~(1u << p);
                r2_comm_kick(c);
                n++;
            }
        }
    }
    return n;
}

void r2_reconnect_admit(struct r2_inst *inst)
{
    for (uint32_t m = inst->reconnect.waiting; m; m &= m - 1) {
        int nic = __builtin_ctz(m), room = R2_RECONNECT_AT_ONCE - inst->reconnect.builds[nic], n;

        if (room <= 0) {
            continue;
        }
        n = admit_some(inst, nic, 1, room);
        n += admit_some(inst, nic, 0, room - n);
        if (n < room) {
            inst->reconnect.waiting &= ~(1u << nic);
        }
    }
}

static enum r2_haste haste_of(const struct r2_comm *c, int p)
{
    const struct fo_path *fp = &c->fo.path[p];

    return ib_conn_rdma(&c->conn) == 0 ? R2_HASTE_NO_PATH
           : fp->tail_lost || fp->why.fault == IB_FAULT_TAIL || fp->why.fault == IB_FAULT_WAY
               ? R2_HASTE_TAIL
               : R2_HASTE_NONE;
}

/* R: whether a new incarnation may begin now. */
static bool may_begin(struct r2_comm *c, int p, uint64_t now)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct r2_ret *r = &c->ret->path[p];
    uint64_t since;
    struct r2_pair *pair;

    if (c->is_send || ended(c) || !r2_failback_allows(c, p) || c->ret->path[p].has_old ||
        c->start->build[p].job.busy || !fo_may_return(&c->fo, p)) {
        return 0;
    }
    if (r2_drain_has(c, p) && ib_conn_rdma(&c->conn)) {
        return 0; /* with no path at all it is better than none */
    }
    pair = r2_pair_want(c->inst, c->peer, path->nic, path->peer_nic);
    since = c->fo.path[p].down_since > r->failed_at ? c->fo.path[p].down_since : r->failed_at;
    if (pair == NULL) {
        return 0;
    }
    if (c->fo.path[p].tail_lost && c->ret->path[p].lost != path->inc) { /* S has found it */
        c->ret->path[p].lost = path->inc;
        r2_ways_on_lost(pair, path->way);
    }
    if (!r2_probation_good(pair, since, haste_of(c, p))) {
        return 0;
    }
    if (now < r->not_before && pair->probation.misses == r->misses) {
        return 0; /* no silence since that would explain the failure */
    }
    if (!admitted(c, p)) {
        return 0;
    }
    r2_probation_used(pair, now);
    return 1;
}

/* No exchange is under way. */
static uint64_t step_none(struct r2_comm *c, int p, uint64_t now)
{
    const struct r2_ret *r = &c->ret->path[p];

    if (may_begin(c, p, now)) {
        next_incarnation(c, p, c->conn.path[p].inc + 1, r2_ways_pick(c, p), now);
        ret_move(c, p, R2_RET_R_BUILD);
        r2_build_submit(c, p, 0);
    }
    return r->not_before > now && !c->is_send ? r->not_before : UINT64_MAX;
}

/* Its job is back, and good. */
static uint64_t step_open(struct r2_comm *c, int p, uint64_t now)
{
    struct r2_ret *r = &c->ret->path[p];

    switch (r->state) {
    case R2_RET_R_BUILD:
        ret_move(c, p, R2_RET_R_SENT);
        return repeat(c, p, FO_MSG_OPEN, now);
    case R2_RET_R_SENT:
        return r2_earlier(repeat(c, p, FO_MSG_OPEN, now), r->since + OPEN_LIMIT);
    case R2_RET_R_JOIN:
        if (stands(c, p)) {
            send(c, p, FO_MSG_OPEN_UP);
        }
        return UINT64_MAX;
    case R2_RET_S_BUILD:
        ib_path_open(
            &c->conn.path[p]); /* R writes CTS before its report that we may post is here */
        ret_move(c, p, R2_RET_S_SENT);
        return repeat(c, p, FO_MSG_OPEN_OK, now);
    default:
        return r2_earlier(repeat(c, p, FO_MSG_OPEN_OK, now), r->since + OPEN_LIMIT);
    }
}

static uint64_t step_path(struct r2_comm *c, int p, uint64_t now)
{
    struct r2_ret *r = &c->ret->path[p];

    if (r->state == R2_RET_NONE) {
        return step_none(c, p, now);
    }
    if (c->start->build[p].job.busy) {
        return UINT64_MAX; /* the job's end kicks */
    }
    if (c->start->build[p].rc != 0) {
        give_up(c, p, strerror(c->start->build[p].rc), now);
    } else if (ended(c)) {
        give_up(c, p, "the connection ends", now);
    } else if (r2_elapsed(now, r->since) < OPEN_LIMIT) {
        return step_open(c, p, now);
    } else if (r->state == R2_RET_S_SENT) {
        give_up_open(c, p);
    } else {
        give_up(c, p, "no answer", now);
    }
    return r->not_before;
}

uint64_t r2_reconnect_step(struct r2_comm *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    if (!c->inst->cfg.failover) {
        return next;
    }
    for (; c->permit.fresh; c->permit.fresh &= (uint8_t)(c->permit.fresh - 1)) {
        struct r2_ret *r = &c->ret->path[__builtin_ctz(c->permit.fresh)];

        r->not_before = r->pause = 0; /* an administrator does not wait for a back-off */
    }
    for (int p = 0; p < c->conn.npaths; p++) {
        next = r2_earlier(next, step_path(c, p, now));
        next = r2_earlier(next, step_old(c, p, now));
    }
    return r2_earlier(next, r2_failback_step(c, now));
}

/* --- records --- */

/* S: R's new incarnation @m, later than ours. */
static void take_open(struct r2_comm *c, const struct fo_open *m)
{
    uint64_t now = r2_now(c->inst);
    int p = m->path;

    if (c->ret->path[p].state != R2_RET_NONE && !c->start->build[p].job.busy) {
        give_up(c, p, "the receiver has begun anew", now);
    }
    fo_incarnation_superseded(&c->fo, p);
    if (c->ret->path[p].has_old || c->start->build[p].job.busy || !fo_may_return(&c->fo, p) ||
        c->inst->reconnect.builds[c->conn.path[p].nic] >= R2_RECONNECT_AT_ONCE) {
        return; /* R repeats */
    }
    next_incarnation(c, p, m->inc, m->addr.way, now);
    c->start->build[p].peer = m->addr;
    ret_move(c, p, R2_RET_S_BUILD);
    r2_build_submit(c, p, 0);
}

void r2_reconnect_on_open(struct r2_comm *c, const struct fo_open *m)
{
    int p = m->path;
    int32_t ahead;

    if (!c->is_send || p >= c->conn.npaths || ended(c)) {
        return;
    }
    ahead = (int32_t)(m->inc - c->conn.path[p].inc);
    if (ahead > 0 && was_refused(c, p, m->inc)) {
        send_ended(c, p, m->inc);
    } else if (ahead > 0 && r2_drain_has(c, p) && ib_conn_rdma(&c->conn)) {
        refuse(c, p, m->inc); /* R does not know of the drain (yet) */
    } else if (ahead > 0 && r2_failback_allows(c, p)) {
        take_open(c, m);
    } else if (ahead > 0) {
        refuse(c, p, m->inc); /* our policy forbids it */
    } else if (ahead == 0 && c->ret->path[p].state == R2_RET_NONE &&
               c->fo.path[p].state == FO_FENCED) {
        send_ended(c, p, m->inc); /* it failed here and the message was lost */
    } else if (ahead == 0 && c->ret->path[p].state == R2_RET_S_SENT) {
        c->ret->path[p].send_at = 0; /* our answer was lost */
        r2_comm_kick(c);
    }
}

void r2_reconnect_on_open_ok(struct r2_comm *c, const struct fo_open *m)
{
    int p = m->path;

    if (c->is_send || p >= c->conn.npaths || m->inc != c->conn.path[p].inc || ended(c)) {
        return;
    }
    if (c->ret->path[p].state == R2_RET_R_SENT) {
        c->start->build[p].peer = m->addr;
        ret_move(c, p, R2_RET_R_JOIN);
        r2_build_submit(c, p, 1);
    } else if (c->ret->path[p].state == R2_RET_NONE && c->fo.path[p].state == FO_UP) {
        send(c, p, FO_MSG_OPEN_UP); /* it was lost */
    } else if (c->ret->path[p].state == R2_RET_NONE && c->fo.path[p].state == FO_FENCED) {
        send_ended(c, p, m->inc);
    }
}

void r2_reconnect_on_open_up(struct r2_comm *c, const struct fo_open *m)
{
    int p = m->path;

    if (c->is_send && p < c->conn.npaths && m->inc == c->conn.path[p].inc &&
        c->ret->path[p].state == R2_RET_S_SENT && !ended(c)) {
        stands(c, p);
    }
}

int r2_reconnect_on_over(struct r2_comm *c, int p, uint32_t inc)
{
    if (p >= c->conn.npaths || inc != c->conn.path[p].inc || c->ret->path[p].state == R2_RET_NONE) {
        return 0;
    }
    if (c->ret->path[p].state == R2_RET_S_SENT || c->ret->path[p].state == R2_RET_R_SENT) {
        give_up(c, p, "the peer gave it up", r2_now(c->inst));
    }
    return 1;
}
