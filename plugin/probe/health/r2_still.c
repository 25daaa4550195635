#include "r2_still.h"

#include "core/r2_visit.h"
#include "r2_load.h"
#include "r2_pair.h"
#include "r2_probation.h"
#include "r2_watch_int.h"

#define STEP                                                                                       \
    R2_MS(1000) /* what stands still is checked so often, or four times in NCCL_R2_GIVE_UP */
#define LEAST R2_MS(1000) /* a path that is new is given so long, whatever was before */

/* R: how many control writes there were, again and again when S asks, does not say that any gets
 * anywhere. */
static uint64_t moved_by_all(const struct r2_comm *c)
{
    uint64_t moved = c->is_send ? IB_RLX_GET(c->tx->sack) : 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        moved += IB_RLX_GET(c->conn.path[p].count.cqes);
    }
    return moved;
}

/* Work requests are under way. Without the gate, too: then as of a moment ago. */
bool r2_still_has_posted(const struct r2_comm *c)
{
    unsigned used = 0;

    for (uint32_t m = IB_RLX_GET(c->conn.up); m; m &= m - 1) {
        used |= IB_RLX_GET(c->conn.path[__builtin_ctz(m)].sq.used);
    }
    return used != 0;
}

/* There is no channel, so that no word can come which would end what waits for the other end's
 * program: R's open receives, S's wait for one. */
static bool waits_without_channel(const struct r2_comm *c)
{
    return c->peer->channel.lost &&
           (c->is_send ? c->watch->cts_request.since != 0
                       : IB_RLX_GET(c->rx->load.opened) != IB_RLX_GET(c->rx->count.messages));
}

bool r2_still_waits(const struct r2_comm *c)
{
    return r2_still_has_posted(c) || waits_without_channel(c) ||
           (c->is_send && IB_RLX_GET(c->tx->sposted) > IB_RLX_GET(c->tx->sack));
}

/* What stands in the queues, as time: probes stand behind it. */
static uint64_t expected(const struct r2_comm *c)
{
    uint64_t longest = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        struct probe_pulse s = r2_watch_pulse(c, p);
        uint64_t t =
            ib_conn_up(&c->conn, p) && c->is_send ? probe_watch_expect(&c->watch->path[p], &s) : 0;

        longest = t > longest ? t : longest;
    }
    return longest;
}

/*
 * Asks over all paths that are up; nobody's verdict waits for that. Takes in when one answered
 * last, or carried something of another connection. 0: none of them has ever answered, so that RC's
 * own time is all there is. Gate held.
 */
static int probe_all(struct r2_comm *c, uint64_t clock)
{
    int known = 0;

    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];
        struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);
        uint64_t ok;

        if (!ib_conn_up(&c->conn, p) || pair == NULL || pair->probe.answers == 0) {
            continue;
        }
        known = 1;
        ok = r2_load_done_at(pair);
        ok = pair->probe.last_ok > ok ? pair->probe.last_ok : ok;
        c->watch->still.alive = ok > c->watch->still.alive ? ok : c->watch->still.alive;
        if (pair->build.state == R2_PAIR_DEAD || pair->build.state == R2_PAIR_BROKEN) {
            r2_probation_for_peer(pair, 0);
        } else if (!r2_pair_is_probing(pair)) {
            r2_pair_send_probe(pair, clock, 0);
        }
    }
    return known;
}

/*
 * No path carries it: nothing of it moves, and none of its paths answers, for NCCL_R2_GIVE_UP; and
 * a time without a path before counts, where nothing has got through since. Where R's NIC has taken
 * everything of S's, S waits for R's process, stopped perhaps: what that says is its own matter,
 * and where its NIC is silent it ends itself. Gate held.
 */
static void check_still(struct r2_comm *c, uint64_t clock)
{
    uint64_t give_up = R2_MS(c->inst->cfg.t_give_up_ms), expect = 4 * expected(c),
             now = r2_now(c->inst);
    uint64_t least = give_up < LEAST ? give_up : LEAST, silent, age, stuck;
    int known = probe_all(c, clock);

    silent = r2_elapsed(clock, c->watch->still.since);
    age = r2_elapsed(clock, c->watch->still.alive > c->watch->still.since ? c->watch->still.alive
                                                                          : c->watch->still.since);
    stuck = fo_no_progress_since(&c->fo) ? r2_elapsed(now, fo_no_progress_since(&c->fo)) : 0;
    age = stuck > age ? stuck : age;
    if (fo_vain_since(&c->fo) && r2_still_has_posted(c)) {
        stuck = r2_elapsed(now, fo_vain_since(&c->fo));
        age = stuck > age ? stuck : age;
    }
    give_up = give_up > expect ? give_up : expect;
    if (age < give_up && c->watch->still.poll_at - clock > give_up - age) {
        c->watch->still.poll_at = clock + give_up - age;
    }
    if (!known || silent < least || age < give_up ||
        (!r2_still_has_posted(c) && r2_elapsed(now, c->peer->last_contact) < give_up)) {
        return;
    }
    r2_watch_give_up_last(c, __builtin_ctz(c->conn.up), age);
}

void r2_still_tick(struct r2_comm *c, uint64_t clock)
{
    uint64_t moved = moved_by_all(c), step = R2_MS(c->inst->cfg.t_give_up_ms) / 4;

    step = step < STEP ? step : STEP;

    if (c->watch->still.since == 0 || moved != c->watch->still.moved || !r2_still_waits(c)) {
        c->watch->still.moved = moved;
        c->watch->still.since = clock;
        c->watch->still.poll_at = clock + step;
        return;
    }
    if (clock < c->watch->still.poll_at) {
        return;
    }
    c->watch->still.poll_at = clock + step;
    r2_comm_visit(c);
    if (r2_watch_is_watched(c) && c->inst->cfg.watchdog && c->inst->cfg.failover &&
        c->fo.error == R2_OK && !c->fo.bye.peer && c->conn.up) {
        if (c->is_send) {
            ib_send_progress(c->tx);
        } else {
            ib_recv_confirm(c->rx, __builtin_ctz(c->conn.up));
        }
        if (moved_by_all(c) == moved && c->conn.up) {
            check_still(c, clock);
        }
    }
    r2_comm_unvisit(c);
}
