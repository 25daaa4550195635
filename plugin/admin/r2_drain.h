/*
 * Planned drains (docs/control.md): NICs of this host that are to be free, what the peers are
 * notified of it, and what it does to connections. Service thread; nothing blocks.
 */
#ifndef R2_DRAIN_H
#define R2_DRAIN_H

#include "core/r2_notify.h"

/* Applies what the environment and the drain files have now. Reads the files when they have
 * changed; on a local file system. */
void r2_drain_poll(struct r2_inst *inst);
/* Exactly these of our NICs are drained from now on, bit per NIC. */
void r2_drain_set(struct r2_inst *inst, uint32_t nics);
/* A connection's paths stand: those over drained NICs of either end are drained. Gate held. */
void r2_drain_comm(struct r2_comm *c);
/* A connection to @peer begins, which may know nothing of drains (any more). */
void r2_drain_announce(struct r2_inst *inst, struct r2_peer *peer);
/* Announces it again where it was not answered yet; returns the next time (ns). */
uint64_t r2_drain_send(struct r2_inst *inst, struct r2_peer *peer, uint64_t now);
/* The peer's reports. */
void r2_drain_on_drain(struct r2_inst *inst, struct r2_peer *peer, const struct fo_drain *m);
void r2_drain_on_ok(const struct r2_inst *inst, struct r2_peer *peer, const struct fo_drain *m);

/* Advice on the paths of a connection has changed: weighed against the drains. */
extern const struct r2_subscriber r2_drain_subscriber;

#endif
