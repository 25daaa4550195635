/*
 * Ways between two ports (ib_way.h) by what their link layer has: RoCE v2 flow labels, InfiniBand
 * the LIDs of ports that have several (LMC); its switches go by the destination's. Pure; any
 * thread.
 */
#ifndef IB_WAY_PORT_H
#define IB_WAY_PORT_H

#include <stdint.h>

#include "ib_way.h"
#include "verbs/ib_device.h"

#define IB_LMC_MAX 7 /* IBTA 4.1.3: a port has up to 128 LIDs */

/* How many ways there are between these two ports, 1 to IB_WAYS_MAX; the same at both ends with the
 * same @w. Across InfiniBand subnets 1: routers choose there. */
unsigned ib_port_ways(const struct ib_ways *w, const struct ib_addr *a, const struct ib_addr *peer);
/* The most that there may be between @a and any other port. */
unsigned ib_port_ways_most(const struct ib_ways *w, const struct ib_addr *a);
/* As ib_way_fold(). InfiniBand: @way, which is good whatever the number of ways; 0 where routers
 * give packets their LIDs. */
unsigned ib_port_way_fold(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                          const struct ib_addr *peer);
/*
 * What tells way @way from others between these two ports, the same at both ends and in all
 * processes: RoCE's flow label, InfiniBand's number of the way. 0: nothing does.
 */
uint32_t ib_port_way_label(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                           const struct ib_addr *peer);
/*
 * The LID of InfiniBand port @a by which way @way comes and goes, between it and @peer in the same
 * subnet: the ways take the LIDs in turn, way 0 the first. Both ends know both, as each takes from
 * the other only what has the LIDs of its own address vector (IBTA 9.6).
 */
uint16_t ib_port_way_lid(unsigned way, const struct ib_addr *a, const struct ib_addr *peer);
/* @ah, which leads from @a to @peer, takes way @way. */
void ib_port_way_take(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                      const struct ib_addr *peer, struct ibv_ah_attr *ah);

#endif
