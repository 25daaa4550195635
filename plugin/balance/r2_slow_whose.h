/*
 * Whether a NIC here is slow itself, by what the hosts say to or from which its ways are slow
 * (docs/health.md): their words come in LOAD, balance_whose judges, and what it says is logged,
 * an event, told to who asks, and an hour in the history of the NIC. No traffic moves for it.
 * Service thread; nothing blocks.
 */
#ifndef R2_SLOW_WHOSE_H
#define R2_SLOW_WHOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "balance_whose.h"
#include "core/r2_inst.h"

struct r2_pair;

struct r2_slow_whose {
    struct balance_whose nic[IB_MAX_NICS];
};

/* Of the way out over a pair. */
struct r2_slow_claim {
    uint64_t at;    /* ns; when its other end was told last that it is slow; 0: never */
    bool is_theirs; /* the NIC at the other end has said that it is slow itself */
};

/* The way over @pair is slow, with each window of work in which it is: the other end is told, at
 * times. */
void r2_slow_whose_claim(struct r2_slow_whose *w, struct r2_pair *pair, struct r2_slow_claim *c,
                         uint64_t now);
/* A LOAD with @flags (FO_LOAD_SLOW, FO_LOAD_WORD) has come over @pair. @c: of the way out, NULL:
 * nothing was sent over it. */
void r2_slow_whose_on(struct r2_slow_whose *w, struct r2_pair *pair, struct r2_slow_claim *c,
                      uint8_t flags, uint64_t now);
/* With each check of the paths. */
void r2_slow_whose_step(struct r2_slow_whose *w, struct r2_inst *inst, uint64_t now);

#endif
