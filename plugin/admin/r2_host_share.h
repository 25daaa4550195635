/*
 * What processes of this host announce to each other about its NICs (docs/control.md): writes into
 * the host registry what this one found out, acts on what others did. Service thread; nothing
 * blocks. Without a host registry all of it does nothing.
 */
#ifndef R2_HOST_SHARE_H
#define R2_HOST_SHARE_H

#include "base/r2_host_registry.h"
#include "core/r2_notify.h"

struct r2_pair;

/* Takes a slot of the host registry in @dir, as the process it is. Why not is logged once. At init.
 */
void r2_host_share_open(struct r2_inst *inst, const char *dir);
void r2_host_share_close(struct r2_inst *inst);

/* Somebody rang. */
void r2_host_share_rung(struct r2_inst *inst);
/* Reads what is new, if somebody rang or @tick (the ports are checked in this turn); writes the
 * rows that have changed. */
void r2_host_share_step(struct r2_inst *inst, uint64_t now, int tick);

/* What this process finds out, for the host registry: our NIC is down or up; a pair does not
 * answer, or answers again; health reports. */
extern const struct r2_subscriber r2_host_share_subscriber;

/* The paths of @c that are up, as they are after a step of it. Gate held. */
void r2_host_share_comm(struct r2_comm *c);
/* @c is going. */
void r2_host_share_comm_gone(struct r2_comm *c);

#endif
