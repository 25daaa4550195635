#include "tools/r2_perf/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/plot_int.h"
#include "tools/r2_perf/util.h"
#include "tools/shared/svg.h"

#define LABEL_LINES 3   /* above the curve */
#define LABEL_FAULT 6.6 /* pixels of a letter */
/* Of what is timed of the others: less, and the last interval is no whole one. */
#define LAST_SHARE 0.5

double plot_x(const struct plot *p, double s)
{
    return PLOT_LEFT + s / p->seconds * (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT);
}

static double plot_y(const struct plot *p, double value)
{
    return PLOT_HEIGHT - PLOT_BOTTOM - value / p->top * (PLOT_HEIGHT - PLOT_TOP - PLOT_BOTTOM);
}

double plot_step_get(double range, int count)
{
    double raw = range / count, base = pow(10, floor(log10(raw)));
    return raw / base <= 1   ? base
           : raw / base <= 2 ? 2 * base
           : raw / base <= 5 ? 5 * base
                             : 10 * base;
}

static const char plot_style[] =
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#333}"
    ".title{font-size:16px;font-weight:bold}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".fault{fill:#b3261e}.key{font-size:11px}.small{font-size:11px;fill:#2e7d32}"
    ".fault,.small{paint-order:stroke;stroke:#fff;stroke-width:3px}";

static void plot_axes_write(struct plot *p)
{
    char text[64];
    double ystep = plot_step_get(p->top, 5), xstep = plot_step_get(p->seconds, 10);
    double left = PLOT_LEFT, right = PLOT_WIDTH - PLOT_RIGHT, bottom = PLOT_HEIGHT - PLOT_BOTTOM;
    for (int i = 0; i * ystep <= p->top * 1.0001; i++) {
        double y = plot_y(p, i * ystep);
        svg_line(p->f, left, y, right, y, "stroke=\"#e3e3e3\"");
        snprintf(text, sizeof(text), "%.4g", i * ystep);
        svg_text(p->f, left - 8, y + 4, "end", text);
    }
    for (int i = 0; i * xstep <= p->seconds * 1.0001; i++) {
        double x = plot_x(p, i * xstep);
        svg_line(p->f, x, bottom, x, bottom + 5, "stroke=\"#999\"");
        snprintf(text, sizeof(text), "%.4g", i * xstep);
        svg_text(p->f, x, bottom + 20, "mid", text);
    }
    svg_path_begin(p->f);
    fprintf(p->f, "M%.1f %d V%.1f H%.1f", left, PLOT_TOP, bottom, right);
    svg_path_end(p->f, "fill=\"none\" stroke=\"#666\"");
    svg_text(p->f, left, PLOT_HEIGHT - 16, "", "time (s)");
    snprintf(text, sizeof(text), "bus bandwidth (%s)", p->unit_name);
    svg_text_up(p->f, 20, (PLOT_TOP + bottom) / 2, "mid", text);
}

/* Steps, one per interval, with holes where nothing was timed. */
static void plot_curve_write(struct plot *p)
{
    const struct timeline *t = p->t;
    bool open = false;
    svg_path_begin(p->f);
    for (size_t i = 0; i < p->n; i++) {
        if (isnan(t->busbw[i])) {
            open = false;
            continue;
        }
        double s = (double)(i * t->interval_ns) / 1e9, width = (double)t->interval_ns / 1e9;
        fprintf(p->f, "%c%.2f %.2f H%.2f ", open ? 'L' : 'M', plot_x(p, s),
                plot_y(p, t->busbw[i] / p->unit), plot_x(p, s + width));
        open = true;
    }
    svg_path_end(p->f, "fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.8\" "
                       "stroke-linejoin=\"round\"");
}

/* --- what would be ideal --- */

struct plot_share {
    uint64_t at;
    int rank;
    double share; /* of the rank's NICs, that it has left */
};

static int plot_share_compare(const void *x, const void *y)
{
    const struct plot_share *a = x, *b = y;
    return a->at < b->at ? -1 : a->at > b->at ? 1 : a->rank - b->rank;
}

/* What each rank's plugin told of how many NICs it has left, by time, as new memory. */
static struct plot_share *plot_shares_get(const struct chrome *c, size_t *n)
{
    struct plot_share *list = util_mem_alloc((size_t)c->nranks * R2_STAT_HISTORY, sizeof(*list));
    *n = 0;
    for (int r = 0; r < c->nranks; r++) {
        const struct stats_told *t = c->ranks[r].told;
        for (uint32_t i = 0; t && i < t->nevents; i++) {
            const struct r2_stat_event *e = &t->event[i];
            if (e->capacity_all > 0 && e->capacity_up >= 0) {
                list[(*n)++] = (struct plot_share){
                    e->mono, r, (double)e->capacity_up / (double)e->capacity_all};
            }
        }
    }
    qsort(list, *n, sizeof(*list), plot_share_compare);
    return list;
}

/* The rate before the first fault, by the share of the NICs that are left to the rank that has the
 * fewest: a collective is as fast as its slowest host. */
static void plot_ideal_write(struct plot *p)
{
    size_t n;
    struct plot_share *list = plot_shares_get(p->ranks, &n);
    double *left = util_mem_alloc((size_t)p->ranks->nranks, sizeof(*left));
    double worst = 1, first = p->t->nfaults ? (double)p->t->faults[0].event.fired_ns / 1e9 : 0;
    if (n > 0 && p->t->nfaults && !isnan(p->t->before)) {
        for (int r = 0; r < p->ranks->nranks; r++) {
            left[r] = 1;
        }
        svg_path_begin(p->f);
        fprintf(p->f, "M%d %.2f ", PLOT_LEFT, plot_y(p, p->t->before / p->unit));
        for (size_t i = 0; i < n; i++) {
            double least = 1;
            left[list[i].rank] = list[i].share;
            for (int r = 0; r < p->ranks->nranks; r++) {
                least = fmin(least, left[r]);
            }
            double s = fmax((double)list[i].at / 1e9, first);
            if (least != worst && s <= p->seconds) {
                worst = least;
                fprintf(p->f, "H%.2f V%.2f ", plot_x(p, s),
                        plot_y(p, p->t->before * worst / p->unit));
            }
        }
        fprintf(p->f, "H%.2f", plot_x(p, p->seconds));
        svg_path_end(p->f, "class=\"ideal\" fill=\"none\" stroke=\"#ffb74d\" stroke-width=\"4\"");
    }
    free(left);
    free(list);
}

/* --- labels --- */

/* A label takes the first line above the curve on which nothing reaches to it; of so many at once
 * that none is free the lines of text tell. Its place on that line, and that line or LABEL_LINES.
 */
static double plot_label_place(double x, double width, double taken[LABEL_LINES], int *line)
{
    double from = fmin(x + 5, PLOT_WIDTH - 4 - width);
    *line = 0;
    while (*line < LABEL_LINES && from < taken[*line]) {
        ++*line;
    }
    if (*line < LABEL_LINES) {
        taken[*line] = from + width + 8;
    }
    return from;
}

/* Labels after all lines, so that no line is drawn over a label. */
static void plot_faults_write(struct plot *p)
{
    double taken[LABEL_LINES] = {0};
    struct {
        char text[160];
        double x, y;
    } label[OPTS_FAULTS_MAX];
    int labels = 0;
    for (int i = 0; i < p->t->nfaults; i++) {
        const struct timeline_fault *fault = &p->t->faults[i];
        double x = plot_x(p, (double)fault->event.fired_ns / 1e9);
        int line;
        snprintf(label[labels].text, sizeof(label[labels].text), "%.100s (stall %.1f ms)",
                 fault->event.spec->what, (double)fault->stall_ns / 1e6);
        label[labels].x =
            plot_label_place(x, (double)strlen(label[labels].text) * LABEL_FAULT, taken, &line);
        label[labels].y = PLOT_TOP - 8 - 14 * (line < LABEL_LINES ? line : 0);
        svg_line(p->f, x, label[labels].y + 2, x, PLOT_HEIGHT - PLOT_BOTTOM, PLOT_FAULT_LINE);
        labels += line < LABEL_LINES;
    }
    for (int i = 0; i < labels; i++) {
        svg_text(p->f, label[i].x, label[i].y, "fault", label[i].text);
    }
}

/* The highest point of the curve between two places, as a y. */
static double plot_highest_get(const struct plot *p, double left, double right)
{
    double y = PLOT_HEIGHT - PLOT_BOTTOM;
    for (size_t i = 0; i < p->n; i++) {
        double s = (double)(i * p->t->interval_ns) / 1e9;
        double from = plot_x(p, s), to = plot_x(p, s + (double)p->t->interval_ns / 1e9);
        if (!isnan(p->t->busbw[i]) && to >= left && from <= right) {
            y = fmin(y, plot_y(p, p->t->busbw[i] / p->unit));
        }
    }
    return y;
}

/* Its text stands above the curve. */
static void plot_mean_write(struct plot *p, double mean, double from, double to, const char *name)
{
    char text[64];
    if (isnan(mean) || to <= from) {
        return;
    }
    double y = plot_y(p, mean / p->unit), x = (plot_x(p, from) + plot_x(p, to)) / 2;
    svg_line(p->f, plot_x(p, from), y, plot_x(p, to), y,
             "stroke=\"#2e7d32\" stroke-width=\"1.2\" stroke-dasharray=\"2 3\"");
    snprintf(text, sizeof(text), "%s %.4g", name, mean / p->unit);
    y = fmin(y, plot_highest_get(p, x - 50, x + 50)) - 8;
    svg_text(p->f, x, fmax(y, PLOT_TOP + 10), "mid small", text);
}

static void plot_legend_write(struct plot *p)
{
    static const struct {
        const char *line, *text;
    } items[] = {{"stroke=\"#1565c0\" stroke-width=\"2\"", "measured"},
                 {"stroke=\"#2e7d32\" stroke-width=\"2\" stroke-dasharray=\"2 3\"", "mean"},
                 {"stroke=\"#ffb74d\" stroke-width=\"4\"", "ideal: before x NICs left"},
                 {"stroke=\"#b3261e\" stroke-width=\"2\" stroke-dasharray=\"5 3\"", "fault"}};
    double x = PLOT_WIDTH - PLOT_RIGHT;
    for (size_t i = sizeof(items) / sizeof(items[0]); i-- > 0;) {
        x -= 46 + 6.2 * (double)strlen(items[i].text);
        svg_line(p->f, x, PLOT_HEIGHT - 20, x + 22, PLOT_HEIGHT - 20, items[i].line);
        svg_text(p->f, x + 28, PLOT_HEIGHT - 16, "key", items[i].text);
    }
}

/* The run ended somewhere in the last interval: so little of it was timed that it says nothing. */
static size_t plot_intervals_get(const struct timeline *t)
{
    double sum = 0;
    for (size_t i = 0; i + 1 < t->n; i++) {
        sum += t->active[i];
    }
    return t->n > 1 && t->active[t->n - 1] < LAST_SHARE * sum / (double)(t->n - 1) ? t->n - 1
                                                                                   : t->n;
}

static void plot_scale_set(struct plot *p)
{
    double highest = 0;
    p->n = plot_intervals_get(p->t);
    for (size_t i = 0; i < p->n; i++) {
        highest = fmax(highest, isnan(p->t->busbw[i]) ? 0 : p->t->busbw[i]);
    }
    p->unit = highest < 1 ? 1e-3 : 1;
    p->unit_name = highest < 1 ? "MB/s" : "GB/s";
    highest = highest > 0 ? highest / p->unit : 1;
    double step = plot_step_get(highest * 1.05, 5);
    p->top = ceil(highest * 1.05 / step) * step;
    p->seconds = fmax((double)(p->n * p->t->interval_ns) / 1e9, 1e-3);
    for (int i = 0; i < p->t->nfaults; i++) { /* in an interval that is left out, too */
        p->seconds = fmax(p->seconds, (double)p->t->faults[i].event.fired_ns / 1e9);
    }
}

int plot_timeline_write(const char *path, const char *title, const struct timeline *t,
                        const struct chrome *ranks)
{
    struct plot p = {.f = fopen(path, "w"), .t = t, .ranks = ranks};
    int first[PLOT_HOSTS], hosts = plot_hosts_get(ranks, first);
    if (!p.f) {
        return -1;
    }
    plot_scale_set(&p);
    svg_begin(p.f, PLOT_WIDTH, PLOT_HEIGHT + hosts * PLOT_PANEL_H, plot_style);
    svg_text_fit(p.f, PLOT_LEFT, 28, PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT, 16, "title", title);
    plot_axes_write(&p);
    plot_ideal_write(&p);
    plot_curve_write(&p);
    plot_faults_write(&p);
    double start = t->nfaults ? (double)t->faults[0].event.fired_ns / 1e9 : p.seconds;
    double last = t->nfaults ? (double)t->after_ns / 1e9 : p.seconds;
    plot_mean_write(&p, t->before, 0, start, t->nfaults ? "before" : "mean");
    plot_mean_write(&p, t->after, last, p.seconds, "after");
    plot_legend_write(&p);
    plot_nics_write(&p, first, hosts);
    svg_end(p.f);
    return fclose(p.f) == 0 ? 0 : -1;
}
