#include "topo_route.h"

void topo_load_begin(const struct topo *t, struct topo_load *load)
{
    for (int i = 0; i < TOPO_LINKS; i++) {
        uint32_t mbps = topo_link_capacity(t, i);

        load->left[2 * i] = load->left[2 * i + 1] = mbps ? mbps : UINT32_MAX;
    }
}

void topo_load_take(struct topo_load *load, const struct topo_route *route, uint32_t mbps)
{
    for (int i = 0; i < route->n; i++) {
        uint32_t *left = &load->left[route->way[i]];

        if (*left != UINT32_MAX) {
            *left = *left > mbps ? *left - mbps : 0;
        }
    }
}

static void way_add(const struct topo_load *load, struct topo_route *r, int way)
{
    r->way[r->n++] = (uint16_t)way;
    if (load->left[way] < r->mbps) {
        r->mbps = load->left[way];
    }
}

/* PCI from @gpu to @nic, and its port; appended to what is there. */
static bool pci_part(const struct topo *t, const struct topo_load *load, int gpu, int nic,
                     struct topo_route *r)
{
    struct topo_path path;

    if (topo_path_find(t, (struct topo_end){TOPO_END_GPU, gpu}, nic, &path) != 0 ||
        path.class == TOPO_NONE) {
        return false;
    }
    r->class = path.class;
    for (int i = 0; i < path.n && r->n < TOPO_PATH_LINKS + 2; i++) {
        way_add(load, r, path.way[i]);
    }
    way_add(load, r, 2 * (TOPO_LINK_NIC + nic) + 1);
    return true;
}

/* Over the NVLinks of both GPUs; only to one that reaches the NIC without a host bridge. */
static bool relay_make(const struct topo *t, const struct topo_load *load, int gpu, int relay,
                       int nic, struct topo_route *r)
{
    uint32_t between = t->nvlink_mbps[gpu][relay];

    *r = (struct topo_route){.kind = TOPO_ROUTE_RELAY, .relay = (int16_t)relay, .mbps = between};
    if (relay == gpu || between == 0) {
        return false;
    }
    way_add(load, r, 2 * (TOPO_LINK_NVLINK + gpu));
    way_add(load, r, 2 * (TOPO_LINK_NVLINK + relay) + 1);
    return pci_part(t, load, relay, nic, r) && r->class <= TOPO_PXB;
}

void topo_route_choose(const struct topo *t, const struct topo_load *load, int gpu, int nic,
                       uint32_t need, bool relay_ok, struct topo_route *route)
{
    struct topo_route other;

    *route = (struct topo_route){.kind = TOPO_ROUTE_DIRECT, .relay = -1, .mbps = UINT32_MAX};
    if (gpu < 0 || gpu >= t->gpus || nic < 0 || nic >= t->nics ||
        !pci_part(t, load, gpu, nic, route)) {
        *route = (struct topo_route){.kind = TOPO_ROUTE_NONE, .class = TOPO_NONE, .relay = -1};
        return;
    }
    if (!relay_ok || (route->class <= TOPO_NODE && route->mbps >= need)) {
        return;
    }
    for (int g = 0; g < t->gpus; g++) {
        if (relay_make(t, load, gpu, g, nic, &other) && other.mbps > route->mbps) {
            *route = other;
        }
    }
}
