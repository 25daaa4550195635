/*
 * The ways of a rail: which spine a packet takes, and what faults of spines do to it. Pure; used by
 * both engines.
 *
 * Between two ports of rail k lie desc.spines spines of that rail; between ports of different rails
 * (crossrail) those of the lower one. Leaf switches choose by a hash of the packet's addresses and
 * UDP ports, so all packets of one queue pair, and those of all others with the same port between
 * the same two NICs, take one way. The hash does not tell source from destination: the destination
 * port is the same for all, so equal source ports take the same spine in both directions. Addresses
 * of two pairs of NICs hash differently: what is good for one says nothing about another.
 *
 * With FAB_HASH_QP the number of the destination queue pair goes into the hash as well, as some
 * switches have it for RoCE: what another queue pair finds says nothing about this one, whatever
 * its port, and the two directions of a queue pair have nothing in common.
 *
 * InfiniBand has no ports, and its switches go by the destination's LID alone: all packets to one
 * LID take one way, whoever sends them, and the two directions of a queue pair have nothing in
 * common. A port with several LIDs (struct fab_ib) has as many ways to it.
 *
 * A packet that its own port takes back meets no spine. With one spine (0 or 1) there is nothing to
 * choose and nothing to break: links are all there is.
 *
 * Where desc.leaf hosts share a leaf switch, what goes between them meets no spine either, and the
 * rate of a spine is that of each link between it and a leaf switch, in each direction, not of all
 * packets over it: a packet waits for its turn on the link up and on the link down.
 */
#ifndef FAB_SPINE_H
#define FAB_SPINE_H

#include "fab_desc.h"
#include "fab_fault.h"
#include "fab_pkt.h"

/* A spine of a given rate keeps what waits for it, up to this much of its time; what comes then is
 * dropped. */
#define FAB_SPINE_QUEUE_NS 250000000ull

/* The spines of one rail, as faults left them. Zeroed: all is well. */
struct fab_rail {
    uint64_t down;      /* bit = spine, which the leaf switches know of: they choose among the
                           others */
    uint64_t blackhole; /* bit = spine that swallows what it gets */
    uint32_t loss_ppm[FAB_MAX_SPINES];
    uint64_t rate[FAB_MAX_SPINES]; /* bytes per second of all packets over it; 0: unlimited */
};

struct fab_spine_count {
    uint64_t packets, bytes; /* that chose it, lost ones as well; bytes of payload */
    uint64_t dropped;        /* of these: blackhole, loss, full queue */
    uint64_t queued;         /* of these: waited for others, by fault rate */
    uint64_t moved; /* packets whose hash names it and that took another, by fault down; with
                       all down: that went nowhere */
};

/* Port of packets of label @label (of the address handle, 0: none) between queue pairs @qpn and
 * @peer_qpn, as Linux and its drivers compute it: 0xC000 to 0xFFFF. */
uint16_t fab_udp_sport(uint32_t label, uint32_t qpn, uint32_t peer_qpn);

/* Spines of a rail: at least 1. */
static inline int fab_spines(const struct fab_desc *d)
{
    return d->spines > 1 ? d->spines : 1;
}
static inline int fab_hdr_rail(const struct fab_hdr *h)
{
    return h->src.nic < h->dst.nic ? h->src.nic : h->dst.nic;
}
/* Whether a leaf switch has both ends of a packet, so that it meets no spine. */
static inline bool fab_hdr_leaf(const struct fab_desc *d, const struct fab_hdr *h)
{
    return d->leaf > 0 && h->src.host / d->leaf == h->dst.host / d->leaf;
}

uint64_t fab_spine_hash(const struct fab_hdr *h, enum fab_hash how);
/* The spine that @hash names among @spines while none is down. */
static inline int fab_spine_home(uint64_t hash, int spines)
{
    return (int)(hash % (uint64_t)spines);
}
/*
 * The spine that a packet of @hash takes; -1: all are down. Rehashing is minimal: only packets
 * whose own spine is down go elsewhere, spread over those that are left, and come back with it.
 */
int fab_spine_pick(uint64_t hash, int spines, uint64_t down);

/* Whether spine @k loses a packet; @rnd: a fresh random number, looked at only if it has a chance
 * set. */
bool fab_spine_drops(bool blackhole, uint32_t loss_ppm, uint64_t rnd);

/* Applies the part of @fault that concerns spines to a rail that has @spines; none for a fault of
 * NICs, but for restore of all NICs of a rail. */
void fab_rail_fault(struct fab_rail *r, int spines, const struct fab_fault *fault);

#endif
