#include "r2_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "probe/probe_line.h"
#include "r2_nic_log.h"
#include "r2_report_int.h"
#include "r2_traffic.h"

#define STALL_POLL 1000000ull    /* ns between two checks of connections that wait ... */
#define STALL_SOON 20000000ull   /* ... for so long; then the watchdog's ticks have to do */
#define ROWS_MIN   100000000ull  /* ns between two writings of the statistics ... */
#define ROWS_WAIT  1000000000ull /* ... and while connections wait: these come first */

/* --- saying --- */

struct r2_event_nic r2_report_nic_of(const struct r2_report *r, int nic)
{
    struct r2_event_nic out = {0};
    const struct ib_nic *n;
    struct ib_addr addr;
    const char *slash;

    if (nic < 0 || nic >= r->inst->nics.count) {
        return out;
    }
    n = &r->inst->nics.nic[nic];
    ib_nic_addr_get(&r->inst->nics, nic, &addr);
    slash = n->pci_path ? strrchr(n->pci_path, '/') : NULL;
    out.device = n->name;
    out.pci = slash ? slash + 1 : n->pci_path;
    out.netdev = n->netdev;
    out.fw = n->fw;
    out.guid = n->guid;
    out.port = n->port;
    out.lid = addr.lid;
    out.rail = n->rail;
    ib_nic_gid_show(n, addr.gid, out.gid);
    return out;
}

/* What the turn has gathered goes out, whole lines at once. */
static void events_flush(struct r2_report *r)
{
    char why[700];
    size_t len = r->out_len;

    r->out_len = 0;
    if (len == 0 || r2_event_append(&r->events, r->out, len, why, sizeof(why)) == 0) {
        return;
    }
    r->lost++;
    if (!r->failure_logged) {
        r->failure_logged = 1;
        R2_WARN("events are lost: %s", why);
    }
}

static void line_put(struct r2_report *r, const struct r2_event *e)
{
    char line[R2_EVENT_LINE];
    size_t n;

    if (!r->events_on) {
        return;
    }
    n = r2_event_line(line, sizeof(line), &r->src, e, ++r->seq);
    if (n == 0) {
        r->lost++;
        return;
    }
    if (n > sizeof(r->out) - r->out_len) {
        events_flush(r);
    }
    memcpy(r->out + r->out_len, line, n);
    r->out_len += n;
}

static void count(struct r2_event_sum *s, enum r2_event_kind kind)
{
    s->faults += kind == R2_EVENT_FAULT;
    s->switches += kind == R2_EVENT_SWITCH;
    s->verdicts += kind == R2_EVENT_VERDICT;
    s->failbacks += kind == R2_EVENT_FAILBACK;
    s->drains += kind == R2_EVENT_DRAIN;
    s->giveups += kind == R2_EVENT_GIVEUP;
    s->stalls += kind == R2_EVENT_STALL;
}

void r2_report_emit(struct r2_report *r, struct r2_event *e, uint64_t mono)
{
    e->mono_ns = mono;
    e->when_ns = r2_report_real(r, mono);
    e->capacity.all = r->inst->nics.count - r->inst->nics.last_count;
    e->capacity.up = __builtin_popcount(r2_report_usable(r));
    count(&r->sum, e->kind);
    if (e->kind != R2_EVENT_START && e->kind != R2_EVENT_STOP) {
        r2_report_event_put(r, e);
    }
    line_put(r, e);
    r->changed = 1;
}

/* --- birth and death --- */

static void text_read(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, room - 1, f) : 0;

    if (f) {
        fclose(f);
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void source_fill(struct r2_report *r, const struct r2_job *job)
{
    struct r2_event_source *s = &r->src;

    snprintf(s->host, sizeof(s->host), "%s", r->inst->self.host);
    text_read("/proc/self/comm", s->command, sizeof(s->command));
    text_read("/proc/sys/kernel/random/boot_id", s->boot_id, sizeof(s->boot_id));
    snprintf(s->version, sizeof(s->version), "%s %s", R2_VERSION, R2_GIT);
    s->pid = getpid();
    s->cuda_dev = -1;
    s->digest = r->inst->self.digest;
    if (job) {
        snprintf(s->scheduler, sizeof(s->scheduler), "%s", job->scheduler);
        snprintf(s->job, sizeof(s->job), "%s", job->id);
        snprintf(s->step, sizeof(s->step), "%s", job->step);
    }
}

static void stat_begin(struct r2_report *r)
{
    struct r2_inst *inst = r->inst;
    uint64_t unique = 0;
    char why[700];

    inst->env.random(inst->env.arg, &unique, sizeof(unique));
    r->stat = r2_stat_create(inst->share.run_dir, geteuid(), unique | 1, why, sizeof(why));
    if (r->stat == NULL) {
        R2_WARN("no statistics for r2_stat: %s", why);
        return;
    }
    r2_report_traffic_open(r);
}

static void events_begin(struct r2_report *r)
{
    const char *wanted = r->inst->cfg.event_file;
    char path[512] = "";

    if (wanted[0]) {
        snprintf(path, sizeof(path), "%s", wanted);
    } else if (r->inst->share.run_dir[0]) {
        r2_event_path(r->inst->share.run_dir, geteuid(), path, sizeof(path));
    }
    r->events_on = path[0] && strcmp(path, "off") != 0;
    if (r->events_on && r2_event_file_init(&r->events, path, R2_EVENT_FILE_MAX) != 0) {
        R2_WARN("no events: NCCL_R2_EVENT_FILE is too long");
        r->events_on = 0;
    }
}

void r2_report_open(struct r2_inst *inst, const struct r2_job *job)
{
    struct r2_event e = r2_event_empty;
    struct r2_report *r;
    int stats = inst->cfg.stats && inst->share.run_dir[0];

    inst->telemetry.nics = r2_nic_log_open(inst);
    if (inst->nics.count == 0 ||
        (!stats && !inst->share.run_dir[0] && !inst->cfg.event_file[0] && !inst->cfg.on_event[0]) ||
        (r = calloc(1, sizeof(*r))) == NULL) {
        return;
    }
    r->inst = inst;
    r->events.fd = -1;
    r->rows.last = &r->rows.first;
    r->start = r2_report_real(r, r2_now(inst));
    source_fill(r, job);
    events_begin(r);
    if (stats) {
        stat_begin(r);
    }
    if (r->stat == NULL && !r->events_on && !inst->cfg.on_event[0]) {
        free(r);
        return;
    }
    r2_report_advise_open(r);
    for (int i = 0; i < inst->nics.count; i++) {
        r->nic[i].state = ib_nic_state_get(&inst->nics.nic[i]);
        r->nic[i].since = r->start;
        snprintf(r->nic[i].why, sizeof(r->nic[i].why), "as found at the start");
    }
    inst->telemetry.report = r;
    e.kind = R2_EVENT_START;
    r2_report_emit(r, &e, r2_now(inst));
    r2_report_step(inst, r2_now(inst), 1);
}

void r2_report_stop(struct r2_inst *inst)
{
    struct r2_report *r = inst->telemetry.report;
    struct r2_event e = r2_event_empty;
    const struct r2_event_sum *s;

    r2_nic_log_flush(inst);
    if (r == NULL || r->stopped) {
        return;
    }
    s = &r->sum;
    r2_report_cases_step(r, r2_now(inst), 1);
    if (s->faults || s->giveups || s->stalls) {
        R2_INFO(
            "summary: faults %llu, switches %llu, failbacks %llu, gave up %llu, longest stall %.2f ms, %llu bytes "
            "posted again, stalls without a fault %llu",
            (unsigned long long)s->faults, (unsigned long long)s->switches,
            (unsigned long long)s->failbacks, (unsigned long long)s->giveups,
            (double)s->stall_max_ns / 1e6, (unsigned long long)s->replayed_bytes,
            (unsigned long long)s->stalls);
    }
    e.kind = R2_EVENT_STOP;
    e.sum = s;
    r2_report_emit(r, &e, r2_now(inst));
    events_flush(r);
    r2_event_file_close(&r->events);
    r2_report_traffic_close(r);
    r2_stat_remove(r->stat);
    r->stat = NULL;
    r->events_on = 0;
    r->stopped = 1;
}

void r2_report_free(struct r2_inst *inst)
{
    struct r2_report *r = inst->telemetry.report;

    inst->telemetry.report = NULL;
    free(inst->telemetry.nics);
    inst->telemetry.nics = NULL;
    if (r) {
        r2_event_file_close(&r->events);
        r2_traffic_close(inst->telemetry.traffic); /* as the last look has seen it */
        inst->telemetry.traffic = NULL;
        r2_stat_remove(r->stat);
        free(r->env);
        free(r);
    }
}

/* --- turns --- */

static int rows_due(const struct r2_report *r, uint64_t now, int tick)
{
    if (r2_comm_first(r->inst) == NULL) {
        return tick || r->changed; /* there may be no later turn */
    }
    return tick && r2_elapsed(now, r->rows.wrote_at) >= (r->stalling ? ROWS_WAIT : ROWS_MIN);
}

uint64_t r2_report_step(struct r2_inst *inst, uint64_t now, int tick)
{
    struct r2_report *r = inst->telemetry.report;

    if (r == NULL || r->stopped) {
        return UINT64_MAX;
    }
    if (r->stalling) {
        for (struct r2_comm *c = r2_comm_first(inst); c && r->stalling; c = c->list.all_next) {
            r2_report_case_stall(c, r2_now(inst));
        }
    }
    r2_report_cases_step(r, now, r2_comm_first(inst) == NULL);
    if (tick) {
        r2_report_rows_look(r);
    }
    if (rows_due(r, now, tick)) {
        r2_nic_log_flush(inst);
        r->changed = 0;
        r->rows.wrote_at = now;
        r2_report_rows_write(r);
        r2_report_advise_nics(r, now);
        r2_report_advise_last(r, now);
    }
    events_flush(r);
    return r->stalling && r2_elapsed(now, r->stall_since) < STALL_SOON ? now + STALL_POLL
                                                                       : UINT64_MAX;
}

/* --- connections --- */

static void path_follow(struct r2_comm *c, int p, int quiet)
{
    const struct fo_path *fp = &c->fo.path[p];
    uint32_t inc = c->conn.path[p].inc;
    enum fo_state was = (enum fo_state)c->seen.path[p].state;

    if (inc != c->seen.path[p].inc) {
        if (c->seen.path[p].fault) {
            r2_report_case_settled(c, p);
        }
        c->seen.path[p].inc = inc;
        c->seen.path[p].theirs = c->seen.path[p].why = 0;
        was = FO_NONE;
    }
    if (fp->state != was) {
        if (was == FO_NONE && (fp->state == FO_UP || fp->down_since)) {
            c->seen.path[p].stood = 1;
            if (inc > 1) {
                r2_report_case_back(c, p);
            }
        }
        if (was < FO_DOWN && fp->state >= FO_DOWN && fp->down_since && !quiet) {
            r2_report_case_lost(c, p);
        }
        c->inst->telemetry.report->changed = 1;
    }
    c->seen.path[p].state = (uint8_t)fp->state;
    if (!c->is_send) {
        r2_report_case_quarantine(c, p);
    }
    if (c->seen.path[p].fault && fp->settled) {
        r2_report_case_settled(c, p);
    }
}

/* Percent of what is cut now that goes over each path. */
static void shares_follow(struct r2_comm *c)
{
    const struct r2_plan *plan = &c->tx->plan;
    uint64_t all = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        c->seen.path[p].share = 0;
    }
    for (int i = 0; i < plan->n && i < R2_PLAN_PATHS; i++) {
        all += plan->weight[i];
    }
    for (int i = 0; all && i < plan->n && i < R2_PLAN_PATHS; i++) {
        if (plan->path[i] < IB_MAX_PATHS) {
            c->seen.path[plan->path[i]].share = (uint8_t)(100 * (uint64_t)plan->weight[i] / all);
        }
    }
}

static void error_follow(struct r2_comm *c)
{
    if (c->fo.error == R2_OK || c->seen.error || c->fo.closing || c->fo.posting_stopped) {
        return;
    }
    c->seen.error = (uint8_t)c->fo.error;
    snprintf(c->seen.why, sizeof(c->seen.why), "%.95s", c->fo.why);
    r2_report_case_giveup(c);
    c->inst->telemetry.report->changed = 1;
}

void r2_report_comm(struct r2_comm *c)
{
    struct r2_report *r = c->inst->telemetry.report;
    int open = atomic_load_explicit(&c->state.close, memory_order_relaxed) == R2_CLOSE_OPEN;

    if (r == NULL) {
        return;
    }
    r2_report_row_due(r, c);
    r2_report_count_moved(r, c);
    if (c->seen.closing ||
        atomic_load_explicit(&c->state.setup, memory_order_relaxed) != R2_SETUP_DONE) {
        return;
    }
    error_follow(c);
    for (int p = 0; p < c->conn.npaths; p++) {
        path_follow(c, p, !open || c->fo.bye.peer || c->fo.closing || c->fo.posting_stopped);
    }
    if (c->is_send) {
        r2_report_case_stall(c, r2_now(c->inst));
        shares_follow(c);
    }
    if (!open) {
        c->seen.closing = 1;
        r2_report_case_comm_over(c);
        r->changed = 1;
    }
    r2_report_count_state(r, c);
}

void r2_report_comm_gone(struct r2_comm *c)
{
    struct r2_report *r = c->inst->telemetry.report;

    if (r == NULL) {
        return;
    }
    r2_report_case_comm_over(c);
    c->seen.closing = 1; /* in no sum any more */
    r2_report_count_moved(r, c);
    r2_report_count_state(r, c);
    r2_report_row_free(r, c);
    r->changed = 1;
}

/* --- NICs --- */

static void on_nic(struct r2_inst *inst, int nic, enum r2_nic_change change)
{
    static const char *const why[] = {[R2_NIC_DOWN] = "its port is not ACTIVE",
                                      [R2_NIC_UP] = "its port is ACTIVE again",
                                      [R2_NIC_FATAL] = "the device failed, or is gone",
                                      [R2_NIC_FAILS] = "its driver answers with errors",
                                      [R2_NIC_REMOVED] = "the device is gone"};
    struct r2_report *r = inst->telemetry.report;
    enum ib_nic_state s = ib_nic_state_get(&inst->nics.nic[nic]);

    if (r == NULL || s == r->nic[nic].state) {
        return;
    }
    r->nic[nic].state = s;
    r->nic[nic].since = r2_report_real(r, r2_now(inst));
    snprintf(r->nic[nic].why, sizeof(r->nic[nic].why), "%s", why[change]);
    r->changed = 1;
}

void r2_report_drain(struct r2_inst *inst, int nic, int on, const char *why)
{
    struct r2_report *r = inst->telemetry.report;
    struct r2_event e = r2_event_empty;
    char text[128];

    if (r == NULL) {
        return;
    }
    snprintf(text, sizeof(text), "%.23s: %s%s%.60s", inst->nics.nic[nic].name,
             on ? "drained, new work avoids it" : "not drained any more", why[0] ? ": " : "", why);
    e.kind = R2_EVENT_DRAIN;
    e.nic = r2_report_nic_of(r, nic);
    e.how = "admin";
    e.detail = why[0] ? why : NULL;
    e.action = on ? "drain" : "undrain";
    e.text = text;
    r2_report_emit(r, &e, r2_now(inst));
}

/* In short, without the code, which has a place of its own. */
static const char *text_of(const struct r2_cause *v)
{
    size_t n = v->code ? strlen(v->code) : 0;

    return v->brief && n && strncmp(v->brief, v->code, n) == 0 && v->brief[n] == ' '
               ? v->brief + n + 1
               : v->brief;
}

static void on_cause(struct r2_inst *inst, const struct r2_cause *v)
{
    struct r2_report *r = inst->telemetry.report;
    struct r2_event e = r2_event_empty;
    uint64_t now = r2_now(inst);

    r2_nic_log_cause(inst, v);
    if (r == NULL) {
        return;
    }
    e.kind = R2_EVENT_VERDICT;
    e.severity = v->severity == 2   ? R2_EVENT_CRITICAL
                 : v->severity == 1 ? R2_EVENT_WARNING
                                    : R2_EVENT_INFO;
    e.code = v->code;
    e.blame = v->blame;
    e.since_ns = v->since_ns ? r2_report_real(r, v->since_ns) : 0;
    e.nic = r2_report_nic_of(r, v->nic);
    e.peer.host = v->peer_host;
    e.peer.device = v->peer_nic;
    e.how = v->how;
    e.confidence = v->confidence;
    e.evidence = v->evidence;
    e.n_evidence = v->n_evidence < R2_CAUSE_EVIDENCE ? v->n_evidence : R2_CAUSE_EVIDENCE;
    e.counters.name = v->counter;
    e.counters.by = v->counter_by;
    e.counters.n = v->nic >= 0 ? v->n_counters : 0;
    e.action = v->action;
    e.recommend = v->recommend;
    e.text = text_of(v);
    e.revises.code = v->revises;
    e.revises.seq = v->revises_id && v->revises_id == r->cause.id ? r->cause.seq : 0;
    if (v->nic >= 0 && v->nic < inst->nics.count) {
        snprintf(r->nic[v->nic].blamed, sizeof(r->nic[v->nic].blamed), "%.80s",
                 v->brief   ? v->brief
                 : v->blame ? v->blame
                            : "");
        r->nic[v->nic].blamed_at = e.since_ns ? e.since_ns : r2_report_real(r, now);
    }
    r2_report_emit(r, &e, now);
    if (v->id) {
        r->cause.id = v->id;
        r->cause.seq = r->seq;
    }
    if (v->code && strcmp(v->code, probe_code_info(PROBE_CODE_H01)->name) == 0 &&
        (v->severity > 0 || strcmp(v->how, "goes-on") == 0)) {
        r2_report_advise_hang(r, v->peer_host, v->severity == 0, now);
    }
}

const struct r2_subscriber r2_report_subscriber = {.on_nic = on_nic,
                                                   .on_report = r2_report_gossip,
                                                   .on_way_notified = r2_report_way,
                                                   .on_cause = on_cause,
                                                   .on_stall = r2_report_stall};
