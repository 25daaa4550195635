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
        bool silent;      /* it was found to be, and has not answered since */
    } way[IB_WAYS_MAX];   /* of way n at n - 1 */
};

/*
 * Way @way has lost a tail, or is silent while another one answers. It is avoided for 10 s, and
 * twice as long each time that it happens again within twice that time, up to 5 minutes: one that
 * is mended is taken again by itself. 0 and numbers beyond are no way.
 */
void probe_ways_lost(struct probe_ways *w, unsigned way, uint64_t now);
bool probe_ways_avoids(const struct probe_ways *w, unsigned way, uint64_t now);

/*
 * A queue pair of the probe is silent over @way while the other one answers; @ever: it has answered
 * before. One that has may have lost packets, and RC's refusal of the gap, of which there is one;
 * one that never did, on a way that had lost something when it was made, tells that the way is
 * silent. Returns whether it was not known to be.
 */
bool probe_ways_on_silent(struct probe_ways *w, unsigned way, bool ever, uint64_t now);
/* A probe was answered over @way. */
void probe_ways_on_answer(struct probe_ways *w, unsigned way);
bool probe_ways_is_silent(const struct probe_ways *w, unsigned way);

/*
 * Somebody else has found way @way to be silent since @since. An answer here over it to what was
 * posted later than that, at @answered (0: none), counts more. Returns whether it was not known
 * here; then it is avoided as one that was found here is.
 */
bool probe_ways_on_notified(struct probe_ways *w, unsigned way, uint64_t since, uint64_t answered,
                            uint64_t now);
/*
 * Whether a path that takes a way which is silent since @since is to leave it: something of
 * it moved last at @went_at (0: nothing has), which may be seen @late afterwards. One that goes on
 * is on another way than the probe, where a switch hashes more than ports.
 */
bool probe_way_is_left(uint64_t since, uint64_t went_at, uint64_t late);

/*
 * A way of 1 to @n: of those that are not avoided the one that the fewest take, @used[way - 1] of
 * them (NULL: none does); of several the first from (@first mod @n) + 1 on. Where all are avoided,
 * the one that is for the shortest time from now. @n below 2: 0, the driver's choice.
 */
unsigned probe_ways_pick(const struct probe_ways *w, unsigned n, unsigned first,
                         const uint16_t used[IB_WAYS_MAX], uint64_t now);

/* What an end of a NIC pair wants the pair's probes to go by: a way for each queue pair, and how
 * often it, or the other end, has chosen before. */
struct probe_way_wish {
    uint16_t turn;
    uint8_t way[2]; /* 0: the driver's choice */
};

/*
 * Whether the end that wants @ours follows the one that wants @theirs, so that requests and
 * acknowledgements of a probe have one label: the later choice holds; of two at once the one of the
 * @first end, as both ends reckon it. An end that has no choice follows nobody, and nobody it.
 */
bool probe_way_yields(const struct probe_way_wish *ours, const struct probe_way_wish *theirs,
                      bool first);

#endif
