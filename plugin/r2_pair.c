#include "r2_pair_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "r2_cross.h"
#include "r2_drain.h"
#include "r2_host.h"
#include "r2_inband.h"
#include "r2_load.h"
#include "r2_log.h"
#include "r2_return.h"

#define MS(x)        ((uint64_t)(x)*1000000)
#define MEASURE_FADE 8
#define AGAIN_MIN_NS MS(100) /* between two attempts to make a queue pair that does not come to stand */
#define AGAIN_MAX_NS MS(10000)
#define CROSS_ASK    8         /* x T_probe: a cross pair's first answer; then its queue pair is stopped, long before RC's time-out, which monitors count */
#define HURRY_NS                                                                                                       \
    MS(100) /* a question that nobody waits for is looked after closely for so long: its time is measured */

#define UNHURRIED_NS                                                                                                   \
    (PROBE_QP_TIMEOUT_NS / 4 * 3) /* ... and is given up then, where the one before was not answered: RC would repeat it, twice, which monitors count */

static const char *const state_names[R2_PAIR_STATES] = {"new",       "building", "open", "connecting",
                                                        "connected", "broken",   "dead", "destroying"};

/* The only writer of the state. Row: from. */
static void pair_move(struct r2_pair *pair, enum r2_pair_state to)
{
    static const unsigned char legal[R2_PAIR_STATES][R2_PAIR_STATES] = {
        [R2_PAIR_NEW] = {[R2_PAIR_BUILD] = 1},
        [R2_PAIR_BUILD] = {[R2_PAIR_OPEN] = 1, [R2_PAIR_BROKEN] = 1},
        [R2_PAIR_OPEN] = {[R2_PAIR_JOIN] = 1, [R2_PAIR_DEAD] = 1, [R2_PAIR_DESTROY] = 1},
        [R2_PAIR_JOIN] = {[R2_PAIR_JOINED] = 1, [R2_PAIR_BROKEN] = 1},
        [R2_PAIR_JOINED] = {[R2_PAIR_DEAD] = 1, [R2_PAIR_DESTROY] = 1},
        [R2_PAIR_BROKEN] = {[R2_PAIR_DESTROY] = 1},
        [R2_PAIR_DEAD] = {[R2_PAIR_DESTROY] = 1},
        [R2_PAIR_DESTROY] = {[R2_PAIR_BUILD] = 1},
    };

    if (!legal[pair->state][to]) {
        R2_WARN("probe of NIC pair %u-%u cannot go from %s to %s", pair->nic, pair->peer_nic, state_names[pair->state],
                state_names[to]);
        return;
    }
    R2_TRACE("probe of NIC pair %u-%u, incarnation %u: %s -> %s", pair->nic, pair->peer_nic, pair->inc,
             state_names[pair->state], state_names[to]);
    pair->state = to;
    pair->asking = pair->verdict = 0;
    pair->say_at = 0;
    pair->say_interval = MS(pair->inst->cfg.t_repeat_ms);
}

/* --- jobs --- */

static void pair_done(struct ib_job *job);

static void submit(struct r2_pair *pair, enum r2_pair_state state, void (*run)(struct ib_job *))
{
    pair_move(pair, state);
    pair->rc = 0;
    pair->job.run = run;
    pair->job.done = pair_done;
    ib_workers_submit(pair->inst->workers, pair->inst->nics.nic[pair->nic].device_index, &pair->job);
}

static void build_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);
    uint32_t psn;

    pair->inst->env.random(pair->inst->env.arg, &psn, sizeof(psn));
    pair->rc =
        s == IB_NIC_FATAL || s == IB_NIC_GONE ? EIO : probe_qp_create(&pair->qp, &pair->inst->nics, pair->nic, psn);
    if (pair->rc == 0 && !pair->plain) {
        r2_inband_create(pair);
    }
}

static void join_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    pair->rc = probe_qp_connect(&pair->qp, &pair->inst->nics, pair->nic, &pair->peer_addr);
    if (pair->rc == 0) {
        r2_inband_connect(pair);
    }
}

static void destroy_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    probe_qp_destroy(&pair->qp, &pair->inst->nics);
    ib_inband_destroy(&pair->inband, &pair->inst->nics);
}

static void quiet_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    probe_qp_quiet(&pair->qp, &pair->inst->nics);
    ib_inband_quiet(&pair->inband, &pair->inst->nics);
}

static void end_run(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    ib_inband_quiet(&pair->inband, &pair->inst->nics);
}

/*
 * A queue pair on a shared receive queue takes the buffers along that it has filled and that nobody has looked at when it is destroyed: nothing may come in any
 * more, and what is there be taken, before it is.
 */
static void take_down(struct r2_pair *pair)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    submit(pair, R2_PAIR_DESTROY, pair->inband.qp && s != IB_NIC_FATAL && s != IB_NIC_GONE ? end_run : destroy_run);
}

/* It did not answer: what it has sent is not sent again for ever. */
static void give_up(struct r2_pair *pair)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    pair_move(pair, R2_PAIR_DEAD);
    if (s == IB_NIC_FATAL || s == IB_NIC_GONE) {
        return; /* not touched any more */
    }
    pair->job.run = quiet_run;
    pair->job.done = pair_done;
    ib_workers_submit(pair->inst->workers, pair->inst->nics.nic[pair->nic].device_index, &pair->job);
}

static void build(struct r2_pair *pair)
{
    pair->inst->pair_inc += 1 + (pair->inst->pair_inc + 1 == 0);
    pair->inc = pair->inst->pair_inc;
    pair->peer_inc = pair->peer_for = 0;
    pair->peer_inband_qpn = pair->peer_inband_psn = 0;
    pair->again = pair->answer = pair->check = 0;
    pair->owes = pair->tell = 0;
    pair->plain &= !r2_cross_carries(pair);
    pair->last_ok = pair->slowest = 0;
    pair->greeted = pair->silent = 0;
    submit(pair, R2_PAIR_BUILD, build_run);
}

static void pair_free(struct r2_pair *pair)
{
    struct r2_pair **p;

    for (p = &pair->inst->pairs; *p != pair; p = &(*p)->next) {
    }
    *p = pair->next;
    free(pair);
}

static void pair_done(struct ib_job *job)
{
    struct r2_pair *pair = (struct r2_pair *)job;

    r2_inband_built(pair);
    if (pair->state == R2_PAIR_DESTROY && pair->job.run == end_run) {
        r2_inband_quieted(pair);
        pair->job.run = destroy_run;
        ib_workers_submit(pair->inst->workers, pair->inst->nics.nic[pair->nic].device_index, &pair->job);
        return;
    }
    if (pair->state == R2_PAIR_DESTROY) {
        r2_inband_destroyed(pair);
        if (pair->peer == NULL) {
            pair_free(pair);
        } else {
            build(pair);
        }
        return;
    }
    if (pair->state == R2_PAIR_DEAD) {
        if (pair->peer == NULL || pair->again) {
            take_down(pair);
        }
        return;
    }
    if (pair->rc != 0) {
        R2_INFO("NIC pair %s - %u of %s has no probe: %s while %s", pair->inst->nics.nic[pair->nic].name,
                pair->peer_nic, pair->peer ? pair->inst->oob->ops->peer_str(pair->peer->oob) : "?", strerror(pair->rc),
                state_names[pair->state]);
        pair_move(pair, R2_PAIR_BROKEN);
    } else {
        pair_move(pair, pair->state == R2_PAIR_BUILD ? R2_PAIR_OPEN : R2_PAIR_JOINED);
    }
    if (pair->peer == NULL || pair->again) {
        take_down(pair);
    }
    r2_inst_wake(pair->inst);
}

void r2_pair_join(struct r2_pair *pair)
{
    submit(pair, R2_PAIR_JOIN, join_run);
}

void r2_pair_rebuild(struct r2_pair *pair)
{
    pair->again = 1;
    pair->wanted = pair->verdict ? pair->limit : pair->wanted;
    if (!pair->job.busy) {
        take_down(pair);
    }
}

void r2_pair_again(struct r2_pair *pair)
{
    uint64_t now = r2_now(pair->inst);

    if (now >= pair->again_at) {
        pair->again_wait = 2 * pair->again_wait < AGAIN_MIN_NS   ? AGAIN_MIN_NS
                           : 2 * pair->again_wait < AGAIN_MAX_NS ? 2 * pair->again_wait
                                                                 : AGAIN_MAX_NS;
        pair->again_at = now + pair->again_wait;
        r2_pair_rebuild(pair);
    } else if (pair->state == R2_PAIR_JOINED) {
        pair->wanted = pair->verdict ? pair->limit : pair->wanted;
        pair_move(pair, R2_PAIR_DEAD);
    }
}

/* --- who wants one --- */

struct r2_pair *r2_pair_find(const struct r2_inst *inst, const struct r2_peer *peer, int nic, int peer_nic)
{
    struct r2_pair *pair;

    for (pair = inst->pairs; pair && !(pair->peer == peer && pair->nic == nic && pair->peer_nic == peer_nic);
         pair = pair->next) {
    }
    return pair;
}

struct r2_pair *r2_pair_want(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic)
{
    return r2_pair_meet(inst, peer, nic, peer_nic, 0);
}

struct r2_pair *r2_pair_meet(struct r2_inst *inst, struct r2_peer *peer, int nic, int peer_nic, int plain)
{
    struct r2_pair *pair = r2_pair_find(inst, peer, nic, peer_nic);

    if (pair) {
        return pair;
    }
    pair = calloc(1, sizeof(*pair));
    if (pair == NULL) {
        return NULL; /* detection falls back on RC */
    }
    pair->inst = inst;
    pair->peer = peer;
    pair->nic = (uint8_t)nic;
    pair->peer_nic = (uint8_t)peer_nic;
    pair->plain = (uint8_t)plain;
    pair->next = inst->pairs;
    inst->pairs = pair;
    build(pair);
    return pair;
}

void r2_pairs_want(struct r2_comm *c)
{
    if (!c->inst->cfg.watchdog || !c->inst->cfg.failover) {
        return;
    }
    for (int p = 0; p < c->link.npaths; p++) {
        const struct ib_path *path = &c->link.path[p];
        struct r2_pair *pair;

        if (!ib_link_up(&c->link, p)) {
            continue;
        }
        r2_loop_want(c->inst, path->nic);
        r2_counters_want(c->inst, path->nic);
        pair = r2_pair_want(c->inst, c->peer, path->nic, path->peer_nic);
        if (pair && r2_pair_failed(pair)) {
            r2_pair_again(pair);
        }
    }
    r2_cross_want(c);
}

void r2_pair_renew(struct r2_pair *pair)
{
    if (r2_pair_failed(pair)) {
        if (!r2_cross_hopeless(pair)) {
            r2_pair_rebuild(pair);
        }
    } else {
        pair->say_at = 0;
        pair->answer = pair->state == R2_PAIR_JOINED;
    }
}

void r2_pair_leave(struct r2_pair *pair)
{
    give_up(pair);
    pair->wanted = 0;
}

void r2_pair_fail(struct r2_pair *pair)
{
    if (pair->state == R2_PAIR_JOINED && !pair->verdict) {
        give_up(pair);
    }
}

void r2_pairs_drop(struct r2_inst *inst, const struct r2_peer *peer)
{
    struct r2_pair *next;

    r2_locate_drop(inst, peer);
    for (struct r2_pair *pair = inst->pairs; pair; pair = next) {
        next = pair->next;
        if (pair->peer == peer) {
            pair->peer = NULL;
            if (!pair->job.busy) {
                take_down(pair);
            }
        }
    }
}

void r2_pairs_free(struct r2_inst *inst, uint64_t still_running)
{
    struct r2_pair **p = &inst->pairs;

    while (*p) {
        struct r2_pair *pair = *p;

        if (still_running >> inst->nics.nic[pair->nic].device_index & 1) {
            p = &pair->next; /* its job may be the one, and the driver would keep whoever calls it */
        } else {
            *p = pair->next;
            probe_qp_destroy(&pair->qp, &inst->nics);
            ib_inband_destroy(&pair->inband, &inst->nics);
            free(pair);
        }
    }
}

/* --- asking --- */

static void post(struct r2_pair *pair, uint64_t clock)
{
    pair->post_at = clock + MS(pair->inst->cfg.t_probe_ms) / 4;
    pair->posted += probe_qp_post(&pair->qp) == 0;
    if (pair->verdict) {
        r2_load_look(pair, clock);
    }
}

void r2_pair_begin(struct r2_pair *pair, uint64_t clock, uint64_t limit)
{
    if (!pair->asking && probe_qp_poll(&pair->qp) < 0) {
        pair->wanted = limit ? limit : pair->wanted; /* it broke some time ago: no evidence of anything now */
        r2_pair_again(pair);
        return;
    }
    pair->inst->watch_asked = 1;
    pair->asked_at = pair->asking && !limit ? pair->asked_at : clock;
    pair->asking = 1;
    if (limit) {
        pair->verdict = 1;
        pair->answer = 1; /* the peer's process is asked, too: whether its end of the queue pair is in order */
        pair->said = pair->in_order = pair->works = 0;
        pair->say_interval = MS(pair->inst->cfg.t_repeat_ms);
        pair->suspect_at = clock;
        pair->posted = 0;
        pair->limit = limit;
        pair->from = clock;
        r2_load_begin(pair);
    }
    post(pair, clock);
}

void r2_pair_ask(struct r2_pair *pair, uint64_t clock, uint64_t limit)
{
    enum ib_nic_state s = ib_nic_state_get(&pair->inst->nics.nic[pair->nic]);

    if (s == IB_NIC_FATAL || s == IB_NIC_GONE || r2_cross_hopeless(pair)) {
        return; /* not touched any more, whoever asks */
    }
    if (r2_pair_ready(pair)) {
        if (!pair->verdict) {
            r2_pair_begin(pair, clock, limit);
        }
    } else {
        pair->wanted = limit > pair->wanted ? limit : pair->wanted;
        if (r2_pair_failed(pair)) {
            r2_pair_again(pair);
        } else {
            pair->say_at = 0;
        }
    }
    r2_inst_wake(pair->inst);
}

/* A life ends by silence only where another path can take over: on the last one waiting costs nothing that ending would
 * save. A path that was drained takes over, too, where no other is left. */
static int end_lives(struct r2_comm *c, const struct r2_pair *pair)
{
    struct ib_fault_info info = {.fault = IB_FAULT_SILENT};
    int n = 0;

    for (int p = 0; p < c->link.npaths; p++) {
        const struct ib_path *path = &c->link.path[p];

        if (path->nic == pair->nic && path->peer_nic == pair->peer_nic && ib_link_up(&c->link, p) &&
            ((c->link.up & ~ib_link_pair(&c->link, p)) || r2_drain_spare(c))) {
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

    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->all_next) {
        if (c->peer != pair->peer || atomic_load_explicit(&c->setup, memory_order_relaxed) != R2_SETUP_DONE ||
            atomic_load_explicit(&c->close, memory_order_relaxed) != R2_CLOSE_OPEN) {
            continue;
        }
        r2_gate_visit(&c->gate);
        if (c->fo.error == R2_OK && !c->fo.peer_bye) {
            n += end_lives(c, pair);
        }
        r2_gate_unvisit(&c->gate);
    }
    r2_log_write(n ? R2_LOG_WARN : R2_LOG_INFO, __FILE__, __LINE__, "NIC %s - NIC %u of %s: %s, %d connections moved",
                 inst->nics.nic[pair->nic].name, pair->peer_nic, inst->oob->ops->peer_str(pair->peer->oob), how, n);
}

/* The question was not answered. */
static void dead(struct r2_pair *pair, uint64_t clock, const char *what)
{
    char how[120], ends[48];

    r2_load_print(pair, clock, ends, sizeof(ends));
    snprintf(how, sizeof(how), "%s (%u probes in %llu ms; %s)", what, pair->posted,
             (unsigned long long)((clock - pair->suspect_at) / 1000000), ends);
    give_up(pair);
    pair->wanted = 0;
    if (r2_cross_hopeless(pair)) {
        return; /* rails need not reach each other */
    }
    pair->silent_at = clock;
    pair->silent = 1;
    if (r2_cross_carries(pair)) {
        r2_host_say_pair(pair, clock - pair->suspect_at, 0);
    }
    end_all(pair, how);
}

void r2_pair_told_silent(struct r2_pair *pair, uint64_t silent, const char *who)
{
    struct r2_inst *inst = pair->inst;
    uint64_t alive;
    char how[120];

    if (!inst->cfg.watchdog || !inst->cfg.failover) {
        return;
    }
    alive = r2_load_done_at(pair);
    alive = pair->last_ok > alive ? pair->last_ok : alive;
    if (alive && inst->watch_clock - alive <= silent) {
        r2_pair_ask(pair, inst->watch_clock, 0); /* it answered here since: the fault is not that of the ports */
        return;
    }
    snprintf(how, sizeof(how), "no answer to another process of this host (%s)", who);
    if (pair->state == R2_PAIR_JOINED) {
        give_up(pair);
        pair->wanted = 0;
        pair->silent_at = inst->watch_clock;
        pair->silent = 1;
    }
    end_all(pair, how);
}

/*
 * How long the queues on the way are. What RC's time-out repeated (half of it: our clock may have stood) says nothing of them, and four times that
 * would hide a NIC that dies for seconds.
 */
static void measure(struct r2_pair *pair, uint64_t took)
{
    if (took < PROBE_QP_TIMEOUT_NS / 2) {
        pair->slowest = took > pair->slowest ? took : pair->slowest - (pair->slowest - took) / MEASURE_FADE;
    }
}

static void answered(struct r2_pair *pair, uint64_t clock)
{
    int first = pair->last_ok == 0;

    measure(pair, clock - pair->asked_at);
    pair->last_ok = clock;
    pair->answers++;
    pair->again_wait = pair->again_at = 0;
    pair->asking = pair->verdict = pair->check = pair->unanswered = pair->anew = 0;
    pair->tell |= pair->owes;
    pair->answer |= pair->owes;
    pair->owes = 0;
    r2_news_answered(pair);
    r2_cross_answered(pair, first);
}

/*
 * The queue pair itself failed. That is evidence only if it was made for this question and never answered: any other
 * may have broken alone, or its other end, or long ago. What our own NIC cannot send needs no word about the other end,
 * which may be as unable, and would never be in order.
 */
static void broken(struct r2_pair *pair, uint64_t clock)
{
    if (!pair->verdict) {
        pair->answer = pair->check; /* RC decides about the data, or the next suspicion */
        pair_move(pair, R2_PAIR_DEAD);
    } else if (pair->last_ok == 0 && (pair->in_order || pair->qp.unable)) {
        dead(pair, clock, "probes fail");
    } else {
        pair->unanswered = 1;
        r2_pair_again(pair);
    }
}

/*
 * The peer's question went over the same way and back, and our NIC sends from queue pairs that it had before (a new one says nothing about these).
 */
static int way_is_good(const struct r2_pair *pair)
{
    const struct r2_loop *l = &pair->inst->loop[pair->nic];

    return pair->works && l->questions != pair->loops && l->outcome == PROBE_OK && !l->fresh;
}

/*
 * The time for an answer is over. RC refuses a gap once: where a probe and the refusal of those behind it are lost, the queue pair stands still until
 * its time-out, though the way is good. But acknowledgements may be lost one way for good, so that puts the verdict off once only.
 */
static void silent(struct r2_pair *pair, uint64_t clock)
{
    if (!way_is_good(pair) || pair->anew) {
        dead(pair, clock, "no answer");
        return;
    }
    R2_INFO("NIC %s - NIC %u of %s: no answer, but the peer has one: asked again on a new queue pair",
            pair->inst->nics.nic[pair->nic].name, pair->peer_nic, pair->inst->oob->ops->peer_str(pair->peer->oob));
    pair->anew = pair->unanswered = 1;
    r2_pair_rebuild(pair); /* no back-off: that is for what cannot be made */
}

/* Somebody's verdict waits for the answer, here or at the other end: a lost packet must not decide it. */
static int hurried(const struct r2_pair *pair, uint64_t clock)
{
    return pair->verdict || (pair->check && clock - pair->checked_at < HURRY_NS);
}

/*
 * No verdict before the peer's process has said that its end of the queue pair is in order. That is no loss: the lives
 * could not be settled without that process either, and it may be the process that is stopped or gone.
 */
static void watch_answer(struct r2_pair *pair, uint64_t clock)
{
    int r = probe_qp_poll(&pair->qp);

    if (r > 0) {
        answered(pair, clock);
    } else if (r < 0) {
        broken(pair, clock);
    } else if (pair->verdict && pair->in_order && clock >= r2_load_deadline(pair, clock)) {
        silent(pair, clock);
    } else if (!pair->verdict && pair->again_wait && clock - pair->asked_at >= UNHURRIED_NS) {
        pair->answer = pair->check; /* as in broken() */
        give_up(pair);
    } else if (hurried(pair, clock) && clock >= pair->post_at) {
        post(pair, clock);
    }
}

int r2_pairs_watch(struct r2_inst *inst, uint64_t clock)
{
    int asking = 0;

    for (struct r2_pair *pair = inst->pairs; pair; pair = pair->next) {
        if (pair->peer == NULL) {
            continue;
        }
        if (r2_pair_ready(pair) && !pair->greeted) {
            uint64_t limit = pair->wanted ? pair->wanted : r2_cross_carries(pair) ? 0 : CROSS_ASK * MS(inst->cfg.t_probe_ms);

            r2_heal_soon(pair);
            pair->greeted = 1;
            pair->wanted = 0;
            r2_pair_begin(pair, clock, limit);
        }
        if (pair->asking) {
            watch_answer(pair, clock);
        }
        asking |= pair->asking && (hurried(pair, clock) || clock - pair->asked_at < HURRY_NS);
    }
    return asking;
}
