/*
 * A queue pair that stands still on a NIC pair that answers: its last packets are lost, or the one
 * refusal of what came behind them, and RC says nothing until its time-out, which users set to
 * seconds (docs/health.md, "The last packet"). Service thread; nothing blocks.
 */
#ifndef R2_TAIL_H
#define R2_TAIL_H

#include <stdbool.h>

#include "core/r2_inst.h"
#include "probe/probe_watch.h"

struct r2_pair;

/* Incarnations that ended for it on one pair, lately; watch's clock. r2_tail.c */
struct r2_pair_tail {
    uint64_t at;      /* the latest; 0: none */
    uint64_t counted; /* the latest that was an event of its own */
    unsigned rows;
};

/*
 * Path @p of @c, which @w finds silent with @expect ns of work outstanding: whether its queue pair
 * has lost its last packet, by what @pair (NULL: none) has answered. Else the path is checked again
 * when it may have. Gate held.
 */
bool r2_tail_is_lost(struct r2_comm *c, int p, struct probe_watch *w, const struct r2_pair *pair,
                     uint64_t expect);
/* When the silent path that @w watches is to be checked next, of the watch's clock. */
uint64_t r2_tail_poll_at(const struct r2_inst *inst, const struct probe_watch *w);
/* Whether the path's incarnation may end for it: others carry on, or, where it is the last one,
 * nothing keeps it from returning at once. Gate held. */
bool r2_tail_may_end(const struct r2_comm *c, int p);
/* Probes the pair of a connection's last path, about which there is no verdict. */
void r2_tail_probe_last(struct r2_pair *pair);
/* The incarnation of @c's path @p, over @pair, ends for it. Gate held. */
void r2_tail_on_end(struct r2_comm *c, int p, struct r2_pair *pair);

#endif
