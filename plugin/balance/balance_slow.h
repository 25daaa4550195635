/*
 * Whether a NIC pair is slow although nothing of it fails, how slow, and when it is as fast as the
 * others again (docs/health.md). Pure: one call per window of balance_rate; the caller's
 * memory.
 *
 * Slow is a comparison, never a number: less than a part of what other NICs of this host do in the
 * same time, each for the rate of its port. So what slows all of them down alike, the application,
 * the receiver, the fabric, changes nothing.
 */
#ifndef BALANCE_SLOW_H
#define BALANCE_SLOW_H

#include <stdbool.h>

#include "balance_rate.h"

#define BALANCE_SLOW_ONE 1024u
#define BALANCE_SLOW_LEAST                                                                         \
    32u /* share of its normal rate that a slow pair keeps: so much traffic shows when it recovers \
         */
#define BALANCE_SLOW_PEERS 64u

enum balance_slow_state {
    BALANCE_SLOW_NO,
    BALANCE_SLOW_SUSPECT, /* the caller checks closer: it polls completions with each check, and
                             requests what both NICs move in all */
    BALANCE_SLOW_YES,
    BALANCE_SLOW_STATES
};
const char *balance_slow_name(enum balance_slow_state s);

/* All zero: never looked at. */
struct balance_slow {
    enum balance_slow_state state;
    uint16_t part; /* what it carries, of BALANCE_SLOW_ONE: of what it should; 0: all of it */
    uint16_t nic;  /* ... what the whole of its NIC here carries: of several slow pairs, the NIC may
                      be what is slow */
    uint16_t rest; /* windows in which it is not suspected */
    uint16_t hold; /* windows of good rate before it is trusted again */
    uint16_t good, bad;
    uint32_t age; /* windows since it was trusted again */
};

/* Another NIC of this host. */
struct balance_slow_peer {
    struct balance_tempo tempo;
    uint32_t mbps; /* of its port; 0: not known */
};

struct balance_slow_facts {
    struct balance_tempo own; /* the pair, in the latest two windows */
    struct balance_tempo all; /* ... in all that are remembered */
    struct balance_tempo nic; /* the NIC here, with all its pairs, in all that are remembered */
    uint32_t mbps;            /* the least known limit of it; 0: none is known */
    const struct balance_slow_peer *peer; /* at most BALANCE_SLOW_PEERS are checked */
    unsigned peers;
    int moved_known; /* of both ends, since it is suspected */
    uint64_t moved_here,
        moved_there;  /* bytes/s in both directions over the NIC, of all processes of its host */
    unsigned percent; /* slower than this part of the others is slow: 1 to 80 */
};

/* The only writer of the state: @rest windows follow in which it is not suspected. False: that is
 * no legal move, and nothing has changed. balance_slow_window() alone calls it, and its suite. */
bool balance_slow_move(struct balance_slow *s, enum balance_slow_state to, uint16_t rest);

/* A window has ended. 1: @s->part or @s->nic has changed. */
int balance_slow_window(struct balance_slow *s, const struct balance_slow_facts *f);

#endif
