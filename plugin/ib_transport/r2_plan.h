/*
 * The sender's private choice: which paths carry a message, with which weights, and where it is cut
 * (protocol P1, P4). Pure. Nobody but the sender knows the plan.
 */
#ifndef R2_PLAN_H
#define R2_PLAN_H

#include <stdint.h>

#include "r2_ledger.h"

#define R2_PLAN_PATHS   8
#define R2_STRIPE_ALIGN 128 /* LL128 lines must not be split */

struct r2_plan {
    uint8_t n; /* paths in use */
    uint8_t path[R2_PLAN_PATHS];
    uint32_t weight[R2_PLAN_PATHS]; /* > 0; any unit */
    int64_t credit[R2_PLAN_PATHS];  /* smooth weighted rotation of uncut messages */
    uint8_t
        pair[R2_PLAN_PATHS]; /* with @whole: number of the path's NIC pair, below R2_PLAN_PATHS */
    uint8_t whole;           /* of each NIC pair one path per message, in turn */
    uint32_t turn;
};

struct r2_stripe {
    uint8_t nparts;
    uint8_t path[R2_MAX_PARTS];
    uint32_t off[R2_MAX_PARTS];
    uint32_t len[R2_MAX_PARTS];
};

/*
 * Cuts @size bytes over the paths of @plan that are in @eligible (bit per path; at least one plan
 * path must be eligible). With @whole, only one path of each NIC pair takes part in a message, the
 * next one of those that are eligible each time. Below @stripe_min a message is one part, its path
 * rotated by weight. No part exceeds @max_part (>= 128 and size <= 16 * max_part). Every cut is at
 * a multiple of 128 bytes; parts are never empty, except the one part of an empty message.
 */
void r2_plan_stripe(struct r2_plan *plan, uint32_t eligible, uint32_t size, uint32_t stripe_min,
                    uint32_t max_part, struct r2_stripe *stripe);

#endif
