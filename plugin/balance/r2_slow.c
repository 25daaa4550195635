#include "r2_slow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance_plan.h"
#include "balance_slow.h"
#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "core/r2_registry.h"
#include "core/r2_visit.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/health/r2_load.h"
#include "probe/health/r2_pair.h"
#include "probe/probe_line.h"
#include "r2_balance.h"
#include "r2_slow_whose.h"

#define LATE      4 /* ticks: after such a pause it is not known when what completed did */
#define LATELY    R2_MS(1000) /* what other processes said longer ago is not of the same time */
#define MOVED_MIN R2_MS(80)   /* a rate is measured over so long at least */

/* What moves over a NIC, or a NIC pair: the rate, and what the present check has found. */
struct r2_tempo {
    struct balance_rate rate;
    uint64_t bytes, queued;
    uint32_t parts;
    uint8_t busy;
};

struct r2_pace {
    struct r2_tempo tempo;
    struct balance_slow slow;
    uint32_t mbps;            /* r2_balance_limit() of its paths */
    struct r2_load_span load; /* since it was suspected */
    struct r2_slow_claim claim;
};

struct r2_slow {
    struct r2_tempo tempo[IB_MAX_NICS];
    struct r2_slow_whose whose;
    uint64_t at; /* the last check, ns; 0: none */
};

int r2_slow_open(struct r2_inst *inst)
{
    inst->slow = calloc(1, sizeof(*inst->slow));
    return inst->slow ? 0 : -1;
}

static int enabled(const struct r2_inst *inst)
{
    const struct r2_config *cfg = &inst->cfg;

    return cfg->slow && cfg->failover && cfg->balance && cfg->watchdog && inst->nics.count > 1;
}

/* To another host: a NIC that sends to itself, or to its neighbour, is bound by other things. */
static int is_watched(const struct r2_comm *c)
{
    return c->is_send && strcmp(c->far.host, c->inst->self.host) != 0 &&
           atomic_load_explicit(&c->state.setup, memory_order_acquire) == R2_SETUP_DONE &&
           atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN;
}

static struct r2_pair *pair_of(struct r2_comm *c, int p)
{
    if (c->flow->slow[p].pair == NULL) {
        c->flow->slow[p].pair =
            r2_pair_find(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);
    }
    return c->flow->slow[p].pair;
}

/* Its pace, from now on. NULL: out of memory. */
static struct r2_pace *pace_of(struct r2_pair *pair)
{
    if (pair->pace == NULL) {
        pair->pace = calloc(1, sizeof(*pair->pace));
    }
    return pair->pace;
}

enum balance_slow_state r2_slow_state(const struct r2_pair *pair)
{
    return pair->pace ? pair->pace->slow.state : BALANCE_SLOW_NO;
}

/* --- looking --- */

static void add(struct r2_tempo *t, uint64_t parts, uint64_t bytes, uint64_t queued, int busy)
{
    t->parts += (uint32_t)parts;
    t->bytes += bytes;
    t->queued += queued;
    t->busy |= (uint8_t)busy;
}

/* An incarnation that ends counts what it had out as done, which says nothing of the link: it is
 * checked while it is up. */
static void tick_path(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    uint64_t done = IB_RLX_GET(path->count.bytes_done), cqes = IB_RLX_GET(path->count.cqes),
             posted = IB_RLX_GET(path->count.bytes);
    int busy = IB_RLX_GET(path->sq.used) != 0;
    struct r2_pair *pair = pair_of(c, p);

    if (pair && pace_of(pair) && (c->shown.up >> p & 1) && done >= c->flow->slow[p].done &&
        cqes >= c->flow->slow[p].cqes) { /* less: a new incarnation */
        uint64_t bytes = done - c->flow->slow[p].done, parts = cqes - c->flow->slow[p].cqes,
                 queued = posted > done ? posted - done : 0;

        add(&pair->pace->tempo, parts, bytes, queued, busy);
        pair->pace->mbps = r2_balance_limit(c, p);
        add(&c->inst->slow->tempo[path->nic], parts, bytes, queued, busy);
    }
    c->flow->slow[p].done = done;
    c->flow->slow[p].cqes = cqes;
}

/* Completions that NCCL's thread has not come to take would look like work under way: where there
 * is a suspicion, they are taken now. */
static void take_completions(struct r2_comm *c)
{
    int suspected = 0;

    for (uint32_t m = IB_RLX_GET(c->conn.touched); m; m &= m - 1) {
        const struct r2_pair *pair = c->flow->slow[__builtin_ctz(m)].pair;

        suspected |= pair && pair->pace && pair->pace->slow.state == BALANCE_SLOW_SUSPECT;
    }
    if (suspected) {
        r2_comm_visit(c);
        if (is_watched(c) && c->fo.error == R2_OK && !c->fo.bye.peer) {
            ib_send_progress(c->tx);
        }
        r2_comm_unvisit(c);
    }
}

static void begin(struct r2_tempo *t)
{
    t->bytes = t->queued = t->parts = t->busy = 0;
}

static int end(struct r2_tempo *t, uint64_t ns)
{
    return balance_rate_tick(&t->rate, ns, t->parts, t->bytes, t->queued, t->busy);
}

/* --- judging --- */

/* For other processes: the typical one has a GPU and one NIC, and nothing of its own to compare
 * that with. */
static void nic_window(struct r2_inst *inst, int nic, uint64_t now)
{
    struct balance_tempo t;

    balance_rate_get(&inst->slow->tempo[nic].rate, BALANCE_RATE_WINDOWS, &t);
    if (inst->share.registry && t.rate) {
        r2_host_registry_tempo_set(
            inst->share.registry, nic,
            &(struct r2_host_registry_tempo){
                .rate = t.rate,
                .least = t.least,
                .wait_us = t.wait / 1000 < UINT32_MAX ? (uint32_t)(t.wait / 1000) : UINT32_MAX,
                .busy = (uint16_t)t.busy,
                .parts = t.parts < UINT16_MAX ? (uint16_t)t.parts : UINT16_MAX,
                .at = now});
    }
}

/* What is known of another NIC of this host: the best of what this process and others have seen of
 * it. */
static void peer_get(struct r2_inst *inst, int nic, uint64_t now, struct balance_slow_peer *out)
{
    const struct ib_nic *n = &inst->nics.nic[nic];
    struct r2_host_registry_tempo b;

    out->mbps = r2_balance_port(inst, nic);
    balance_rate_get(&inst->slow->tempo[nic].rate, BALANCE_RATE_WINDOWS, &out->tempo);
    if (inst->share.registry &&
        r2_host_registry_tempo_best(inst->share.registry, n->guid, n->port, now, LATELY, &b) &&
        b.least > out->tempo.least) {
        out->tempo = (struct balance_tempo){.rate = b.rate,
                                            .least = b.least,
                                            .most = b.rate,
                                            .wait = (uint64_t)b.wait_us * 1000,
                                            .parts = b.parts,
                                            .busy = b.busy};
    }
}

/* All NICs as they are seen in one check: the host registry is read at most once for it. */
struct seen {
    int filled;
    struct balance_slow_peer nic[IB_MAX_NICS];
};

static void seen_fill(struct r2_inst *inst, uint64_t now, struct seen *s)
{
    for (int i = 0; !s->filled && i < inst->nics.count; i++) {
        peer_get(inst, i, now, &s->nic[i]);
    }
    s->filled = 1;
}

static uint64_t rate_of(const struct r2_load_rate *r)
{
    double rate = (double)r->bytes * 1e9 / (double)r->ns;

    return rate < 1e18 ? (uint64_t)rate : (uint64_t)1e18;
}

static void moved_get(struct r2_pair *pair, uint64_t now, struct balance_slow_facts *f)
{
    struct r2_load_rate here, there;

    if (r2_load_span_get(&pair->pace->load, pair->inst, pair->nic, now, MOVED_MIN, &here, &there)) {
        f->moved_known = 1;
        f->moved_here = rate_of(&here);
        f->moved_there = rate_of(&there);
    }
}

static void on_load(struct r2_pair *pair, const struct probe_load *l)
{
    if (pair->pace && pair->pace->slow.state == BALANCE_SLOW_SUSPECT) {
        r2_load_span_take(&pair->pace->load, l);
    }
}

static void on_slow_word(struct r2_pair *pair, uint8_t flags)
{
    if (enabled(pair->inst)) {
        r2_slow_whose_on(&pair->inst->slow->whose, pair, pair->pace ? &pair->pace->claim : NULL,
                         flags, r2_now(pair->inst));
    }
}

/* --- acting --- */

/* Of @mbps; not 0 but for @part 0. */
static uint32_t part_of(uint32_t mbps, uint16_t part)
{
    uint32_t some =
        (uint32_t)((uint64_t)(mbps ? mbps : BALANCE_MBPS_UNKNOWN) * part / BALANCE_SLOW_ONE);

    return part && some == 0 ? 1 : some;
}

/* Also for connections that came up since: every window of a slow pair. Both parts are of the
 * pair's limit, to which the others' rates were scaled. */
static void apply(struct r2_pair *pair)
{
    uint32_t mbps = part_of(pair->pace->mbps, pair->pace->slow.part),
             nic = part_of(pair->pace->mbps, pair->pace->slow.nic);

    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        if (!is_watched(c)) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic) {
                r2_balance_measured(c, p, mbps, nic);
                if (p == 0) { /* the primary */
                    r2_balance_wide(c, pair->pace->slow.part != 0);
                }
            }
        }
    }
}

/* One line, and the event, for each change. */
static void report(struct r2_pair *pair, const struct balance_slow_facts *f)
{
    struct r2_inst *inst = pair->inst;
    const struct ib_nic *nic = &inst->nics.nic[pair->nic];
    const struct probe_code_info *info = probe_code_info(PROBE_CODE_G02);
    const char *pci = nic->pci_path ? strrchr(nic->pci_path, '/') : NULL,
               *there = pair->far.name[0] ? pair->far.name : NULL;
    char how[80], line[PROBE_LINE_SIZE], brief[PROBE_SHORT_SIZE];
    struct probe_line l = {.code = PROBE_CODE_G02,
                           .host = inst->self.host,
                           .nic = nic->name,
                           .pci = pci ? pci + 1 : NULL,
                           .peer_host = pair->peer->host,
                           .peer_nic = there,
                           .how = how,
                           .job = inst->self.job,
                           .rail1 = (unsigned)nic->rail + 1,
                           .fate = PROBE_FATE_CONTINUES};
    struct r2_cause v = {.code = info->name,
                         .blame = info->blame,
                         .severity = info->severity,
                         .nic = pair->nic,
                         .peer_host = pair->peer->host,
                         .peer_nic = there,
                         .how = how,
                         .action = info->action,
                         .recommend = info->recommend,
                         .brief = brief};

    if (pair->pace->slow.state == BALANCE_SLOW_YES) {
        snprintf(how, sizeof(how), "carries:%lluMB/s,of-what-others-carry:%u/100",
                 (unsigned long long)(f->own.rate / 1000000),
                 (unsigned)pair->pace->slow.part * 100 / BALANCE_SLOW_ONE);
        v.since_ns = pair->pace->load.at;
        l.since_ms = r2_verdict_time(inst, v.since_ns);
        probe_line_full(line, &l);
        probe_line_short(brief, &l);
        R2_WARN("%s", line);
    } else {
        snprintf(how, sizeof(how), "carries:%lluMB/s", (unsigned long long)(f->all.rate / 1000000));
        snprintf(brief, sizeof(brief), "%s %.22s is as fast as the others again", info->name,
                 nic->name);
        v.severity = PROBE_INFO;
        v.action = v.recommend = NULL;
        R2_INFO("%s, to %s on %s", brief, there ? there : "its NIC", pair->peer->host);
    }
    R2_NOTIFY(inst, on_cause, inst, &v);
}

static void pair_window(struct r2_inst *inst, struct r2_pair *pair, uint64_t now, struct seen *seen)
{
    struct balance_slow_peer peer[IB_MAX_NICS];
    struct balance_slow_facts f = {
        .mbps = pair->pace->mbps, .peer = peer, .percent = (unsigned)inst->cfg.slow_percent};
    enum balance_slow_state before = pair->pace->slow.state;
    struct balance_tempo nic;
    bool has_moved;

    balance_rate_get(&pair->pace->tempo.rate, 2, &f.own);
    balance_rate_get(&pair->pace->tempo.rate, BALANCE_RATE_WINDOWS, &f.all);
    balance_rate_get(&inst->slow->tempo[pair->nic].rate, 2, &nic);
    balance_rate_get(&inst->slow->tempo[pair->nic].rate, BALANCE_RATE_WINDOWS, &f.nic);
    has_moved = f.own.rate != 0;
    if (!has_moved && before == BALANCE_SLOW_NO) {
        return;
    }
    if (before != BALANCE_SLOW_YES && nic.rate > f.own.rate) {
        f.own = nic; /* it shares the NIC with other pairs of this process: that one is not slow
                        which carries much for all */
    }
    seen_fill(inst, now, seen);
    for (int i = 0; i < inst->nics.count; i++) {
        if (i != pair->nic) {
            peer[f.peers++] = seen->nic[i];
        }
    }
    if (before == BALANCE_SLOW_SUSPECT) {
        moved_get(pair, now, &f);
    }
    if (balance_slow_window(&pair->pace->slow, &f) || before == BALANCE_SLOW_YES) {
        apply(pair);
    }
    if (pair->pace->slow.state == BALANCE_SLOW_SUSPECT) {
        if (before != BALANCE_SLOW_SUSPECT) {
            r2_load_span_begin(&pair->pace->load, inst, pair->nic, now);
        }
        r2_load_request(inst, pair->peer, pair->nic, pair->peer_nic);
    }
    if (before != pair->pace->slow.state) {
        R2_TRACE("whether NIC pair %u-%u is slow: %s -> %s", pair->nic, pair->peer_nic,
                 balance_slow_name(before), balance_slow_name(pair->pace->slow.state));
    }
    if ((before == BALANCE_SLOW_YES) != (pair->pace->slow.state == BALANCE_SLOW_YES)) {
        pair->pace->claim = (struct r2_slow_claim){0};
        report(pair, &f);
    }
    if (pair->pace->slow.state == BALANCE_SLOW_YES && has_moved) {
        r2_slow_whose_claim(&inst->slow->whose, pair, &pair->pace->claim, now);
    }
}

static void on_watch(struct r2_inst *inst, uint64_t now, uint64_t step)
{
    uint64_t ns = r2_elapsed(now, inst->slow->at);
    struct seen seen = {.filled = 0};
    int late = inst->slow->at == 0 || ns > LATE * step;

    if (step == 0 || !enabled(inst)) {
        return;
    }
    inst->slow->at = now;
    for (int i = 0; i < inst->nics.count; i++) {
        begin(&inst->slow->tempo[i]);
    }
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->pace) {
            begin(&pair->pace->tempo);
        }
    }
    for (struct r2_comm *c = r2_comms_awake(inst); c; c = c->list.awake_next) {
        if (!is_watched(c)) {
            continue;
        }
        take_completions(c);
        for (uint32_t m = IB_RLX_GET(c->conn.touched); m; m &= m - 1) {
            tick_path(c, __builtin_ctz(m));
        }
    }
    for (int i = 0; i < inst->nics.count && !late; i++) {
        if (end(&inst->slow->tempo[i], ns)) {
            nic_window(inst, i, now);
        }
    }
    for (struct r2_pair *pair = inst->index.pairs; pair && !late; pair = pair->next) {
        if (pair->peer && pair->pace && end(&pair->pace->tempo, ns)) {
            pair_window(inst, pair, now, &seen);
        }
    }
    r2_slow_whose_step(&inst->slow->whose, inst, now);
}

const struct r2_subscriber r2_slow_subscriber = {
    .on_load = on_load, .on_slow_word = on_slow_word, .on_watch = on_watch};
