/* The watchdog (docs/health.md): which silence is probed, whom, and what the answer
 * means. Service thread. */
#include "r2_watch.h"

#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "r2_inband.h"
#include "r2_load.h"
#include "r2_pair.h"
#include "r2_probation.h"
#include "r2_questions.h"
#include "r2_stall.h"
#include "r2_still.h"
#include "r2_tail.h"
#include "r2_watch_int.h"

#define PROBE_STEP     R2_MS(1) /* while a probe is out */
#define WANT_MAX       R2_MS(1000)
#define SILENT_PROCESS R2_MS(3000) /* words repeated up to every second went unanswered */
#define CTL_FEW        8 /* x T_suspect, for control writes of which none need be signaled */
#define QUIET_MIN                                                                                  \
    100 /* ticks without work before a path is taken off the list, which takes its gate */

struct probe_pulse r2_watch_pulse(const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    struct probe_pulse s = {.moved = IB_RLX_GET(path->count.cqes)};

    if (c->is_send) {
        /* While work requests are out they alone count: acknowledgements of others do not tell that
         * these will end. The lowest bit keeps the two counts apart. */
        s.moved =
            IB_RLX_GET(path->sq.used) ? 2 * s.moved + 1 : 2 * (s.moved + IB_RLX_GET(c->tx->sack));
        s.done = IB_RLX_GET(path->count.bytes_done);
        s.posted = IB_RLX_GET(path->count.bytes);
        s.posted = s.posted > s.done ? s.posted : s.done; /* read apart from each other */
    } else {
        s.moved += IB_RLX_GET(path->count.wrs); /* steady control writes confirm each other */
    }
    return s;
}

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

/* What stands in the queues of a pair, as time: the longest of all connections over it. */
static uint64_t pair_expect(const struct r2_pair *pair)
{
    uint64_t longest = 0;

    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        if (!r2_watch_is_watched(c) || !c->is_send) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic) {
                struct probe_pulse s = r2_watch_pulse(c, p);
                uint64_t t = probe_watch_expect(&c->watch->path[p], &s);

                longest = t > longest ? t : longest;
            }
        }
    }
    return longest;
}

uint32_t r2_watch_others(const struct r2_comm *c, uint32_t paths)
{
    uint32_t others = c->conn.up & ~paths;

    for (uint32_t m = others & c->conn.last; m; m &= m - 1) {
        const struct ib_path *path = &c->conn.path[__builtin_ctz(m)];
        const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);

        if (pair == NULL || pair->probe.answers == 0) {
            others &= ~(1u << __builtin_ctz(m));
        }
    }
    return others;
}

/* Whether a verdict about path @p may end its incarnation: never the last one, where waiting costs
 * nothing that ending would save, unless a drained one would return in its place; nor while the
 * peer could not be notified, by the channel or over another NIC pair, which settlement needs. */
static bool may_move(const struct r2_comm *c, int p)
{
    return c->inst->cfg.watchdog && c->inst->cfg.failover &&
           (r2_watch_others(c, 1u << p) || r2_probation_has_spare(c)) &&
           (c->inst->oob->ops->peer_is_up(c->peer->oob) ||
            r2_inband_reaches(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic));
}

void r2_watch_give_up_last(struct r2_comm *c, int p, uint64_t silent)
{
    fo_fail(
        &c->fo, R2_ERR_COMM, "the last path, NIC %s - NIC %u, is silent for %llu ms; before it: %s",
        c->inst->nics.nic[c->conn.path[p].nic].name, c->conn.path[p].peer_nic,
        (unsigned long long)(silent / 1000000), c->fo.last_fault[0] ? c->fo.last_fault : "nothing");
    r2_comm_kick(c);
}

/* The last path, or all that are left are over one NIC pair: its incarnation goes on, but nobody
 * waits for ever. RC may never say anything, and then no other end would come. @silent: ns; @limit:
 * what any repair may take. */
static void last_path(struct r2_comm *c, int p, uint64_t silent, uint64_t limit)
{
    const struct r2_config *cfg = &c->inst->cfg;
    uint64_t give_up = R2_MS(cfg->t_give_up_ms);
    uint64_t still = r2_elapsed(c->inst->watch.clock, c->watch->still.since);

    silent = c->watch->still.since && still > silent
                 ? still
                 : silent; /* what R writes again moves its path alone */
    if (cfg->watchdog && cfg->failover && (c->conn.up & ~ib_conn_pair(&c->conn, p)) == 0 &&
        silent >= (give_up > limit ? give_up : limit)) {
        r2_watch_give_up_last(c, p, silent);
    }
}

void r2_watch_probe(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    if (inst->cfg.watchdog && !r2_pair_is_judged(pair)) {
        r2_pair_send_probe(
            pair, inst->watch.clock,
            probe_limit(R2_MS(inst->cfg.t_probe_ms), pair_expect(pair), pair->probe.slowest));
    }
}

/* Asks the NIC pair of path @p of @c; returns it, NULL when it has none. Gate held. */
static struct r2_pair *probe_path(struct r2_comm *c, int p)
{
    struct r2_inst *inst = c->inst;
    struct r2_pair *pair =
        r2_pair_find(inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);

    if (pair == NULL || !r2_pair_is_judged(pair)) { /* else a thousand connections would ask
                                             together, and count all queues each */
        inst->ports.poll_at = 0;                    /* the port may know: an event can get lost */
    }
    if (pair) {
        r2_watch_probe(pair);
    }
    return pair;
}

/* @w: the watch that finds path @p silent. Gate held. */
static bool end_if_lost(struct r2_comm *c, int p, struct probe_watch *w, struct r2_pair *pair,
                        uint64_t expect)
{
    struct ib_fault_info info = {.fault = IB_FAULT_TAIL};

    w->poll_at = r2_tail_poll_at(c->inst, w);
    if (!r2_tail_is_lost(c, p, w, pair, expect)) {
        return false;
    }
    r2_tail_on_end(c, p, pair);
    fo_fault(&c->fo, p, &info);
    return true;
}

/* Work requests of path @p without completion. Gate held. */
static void no_completion(struct r2_comm *c, int p, const struct probe_pulse *s)
{
    const struct r2_config *cfg = &c->inst->cfg;
    struct ib_fault_info info = {.fault = IB_FAULT_STALL};
    struct probe_watch *w = &c->watch->path[p];
    uint64_t silent = probe_watch_silence(w, c->inst->watch.clock), limit;
    bool tail = r2_tail_may_end(c, p);
    struct r2_pair *pair =
        r2_pair_find(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);

    r2_stall_see(c, p, silent);
    if (c->is_send && pair && pair->probe.answers) { /* writes of no bytes work there */
        ib_send_tail_probe(c->tx, &c->conn.path[p]);
    }
    if (!ib_conn_up(&c->conn, p)) {
        return; /* its queue pair took no post */
    }
    if (tail && end_if_lost(c, p, w, pair, probe_watch_expect(w, s))) {
        return;
    }
    limit = probe_stuck_limit(R2_MS(cfg->t_stuck_ms), (unsigned)cfg->ib_timeout,
                              probe_watch_expect(w, s));
    if (!may_move(c, p)) {
        if (tail && pair) {
            r2_tail_probe_last(pair);
        }
        last_path(c, p, silent, 2 * limit);
        return;
    }
    pair = probe_path(c, p);
    if (pair == NULL || !r2_pair_ready(pair) || pair->probe.last_ok <= w->moved_at) {
        limit *= 2; /* nobody could be probed: silence alone, beyond what RC needs for any repair
                       that is possible */
        if (r2_watch_others(c, ib_conn_pair(&c->conn, p)) == 0 &&
            !r2_probation_has_spare(
                c)) { /* the other queue pairs of this NIC pair are no way out */
            last_path(c, p, silent, limit);
            return;
        }
    }
    if (silent >= limit) {
        fo_fault(&c->fo, p, &info);
    }
}

/* Gate held. 0: no part of @p waits for R alone. */
static int send_suspect(struct r2_comm *c, int p)
{
    union fo_body b = {
        .suspect = {
            .dst = c->fo.peer, .src = c->id, .inc = c->conn.path[p].inc, .path = (uint8_t)p}};

    b.suspect.mask = ib_send_oldest_live(c->tx, p, c->conn.path[p].inc, &b.suspect.seq);
    if (b.suspect.mask) {
        r2_peer_emit(c->inst, c->peer, FO_MSG_SUSPECT, &b);
    }
    return b.suspect.mask != 0;
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
    if (peer->channel.hello_at <= peer->last_contact) { /* SUSPECT asks for no answer: this does */
        union fo_body b = {.load = {.nic = c->conn.path[p].nic,
                                    .peer_nic = c->conn.path[p].peer_nic,
                                    .flags = FO_LOAD_REQUEST}};

        r2_peer_emit(c->inst, peer, FO_MSG_LOAD, &b);
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
        no_completion(c, p, &s);
        return 1;
    }
    if (!send_suspect(c, p)) {
        return 0;
    }
    silent_process(c, p);
    if (may_move(c, p)) { /* R may be slow, its acknowledgement lost, or its NIC dead behind its own
                             ACK: R can tell */
        probe_path(c, p);
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
        no_completion(c, p, &s);
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
        !end_if_lost(c, p, w, pair, 0)) {
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
static void tick_want(struct r2_comm *c, uint64_t clock, uint64_t t_suspect)
{
    uint64_t misses = IB_RLX_GET(c->tx->misses), seen = IB_RLX_GET(c->tx->cts_seen);
    int waits = misses != c->watch->want.misses && seen == c->watch->want.seen;

    c->watch->want.misses = misses;
    c->watch->want.seen = seen;
    if (!waits || c->watch->want.since == 0) {
        c->watch->want.since = clock;
        c->watch->want.wait = t_suspect;
        return;
    }
    if (clock - c->watch->want.since < c->watch->want.wait || !r2_questions_may_ask(c)) {
        return;
    }
    c->watch->want.since = clock;
    c->watch->want.wait = 2 * c->watch->want.wait < WANT_MAX ? 2 * c->watch->want.wait : WANT_MAX;
    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->inst->cfg.watchdog && c->fo.error == R2_OK &&
        !c->fo.bye.peer && !c->fo.quiet) {
        union fo_body b = {.want = {.dst = c->fo.peer, .src = c->id, .seq = c->tx->cts_seen}};

        r2_peer_emit(c->inst, c->peer, FO_MSG_WANT, &b);
    }
    r2_comm_unvisit(c);
}

void r2_watch_on_want(struct r2_comm *c, const struct fo_want *m)
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
           (!c->is_send || (IB_RLX_GET(c->tx->misses) == c->watch->want.misses &&
                            IB_RLX_GET(c->tx->starved_since) == 0));
}

/* Found quiet for long: it is not looked at again before it is woken, unless that is now. */
static void rest(struct r2_comm *c)
{
    c->watch->rests = 0;
    r2_comm_visit(c);
    if (is_quiet(c)) {
        c->watch->still.since = c->watch->want.since = 0;
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
        tick_want(c, clock, t_suspect);
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
static uint64_t claim_age(struct r2_comm *c, const struct fo_suspect *m)
{
    const struct r2_ledger *g = &c->rx->ledger;
    uint64_t clock = c->inst->watch.clock, since = c->watch->claim[m->path].since;
    const struct r2_ledger_entry *e = &g->entry[m->seq % R2_LEDGER_WINDOW];
    int lacks =
        m->seq >= g->acked && m->seq < g->rpost && (m->mask & ~(unsigned)(e->mask | e->seen));

    if (!lacks || since == 0 || c->watch->claim[m->path].seq != m->seq) {
        c->watch->claim[m->path].seq = m->seq;
        c->watch->claim[m->path].since = lacks ? clock : 0;
        return 0;
    }
    return r2_elapsed(clock, since);
}

void r2_watch_on_suspect(struct r2_comm *c, const struct fo_suspect *m)
{
    struct ib_fault_info info = {.fault = IB_FAULT_CLAIM};
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
    age = claim_age(c, m);
    if (!may_move(c, p)) {
        last_path(c, p, age, 1);
    } else if (age >= t_claim) {
        fo_fault(&c->fo, p, &info);
    } else if (c->watch->claim[p].since) {
        probe_path(c, p);
    }
}

void r2_watch_clock(struct r2_inst *inst, uint64_t now)
{
    uint64_t gone = r2_elapsed(now, inst->watch.last), most = R2_MS(inst->cfg.t_suspect_ms) / 2;

    if (inst->watch.at) {
        inst->watch.clock += gone < most ? gone : most;
    }
    inst->watch.last = now;
}

uint64_t r2_watch_step(struct r2_inst *inst, uint64_t now)
{
    uint64_t t_suspect = R2_MS(inst->cfg.t_suspect_ms), step = t_suspect / 4;
    struct r2_comm *c, *next;
    int asking, ticks;

    if (r2_comm_first(inst) == NULL) {
        inst->watch.at = 0;
        return UINT64_MAX; /* nothing to protect: no wake-ups */
    }
    if (inst->watch.at && now < inst->watch.at && !inst->watch.probing) {
        return inst->watch.at;
    }
    inst->watch.probing = 0;
    asking = r2_pairs_watch(inst, inst->watch.clock);
    ticks = inst->watch.clock >= inst->watch.tick;
    if (ticks) {
        inst->watch.tick = inst->watch.clock + step;
        r2_load_step(inst, now);
    }
    R2_NOTIFY(inst, on_watch, inst, now, ticks ? step : 0);
    if (ticks) {
        for (c = r2_comms_awake(inst); c; c = next) {
            next = c->list.awake_next; /* it may be off the list then */
            if (r2_watch_is_watched(c)) {
                tick(c, inst->watch.clock, t_suspect);
            }
        }
    }
    inst->watch.at =
        now + ((asking || inst->watch.probing) && PROBE_STEP < step ? PROBE_STEP : step);
    inst->watch.probing = 0;
    return inst->watch.at;
}
