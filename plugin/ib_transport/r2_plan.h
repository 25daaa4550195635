/*
 * The sender's private choice: which paths carry a message, with which weights, and how it is
 * striped over them (protocol P1, P4). Pure; guarded by the connection's gate. Nobody but the
 * sender knows the plan.
 */
#ifndef R2_PLAN_H
#define R2_PLAN_H

#include <stdint.h>

#include "r2_ledger.h"

#define R2_PLAN_PATHS   8
#define R2_STRIPE_ALIGN 128 /* LL128 lines must not be split */
#define R2_PLAN_STAY    3

struct r2_plan {
    uint8_t n; /* paths in use */
    uint8_t path[R2_PLAN_PATHS];
    uint32_t weight[R2_PLAN_PATHS]; /* > 0; any unit */
    int64_t credit[R2_PLAN_PATHS];  /* smooth weighted rotation of messages of one part */
    uint8_t
        pair[R2_PLAN_PATHS]; /* with @whole: number of the path's NIC pair, below R2_PLAN_PATHS */
    uint8_t whole;           /* of each NIC pair one path per message: r2_plan_choose() */
};

/*
 * What the queue pairs of a plan with @whole carry, as one connection's own messages show it.
 * Zeroed: nothing is known.
 */
struct r2_plan_load {
    uint64_t at; /* ns: of the last choice */
    struct {
        uint64_t done;  /* bytes accounted for at the last choice ... */
        uint64_t out;   /* ... and under way */
        uint64_t busy;  /* ns with bytes under way, lately ... */
        uint64_t moved; /* ... and bytes accounted for meanwhile */
    } path[R2_PLAN_PATHS];
    uint8_t last[R2_PLAN_PATHS]; /* of each NIC pair: the path that was chosen last */
};

/* What is known of the paths when a message is to go. */
struct r2_plan_seen {
    uint64_t now; /* ns */
    int n;        /* paths: those of the plan are below */
    uint64_t posted[R2_PLAN_PATHS],
        done[R2_PLAN_PATHS]; /* bytes since the beginning: differences count */
};

/*
 * For a plan with @whole: of the paths of @eligible, of each NIC pair the one over which a message
 * of @size bytes is through first, by estimate: bytes under way there and its own, at the
 * rate of late. The one that was chosen last keeps the turn while it takes at most
 * R2_PLAN_STAY times as long (docs/balance.md says why).
 */
uint32_t r2_plan_choose(const struct r2_plan *plan, struct r2_plan_load *load, uint32_t eligible,
                        uint32_t size, const struct r2_plan_seen *seen);

struct r2_stripe {
    uint8_t nparts;
    uint8_t path[R2_MAX_PARTS];
    uint32_t off[R2_MAX_PARTS];
    uint32_t len[R2_MAX_PARTS];
};

/*
 * Stripes @size bytes over the paths of @plan that are in @eligible (bit per path; at least one
 * plan path must be eligible). With @whole, @eligible is what r2_plan_choose() left of it. Below
 * @stripe_min a message is one part, its path rotated by weight. No part exceeds @max_part (>= 128
 * and size <= 16 * max_part). Parts begin at multiples of 128 bytes; parts are never empty,
 * except the one part of an empty message.
 */
void r2_plan_stripe(struct r2_plan *plan, uint32_t eligible, uint32_t size, uint32_t stripe_min,
                    uint32_t max_part, struct r2_stripe *stripe);

#endif
