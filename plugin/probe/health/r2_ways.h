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
    struct probe_way_wish wish; /* the ways of the probe's queue pairs, as soon as they are
                                   connected; turn 0: not chosen */
    uint8_t n;           /* how many there are, since the peer's address is known; 0: not known */
    uint8_t silent;      /* both were, and the pair was given up */
    uint8_t single;      /* a second queue pair could not be connected: it does without */
    uint8_t suspect;     /* a way to be probed next; 0: none */
    uint8_t chosen;      /* the wish is for the next queue pairs, whatever these answered */
    uint64_t next_at;    /* the probe's ways are not changed before */
    uint64_t witness_at; /* witnesses were asked for the probe that counts; when they are looked at
                            next; 0: they were not */
};

/* R: the way of path @p's next incarnation; its last one took path->way, 0 if it is the first. */
unsigned r2_ways_pick(struct r2_comm *c, int p);
/* A path over the pair by @way has lost its tail: it is avoided, and the pair's probe takes it. */
void r2_ways_on_lost(struct r2_pair *pair, unsigned way);
/* Whether there is a choice, and a way that has lost nothing lately. */
bool r2_ways_has_good(const struct r2_pair *pair);
/* The flow label of way @way between the pair's ports, which is the same in all processes with the
 * same NCCL_R2_WAYS; the way of a label, 0: it has none such, or it is not known yet. */
uint32_t r2_ways_label(const struct r2_pair *pair, unsigned way);
unsigned r2_ways_find(const struct r2_pair *pair, uint32_t label);
/* The pair's queue pairs are about to be made: which ways this end wants for them. Others than
 * before where nothing was answered. */
void r2_ways_begin_probe(struct r2_pair *pair);
/*
 * The peer's queue pairs, pair->far.addr, are about to be connected; what that end wants. Now it is
 * known how many ways there are between the two ports, and pair->far.alt.qpn becomes 0 where that
 * is one.
 */
void r2_ways_on_wish(struct r2_pair *pair, const struct probe_way_wish *theirs);
/*
 * The probe that counts is out. Witnesses are asked, once, when half of the time for its answer is
 * over, and looked at every 100 ms then. Where one has answered, the ways of the probe are silent
 * and not the NICs: its queue pairs are made anew over others, and true is returned.
 * r2_ways_leave() looks at once.
 */
bool r2_ways_on_late(struct r2_pair *pair, uint64_t clock);
bool r2_ways_leave(struct r2_pair *pair, uint64_t clock);
/* They are connected, or the first of them is. */
void r2_ways_on_joined(struct r2_pair *pair);
/* Where one of the probe's ways is silent while the other answers, it is probed again on a new
 * queue pair, and left if that is silent, too, for a better one, if there is one. */
void r2_ways_check_probe(struct r2_pair *pair, uint64_t clock);

#endif
