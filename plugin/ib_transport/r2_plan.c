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

/* What a path's rate is taken over: so many messages, those before count half, and so on. */
#define LATELY 8

/* Bounds, so that a product of both fits: 1 MB/s, and what a window of messages can come to. */
#define SLOW_SHIFT 16
#define SLOW_MOST  (1ull << 26)
#define OUT_MOST   (1ull << 36)

/* An idle path that was slower than others is forgiven by this part with each message, so that it
 * is tried again some time. */
#define FORGIVEN 64

/*
 * What has become of each path since the last look. Time counts for those that had something under
 * way then; none where nothing is under way now: the connection was idle for some of it.
 */
static void look(struct r2_plan_load *load, uint32_t size, const struct r2_plan_seen *seen)
{
    uint64_t ns = seen->now - load->at;
    int busy = 0;

    for (int p = 0; p < seen->n; p++) {
        busy |= seen->posted[p] != seen->done[p];
    }
    for (int p = 0; p < seen->n; p++) {
        if (seen->done[p] < load->path[p].done) { /* another incarnation: it counts anew */
            load->path[p].busy = load->path[p].moved = load->path[p].out = 0;
        }
        if (busy && load->path[p].out) {
            load->path[p].busy += ns;
            load->path[p].moved += seen->done[p] - load->path[p].done;
        }
        if (load->path[p].moved > (uint64_t)LATELY * size) {
            load->path[p].busy /= 2;
            load->path[p].moved /= 2;
        }
        load->path[p].done = seen->done[p];
        load->path[p].out = seen->posted[p] - seen->done[p];
    }
    load->at = seen->now;
}

/* Of path @p, ns per 64 KiB; 0: unknown. */
static uint64_t slowness(const struct r2_plan_load *load, int p)
{
    uint64_t slow;

    if (load->path[p].moved == 0) {
        return 0;
    }
    slow = (load->path[p].busy << SLOW_SHIFT) / load->path[p].moved;
    return slow < 1 ? 1 : slow < SLOW_MOST ? slow : SLOW_MOST;
}

/* Of each path of the plan, until a message of @size bytes would be through: comparable with one
 * another. A path of which nothing is known is as fast as the fastest. */
static void costs(const struct r2_plan *plan, struct r2_plan_load *load, uint32_t size,
                  uint64_t cost[R2_PLAN_PATHS])
{
    uint64_t slow[R2_PLAN_PATHS], least = SLOW_MOST;

    for (int i = 0; i < plan->n; i++) {
        int p = plan->path[i];

        slow[p] = slowness(load, p);
        least = slow[p] && slow[p] < least ? slow[p] : least;
    }
    for (int i = 0; i < plan->n; i++) {
        int p = plan->path[i];
        uint64_t out = load->path[p].out < OUT_MOST ? load->path[p].out : OUT_MOST;

        if (out == 0 && slow[p] > least) {
            load->path[p].busy -= load->path[p].busy / FORGIVEN;
        }
        cost[p] = (out + size) * (slow[p] ? slow[p] : least);
    }
}

/* Of the eligible paths of NIC pair @pair the one that costs least, of several the next one after
 * the last in the plan's order; the last one where it will do and something is under way. -1: none
 * is eligible. */
static int cheapest(const struct r2_plan *plan, const struct r2_plan_load *load, uint32_t eligible,
                    int pair, const uint64_t cost[R2_PLAN_PATHS])
{
    int last = load->last[pair], from = 0, best = -1, keeps = 0, out = 0;

    while (from < plan->n && plan->path[from] != last) {
        from++;
    }
    for (int k = 1, i = from; k <= plan->n; k++) {
        int p;

        i = i + 1 < plan->n ? i + 1 : 0;
        p = plan->path[i];
        if (plan->pair[i] == pair && (eligible >> p & 1)) {
            keeps |= p == last;
            out |= load->path[p].out != 0;
            best = best < 0 || cost[p] < cost[best] ? p : best;
        }
    }
    return keeps && out && cost[last] <= R2_PLAN_STAY * cost[best] ? last : best;
}

uint32_t r2_plan_choose(const struct r2_plan *plan, struct r2_plan_load *load, uint32_t eligible,
                        uint32_t size, const struct r2_plan_seen *seen)
{
    uint64_t cost[R2_PLAN_PATHS];
    uint32_t chosen = 0, pairs = 0;

    look(load, size, seen);
    costs(plan, load, size, cost);
    for (int i = 0; i < plan->n; i++) {
        pairs |= 1u << plan->pair[i];
    }
    for (; pairs; pairs &= pairs - 1) {
        int pair = __builtin_ctz(pairs);
        int p = cheapest(plan, load, eligible, pair, cost);

        if (p >= 0) {
            load->last[pair] = (uint8_t)p;
            load->path[p].out += size; /* its time counts from now on */
            chosen |= 1u << p;
        }
    }
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
