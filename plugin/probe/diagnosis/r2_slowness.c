#include "r2_slowness.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_pair.h"
#include "probe/health/r2_watch.h"
#include "probe/probe_line.h"
#include "probe/probe_slow.h"
#include "r2_verdict.h"

#define LATE      4 /* ticks: after such a pause it is not known when what completed did */
#define ASK_NS    R2_MS(500)
#define MOVED_MIN R2_MS(500)   /* a rate is measured over so long at least */
#define KNOWN_NS  R2_MS(60000) /* a verdict that is younger explains what is slow */

/* What moves over a NIC pair since the window began. */
struct pair_load {
    uint8_t nic, peer_nic;
    struct r2_load_span span;
};

/* What is kept of a process on another host. */
struct r2_slowness_peer {
    struct probe_slow core;
    struct probe_slow_looks now;
    uint64_t busy_at;        /* the look that found it busy last */
    uint64_t since, said_at; /* ns */
    uint32_t host;           /* hash of its name */
    int loads;               /* -1: there are too many pairs */
    struct pair_load load[IB_MAX_PATHS];
};

struct r2_slowness {
    uint64_t at, began, asked; /* ns: the last look, of this window, of the last questions */
    uint64_t look;             /* number of the look */
    uint32_t looks;            /* of this window ... */
    uint64_t ns;               /* ... over so long */
    unsigned suspects;         /* peers */
};

int r2_slowness_open(struct r2_inst *inst)
{
    inst->diagnosis.slowness = calloc(1, sizeof(*inst->diagnosis.slowness));
    return inst->diagnosis.slowness ? 0 : -1;
}

void r2_slowness_close(struct r2_inst *inst)
{
    free(inst->diagnosis.slowness);
}

void r2_slowness_leave(struct r2_inst *inst, struct r2_peer *peer)
{
    if (peer->slowness && peer->slowness->core.state == PROBE_SLOW_SUSPECT) {
        inst->diagnosis.slowness->suspects--;
    }
    free(peer->slowness);
    peer->slowness = NULL;
}

/* --- looks --- */

/* To another host. NULL: it is not looked at, or there is no memory. */
static struct r2_slowness_peer *peer_of(struct r2_comm *c)
{
    struct r2_peer *peer = c->peer;

    if (!c->is_send || peer == NULL || !r2_watch_is_watched(c)) {
        return NULL;
    }
    if (peer->slowness == NULL && peer->host[0] && strcmp(peer->host, c->inst->self.host) != 0) {
        peer->slowness = calloc(1, sizeof(*peer->slowness));
        if (peer->slowness) {
            peer->slowness->host = r2_fnv_add(R2_FNV_BASIS, peer->host, strlen(peer->host));
        }
    }
    return peer->slowness;
}

/* Completions that NCCL's thread has not come to take would look like work on the wire: where there
 * is a suspicion, they are taken now. */
static void take_completions(struct r2_comm *c)
{
    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer) {
        ib_send_progress(c->tx);
    }
    r2_comm_unvisit(c);
}

/* All paths that could carry do, and none of last resort has to. */
static bool is_whole(const struct r2_comm *c)
{
    uint32_t all = ((1u << c->conn.npaths) - 1) & ~c->conn.last;

    return all && (c->shown.up & all) == all && (IB_RLX_GET(c->conn.touched) & c->conn.last) == 0;
}

/* @late: what has completed did so nobody knows when. */
static void look(struct r2_comm *c, struct r2_slowness_peer *s, bool late)
{
    uint64_t cqes = 0, queued = 0, moved;
    bool busy = false;

    if (s->core.state == PROBE_SLOW_SUSPECT) {
        take_completions(c);
    }
    moved = c->watch->load.moved;
    for (int p = 0; p < c->conn.npaths; p++) {
        uint64_t done = IB_RLX_GET(c->conn.path[p].count.bytes_done),
                 posted = IB_RLX_GET(c->conn.path[p].count.bytes);

        cqes += IB_RLX_GET(c->conn.path[p].count.cqes);
        if (IB_RLX_GET(c->conn.path[p].sq.used)) {
            busy = true;
            queued += posted > done ? posted - done : 0;
        }
    }
    if (!late) {
        s->now.broken += !is_whole(c);
        s->now.bytes += moved - c->watch->slow.moved;
        s->now.parts += cqes > c->watch->slow.cqes ? (uint32_t)(cqes - c->watch->slow.cqes) : 0;
        s->now.queued += (double)queued;
        if (busy && s->busy_at != c->inst->diagnosis.slowness->look) {
            s->busy_at = c->inst->diagnosis.slowness->look;
            s->now.busy++;
        }
    }
    c->watch->slow.moved = moved;
    c->watch->slow.cqes = cqes;
}

/* --- what the NICs of both ends move --- */

static struct pair_load *load_of(struct r2_slowness_peer *s, uint8_t nic, uint8_t peer_nic)
{
    for (int i = 0; i < s->loads; i++) {
        if (s->load[i].nic == nic && s->load[i].peer_nic == peer_nic) {
            return &s->load[i];
        }
    }
    return NULL;
}

static void load_want(struct r2_inst *inst, struct r2_slowness_peer *s, const struct ib_path *path,
                      uint64_t now)
{
    struct pair_load *l;

    if (s->loads < 0 || load_of(s, path->nic, path->peer_nic)) {
        return;
    }
    if (s->loads == IB_MAX_PATHS) {
        s->loads = -1;
        return;
    }
    l = &s->load[s->loads++];
    l->nic = path->nic;
    l->peer_nic = path->peer_nic;
    r2_load_span_begin(&l->span, inst, path->nic, now);
}

static void ask(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    struct r2_slowness_peer *s = peer->slowness;

    for (struct r2_comm *c = peer->comms; c; c = c->list.peer_next) {
        for (uint32_t m = c->is_send ? IB_RLX_GET(c->conn.touched) : 0; m; m &= m - 1) {
            load_want(inst, s, &c->conn.path[__builtin_ctz(m)], now);
        }
    }
    for (int i = 0; i < s->loads; i++) {
        r2_load_request(inst, peer, s->load[i].nic, s->load[i].peer_nic);
    }
}

static void ask_all(struct r2_inst *inst, uint64_t now)
{
    inst->diagnosis.slowness->asked = now;
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        if (p->slowness && p->slowness->core.state == PROBE_SLOW_SUSPECT) {
            ask(inst, p, now);
        }
    }
}

static void on_load(struct r2_pair *pair, const struct probe_load *l)
{
    struct r2_slowness_peer *s = pair->peer ? pair->peer->slowness : NULL;
    struct pair_load *p =
        s && s->core.state == PROBE_SLOW_SUSPECT ? load_of(s, pair->nic, pair->peer_nic) : NULL;

    if (p) {
        r2_load_span_take(&p->span, l);
    }
}

static enum probe_slow_load load_judge(struct r2_inst *inst, const struct r2_slowness_peer *s,
                                       uint64_t now)
{
    enum probe_slow_load all = s->loads > 0 ? PROBE_SLOW_LOAD_FREE : PROBE_SLOW_LOAD_UNKNOWN;

    for (int i = 0; i < s->loads; i++) {
        const struct pair_load *p = &s->load[i];
        struct r2_load_rate ours, theirs;
        enum probe_slow_load here, there;

        if (!r2_load_span_get(&p->span, inst, p->nic, now, MOVED_MIN, &ours, &theirs)) {
            all = PROBE_SLOW_LOAD_UNKNOWN;
            continue;
        }
        here = probe_slow_load(ours.bytes, ours.ns, inst->watch.load[p->nic].peak.rate);
        there = probe_slow_load(theirs.bytes, theirs.ns, p->span.best);
        if (here == PROBE_SLOW_LOAD_FULL || there == PROBE_SLOW_LOAD_FULL) {
            return PROBE_SLOW_LOAD_FULL;
        }
        if (here == PROBE_SLOW_LOAD_UNKNOWN || there == PROBE_SLOW_LOAD_UNKNOWN) {
            all = PROBE_SLOW_LOAD_UNKNOWN;
        }
    }
    return all;
}

/* --- what is said --- */

static void texts(const struct r2_slowness_peer *s, char *how, size_t how_room, char *evidence,
                  size_t evidence_room, const char *host)
{
    const struct probe_slow_figures *is = &s->core.last.is, *usual = &s->core.usual;
    double is_ms = (double)is->wait / 1e6, usual_ms = (double)usual->wait / 1e6;

    snprintf(how, how_room, "on-the-wire:%.1fms,usual:%.1fms,carries:%.1fMB/s,usual:%.1fMB/s",
             is_ms, usual_ms, (double)is->rate / 1e6, (double)usual->rate / 1e6);
    snprintf(evidence, evidence_room,
             "what is sent to %.39s is on the wire for %.1f ms, usually %.1f ms, at %.1f MB/s, "
             "usually %.1f MB/s; what is sent to others is not slower, and no NIC is full",
             host, is_ms, usual_ms, (double)is->rate / 1e6, (double)usual->rate / 1e6);
}

static void say(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_S01);
    struct r2_slowness_peer *s = peer->slowness;
    const struct r2_pair *pair =
        s->loads == 1 ? r2_pair_find(inst, peer, s->load[0].nic, s->load[0].peer_nic) : NULL;
    char how[160], evidence[300], line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE];
    struct probe_line l = {.code = PROBE_CODE_S01,
                           .host = peer->host,
                           .nic = pair ? pair->far.name : NULL,
                           .peer_host = inst->self.host,
                           .peer_nic = pair ? inst->nics.nic[pair->nic].name : NULL,
                           .elsewhere = 1,
                           .how = how,
                           .job = inst->self.job,
                           .fate = PROBE_FATE_CONTINUES,
                           .since_ms = r2_verdict_time(inst, s->since)};
    struct r2_cause cause = {.code = info->name,
                             .blame = info->blame,
                             .severity = info->severity,
                             .nic = -1,
                             .peer_host = peer->host,
                             .peer_nic = l.nic,
                             .since_ns = s->since,
                             .how = how,
                             .evidence = {evidence},
                             .n_evidence = 1,
                             .action = info->action,
                             .recommend = info->recommend,
                             .brief = brief};

    texts(s, how, sizeof(how), evidence, sizeof(evidence), peer->host);
    probe_line_full(line, &l);
    probe_line_short(brief, &l);
    R2_WARN("%s", line);
    R2_INFO("%s: %s", info->name, evidence);
    s->said_at = now;
    R2_NOTIFY(inst, on_cause, inst, &cause);
}

static void say_over(struct r2_inst *inst, const struct r2_peer *peer, uint64_t now)
{
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_S01);
    char text[PROBE_SHORT_SIZE];
    struct r2_cause cause = {.code = info->name,
                             .blame = info->blame,
                             .severity = PROBE_INFO,
                             .nic = -1,
                             .peer_host = peer->host,
                             .since_ns = peer->slowness->said_at,
                             .how = "well-again",
                             .action = "none",
                             .recommend = "NONE",
                             .brief = text};

    snprintf(text, sizeof(text), "%s the way to %.30s is as fast as usual again", info->name,
             peer->host);
    R2_INFO("%s: the way to %.39s is as fast as usual again, %.1f s after it was named", info->name,
            peer->host, (double)r2_elapsed(now, peer->slowness->said_at) / 1e9);
    R2_NOTIFY(inst, on_cause, inst, &cause);
}

/* --- windows --- */

static bool is_alone(struct r2_inst *inst, const struct r2_slowness_peer *s)
{
    struct probe_slow_row row[PROBE_SLOW_ROWS];
    int n = 1;

    if (!s->core.last.known || s->core.last.slow <= PROBE_SLOW_FACTOR ||
        r2_verdict_latest(inst, KNOWN_NS).code != PROBE_CODE_NONE) {
        return false;
    }
    row[0] = (struct probe_slow_row){s->host, s->core.last.slow, s->core.last.most};
    for (struct r2_peer *p = inst->index.peers; p && n < PROBE_SLOW_ROWS; p = p->next) {
        const struct r2_slowness_peer *o = p->slowness;

        if (o && o != s && o->core.last.known) {
            row[n++] = (struct probe_slow_row){o->host, o->core.last.slow, o->core.last.most};
        }
    }
    return probe_slow_is_alone(row, n, 0);
}

static void trace(const struct r2_peer *peer, unsigned before)
{
    if (before != peer->slowness->core.state) {
        R2_TRACE("whether the way to %.39s is slow: %s -> %s", peer->host,
                 probe_slow_name((enum probe_slow_state)before),
                 probe_slow_name((enum probe_slow_state)peer->slowness->core.state));
    }
}

static void judge(struct r2_inst *inst, struct r2_peer *peer, uint64_t now)
{
    struct r2_slowness_peer *s = peer->slowness;
    unsigned before = s->core.state;
    enum probe_slow_load load =
        before == PROBE_SLOW_SUSPECT ? load_judge(inst, s, now) : PROBE_SLOW_LOAD_UNKNOWN;
    enum probe_slow_change change = probe_slow_decide(&s->core, is_alone(inst, s), load);

    trace(peer, before);
    if (before != PROBE_SLOW_SUSPECT && s->core.state == PROBE_SLOW_SUSPECT) {
        s->since = inst->diagnosis.slowness->began;
    }
    if (change == PROBE_SLOW_SAY) {
        say(inst, peer, now);
    } else if (change == PROBE_SLOW_OVER) {
        say_over(inst, peer, now);
    }
    s->loads = 0;
}

/* All of the window first: each is compared with the others'. */
static void window_end(struct r2_inst *inst, uint64_t now)
{
    struct r2_slowness *all = inst->diagnosis.slowness;

    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        if (p->slowness) {
            unsigned before = p->slowness->core.state;

            probe_slow_window(&p->slowness->core, &p->slowness->now, all->looks, all->ns);
            trace(p, before);
            memset(&p->slowness->now, 0, sizeof(p->slowness->now));
        }
    }
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        if (p->slowness) {
            judge(inst, p, now);
        }
    }
    all->suspects = 0;
    for (struct r2_peer *p = inst->index.peers; p; p = p->next) {
        all->suspects += p->slowness && p->slowness->core.state == PROBE_SLOW_SUSPECT;
    }
    all->began = now;
    all->looks = 0;
    all->ns = all->asked = 0;
}

static void on_watch(struct r2_inst *inst, uint64_t now, uint64_t tick)
{
    struct r2_slowness *all = inst->diagnosis.slowness;
    uint64_t ns = r2_elapsed(now, all->at);
    bool late = all->at == 0 || ns > LATE * tick;

    if (tick == 0 || !inst->cfg.slow || !inst->cfg.watchdog) {
        return;
    }
    all->at = now;
    all->look++;
    all->looks += !late;
    all->ns += late ? 0 : ns;
    for (struct r2_comm *c = r2_comms_awake(inst); c; c = c->list.awake_next) {
        struct r2_slowness_peer *s = peer_of(c);

        if (s) {
            look(c, s, late);
        }
    }
    if (r2_elapsed(now, all->began) >= PROBE_SLOW_WINDOW) {
        window_end(inst, now);
    }
    if (all->suspects && r2_elapsed(now, all->asked) >= ASK_NS) {
        ask_all(inst, now);
    }
}

const struct r2_subscriber r2_slowness_subscriber = {.on_load = on_load, .on_watch = on_watch};
