/*
 * Peer processes: references, the channel to each, repetition of what it has not answered, and when
 * it is gone. Service thread; nothing blocks but a visit of a gate.
 */
#ifndef R2_PEER_H
#define R2_PEER_H

#include "core/r2_inst.h"

/* The peer of @oob, made when it is new; takes a reference on both. NULL: out of memory. put: with
 * the last reference it is freed. */
struct r2_peer *r2_peer_get(struct r2_inst *inst, struct r2_oob_peer *oob);
void r2_peer_put(struct r2_inst *inst, struct r2_peer *peer);
/* Sends what has gathered for @peer: by the channel, or over NICs while that does not carry. As
 * inst->above.post. */
void r2_peer_post(struct r2_inst *inst, struct r2_peer *peer);
/* Events of the channel @oob, as the backend reports them; @refused: the host answers, but no such
 * process. What was lost with the old channel is announced again. */
void r2_peer_channel_up(void *inst, struct r2_oob_peer *oob);
void r2_peer_channel_down(void *inst, struct r2_oob_peer *oob, int refused);
uint64_t r2_peers_step(struct r2_inst *inst,
                       uint64_t now); /* repeats, then sends what has gathered (P30) */
uint64_t r2_peer_check_gone(struct r2_inst *inst, struct r2_peer *peer, uint64_t now);

#endif
