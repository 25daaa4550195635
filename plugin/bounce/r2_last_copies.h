/*
 * Memory of GPUs over the last resort (docs/last-resort.md): what moves its bytes for the TCP
 * device is a copy engine, opened with the first registration of such memory.
 */
#ifndef R2_LAST_COPIES_H
#define R2_LAST_COPIES_H

#include "bounce/r2_reach.h"
#include "ib_transport/tcp/tcpdev.h"

/* Gives the TCP device its copies; @open, which may be called more than once, opens the engine.
 * Before a device is opened. Does not block. */
void r2_last_copies_set(r2_copy_open_fn open);

/* For tests: the table itself, and its argument. */
const struct tcpdev_copies *r2_last_copies_get(r2_copy_open_fn open, void **arg);

#endif
