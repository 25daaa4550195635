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

    first = path->way ? path->way : c->inst->probing.connections + (unsigned)p;
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

/* The next way for @lane, not the one that the other has. */
static uint8_t lane_next(const struct r2_pair *pair, int lane, unsigned n)
{
    const uint8_t *at = pair->ways.lane;
    uint64_t clock = pair->inst->watch.clock;
    unsigned way = probe_ways_pick(&pair->ways.known, n, at[lane], clock);

    if (way == at[!lane]) {
        way = probe_ways_pick(&pair->ways.known, n, way, clock);
        way = way == at[!lane] ? at[!lane] % n + 1 : way;
    }
    return (uint8_t)way;
}

void r2_ways_begin_probe(struct r2_pair *pair)
{
    unsigned n = r2_ways_count(pair->inst, pair->nic);
    uint8_t *at = pair->ways.lane;

    pair->qp.two = n > 1 && !pair->ways.single;
    if (n < 2) {
        at[0] = at[1] = 0;
    } else if (at[0] == 0) {
        at[0] = 1;
        at[1] = (uint8_t)(1 + n / PROBE_QP_LANES);
    } else if (pair->probe.last_ok == 0 || pair->ways.silent) { /* no answer over these */
        at[0] = lane_next(pair, 0, n);
        at[1] = lane_next(pair, 1, n);
    }
    pair->ways.silent = 0;
}

void r2_ways_on_joined(struct r2_pair *pair)
{
    if (pair->far.alt.qpn && pair->qp.lane[1].qp && !pair->qp.lane[1].used) {
        pair->ways.single = 1; /* the peer takes it to be connected */
        pair->build.again = 1;
    }
}

static bool has_one_out(const struct r2_pair *pair)
{
    return r2_pair_ready(pair) && !r2_pair_is_judged(pair) && pair->qp.lane[1].used &&
           probe_qp_out(&pair->qp) > 0;
}

/* Lane @lane takes a better way, if there is one; the other stays where it is. */
static void leave(struct r2_pair *pair, int lane, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    uint8_t way;

    r2_ways_on_lost(pair, l[lane].way);
    way = lane_next(pair, lane, r2_ways_count(pair->inst, pair->nic));
    if (probe_ways_avoids(&pair->ways.known, way, clock)) {
        return; /* no other is any better */
    }
    R2_INFO("NIC %s - NIC %u of %s: way %u is silent, way %u answers",
            pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
            pair->inst->oob->ops->peer_str(pair->peer->oob), l[lane].way, l[!lane].way);
    pair->ways.lane[lane] = way;
    r2_pair_rebuild(pair);
}

void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    int silent;

    if (!has_one_out(pair)) {
        return;
    }
    if (!r2_pair_is_probing(pair)) {
        (void)probe_qp_poll(&pair->qp); /* what has failed fails the next probe */
    }
    silent = probe_qp_silent(&pair->qp, SILENT_NS);
    if (silent >= 0 && clock >= pair->ways.change_at) {
        pair->ways.change_at = clock + CHANGE_NS;
        leave(pair, silent, clock);
    } else if (silent < 0 && !r2_pair_is_probing(pair) && probe_qp_out(&pair->qp) > 0 &&
               r2_elapsed(clock, l[l[0].out < l[1].out].posted) >= AGAIN_NS) {
        r2_pair_begin(pair, clock, 0);
    }
}
