/*
 * Cross pairs: one of our NICs and a peer's NIC of another rail, probed as auxiliary points when
 * something breaks and used for nothing else (docs/diagnosis.md). Whether rails reach each other is
 * not known: a pair that has never answered is evidence of nothing. Service thread; nothing
 * blocks.
 */
#ifndef R2_CROSS_H
#define R2_CROSS_H

#include "r2_pair.h"

/* How far the cross pairs to one peer are: struct r2_peer.crossed. */
enum r2_cross_state { R2_CROSS_NONE, R2_CROSS_FIRST, R2_CROSS_ALL, R2_CROSS_STATES };

/* The only writer of it. What is no legal move changes nothing, and is logged. For its suite. */
void r2_cross_move(struct r2_peer *peer, enum r2_cross_state to);

/* A path of some connection goes over it, up or not: it is no cross pair. */
int r2_cross_carries(const struct r2_pair *pair);
/* A cross pair that has never answered, and is not probed any more. */
int r2_cross_hopeless(const struct r2_pair *pair);

/* A connection stands: the first cross pair to its peer is made, by one of the two ends. */
void r2_cross_want(struct r2_comm *c);
/* @pair has answered: the first cross pair brings the others; another one, new or made anew, those
 * that failed with one of its NICs. */
void r2_cross_answered(struct r2_pair *pair, int first);

#endif
