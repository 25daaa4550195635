/* plot.c, plot_nics.c: what they share. */
#ifndef R2_PERF_PLOT_INT_H
#define R2_PERF_PLOT_INT_H

#include <stdio.h>

#include "tools/r2_perf/chrome.h"
#include "tools/r2_perf/timeline.h"

/* The picture, in pixels: the area of the curve lies between these margins. */
#define PLOT_WIDTH  960
#define PLOT_HEIGHT 440
#define PLOT_LEFT   78
#define PLOT_RIGHT  24
#define PLOT_TOP    92
#define PLOT_BOTTOM 58

#define PLOT_FAULT_LINE "stroke=\"#b3261e\" stroke-width=\"1.4\" stroke-dasharray=\"5 3\""

struct plot {
    FILE *f;
    const struct timeline *t;
    const struct chrome *ranks;
    size_t n;            /* intervals that are drawn */
    double seconds, top; /* what the axes end at */
    double unit;         /* GB/s per unit of the axis */
    const char *unit_name;
};

double plot_x(const struct plot *p, double s);
/* 1, 2 or 5 times a power of ten, so that about @count of them span @range. */
double plot_step_get(double range, int count);

/* --- plot_nics.c --- */

#define PLOT_HOSTS   4   /* whose NICs are drawn */
#define PLOT_PANEL_H 150 /* of each */

/* Hosts whose plugins told what NICs carried, at most PLOT_HOSTS: first ranks of them. */
int plot_hosts_get(const struct chrome *ranks, int first[PLOT_HOSTS]);
/* The NICs of these hosts, below the rate. */
void plot_nics_write(struct plot *p, const int *first, int hosts);

#endif
