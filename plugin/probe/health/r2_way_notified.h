/*
 * What the processes that share a NIC pair announce to each other of its ways (docs/health.md,
 * "What one process finds, the others know"): one finds out that a way is silent, and paths of the
 * others leave it before they stand still. It concerns the processes of two hosts, which get it by
 * WAY and by their host registry, and no other: there is no gossip of it. Service thread; nothing
 * blocks but for visits of gates.
 */
#ifndef R2_WAY_NOTIFIED_H
#define R2_WAY_NOTIFIED_H

#include <stdint.h>

#include "control/fo_proto.h"

struct r2_inst;
struct r2_pair;
struct r2_peer;
struct r2_subscriber;

/* Subscribes to on_way: what is found out here. Announces on_way_notified. Allocates nothing. */
extern const struct r2_subscriber r2_way_notified_subscriber;

/* From a peer, unpacked. No gate held. */
void r2_way_notified_on_record(struct r2_inst *inst, struct r2_peer *peer, const struct fo_way *m);
/*
 * From another process of this host, @who: between our NIC @nic and the port with @gid what has the
 * flow label @label is swallowed, for @ns by now. Nothing of it need be true. No gate held.
 */
void r2_way_notified_heard(struct r2_inst *inst, int nic, const uint8_t gid[16], uint32_t label,
                           uint64_t ns, const char *who);
/* How many ways @pair has is known from now on: what was reported before, or found out with another
 * process at the same port, concerns it, too. No gate held. */
void r2_way_notified_join(struct r2_pair *pair);

#endif
