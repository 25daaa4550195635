/* Probes over a probe queue pair, and what an answer means, or none (docs/health.md).
 * Service thread. */
#include <stdbool.h>
#include <stdio.h>

#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_cross.h"
#include "r2_load.h"
#include "r2_loopback.h"
#include "r2_pair.h"
#include "r2_pair_int.h"
#include "r2_probation.h"
#include "r2_watch.h"

#define MEASURE_FADE 8
#define CROSS_PROBE                                                                                \
    8 /* x T_probe: a cross pair's first answer; then its queue pair is stopped, long before RC's  \
         time-out, which monitors count */
#define HURRY_NS                                                                                   \
    R2_MS(100) /* a probe that nobody waits for is looked after closely for so long: its time is   \
               measured */

#define UNHURRIED_NS                                                                               \
    (PROBE_QP_TIMEOUT_NS / 4 * 3) /* ... and is given up then, where the one before was not        \
                                     answered: RC would repeat it, twice, which monitors count */
#define LATEST_NS (PROBE_QP_TIMEOUT_NS - PROBE_QP_TIMEOUT_NS / 16) /* RC repeats by time soon */

void r2_pair_probe_move(struct r2_pair *pair, enum r2_probe_state to)
{
    static const char *const names[R2_PROBE_STATES] = {"idle", "out", "counted", "timed", "good"};
    static const unsigned char legal[R2_PROBE_STATES][R2_PROBE_STATES] = {
        [R2_PROBE_IDLE] = {[R2_PROBE_OUT] = 1, [R2_PROBE_COUNTS] = 1},
        [R2_PROBE_OUT] = {[R2_PROBE_IDLE] = 1, [R2_PROBE_COUNTS] = 1},
        [R2_PROBE_COUNTS] = {[R2_PROBE_IDLE] = 1, [R2_PROBE_TIMED] = 1},
        [R2_PROBE_TIMED] = {[R2_PROBE_IDLE] = 1, [R2_PROBE_COUNTS] = 1, [R2_PROBE_GOOD] = 1},
        [R2_PROBE_GOOD] = {[R2_PROBE_IDLE] = 1, [R2_PROBE_COUNTS] = 1},
    };
    enum r2_probe_state from = pair->probe.state;

    if (from == to) {
        return;
    }
    if (!legal[from][to]) {
        R2_WARN("probe over NIC pair %u-%u cannot go from %s to %s", pair->nic, pair->peer_nic,
                names[from], names[to]);
        return;
    }
    R2_TRACE("probe over NIC pair %u-%u, incarnation %u: %s -> %s", pair->nic, pair->peer_nic,
             pair->inc, names[from], names[to]);
    pair->probe.state = to;
}

/*
 * A packet behind the lost ones is what makes RC repeat them. Half of the queue is kept from what
 * is posted again and again: a host that stood still would else find a full one when it is back,
 * and be given up before RC repeats by time. @asked: somebody wants an answer now, and the way may
 * be good again that lost all before; a quarter is left to the time that counts.
 */
static bool has_room(const struct r2_pair *pair, bool asked)
{
    unsigned out = probe_qp_out(&pair->qp);

    return pair->probe.state >= R2_PROBE_TIMED || out < PROBE_QP_DEPTH / 2 ||
           (asked && out < PROBE_QP_DEPTH / 4 * 3);
}

static void post(struct r2_pair *pair, uint64_t clock, bool asked)
{
    pair->probe.post_at = clock + R2_MS(pair->inst->cfg.t_probe_ms) / 4;
    pair->probe.posted += has_room(pair, asked) && probe_qp_post(&pair->qp, clock) == 0;
    if (r2_pair_is_judged(pair)) {
        r2_load_tick(pair, clock);
    }
}

void r2_pair_begin(struct r2_pair *pair, uint64_t clock, uint64_t limit)
{
    if (!r2_pair_is_probing(pair) && probe_qp_poll(&pair->qp) < 0) {
        pair->probe.wanted =
            limit ? limit
                  : pair->probe.wanted; /* it broke some time ago: no evidence of anything now */
        r2_pair_again(pair);
        return;
    }
    pair->inst->watch.probing = 1;
    if (limit || !r2_pair_is_probing(pair)) {
        pair->probe.requested_at = clock;
    }
    pair->probe.late &= r2_pair_is_probing(pair);
    if (!r2_pair_is_probing(pair) && !limit) {
        r2_pair_probe_move(pair, R2_PROBE_OUT);
    } else if (limit) {
        r2_pair_probe_move(pair, R2_PROBE_COUNTS);
        pair->announce.answer = 1; /* the peer's process is queried, too: whether its end of the
                                      queue pair is in order */
        pair->probe.announced = 0;
        pair->announce.repeat.interval = R2_MS(pair->inst->cfg.t_repeat_ms);
        pair->probe.suspect_at = clock;
        pair->probe.posted = 0;
        pair->probe.limit = limit;
        pair->probe.from = clock;
        pair->ways.witness_at = 0;
        r2_load_begin(pair);
    }
    post(pair, clock, true);
}

void r2_pair_send_probe(struct r2_pair *pair, uint64_t clock, uint64_t limit)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    if (s == IB_NIC_FATAL || s == IB_NIC_GONE || r2_cross_hopeless(pair)) {
        return; /* not touched any more, whoever asks */
    }
    if (r2_pair_ready(pair)) {
        if (!r2_pair_is_judged(pair)) {
            r2_pair_begin(pair, clock, limit);
        }
    } else {
        pair->probe.wanted = limit > pair->probe.wanted ? limit : pair->probe.wanted;
        if (r2_pair_failed(pair)) {
            r2_pair_again(pair);
        } else {
            pair->announce.repeat.at = 0;
        }
    }
    r2_inst_wake(pair->inst);
}

/* An incarnation ends by silence only where another path can take over: on the last one waiting
 * costs nothing that ending would save. A path that was drained takes over, too, where no other is
 * left.
 */
static int end_incarnations(struct r2_comm *c, const struct r2_pair *pair)
{
    struct ib_fault_info info = {.fault = IB_FAULT_SILENT};
    int n = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];

        if (path->nic == pair->nic && path->peer_nic == pair->peer_nic && ib_conn_up(&c->conn, p) &&
            (r2_watch_others(c, ib_conn_pair(&c->conn, p)) || r2_probation_has_spare(c))) {
            fo_fault(&c->fo, p, &info);
            n++;
        }
    }
    return n;
}

static void end_all(struct r2_pair *pair, const char *how)
{
    struct r2_inst *inst = pair->inst;
    int n = 0;

    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        if (atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE ||
            atomic_load_explicit(&c->state.close, memory_order_relaxed) != R2_CLOSE_OPEN) {
            continue;
        }
        r2_comm_visit(c);
        if (c->fo.error == R2_OK && !c->fo.bye.peer) {
            n += end_incarnations(c, pair);
        }
        r2_comm_unvisit(c);
    }
    r2_log_write(n ? R2_LOG_WARN : R2_LOG_INFO, __FILE__, __LINE__,
                 "NIC %s - NIC %u of %s: %s, %d connections moved", inst->nics.nic[pair->nic].name,
                 pair->peer_nic, inst->oob->ops->peer_str(pair->peer->oob), how, n);
}

/* The probe was not answered. */
static void dead(struct r2_pair *pair, uint64_t clock, const char *what)
{
    char how[120], ends[48];

    r2_load_print(pair, clock, ends, sizeof(ends));
    snprintf(how, sizeof(how), "%s (%u probes in %llu ms; %s)", what, pair->probe.posted,
             (unsigned long long)((clock - pair->probe.suspect_at) / 1000000), ends);
    r2_pair_give_up(pair);
    pair->probe.wanted = 0;
    if (r2_cross_hopeless(pair)) {
        return; /* rails need not reach each other */
    }
    pair->probe.silent_at = clock;
    pair->probe.silent = 1;
    pair->ways.silent = 1; /* it is asked over others next */
    if (r2_cross_carries(pair)) {
        R2_NOTIFY(pair->inst, on_pair, pair, R2_PAIR_SILENT, clock - pair->probe.suspect_at);
    }
    end_all(pair, how);
}

void r2_pair_on_silent_report(struct r2_pair *pair, uint64_t silent, const char *who)
{
    struct r2_inst *inst = pair->inst;
    uint64_t alive;
    char how[120];

    if (!inst->cfg.watchdog || !inst->cfg.failover) {
        return;
    }
    alive = r2_load_done_at(pair);
    alive = pair->probe.last_ok > alive ? pair->probe.last_ok : alive;
    if (alive && inst->watch.clock - alive <= silent) {
        r2_pair_send_probe(pair, inst->watch.clock,
                           0); /* it answered here since: the fault is not that of the ports */
        return;
    }
    snprintf(how, sizeof(how), "no answer to another process of this host (%s)", who);
    if (pair->build.state == R2_PAIR_JOINED) {
        r2_pair_give_up(pair);
        pair->probe.wanted = 0;
        pair->probe.silent_at = inst->watch.clock;
        pair->probe.silent = 1;
    }
    end_all(pair, how);
}

/* The longest, fading. */
static void longest(uint64_t *time, uint64_t took)
{
    *time = took > *time ? took : *time - (*time - took) / MEASURE_FADE;
}

/*
 * How long the queues on the way are. What RC's time-out repeated (half of it: our clock may have
 * stood) says nothing of them, and four times that would hide a NIC that dies for seconds.
 */
static void measure(struct r2_pair *pair, uint64_t took)
{
    if (took < PROBE_QP_TIMEOUT_NS / 2) {
        longest(&pair->probe.slowest, took);
    }
}

/* The peer asks whether the way is good: by an answer to what was posted since. One to what went
 * out before may have crossed before the way broke, and stood in a queue: another one is posted. */
static void report(struct r2_pair *pair, uint64_t clock)
{
    bool late = pair->announce.owes && pair->qp.answered < pair->announce.owes_since;

    pair->probe.check = late;
    if (late) {
        pair->probe.checked_at = clock;
        r2_pair_begin(pair, clock, 0);
        return;
    }
    pair->announce.works |= pair->announce.owes;
    pair->announce.answer |= pair->announce.owes;
    pair->announce.owes = 0;
}

static void answered(struct r2_pair *pair, uint64_t clock)
{
    int first = pair->probe.last_ok == 0;

    if (!pair->probe.late) {
        measure(pair, clock - pair->probe.requested_at);
    }
    longest(&pair->probe.brisk, r2_elapsed(clock, pair->qp.answered));
    pair->probe.last_ok = clock;
    pair->probe.answers++;
    pair->build.wait = pair->build.at = 0;
    r2_pair_probe_move(pair, R2_PROBE_IDLE);
    pair->probe.unanswered = pair->probe.anew = 0;
    report(pair, clock);
    R2_NOTIFY(pair->inst, on_pair, pair, first ? R2_PAIR_FIRST : R2_PAIR_ANSWERED, 0);
    r2_cross_answered(pair, first);
}

/* What failed was out for as long as RC waits before the peer's process said that its end is in
 * order: that is the time in which that process, or its host, stood still. */
static bool stood_before(const struct r2_pair *pair)
{
    const struct probe_lane *l = pair->qp.lane;
    uint64_t since = l[0].waits;

    if (l[1].failed && l[1].waits < since) {
        since = l[1].waits;
    }
    /* 0: its library took no post */
    return since && r2_elapsed(pair->probe.from, since) >= PROBE_QP_TIMEOUT_NS / 2;
}

/*
 * The queue pair itself failed. That is evidence only if it was made for this probe and never
 * answered: any other may have broken alone, or its other end, or long ago. What our own NIC cannot
 * send needs no word about the other end, which may be as unable, and would never be in order.
 */
static void broken(struct r2_pair *pair, uint64_t clock)
{
    if (!r2_pair_is_judged(pair)) {
        pair->announce.answer =
            pair->probe.check; /* RC decides about the data, or the next suspicion */
        r2_pair_move(pair, R2_PAIR_DEAD);
    } else if (pair->probe.last_ok == 0 &&
               ((pair->probe.state >= R2_PROBE_TIMED && !stood_before(pair)) || pair->qp.unable)) {
        dead(pair, clock, "probes fail");
    } else {
        pair->probe.unanswered = 1;
        r2_pair_again(pair);
    }
}

/*
 * The peer's probe went over the same way and back, and our NIC sends from queue pairs that it
 * had before (a new one says nothing about these).
 */
static bool way_is_good(const struct r2_pair *pair)
{
    const struct r2_loopback *l = &pair->inst->diagnosis.loop[pair->nic];

    return pair->probe.state == R2_PROBE_GOOD && l->questions != pair->probe.loops &&
           l->outcome == PROBE_OK && !l->fresh;
}

/*
 * The time for an answer is over. RC refuses a gap once: where a probe and the refusal of those
 * behind it are lost, the queue pair stands still until its time-out, though the way is good. But
 * acknowledgements may be lost one way for good, so that puts the verdict off once only.
 */
static void silent(struct r2_pair *pair, uint64_t clock)
{
    if (r2_ways_leave(pair, clock)) {
        return;
    }
    if (!way_is_good(pair) || pair->probe.anew) {
        dead(pair, clock, "no answer");
        return;
    }
    R2_INFO(
        "NIC %s - NIC %u of %s: no answer, but the peer has one: probed again on a new queue pair",
        pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
        pair->inst->oob->ops->peer_str(pair->peer->oob));
    pair->probe.anew = pair->probe.unanswered = 1;
    r2_pair_rebuild(pair); /* no back-off: that is for what cannot be made */
}

/* Somebody's verdict waits for the answer, here or at the other end: a lost packet must not decide
 * it. */
static int hurried(const struct r2_pair *pair, uint64_t clock)
{
    return r2_pair_is_judged(pair) ||
           (pair->probe.check && clock - pair->probe.checked_at < HURRY_NS);
}

/*
 * Who comes back answers the next one, and so all before it: RC would repeat it by time,
 * which is late, and counted by monitors. The first probe of all is left to RC: a packet of it
 * was lost, at most.
 */
static bool is_due_unhurried(const struct r2_pair *pair, uint64_t clock)
{
    return (pair->probe.posted > 1 || pair->probation.interest) &&
           clock >= pair->probe.post_at + UNHURRIED_NS / 4;
}

/*
 * A queue pair over which nothing has been answered, and not the pair's first one: it is given up
 * before RC repeats by time. The end that wants the pair back gives up sooner (r2_probation.c):
 * this one may have answers under way that it waits for.
 */
static bool is_hopeless(const struct r2_pair *pair, uint64_t clock)
{
    uint64_t limit = pair->build.wait ? UNHURRIED_NS : LATEST_NS;

    return !r2_pair_is_judged(pair) &&
           (pair->build.wait || (pair->probe.last_ok == 0 && pair->probe.posted > 1)) &&
           clock - pair->probe.requested_at >= limit;
}

/*
 * No verdict before the peer's process has announced that its end of the queue pair is in order.
 * That is no loss: the incarnations could not be settled without that process either, and it may be
 * the process that is stopped or gone.
 */
static void watch_answer(struct r2_pair *pair, uint64_t clock)
{
    int r = probe_qp_poll(&pair->qp);

    if (r > 0) {
        answered(pair, clock);
    } else if (r < 0) {
        broken(pair, clock);
    } else if (pair->probe.state >= R2_PROBE_TIMED && clock >= r2_load_deadline(pair, clock)) {
        silent(pair, clock);
    } else if (is_hopeless(pair, clock)) {
        pair->announce.answer = pair->probe.check; /* as in broken() */
        r2_pair_give_up(pair);
    } else if (clock >= pair->probe.post_at &&
               (hurried(pair, clock) || is_due_unhurried(pair, clock))) {
        pair->probe.late |= !hurried(pair, clock);
        if (r2_ways_on_late(pair, clock)) {
            return;
        }
        post(pair, clock, false);
    }
}

static enum r2_pairs_want wants(const struct r2_pair *pair, uint64_t clock)
{
    if (r2_pair_is_probing(pair)) {
        return hurried(pair, clock) || clock - pair->probe.requested_at < HURRY_NS ? R2_PAIRS_SOON
                                                                                   : R2_PAIRS_TICKS;
    }
    return probe_qp_out(&pair->qp) || pair->ways.suspect ? R2_PAIRS_TICKS : R2_PAIRS_NOTHING;
}

enum r2_pairs_want r2_pairs_watch(struct r2_inst *inst, uint64_t clock)
{
    enum r2_pairs_want all = R2_PAIRS_NOTHING;

    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        enum r2_pairs_want one;

        if (pair->peer == NULL) {
            continue;
        }
        if (r2_pair_ready(pair) && !pair->probe.greeted) {
            uint64_t limit = pair->probe.wanted       ? pair->probe.wanted
                             : r2_cross_carries(pair) ? 0
                                                      : CROSS_PROBE * R2_MS(inst->cfg.t_probe_ms);

            r2_probation_soon(pair);
            pair->probe.greeted = 1;
            pair->probe.wanted = 0;
            r2_pair_begin(pair, clock, limit);
        }
        if (r2_pair_is_probing(pair)) {
            watch_answer(pair, clock);
        }
        r2_ways_check_probe(pair, clock);
        one = wants(pair, clock);
        all = one > all ? one : all;
    }
    return all;
}
