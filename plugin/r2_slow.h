/*
 * NICs that are slow without failing (docs/design-slow.md): looks at what the paths carry, lets
 * balance_slow judge, and hands what it says to r2_balance. Service thread; nothing blocks but a
 * visit of a gate.
 */
#ifndef R2_SLOW_H
#define R2_SLOW_H

#include "r2_inst.h"

struct r2_pair;

/* A tick of the watch, which come @step ns apart; gate not held. Does nothing with
 * NCCL_R2_SLOW=off, or where no traffic could go elsewhere. */
void r2_slow_look(struct r2_inst *inst, uint64_t now, uint64_t step);

/* The peer's process says what has moved over its NIC of @pair. */
void r2_slow_on_load(struct r2_pair *pair, const struct probe_load *l);

#endif
