/* When a NIC pair may be used again (docs/design-failback.md): asked until it answers for the hold time. Real time, ns.
 */
#include "r2_host.h"
#include "r2_log.h"
#include "r2_pair.h"
#include "r2_return.h"

#define MS(x)      ((uint64_t)(x)*1000000)
#define RETRY_MIN  MS(1000) /* and never longer than T_return */
#define RETRY_MAX  30       /* x the shortest */
#define RETRY_LAST 4        /* x the shortest, where a connection has no path left */
#define HOLD_MAX   MS(300000)
#define ASKS       8  /* questions per hold time */
#define LASTING    10 /* hold times after which a return counts as lasting */
#define PATIENCE   10 /* x T_probe: nobody waits for this answer */

static uint64_t hold_of(const struct r2_pair *pair)
{
    uint64_t base = MS(pair->inst->cfg.t_return_ms);

    return pair->heal.hold > base ? pair->heal.hold : base;
}

static uint64_t retry_min(const struct r2_pair *pair)
{
    uint64_t base = MS(pair->inst->cfg.t_return_ms);

    return base < RETRY_MIN ? base : RETRY_MIN;
}

static int nic_up(const struct r2_pair *pair)
{
    return ib_nic_state_get(&pair->inst->nics.nic[pair->nic]) == IB_NIC_UP;
}

/* A path lost at @since, after the pair was used: did the return last? Counted once, however many paths it carried. */
static void judge(struct r2_pair *pair, uint64_t since)
{
    struct r2_heal *h = &pair->heal;
    uint64_t hold = hold_of(pair);

    if (h->used_at == 0 || since <= h->used_at) {
        return;
    }
    if (since - h->used_at >= LASTING * hold) {
        h->hold = 0;
    } else {
        h->hold = 2 * hold < HOLD_MAX ? 2 * hold : HOLD_MAX;
        R2_INFO("NIC pair %s - %u failed again: it must answer for %llu ms before it is used",
                pair->inst->nics.nic[pair->nic].name, pair->peer_nic, (unsigned long long)(h->hold / 1000000));
    }
    h->used_at = 0;
}

static void ask_at_once(struct r2_pair *pair)
{
    pair->heal.at = 0;
    pair->heal.retry = 0;
    r2_inst_wake(pair->inst);
}

void r2_heal_wanted(struct r2_pair *pair)
{
    if (!pair->heal.interest) {
        pair->heal.interest = 1;
        pair->heal.asked = 0;
        ask_at_once(pair);
    }
}

int r2_heal_good(struct r2_pair *pair, uint64_t since, int urgent)
{
    struct r2_heal *h = &pair->heal;

    if (h->good_since > since && nic_up(pair) && (urgent || h->good_last - h->good_since >= hold_of(pair))) {
        return 1;
    }
    if (!h->interest) {
        judge(pair, since);
        h->good_since = h->good_since > since ? h->good_since : 0;
        r2_heal_wanted(pair);
    } else if (urgent && !h->urgent) {
        ask_at_once(pair);
    }
    h->urgent |= urgent != 0;
    return 0;
}

void r2_heal_used(struct r2_pair *pair, uint64_t now)
{
    if (pair) {
        pair->heal.used_at = now;
        pair->heal.lives += now != 0;
    }
}

void r2_heal_told_good(struct r2_pair *pair)
{
    if (pair->heal.interest) {
        ask_at_once(pair);
    }
}

void r2_heal_soon(struct r2_pair *pair)
{
    pair->heal.at = 0;
}

void r2_heal_back(struct r2_pair *pair)
{
    pair->heal.good_since = 0; /* a NIC was away in between */
    pair->heal.asked = 0;
    ask_at_once(pair);
}

void r2_heal_nic_up(struct r2_inst *inst, int nic)
{
    for (struct r2_pair *pair = inst->pairs; pair; pair = pair->next) {
        if (pair->nic == nic && pair->peer) {
            r2_heal_back(pair);
            pair->back = 1; /* the peer hears of it, and asks at once, too */
            r2_pair_renew(pair);
        }
    }
}

/* Back-off with a jitter of a quarter, so that a thousand pairs do not ask at once for ever. */
static void later(struct r2_pair *pair, uint64_t now)
{
    struct r2_heal *h = &pair->heal;
    uint64_t first = retry_min(pair), most = first * (h->urgent ? RETRY_LAST : RETRY_MAX);
    uint32_t dice;

    pair->inst->env.random(pair->inst->env.arg, &dice, sizeof(dice));
    h->retry = h->retry == 0 ? first : 2 * h->retry < most ? 2 * h->retry : most;
    h->at = now + h->retry - h->retry / 4 + dice % (h->retry / 2);
    h->good_since = 0;
    h->asked = 0;
}

static void good(struct r2_pair *pair)
{
    struct r2_inst *inst = pair->inst;

    R2_INFO("NIC %s - NIC %u of %s answers again", inst->nics.nic[pair->nic].name, pair->peer_nic,
            inst->oob->ops->peer_str(pair->peer->oob));
    pair->heal.interest = pair->heal.urgent = 0;
    r2_host_say_pair(pair, 0, 1);
    r2_locate_good(pair);
    for (struct r2_comm *c = r2_comm_first(inst); c; c = c->all_next) {
        if (c->peer == pair->peer && !c->is_send) {
            r2_comm_kick(c);
        }
    }
}

static void ask(struct r2_pair *pair, uint64_t now)
{
    struct r2_heal *h = &pair->heal;

    h->asked = 1;
    h->answers = pair->answers;
    h->deadline = now + PATIENCE * MS(pair->inst->cfg.t_probe_ms);
    r2_pair_ask(pair, pair->inst->watch_clock, 0);
}

static void answered(struct r2_pair *pair, uint64_t now)
{
    struct r2_heal *h = &pair->heal;

    h->asked = 0;
    h->retry = 0;
    h->at = now + hold_of(pair) / ASKS;
    h->good_last = now;
    if (h->good_since == 0) {
        h->good_since = now;
    }
    if (h->urgent || now - h->good_since >= hold_of(pair)) {
        good(pair);
    }
}

static uint64_t step(struct r2_pair *pair, uint64_t now)
{
    struct r2_heal *h = &pair->heal;

    if (h->asked && pair->answers != h->answers) {
        answered(pair, now);
    } else if (h->asked && now >= h->deadline) {
        r2_pair_fail(pair);
        later(pair, now);
    } else if (h->asked && r2_pair_ready(pair)) {
        return h->deadline;
    }
    if (now < h->at || !h->interest) {
        return h->interest ? h->at : UINT64_MAX;
    }
    if (r2_pair_ready(pair)) {
        ask(pair, now);
        return h->deadline;
    }
    r2_pair_renew(pair);
    later(pair, now);
    return h->at;
}

uint64_t r2_heal_step(struct r2_inst *inst, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    for (struct r2_pair *pair = inst->pairs; pair; pair = pair->next) {
        if (pair->heal.interest && pair->peer && nic_up(pair)) {
            next = r2_earlier(next, step(pair, now));
        }
    }
    return next;
}
