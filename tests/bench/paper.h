/*
 * The figures of R2CCL's paper made again by the planner and its simulator, as pictures and tables,
 * each beside the paper's numbers (make bench-paper). What is the paper's is passed in as its
 * number; the rest is computed.
 */
#ifndef BENCH_PAPER_H
#define BENCH_PAPER_H

#include <stdbool.h>

#define CHART_POINTS 64
#define CHART_SERIES 8

struct series {
    const char *name;
    bool is_papers; /* points alone: what the paper prints */
    int n;
    double x[CHART_POINTS], y[CHART_POINTS];
};

struct chart {
    const char *title, *x_name, *y_name;
    const char *note[3]; /* sentences below; NULL: no more */
    bool is_log;         /* x by powers of two */
    double low, high;    /* of y */
    int n;
    struct series s[CHART_SERIES];
};

/* A series that is to be filled. */
struct series *chart_series(struct chart *c, const char *name, bool is_papers);
void chart_point(struct series *s, double x, double y);
/* Ends the program where @file cannot be written. */
void chart_write(const struct chart *c, const char *folder, const char *file);

/* Each prints its table and writes its picture into @folder. False: some data was wrong. */
bool paper_fig5(const char *folder);
bool paper_fig8(void); /* has no picture */
bool paper_fig10(const char *folder);
bool paper_fig15(const char *folder);

#endif
