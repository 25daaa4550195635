/*
 * Rehearsals (docs/control.md): for a time that the administrator names (r2_ctl rehearse), a NIC of
 * this host fails for the connections of its jobs, though nothing is wrong with it. What they do is
 * what they do when it fails in earnest. Service thread; nothing blocks.
 */
#ifndef R2_REHEARSE_H
#define R2_REHEARSE_H

struct r2_inst;

/* Allocates what it keeps. -1: out of memory. Freed with the instance. */
int r2_rehearse_open(struct r2_inst *inst);
/* Begins and ends rehearsals, as files of the run directory and the time say. Takes gates. */
void r2_rehearse_poll(struct r2_inst *inst);

#endif
