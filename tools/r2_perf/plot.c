#include "tools/r2_perf/plot.h"

#include <math.h>
#include <stdio.h>

#include "tools/shared/svg.h"

/* The picture, in pixels: the area of the curve lies between these margins. */
#define PLOT_WIDTH  960
#define PLOT_HEIGHT 440
#define PLOT_LEFT   78
#define PLOT_RIGHT  24
#define PLOT_TOP    92
#define PLOT_BOTTOM 58

struct plot {
    FILE *f;
    const struct timeline *t;
    double seconds, top; /* what the axes end at */
    double unit;         /* GB/s per unit of the axis */
    const char *unit_name;
};

static double plot_x(const struct plot *p, double s)
{
    return PLOT_LEFT + s / p->seconds * (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT);
}

static double plot_y(const struct plot *p, double value)
{
    return PLOT_HEIGHT - PLOT_BOTTOM - value / p->top * (PLOT_HEIGHT - PLOT_TOP - PLOT_BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about @count of them span @range. */
static double plot_step_get(double range, int count)
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
    ".fault{fill:#b3261e}"
    ".small{font-size:11px;fill:#2e7d32;paint-order:stroke;stroke:#fff;stroke-width:3px}";

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
    svg_text(p->f, (left + right) / 2, PLOT_HEIGHT - 16, "mid", "time (s)");
    snprintf(text, sizeof(text), "bus bandwidth (%s)", p->unit_name);
    svg_text_up(p->f, 20, (PLOT_TOP + bottom) / 2, "mid", text);
}

/* Steps, one per interval, with holes where nothing was timed. */
static void plot_curve_write(struct plot *p)
{
    const struct timeline *t = p->t;
    bool open = false;
    svg_path_begin(p->f);
    for (size_t i = 0; i < t->n; i++) {
        if (isnan(t->busbw[i])) {
            open = false;
            continue;
        }
        double s = (double)(i * t->interval_ns) / 1e9, width = (double)t->interval_ns / 1e9;
        fprintf(p->f, "%c%.2f %.2f H%.2f ", open ? 'L' : 'M', plot_x(p, s),
                plot_y(p, t->busbw[i] / p->unit), plot_x(p, fmin(s + width, p->seconds)));
        open = true;
    }
    svg_path_end(p->f, "fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.8\" "
                       "stroke-linejoin=\"round\"");
}

/* Labels take turns over three lines above the curve, so that neighbours do not cover each other.
 */
static void plot_faults_write(struct plot *p)
{
    for (int i = 0; i < p->t->nfaults; i++) {
        const struct timeline_fault *fault = &p->t->faults[i];
        double x = plot_x(p, (double)fault->event.fired_ns / 1e9);
        double y = PLOT_TOP - 8 - 14 * (i % 3);
        char text[160];
        snprintf(text, sizeof(text), "%.100s (stall %.1f ms)", fault->event.spec->what,
                 (double)fault->stall_ns / 1e6);
        svg_line(p->f, x, y + 2, x, PLOT_HEIGHT - PLOT_BOTTOM,
                 "stroke=\"#b3261e\" stroke-width=\"1.4\" stroke-dasharray=\"5 3\"");
        bool right_half = x > PLOT_WIDTH * 0.7;
        svg_text(p->f, x + (right_half ? -5 : 5), y, right_half ? "fault end" : "fault", text);
    }
}

static void plot_mean_write(struct plot *p, double mean, double from, double to, const char *name)
{
    char text[64];
    if (isnan(mean) || to <= from) {
        return;
    }
    double y = plot_y(p, mean / p->unit);
    svg_line(p->f, plot_x(p, from), y, plot_x(p, to), y,
             "stroke=\"#2e7d32\" stroke-width=\"1.2\" stroke-dasharray=\"2 3\"");
    snprintf(text, sizeof(text), "%s %.4g", name, mean / p->unit);
    svg_text(p->f, (plot_x(p, from) + plot_x(p, to)) / 2, y - 6, "mid small", text);
}

static void plot_legend_write(struct plot *p)
{
    static const struct {
        const char *line, *text;
    } items[] = {{"stroke=\"#1565c0\" stroke-width=\"2\" stroke-dasharray=\"none\"", "measured"},
                 {"stroke=\"#2e7d32\" stroke-width=\"2\" stroke-dasharray=\"2 3\"", "mean"},
                 {"stroke=\"#b3261e\" stroke-width=\"2\" stroke-dasharray=\"5 3\"", "fault"}};
    double x = PLOT_WIDTH - PLOT_RIGHT - 264;
    for (size_t i = 0; i < 3; i++, x += 102) {
        svg_line(p->f, x, 24, x + 22, 24, items[i].line);
        svg_text(p->f, x + 28, 28, "", items[i].text);
    }
}

static void plot_scale_set(struct plot *p)
{
    double highest = 0;
    for (size_t i = 0; i < p->t->n; i++) {
        highest = fmax(highest, isnan(p->t->busbw[i]) ? 0 : p->t->busbw[i]);
    }
    p->unit = highest < 1 ? 1e-3 : 1;
    p->unit_name = highest < 1 ? "MB/s" : "GB/s";
    highest = highest > 0 ? highest / p->unit : 1;
    double step = plot_step_get(highest * 1.05, 5);
    p->top = ceil(highest * 1.05 / step) * step;
    p->seconds = fmax((double)(p->t->n * p->t->interval_ns) / 1e9, 1e-3);
}

int plot_timeline_write(const char *path, const char *title, const struct timeline *t)
{
    struct plot p = {.f = fopen(path, "w"), .t = t};
    if (!p.f) {
        return -1;
    }
    plot_scale_set(&p);
    svg_begin(p.f, PLOT_WIDTH, PLOT_HEIGHT, plot_style);
    svg_text(p.f, PLOT_LEFT, 28, "title", title);
    plot_axes_write(&p);
    plot_curve_write(&p);
    plot_faults_write(&p);
    double first = t->nfaults ? (double)t->faults[0].event.fired_ns / 1e9 : p.seconds;
    double last = t->nfaults ? (double)t->after_ns / 1e9 : p.seconds;
    plot_mean_write(&p, t->before, 0, first, t->nfaults ? "before" : "mean");
    plot_mean_write(&p, t->after, last, p.seconds, "after");
    plot_legend_write(&p);
    svg_end(p.f);
    return fclose(p.f) == 0 ? 0 : -1;
}
