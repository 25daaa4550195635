/*
 * Ways of a NIC pair (docs/health.md, "Ways"): which of them a path takes, which have lost
 * something, and the two that the pair's probes take. Service thread; nothing blocks.
 */
#ifndef R2_WAYS_H
#define R2_WAYS_H

#include <stdbool.h>

#include "core/r2_inst.h"
#include "probe/probe_qp.h"
#include "probe/probe_way.h"

struct r2_pair;

/* Watch's clock. */
struct r2_pair_ways {
    struct probe_ways known;
    unsigned want;       /* ours of the probe's ways; those of both ends make the first one */
    unsigned peer_want;  /* as it has announced */
    uint64_t changed_at; /* when the probe was given other ways last; 0: never */
};

/* Ways that queue pairs of NIC @nic may take: 1 where it has no choice, or shall have none. */
unsigned r2_ways_count(struct r2_inst *inst, int nic);
/* R: the way of path @p's next incarnation; its last one took path->way, 0 if it is the first. */
unsigned r2_ways_pick(struct r2_comm *c, int p);
/* A path over the pair by @way has lost its tail, or the pair's probe is silent there alone. */
void r2_ways_on_lost(struct r2_pair *pair, unsigned way);
/* Whether there is a choice, and a way that has lost nothing lately. */
bool r2_ways_has_good(const struct r2_pair *pair);
/* The two ways of the pair's probe, from what both ends want: the same at both. */
void r2_ways_of_probe(const struct r2_pair *pair, uint8_t way[PROBE_QP_LANES]);
/* One of the probe's ways is silent while the other answers: the pair takes others. */
void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock);

#endif
