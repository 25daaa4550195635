#include "r2_ways.h"

#include <string.h>

#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "ib_transport/ib_way_port.h"
#include "r2_pair.h"
#include "r2_pair_int.h"
#include "r2_watch.h"
#include "r2_witness.h"

#define SILENT_NS R2_MS(100)  /* a way is silent for so long while the other one answers */
#define AGAIN_NS  R2_MS(200)  /* one that lags is asked again: RC would repeat by time */
#define CHANGE_NS R2_MS(1000) /* between two changes: congestion costs no more than that */
#define COUNTED   64          /* connections to a peer whose ways are counted, at most */
#define CARRIES   16

/* Ways that queue pairs of NIC @nic may take to one of the peer's, by @pair (NULL: there is none):
 * 1 where it has no choice, or shall have none; the most that there may be to any port, until the
 * peer has said which it is. */
static unsigned ways_count(struct r2_inst *inst, int nic, const struct r2_pair *pair)
{
    struct ib_addr addr;

    if (pair && pair->ways.n) {
        return pair->ways.n;
    }
    ib_nic_addr_get(&inst->nics, nic, &addr);
    return ib_port_ways_most(inst->nics.ways, &addr);
}

static unsigned pair_count(const struct r2_pair *pair)
{
    return ways_count(pair->inst, pair->nic, pair);
}

/*
 * How many queue pairs that bring data of @peer over the NICs of @as take each of @n ways,
 * @used[way - 1]; one of a connection's primary pair, which carries while all is well, as CARRIES.
 * Of COUNTED connections at most: of more, ways in turn are as good. A way was chosen among those
 * that there may be at most, and folded since (ib_way_fold): that one, path->way, is a worker's to
 * write. Service thread, to which peer->comms and watch->way belong.
 */
static void used_count(const struct r2_peer *peer, const struct ib_path *as, unsigned n,
                       uint16_t used[IB_WAYS_MAX])
{
    int counted = 0;

    memset(used, 0, IB_WAYS_MAX * sizeof(*used));
    for (const struct r2_comm *c = n > 1 ? peer->comms : NULL; c && counted++ < COUNTED;
         c = c->list.peer_next) {
        for (int p = 0; !c->is_send && p < c->conn.npaths; p++) {
            const struct ib_path *path = &c->conn.path[p], *first = &c->conn.path[0];
            unsigned way = c->watch->way[p];

            if (way && path->nic == as->nic && path->peer_nic == as->peer_nic) {
                bool carries = path->nic == first->nic && path->peer_nic == first->peer_nic;

                used[(way - 1) % n] += carries ? CARRIES : 1;
            }
        }
    }
}

unsigned r2_ways_pick(struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
    static const struct probe_ways none;
    unsigned n = ways_count(c->inst, path->nic, pair), first;
    uint16_t used[IB_WAYS_MAX];

    first = path->way ? path->way : c->inst->probing.connections + (unsigned)p;
    used_count(c->peer, path, n, used);
    if (path->way && n > 1) {
        used[(path->way - 1) % n] = UINT16_MAX; /* whatever ended there: another one, if it can */
    }
    c->watch->way[p] = (uint8_t)probe_ways_pick(pair ? &pair->ways.known : &none, n, first, used,
                                                c->inst->watch.clock);
    return c->watch->way[p];
}

void r2_ways_on_lost(struct r2_pair *pair, unsigned way)
{
    probe_ways_lost(&pair->ways.known, way, pair->inst->watch.clock);
    if (!probe_ways_is_silent(&pair->ways.known, way)) {
        pair->ways.suspect = (uint8_t)way;
    }
}

bool r2_ways_has_good(const struct r2_pair *pair)
{
    unsigned n = pair_count(pair);
    unsigned way = probe_ways_pick(&pair->ways.known, n, 0, NULL, pair->inst->watch.clock);

    return way && !probe_ways_avoids(&pair->ways.known, way, pair->inst->watch.clock);
}

uint32_t r2_ways_label(const struct r2_pair *pair, unsigned way)
{
    struct ib_addr here;

    ib_nic_addr_get(&pair->inst->nics, pair->nic, &here);
    return ib_port_way_label(pair->inst->nics.ways, way, &here, &pair->far.addr.port);
}

unsigned r2_ways_find(const struct r2_pair *pair, uint32_t label)
{
    unsigned way = pair->ways.n < 2 ? 0 : pair->ways.n;

    while (way && r2_ways_label(pair, way) != label) {
        way--;
    }
    return way;
}

/* --- the probe's two --- */

/* The next way for @lane, not the one that the other has. */
static unsigned lane_next(const struct r2_pair *pair, int lane, unsigned n)
{
    const uint8_t *at = pair->ways.wish.way;
    uint64_t clock = pair->inst->watch.clock;
    unsigned way = probe_ways_pick(&pair->ways.known, n, at[lane], NULL, clock);

    if (way == at[!lane]) {
        way = probe_ways_pick(&pair->ways.known, n, way, NULL, clock);
        way = way == at[!lane] ? at[!lane] % n + 1 : way;
    }
    return way;
}

static void choose(struct r2_pair *pair, int lane, unsigned way)
{
    pair->ways.wish.way[lane] = (uint8_t)way;
    pair->ways.wish.turn++;
}

void r2_ways_begin_probe(struct r2_pair *pair)
{
    unsigned n = pair_count(pair);

    pair->qp.two = n > 1 && !pair->ways.single;
    if (n < 2) {
        memset(&pair->ways.wish, 0, sizeof(pair->ways.wish));
    } else if (pair->ways.wish.way[0] == 0) {
        choose(pair, 0, 1);
        choose(pair, 1, 1 + n / PROBE_QP_LANES);
    } else if (!pair->ways.chosen && (pair->probe.last_ok == 0 || pair->ways.silent)) {
        choose(pair, 0, lane_next(pair, 0, n)); /* no answer over these */
        choose(pair, 1, lane_next(pair, 1, n));
    }
    pair->ways.silent = pair->ways.chosen = 0;
}

/* Whether this end's choice holds where both have chosen: ports differ, or queue pairs of one port
 * do. Both ends answer differently. */
static bool is_first(const struct r2_pair *pair)
{
    struct ib_addr here;
    int differ;

    ib_nic_addr_get(&pair->inst->nics, pair->nic, &here);
    differ = memcmp(here.gid, pair->far.addr.port.gid, sizeof(here.gid));
    return differ ? differ > 0
                  : pair->qp.lane[0].qp && pair->qp.lane[0].qp->qp_num > pair->far.addr.qpn;
}

/*
 * Both ends come to the same from the same wish: that was made, at an end that has not heard the
 * other one yet, of more ways than there are between these two ports.
 */
static void wish_fold(struct r2_pair *pair)
{
    const struct ib_addr *there = &pair->far.addr.port;
    const struct ib_ways *ways = pair->inst->nics.ways;
    struct probe_way_wish *ours = &pair->ways.wish;
    struct ib_addr here;

    ib_nic_addr_get(&pair->inst->nics, pair->nic, &here);
    if (pair->inst->nics.nic[pair->nic].last) {
        pair->ways.n = 1;
        return;
    }
    pair->ways.n = (uint8_t)ib_port_ways(ways, &here, there);
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        ours->way[i] = (uint8_t)ib_port_way_fold(ways, ours->way[i], &here, there);
    }
    if (pair->ways.n == 1) {
        pair->far.alt.qpn = 0; /* a second queue pair would go by the way of the first */
    } else if (ours->way[1] == ours->way[0]) {
        ours->way[1] = (uint8_t)(ours->way[0] % pair->ways.n + 1);
    }
}

void r2_ways_on_wish(struct r2_pair *pair, const struct probe_way_wish *theirs)
{
    struct probe_way_wish *ours = &pair->ways.wish;

    if (probe_way_yields(ours, theirs, is_first(pair))) {
        ours->turn = theirs->turn;
        ours->way[0] = theirs->way[0];
        ours->way[1] = theirs->way[1] ? theirs->way[1] : ours->way[1];
    }
    wish_fold(pair);
}

void r2_ways_on_joined(struct r2_pair *pair)
{
    if (pair->far.alt.qpn && pair->qp.lane[1].qp && !pair->qp.lane[1].used) {
        pair->ways.single = 1; /* the peer takes it to be connected */
        pair->build.again = 1;
    }
}

/* Both queue pairs of the probe are there, and no verdict waits for them. */
static bool has_two(const struct r2_pair *pair)
{
    return r2_pair_ready(pair) && !r2_pair_is_judged(pair) && pair->qp.lane[1].used;
}

/* Queue pair @lane is made anew for way @way; the other one stays on its way. */
static void ask_over(struct r2_pair *pair, int lane, unsigned way, uint64_t clock)
{
    pair->ways.next_at = clock + CHANGE_NS;
    choose(pair, lane, way);
    r2_pair_rebuild(pair);
}

/* A way that has lost a tail is asked, once nobody waits for the pair. */
static void ask_suspect(struct r2_pair *pair, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    unsigned way = pair->ways.suspect;

    if (way == 0 || clock < pair->ways.next_at || r2_pair_is_probing(pair) ||
        pair->probation.interest) {
        return;
    }
    pair->ways.suspect = 0;
    if (l[0].way == way || l[1].way == way) {
        r2_pair_begin(pair, clock, 0);
    } else {
        ask_over(pair, l[0].answered < l[1].answered ? 0 : 1, way, clock);
    }
}

/* Lane @lane is silent and the other one answers. */
static void on_silent(struct r2_pair *pair, int lane, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    unsigned way = l[lane].way, good = l[!lane].way, next;
    bool known = probe_ways_is_silent(&pair->ways.known, way);

    if (probe_ways_on_silent(&pair->ways.known, way, l[lane].answered != 0, clock)) {
        R2_INFO("NIC %s - NIC %u of %s: way %u is silent, way %u answers",
                pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
                pair->inst->oob->ops->peer_str(pair->peer->oob), way, good);
        R2_NOTIFY(pair->inst, on_way, pair, way, good, r2_elapsed(clock, l[lane].waits));
    } else if (!known) {
        ask_over(pair, lane, way, clock);
        return;
    }
    next = lane_next(pair, lane, pair_count(pair));
    if (!probe_ways_avoids(&pair->ways.known, next, clock)) {
        ask_over(pair, lane, next, clock); /* else no other is any better */
    }
}

void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;
    int silent;

    if (!has_two(pair)) {
        return;
    }
    if (probe_qp_out(&pair->qp) == 0) {
        probe_ways_on_answer(&pair->ways.known, l[0].answered ? l[0].way : 0);
        probe_ways_on_answer(&pair->ways.known, l[1].answered ? l[1].way : 0);
        ask_suspect(pair, clock);
        return;
    }
    if (!r2_pair_is_probing(pair)) {
        (void)probe_qp_poll(&pair->qp); /* what has failed fails the next probe */
    }
    silent = probe_qp_silent(&pair->qp, SILENT_NS);
    if (silent >= 0 && clock >= pair->ways.next_at) {
        on_silent(pair, silent, clock);
    } else if (silent < 0 && !r2_pair_is_probing(pair) && probe_qp_out(&pair->qp) > 0 &&
               r2_elapsed(clock, l[l[0].out < l[1].out].posted) >= AGAIN_NS) {
        r2_pair_begin(pair, clock, 0);
    }
}

/* Way @good has carried something since the probe went out, which nobody answers. */
static void leave_both(struct r2_pair *pair, unsigned good, uint64_t clock)
{
    const struct probe_lane *l = pair->qp.lane;

    R2_INFO("NIC %s - NIC %u of %s: no answer, and way %u carries: probed over that",
            pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
            pair->inst->oob->ops->peer_str(pair->peer->oob), good);
    r2_ways_on_lost(pair, l[1].way);
    r2_ways_on_lost(pair, l[0].way);
    choose(pair, 0, good);
    choose(pair, 1, lane_next(pair, 1, pair_count(pair)));
    pair->ways.chosen = 1;
    pair->ways.next_at = clock + CHANGE_NS;
    r2_pair_rebuild(pair);
}

bool r2_ways_leave(struct r2_pair *pair, uint64_t clock)
{
    unsigned good = pair->ways.witness_at ? r2_witness_answer(pair) : 0;

    if (good) {
        leave_both(pair, good, clock);
    }
    return good != 0;
}

bool r2_ways_on_late(struct r2_pair *pair, uint64_t clock)
{
    uint64_t late = r2_elapsed(clock, pair->probe.from);

    if (pair->probe.state < R2_PROBE_TIMED) {
        return false; /* it may be the peer's process that is silent, or its whole host */
    }
    if (pair->ways.witness_at == 0 && late >= pair->probe.limit / 2) {
        r2_witness_ask(pair);
        pair->ways.witness_at = clock + SILENT_NS;
    } else if (pair->ways.witness_at && clock >= pair->ways.witness_at &&
               clock >= pair->ways.next_at && late >= SILENT_NS) {
        pair->ways.witness_at = clock + SILENT_NS;
        return r2_ways_leave(pair, clock);
    }
    return false;
}
