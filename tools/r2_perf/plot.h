/* Draws a timeline as an SVG picture. */
#ifndef R2_PERF_PLOT_H
#define R2_PERF_PLOT_H

#include "tools/r2_perf/timeline.h"

/* Write @path; @title goes on top. 0, or -1 with errno. Thread: main; blocks in writes only. */
int plot_timeline_write(const char *path, const char *title, const struct timeline *t);

#endif
