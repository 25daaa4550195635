/*
 * Who may return: NCCL_R2_FAILBACK, and the administrator's commands (docs/recovery.md). Which
 * commands there are is in files of the run directory (r2_ctl failback); what a command lets return
 * is noted per path and announced to the peer. Service thread; nothing blocks.
 */
#ifndef R2_FAILBACK_H
#define R2_FAILBACK_H

#include "core/r2_inst.h"

/* Paths of @c that wait for the administrator, bit per path. Gate held. */
uint32_t r2_failback_waiting(const struct r2_comm *c);

/* Allocates what it keeps of the files. -1: out of memory. Freed with the instance. */
int r2_failback_open(struct r2_inst *inst);
/* Applies commands given since the last check. Reads the files when they have changed; on a local
 * file system. */
void r2_failback_poll(struct r2_inst *inst);
/* The administrator wants these of our NICs used again: what is down over them now may return.
 * Takes gates. */
void r2_failback_on_command(struct r2_inst *inst, uint32_t nics);

/* Gate held, as what follows. Announces again what the peer has not answered; returns the next time
 * (ns).
 */
uint64_t r2_failback_step(struct r2_comm *c, uint64_t now);
void r2_failback_on_record(struct r2_comm *c, const struct fo_failback *m);
/* DOWN was applied: S, too, may have ended the path for a drain. */
void r2_failback_on_down(struct r2_comm *c, const struct fo_down *m);
void r2_failback_on_ok(struct r2_comm *c, const struct fo_failback *m);

/* Incarnation @inc of path @p begins to be opened (the command covers it until it stands); stands;
 * may stand at the peer, but ends here. */
void r2_failback_next(struct r2_comm *c, int p, uint32_t inc);
void r2_failback_done(struct r2_comm *c, int p);
void r2_failback_again(struct r2_comm *c, int p);

#endif
