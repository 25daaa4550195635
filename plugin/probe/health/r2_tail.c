#include "r2_tail.h"

#include "core/r2_policy.h"
#include "r2_inband.h"
#include "r2_pair.h"
#include "r2_watch.h"

#define SAME_NS  R2_MS(200)   /* so close to each other they are one event for all connections */
#define OFTEN_NS R2_MS(500)   /* silence in which no back-off counts: a glitch is over by then */
#define FADES_NS R2_MS(10000) /* after so long without one the next is the first again */

#define NOMINAL_PART 8 /* of a port's rate: what a NIC is taken to carry before that is known */

/* What is queued on a NIC, as time; a NIC whose rate is not known is as fast as the path is. */
static uint64_t queued(const struct probe_track *t, uint64_t rate)
{
    struct probe_load l = t->last;

    l.rate = l.rate > rate ? l.rate : rate;
    return probe_load_expect(&l, l.queued);
}

/*
 * What the path carries, as far as is known: bytes/s, 0 nothing. R, whose control writes are small
 * and stand behind no bytes of their own, takes a part of what its port could, since at a job's
 * start nothing is known of any.
 */
static uint64_t rate_of(const struct r2_comm *c, int p, const struct probe_watch *w)
{
    int mbps = c->inst->nics.nic[c->conn.path[p].nic].speed_mbps;

    return w->rate || c->is_send || mbps <= 0 ? w->rate : (uint64_t)mbps * 125000 / NOMINAL_PART;
}

/*
 * The pair has answered a probe that was posted behind the silence, and so behind what is
 * outstanding: one of before says nothing of it, however late its answer came. A probe of class 0
 * says nothing of the queues of another class, since a pause of priority stops one alone.
 */
static bool has_answered(const struct r2_comm *c, const struct probe_watch *w,
                         const struct r2_pair *pair)
{
    uint64_t t_suspect = R2_MS(c->inst->cfg.t_suspect_ms);

    return pair && r2_pair_ready(pair) && pair->probe.last_ok && pair->probe.there.last.at &&
           pair->qp.answered >= w->moved_at + t_suspect - t_suspect / 4 &&
           (c->conn.traffic_class == 0 || c->inst->cfg.ib_tc >= 0);
}

/* A path by way of a bounce buffer stands still as long as the GPU's copy engine does. */
static bool waits_for_copy(const struct r2_comm *c, int p)
{
    return c->is_send && (c->tx->lanes >> p & 1);
}

/* The way may have broken since: it answers within half of T_probe, or is not known to. */
static bool is_asked_again(const struct r2_comm *c, const struct r2_pair *pair)
{
    return r2_pair_is_judged(pair) && r2_elapsed(c->inst->watch.clock, pair->probe.requested_at) >=
                                          R2_MS(c->inst->cfg.t_probe_ms) / 2;
}

/* Ends of the path in a row between which nothing of the connection got through: what is slow and
 * not lost would be begun anew for ever. */
static unsigned in_vain(const struct r2_comm *c, int p)
{
    return c->watch->tail[p].ends && c->watch->tail[p].through == fo_got_through(&c->fo)
               ? c->watch->tail[p].ends
               : 0;
}

bool r2_tail_is_lost(struct r2_comm *c, int p, struct probe_watch *w, const struct r2_pair *pair,
                     uint64_t expect)
{
    const struct r2_config *cfg = &c->inst->cfg;
    uint64_t clock = c->inst->watch.clock, rate = rate_of(c, p, w), left;
    struct probe_tail t;

    if (!has_answered(c, w, pair) || is_asked_again(c, pair) || waits_for_copy(c, p)) {
        return 0;
    }
    w->answered_at = w->answered_at ? w->answered_at : pair->probe.last_ok;
    t = (struct probe_tail){
        .silent = probe_watch_silence(w, clock),
        .answered = r2_elapsed(clock, w->answered_at),
        .t_suspect = R2_MS(cfg->t_suspect_ms),
        .rto = 4096ull << (cfg->ib_timeout < 32 ? cfg->ib_timeout : 31),
        .answer = pair->probe.brisk,
        .expect = expect,
        .queued = queued(&pair->probe.here, rate) + queued(&pair->probe.there, rate),
        .rows = pair->tail.at && r2_elapsed(clock, pair->tail.at) < FADES_NS ? pair->tail.rows : 0,
        .vain = in_vain(c, p),
        .most = probe_stuck_limit(R2_MS(cfg->t_stuck_ms), (unsigned)cfg->ib_timeout, expect)};
    left = probe_tail_left(&t);
    w->poll_at = w->poll_at < clock + left ? w->poll_at : clock + left;
    return left == 0;
}

uint64_t r2_tail_poll_at(const struct r2_inst *inst, const struct probe_watch *w)
{
    uint64_t next = inst->watch.clock + R2_MS(inst->cfg.t_suspect_ms);

    return probe_watch_silence(w, inst->watch.clock) < OFTEN_NS ? r2_earlier(next, w->poll_at)
                                                                : w->poll_at;
}

bool r2_tail_may_end(const struct r2_comm *c, int p)
{
    const struct ib_path *path = &c->conn.path[p];
    uint32_t others = c->conn.up & ~ib_conn_pair(&c->conn, p);
    int left = ib_conn_pairs(&c->conn, ib_conn_carrying(&c->conn, others));

    if (!c->inst->cfg.watchdog || !c->inst->cfg.failover || r2_drain_has(c, p) ||
        c->inst->nics.nic[path->nic].last || /* TCP loses no packets, and its queue may be long */
        (c->inst->cfg.min_nics > 1 && left <= c->inst->cfg.min_nics)) { /* both may end one */
        return 0;
    }
    /* what may not come back is better waited for: RC repairs it */
    return r2_failback_may((enum r2_failback)c->inst->cfg.failback, 0, others != 0) &&
           (c->inst->oob->ops->peer_is_up(c->peer->oob) ||
            r2_inband_reaches(c->inst, c->peer, path->nic, path->peer_nic));
}

void r2_tail_probe_last(struct r2_pair *pair)
{
    uint64_t clock = pair->inst->watch.clock;

    if (r2_pair_is_judged(pair)) {
        return; /* for another connection, which does have other paths */
    }
    if (!r2_pair_is_probing(pair)) {
        r2_load_begin(pair);
    }
    r2_load_tick(pair, clock);
    r2_pair_send_probe(pair, clock, 0);
}

void r2_tail_on_end(struct r2_comm *c, int p, struct r2_pair *pair)
{
    uint64_t clock = pair->inst->watch.clock;
    uint64_t ago = r2_elapsed(clock, pair->tail.at);

    c->watch->tail[p].ends = (uint8_t)(in_vain(c, p) < UINT8_MAX ? in_vain(c, p) + 1 : UINT8_MAX);
    c->watch->tail[p].through = fo_got_through(&c->fo);
    r2_ways_on_lost(pair, c->conn.path[p].way);
    if (pair->tail.at == 0 || ago >= FADES_NS) {
        pair->tail.rows = 0;
    }
    if (pair->tail.rows == 0 || r2_elapsed(clock, pair->tail.counted) >= SAME_NS) {
        pair->tail.rows++;
        pair->tail.counted = clock;
    }
    pair->tail.at = clock;
}
