/* The life of one rank: plugin, connections, all sizes, report. */
#ifndef R2_PERF_RANK_H
#define R2_PERF_RANK_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/opts.h"

/* Run as the rank in @place. Returns the exit code (enum perf_exit). Thread: main; blocks until the
 * run is over. */
int rank_run(const struct opts *o, const struct boot_place *place);

#endif
