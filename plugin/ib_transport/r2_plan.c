#include "r2_plan.h"

/* Smooth weighted round robin: every path gains its weight, the richest one serves and pays the
 * sum. */
static int rotate(struct r2_plan *plan, uint32_t eligible)
{
    int64_t sum = 0;
    int best = -1;

    for (int i = 0; i < plan->n; i++) {
        if (!(eligible & (1u << plan->path[i]))) {
            continue;
        }
        plan->credit[i] += plan->weight[i];
        sum += plan->weight[i];
        if (best < 0 || plan->credit[i] > plan->credit[best]) {
            best = i;
        }
    }
    if (best >= 0) {
        plan->credit[best] -= sum;
    }
    return best;
}

/* Of the eligible paths of each NIC pair the one whose turn it is. */
static uint32_t one_each(struct r2_plan *plan, uint32_t eligible)
{
    uint32_t chosen = 0, seen = 0;

    for (int i = 0; i < plan->n; i++) {
        uint8_t member[R2_PLAN_PATHS];
        unsigned count = 0;

        if (seen >> plan->pair[i] & 1) {
            continue;
        }
        seen |= 1u << plan->pair[i];
        for (int k = i; k < plan->n; k++) {
            if (plan->pair[k] == plan->pair[i] && (eligible & (1u << plan->path[k]))) {
                member[count++] = plan->path[k];
            }
        }
        if (count) {
            chosen |= 1u << member[plan->turn % count];
        }
    }
    plan->turn++;
    return chosen;
}

static void add_part(struct r2_stripe *stripe, uint8_t path, uint32_t off, uint32_t len)
{
    stripe->path[stripe->nparts] = path;
    stripe->off[stripe->nparts] = off;
    stripe->len[stripe->nparts] = len;
    stripe->nparts++;
}

/* Splits [off, off+len) for one path into pieces of at most max_part. */
static void add_range(struct r2_stripe *stripe, uint8_t path, uint32_t off, uint32_t len,
                      uint32_t max_part)
{
    while (len > max_part && stripe->nparts < R2_MAX_PARTS - 1) {
        add_part(stripe, path, off, max_part);
        off += max_part;
        len -= max_part;
    }
    add_part(stripe, path, off, len);
}

void r2_plan_stripe(struct r2_plan *plan, uint32_t eligible, uint32_t size, uint32_t stripe_min,
                    uint32_t max_part, struct r2_stripe *stripe)
{
    uint64_t sum = 0, acc = 0;
    uint32_t off = 0;

    stripe->nparts = 0;
    max_part &= ~(uint32_t)(R2_STRIPE_ALIGN - 1);
    if (plan->n == 1) { /* the healthy connection */
        add_range(stripe, plan->path[0], 0, size, max_part);
        return;
    }
    if (plan->whole) {
        eligible = one_each(plan, eligible);
    }
    for (int i = 0; i < plan->n; i++) {
        if (eligible & (1u << plan->path[i])) {
            sum += plan->weight[i];
        }
    }
    if (sum == 0 || size < stripe_min ||
        size > (uint64_t)max_part * (R2_MAX_PARTS - R2_PLAN_PATHS)) {
        int i = rotate(plan, eligible);

        add_range(stripe, plan->path[i < 0 ? 0 : i], 0, size, max_part);
        return;
    }
    for (int i = 0; i < plan->n; i++) {
        uint64_t end;

        if (!(eligible & (1u << plan->path[i]))) {
            continue;
        }
        acc += plan->weight[i];
        end = acc == sum ? size : ((uint64_t)size * acc / sum) & ~(uint64_t)(R2_STRIPE_ALIGN - 1);
        if (end > off) {
            add_range(stripe, plan->path[i], off, (uint32_t)(end - off), max_part);
            off = (uint32_t)end;
        }
    }
}
