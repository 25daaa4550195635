/* Shared by r2_balance.c (facts, weights) and r2_balance_topo.c (what a topology says). Private to them. */
#ifndef R2_BALANCE_INT_H
#define R2_BALANCE_INT_H

#include "balance/balance_plan.h"
#include "r2_balance.h"

/* Of a host, as its NICs' connections see it: const once it is made. */
struct r2_way {
    uint8_t n, preference;
    uint16_t link[BALANCE_PLAN_WAYS]; /* in r2_ways.link[] */
    uint32_t reach;                   /* the smallest that is known of all, and of what a GPU reaches; Mb/s, 0 unknown */
};

struct r2_ways {
    uint32_t nics, links;
    uint32_t port[IB_MAX_NICS];               /* Mb/s; 0 unknown */
    struct r2_way way[IB_MAX_NICS][IB_MAX_NICS]; /* from what the first one's connections serve to the second one */
    uint32_t link[BALANCE_PLAN_LINKS];        /* Mb/s */
};

/* @t NULL: port rates alone. */
void r2_ways_make(struct r2_ways *w, const struct ib_nics *nics, const struct topo *t);

#endif
