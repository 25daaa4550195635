/* The matrix as a table. */
#include <stdio.h>
#include <string.h>

#include "tools/r2_diag/tool.h"

#define MOST  16 /* places that are shown */
#define NAME  20
#define WIDTH 8

/* Which places are shown: those of findings first. Returns how many; in order. */
static int places_choose(const struct diag *d, int out[MOST])
{
    const struct diag_matrix *m = d->m[d->shown];
    int n = 0, chosen = 0, rank[FIGURES_PLACES];

    memset(rank, 0, sizeof(rank));
    for (int i = 0; i < d->saids; i++) {
        const struct diag_finding *f = &d->said[i].f;

        if (f->source >= 0) {
            rank[f->source] = 1;
        }
        if (f->destination >= 0) {
            rank[f->destination] = 1;
        }
    }
    for (int want = 1; want >= 0; want--) {
        for (int i = 0; i < m->n && chosen < MOST; i++) {
            if (rank[i] == want) {
                rank[i] = 2;
                chosen++;
            }
        }
    }
    for (int i = 0; i < m->n && n < MOST; i++) {
        if (rank[i] == 2) {
            out[n++] = i;
        }
    }
    return n;
}

/* @row, @column: whether findings have all of it. */
static void lines_of(const struct diag *d, int place, int *row, int *column)
{
    *row = *column = 0;
    for (int i = 0; i < d->saids; i++) {
        if (d->said[i].sizes >> d->shown & 1) {
            *row |= d->said[i].f.source == place && d->said[i].f.kind <= DIAG_SOURCE;
            *column |= d->said[i].f.destination == place &&
                       (d->said[i].f.kind == DIAG_PLACE || d->said[i].f.kind == DIAG_DESTINATION);
        }
    }
}

static void cell_put(FILE *f, const struct diag_cell *c)
{
    char text[16];

    if (c->ns <= 0) {
        snprintf(text, sizeof(text), "-");
    } else if (!c->judged) {
        snprintf(text, sizeof(text), "?");
    } else if (c->mark != DIAG_MARK_NONE) {
        snprintf(text, sizeof(text), "[%.*f]", c->ratio < 100 ? 1 : 0, c->ratio);
    } else {
        snprintf(text, sizeof(text), "%.*f", c->ratio < 100 ? 1 : 0, c->ratio);
    }
    fprintf(f, "%*.*s", WIDTH, WIDTH - 1, text);
}

static void table_put(FILE *f, const struct diag *d)
{
    const struct diag_matrix *m = d->m[d->shown];
    const struct figures_place *place = d->f->by[d->by].place;
    int show[MOST], n = places_choose(d, show), row, column;
    char name[FIGURES_NAME + 2];

    fprintf(f, "%-*s", NAME, "from \\ to");
    for (int k = 0; k < n; k++) {
        const char *full = place[show[k]].name;
        size_t len = strlen(full);

        lines_of(d, show[k], &row, &column);
        snprintf(name, sizeof(name), "%s%s", len > WIDTH - 2 ? full + len - (WIDTH - 2) : full,
                 column ? "*" : "");
        fprintf(f, "%*s", WIDTH, name);
    }
    fputc('\n', f);
    for (int i = 0; i < n; i++) {
        lines_of(d, show[i], &row, &column);
        snprintf(name, sizeof(name), "%.*s%s", NAME - 2, place[show[i]].name, row ? "*" : "");
        fprintf(f, "%-*s", NAME, name);
        for (int k = 0; k < n; k++) {
            cell_put(f, &m->cell[show[i] * m->n + show[k]]);
        }
        fputc('\n', f);
    }
    if (n < m->n) {
        fprintf(f, "%d of %d are shown; --svg and --json have all\n", n, m->n);
    }
}

static void missing_put(FILE *f, const struct diag *d)
{
    const struct figures_set *set = &d->f->by[FIGURES_HOST];
    int n = diag_missing(d), shown = 0;

    if (n == 0) {
        return;
    }
    fputs("not read, so that their rows are empty:", f);
    for (int i = 0; i < set->places && shown < MOST; i++) {
        if (!set->place[i].is_read) {
            fprintf(f, "%s %s", shown++ ? "," : "", set->place[i].name);
        }
    }
    fprintf(f, "%s\n", n > shown ? ", ..." : "");
}

static void usual_put(FILE *f, const struct diag *d)
{
    static const char *const link[DIAG_LINKS] = {[DIAG_LINK_CROSS] = " between rails",
                                                 [DIAG_LINK_HOST] = " within a host",
                                                 [DIAG_LINK_RAIL] = " on a rail"};
    const struct diag_verdict *v = &d->v[d->shown];
    char text[32];
    int n = 0;

    for (int l = 0; l < DIAG_LINKS; l++) {
        if (v->usual_ns[l] > 0) {
            fprintf(f, "%s%s%s",
                    n++ ? ", " : "; usual: ", diag_time(v->usual_ns[l], text, sizeof(text)),
                    d->by == FIGURES_NIC ? link[l] : "");
        }
    }
    fputc('\n', f);
}

void text_write(FILE *f, const struct diag *d)
{
    char text[SENTENCE];

    fprintf(f, "%s%s%s%d %s of %d processes, size %s", d->f->job[0] ? "job " : "", d->f->job,
            d->f->job[0] ? ": " : "", d->f->by[d->by].places,
            d->by == FIGURES_NIC ? "NICs" : "hosts", d->f->processes,
            figures_size_name(d->by, d->shown));
    usual_put(f, d);
    if (d->m[d->shown] && d->v[d->shown].figures) {
        table_put(f, d);
    }
    missing_put(f, d);
    if (d->f->stale || d->f->spread || d->f->hidden) {
        fprintf(f,
                "left out: %d figures older than a minute, %d connections over several NICs, "
                "%u peers that are not listed\n",
                d->f->stale, d->f->spread, d->f->hidden);
    }
    for (int i = 0; i < d->saids; i++) {
        fprintf(f, "%s\n", diag_sentence(d, &d->said[i], text));
    }
    if (d->saids == 0) {
        fprintf(f, "%s\n", diag_summary(d, text));
    }
    if (d->saids) {
        fputs(
            "a time is from post to completion, with the acknowledgement's way back, and without the "
            "wait for the receiver\n",
            f);
    }
}
