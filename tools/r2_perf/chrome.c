#include "tools/r2_perf/chrome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/r2_json.h"
#include "plugin/telemetry/r2_event.h"
#include "tools/r2_perf/util.h"

/* Threads of a row. */
#define CHROME_TID_MAIN   1 /* operations; of the run: faults */
#define CHROME_TID_PLUGIN 2
#define CHROME_TID_STALL  3 /* of the first fault; they may overlap, so that each has its own */

/* Events are written by time, whatever they come from. */
enum chrome_kind {
    CHROME_FAULT,
    CHROME_STALL,
    CHROME_OPERATION,
    CHROME_PLUGIN,
    CHROME_NIC,
    CHROME_RATE
};

struct chrome_item {
    uint64_t at;
    enum chrome_kind kind;
    int32_t rank;
    uint32_t i, nic;
};

struct chrome_out {
    const struct chrome *c;
    const struct chrome_run *run;
    struct r2_json j;
    struct chrome_item *items;
    size_t n, room;
    uint32_t merged; /* points of the rate that are told as one */
};

/* --- gathering --- */

/* What the ranks' lists are taken apart by. */
struct chrome_head {
    char host[64];
    int32_t pid;
    uint32_t per;
    uint64_t count;
};

static int chrome_heads_get(struct chrome *c, struct boot *boot, int rank, const char *host,
                            const struct trace *trace)
{
    struct chrome_head *all = util_mem_alloc(BOOT_RANKS_MAX, sizeof(*all));
    struct chrome_head *own = &all[rank];
    snprintf(own->host, sizeof(own->host), "%s", host);
    own->pid = (int32_t)getpid();
    own->per = trace->ops.per;
    own->count = trace->ops.count;
    int rc = boot_allgather(boot, all, sizeof(*all));
    for (int r = 0; r < c->nranks && rc == 0; r++) {
        c->ranks[r].pid = all[r].pid;
        c->ranks[r].per = all[r].per;
        c->ranks[r].count = all[r].count;
        memcpy(c->ranks[r].host, all[r].host, sizeof(all[r].host));
    }
    free(all);
    return rc;
}

int chrome_gather(struct chrome *c, struct boot *boot, int rank, int nranks, const char *host,
                  const struct trace *trace, const struct stats_told *told)
{
    uint64_t sizes[BOOT_RANKS_MAX], longest;
    *c = (struct chrome){.nranks = nranks,
                         .ranks = util_mem_alloc((size_t)nranks, sizeof(*c->ranks))};
    if (chrome_heads_get(c, boot, rank, host, trace) != 0) {
        return -1;
    }
    c->memory[0] = timeline_all_get(boot, rank, nranks, trace->ops.list,
                                    trace->ops.n * sizeof(*trace->ops.list), sizes, &longest);
    if (!c->memory[0]) {
        return -1;
    }
    for (int r = 0; r < nranks; r++) {
        c->ranks[r].ops = (struct trace_op *)(c->memory[0] + (size_t)r * longest);
        c->ranks[r].nops = sizes[r] / sizeof(struct trace_op);
    }
    c->memory[1] =
        timeline_all_get(boot, rank, nranks, told, told ? sizeof(*told) : 0, sizes, &longest);
    if (!c->memory[1]) {
        return -1;
    }
    for (int r = 0; r < nranks; r++) {
        c->ranks[r].told =
            sizes[r] ? (struct stats_told *)(c->memory[1] + (size_t)r * longest) : NULL;
    }
    return 0;
}

void chrome_free(struct chrome *c)
{
    free(c->ranks);
    free(c->memory[0]);
    free(c->memory[1]);
    memset(c, 0, sizeof(*c));
}

/* --- what there is, by time --- */

static void chrome_item_add(struct chrome_out *o, uint64_t at, struct chrome_item item)
{
    if (o->n == o->room) {
        o->room = o->room ? o->room * 2 : 1024;
        o->items = util_mem_resize(o->items, o->room, sizeof(*o->items));
    }
    item.at = at;
    o->items[o->n++] = item;
}

/* A NIC that has carried nothing in the whole run has no track. */
static bool chrome_nic_moved(const struct stats_told *t, uint32_t nic)
{
    const struct stats_row *first = &t->row[0], *last = &t->row[t->nrows - 1];
    return last->sent[nic] != first->sent[nic] || last->received[nic] != first->received[nic];
}

static void chrome_told_add(struct chrome_out *o, int rank, const struct stats_told *t)
{
    for (uint32_t i = 0; i < t->nevents; i++) {
        chrome_item_add(o, t->event[i].mono,
                        (struct chrome_item){.kind = CHROME_PLUGIN, .rank = rank, .i = i});
    }
    for (uint32_t nic = 0; t->nrows && nic < t->nics; nic++) {
        for (uint32_t i = 0; i < t->nrows && chrome_nic_moved(t, nic); i++) {
            int64_t at = t->row[i].at_ns;
            chrome_item_add(
                o, at > 0 ? (uint64_t)at : 0,
                (struct chrome_item){.kind = CHROME_NIC, .rank = rank, .i = i, .nic = nic});
        }
    }
}

static void chrome_timeline_add(struct chrome_out *o)
{
    const struct timeline *t = o->run->timeline;
    o->merged = (uint32_t)((t->n + CHROME_POINTS_MAX - 1) / CHROME_POINTS_MAX);
    for (size_t i = 0; i < t->n; i += o->merged) {
        chrome_item_add(o, i * t->interval_ns,
                        (struct chrome_item){.kind = CHROME_RATE, .i = (uint32_t)i});
    }
    if (t->n) {
        chrome_item_add(o, t->n * t->interval_ns,
                        (struct chrome_item){.kind = CHROME_RATE, .i = (uint32_t)t->n});
    }
    for (int i = 0; i < t->nfaults; i++) {
        const struct timeline_fault *f = &t->faults[i];
        chrome_item_add(o, f->event.fired_ns,
                        (struct chrome_item){.kind = CHROME_FAULT, .i = (uint32_t)i});
        if (f->stall_ns) {
            chrome_item_add(o, timeline_stall_start(f),
                            (struct chrome_item){.kind = CHROME_STALL, .i = (uint32_t)i});
        }
    }
}

static int chrome_item_compare(const void *x, const void *y)
{
    const struct chrome_item *a = x, *b = y;
    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->i != b->i ? (a->i < b->i ? -1 : 1) : (int)a->nic - (int)b->nic;
}

/* --- one event --- */

static double chrome_us(uint64_t ns)
{
    return (double)ns / 1e3;
}

/* Ranks are rows 1 and up, the run is the last one. */
static int chrome_run_pid(const struct chrome_out *o)
{
    return o->c->nranks + 1;
}

static void chrome_open(struct r2_json *j, const char *name, const char *category, const char *ph,
                        int pid, int tid)
{
    r2_json_open(j, NULL, '{');
    r2_json_text(j, "name", name);
    if (category) {
        r2_json_text(j, "cat", category);
    }
    r2_json_text(j, "ph", ph);
    r2_json_int(j, "pid", pid);
    r2_json_int(j, "tid", tid);
}

static void chrome_close(struct r2_json *j)
{
    r2_json_close(j, '}');
    r2_json_close(j, '}');
}

static void chrome_at(struct r2_json *j, uint64_t at)
{
    r2_json_real(j, "ts", chrome_us(at));
}

/* A span of @ns; the arguments follow. */
static void chrome_span(struct r2_json *j, uint64_t at, uint64_t ns)
{
    chrome_at(j, at);
    r2_json_real(j, "dur", chrome_us(ns));
    r2_json_open(j, "args", '{');
}

/* A moment; @scope is "g" (all rows), "p" or "t"; the arguments follow. */
static void chrome_moment(struct r2_json *j, uint64_t at, const char *scope)
{
    chrome_at(j, at);
    r2_json_text(j, "s", scope);
    r2_json_open(j, "args", '{');
}

static void chrome_operation_write(struct chrome_out *o, const struct chrome_item *item)
{
    static const char *const placements[] = {"?", "out", "in", "both"};
    const struct trace_op *op = &o->c->ranks[item->rank].ops[item->i];
    char name[64];
    if (op->n == 1) {
        snprintf(name, sizeof(name), "%s %llu", o->run->operation, (unsigned long long)op->first);
    } else {
        snprintf(name, sizeof(name), "%s %llu-%llu", o->run->operation,
                 (unsigned long long)op->first, (unsigned long long)(op->first + op->n - 1));
    }
    chrome_open(&o->j, name, "operation", "X", item->rank + 1, CHROME_TID_MAIN);
    chrome_span(&o->j, op->start_ns, op->end_ns - op->start_ns);
    r2_json_uint(&o->j, "operation", op->first);
    r2_json_uint(&o->j, "operations", op->n);
    r2_json_uint(&o->j, "size", o->run->size);
    r2_json_text(&o->j, "placement", placements[op->placements & 3]);
    r2_json_real(&o->j, "algbw_GBps",
                 op->busy_ns ? o->run->op_bytes * op->n / (double)op->busy_ns : NAN);
    r2_json_known(&o->j, "wrong", op->wrong);
    chrome_close(&o->j);
}

static void chrome_plugin_write(struct chrome_out *o, const struct chrome_item *item)
{
    const struct r2_stat_event *e = &o->c->ranks[item->rank].told->event[item->i];
    const char *kind = r2_event_kind_name(e->kind);
    char name[80];
    snprintf(name, sizeof(name), "%s%s%s", e->code[0] ? e->code : kind, e->nic[0] ? " " : "",
             e->nic);
    chrome_open(&o->j, name, "plugin", "i", item->rank + 1, CHROME_TID_PLUGIN);
    chrome_moment(&o->j, e->mono, "t");
    r2_json_text(&o->j, "kind", kind);
    r2_json_text(&o->j, "severity", r2_event_severity_name(e->severity));
    r2_json_text(&o->j, "code", e->code[0] ? e->code : NULL);
    r2_json_text(&o->j, "nic", e->nic[0] ? e->nic : NULL);
    r2_json_text(&o->j, "peer_host", e->peer_host[0] ? e->peer_host : NULL);
    r2_json_text(&o->j, "peer_nic", e->peer_nic[0] ? e->peer_nic : NULL);
    r2_json_text(&o->j, "cause", e->cause[0] ? e->cause : NULL);
    r2_json_uint(&o->j, "connections", e->connections);
    r2_json_real(&o->j, "stall_ms", e->stall_ns >= 0 ? (double)e->stall_ns / 1e6 : NAN);
    r2_json_known(&o->j, "replayed_bytes", e->replayed_bytes);
    r2_json_known(&o->j, "nics_usable", e->capacity_up);
    r2_json_known(&o->j, "nics", e->capacity_all);
    r2_json_text(&o->j, "text", e->text);
    chrome_close(&o->j);
}

/* Bytes a second from this row to the next one; nothing behind the last. */
static void chrome_nic_write(struct chrome_out *o, const struct chrome_item *item)
{
    const struct stats_told *t = o->c->ranks[item->rank].told;
    const struct stats_row *row = &t->row[item->i], *next = row + 1;
    double sent = 0, received = 0;
    uint32_t nic = item->nic;
    if (item->i + 1 < t->nrows) {
        double s = (double)(next->at_ns - row->at_ns) / 1e9;
        sent = (double)(next->sent[nic] - row->sent[nic]) / s;
        received = (double)(next->received[nic] - row->received[nic]) / s;
    }
    chrome_open(&o->j, t->nic[nic], "nic", "C", item->rank + 1, 0);
    chrome_at(&o->j, item->at);
    r2_json_open(&o->j, "args", '{');
    r2_json_real(&o->j, "sent_Bps", sent);
    r2_json_real(&o->j, "received_Bps", received);
    chrome_close(&o->j);
}

/* The mean of so many intervals; 0 where nothing was timed. */
static void chrome_rate_write(struct chrome_out *o, const struct chrome_item *item)
{
    const struct timeline *t = o->run->timeline;
    double sum = 0, weight = 0;
    for (size_t i = item->i; i < t->n && i < item->i + o->merged; i++) {
        if (!isnan(t->busbw[i])) {
            sum += t->busbw[i] * t->active[i];
            weight += t->active[i];
        }
    }
    chrome_open(&o->j, "bus bandwidth", "rate", "C", chrome_run_pid(o), 0);
    chrome_at(&o->j, item->at);
    r2_json_open(&o->j, "args", '{');
    r2_json_real(&o->j, "GBps", weight > 0 ? sum / weight : 0);
    chrome_close(&o->j);
}

static const char *chrome_by_name(const struct timeline_fault *f)
{
    return f->by == TIMELINE_BY_PLUGIN ? "plugin" : "driver";
}

static void chrome_fault_write(struct chrome_out *o, const struct chrome_item *item)
{
    const struct timeline_fault *f = &o->run->timeline->faults[item->i];
    chrome_open(&o->j, f->event.spec->what, "fault", "i", chrome_run_pid(o), CHROME_TID_MAIN);
    chrome_moment(&o->j, item->at, "g");
    r2_json_uint(&o->j, "fault", item->i + 1);
    r2_json_text(&o->j, "kind", f->event.spec->command ? "command" : "fabric");
    r2_json_real(&o->j, "planned_s", (double)f->event.spec->at_ns / 1e9);
    r2_json_real(&o->j, "took_ms", (double)f->event.took_ns / 1e6);
    r2_json_int(&o->j, "status", f->event.status);
    r2_json_real(&o->j, "stall_ms", (double)f->stall_ns / 1e6);
    r2_json_text(&o->j, "by", chrome_by_name(f));
    chrome_close(&o->j);
}

static void chrome_stall_write(struct chrome_out *o, const struct chrome_item *item)
{
    const struct timeline_fault *f = &o->run->timeline->faults[item->i];
    int rank = f->by == TIMELINE_BY_PLUGIN ? f->switch_rank : f->pause.rank;
    char name[64];
    snprintf(name, sizeof(name), "stall of fault %u", item->i + 1);
    chrome_open(&o->j, name, "stall", "X", rank + 1, CHROME_TID_STALL + (int)item->i);
    chrome_span(&o->j, item->at, f->stall_ns);
    r2_json_uint(&o->j, "fault", item->i + 1);
    r2_json_text(&o->j, "by", chrome_by_name(f));
    r2_json_real(&o->j, "ms", (double)f->stall_ns / 1e6);
    r2_json_real(&o->j, "pause_ms", (double)f->pause.len_ns / 1e6);
    if (f->by == TIMELINE_BY_DRIVER) {
        r2_json_int(&o->j, "peer", f->pause.peer);
        r2_json_int(&o->j, "channel", f->pause.channel);
        r2_json_text(&o->j, "end", f->pause.receiving ? "receiving" : "sending");
    }
    chrome_close(&o->j);
}

static void chrome_item_write(struct chrome_out *o, const struct chrome_item *item)
{
    static void (*const writers[])(struct chrome_out *, const struct chrome_item *) = {
        [CHROME_FAULT] = chrome_fault_write,
        [CHROME_STALL] = chrome_stall_write,
        [CHROME_OPERATION] = chrome_operation_write,
        [CHROME_PLUGIN] = chrome_plugin_write,
        [CHROME_NIC] = chrome_nic_write,
        [CHROME_RATE] = chrome_rate_write};
    writers[item->kind](o, item);
}

/* --- the file --- */

static void chrome_name_write(struct r2_json *j, const char *what, int pid, int tid,
                              const char *name)
{
    chrome_open(j, what, NULL, "M", pid, tid);
    r2_json_open(j, "args", '{');
    r2_json_text(j, "name", name);
    chrome_close(j);
}

static void chrome_row_write(struct r2_json *j, int pid, int place, const char *name)
{
    chrome_name_write(j, "process_name", pid, 0, name);
    chrome_open(j, "process_sort_index", NULL, "M", pid, 0);
    r2_json_open(j, "args", '{');
    r2_json_int(j, "sort_index", place);
    chrome_close(j);
}

static void chrome_rows_write(struct chrome_out *o)
{
    struct r2_json *j = &o->j;
    const struct timeline *t = o->run->timeline;
    char name[128];
    chrome_row_write(j, chrome_run_pid(o), 0, o->run->title);
    chrome_name_write(j, "thread_name", chrome_run_pid(o), CHROME_TID_MAIN, "faults");
    for (int r = 0; r < o->c->nranks; r++) {
        snprintf(name, sizeof(name), "rank %d on %.60s, process %d", r, o->c->ranks[r].host,
                 (int)o->c->ranks[r].pid);
        chrome_row_write(j, r + 1, r + 1, name);
        chrome_name_write(j, "thread_name", r + 1, CHROME_TID_MAIN, "operations");
        chrome_name_write(j, "thread_name", r + 1, CHROME_TID_PLUGIN, "plugin");
        for (int i = 0; i < t->nfaults; i++) {
            snprintf(name, sizeof(name), "stall of fault %d", i + 1);
            chrome_name_write(j, "thread_name", r + 1, CHROME_TID_STALL + i, name);
        }
    }
}

/* What is not told in full, and of whom; on that row, at the begin. */
static void chrome_note_write(struct chrome_out *o, int pid, const char *text)
{
    chrome_open(&o->j, text, "note", "i", pid, CHROME_TID_MAIN);
    chrome_moment(&o->j, 0, "p");
    chrome_close(&o->j);
}

static void chrome_rank_notes_write(struct chrome_out *o, int rank)
{
    const struct chrome_rank *r = &o->c->ranks[rank];
    char text[300];
    if (r->per > 1) {
        snprintf(text, sizeof(text), "%llu operations, told %u together",
                 (unsigned long long)r->count, r->per);
        chrome_note_write(o, rank + 1, text);
    }
    if (!r->told || !r->told->nrows) {
        snprintf(text, sizeof(text), "no bytes by NIC and no events: %s",
                 r->told && r->told->why[0] ? r->told->why : "nothing was read");
        chrome_note_write(o, rank + 1, text);
        return;
    }
    if (r->told->halved) {
        snprintf(text, sizeof(text), "bytes by NIC: means of %llu intervals",
                 1ull << (r->told->halved < 63 ? r->told->halved : 63));
        chrome_note_write(o, rank + 1, text);
    }
    if (r->told->forgotten) {
        snprintf(text, sizeof(text), "the first %u events of the plugin are not there: too many",
                 r->told->forgotten);
        chrome_note_write(o, rank + 1, text);
    }
}

static void chrome_notes_write(struct chrome_out *o)
{
    char text[100];
    if (o->merged > 1) {
        snprintf(text, sizeof(text), "bus bandwidth: means of %u intervals", o->merged);
        chrome_note_write(o, chrome_run_pid(o), text);
    }
    for (int r = 0; r < o->c->nranks; r++) {
        chrome_rank_notes_write(o, r);
    }
}

static void chrome_other_write(struct chrome_out *o)
{
    struct r2_json *j = &o->j;
    r2_json_open(j, "otherData", '{');
    r2_json_text(j, "schema", "r2_perf_trace/1");
    r2_json_text(j, "operation", o->run->operation);
    r2_json_text(j, "plugin", o->run->plugin);
    r2_json_uint(j, "size", o->run->size);
    r2_json_int(j, "nranks", o->c->nranks);
    r2_json_text(j, "time", "us since the first timed operation of the last size began");
    r2_json_close(j, '}');
}

void chrome_write(const struct chrome *c, const struct chrome_run *run, FILE *f)
{
    struct chrome_out o = {.c = c, .run = run};
    chrome_timeline_add(&o);
    for (int r = 0; r < c->nranks; r++) {
        for (uint32_t i = 0; i < c->ranks[r].nops; i++) {
            chrome_item_add(&o, c->ranks[r].ops[i].start_ns,
                            (struct chrome_item){.kind = CHROME_OPERATION, .rank = r, .i = i});
        }
        if (c->ranks[r].told) {
            chrome_told_add(&o, r, c->ranks[r].told);
        }
    }
    qsort(o.items, o.n, sizeof(*o.items), chrome_item_compare);
    r2_json_begin_file(&o.j, f);
    r2_json_open(&o.j, NULL, '{');
    chrome_other_write(&o);
    r2_json_text(&o.j, "displayTimeUnit", "ms");
    r2_json_open(&o.j, "traceEvents", '[');
    chrome_rows_write(&o);
    chrome_notes_write(&o);
    for (size_t i = 0; i < o.n; i++) {
        chrome_item_write(&o, &o.items[i]);
    }
    r2_json_close(&o.j, ']');
    r2_json_close(&o.j, '}');
    putc('\n', f);
    free(o.items);
}
