/*
 * How a GPU's traffic reaches a NIC, and what that costs others: straight over PCI, or over NVLink
 * to the GPU next to the NIC (PXN). Pure.
 *
 * NCCL's buffers are where NCCL puts them, and it relays by itself (NCCL_PXN); the plugin goes by a
 * relay with NCCL_R2_RELAY, and r2_topo shows what an operator gains from either.
 * docs/balance.md has the rules and where each number comes from.
 */
#ifndef TOPO_ROUTE_H
#define TOPO_ROUTE_H

#include "topo_path.h"

/* What every way has left in Mb/s; UINT32_MAX where the capacity is unknown: no limit is invented.
 */
struct topo_load {
    uint32_t left[TOPO_WAYS];
};

enum topo_route_kind { TOPO_ROUTE_NONE, TOPO_ROUTE_DIRECT, TOPO_ROUTE_RELAY };

struct topo_route {
    enum topo_route_kind kind;
    enum topo_class class; /* of the PCI part */
    int16_t relay;         /* GPU (index); -1 */
    uint8_t n;
    uint16_t way[TOPO_PATH_LINKS + 3]; /* all of it, from the GPU to the port */
    uint32_t mbps;                     /* what is left on it; UINT32_MAX: no link of it is known */
};

/* Nothing is used yet. */
void topo_load_begin(const struct topo *t, struct topo_load *load);

/* A flow of @mbps takes @route; what is not there is not taken. */
void topo_load_take(struct topo_load *load, const struct topo_route *route, uint32_t mbps);

/*
 * The route of a flow of @need Mb/s from @gpu to @nic (indices): straight within the NUMA node
 * while that has @need left; else, and across sockets, whichever has more left, straight when equal
 * (one copy less). @relay_ok: whether there may be a relay. kind NONE for indices that are not
 * there and NICs without PCI.
 */
void topo_route_choose(const struct topo *t, const struct topo_load *load, int gpu, int nic,
                       uint32_t need, bool relay_ok, struct topo_route *route);

#endif
