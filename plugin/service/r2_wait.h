/*
 * How the service thread waits between two turns, and what it learns by it: which of the
 * descriptors of devices have something, so that the next turn reads those alone.
 */
#ifndef R2_WAIT_H
#define R2_WAIT_H

#include "core/r2_inst.h"

/*
 * Waits until a descriptor has something, or until @next (ns, the clock of r2_env; past: not at
 * all), and leaves in service.no_event and service.no_message what has nothing. A call that is
 * interrupted knows nothing of any. Service thread; blocks.
 */
void r2_wait(struct r2_inst *inst, uint64_t next);

#endif
