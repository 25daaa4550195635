/* What the silence of one path means, and what may be done about it (docs/health.md). Service
 * thread. r2_watch.c finds who is silent. */
#include "base/r2_log.h"
#include "core/r2_registry.h"
#include "r2_inband.h"
#include "r2_pair.h"
#include "r2_probation.h"
#include "r2_stall.h"
#include "r2_tail.h"
#include "r2_watch_int.h"

struct probe_pulse r2_watch_pulse(const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    struct probe_pulse s = {.moved = IB_RLX_GET(path->count.cqes)};

    if (c->is_send) {
        /* While work requests are out they alone count: acknowledgements of others do not tell that
         * these will end. The lowest bit keeps the two counts apart. */
        s.moved =
            IB_RLX_GET(path->sq.used) ? 2 * s.moved + 1 : 2 * (s.moved + IB_RLX_GET(c->tx->sack));
        s.done = IB_RLX_GET(path->count.bytes_done);
        s.posted = IB_RLX_GET(path->count.bytes);
        s.posted = s.posted > s.done ? s.posted : s.done; /* read apart from each other */
    } else {
        s.moved += IB_RLX_GET(path->count.wrs); /* steady control writes confirm each other */
    }
    return s;
}

/* What stands in the queues of a pair, as time: the longest of all connections over it. */
static uint64_t pair_expect(const struct r2_pair *pair)
{
    uint64_t longest = 0;

    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        if (!r2_watch_is_watched(c) || !c->is_send) {
            continue;
        }
        for (int p = 0; p < c->conn.npaths; p++) {
            if (c->conn.path[p].nic == pair->nic && c->conn.path[p].peer_nic == pair->peer_nic) {
                struct probe_pulse s = r2_watch_pulse(c, p);
                uint64_t t = probe_watch_expect(&c->watch->path[p], &s);

                longest = t > longest ? t : longest;
            }
        }
    }
    return longest;
}

uint32_t r2_watch_others(const struct r2_comm *c, uint32_t paths)
{
    uint32_t others = c->conn.up & ~paths;

    for (uint32_t m = others & c->conn.last; m; m &= m - 1) {
        const struct ib_path *path = &c->conn.path[__builtin_ctz(m)];
        const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);

        if (pair == NULL || pair->probe.answers == 0) {
            others &= ~(1u << __builtin_ctz(m));
        }
    }
    return others;
}

bool r2_watch_may_end(const struct r2_comm *c, int p)
{
    return c->inst->cfg.watchdog && c->inst->cfg.failover &&
           (r2_watch_others(c, 1u << p) || r2_probation_has_spare(c)) &&
           (c->inst->oob->ops->peer_is_up(c->peer->oob) ||
            r2_inband_reaches(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic));
}

void r2_watch_give_up_last(struct r2_comm *c, int p, uint64_t silent)
{
    unsigned others = c->conn.up & ~ib_conn_pair(&c->conn, p);
    const char *before = c->fo.last_fault[0] ? c->fo.last_fault : "nothing";
    unsigned long long ms = silent / 1000000;

    if (c->fo.error == R2_OK && c->fo.cause.code == PROBE_CODE_NONE) {
        c->fo.cause.code = PROBE_CODE_F03; /* the path is up, and does not speak for itself */
    }
    if (others) { /* that stand, and carry nothing either */
        fo_fail(&c->fo, R2_ERR_COMM,
                "no path has carried anything for %llu ms, %d are up; before it: %s", ms,
                __builtin_popcount(c->conn.up), before);
    } else {
        fo_fail(&c->fo, R2_ERR_COMM,
                "the last path, NIC %s - NIC %u, is silent for %llu ms; before it: %s",
                c->inst->nics.nic[c->conn.path[p].nic].name, c->conn.path[p].peer_nic, ms, before);
    }
    r2_comm_kick(c);
}

void r2_watch_check_last(struct r2_comm *c, int p, uint64_t silent, uint64_t limit)
{
    const struct r2_config *cfg = &c->inst->cfg;
    uint64_t give_up = R2_MS(cfg->t_give_up_ms);
    uint64_t still = r2_elapsed(c->inst->watch.clock, c->watch->still.since);

    silent = c->watch->still.since && still > silent
                 ? still
                 : silent; /* what R writes again moves its path alone */
    if (cfg->watchdog && cfg->failover && (c->conn.up & ~ib_conn_pair(&c->conn, p)) == 0 &&
        silent >= (give_up > limit ? give_up : limit)) {
        r2_watch_give_up_last(c, p, silent);
    }
}

void r2_watch_probe(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    if (inst->cfg.watchdog && !r2_pair_is_judged(pair)) {
        r2_pair_send_probe(pair, inst->watch.clock,
                           probe_limit(R2_MS(inst->cfg.t_probe_ms), pair_expect(pair),
                                       pair->probe.slowest, inst->nics.nic[pair->nic].last));
    }
}

struct r2_pair *r2_watch_probe_path(struct r2_comm *c, int p)
{
    struct r2_inst *inst = c->inst;
    struct r2_pair *pair =
        r2_pair_find(inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);

    if (pair == NULL || !r2_pair_is_judged(pair)) { /* else a thousand connections would ask
                                             together, and count all queues each */
        inst->ports.poll_at = 0;                    /* the port may know: an event can get lost */
    }
    if (pair) {
        r2_watch_probe(pair);
    }
    return pair;
}

bool r2_watch_end_if_lost(struct r2_comm *c, int p, struct probe_watch *w, struct r2_pair *pair,
                          uint64_t expect)
{
    struct ib_fault_info info = {.fault = IB_FAULT_TAIL};

    w->poll_at = r2_tail_poll_at(c->inst, w);
    if (!r2_tail_is_lost(c, p, w, pair, expect)) {
        return false;
    }
    r2_tail_on_end(c, p, pair);
    fo_fault(&c->fo, p, &info);
    return true;
}

void r2_watch_on_silence(struct r2_comm *c, int p, const struct probe_pulse *s)
{
    const struct r2_config *cfg = &c->inst->cfg;
    struct ib_fault_info info = {.fault = IB_FAULT_STALL};
    struct probe_watch *w = &c->watch->path[p];
    uint64_t silent = probe_watch_silence(w, c->inst->watch.clock), limit;
    bool tail = r2_tail_may_end(c, p);
    struct r2_pair *pair =
        r2_pair_find(c->inst, c->peer, c->conn.path[p].nic, c->conn.path[p].peer_nic);

    r2_stall_see(c, p, silent);
    if (c->is_send && pair && pair->probe.answers) { /* writes of no bytes work there */
        ib_send_tail_probe(c->tx, &c->conn.path[p]);
    }
    if (!ib_conn_up(&c->conn, p)) {
        return; /* its queue pair took no post */
    }
    if (tail && r2_watch_end_if_lost(c, p, w, pair, probe_watch_expect(w, s))) {
        return;
    }
    limit = probe_stuck_limit(R2_MS(cfg->t_stuck_ms), (unsigned)cfg->ib_timeout,
                              probe_watch_expect(w, s));
    if (!r2_watch_may_end(c, p)) {
        if (tail && pair) {
            r2_tail_probe_last(pair);
        }
        r2_watch_check_last(c, p, silent, 2 * limit);
        return;
    }
    pair = r2_watch_probe_path(c, p);
    if (pair == NULL || !r2_pair_ready(pair) || pair->probe.last_ok <= w->moved_at) {
        limit *= 2; /* nobody could be probed: silence alone, beyond what RC needs for any repair
                       that is possible */
        if (r2_watch_others(c, ib_conn_pair(&c->conn, p)) == 0 &&
            !r2_probation_has_spare(
                c)) { /* the other queue pairs of this NIC pair are no way out */
            r2_watch_check_last(c, p, silent, limit);
            return;
        }
    }
    if (silent >= limit) {
        fo_fault(&c->fo, p, &info);
    }
}
