#include "r2_probation.h"

#include <stdbool.h>
#include <string.h>

#include "base/r2_log.h"
#include "core/r2_notify.h"
#include "core/r2_policy.h"
#include "core/r2_registry.h"
#include "r2_pair.h"
#include "r2_pair_int.h"

#define PAUSE    R2_MS(400) /* between two attempts, a quarter more or less, ... */
#define PAUSE_OF 64         /* ... or that part of the silence so far, where it is longer, ... */
#define PAUSE_MOST                                                                                 \
    R2_MS(10000) /* ... and no more than this: what was away for hours is found seconds later */
#define BROKEN                                                                                     \
    R2_MS(1200) /* ... where none can be made: the other end is not to be kept making some */
#define PROBES_MOST R2_MS(750)  /* given up before RC repeats by time, which monitors count */
#define MAKE_MOST   R2_MS(2000) /* its queue pair is waited for */
#define AT_ONCE     8           /* attempts over one of our NICs */
#define SLOW_JOB    R2_MS(100)  /* a driver that takes longer has one attempt at a time, ... */
#define SLOW_REST   3           /* ... and rests for so many times as long */
#define REST_MOST   R2_MS(30000)
#define URGENT      R2_MS(10000) /* who has no path left waits as if for so much longer */
#define HOLD_MAX    R2_MS(300000)
#define ASKS        8  /* probes per hold time */
#define LASTING     10 /* hold times after which a return counts as lasting */

void r2_probation_move(struct r2_pair *pair, enum r2_probation_state to)
{
    static const char *const names[R2_PROBATION_STATES] = {"rest", "try", "probed"};
    static const unsigned char legal[R2_PROBATION_STATES][R2_PROBATION_STATES] = {
        [R2_PROBATION_REST] = {[R2_PROBATION_TRY] = 1},
        [R2_PROBATION_TRY] = {[R2_PROBATION_REST] = 1, [R2_PROBATION_PROBED] = 1},
        [R2_PROBATION_PROBED] = {[R2_PROBATION_REST] = 1, [R2_PROBATION_TRY] = 1},
    };
    enum r2_probation_state from = pair->probation.state;

    if (from == to) {
        return;
    }
    if (!legal[from][to]) {
        R2_WARN("probation of NIC pair %u-%u cannot go from %s to %s", pair->nic, pair->peer_nic,
                names[from], names[to]);
        return;
    }
    R2_TRACE("probation of NIC pair %u-%u: %s -> %s", pair->nic, pair->peer_nic, names[from],
             names[to]);
    pair->probation.state = to;
}

static bool is_trying(const struct r2_pair *pair)
{
    return pair->probation.state != R2_PROBATION_REST;
}

static uint64_t hold_of(const struct r2_pair *pair)
{
    uint64_t base = R2_MS(pair->inst->cfg.t_return_ms);

    return pair->probation.hold > base ? pair->probation.hold : base;
}

static int nic_up(const struct r2_pair *pair)
{
    return ib_nic_state_get(&pair->inst->nics.nic[pair->nic]) == IB_NIC_UP;
}

static bool is_wanted(const struct r2_pair *pair)
{
    return (pair->probation.interest || pair->probation.theirs) && pair->peer && nic_up(pair);
}

/* A path lost at @since, after the pair was used: did the return last? Counted once, however many
 * paths it carried. */
static void judge(struct r2_pair *pair, uint64_t since)
{
    struct r2_probation *h = &pair->probation;
    uint64_t hold = hold_of(pair);

    if (h->used_at == 0 || since <= h->used_at) {
        return;
    }
    if (since - h->used_at >= LASTING * hold) {
        h->hold = 0;
    } else {
        h->hold = 2 * hold < HOLD_MAX ? 2 * hold : HOLD_MAX;
        R2_INFO("NIC pair %s - %u failed again: it must answer for %llu ms before it is used",
                pair->inst->nics.nic[pair->nic].name, pair->peer_nic,
                (unsigned long long)(h->hold / 1000000));
    }
    h->used_at = 0;
}

/* Its turn is the next one. */
static void probe_at_once(struct r2_pair *pair)
{
    pair->probation.at = 0;
    pair->probation.tried_at = is_trying(pair) ? pair->probation.tried_at : 0;
    r2_inst_wake(pair->inst);
}

static void want(struct r2_pair *pair, int who)
{
    if (!pair->probation.interest) {
        r2_probation_move(pair, R2_PROBATION_REST);
        probe_at_once(pair);
    }
    pair->probation.interest |= (uint8_t)who;
}

void r2_probation_wanted(struct r2_pair *pair)
{
    want(pair, R2_PROBATION_MEND);
}

void r2_probation_for_peer(struct r2_pair *pair, int anew)
{
    pair->probation.theirs = 1;
    if (anew) {
        probe_at_once(pair);
    }
}

int r2_probation_good(struct r2_pair *pair, uint64_t since, enum r2_haste haste)
{
    struct r2_probation *h = &pair->probation;
    bool answers = h->good_since > since && nic_up(pair), urgent = haste == R2_HASTE_NO_PATH;
    bool other_way = haste == R2_HASTE_TAIL && r2_ways_has_good(pair);

    if (answers && (urgent || h->good_last - h->good_since >= hold_of(pair))) {
        return 1;
    }
    if (!(h->interest & R2_PROBATION_PATH) && !other_way) {
        judge(pair, since);
    }
    urgent |= other_way || (haste == R2_HASTE_TAIL && h->hold == 0);
    if (answers && urgent) {
        return 1;
    }
    if (!(h->interest & R2_PROBATION_PATH)) {
        h->good_since = h->good_since > since ? h->good_since : 0;
        want(pair, R2_PROBATION_PATH);
    } else if (urgent && !h->urgent) {
        probe_at_once(pair);
    }
    h->urgent |= urgent != 0;
    return 0;
}

void r2_probation_used(struct r2_pair *pair, uint64_t now)
{
    if (pair) {
        pair->probation.used_at = now;
        pair->probation.incarnations += now != 0;
    }
}

void r2_probation_on_good_report(struct r2_pair *pair)
{
    if (pair->probation.interest) {
        probe_at_once(pair);
    }
}

void r2_probation_soon(struct r2_pair *pair)
{
    pair->probation.at = 0;
}

void r2_probation_back(struct r2_pair *pair)
{
    pair->probation.good_since = 0; /* a NIC was away in between */
    r2_probation_move(pair, R2_PROBATION_REST);
    probe_at_once(pair);
}

void r2_probation_nic_up(struct r2_inst *inst, int nic)
{
    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (pair->nic == nic && pair->peer) {
            r2_probation_back(pair);
            pair->announce.back = 1; /* the peer hears of it, and asks at once, too */
            r2_pair_renew(pair);
        }
    }
}

/* The jitter keeps pairs that fell silent together from asking together for ever. */
static uint64_t pause_of(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;
    uint64_t job = pair->inst->probing.job_ns[pair->nic];
    uint64_t rest = SLOW_REST * job < REST_MOST ? SLOW_REST * job : REST_MOST;
    uint64_t least = h->silent_since ? r2_elapsed(now, h->silent_since) / PAUSE_OF : 0, pause;
    uint32_t dice;

    least = least < PAUSE ? PAUSE : least < PAUSE_MOST ? least : PAUSE_MOST;
    if (pair->build.state == R2_PAIR_BROKEN && r2_elapsed(now, h->tried_at) >= PAUSE) {
        h->rest = 0; /* it could be made, and broke while the other end was waited for */
    } else if (pair->build.state == R2_PAIR_BROKEN) {
        h->rest = 2 * h->rest < REST_MOST ? 2 * h->rest : REST_MOST; /* for no path */
        h->rest = h->rest == 0 || (h->interest & R2_PROBATION_PATH) ? BROKEN : h->rest;
        least = h->rest;
    }
    pause = job > SLOW_JOB && rest > least ? rest : least;
    pair->inst->env.random(pair->inst->env.arg, &dice, sizeof(dice));
    return pause - pause / 4 + dice % (pause / 2);
}

/* The attempt has come to nothing. The peer, where it was for the peer, asks again. */
static void missed(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;

    r2_probation_move(pair, R2_PROBATION_REST);
    h->theirs = 0;
    h->good_since = 0;
    h->misses++;
    h->silent_since = h->silent_since ? h->silent_since : h->tried_at;
    h->at = now + pause_of(pair, now);
}

static void good(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    R2_INFO("NIC %s - NIC %u of %s answers again", inst->nics.nic[pair->nic].name, pair->peer_nic,
            inst->oob->ops->peer_str(pair->peer->oob));
    pair->probation.interest = pair->probation.urgent = 0;
    R2_NOTIFY(inst, on_pair, pair, R2_PAIR_GOOD, 0);
    for (struct r2_comm *c = pair->peer->comms; c; c = c->list.peer_next) {
        if (!c->is_send) {
            r2_comm_kick(c);
        }
    }
}

static bool is_same_host(const struct r2_peer *a, const struct r2_peer *b)
{
    return a == b || (a->host[0] && strcmp(a->host, b->host) == 0);
}

/* What failed together often comes back together: a NIC, or all that lies between two hosts. */
static void probe_others(const struct r2_pair *pair)
{
    for (struct r2_pair *q = pair->inst->index.pairs; q; q = q->next) {
        if (q != pair && is_wanted(q) && q->probation.good_since == 0 &&
            (q->nic == pair->nic || is_same_host(q->peer, pair->peer))) {
            probe_at_once(q);
        }
    }
}

static void answered(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;
    int first = h->good_since == 0;

    r2_probation_move(pair, R2_PROBATION_REST);
    h->theirs = 0;
    h->rest = h->silent_since = 0;
    h->at = now + hold_of(pair) / ASKS;
    h->good_last = now;
    h->good_since = first ? now : h->good_since;
    if (first) {
        probe_others(pair);
    }
    if (h->interest && (h->urgent || now - h->good_since >= hold_of(pair))) {
        good(pair);
    }
}

static void begin(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;

    r2_probation_move(pair, R2_PROBATION_TRY);
    h->tried_at = now;
    h->deadline = now + MAKE_MOST;
    if (!r2_pair_ready(pair)) {
        r2_pair_renew(pair);
    } else if (h->good_since == 0) {
        r2_pair_inquire(pair);
    }
}

static void send_probe(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;

    r2_probation_move(pair, R2_PROBATION_PROBED);
    h->answers = pair->probe.answers;
    h->deadline = now + PROBES_MOST;
    r2_pair_send_probe(pair, pair->inst->watch.clock, 0);
}

/* How long its NIC's worker has such jobs. */
static void measure(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;

    if (!pair->job.busy && h->busy_at) {
        pair->inst->probing.job_ns[pair->nic] = now - h->busy_at;
    }
    h->busy_at = !pair->job.busy ? 0 : h->busy_at ? h->busy_at : now;
}

/* An attempt goes on; so does a row of answers. Returns when to look again. */
static uint64_t advance(struct r2_pair *pair, uint64_t now)
{
    struct r2_probation *h = &pair->probation;
    int failed;

    measure(pair, now);
    if (!is_trying(pair) && h->good_since && now >= h->at) {
        begin(pair, now);
    }
    failed = (pair->build.state == R2_PAIR_DEAD || pair->build.state == R2_PAIR_BROKEN) &&
             !pair->build.again;
    if (!is_trying(pair)) {
        return now < h->at ? h->at : UINT64_MAX; /* a turn comes when another is over */
    }
    if (h->state == R2_PROBATION_PROBED && pair->probe.answers != h->answers) {
        answered(pair, now);
        return h->interest ? h->at : UINT64_MAX;
    }
    if (failed || now >= h->deadline) {
        r2_pair_fail(pair);
        missed(pair, now);
        return h->at;
    }
    if (!r2_pair_ready(pair)) {
        if (h->state == R2_PROBATION_PROBED) { /* the peer has made its own anew */
            h->deadline = h->tried_at + 2 * MAKE_MOST;
            r2_probation_move(pair, R2_PROBATION_TRY);
        }
        return h->deadline;
    }
    if (!h->interest) {
        r2_probation_move(pair, R2_PROBATION_REST); /* the peer asks */
        h->theirs = 0;
        return UINT64_MAX;
    }
    if (h->state != R2_PROBATION_PROBED) {
        send_probe(pair, now);
    }
    return h->deadline;
}

static int waits(const struct r2_pair *pair, int nic, uint64_t now)
{
    return pair->nic == nic && is_wanted(pair) && !is_trying(pair) && !pair->job.busy &&
           now >= pair->probation.at;
}

/* Since when, for who is to have the next turn. */
static uint64_t waits_since(const struct r2_pair *pair)
{
    uint64_t before = pair->probation.urgent ? URGENT : 0;

    return pair->probation.tried_at > before ? pair->probation.tried_at - before : 0;
}

static struct r2_pair *next_turn(const struct r2_inst *inst, int nic, uint64_t now)
{
    struct r2_pair *best = NULL;

    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (waits(pair, nic, now) && (best == NULL || waits_since(pair) < waits_since(best))) {
            best = pair;
        }
    }
    return best;
}

/* A thousand silent pairs take turns, and a driver that hangs has one job of theirs, or a few. */
static uint64_t give_turns(struct r2_inst *inst, int nic, int room, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    struct r2_pair *pair;

    while (room-- > 0 && (pair = next_turn(inst, nic, now)) != NULL) {
        begin(pair, now);
        next = r2_earlier(next, advance(pair, now));
    }
    return next;
}

uint64_t r2_probation_step(struct r2_inst *inst, uint64_t now)
{
    int out[IB_MAX_NICS] = {0};
    uint64_t next = UINT64_MAX;
    uint32_t wait = 0;

    for (struct r2_pair *pair = inst->index.pairs; pair; pair = pair->next) {
        if (is_wanted(pair)) {
            next = r2_earlier(next, advance(pair, now));
            out[pair->nic] +=
                (is_trying(pair) && pair->probation.good_since == 0) || pair->job.busy;
            wait |= (uint32_t)waits(pair, pair->nic, now) << pair->nic;
        }
    }
    for (; wait; wait &= wait - 1) {
        int nic = __builtin_ctz(wait), most = inst->probing.job_ns[nic] > SLOW_JOB ? 1 : AT_ONCE;

        next = r2_earlier(next, give_turns(inst, nic, most - out[nic], now));
    }
    return next;
}

bool r2_probation_has_spare(const struct r2_comm *c)
{
    for (int p = 0; p < c->conn.npaths; p++) {
        const struct ib_path *path = &c->conn.path[p];

        if (r2_drain_has(c, p) && fo_may_return(&c->fo, p) && r2_failback_allows(c, p) &&
            ib_nic_state_get(&c->inst->nics.nic[path->nic]) == IB_NIC_UP) {
            const struct r2_pair *pair = r2_pair_find(c->inst, c->peer, path->nic, path->peer_nic);

            if (pair && r2_pair_ready(pair)) {
                return 1;
            }
        }
    }
    return 0;
}
