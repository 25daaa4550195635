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
    uint8_t
        lane[PROBE_QP_LANES]; /* what this end sends the probe by; 0: not chosen, or no choice */
    uint8_t silent;           /* both were, and the pair was given up */
    uint8_t single;           /* a second queue pair could not be connected: it does without */
    uint64_t change_at;       /* a silent lane is not left before */
};

/* Ways that queue pairs of NIC @nic may take: 1 where it has no choice, or shall have none. */
unsigned r2_ways_count(struct r2_inst *inst, int nic);
/* R: the way of path @p's next incarnation; its last one took path->way, 0 if it is the first. */
unsigned r2_ways_pick(struct r2_comm *c, int p);
/* A path over the pair by @way has lost its tail, or the pair's probe is silent there alone. */
void r2_ways_on_lost(struct r2_pair *pair, unsigned way);
/* Whether there is a choice, and a way that has lost nothing lately. */
bool r2_ways_has_good(const struct r2_pair *pair);
/* The pair's queue pairs are about to be made: which ways this end sends its probes by. Others than
 * before where nothing was answered. Acknowledgements go by the ways that the peer has chosen. */
void r2_ways_begin_probe(struct r2_pair *pair);
/* They are connected, or the first of them is. */
void r2_ways_on_joined(struct r2_pair *pair);
/* One of the probe's ways is silent while the other answers: it takes another, if one is better. */
void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock);

#endif
