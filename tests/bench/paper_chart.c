#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/paper.h"
#include "tools/shared/svg.h"

/* Pixels; the curves lie between the margins. */
#define WIDTH  860
#define HEIGHT 500
#define LEFT   70
#define RIGHT  210
#define TOP    50
#define BOTTOM 124

static const char style[] =
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#333}"
    ".title{font-size:15px;font-weight:bold}.mid{text-anchor:middle}.end{text-anchor:end}"
    ".note{font-size:11px;fill:#555}";
static const char *const colours[CHART_SERIES] = {"#1565c0", "#2e7d32", "#c62828", "#6a1b9a",
                                                  "#ef6c00", "#00838f", "#5d4037", "#37474f"};

struct series *chart_series(struct chart *c, const char *name, bool is_papers)
{
    struct series *s = &c->s[c->n++];

    *s = (struct series){.name = name, .is_papers = is_papers};
    return s;
}

void chart_point(struct series *s, double x, double y)
{
    s->x[s->n] = x;
    s->y[s->n++] = y;
}

struct frame {
    FILE *f;
    const struct chart *c;
    double left, right; /* x of the ends */
};

static double scale_x(const struct frame *p, double x)
{
    double a = p->left, b = p->right, at = x;

    if (p->c->is_log) {
        a = log2(a);
        b = log2(b);
        at = log2(at);
    }
    return LEFT + (at - a) / (b - a) * (WIDTH - LEFT - RIGHT);
}

static double scale_y(const struct frame *p, double y)
{
    return HEIGHT - BOTTOM - (y - p->c->low) / (p->c->high - p->c->low) * (HEIGHT - TOP - BOTTOM);
}

static void tick_x(const struct frame *p, double x)
{
    char text[32];

    svg_line(p->f, scale_x(p, x), HEIGHT - BOTTOM, scale_x(p, x), HEIGHT - BOTTOM + 5,
             "stroke=\"#999\"");
    snprintf(text, sizeof(text), "%.4g", x);
    svg_text(p->f, scale_x(p, x), HEIGHT - BOTTOM + 19, "mid", text);
}

static void axes_write(const struct frame *p)
{
    const struct chart *c = p->c;
    char text[32];

    for (int i = 0; i <= 5; i++) {
        double y = c->low + (c->high - c->low) * i / 5;

        svg_line(p->f, LEFT, scale_y(p, y), WIDTH - RIGHT, scale_y(p, y), "stroke=\"#e3e3e3\"");
        snprintf(text, sizeof(text), "%.4g", y);
        svg_text(p->f, LEFT - 8, scale_y(p, y) + 4, "end", text);
    }
    if (c->is_log) {
        for (double x = exp2(ceil(log2(p->left))); x <= p->right * 1.001; x *= 2) {
            tick_x(p, x);
        }
    } else {
        for (double x = ceil(p->left); x <= p->right * 1.001; x++) {
            tick_x(p, x);
        }
    }
    svg_path_begin(p->f);
    fprintf(p->f, "M%d %d V%d H%d", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    svg_path_end(p->f, "fill=\"none\" stroke=\"#666\"");
    svg_text(p->f, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 40, "mid", c->x_name);
    svg_text_up(p->f, 18, (TOP + HEIGHT - BOTTOM) / 2.0, "mid", c->y_name);
    svg_text(p->f, LEFT, 26, "title", c->title);
    for (int i = 0; i < 3 && c->note[i] != NULL; i++) {
        svg_text(p->f, LEFT, HEIGHT - BOTTOM + 66 + 17 * i, "note", c->note[i]);
    }
}

static void dot_write(const struct frame *p, double x, double y, const char *colour)
{
    char attributes[96];

    snprintf(attributes, sizeof(attributes), "fill=\"none\" stroke=\"%s\" stroke-width=\"2\"",
             colour);
    svg_path_begin(p->f);
    fprintf(p->f, "M%.1f %.1f l8 8 m0 -8 l-8 8", x - 4, y - 4);
    svg_path_end(p->f, attributes);
}

static void series_write(const struct frame *p, int which)
{
    const struct series *s = &p->c->s[which];
    double key = TOP + 14 + 20 * which;
    char attributes[96];

    snprintf(attributes, sizeof(attributes), "fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"",
             colours[which]);
    if (s->is_papers) {
        for (int i = 0; i < s->n; i++) {
            dot_write(p, scale_x(p, s->x[i]), scale_y(p, s->y[i]), colours[which]);
        }
        dot_write(p, WIDTH - RIGHT + 22, key - 4, colours[which]);
    } else {
        svg_path_begin(p->f);
        for (int i = 0; i < s->n; i++) {
            fprintf(p->f, "%c%.2f %.2f ", i ? 'L' : 'M', scale_x(p, s->x[i]), scale_y(p, s->y[i]));
        }
        svg_path_end(p->f, attributes);
        svg_line(p->f, WIDTH - RIGHT + 10, key - 4, WIDTH - RIGHT + 34, key - 4, attributes);
    }
    svg_text(p->f, WIDTH - RIGHT + 40, key, "", s->name);
}

static void stop(const char *path)
{
    fprintf(stderr, "bench_paper: %s: %s\n", path, strerror(errno));
    exit(EXIT_FAILURE);
}

void chart_write(const struct chart *c, const char *folder, const char *file)
{
    struct frame p = {.c = c, .left = HUGE_VAL, .right = -HUGE_VAL};
    char path[512];
    int bad;

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    p.f = fopen(path, "we");
    if (p.f == NULL) {
        stop(path);
    }
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->s[i].n; k++) {
            p.left = fmin(p.left, c->s[i].x[k]);
            p.right = fmax(p.right, c->s[i].x[k]);
        }
    }
    svg_begin(p.f, WIDTH, HEIGHT, style);
    axes_write(&p);
    for (int i = 0; i < c->n; i++) {
        series_write(&p, i);
    }
    svg_end(p.f);
    bad = ferror(p.f);
    if (fclose(p.f) != 0 || bad) {
        stop(path);
    }
    printf("picture: %s\n\n", path);
}
