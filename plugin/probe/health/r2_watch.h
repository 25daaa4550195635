/* The watchdog: finds paths that fail without an error completion (docs/health.md).
 * Service thread; nothing blocks. */
#ifndef R2_WATCH_H
#define R2_WATCH_H

#include "core/r2_inst.h"

/*
 * Moves the watch's clock (ns) to @now, by T_suspect / 2 at most: it stands while this process
 * does. First in every step of the service thread: what a message asks or says counts from here.
 */
void r2_watch_clock(struct r2_inst *inst, uint64_t now);

/* Looks at all connections every NCCL_R2_T_SUSPECT / 4, at probes that are out every millisecond.
 * Returns the next time (ns). */
uint64_t r2_watch_step(struct r2_inst *inst, uint64_t now);

/* Whether @pair answers is asked now, whoever is silent or not. */
struct r2_pair;
void r2_watch_ask(struct r2_pair *pair);

/* The sender has everything acknowledged by our NIC and not by us. Gate held. */
void r2_watch_on_suspect(struct r2_comm *c, const struct fo_suspect *m);

/* The sender waits for a CTS that we may have written long ago. Gate held. */
void r2_watch_on_want(struct r2_comm *c, const struct fo_want *m);

#endif
