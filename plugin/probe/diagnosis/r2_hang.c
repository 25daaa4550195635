#include "r2_hang.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_still.h"
#include "probe/health/r2_watch.h"
#include "probe/probe_hang.h"
#include "probe/probe_line.h"
#include "r2_verdict.h"

#define CHANNEL_NS R2_MS(2000) /* a channel that has been away for so long is no channel */
#define TRIES      8           /* to say who we are, the first pause being this, doubling: */
#define TRY_NS     R2_MS(1000)
#define TURN_NS    R2_MS(500)   /* a turn that comes later counts as so late */
#define WARN_NS    R2_MS(60000) /* one warning in that time; the others are INFO */

struct r2_hang {
    struct probe_hang core;
    uint64_t clock, turn_at; /* ns, from 1: 0 means "not" with all times; r2_now() then */
    uint32_t round;
    uint64_t moved_at;  /* clock: when any connection did anything last */
    uint64_t warned_at; /* ns; 0: never */
    uint64_t said_at;   /* ... what is over when it is cleared */
    char said[PROBE_HANG_HOST];
};

/* The watch's clock stands for a thread that gets its turn late, too, as on a machine that has too
 * much to do; seconds are counted here, and of those in which this process stood only one turn.
 * Returns by how much it has moved. */
static uint64_t clock_move(struct r2_hang *h, uint64_t now)
{
    uint64_t gone = h->turn_at ? r2_earlier(r2_elapsed(now, h->turn_at), TURN_NS) : 0;

    h->clock += gone;
    h->turn_at = now;
    return gone;
}

/* --- what a connection waits for --- */

static bool is_in_flight(const struct r2_comm *c)
{
    return IB_RLX_GET(c->conn.up) == 0 || r2_still_has_posted(c);
}

/* The oldest receive that is not through is open to our program, which has not begun it: others of
 * its group may be sent, and more be wanted, and it is this process that is waited for. */
static bool is_own_turn(const struct r2_comm *c)
{
    uint64_t unmatched = IB_RLX_GET(c->tx->unmatched);

    return IB_RLX_GET(c->tx->sack) == unmatched && IB_RLX_GET(c->tx->cts_seen) > unmatched;
}

static enum r2_hang_state state_of_send(struct r2_comm *c)
{
    uint64_t misses = IB_RLX_GET(c->tx->misses), cts = IB_RLX_GET(c->tx->cts_seen);
    bool wants = misses != c->hang->misses && cts == c->hang->cts;
    bool posted = IB_RLX_GET(c->tx->sposted) > IB_RLX_GET(c->tx->sack);

    c->hang->misses = misses;
    c->hang->cts = cts;
    if (posted && is_in_flight(c)) {
        return R2_HANG_IN_FLIGHT;
    }
    if (is_own_turn(c)) {
        return R2_HANG_RESTS;
    }
    return posted ? R2_HANG_NO_ACK : wants ? R2_HANG_NO_CTS : R2_HANG_RESTS;
}

/* Control writes that have no completion are asked after by the watchdog, which tells those that
 * stand still from those that need none (r2_stall.h). */
static enum r2_hang_state state_of_recv(const struct r2_comm *c)
{
    if (IB_RLX_GET(c->rx->load.opened) == IB_RLX_GET(c->rx->count.messages)) {
        return R2_HANG_RESTS;
    }
    return IB_RLX_GET(c->conn.up) == 0 || c->watch->stall.paths ? R2_HANG_IN_FLIGHT
                                                                : R2_HANG_NO_DATA;
}

/* Counters that differ from those of the last look have moved: which of them is all the same. */
static uint64_t moved_of(const struct r2_comm *c)
{
    uint64_t sum = c->is_send ? IB_RLX_GET(c->tx->sack) + IB_RLX_GET(c->tx->cts_seen)
                              : IB_RLX_GET(c->rx->count.messages);

    for (int p = 0; p < c->conn.npaths; p++) {
        sum += c->is_send ? IB_RLX_GET(c->conn.path[p].count.cqes)
                          : IB_RLX_GET(c->conn.path[p].count.bytes);
    }
    return sum;
}

static void look(struct r2_comm *c, uint64_t clock)
{
    struct r2_hang_conn *h = c->hang;
    uint64_t moved = moved_of(c),
             posted = c->is_send ? IB_RLX_GET(c->tx->sposted) : IB_RLX_GET(c->rx->load.opened);
    enum r2_hang_state s = c->is_send ? state_of_send(c) : state_of_recv(c);

    if (moved != h->moved || posted != h->posted) {
        c->inst->diagnosis.hang->moved_at = clock;
    }
    if (s == R2_HANG_RESTS) {
        h->since = 0;
    } else if (h->since == 0 || moved != h->moved) {
        h->since = clock;
    }
    if (s != R2_HANG_IN_FLIGHT && s != R2_HANG_NO_ACK) {
        h->flight = 0;
    } else if (h->flight == 0 || moved != h->moved) {
        h->flight = clock;
    }
    h->moved = moved;
    h->posted = posted;
    h->state = (uint8_t)s;
}

/* --- whom this process waits for --- */

struct found {
    struct r2_peer *first; /* by hang.next: those that are waited for */
    uint64_t silent_since;
    struct r2_comm *silent;
};

/* What is in flight for short, a question to the NIC at the end of a long wait perhaps, is no
 * matter of the fabric's. Where it is, the process at the other end is asked as well: who stands
 * still with its NICs, or has lost its host, answers nothing. */
static void found_put(struct r2_inst *inst, struct found *f, struct r2_comm *c, uint64_t clock)
{
    struct r2_peer *peer = c->peer;

    if (c->hang->since == 0) {
        return;
    }
    if (c->hang->flight && clock - c->hang->flight >= inst->diagnosis.hang->core.after / 4) {
        if (f->silent == NULL || c->hang->flight < f->silent_since) {
            f->silent_since = c->hang->flight;
            f->silent = c;
        }
    }
    if (peer->hang.round != inst->diagnosis.hang->round) {
        peer->hang.round = inst->diagnosis.hang->round;
        peer->hang.next = f->first;
        f->first = peer;
    } else if (peer->hang.since <= c->hang->since) {
        return;
    }
    peer->hang.since = c->hang->since;
    peer->hang.comm = c;
}

/* One that has ended waits for nobody, whatever its counters say. */
static bool has_ended(struct r2_comm *c)
{
    bool ended;

    r2_comm_visit(c);
    ended = c->fo.error != R2_OK || c->fo.bye.peer || c->fo.posting_stopped || c->fo.closing;
    r2_comm_unvisit(c);
    return ended;
}

static void inspect_all(struct r2_inst *inst, uint64_t clock, struct found *f)
{
    inst->diagnosis.hang->round++;
    for (struct r2_comm *c = r2_comms_awake(inst); c; c = c->list.awake_next) {
        if (r2_watch_is_watched(c)) {
            look(c, clock);
            found_put(inst, f, c, clock);
        }
    }
    for (struct r2_comm *c = r2_comms_expecting(inst); c; c = c->list.awake_next) {
        if (r2_watch_is_watched(c)) {
            look(c, clock);
            found_put(inst, f, c, clock);
        }
    }
}

static struct probe_hang_who who_of(const struct r2_inst *inst, const struct r2_peer *peer)
{
    uint64_t id = inst->oob->ops->peer_uuid(peer->oob)[0];
    struct probe_hang_who who = {.id = id ? id : 1, .rank = peer->hang.rank, .pid = peer->hang.pid};

    snprintf(who.host, sizeof(who.host), "%s", peer->host);
    return who;
}

static int has_channel(const struct r2_inst *inst, const struct r2_peer *peer, uint64_t now)
{
    return peer->channel.lost == 0 || r2_elapsed(now, peer->channel.lost) < CHANNEL_NS ||
           r2_elapsed(now, peer->last_contact) < CHANNEL_NS;
}

/* The NIC of which a path stands still, or stood when it went down. */
static const char *nic_of(const struct r2_comm *c)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        if (IB_RLX_GET(c->conn.path[p].sq.used)) {
            return c->inst->nics.nic[c->conn.path[p].nic].name;
        }
    }
    return c->conn.npaths ? c->inst->nics.nic[c->conn.path[0].nic].name : NULL;
}

static void facts(struct r2_inst *inst, uint64_t clock, uint64_t now)
{
    struct probe_hang *h = &inst->diagnosis.hang->core;
    struct found f = {0};
    struct probe_hang_facts of = {0};

    inspect_all(inst, clock, &f);
    if (f.silent && has_ended(f.silent)) {
        f.silent->hang->flight = 0; /* and is not the oldest the next time */
        f.silent = NULL;
    }
    of.moved_at = inst->diagnosis.hang->moved_at;
    of.silent_since = f.silent ? f.silent_since : 0;
    of.nic = f.silent ? nic_of(f.silent) : NULL;
    of.peer = f.silent && who_of(inst, f.silent->peer).id != h->self.id ? f.silent->peer : NULL;
    probe_hang_begin(h, clock, &of);
    for (struct r2_peer *peer = f.first; peer; peer = peer->hang.next) {
        struct probe_hang_wait w = {.peer = peer,
                                    .who = who_of(inst, peer),
                                    .since = peer->hang.since,
                                    .contacts = peer->channel.messages,
                                    .knows = peer->hang.knows,
                                    .up = (uint8_t)has_channel(inst, peer, now)};

        if (clock - peer->hang.since < h->after / 4 || !has_ended(peer->hang.comm)) {
            probe_hang_wait(h, &w);
        } else {
            peer->hang.comm->hang->since = 0;
        }
    }
}

/* --- what is said --- */

/* As far as it is known: one that has not said who it is has its host alone. */
static void print_who(char *out, size_t room, const struct probe_hang_who *who)
{
    int n = who->rank == PROBE_HANG_RANK_NONE ? snprintf(out, room, "a process")
                                              : snprintf(out, room, "rank %u", who->rank);

    if (who->pid) {
        snprintf(out + n, room - (size_t)n, ", pid %u", who->pid);
    }
}

static void print_evidence(char *out, size_t room, const struct probe_hang_report *w, uint64_t ns)
{
    char who[48];
    const char *said = probe_hang_kind_name((enum probe_hang_kind)w->kind);

    print_who(who, sizeof(who), &w->root);
    if (w->kind == PROBE_HANG_CYCLE) {
        snprintf(
            out, room,
            "%u processes wait for each other, and for nobody else, for %.1f s; %s on %s is one "
            "of them",
            w->waiting, (double)ns / 1e9, who, w->root.host);
        return;
    }
    snprintf(out, room, "%s on %s: %s%s%s for %.1f s; %u processes wait for it, this one over %u",
             who, w->root.host, said, w->nic[0] ? " over " : "", w->nic, (double)ns / 1e9,
             w->waiting, w->hops);
}

static void print_how(char *out, size_t room, const struct probe_hang_report *w)
{
    char rank[24] = "", pid[24] = "";

    if (w->root.rank != PROBE_HANG_RANK_NONE) {
        snprintf(rank, sizeof(rank), ",rank:%u", w->root.rank);
    }
    if (w->root.pid) {
        snprintf(pid, sizeof(pid), ",pid:%u", w->root.pid);
    }
    snprintf(out, room, "%s%s%s,waiting:%u,over:%u",
             probe_hang_kind_name((enum probe_hang_kind)w->kind), rank, pid, w->waiting, w->hops);
}

/* The part has a code of its own, or people have just been told of another hang. */
static bool is_known(struct r2_inst *inst, const struct probe_hang_report *w, uint64_t ns,
                     uint64_t now)
{
    enum probe_code code = (enum probe_code)r2_verdict_latest(inst, ns + CHANNEL_NS).code;
    bool process = code == PROBE_CODE_P01 || code == PROBE_CODE_P02 || code == PROBE_CODE_P03;

    return (code != PROBE_CODE_NONE && w->kind == PROBE_HANG_PATH) ||
           (process && w->kind > PROBE_HANG_PATH) ||
           (inst->diagnosis.hang->warned_at &&
            r2_elapsed(now, inst->diagnosis.hang->warned_at) < WARN_NS);
}

static void log_found(struct r2_inst *inst, const struct probe_hang_report *w, uint64_t now)
{
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_H01);
    uint64_t ns = R2_MS((uint64_t)w->since_ms + w->age_ms);
    bool known = is_known(inst, w, ns, now);
    char how[96], line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE], evidence[200];
    struct probe_line l = {.code = PROBE_CODE_H01,
                           .host = w->root.host,
                           .nic = w->nic,
                           .elsewhere = w->root.id != inst->diagnosis.hang->core.self.id,
                           .how = how,
                           .job = inst->self.job,
                           .fate = PROBE_FATE_WAITS,
                           .since_ms = r2_verdict_time(inst, now > ns ? now - ns : 0)};
    struct r2_cause cause = {.code = info->name,
                             .blame = info->blame,
                             .severity = known ? PROBE_INFO : info->severity,
                             .nic = -1,
                             .peer_host = w->root.host,
                             .peer_nic = w->nic,
                             .since_ns = now > ns ? now - ns : 0,
                             .how = probe_hang_kind_name((enum probe_hang_kind)w->kind),
                             .confidence = 100,
                             .evidence = {evidence},
                             .n_evidence = 1,
                             .action = info->action,
                             .recommend = info->recommend,
                             .brief = brief};

    print_how(how, sizeof(how), w);
    print_evidence(evidence, sizeof(evidence), w, ns);
    probe_line_full(line, &l);
    probe_line_short(brief, &l);
    r2_log_write(known ? R2_LOG_INFO : R2_LOG_WARN, __FILE__, __LINE__, "%s", line);
    R2_INFO("%s: %s", info->name, evidence);
    inst->diagnosis.hang->said_at = now;
    inst->diagnosis.hang->warned_at = known ? inst->diagnosis.hang->warned_at : now;
    memcpy(inst->diagnosis.hang->said, w->root.host, sizeof(inst->diagnosis.hang->said));
    R2_NOTIFY(inst, on_cause, inst, &cause);
}

static void say_over(struct r2_inst *inst, uint64_t now)
{
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_H01);
    char text[PROBE_SHORT_SIZE];
    struct r2_cause cause = {.code = info->name,
                             .blame = info->blame,
                             .severity = PROBE_INFO,
                             .nic = -1,
                             .peer_host = inst->diagnosis.hang->said,
                             .since_ns = inst->diagnosis.hang->said_at,
                             .how = "goes-on",
                             .confidence = 100,
                             .action = "none",
                             .recommend = "NONE",
                             .brief = text};

    snprintf(text, sizeof(text), "%s %.39s goes on, %.1f s after it was named", info->name,
             inst->diagnosis.hang->said,
             (double)r2_elapsed(now, inst->diagnosis.hang->said_at) / 1e9);
    R2_INFO("%s: %s", info->name, text + strlen(info->name) + 1);
    R2_NOTIFY(inst, on_cause, inst, &cause);
}

/* --- turns --- */

static void record_send(struct r2_inst *inst, struct r2_peer *peer, unsigned flags, uint64_t clock)
{
    struct probe_hang *h = &inst->diagnosis.hang->core;
    union fo_body b;

    memset(&b, 0, sizeof(b));
    b.hang.flags = (uint8_t)(flags | (peer->hang.knows ? FO_HANG_MET : 0));
    b.hang.rank = h->self.rank;
    b.hang.pid = h->self.pid;
    if (flags & FO_HANG_WORD) {
        probe_hang_report_get(h, clock, &b.hang.report);
    }
    r2_peer_emit(inst, peer, FO_MSG_HANG, &b);
}

/* So that a peer can name us when we do not answer, and knows that we would. Again until it says
 * that it does; an older one never will. */
static void introduce(struct r2_inst *inst, uint64_t clock)
{
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        if (p->hang.known || p->hang.tries == TRIES || clock < p->hang.try_at ||
            p->host[0] == '\0' || !inst->oob->ops->peer_is_up(p->oob)) {
            continue;
        }
        p->hang.try_at = clock + (TRY_NS << p->hang.tries);
        p->hang.tries++;
        record_send(inst, p, PROBE_HANG_ASK, clock);
    }
}

/* @due: of probe_hang_is_due(). */
static void round_take(struct r2_inst *inst, int due, uint64_t clock, uint64_t now)
{
    struct probe_hang_send out[PROBE_HANG_BUDGET];
    struct probe_hang *h = &inst->diagnosis.hang->core;
    enum probe_hang_change change;
    int n = 0;

    if (due == 1) {
        introduce(inst, clock);
        facts(inst, clock, now);
    }
    change = probe_hang_step(h, clock, due == 1, out, &n);
    for (int i = 0; i < n; i++) {
        struct r2_peer *peer = (struct r2_peer *)(uintptr_t)out[i].peer;

        if (peer->hang.knows) {
            record_send(inst, peer, out[i].flags | FO_HANG_WORD, clock);
        } else {
            r2_load_request(inst, peer, 0, 0); /* which every process answers that runs */
        }
    }
    if (change == PROBE_HANG_SAY) {
        log_found(inst, &h->what, now);
    } else if (change == PROBE_HANG_CLEAR) {
        say_over(inst, now);
    }
}

/* A round that would be due before another turn like this one is taken with this one: at rest it
 * has no wake-up of its own, and is never late. */
static void on_watch(struct r2_inst *inst, uint64_t now, uint64_t tick)
{
    struct r2_hang *h = inst->diagnosis.hang;
    uint64_t gone = clock_move(h, now), wait;
    int due = probe_hang_is_due(&h->core, h->clock + gone - gone / 8);

    if (due) {
        round_take(inst, due, h->clock, now);
    }
    wait = probe_hang_due_in(&h->core, h->clock);
    if (wait < UINT64_MAX - now) {
        inst->watch.wanted = r2_earlier(inst->watch.wanted, now + wait);
    }
}

void r2_hang_on_record(struct r2_inst *inst, struct r2_peer *peer, const struct fo_hang *m)
{
    uint64_t clock = inst->diagnosis.hang->clock;

    if (inst->diagnosis.hang->core.after == 0) {
        return;
    }
    peer->hang.knows = 1;
    peer->hang.rank = m->rank;
    peer->hang.pid = m->pid;
    peer->hang.known |= (m->flags & FO_HANG_MET) != 0;
    if (peer->refs < 2) {
        return; /* no connection to that process (the message holds one reference itself) */
    }
    if ((m->flags & FO_HANG_WORD) == 0) {
        if (m->flags & PROBE_HANG_ASK) {
            record_send(inst, peer, 0, clock);
        }
        return;
    }
    if (probe_hang_on_report(&inst->diagnosis.hang->core, clock, peer, m->flags, &m->report)) {
        record_send(inst, peer, FO_HANG_WORD, clock);
    }
}

void r2_hang_leave(struct r2_inst *inst, struct r2_peer *peer)
{
    probe_hang_leave(&inst->diagnosis.hang->core, peer);
}

int r2_hang_open(struct r2_inst *inst)
{
    inst->diagnosis.hang = calloc(1, sizeof(*inst->diagnosis.hang));
    return inst->diagnosis.hang ? 0 : -1;
}

void r2_hang_begin(struct r2_inst *inst, int rank)
{
    struct probe_hang_who self = {.id = inst->diagnosis.origin ? inst->diagnosis.origin : 1,
                                  .rank = rank < 0 ? PROBE_HANG_RANK_NONE : (uint32_t)rank,
                                  .pid = (uint32_t)getpid()};

    snprintf(self.host, sizeof(self.host), "%s", inst->self.host);
    inst->diagnosis.hang->clock = inst->diagnosis.hang->moved_at = 1;
    probe_hang_init(&inst->diagnosis.hang->core, &self, R2_MS(inst->cfg.hang_after_ms), 1);
}

const struct r2_subscriber r2_hang_subscriber = {.on_watch = on_watch};
