#include "tools/r2_perf/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/log.h"
#include "tools/r2_perf/util.h"

/* Intervals in which less than this was timed say nothing about the rate. */
#define TIMELINE_ACTIVE_MIN 0.05

char *timeline_all_get(struct boot *boot, int rank, int nranks, const void *data, uint64_t bytes,
                       uint64_t *sizes, uint64_t *longest)
{
    sizes[rank] = bytes;
    if (boot_allgather(boot, sizes, sizeof(*sizes)) != 0) {
        return NULL;
    }
    *longest = 0;
    for (int r = 0; r < nranks; r++) {
        *longest = sizes[r] > *longest ? sizes[r] : *longest;
    }
    char *all = util_mem_alloc((size_t)nranks, *longest);
    if (bytes) {
        memcpy(all + (size_t)rank * *longest, data, bytes);
    }
    if (boot_allgather(boot, all, *longest) != 0) {
        free(all);
        return NULL;
    }
    return all;
}

/* Sums of all ranks' numbers per interval, into new memory of @*n; NULL once the run failed. */
static double *timeline_sum_get(struct boot *boot, int rank, int nranks, const uint64_t *bins,
                                size_t nbins, size_t *n)
{
    uint64_t sizes[BOOT_RANKS_MAX], longest;
    char *all = timeline_all_get(boot, rank, nranks, bins, nbins * sizeof(*bins), sizes, &longest);
    if (!all) {
        return NULL;
    }
    *n = longest / sizeof(*bins);
    double *sum = util_mem_alloc(*n, sizeof(*sum));
    for (int r = 0; r < nranks; r++) {
        const uint64_t *row = (const uint64_t *)(all + (size_t)r * longest);
        for (size_t i = 0; i < *n; i++) {
            sum[i] += (double)row[i];
        }
    }
    free(all);
    return sum;
}

/* All ranks' pauses in one new list; NULL once the run failed. */
static struct trace_gap *timeline_gaps_get(struct boot *boot, int rank, int nranks,
                                           const struct trace_gaps *own, size_t *n)
{
    uint64_t sizes[BOOT_RANKS_MAX], longest;
    char *all = timeline_all_get(boot, rank, nranks, own->list, own->n * sizeof(*own->list), sizes,
                                 &longest);
    if (!all) {
        return NULL;
    }
    struct trace_gap *list = util_mem_alloc((size_t)nranks, longest);
    *n = 0;
    for (int r = 0; r < nranks; r++) {
        size_t k = sizes[r] / sizeof(*list);
        memcpy(list + *n, all + (size_t)r * longest, sizes[r]);
        *n += k;
    }
    free(all);
    return list;
}

static void timeline_longest_find(const struct trace_gap *list, size_t n, uint64_t from,
                                  uint64_t to, struct trace_gap *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        if (list[i].end_ns > from && list[i].end_ns <= to && list[i].len_ns > out->len_ns) {
            *out = list[i];
        }
    }
}

struct timeline_edge {
    uint64_t at;
    int step; /* +1: a rank's pause starts; -1: it ends */
};

static int timeline_edge_compare(const void *x, const void *y)
{
    const struct timeline_edge *a = x, *b = y;
    return a->at < b->at ? -1 : a->at > b->at ? 1 : a->step - b->step;
}

/* Pauses of one rank never overlap, so where as many overlap as there are ranks, all of them
 * paused. */
static void timeline_stopped_find(const struct trace_gap *list, size_t n, int nranks,
                                  struct trace_gap *out)
{
    struct timeline_edge *edges = util_mem_alloc(2 * n, sizeof(*edges));
    int open = 0;
    uint64_t since = 0;
    for (size_t i = 0; i < n; i++) {
        edges[2 * i] = (struct timeline_edge){list[i].end_ns - list[i].len_ns, 1};
        edges[2 * i + 1] = (struct timeline_edge){list[i].end_ns, -1};
    }
    qsort(edges, 2 * n, sizeof(*edges), timeline_edge_compare);
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < 2 * n; i++) {
        if (open == nranks && edges[i].step < 0 && edges[i].at - since > out->len_ns) {
            *out = (struct trace_gap){
                .end_ns = edges[i].at, .len_ns = edges[i].at - since, .rank = -1, .peer = -1};
        }
        open += edges[i].step;
        since = edges[i].at;
    }
    free(edges);
}

/* Mean GB/s of the intervals that lie wholly in [@from, @to). */
static double timeline_mean_get(const struct timeline *t, uint64_t from, uint64_t to)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint64_t start = i * t->interval_ns, end = start + t->interval_ns;
        if (start >= from && end <= to && !isnan(t->busbw[i])) {
            sum += t->busbw[i] * t->active[i];
            weight += t->active[i];
        }
    }
    return weight > 0 ? sum / weight : NAN;
}

/* The pause that the fault begins or falls into: it was there before the fault had settled, and
 * ended after it. */
static void timeline_pause_find(const struct trace_gap *list, size_t n, const struct fault_event *e,
                                uint64_t next, struct trace_gap *out)
{
    uint64_t latest = e->fired_ns + e->took_ns + TIMELINE_SETTLE_NS;
    latest = latest < next ? latest : next;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        uint64_t since = list[i].end_ns - list[i].len_ns;
        if (list[i].end_ns > e->fired_ns && since <= latest && list[i].len_ns > out->len_ns) {
            *out = list[i];
        }
    }
}

/* A switch of some rank; times since its clock started. */
struct timeline_switch {
    struct log_switch s;
    int64_t rank;
};

static void timeline_switches_add(struct timeline_fault *f, const struct timeline_switch *list,
                                  size_t n, uint64_t next)
{
    uint64_t latest = f->event.fired_ns + f->event.took_ns + TIMELINE_DETECT_NS;
    bool known = true, any = false;
    uint64_t stall = 0;
    for (size_t i = 0; i < n; i++) {
        const struct log_switch *s = &list[i].s;
        if (s->began_ns < f->event.fired_ns || s->began_ns >= next || s->began_ns > latest) {
            continue;
        }
        if (!any || s->stall_ns > stall) {
            stall = s->stall_ns;
            f->switch_rank = (int)list[i].rank;
            f->switch_ns = s->began_ns;
        }
        any = true;
        known = known && s->over;
        f->end_ns = s->end_ns > f->end_ns ? s->end_ns : f->end_ns;
    }
    if (any && known) {
        f->by = TIMELINE_BY_PLUGIN;
        f->stall_ns = stall;
    }
}

static void timeline_faults_set(struct timeline *t, const struct fault_agent *agent,
                                const struct trace_gap *gaps, size_t ngaps,
                                const struct timeline_switch *switches, size_t nswitches)
{
    int n;
    const struct fault_event *events = fault_events_get(agent, &n);
    uint64_t end = t->n * t->interval_ns, whole = end;
    for (int i = 0; i < n; i++) {
        if (events[i].fired) {
            t->faults[t->nfaults++].event = events[i];
        }
    }
    t->after_ns = t->nfaults ? 0 : end;
    for (int i = 0; i < t->nfaults; i++) {
        struct timeline_fault *f = &t->faults[i];
        uint64_t next = i + 1 < t->nfaults ? t->faults[i + 1].event.fired_ns : UINT64_MAX;
        timeline_pause_find(gaps, ngaps, &f->event, next, &f->pause);
        f->stall_ns = f->pause.len_ns;
        f->end_ns = f->event.fired_ns + f->event.took_ns + TIMELINE_SETTLE_NS;
        f->end_ns = f->pause.end_ns > f->end_ns ? f->pause.end_ns : f->end_ns;
        timeline_switches_add(f, switches, nswitches, next);
        t->after_ns = f->end_ns > t->after_ns ? f->end_ns : t->after_ns;
    }
    uint64_t first = t->nfaults ? t->faults[0].event.fired_ns : end;
    whole = t->after_ns + (t->interval_ns - t->after_ns % t->interval_ns) % t->interval_ns;
    timeline_longest_find(gaps, ngaps, 0, first, &t->stall_before);
    t->before = timeline_mean_get(t, 0, first);
    t->during = t->nfaults ? timeline_mean_get(t, first - first % t->interval_ns, whole) : NAN;
    t->after = t->nfaults ? timeline_mean_get(t, whole, end) : NAN;
}

/* What all ranks' plugins told of switches, in one new list; NULL once the run failed. */
static struct timeline_switch *timeline_switches_get(struct boot *boot, int rank, int nranks,
                                                     uint64_t t0, size_t *n)
{
    struct log_switch seen[LOG_SWITCHES_MAX];
    struct timeline_switch own[LOG_SWITCHES_MAX], *list;
    uint64_t sizes[BOOT_RANKS_MAX], longest, k = 0;
    int nseen = log_switches_get(seen);
    for (int i = 0; i < nseen; i++) {
        if (t0 && seen[i].began_ns >= t0) {
            own[k++] = (struct timeline_switch){
                {seen[i].began_ns - t0, seen[i].end_ns - t0, seen[i].stall_ns, seen[i].over}, rank};
        }
    }
    char *all = timeline_all_get(boot, rank, nranks, own, k * sizeof(*own), sizes, &longest);
    if (!all) {
        return NULL;
    }
    list = util_mem_alloc((size_t)nranks, longest + 1);
    *n = 0;
    for (int r = 0; r < nranks; r++) {
        memcpy(list + *n, all + (size_t)r * longest, sizes[r]);
        *n += sizes[r] / sizeof(*list);
    }
    free(all);
    return list;
}

static void timeline_rate_set(struct timeline *t, double *bytes, double *active, int nranks,
                              double bus_bytes)
{
    double total = 0;
    for (size_t i = 0; i < t->n; i++) {
        total += bytes[i];
    }
    t->busbw = bytes;
    t->active = active;
    for (size_t i = 0; i < t->n; i++) {
        double ns = active[i] / nranks;
        active[i] = ns / (double)t->interval_ns;
        bool known = active[i] >= TIMELINE_ACTIVE_MIN && total > 0;
        t->busbw[i] = known ? bytes[i] / total * bus_bytes / ns : NAN;
    }
}

static int timeline_failovers_sum(struct timeline *t, struct boot *boot, int rank, int nranks,
                                  uint64_t own)
{
    uint64_t counts[BOOT_RANKS_MAX] = {0};
    counts[rank] = own;
    if (boot_allgather(boot, counts, sizeof(*counts)) != 0) {
        return -1;
    }
    for (int r = 0; r < nranks; r++) {
        t->failovers += counts[r];
        t->failover_ranks += counts[r] > 0;
    }
    return 0;
}

int timeline_gather(struct timeline *t, struct boot *boot, int rank, int nranks,
                    const struct trace *trace, double bus_bytes, uint64_t failovers,
                    const struct fault_agent *agent)
{
    size_t ngaps = 0, nstops = 0, nactive = 0, nswitches = 0;
    memset(t, 0, sizeof(*t));
    t->interval_ns = trace->interval_ns;
    double *bytes = timeline_sum_get(boot, rank, nranks, trace->bytes, trace->nbins, &t->n);
    double *active =
        bytes ? timeline_sum_get(boot, rank, nranks, trace->active, trace->nbins, &nactive) : NULL;
    struct trace_gap *gaps =
        active ? timeline_gaps_get(boot, rank, nranks, &trace->conn_gaps, &ngaps) : NULL;
    struct trace_gap *stops =
        gaps ? timeline_gaps_get(boot, rank, nranks, &trace->rank_gaps, &nstops) : NULL;
    struct timeline_switch *switches =
        stops ? timeline_switches_get(boot, rank, nranks, trace->t0, &nswitches) : NULL;
    int rc = switches ? timeline_failovers_sum(t, boot, rank, nranks, failovers) : -1;
    if (rc == 0 && rank == 0) {
        timeline_rate_set(t, bytes, active, nranks, bus_bytes);
        timeline_longest_find(gaps, ngaps, 0, UINT64_MAX, &t->stall);
        timeline_stopped_find(stops, nstops, nranks, &t->stopped);
        timeline_faults_set(t, agent, gaps, ngaps, switches, nswitches);
    } else {
        free(bytes);
        free(active);
    }
    free(gaps);
    free(stops);
    free(switches);
    return rc;
}

void timeline_free(struct timeline *t)
{
    free(t->busbw);
    free(t->active);
    t->busbw = t->active = NULL;
}

uint64_t timeline_stall_start(const struct timeline_fault *f)
{
    uint64_t pause = f->pause.end_ns - f->pause.len_ns, first;
    if (f->by == TIMELINE_BY_DRIVER) {
        return pause;
    }
    first = f->switch_ns > f->stall_ns ? f->switch_ns - f->stall_ns : 0;
    first = first > f->event.fired_ns ? first : f->event.fired_ns;
    if (!f->pause.len_ns || pause < first) {
        return first;
    }
    return pause < f->switch_ns ? pause : f->switch_ns;
}
