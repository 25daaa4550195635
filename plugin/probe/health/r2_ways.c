#include "r2_ways.h"

#include "base/r2_log.h"
#include "r2_pair.h"
#include "r2_pair_int.h"

#define SILENT_NS R2_MS(100)  /* a way is silent for so long while the other one answers */
#define AGAIN_NS  R2_MS(200)  /* one that lags is asked again: RC would repeat by time */
#define CHANGE_NS R2_MS(1000) /* between two changes: congestion costs no more than that */

unsigned r2_ways_count(struct r2_inst *inst, int nic)
{
    struct ib_addr addr;

    ib_nic_addr_get(&inst->nics, nic, &addr);
    return addr.link_layer == IBV_LINK_LAYER_ETHERNET ? (unsigned)inst->cfg.ways : 1;
}

unsigned r2_ways_pick(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
    static const struct probe_ways none;
    unsigned n = r2_ways_count(c->inst, path->nic), first;

    first = path->way ? path->way - 1u : c->inst->probing.connections + (unsigned)p;
    return probe_ways_pick(pair ? &pair->ways.known : &none, n, first, c->inst->watch.clock);
}

void r2_ways_on_lost(struct r2_pair *pair, unsigned way)
{
    probe_ways_lost(&pair->ways.known, way, pair->inst->watch.clock);
}

bool r2_ways_has_good(const struct r2_pair *pair)
{
    unsigned n = r2_ways_count(pair->inst, pair->nic);
    unsigned way = probe_ways_pick(&pair->ways.known, n, 0, pair->inst->watch.clock);

    return way && !probe_ways_avoids(&pair->ways.known, way, pair->inst->watch.clock);
}

void r2_ways_of_probe(const struct r2_pair *pair, uint8_t way[PROBE_QP_LANES])
{
    unsigned n = r2_ways_count(pair->inst, pair->nic);
    unsigned first = pair->ways.want + pair->ways.peer_want;

    for (unsigned i = 0; i < PROBE_QP_LANES; i++) {
        way[i] = (uint8_t)(n < 2 ? 0 : (first + i * (n / PROBE_QP_LANES)) % n + 1);
    }
}

static bool has_one_out(const struct r2_pair *pair)
{
    return r2_pair_ready(pair) && !r2_pair_is_judged(pair) && probe_qp_out(&pair->qp) > 0;
}

void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    int silent;

    if (!l[1].used || !has_one_out(pair)) {
        return;
    }
    if (!r2_pair_is_probing(pair)) {
        (void)probe_qp_poll(&pair->qp); /* what has failed fails the next probe */
    }
    silent = probe_qp_silent(&pair->qp, SILENT_NS);
    if (silent >= 0 &&
        (pair->ways.changed_at == 0 || r2_elapsed(clock, pair->ways.changed_at) >= CHANGE_NS)) {
        R2_INFO("NIC %s - NIC %u of %s: way %u is silent, way %u answers",
                pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
                pair->inst->oob->ops->peer_str(pair->peer->oob), l[silent].way, l[!silent].way);
        r2_ways_on_lost(pair, l[silent].way);
        pair->ways.changed_at = clock;
        pair->ways.want++;
        r2_pair_rebuild(pair);
    } else if (silent < 0 && !r2_pair_is_probing(pair) &&
               r2_elapsed(clock, l[l[0].out < l[1].out].posted) >= AGAIN_NS &&
               probe_qp_out(&pair->qp) > 0) {
        r2_pair_begin(pair, clock, 0);
    }
}
