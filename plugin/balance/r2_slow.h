/*
 * NICs that are slow without failing (docs/health.md): looks at what the paths carry, lets
 * balance_slow judge, and hands what it says to r2_balance. Service thread; nothing blocks but a
 * visit of a gate.
 */
#ifndef R2_SLOW_H
#define R2_SLOW_H

#include <stdint.h>

#include "balance_slow.h"
#include "core/r2_notify.h"

/* Allocates what it keeps of the NICs. -1: out of memory. Freed with the instance. */
int r2_slow_open(struct r2_inst *inst);

/* Whether the way over @pair is slow; NO also where nothing was sent over it. */
enum balance_slow_state r2_slow_state(const struct r2_pair *pair);

/* Looks with each tick of the watchdog, and takes what a peer's process says has moved over its
 * NIC. Does nothing with NCCL_R2_SLOW=off, or where no traffic could go elsewhere. */
extern const struct r2_subscriber r2_slow_subscriber;

#endif
