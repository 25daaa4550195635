/*
 * When a NIC pair may be used again (docs/recovery.md): probed until it has answered for the hold
 * time. Service thread, no gate needed unless said otherwise; nothing blocks.
 */
#ifndef R2_PROBATION_H
#define R2_PROBATION_H

#include <stdbool.h>

#include "core/r2_inst.h"

struct r2_pair;

enum r2_haste {
    R2_HASTE_NONE,
    R2_HASTE_TAIL,   /* the pair never failed, a queue pair did: one answer is enough, unless it
                        does so again and again, and on all ways */
    R2_HASTE_NO_PATH /* the connection has none left: one answer is enough */
};

/*
 * A path over the pair wants to return; its last incarnation ended at @since (ns). 1: the pair is
 * good for it; else its connections are kicked when it is.
 */
int r2_probation_good(struct r2_pair *pair, uint64_t since, enum r2_haste haste);
/* Another process of this host reports that the two ports answer again. */
void r2_probation_on_good_report(struct r2_pair *pair);
/* The peer wants the pair probed, and made anew where it failed. */
void r2_probation_wanted(struct r2_pair *pair);
/* The peer has made its own anew, or, without @anew, waits still: one attempt, in turn. */
void r2_probation_for_peer(struct r2_pair *pair, int anew);
/* A new incarnation over it begins, at @now (ns); 0: what the last one ended with was no failure.
 * @pair may be NULL. */
void r2_probation_used(struct r2_pair *pair, uint64_t now);
/* Our NIC is back; the peer announces that its own is; the pair can be probed (again): the next
 * attempt is brought forward. */
void r2_probation_nic_up(struct r2_inst *inst, int nic);
void r2_probation_back(struct r2_pair *pair);
void r2_probation_soon(struct r2_pair *pair);
/* Begins and ends attempts. Returns the next deadline (ns). */
uint64_t r2_probation_step(struct r2_inst *inst, uint64_t now);

/*
 * Whether a path that is drained, and whose NIC pair nothing is known to be wrong with, would
 * return if no other were left: then the last one may end by silence. Gate held.
 */
bool r2_probation_has_spare(const struct r2_comm *c);

#endif
