/*
 * What a link carries while it has work, from looks at counters that the data path keeps anyway:
 * bytes posted and completed. Pure; the caller's memory.
 *
 * A check counts the time since the one before as busy if work was outstanding then. Bytes over
 * busy time is the rate of the link whatever the load is: idle time, a receiver that posts late and
 * an application that sends little are no busy time. Looks are samples, so there is a bound from
 * below, too.
 */
#ifndef BALANCE_RATE_H
#define BALANCE_RATE_H

#include <stdint.h>

#define BALANCE_RATE_WINDOWS 4
#define BALANCE_RATE_TICKS   12         /* of a window, at least */
#define BALANCE_RATE_NS      100000000u /* length of a window, at least */

struct balance_rate_sum {
    uint32_t ticks, busy, parts;
    uint64_t ns, busy_ns, bytes;
    uint64_t queued; /* bytes outstanding, summed over the busy checks */
};

struct balance_rate {
    struct balance_rate_sum now, window[BALANCE_RATE_WINDOWS];
    uint8_t windows, next;
};

/* All zero: nothing is known. */
struct balance_tempo {
    uint64_t rate;        /* bytes/s while busy */
    uint64_t least, most; /* ... within these but for one case in twenty */
    uint64_t wait;        /* ns that a byte spends between post and completion (Little's law) */
    uint32_t parts;       /* completions that this rests on */
    uint32_t busy;        /* of the time, in 1024ths */
};

/*
 * Takes in one check: @ns since the last one, in which @parts with @bytes completed; @queued are
 * outstanding now, @busy whether anything is. 1: a window has ended.
 */
int balance_rate_tick(struct balance_rate *r, uint64_t ns, uint32_t parts, uint64_t bytes,
                      uint64_t queued, int busy);

/* Over the latest @n windows; all zero if there are not so many or nothing completed in them. */
void balance_rate_get(const struct balance_rate *r, unsigned n, struct balance_tempo *out);

#endif
