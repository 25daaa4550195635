/* The lines after nccl-tests' own, and the JSON key r2. */
#include "tools/r2_perf/report.h"

#include <math.h>

#include "tools/r2_perf/planned.h"
#include "tools/r2_perf/util.h"

static double report_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double report_s(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void report_gap_print(const char *what, const struct trace_gap *g)
{
    if (g->len_ns) {
        printf("# r2 %s %.2f ms, rank %d %s %d, channel %d, until %.3f s\n", what,
               report_ms(g->len_ns), g->rank, g->receiving ? "from" : "to", g->peer, g->channel,
               report_s(g->end_ns));
    } else {
        printf("# r2 %s less than %.1f ms\n", what, report_ms(TRACE_GAP_MIN_NS));
    }
}

/* A rate that may be unknown. */
static const char *report_rate_text(double rate, char *text, size_t bytes)
{
    if (isnan(rate)) {
        snprintf(text, bytes, "unknown");
    } else {
        snprintf(text, bytes, "%.4g", rate);
    }
    return text;
}

static void report_fault_print(const struct fault_event *e, int i)
{
    if (!e->fired) {
        printf("# r2 fault %d at %.3f s not fired: %s\n", i + 1, report_s(e->spec->at_ns),
               e->spec->what);
    } else if (e->status != 0) {
        printf("# r2 fault %d at %.3f s ended with status %d: %s\n", i + 1, report_s(e->fired_ns),
               e->status, e->spec->what);
    } else {
        printf("# r2 fault %d at %.3f s (command took %.1f ms): %s\n", i + 1, report_s(e->fired_ns),
               report_ms(e->took_ns), e->spec->what);
    }
}

static void report_rates_print(const struct timeline *t)
{
    char before[32], during[32], after[32];
    report_rate_text(t->before, before, sizeof(before));
    report_rate_text(t->during, during, sizeof(during));
    report_rate_text(t->after, after, sizeof(after));
    if (t->nfaults == 0) {
        printf("# r2 busbw %s GB/s\n", before);
        return;
    }
    printf("# r2 busbw before %s during %s after %s GB/s", before, during, after);
    if (t->before > 0 && !isnan(t->after)) {
        printf(", after is %.1f %% of before", t->after / t->before * 100);
    }
    printf(" (during: first fault to %.3f s)\n", report_s(t->after_ns));
}

static void report_stall_print(const struct timeline_fault *f, int i)
{
    char name[64];
    if (f->by == TIMELINE_BY_DRIVER) {
        snprintf(name, sizeof(name), "stall after fault %d:", i + 1);
        report_gap_print(name, &f->pause);
        return;
    }
    printf("# r2 stall after fault %d: %.2f ms, by the plugin on rank %d\n", i + 1,
           report_ms(f->stall_ns), f->switch_rank);
    snprintf(name, sizeof(name), "pause around fault %d:", i + 1);
    report_gap_print(name, &f->pause);
}

/* A plugin; else it is NCCL itself, whose plugin gets NCCL's logger: nobody here has read its
 * lines, or knows the net ABI. */
static bool report_is_loaded_here(const struct report_extra *x)
{
    return x->plugin_abi > 0;
}

static void report_timeline_print(const struct timeline *t, bool is_loaded_here)
{
    for (int i = 0; i < t->nfaults; i++) {
        report_stall_print(&t->faults[i], i);
    }
    report_gap_print(t->nfaults ? "longest stall before any fault:" : "longest stall:",
                     &t->stall_before);
    printf("# r2 nothing moved on any rank for at most %.2f ms\n", report_ms(t->stopped.len_ns));
    report_rates_print(t);
    if (is_loaded_here) {
        printf("# r2 failovers seen: %llu on %d ranks\n", (unsigned long long)t->failovers,
               t->failover_ranks);
    }
    for (size_t i = 0; i < t->n; i++) {
        char rate[32];
        printf("# r2 at %.3f s busbw %s GB/s\n", report_s((i + 1) * t->interval_ns),
               report_rate_text(t->busbw[i], rate, sizeof(rate)));
    }
}

static void report_gap_json(struct r2_json *j, const char *key, const struct trace_gap *g,
                            bool of_connection)
{
    r2_json_open(j, key, '{');
    r2_json_real(j, "ms", report_ms(g->len_ns));
    r2_json_real(j, "until_s", report_s(g->end_ns));
    if (of_connection && g->len_ns) {
        r2_json_int(j, "rank", g->rank);
        r2_json_int(j, "peer", g->peer);
        r2_json_int(j, "channel", g->channel);
        r2_json_text(j, "end", g->receiving ? "receiving" : "sending");
    }
    r2_json_close(j, '}');
}

static const struct timeline_fault *report_fault_find(const struct timeline *t,
                                                      const struct fault_event *e)
{
    for (int i = 0; i < t->nfaults; i++) {
        if (t->faults[i].event.spec == e->spec) {
            return &t->faults[i];
        }
    }
    return NULL;
}

static void report_faults_json(struct r2_json *j, const struct report_extra *x)
{
    r2_json_open(j, "faults", '[');
    for (int i = 0; i < x->nevents; i++) {
        const struct fault_event *e = &x->events[i];
        const struct timeline_fault *f = x->timeline ? report_fault_find(x->timeline, e) : NULL;
        r2_json_open(j, NULL, '{');
        r2_json_text(j, "what", e->spec->what);
        r2_json_text(j, "kind", e->spec->command ? "command" : "fabric");
        r2_json_real(j, "planned_s", report_s(e->spec->at_ns));
        report_bool_json(j, "fired", e->fired);
        if (e->fired) {
            r2_json_real(j, "fired_s", report_s(e->fired_ns));
            r2_json_real(j, "took_ms", report_ms(e->took_ns));
            r2_json_int(j, "status", e->status);
        }
        if (f) {
            r2_json_open(j, "stall", '{');
            r2_json_real(j, "ms", report_ms(f->stall_ns));
            r2_json_text(j, "by", f->by == TIMELINE_BY_PLUGIN ? "plugin" : "driver");
            r2_json_close(j, '}');
            report_gap_json(j, "pause", &f->pause, true);
        }
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
}

static void report_timeline_json(struct r2_json *j, const struct timeline *t, bool is_loaded_here)
{
    report_gap_json(j, "stall", &t->stall, true);
    report_gap_json(j, "stall_before_faults", &t->stall_before, true);
    report_gap_json(j, "all_stopped", &t->stopped, false);
    if (t->nfaults) {
        r2_json_real(j, "after_from_s", report_s(t->after_ns));
    }
    r2_json_open(j, "busbw", '{');
    r2_json_real(j, "before", t->before);
    r2_json_real(j, "during", t->during);
    r2_json_real(j, "after", t->after);
    r2_json_real(j, "after_over_before", t->before > 0 ? t->after / t->before : NAN);
    r2_json_close(j, '}');
    r2_json_open(j, "failovers", '{');
    r2_json_known(j, "lines", is_loaded_here ? (int64_t)t->failovers : -1);
    r2_json_known(j, "ranks", is_loaded_here ? t->failover_ranks : -1);
    r2_json_close(j, '}');
    r2_json_open(j, "timeline", '{');
    r2_json_real(j, "interval_ms", report_ms(t->interval_ns));
    r2_json_open(j, "points", '[');
    for (size_t i = 0; i < t->n; i++) {
        r2_json_open(j, NULL, '{');
        r2_json_real(j, "t_s", report_s(i * t->interval_ns));
        r2_json_real(j, "busbw", t->busbw[i]);
        r2_json_real(j, "timed_share", t->active[i]);
        r2_json_close(j, '}');
    }
    r2_json_close(j, ']');
    r2_json_close(j, '}');
}

static void report_extra_json(struct report *r, const struct report_extra *x)
{
    struct r2_json *j = &r->json;
    r2_json_open(j, "r2", '{');
    r2_json_text(j, "schema", "r2_perf/1");
    r2_json_text(j, "plugin", x->plugin_name);
    r2_json_text(j, "plugin_path", x->plugin_path);
    r2_json_known(j, "plugin_abi", report_is_loaded_here(x) ? x->plugin_abi : -1);
    r2_json_int(j, "nranks", x->nranks);
    r2_json_int(j, "hosts", x->forked ? r->o->hosts : 0);
    r2_json_int(j, "nics", x->devices);
    r2_json_int(j, "channels", x->channels);
    r2_json_int(j, "buffer_bytes", (int64_t)r->o->buffer_bytes);
    r2_json_text(j, "intra", r->o->intra_net ? "net" : "shm");
    r2_json_int(j, "checked_operations", (int64_t)x->checked);
    r2_json_int(j, "wrong", (int64_t)x->wrong);
    r2_json_int(j, "wrong_sizes", (int64_t)x->mismatches);
    r2_json_int(j, "watched_size", (int64_t)x->watched_size);
    if (x->planned) {
        planned_json(j, x->planned);
    }
    report_faults_json(j, x);
    if (x->timeline) {
        report_timeline_json(j, x->timeline, report_is_loaded_here(x));
    }
    r2_json_close(j, '}');
}

void report_extra_print(struct report *r, const struct report_extra *x, bool print)
{
    if (x->mismatches) {
        printf("# r2 %llu messages of a wrong size: FAILED; the first %s\n",
               (unsigned long long)x->mismatches, x->mismatch);
    }
    if (print) {
        char abi[32] = "";
        if (report_is_loaded_here(x)) {
            snprintf(abi, sizeof(abi), " (net ABI v%d)", x->plugin_abi);
        }
        printf("# r2 %s%s%s, %d NICs, %d channels; watched size %zu\n",
               report_is_loaded_here(x) ? "plugin " : "", x->plugin_name, abi, x->devices,
               x->channels, x->watched_size);
        printf("# r2 checked %llu operations, %llu elements wrong\n",
               (unsigned long long)x->checked, (unsigned long long)x->wrong);
        for (int i = 0; i < x->nevents; i++) {
            report_fault_print(&x->events[i], i);
        }
        if (x->timeline) {
            report_timeline_print(x->timeline, report_is_loaded_here(x));
        }
    }
    fflush(stdout);
    if (r->has_json) {
        report_extra_json(r, x);
    }
}
