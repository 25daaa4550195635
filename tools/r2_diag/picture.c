/* The matrix as a picture: a row is a source, a column a destination. */
#include <stdio.h>
#include <string.h>

#include "tools/r2_diag/tool.h"
#include "tools/shared/svg.h"

#define MARGIN 24
#define TOP    56 /* of the column's names */
#define LINE   18
#define LETTER 7 /* of a name, in the mean */
#define SHADES 6

static const char style[] =
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}.mid{text-anchor:middle}"
    ".end{text-anchor:end}.head{font-size:14px;font-weight:bold}.small{font-size:10px;fill:#555}"
    ".light{text-anchor:middle;fill:#fff}.slow{font-weight:bold;fill:#b3261e}"
    ".slowend{font-weight:bold;fill:#b3261e;text-anchor:end}"
    ".none{fill:#f6f6f4}.few{fill:#e4e4e0}.s0{fill:#e8f1fa}.s1{fill:#c9dff2}.s2{fill:#9cc3e5}"
    ".s3{fill:#f2b880}.s4{fill:#e0763c}.s5{fill:#b3261e}"
    ".mark{fill:none;stroke:#b3261e;stroke-width:2.5}";

struct picture {
    FILE *f;
    const struct diag *d;
    const struct diag_matrix *m;
    double cell, left, top;
};

static int shade_of(double ratio)
{
    static const double from[SHADES] = {0, 0.9, 1.2, 1.5, 3, 6};
    int s = 0;

    while (s + 1 < SHADES && ratio >= from[s + 1]) {
        s++;
    }
    return s;
}

static void cell_put(const struct picture *p, int s, int d)
{
    const struct diag_cell *c = &p->m->cell[s * p->m->n + d];
    double x = p->left + d * p->cell, y = p->top + s * p->cell;
    char class[16], text[16];

    snprintf(class, sizeof(class), "s%d", shade_of(c->ratio));
    svg_rect(p->f, x + 0.5, y + 0.5, p->cell - 1, p->cell - 1,
             c->ns <= 0  ? "none"
             : c->judged ? class
                         : "few");
    if (p->cell >= 30 && c->judged) {
        snprintf(text, sizeof(text), "%.*f", c->ratio < 10 ? 1 : 0, c->ratio);
        svg_text(p->f, x + p->cell / 2, y + p->cell / 2 + 4,
                 shade_of(c->ratio) >= 4 ? "light" : "mid", text);
    }
    if (c->mark == DIAG_MARK_CELL) {
        svg_rect(p->f, x - 1, y - 1, p->cell + 2, p->cell + 2, "mark");
    }
}

static void lines_mark(const struct picture *p)
{
    double all = p->m->n * p->cell;

    for (int i = 0; i < p->d->saids; i++) {
        const struct diag_finding *f = &p->d->said[i].f;

        if (!(p->d->said[i].sizes >> p->d->shown & 1)) {
            continue;
        }
        if (f->kind == DIAG_PLACE || f->kind == DIAG_SOURCE) {
            svg_rect(p->f, p->left - 1, p->top + f->source * p->cell - 1, all + 2, p->cell + 2,
                     "mark");
        }
        if (f->kind == DIAG_PLACE || f->kind == DIAG_DESTINATION) {
            svg_rect(p->f, p->left + f->destination * p->cell - 1, p->top - 1, p->cell + 2, all + 2,
                     "mark");
        }
    }
}

static int is_named(const struct diag *d, int place)
{
    for (int i = 0; i < d->saids; i++) {
        if (d->said[i].f.source == place || d->said[i].f.destination == place) {
            return 1;
        }
    }
    return 0;
}

/* Names of all where there is room, else of those that findings name. */
static void names_put(const struct picture *p)
{
    for (int i = 0; i < p->m->n; i++) {
        const char *name = p->d->f->by[p->d->by].place[i].name;
        int slow = is_named(p->d, i);

        if (p->cell >= 12 || slow) {
            svg_text(p->f, p->left - 6, p->top + (i + 0.5) * p->cell + 4, slow ? "slowend" : "end",
                     name);
            svg_text_up(p->f, p->left + (i + 0.5) * p->cell + 4, p->top - 6, slow ? "slow" : "",
                        name);
        }
    }
}

static size_t longest(const struct diag *d)
{
    size_t most = 4;

    for (int i = 0; i < d->f->by[d->by].places; i++) {
        size_t n = strlen(d->f->by[d->by].place[i].name);

        most = n > most ? n : most;
    }
    return most;
}

void svg_write(FILE *f, const struct diag *d)
{
    struct diag_matrix none = {.n = 0};
    struct picture p = {.f = f, .d = d, .m = d->m[d->shown] ? d->m[d->shown] : &none};
    double name = (double)longest(d) * LETTER + 12, y, wide;
    int lines = d->saids ? d->saids : 1;
    char text[SENTENCE], usual[32];

    p.cell = p.m->n <= 16 ? 36 : p.m->n <= 64 ? 14 : p.m->n <= 256 ? 5 : 2;
    p.left = MARGIN + name;
    p.top = TOP + name;
    wide = p.left + p.m->n * p.cell + MARGIN;
    y = p.top + p.m->n * p.cell + LINE + 8;
    svg_begin(f, wide > 900 ? wide : 900, y + lines * LINE + LINE, style);
    snprintf(text, sizeof(text), "Transfer times, size %s, in times of the usual%s%s",
             figures_size_name(d->by, d->shown), d->f->job[0] ? ", job " : "", d->f->job);
    svg_text(f, MARGIN, MARGIN + 4, "head", text);
    snprintf(text, sizeof(text), "row: from, column: to; usual: %s",
             diag_time(d->v[d->shown].usual_ns[DIAG_LINK_RAIL], usual, sizeof(usual)));
    svg_text(f, MARGIN, MARGIN + 22, "small", text);
    names_put(&p);
    for (int i = 0; i < p.m->n * p.m->n; i++) {
        cell_put(&p, i / p.m->n, i % p.m->n);
    }
    lines_mark(&p);
    for (int i = 0; i < d->saids; i++) {
        svg_text(f, MARGIN, y + i * LINE, "slow", diag_sentence(d, &d->said[i], text));
    }
    if (d->saids == 0) {
        svg_text(f, MARGIN, y, "", diag_summary(d, text));
    }
    svg_end(f);
}
