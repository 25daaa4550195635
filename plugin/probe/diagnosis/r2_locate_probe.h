/* The probes of a case (docs/diagnosis.md, vantage points): our end's facts. Service thread;
 * nothing blocks. Private to r2_locate.c. */
#ifndef R2_LOCATE_PROBE_H
#define R2_LOCATE_PROBE_H

#include <stdbool.h>

#include "r2_locate.h"

/* What the last check of the port of our NIC @nic found. */
enum probe_port r2_locate_port(const struct r2_inst *inst, int nic);

/* ns, watch's clock: how long own probes may take, some room included. @pair may be NULL. */
uint64_t r2_locate_limit(const struct r2_inst *inst, const struct r2_pair *pair);

/* Probes the pair, our loopback, other remote ports, other pairs of the two processes. @pair NULL:
 * the pair cannot be probed. */
void r2_locate_probe(struct r2_inst *inst, struct r2_case *k, struct r2_pair *pair);

/* Takes what has been answered by now into @k->facts; 1: nothing more is to come, or the time is
 * over. @clock: the watch's. */
int r2_locate_gather(struct r2_inst *inst, struct r2_case *k, uint64_t clock);

/* Our end's facts anew, from what has been answered and what the job knows by now. */
void r2_locate_take_stock(const struct r2_inst *inst, struct r2_case *k);
/* The peer's, as it reports them, likewise. */
struct probe_end r2_locate_far_end(const struct r2_inst *inst, const struct fo_locate *m);
/* An auxiliary port did not answer, and nobody blames it: one that is blamed is silent whatever the
 * port does that probed it. */
bool r2_locate_is_silent(const struct r2_inst *inst, uint8_t outcome, uint64_t guid, uint8_t port);

/* The pair itself is answered, or not, after the time of the case was over. */
void r2_locate_direct_set(const struct r2_inst *inst, struct r2_case *k, enum probe_outcome o);
/* Whether an answer may still come that the time of the case was too short for: a probe that
 * counts is out. */
int r2_locate_open(const struct r2_inst *inst, const struct r2_case *k);
/* Takes such answers, or that none came. 1: there were any. */
int r2_locate_late(const struct r2_inst *inst, struct r2_case *k);

/* Whether an auxiliary port that was silent in @k is known to answer somebody else: the process
 * that has it reports so in the case of the pair to it, of the same second. In a ring of four hosts
 * nobody else knows that: whom both neighbours do not reach has no other pairs. */
bool r2_locate_aux_reaches_others(const struct r2_inst *inst, const struct r2_case *k);

/* The peer's process has announced nothing at all: what it might have explained counts as silent.
 */
void r2_locate_peer_silent(const struct r2_inst *inst, struct r2_case *k);

/* @peer is going: nothing more is expected of pairs to it. */
void r2_locate_probe_drop(struct r2_case *k, const struct r2_peer *peer);

#endif
