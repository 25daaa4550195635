/*
 * Whether the way to one host holds this process up (docs/diagnosis.md, "A slow way to a host"):
 * looks at what is on the wire to each peer, lets probe_slow judge, and says R2-S01. Nothing is
 * moved, avoided or ended for it. Service thread; nothing blocks but for the visit of a gate.
 */
#ifndef R2_SLOWNESS_H
#define R2_SLOWNESS_H

#include "core/r2_notify.h"

/* Allocates, at init. -1: out of memory. */
int r2_slowness_open(struct r2_inst *inst);
void r2_slowness_close(struct r2_inst *inst);
/* @peer is going. */
void r2_slowness_leave(struct r2_inst *inst, struct r2_peer *peer);

/* Looks with each tick of the watchdog, and takes what a peer's process says has moved over its
 * NIC. Does nothing with NCCL_R2_SLOW=off or NCCL_R2_WATCHDOG=off. */
extern const struct r2_subscriber r2_slowness_subscriber;

#endif
