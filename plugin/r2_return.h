/*
 * Fail-back: a path returns as a new life (P23, P24; docs/design-failback.md). Service thread, gate
 * held, unless said otherwise; nothing blocks.
 */
#ifndef R2_RETURN_H
#define R2_RETURN_H

#include "r2_inst.h"

/* Begins what can begin, repeats what is unanswered, puts old lives away. Returns the next deadline
 * (ns). */
uint64_t r2_return_step(struct r2_comm *c, uint64_t now);

/* Records of the exchange. */
void r2_return_on_open(struct r2_comm *c, const struct fo_open *m);
void r2_return_on_open_ok(struct r2_comm *c, const struct fo_open *m);
void r2_return_on_open_up(struct r2_comm *c, const struct fo_open *m);
/* DOWN or FENCED of (@p, @life): told here first. 1 when that life was still being opened. */
int r2_return_on_over(struct r2_comm *c, int p, uint32_t life);

/*
 * So many new lives of one NIC are built at a time: a thousand builds in the queue of its worker
 * would keep the fences behind them. admit: wakes who waits.
 */
#define R2_RETURN_AT_ONCE 16
void r2_return_admit(struct r2_inst *inst);

/* Close has begun: what is being opened is not waited for. */
void r2_return_stop(struct r2_comm *c);
/* Close: submits the destruction of old lives; returns how many are left. */
int r2_return_close(struct r2_comm *c);

/* r2_heal.c: NIC pairs that may be used again. Service thread, no gate needed. */
struct r2_pair;
/*
 * A path over the pair wants to return; its last life ended at @since (ns). 1: the pair is good for
 * it; else its connections are kicked when it is. @urgent: the connection has no path left, so that
 * one answer is enough.
 */
int r2_heal_good(struct r2_pair *pair, uint64_t since, int urgent);
/* Another process of this host says that it answers again. */
void r2_heal_told_good(struct r2_pair *pair);
/* The peer wants it asked and mended. */
void r2_heal_wanted(struct r2_pair *pair);
/* The peer has made its own anew, or, without @anew, waits still: one attempt, in turn. */
void r2_heal_for_peer(struct r2_pair *pair, int anew);
/* A new life over it begins; @now 0: what it ends with is no failure. @pair may be NULL. */
void r2_heal_used(struct r2_pair *pair, uint64_t now);
/* Our NIC is back; the peer says that its own is; the pair can be asked (again). */
void r2_heal_nic_up(struct r2_inst *inst, int nic);
void r2_heal_back(struct r2_pair *pair);
void r2_heal_soon(struct r2_pair *pair);
uint64_t r2_heal_step(struct r2_inst *inst, uint64_t now);

#endif
