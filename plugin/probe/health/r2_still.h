/*
 * A connection that waits for the fabric while nothing of it moves on any path: it ends after
 * NCCL_R2_GIVE_UP, whatever its neighbours do (docs/health.md). Service thread; nothing blocks but
 * for the visit of a gate.
 */
#ifndef R2_STILL_H
#define R2_STILL_H

#include <stdbool.h>

#include "core/r2_inst.h"

/* Work requests are under way on a path that is up; messages, too, that R has not acknowledged.
 * Without the gate as of a moment ago. */
bool r2_still_has_posted(const struct r2_comm *c);
bool r2_still_waits(const struct r2_comm *c);

/* One tick of the watch, whose clock is @clock. No gate held. */
void r2_still_tick(struct r2_comm *c, uint64_t clock);

#endif
