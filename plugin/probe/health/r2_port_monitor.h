/*
 * What happens to our NICs: device events, and a check of every port now and then, because some
 * failures come without any event (a device removed, an interface taken down with its completions
 * lost). Service thread; nothing blocks but a visit of a gate.
 */
#ifndef R2_PORT_MONITOR_H
#define R2_PORT_MONITOR_H

#include "core/r2_inst.h"

/* Allocates what it keeps of the NICs. -1: out of memory. Freed with the instance. */
int r2_port_monitor_open(struct r2_inst *inst);
void r2_port_monitor_fact(void *inst,
                          const struct ib_fact *fact); /* a device event, or what a check found */
uint64_t r2_port_monitor_step(
    struct r2_inst *inst,
    uint64_t now); /* looks at the ports every NCCL_R2_LOOK; returns the next time */

#endif
