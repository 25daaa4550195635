/* What the files of the watchdog share: r2_watch.c, r2_still.c. Service thread. */
#ifndef R2_WATCH_INT_H
#define R2_WATCH_INT_H

#include "r2_watch.h"

/* What a tick reads of path @p; without the gate as of a moment ago. */
struct probe_pulse r2_watch_pulse(const struct r2_comm *c, int p);
/* The connection ends: its last path, @p, was silent for @silent ns. Gate held. */
void r2_watch_give_up_last(struct r2_comm *c, int p, uint64_t silent);

#endif
