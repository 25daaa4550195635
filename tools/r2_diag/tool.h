/* r2_diag: what its parts share. One thread. */
#ifndef R2_DIAG_TOOL_H
#define R2_DIAG_TOOL_H

#include <stdio.h>

#include "tools/r2_diag/figures.h"
#include "tools/shared/sources.h"

#define SENTENCE 600

/* A finding, by all sizes of transfers that have it. */
struct said {
    struct diag_finding f;
    unsigned sizes; /* bit per size */
};

/* What is shown. */
struct diag {
    const struct figures *f;
    enum figures_by by;
    struct diag_matrix *m[FIGURES_SIZES]; /* NULL: of no transfer of that size is a time known */
    struct diag_verdict v[FIGURES_SIZES];
    unsigned shown; /* size */
    struct said said[FIGURES_SIZES * DIAG_FINDINGS];
    int saids;
    enum diag_state state; /* over all sizes */
    const struct sources_unread *unread;
    int unreads;
};

/* Judges all sizes, or that one alone: FIGURES_SIZES is all. 0; -1: out of memory. */
int diag_fill(struct diag *d, const struct figures *f, enum figures_by by, unsigned size);
void diag_free(struct diag *d);
/* Places from which nothing was read, and that others send to; how many. */
int diag_missing(const struct diag *d);

/* A finding in words. Returns @out. */
const char *diag_sentence(const struct diag *d, const struct said *s, char out[SENTENCE]);
/* What is known beside findings, of the size that is shown. */
const char *diag_summary(const struct diag *d, char out[SENTENCE]);
/* "1.20 ms" */
const char *diag_time(double ns, char *out, size_t room);

void text_write(FILE *f, const struct diag *d);
void svg_write(FILE *f, const struct diag *d);
void json_write(FILE *f, const struct diag *d);

#endif
