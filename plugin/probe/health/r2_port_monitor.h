/*
 * What happens to our NICs: device events, and a check of every port now and then, because some
 * failures come without any event (a device removed, an interface taken down with its completions
 * lost). Service thread, no gate held; nothing blocks but a visit of a gate.
 */
#ifndef R2_PORT_MONITOR_H
#define R2_PORT_MONITOR_H

#include "core/r2_inst.h"

/* Allocates what it keeps of the NICs. -1: out of memory. Freed with the instance. */
int r2_port_monitor_open(struct r2_inst *inst);
/* A device event, or what a check found. A NIC that is lost: its paths go down at every connection
 * (fo_on_nic_down), every peer is to be notified, and then on_nic is announced. One that is back
 * goes to r2_probation.h first. */
void r2_port_monitor_fact(void *inst, const struct ib_fact *fact);
/* Whether this turn is to check the ports; asked as it begins. */
bool r2_port_monitor_is_due(const struct r2_inst *inst, uint64_t now);
/* Checks the ports every NCCL_R2_LOOK, on the workers, and sooner with @look; returns the next time
 * (ns). */
uint64_t r2_port_monitor_step(struct r2_inst *inst, uint64_t now, bool look);

#endif
