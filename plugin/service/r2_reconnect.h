/*
 * Fail-back: a path returns as a new life (P23, P24; docs/recovery.md). Service thread, gate
 * held, unless said otherwise; nothing blocks.
 */
#ifndef R2_RECONNECT_H
#define R2_RECONNECT_H

#include "core/r2_inst.h"

/* Begins what can begin, repeats what is unanswered, puts old lives away. Returns the next deadline
 * (ns). */
uint64_t r2_reconnect_step(struct r2_comm *c, uint64_t now);

/* Records of the exchange. */
void r2_reconnect_on_open(struct r2_comm *c, const struct fo_open *m);
void r2_reconnect_on_open_ok(struct r2_comm *c, const struct fo_open *m);
void r2_reconnect_on_open_up(struct r2_comm *c, const struct fo_open *m);
/* DOWN or FENCED of (@p, @life): told here first. 1 when that life was still being opened. */
int r2_reconnect_on_over(struct r2_comm *c, int p, uint32_t life);

/*
 * So many new lives of one NIC are built at a time: a thousand builds in the queue of its worker
 * would keep the fences behind them. admit: wakes who waits.
 */
#define R2_RECONNECT_AT_ONCE 16
void r2_reconnect_admit(struct r2_inst *inst);

/* Close has begun: what is being opened is not waited for. */
void r2_reconnect_stop(struct r2_comm *c);
/* Close: submits the destruction of old lives; returns how many are left. */
int r2_reconnect_close(struct r2_comm *c);

#endif
