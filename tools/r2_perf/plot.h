/*
 * Draws a timeline as SVG: the rate with its means before and after, what would be ideal, faults
 * with their stalls; below that, where the plugin tells, what each NIC of each host carried.
 */
#ifndef R2_PERF_PLOT_H
#define R2_PERF_PLOT_H

#include "tools/r2_perf/chrome.h"
#include "tools/r2_perf/timeline.h"

#define PLOT_RANKS 16 /* of more what plugins tell would be too much for a picture */

/* Thread: main of rank 0. @ranks: what their plugins told; zeroes: nothing. 0, or -1 with errno. */
int plot_timeline_write(const char *path, const char *title, const struct timeline *t,
                        const struct chrome *ranks);

#endif
