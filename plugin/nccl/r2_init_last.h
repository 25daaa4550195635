/* The path of last resort: over which interface, and that there is a device for it. */
#ifndef R2_INIT_LAST_H
#define R2_INIT_LAST_H

#include <stddef.h>

#include "base/r2_config.h"
#include "ib_transport/verbs/ib_verbs.h"

/*
 * Adds a TCP device to @v as NCCL_R2_LAST_RESORT says. 0: it is there, or none is wanted. -1 with
 * the reason in @why: what is asked for cannot be had. Thread: init only. Blocks: no.
 */
int r2_init_last(const struct r2_config *cfg, struct ib_verbs *v, char *why, size_t why_len);

#endif
