/*
 * Which of the ways between two ports is taken (ib_transport/ib_way.h), by what is known of each.
 * Pure; times in ns of any one clock.
 */
#ifndef PROBE_WAY_H
#define PROBE_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "ib_transport/ib_way.h"

#define PROBE_WAY_AVOID_NS     10000000000ull  /* after a way has lost something */
#define PROBE_WAY_AVOID_MAX_NS 300000000000ull /* ... again and again */

struct probe_ways {
    struct {
        uint64_t lost_at; /* 0: never */
        uint64_t avoid;   /* for so long since then */
    } way[IB_WAYS_MAX];   /* of way n at n - 1 */
};

/*
 * Way @way has lost a tail, or is silent while another one answers. It is avoided for 10 s, and
 * twice as long each time that it happens again within twice that time, up to 5 minutes: one that
 * is mended is taken again without anybody's word. 0 and numbers beyond are no way.
 */
void probe_ways_lost(struct probe_ways *w, unsigned way, uint64_t now);
bool probe_ways_avoids(const struct probe_ways *w, unsigned way, uint64_t now);

/*
 * A way of 1 to @n: the first that is not avoided, from (@first mod @n) + 1 on; where all are, the
 * one that is avoided for the shortest time from now. @n below 2: 0, the driver's choice.
 */
unsigned probe_ways_pick(const struct probe_ways *w, unsigned n, unsigned first, uint64_t now);

#endif
