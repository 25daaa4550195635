/*
 * How the service thread visits the gates of connections (ib_transport/r2_gate.h). A visit costs a
 * barrier of all threads of the process, an interrupt for each that runs. That is cheap as long as
 * visits are rare; where a NIC is lost under a thousand connections, or a thousand are slow, there
 * are thousands. So barriers are counted: R2_VISIT_BURST at once and R2_VISIT_RATE in a second are
 * paid; with the next one all gates become strict, until visits are rare again.
 */
#ifndef R2_VISIT_H
#define R2_VISIT_H

#include "r2_inst.h"

#define R2_VISIT_BURST   16
#define R2_VISIT_RATE    100                /* in a second */
#define R2_VISIT_TICK_NS (100 * 1000000ull) /* strict gates stay so for at least that long */

/* Service thread. The gate of @c is held from here on, until r2_comm_unvisit(). Waits for NCCL's
 * thread to leave it. */
void r2_comm_visit(struct r2_comm *c);
void r2_comm_unvisit(struct r2_comm *c);

/* Service thread. Gates become loose again when visits since the last check were fewer than
 * R2_VISIT_RATE in a second. */
void r2_visits_step(struct r2_inst *inst, uint64_t now);

/* Must hold inst->lock. @c is about to be entered in the tables; nobody knows its gate. */
void r2_visits_join(struct r2_comm *c);

#endif
