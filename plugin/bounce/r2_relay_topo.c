/* Which GPU reaches which NIC by way of what. */
#include <string.h>

#include "balance/r2_balance.h"
#include "r2_relay.h"
#include "topo/topo_path.h"
#include "topo/topo_route.h"

/* By a copy in the host only where the GPU's own way crosses the sockets: that link is what is
 * full, and the copy goes beside it. */
static struct r2_relay_way way_make(const struct topo *t, const struct topo_load *idle, int gpu,
                                    int nic, enum r2_relay_mode mode)
{
    struct r2_relay_way way = {.kind = R2_RELAY_NONE};
    struct topo_route route;

    topo_route_choose(t, idle, gpu, nic, topo_nic_mbps(t, nic), mode == R2_VIA_GPU, &route);
    if (route.kind == TOPO_ROUTE_RELAY) {
        way.kind = R2_RELAY_GPU;
        way.relay = (uint8_t)route.relay;
    } else if (mode == R2_VIA_HOST && route.kind == TOPO_ROUTE_DIRECT && route.class == TOPO_SYS) {
        way.kind = R2_RELAY_HOST;
    }
    return way;
}

void r2_relay_ways_make(struct r2_relay_ways *w, const struct ib_nics *nics, const struct topo *t,
                        enum r2_relay_mode mode)
{
    struct topo_load idle;
    struct topo ours;

    memset(w, 0, sizeof(*w));
    if (t == NULL) {
        return;
    }
    r2_ways_topo(&ours, t, nics);
    topo_load_begin(&ours, &idle);
    w->gpus = ours.gpus;
    for (int g = 0; g < ours.gpus; g++) {
        topo_bdf_text(&ours.pci[ours.gpu[g].pci], w->gpu[g]);
        for (int i = 0; i < nics->count; i++) {
            int nic = r2_ways_place(&ours, &nics->nic[i]);

            if (nic >= 0) {
                w->way[g][i] = way_make(&ours, &idle, g, nic, mode);
            }
        }
    }
}

struct r2_relay_way r2_relay_way_get(const struct r2_relay_ways *w, int gpu, int nic,
                                     int registered)
{
    struct r2_relay_way way = {.kind = registered ? R2_RELAY_NONE : R2_RELAY_HOST};

    if (gpu >= 0 && gpu < w->gpus && nic >= 0 && nic < IB_MAX_NICS &&
        w->way[gpu][nic].kind != R2_RELAY_NONE) {
        way = w->way[gpu][nic];
    }
    return way;
}
