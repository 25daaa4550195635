/* Which paths the sender divides messages over, and by which weights. */
#include "ib_send_int.h"

/* What every NIC can take: a part may have to move to any of them. */
static uint32_t most_of_a_part(const struct ib_send *tx)
{
    uint32_t max = UINT32_MAX;

    for (int p = 0; p < tx->conn->npaths; p++) {
        uint32_t m = tx->conn->nics->nic[tx->conn->path[p].nic].max_msg_sz;

        if (m >= R2_STRIPE_ALIGN && m < max) {
            max = m;
        }
    }
    return max;
}

/* Shares of a NIC pair: can be divided among 1 to 8 paths without a rest. */
#define PAIR_SHARES 840

/* Path @p of those of the plan, @paths: a NIC pair counts as much with several queue pairs as with
 * one. */
static void plan_add(struct ib_send *tx, int p, uint32_t paths, uint32_t weight)
{
    struct r2_plan *plan = &tx->plan;
    uint32_t pair = ib_conn_pair(tx->conn, p) & paths;

    plan->path[plan->n] = (uint8_t)p;
    plan->pair[plan->n] = (uint8_t)__builtin_ctz(pair);
    plan->weight[plan->n] =
        weight * (tx->conn->cfg->ib_split ? PAIR_SHARES / (uint32_t)__builtin_popcount(pair) : 1);
    plan->credit[plan->n] = 0;
    plan->whole |= !tx->conn->cfg->ib_split && (pair & (pair - 1)) != 0;
    plan->n++;
}

/* While the primary NIC pair is usable it carries everything, or shares with the paths of @wide;
 * afterwards all survivors share, or only the first one carries. */
uint32_t ib_send_plan_paths(const struct ib_conn *l)
{
    uint32_t usable = ib_conn_usable(l), primary = l->npaths ? ib_conn_pair(l, 0) : 0;

    if (usable && !l->cfg->balance) {
        return usable & ib_conn_pair(l, __builtin_ctz(usable));
    }
    return (usable & primary) && !l->cfg->spread ? usable & (primary | l->wide) : usable;
}

/* Those of @paths that weigh something; all, and all alike, where none does. */
static uint32_t weighty(const struct ib_conn *l, uint32_t paths)
{
    uint32_t some = 0;

    for (uint32_t m = paths; m; m &= m - 1) {
        some |= (uint32_t)(l->weight[__builtin_ctz(m)] != 0) << __builtin_ctz(m);
    }
    return some;
}

void ib_send_replan(struct ib_send *tx)
{
    const struct ib_conn *l = tx->conn;
    uint32_t paths = ib_send_plan_paths(l), some = weighty(l, paths);

    tx->plan.n = 0;
    tx->plan.whole = 0;
    tx->size.most = most_of_a_part(tx);
    tx->size.ring_most = l->relay.paths && l->relay.ring < tx->size.most ? l->relay.ring : 0;
    paths = some ? some : paths;
    for (uint32_t m = paths; m; m &= m - 1) {
        int p = __builtin_ctz(m);

        plan_add(tx, p, paths, some ? l->weight[p] : 1);
    }
    /* as r2_plan_stripe() does it */
    tx->size.whole =
        tx->plan.n == 1 && !tx->size.ring_most ? (tx->size.most & ~(R2_STRIPE_ALIGN - 1u)) + 1 : 0;
    ib_send_bounce_plan(tx);
}
