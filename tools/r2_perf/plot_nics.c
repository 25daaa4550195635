#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/plot_int.h"
#include "tools/r2_perf/util.h"
#include "tools/shared/svg.h"

#define STEP_MIN  0.25 /* s: plugins write no more often */
#define STEPS_MAX 200
#define INNER     34 /* pixels of a panel above its area, and below */
#define NAME_ROWS 2  /* of NICs' names, above an area */

static const char *const colours[] = {"#1565c0", "#e65100", "#2e7d32", "#6a1b9a",
                                      "#00838f", "#ad1457", "#5d4037", "#546e7a"};
#define COLOURS (sizeof(colours) / sizeof(colours[0]))

/* What is drawn of one host. */
struct panel {
    const char *host;
    const struct stats_told *names; /* of its first rank */
    uint32_t nics;
    int steps;
    double step;  /* s */
    double *rate; /* bytes/s; of NIC n in step i: rate[n * steps + i] */
};

static bool has_rows(const struct stats_told *t)
{
    return t && t->nrows > 1;
}

int plot_hosts_get(const struct chrome *ranks, int first[PLOT_HOSTS])
{
    int n = 0;
    for (int r = 0; r < ranks->nranks && n < PLOT_HOSTS; r++) {
        int k = 0;
        while (k < n && strcmp(ranks->ranks[first[k]].host, ranks->ranks[r].host) != 0) {
            k++;
        }
        if (k == n && has_rows(ranks->ranks[r].told)) {
            first[n++] = r;
        }
    }
    return n;
}

/* Bytes over a NIC until @s, between two rows in proportion. */
static double bytes_until(const struct stats_told *t, uint32_t nic, double s)
{
    int64_t at = (int64_t)(s * 1e9);
    for (uint32_t i = 0; i < t->nrows; i++) {
        const struct stats_row *b = &t->row[i];
        double have = (double)(b->sent[nic] + b->received[nic]);
        if (b->at_ns >= at) {
            if (i == 0) {
                return have;
            }
            double before = (double)(b[-1].sent[nic] + b[-1].received[nic]);
            double part = (double)(at - b[-1].at_ns) / (double)(b->at_ns - b[-1].at_ns);
            return before + (have - before) * part;
        }
    }
    return (double)(t->row[t->nrows - 1].sent[nic] + t->row[t->nrows - 1].received[nic]);
}

static bool is_of(const struct plot *p, int rank, const char *host)
{
    return has_rows(p->ranks->ranks[rank].told) && strcmp(p->ranks->ranks[rank].host, host) == 0;
}

/* Up to its last row within @seconds: one that is written after the end has a time in which nothing
 * moved. */
static double told_until(const struct stats_told *t, double seconds)
{
    uint32_t n = t->nrows;
    while (n > 0 && (double)t->row[n - 1].at_ns / 1e9 > seconds) {
        n--;
    }
    return n ? (double)t->row[n - 1].at_ns / 1e9 : 0;
}

/* All ranks of a host; as far as all of them have told. */
static void panel_fill(const struct plot *p, int first, struct panel *panel)
{
    double until = p->seconds;
    *panel = (struct panel){.host = p->ranks->ranks[first].host,
                            .names = p->ranks->ranks[first].told,
                            .nics = p->ranks->ranks[first].told->nics,
                            .step = fmax(STEP_MIN, p->seconds / STEPS_MAX)};
    for (int r = 0; r < p->ranks->nranks; r++) {
        const struct stats_told *t = p->ranks->ranks[r].told;
        if (is_of(p, r, panel->host)) {
            until = fmin(until, told_until(t, p->seconds));
        }
    }
    panel->steps = until > 0 ? (int)(until / panel->step) : 0;
    panel->rate = util_mem_alloc((size_t)panel->nics * (size_t)panel->steps, sizeof(double));
    for (int r = 0; r < p->ranks->nranks; r++) {
        const struct stats_told *t = p->ranks->ranks[r].told;
        for (uint32_t n = 0; is_of(p, r, panel->host) && n < panel->nics && n < t->nics; n++) {
            for (int i = 0; i < panel->steps; i++) {
                panel->rate[n * (uint32_t)panel->steps + (uint32_t)i] +=
                    (bytes_until(t, n, (i + 1) * panel->step) -
                     bytes_until(t, n, i * panel->step)) /
                    panel->step;
            }
        }
    }
}

static double panel_highest(const struct panel *panel, uint32_t nic)
{
    double highest = 0;
    for (int i = 0; i < panel->steps; i++) {
        highest = fmax(highest, panel->rate[nic * (uint32_t)panel->steps + (uint32_t)i]);
    }
    return highest;
}

static void panel_axes_write(const struct plot *p, const struct panel *panel, double y0, double y1,
                             double top, double unit, const char *unit_name)
{
    char text[200];
    double step = plot_step_get(top, 3);
    for (int i = 0; i * step <= top * 1.0001; i++) {
        double y = y1 - i * step / top * (y1 - y0);
        svg_line(p->f, PLOT_LEFT, y, PLOT_WIDTH - PLOT_RIGHT, y, "stroke=\"#e3e3e3\"");
        snprintf(text, sizeof(text), "%.4g", i * step / unit);
        svg_text(p->f, PLOT_LEFT - 8, y + 4, "end", text);
    }
    svg_path_begin(p->f);
    fprintf(p->f, "M%d %.1f V%.1f H%d", PLOT_LEFT, y0, y1, PLOT_WIDTH - PLOT_RIGHT);
    svg_path_end(p->f, "fill=\"none\" stroke=\"#666\"");
    snprintf(text, sizeof(text), "%s: each NIC, both ways (%s)", panel->host, unit_name);
    svg_text(p->f, PLOT_LEFT, y0 - 10, "", text);
    for (int i = 0; i < p->t->nfaults; i++) {
        double x = plot_x(p, (double)p->t->faults[i].event.fired_ns / 1e9);
        svg_line(p->f, x, y0, x, y1, PLOT_FAULT_LINE);
    }
}

/* A NIC's name and colour, left of *@x; the row above goes on where a row is full. What none has
 * room for has no name. */
static void panel_name_write(const struct plot *p, const char *name, const char *colour, double y0,
                             double *x, int *row)
{
    char text[80];
    double width = (double)strlen(name) * SVG_LETTER(11) + 34;
    /* the first stands behind what the panel is of */
    if (*row == 0 && *x - width < PLOT_LEFT + 260) {
        *x = PLOT_WIDTH - PLOT_RIGHT;
        *row = 1;
    }
    *x -= width;
    if (*x < PLOT_LEFT) {
        *row = NAME_ROWS;
    }
    if (*row < NAME_ROWS) {
        double y = y0 - 10 - 13 * *row;
        snprintf(text, sizeof(text), "stroke=\"%s\" stroke-width=\"2\"", colour);
        svg_line(p->f, *x, y - 4, *x + 16, y - 4, text);
        svg_text(p->f, *x + 20, y, "key", name);
    }
}

/* NICs that have carried something, and their names at the right. */
static void panel_curves_write(const struct plot *p, const struct panel *panel, double y0,
                               double y1, double top)
{
    double x = PLOT_WIDTH - PLOT_RIGHT;
    int row = 0;
    char text[200];
    for (uint32_t n = panel->nics; n-- > 0;) {
        const char *colour = colours[n % COLOURS];
        if (panel_highest(panel, n) <= 0) {
            continue;
        }
        svg_path_begin(p->f);
        for (int i = 0; i < panel->steps; i++) {
            double rate = panel->rate[n * (uint32_t)panel->steps + (uint32_t)i];
            fprintf(p->f, "%c%.2f %.2f H%.2f ", i ? 'L' : 'M', plot_x(p, i * panel->step),
                    y1 - rate / top * (y1 - y0), plot_x(p, (i + 1) * panel->step));
        }
        snprintf(text, sizeof(text),
                 "class=\"nic\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\"", colour);
        svg_path_end(p->f, text);
        panel_name_write(p, panel->names->nic[n], colour, y0, &x, &row);
    }
}

void plot_nics_write(struct plot *p, const int *first, int hosts)
{
    struct panel panel[PLOT_HOSTS];
    double top = 0;
    for (int h = 0; h < hosts; h++) {
        panel_fill(p, first[h], &panel[h]);
        for (uint32_t n = 0; n < panel[h].nics; n++) {
            top = fmax(top, panel_highest(&panel[h], n));
        }
    }
    double unit = top < 1e9 ? 1e6 : 1e9;
    top = top > 0 ? top : 1;
    double step = plot_step_get(top * 1.05, 3);
    top = ceil(top * 1.05 / step) * step;
    for (int h = 0; h < hosts; h++) {
        double y0 = PLOT_HEIGHT + h * PLOT_PANEL_H + INNER, y1 = y0 + PLOT_PANEL_H - 2 * INNER + 14;
        panel_axes_write(p, &panel[h], y0, y1, top, unit, unit < 1e9 ? "MB/s" : "GB/s");
        panel_curves_write(p, &panel[h], y0, y1, top);
        free(panel[h].rate);
    }
}
