#include "tools/r2_perf/trace.h"

#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"

#define TRACE_GAPS_MAX 65536

void trace_init(struct trace *s, int rank, uint64_t interval_ns)
{
    memset(s, 0, sizeof(*s));
    s->rank = rank;
    s->interval_ns = interval_ns;
    s->conn_gaps.min_ns = s->rank_gaps.min_ns = TRACE_GAP_MIN_NS;
}

void trace_free(struct trace *s)
{
    free(s->bytes);
    free(s->active);
    free(s->conn_gaps.list);
    free(s->rank_gaps.list);
    free(s->ops.list);
    memset(s, 0, sizeof(*s));
}

void trace_clock_start(struct trace *s, uint64_t t0)
{
    s->t0 = t0;
    s->on = true;
}

/* The interval that @at (ns since t0) lies in; room for it is made. */
static size_t trace_bin_get(struct trace *s, uint64_t at)
{
    size_t bin = (size_t)(at / s->interval_ns);
    if (bin >= s->room) {
        size_t room = (bin + 64) * 2;
        s->bytes = util_mem_resize(s->bytes, room, sizeof(*s->bytes));
        s->active = util_mem_resize(s->active, room, sizeof(*s->active));
        memset(s->bytes + s->room, 0, (room - s->room) * sizeof(*s->bytes));
        memset(s->active + s->room, 0, (room - s->room) * sizeof(*s->active));
        s->room = room;
    }
    s->nbins = util_size_max(s->nbins, bin + 1);
    return bin;
}

/* When the list is full, the shorter half by threshold makes room: the longest pauses are never
 * lost. */
static void trace_gaps_thin(struct trace_gaps *g)
{
    size_t kept = 0;
    g->min_ns *= 2;
    for (size_t i = 0; i < g->n; i++) {
        if (g->list[i].len_ns >= g->min_ns) {
            g->list[kept++] = g->list[i];
        }
    }
    g->n = kept;
}

static void trace_gap_add(struct trace_gaps *g, const struct trace_gap *gap)
{
    if (gap->len_ns < g->min_ns) {
        return;
    }
    while (g->n >= TRACE_GAPS_MAX) {
        trace_gaps_thin(g);
    }
    if (g->n == g->room) {
        g->room = g->room ? g->room * 2 : 256;
        g->list = util_mem_resize(g->list, g->room, sizeof(*g->list));
    }
    g->list[g->n++] = *gap;
}

static void trace_rank_note(struct trace *s, uint64_t now)
{
    struct trace_gap gap = {
        .end_ns = now - s->t0, .len_ns = now - s->last_progress, .rank = s->rank, .peer = -1};
    trace_gap_add(&s->rank_gaps, &gap);
    s->last_progress = now;
}

void trace_stretch_start(struct trace *s, uint64_t now)
{
    if (s->on) {
        s->active_since = s->last_progress = now;
    }
}

void trace_stretch_stop(struct trace *s, uint64_t now)
{
    if (!s->on || !s->active_since) {
        return;
    }
    trace_rank_note(s, now);
    for (uint64_t at = s->active_since - s->t0, end = now - s->t0; at < end;) {
        size_t bin = trace_bin_get(s, at);
        uint64_t bin_end = (uint64_t)(bin + 1) * s->interval_ns;
        uint64_t upto = bin_end < end ? bin_end : end;
        s->active[bin] += upto - at;
        at = upto;
    }
    s->active_since = 0;
}

void trace_bytes_add(struct trace *s, uint64_t now, size_t bytes)
{
    if (s->on && s->active_since) {
        size_t bin = trace_bin_get(s, now - s->t0); /* may move the array */
        s->bytes[bin] += bytes;
        trace_rank_note(s, now);
    }
}

void trace_conn_note(struct trace *s, uint64_t since, uint64_t now, int peer, int channel,
                     bool receiving)
{
    if (!s->on || !s->active_since) {
        return; /* the last sends of a stretch drain after it: nobody waits for them */
    }
    since = since < s->t0 ? s->t0 : since;
    struct trace_gap gap = {.end_ns = now - s->t0,
                            .len_ns = now - since,
                            .rank = s->rank,
                            .peer = peer,
                            .channel = channel,
                            .receiving = receiving};
    trace_gap_add(&s->conn_gaps, &gap);
    trace_rank_note(s, now);
}

/* @next follows @op. */
static void trace_op_merge(struct trace_op *op, const struct trace_op *next)
{
    op->end_ns = next->end_ns;
    op->busy_ns += next->busy_ns;
    op->wrong = op->wrong < 0 ? next->wrong : op->wrong + (next->wrong > 0 ? next->wrong : 0);
    op->n += next->n;
    op->placements |= next->placements;
}

static void trace_ops_halve(struct trace_ops *ops)
{
    for (size_t i = 0; i < ops->n / 2; i++) {
        ops->list[i] = ops->list[2 * i];
        trace_op_merge(&ops->list[i], &ops->list[2 * i + 1]);
    }
    ops->n /= 2;
    ops->per *= 2;
}

void trace_op_add(struct trace *s, uint64_t start, uint64_t end, bool in_place, int64_t wrong)
{
    struct trace_ops *ops = &s->ops;
    struct trace_op op = {.first = ops->count++,
                          .start_ns = start > s->t0 ? start - s->t0 : 0,
                          .wrong = wrong,
                          .n = 1,
                          .placements = in_place ? TRACE_IN : TRACE_OUT};
    op.end_ns = end > s->t0 + op.start_ns ? end - s->t0 : op.start_ns;
    op.busy_ns = op.end_ns - op.start_ns;
    ops->per = ops->per ? ops->per : 1;
    if (ops->n && ops->list[ops->n - 1].n < ops->per) {
        trace_op_merge(&ops->list[ops->n - 1], &op);
        return;
    }
    if (ops->n == TRACE_OPS_MAX) {
        trace_ops_halve(ops);
    }
    if (ops->n == ops->room) {
        ops->room = ops->room ? ops->room * 2 : 256;
        ops->list = util_mem_resize(ops->list, ops->room, sizeof(*ops->list));
    }
    ops->list[ops->n++] = op;
}
