/* The watchdog (docs/health.md): which connections and paths are looked at, when, and what the two
 * ends ask each other. What the silence of a path means: r2_watch_path.c. Service thread. */
#include "r2_watch.h"

#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_load.h"
#include "r2_pair.h"
#include "r2_questions.h"
#include "r2_stall.h"
#include "r2_still.h"
#include "r2_tail.h"
#include "r2_watch_int.h"

#define PROBE_STEP      R2_MS(1) /* while a probe is out */
#define CTS_REQUEST_MAX R2_MS(1000)
#define SILENT_PROCESS  R2_MS(3000) /* words repeated up to every second went unanswered */
#define CTL_FEW         8 /* x T_suspect, for control writes of which none need be signaled */
#define REST            R2_MS(250) /* nothing under way: no turn for so long, if nobody wants one */
#define QUIET_MIN                                                                                  \
    100 /* ticks without work before a path is taken off the list, which takes its gate */

static int outstanding(const struct r2_comm *c, int p)
{
    return IB_RLX_GET(c->conn.path[p].sq.used) ||
           (c->is_send && IB_RLX_GET(c->tx->sposted) > IB_RLX_GET(c->tx->sack));
}

bool r2_watch_is_watched(const struct r2_comm *c)
{
    return atomic_load_explicit(&c->state.setup, memory_order_acquire) == R2_SETUP_DONE &&
           atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN;
}

/* Gate held. 0: no part of @p waits for R alone. */
static int send_delivery_query(struct r2_comm *c, int p)
{
    union fo_body b = {
        .delivery_query = {
            .dst = c->fo.peer, .src = c->id, .inc = c->conn.path[p].inc, .path = (uint8_t)p}};

    b.delivery_query.mask =
        ib_send_oldest_live(c->tx, p, c->conn.path[p].inc, &b.delivery_query.seq);
    if (b.delivery_query.mask) {
        r2_peer_emit(c->inst, c->peer, FO_MSG_DELIVERY_QUERY, &b);
    }
    return b.delivery_query.mask != 0;
}

uint64_t r2_watch_silence(const struct r2_comm *c, int p)
{
    uint64_t silence = probe_watch_silence(&c->watch->path[p], c->inst->watch.clock);

    return silence ? silence + c->inst->watch.lost - c->watch->lost[p] : 0;
}

/* The NICs have done their part, and the process at the other end neither takes it nor answers for
 * so long: people want to know which one it is. */
static void silent_process(struct r2_comm *c, int p)
{
    struct r2_peer *peer = c->peer;
    uint64_t silence = probe_watch_silence(&c->watch->path[p], c->inst->watch.clock);

    uint64_t now = r2_now(c->inst);

    if (silence < SILENT_PROCESS || peer->gossip.blamed ||
        r2_elapsed(now, peer->last_contact) < SILENT_PROCESS) {
        return;
    }
    if (peer->channel.hello_at <=
        peer->last_contact) { /* DELIVERY_QUERY asks for no answer: this does */
        r2_load_request(c->inst, peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);
        peer->channel.hello_at = now;
    } else if (r2_elapsed(now, peer->channel.hello_at) >= SILENT_PROCESS) {
        R2_NOTIFY(c->inst, on_peer_silent, c->inst, peer);
    }
}

/* Whether path @p still has something to wait for. Gate held. */
static int check_send(struct r2_comm *c, int p)
{
    struct ib_path *path = &c->conn.path[p];
    struct probe_pulse s;

    ib_send_progress(c->tx);
    s = r2_watch_pulse(c, p);
    if (s.moved != c->watch->path[p].moved) {
        return 1;
    }
    if (path->sq.used) {
        r2_watch_on_silence(c, p, &s);
        return 1;
    }
    if (!send_delivery_query(c, p)) {
        return 0;
    }
    silent_process(c, p);
    if (r2_watch_may_end(c, p)) { /* R may be slow, its acknowledgement lost, or its NIC dead behind
                             its own ACK: R can tell */
        r2_watch_probe_path(c, p);
    }
    return 1;
}

/* R: our own write moves nothing. Gate held. */
static void tail_probe(struct r2_comm *c, int p)
{
    uint64_t wrs = c->conn.path[p].count.wrs;

    ib_recv_tail_probe(c->rx, p);
    c->watch->path[p].moved += c->conn.path[p].count.wrs - wrs;
}

/* The confirming write is a probe, too: half of T_probe without its completion, and the pair is
 * probed. */
static int check_recv(struct r2_comm *c, int p)
{
    struct probe_watch *w = &c->watch->path[p];
    int waiting = ib_recv_confirm(c->rx, p);
    struct probe_pulse s = r2_watch_pulse(c, p);

    if (waiting && s.moved == w->moved) {
        tail_probe(c, p);
        r2_watch_on_silence(c, p, &s);
    } else if (!waiting && c->conn.path[p].sq.used) {
        w->moved = s.moved;
        w->poll_at = c->inst->watch.clock + R2_MS(c->inst->cfg.t_probe_ms) / 2;
    }
    return c->conn.path[p].sq.used != 0;
}

/* R: control writes of path @p that have completed; without the gate as of a moment ago. */
static uint64_t ctl_done(const struct r2_comm *c, int p)
{
    return IB_RLX_GET(c->conn.path[p].count.wrs) - (uint64_t)IB_RLX_GET(c->conn.path[p].sq.used);
}

/*
 * R: control writes of path @p stand still though things arrive, which says nothing of them: their
 * last packet is lost, or the refusal of those behind it. Nothing is held against the NICs, which
 * carry. Gate held.
 */
static void check_ctl(struct r2_comm *c, int p)
{
    struct r2_pair *pair =
        r2_pair_find(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);
    struct probe_watch *w = &c->watch->ctl[p].watch;

    ib_recv_progress(c->rx);
    if (!ib_conn_up(&c->conn, p) || ctl_done(c, p) != w->moved) {
        return;
    }
    tail_probe(c, p);
    if (c->watch->ctl[p].confirms != w->moved + 1) { /* their silence counts from here */
        c->watch->ctl[p].confirms = w->moved + 1;
        w->moved_at = c->inst->watch.clock;
        w->answered_at = 0;
    }
    if (ib_conn_up(&c->conn, p) && r2_tail_may_end(c, p) && pair &&
        !r2_watch_end_if_lost(c, p, w, pair, 0)) {
        r2_tail_probe_last(pair);
    }
}

static void tick_ctl(struct r2_comm *c, int p, uint64_t clock, uint64_t t_suspect)
{
    struct probe_watch *w = &c->watch->ctl[p].watch;
    int used = IB_RLX_GET(c->conn.path[p].sq.used);
    struct probe_pulse s = {.moved = ctl_done(c, p)};

    if (used == 0) {
        probe_watch_rest(w);
        return;
    }
    /* of fewer none may be signaled, and asking takes the gate of a connection that is well */
    if (used <= IB_CTL_SIGNAL && c->watch->ctl[p].confirms != s.moved + 1) {
        t_suspect *= CTL_FEW;
    }
    if (!probe_watch_tick(w, clock, &s, t_suspect)) {
        return;
    }
    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer) {
        check_ctl(c, p);
    }
    r2_comm_unvisit(c);
}

/* @silent 0: it was found idle for long, and is taken off the list unless something was posted just
 * now. */
static void check_path(struct r2_comm *c, int p, int silent)
{
    int more = 0;

    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer &&
        ib_conn_up(&c->conn, p)) {
        more = !silent ? outstanding(c, p) : c->is_send ? check_send(c, p) : check_recv(c, p);
    }
    if (!more) {
        IB_RLX_SET(c->conn.touched, c->conn.touched & ~(1u << p));
        probe_watch_rest(&c->watch->path[p]);
        c->watch->quiet[p] = 0;
    }
    r2_comm_unvisit(c);
}

/*
 * NCCL wants to send and finds no receive, for long. Usually the receiver is slow; but its CTS may
 * have been acknowledged by our NIC and lost behind that, and then nobody else would ever ask: R
 * has its acknowledgement, and we have nothing outstanding.
 */
static void tick_cts_request(struct r2_comm *c, uint64_t clock, uint64_t t_suspect)
{
    uint64_t misses = IB_RLX_GET(c->tx->misses), seen = IB_RLX_GET(c->tx->cts_seen);
    int waits = misses != c->watch->cts_request.misses && seen == c->watch->cts_request.seen;

    c->watch->cts_request.misses = misses;
    c->watch->cts_request.seen = seen;
    if (!waits || c->watch->cts_request.since == 0) {
        c->watch->cts_request.since = clock;
        c->watch->cts_request.wait = t_suspect;
        return;
    }
    if (clock - c->watch->cts_request.since < c->watch->cts_request.wait ||
        !r2_questions_may_ask(c)) {
        return;
    }
    c->watch->cts_request.since = clock;
    c->watch->cts_request.wait = 2 * c->watch->cts_request.wait < CTS_REQUEST_MAX
                                     ? 2 * c->watch->cts_request.wait
                                     : CTS_REQUEST_MAX;
    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->inst->cfg.watchdog && c->fo.error == R2_OK &&
        !c->fo.bye.peer && !c->fo.posting_stopped) {
        union fo_body b = {
            .cts_request = {.dst = c->fo.peer, .src = c->id, .seq = c->tx->cts_seen}};

        r2_peer_emit(c->inst, c->peer, FO_MSG_CTS_REQUEST, &b);
    }
    r2_comm_unvisit(c);
}

void r2_watch_on_cts_request(struct r2_comm *c, const struct fo_cts_request *m)
{
    if (c->is_send || !r2_watch_is_watched(c) || c->fo.error != R2_OK || c->fo.bye.peer) {
        return;
    }
    ib_recv_progress(c->rx);
    if (m->seq >= c->rx->ledger.rpost || !r2_questions_may_answer(c)) {
        return;
    }
    ib_recv_cts_again(c->rx, m->seq);
    for (int p = 0; p < c->conn.npaths; p++) { /* those of before went nowhere */
        if (c->conn.path[p].sq.used && c->watch->ctl[p].watch.moved_at) {
            check_ctl(c, p);
        }
    }
}

/* Without the gate, too: then as of a moment ago. */
static bool is_quiet(const struct r2_comm *c)
{
    return IB_RLX_GET(c->conn.touched) == 0 && !r2_still_waits(c) && !c->watch->stall.paths &&
           (!c->is_send || (IB_RLX_GET(c->tx->misses) == c->watch->cts_request.misses &&
                            IB_RLX_GET(c->tx->starved_since) == 0));
}

/* Found quiet for long: it is not looked at again before it is woken, unless that is now. */
static void rest(struct r2_comm *c)
{
    c->watch->rests = 0;
    r2_comm_visit(c);
    if (is_quiet(c)) {
        c->watch->still.since = c->watch->cts_request.since = 0;
        if (!c->is_send && IB_RLX_GET(c->rx->load.opened) != IB_RLX_GET(c->rx->count.messages)) {
            r2_comm_rest_expecting(c);
        } else {
            r2_comm_rest(c);
        }
    }
    r2_comm_unvisit(c);
}

/* Path @p is to be looked at now. What waits for R alone ends in a question, and is due in the next
 * tick where none may be asked. */
static bool is_silent(struct r2_comm *c, int p, uint64_t clock, const struct probe_pulse *s,
                      uint64_t t_suspect)
{
    struct probe_watch *w = &c->watch->path[p];
    uint64_t backoff = w->backoff;

    if (!probe_watch_tick(w, clock, s, t_suspect)) {
        if (w->moved_at == clock) {
            c->watch->lost[p] = c->inst->watch.lost;
        }
        return false;
    }
    if (c->is_send && IB_RLX_GET(c->conn.path[p].sq.used) == 0 && !r2_questions_may_ask(c)) {
        w->backoff = backoff;
        w->poll_at = clock;
        return false;
    }
    return true;
}

static void tick(struct r2_comm *c, uint64_t clock, uint64_t t_suspect)
{
    c->watch->rests = is_quiet(c) ? c->watch->rests + 1 : 0;
    if (c->watch->rests > QUIET_MIN) {
        rest(c);
        return;
    }
    if (c->watch->stall.paths) {
        r2_stall_tick(c);
    }
    r2_still_tick(c, clock);
    if (c->is_send) {
        tick_cts_request(c, clock, t_suspect);
        if (IB_RLX_GET(c->tx->starved_since)) {
            r2_comm_kick(c); /* the limit on that is checked in its step, and NCCL's thread cannot
                                ask for one */
        }
    }
    for (uint32_t m = IB_RLX_GET(c->conn.touched); m; m &= m - 1) {
        int p = __builtin_ctz(m);
        struct probe_pulse s = r2_watch_pulse(c, p);

        if (!outstanding(c, p)) {
            probe_watch_idle(&c->watch->path[p], clock, &s);
            if (++c->watch->quiet[p] > QUIET_MIN) {
                check_path(c, p, 0);
            }
            continue;
        }
        c->watch->quiet[p] = 0;
        if (is_silent(c, p, clock, &s, t_suspect)) {
            check_path(c, p, 1);
        }
        if (!c->is_send) {
            tick_ctl(c, p, clock, t_suspect);
        }
    }
}

/*
 * For how long our NIC has been said to have acknowledged parts that its completion queue does not
 * show. The first time they may be on their way; claimed again T_suspect later they are not: no
 * probe is needed, and none may be possible, since a hung driver builds no queue pair.
 */
static uint64_t delivery_claim_age(struct r2_comm *c, const struct fo_delivery_query *m)
{
    const struct r2_ledger *g = &c->rx->ledger;
    uint64_t clock = c->inst->watch.clock, since = c->watch->delivery_claim[m->path].since;
    const struct r2_ledger_entry *e = &g->entry[m->seq % R2_LEDGER_WINDOW];
    int lacks =
        m->seq >= g->acked && m->seq < g->rpost && (m->mask & ~(unsigned)(e->mask | e->seen));

    if (!lacks || since == 0 || c->watch->delivery_claim[m->path].seq != m->seq) {
        c->watch->delivery_claim[m->path].seq = m->seq;
        c->watch->delivery_claim[m->path].since = lacks ? clock : 0;
        return 0;
    }
    return r2_elapsed(clock, since);
}

void r2_watch_on_delivery_query(struct r2_comm *c, const struct fo_delivery_query *m)
{
    struct ib_fault_info info = {.fault = IB_FAULT_UNDELIVERED};
    /* both clocks move in ticks of a quarter: what S announces T_suspect apart may be heard a tick
     * closer */
    uint64_t t_claim = R2_MS(c->inst->cfg.t_suspect_ms) - R2_MS(c->inst->cfg.t_suspect_ms) / 4, age;
    int p = m->path;

    if (c->is_send || p >= c->conn.npaths || c->conn.path[p].inc != m->inc ||
        c->fo.error != R2_OK || c->fo.bye.peer || !r2_questions_may_answer(c)) {
        return;
    }
    ib_recv_progress(c->rx);
    if (!ib_conn_up(&c->conn, p)) {
        return;
    }
    ib_recv_confirm(
        c->rx, p); /* polls this very path, and S may wait for an acknowledgement that is lost */
    if (!r2_watch_is_watched(c)) {
        return;
    }
    if (m->seq < c->rx->ledger.acked) {
        ib_recv_send_acks(c->rx);
    }
    age = delivery_claim_age(c, m);
    if (!r2_watch_may_end(c, p)) {
        r2_watch_check_last(c, p, age, 1);
    } else if (age >= t_claim) {
        fo_fault(&c->fo, p, &info);
    } else if (c->watch->delivery_claim[p].since) {
        r2_watch_probe_path(c, p);
    }
}

void r2_watch_clock(struct r2_inst *inst, uint64_t now)
{
    uint64_t gone = r2_elapsed(now, inst->watch.last), most = R2_MS(inst->cfg.t_suspect_ms) / 2;

    most = inst->watch.rest > most ? inst->watch.rest : most;
    if (inst->watch.at) {
        inst->watch.clock += gone < most ? gone : most;
        inst->watch.lost += gone < most ? 0 : gone - most;
    }
    inst->watch.last = now;
}

/* Behind all of a turn: when the next one is. With nothing under way not before something wakes the
 * thread, or somebody who was told of this one wants another. */
static uint64_t next_turn(struct r2_inst *inst, uint64_t now, uint64_t step,
                          enum r2_pairs_want want)
{
    uint64_t rest = r2_earlier(r2_elapsed(inst->watch.wanted, now), REST);

    inst->watch.at = now + step;
    if (inst->watch.probing || want == R2_PAIRS_SOON) {
        inst->watch.at = now + (PROBE_STEP < step ? PROBE_STEP : step);
    } else if (want == R2_PAIRS_NOTHING && rest > step && r2_comms_sleep(inst)) {
        inst->watch.rest = rest;
    }
    inst->watch.probing = 0;
    return inst->watch.rest ? now + rest : inst->watch.at;
}

uint64_t r2_watch_step(struct r2_inst *inst, uint64_t now)
{
    uint64_t t_suspect = R2_MS(inst->cfg.t_suspect_ms), step = t_suspect / 4;
    struct r2_comm *c, *next;
    enum r2_pairs_want want;
    int ticks;

    r2_comms_turn(inst);
    inst->watch.rest = 0;
    if (r2_comm_first(inst) == NULL) {
        inst->watch.at = 0;
        return UINT64_MAX; /* nothing to protect: no wake-ups */
    }
    if (inst->watch.at && now < inst->watch.at && !inst->watch.probing) {
        return inst->watch.at;
    }
    inst->watch.probing = 0;
    want = r2_pairs_watch(inst, inst->watch.clock);
    ticks = inst->watch.clock >= inst->watch.tick;
    if (ticks) {
        inst->watch.tick = inst->watch.clock + step;
        r2_load_step(inst, now);
    }
    inst->watch.wanted = UINT64_MAX;
    R2_NOTIFY(inst, on_watch, inst, now, ticks ? step : 0);
    if (ticks) {
        for (c = r2_comms_awake(inst); c; c = next) {
            next = c->list.awake_next; /* it may be off the list then */
            if (r2_watch_is_watched(c)) {
                tick(c, inst->watch.clock, t_suspect);
            }
        }
    }
    return next_turn(inst, now, step, want);
}
