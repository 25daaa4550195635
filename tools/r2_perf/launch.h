/*
 * Starting ranks on one machine, each on its host of a software fabric, and finding out which rank
 * this process is.
 */
#ifndef R2_PERF_LAUNCH_H
#define R2_PERF_LAUNCH_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/opts.h"

enum launch_role { LAUNCH_RANK, LAUNCH_PARENT, LAUNCH_ERROR };

/*
 * LAUNCH_RANK: this process is the rank in @place, started by launch_run or by mpirun, srun (PMI).
 * LAUNCH_PARENT: it is to call launch_run. LAUNCH_ERROR: the reason is in @error. Before any thread
 * is started.
 */
enum launch_role launch_role_get(const struct opts *o, struct boot_place *place, char *error,
                                 size_t error_bytes);

/*
 * Start all ranks, bring a fabric up before and down after if asked, wait, stop all when one ends
 * badly. Blocks. Returns the exit code. Ends early on SIGINT and SIGTERM.
 */
int launch_run(const struct opts *o);

/* For ranks: the fabric of this run and its command, or NULL. */
const char *launch_fabric_get(void);
const char *launch_softfab_get(void);

#endif
