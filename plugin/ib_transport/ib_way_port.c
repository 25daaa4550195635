#include "ib_way_port.h"

#include <stdbool.h>

#include "verbs/ib_gid.h"

static bool is_infiniband(const struct ib_addr *a)
{
    return a->link_layer == IBV_LINK_LAYER_INFINIBAND;
}

/* Whether packets between them keep the LIDs that their sender gives them. */
static bool has_lids(const struct ib_addr *a, const struct ib_addr *peer)
{
    return is_infiniband(a) && is_infiniband(peer) && a->lid && peer->lid &&
           ib_gid_subnet(a->gid) == ib_gid_subnet(peer->gid);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Which of its LIDs, from the first. */
static unsigned index_of(unsigned way, const struct ib_addr *a)
{
    return way ? (way - 1) & ((1u << least(a->lmc, IB_LMC_MAX)) - 1) : 0;
}

unsigned ib_port_ways(const struct ib_ways *w, const struct ib_addr *a, const struct ib_addr *peer)
{
    unsigned lmc = a->lmc > peer->lmc ? a->lmc : peer->lmc;

    if (a->link_layer == IBV_LINK_LAYER_ETHERNET) {
        return ib_ways_count(w, a->gid, peer->gid);
    }
    return has_lids(a, peer) ? least(ib_ways_unnamed(w), 1u << least(lmc, IB_LMC_MAX)) : 1;
}

unsigned ib_port_ways_most(const struct ib_ways *w, const struct ib_addr *a)
{
    if (a->link_layer == IBV_LINK_LAYER_ETHERNET) {
        return ib_ways_most(w, a->gid);
    }
    return is_infiniband(a) ? least(ib_ways_unnamed(w), 1u << least(a->lmc, IB_LMC_MAX)) : 1;
}

unsigned ib_port_way_fold(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                          const struct ib_addr *peer)
{
    if (a->link_layer == IBV_LINK_LAYER_ETHERNET) {
        return ib_way_fold(w, way, a->gid, peer->gid);
    }
    return has_lids(a, peer) ? way : 0;
}

uint32_t ib_port_way_label(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                           const struct ib_addr *peer)
{
    if (a->link_layer == IBV_LINK_LAYER_ETHERNET) {
        return ib_way_label(w, way, a->gid, peer->gid);
    }
    return has_lids(a, peer) ? way : 0;
}

uint16_t ib_port_way_lid(unsigned way, const struct ib_addr *a, const struct ib_addr *peer)
{
    return (uint16_t)(a->lid + (has_lids(a, peer) ? index_of(way, a) : 0));
}

void ib_port_way_take(const struct ib_ways *w, unsigned way, const struct ib_addr *a,
                      const struct ib_addr *peer, struct ibv_ah_attr *ah)
{
    if (a->link_layer == IBV_LINK_LAYER_ETHERNET) {
        ah->grh.flow_label = ib_way_label(w, way, a->gid, peer->gid);
    } else if (has_lids(a, peer)) {
        ah->dlid = ib_port_way_lid(way, peer, a);
        ah->src_path_bits = (uint8_t)index_of(way, a);
    }
}
