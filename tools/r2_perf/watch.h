/*
 * No run hangs for ever: a thread that ends it when nothing has moved for a while, and that ends
 * the process when, after a failure somewhere, the main thread does not come back (it may be stuck
 * inside the plugin).
 */
#ifndef R2_PERF_WATCH_H
#define R2_PERF_WATCH_H

#include <stdint.h>

#include "tools/r2_perf/boot.h"

/*
 * Start watching; one watch per process. @limit_ns without progress inside a phase fails the run
 * with PERF_TIMEOUT.
 * @prints: this process shows the error when it has to end itself.
 */
void watch_start(struct boot *boot, int rank, bool prints, uint64_t limit_ns);
/* Stop watching, also for the end of the process. Before boot_close. Blocks until the thread has
 * ended. */
void watch_stop(void);
/* From now on progress is owed, and @phase (a constant string) says on what; NULL: nothing is owed.
 * Any thread. */
void watch_phase_set(const char *phase);
/* Something moved. Any thread; one store. */
void watch_progress_note(void);
/* Show the run's error on stdout as `# error: ...`, unless another thread or process has. Any
 * thread. */
void watch_error_print(const struct board *board);

#endif
