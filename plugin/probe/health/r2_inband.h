/*
 * Control messages over NICs, while the out-of-band channel does not carry them
 * (docs/control.md): each goes over two NIC pairs of its peer, the next two with the next
 * message. What arrives is taken like what the channel brings. Service thread, unless said
 * otherwise; nothing blocks.
 */
#ifndef R2_INBAND_H
#define R2_INBAND_H

#include <poll.h>
#include <stdbool.h>

#include "r2_pair.h"

/*
 * A message to @peer is about to be given to the channel: when those before it, for
 * NCCL_R2_T_REPEAT, have brought none of the peer's, a request that its process always answers goes
 * with it.
 */
void r2_inband_request(struct r2_inst *inst, struct r2_peer *peer, uint64_t now);
/* Adds a request that the peer's process always answers to what goes out next. false: no pair could
 * carry it. */
bool r2_inband_ask(struct r2_inst *inst, struct r2_peer *peer);
/* The channel has taken a message to @peer. */
void r2_inband_owed(const struct r2_inst *inst, struct r2_peer *peer, uint64_t now);
/*
 * The channel, though it takes messages, has brought none of the peer's for NCCL_R2_T_REPEAT since
 * that request; or the peer announces that this is so at its end: what arrives here need not arrive
 * there.
 */
int r2_inband_due(const struct r2_inst *inst, const struct r2_peer *peer, uint64_t now);
/* Whether there is a pair to the peer that messages could go over now, but for the one between @nic
 * and @peer_nic. */
int r2_inband_reaches(const struct r2_inst *inst, const struct r2_peer *peer, int nic,
                      int peer_nic);
/* Sends @msg, a list of records, in pieces. What finds no room is dropped: it will be announced
 * again. Returns how many pieces went out at all. */
int r2_inband_send(struct r2_inst *inst, struct r2_peer *peer, const uint8_t *msg, size_t len);
/* Takes what has come in, but for the NICs in @none (a bit each), which nothing has come over. */
void r2_inband_progress(struct r2_inst *inst, uint32_t none);
/* Descriptors that are readable when there is something to take, and the NIC of each; at most
 * IB_MAX_NICS. Returns how many. */
int r2_inband_fds(const struct r2_inst *inst, struct pollfd *fds, uint8_t *nics);
/* The channel has brought a message, or is up again. */
void r2_inband_channel(struct r2_inst *inst, struct r2_peer *peer);

/* Of a pair's jobs; device's worker. They never fail the pair: without a queue pair for messages it
 * is probed all the same. */
void r2_inband_create(struct r2_pair *pair);
void r2_inband_connect(struct r2_pair *pair);
/* A job of the pair is back: its NIC's pool may stand now. */
void r2_inband_built(struct r2_pair *pair);
/* Nothing comes in over its queue pair any more: what is there is taken before it is destroyed. */
void r2_inband_quieted(struct r2_pair *pair);
/* Its queue pairs are destroyed. */
void r2_inband_destroyed(struct r2_pair *pair);

/* All pairs are gone, and the workers have stopped, but for those of the devices in @still_running.
 */
void r2_inband_close(struct r2_inst *inst, uint64_t still_running);

#endif
