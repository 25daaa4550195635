/*
 * Whether the way to one peer holds this process up: what is sent to it stays on the wire for
 * longer than is usual for it, while what is sent to others does not (docs/diagnosis.md, "A slow
 * way to a host"). Counts of looks in, verdicts out. Pure: no clock, no allocation; no function
 * blocks. One thread.
 *
 * A look is at work requests without completion and at bytes completed since the last one, so that
 * a receiver who posts late, a sender who has nothing to send and an acknowledgement that the other
 * process owes are no time on the wire.
 */
#ifndef PROBE_SLOW_H
#define PROBE_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#define PROBE_SLOW_WINDOW 2000000000ull /* ns */
#define PROBE_SLOW_LOOKS  50            /* a window has so many, else nothing is known of it ... */
#define PROBE_SLOW_PARTS  8             /* ... and so many completions */
#define PROBE_SLOW_LEARN  8             /* windows whose median is what is usual */
#define PROBE_SLOW_ROW    3             /* windows in a row that decide */
#define PROBE_SLOW_TRIES  6             /* windows of a suspicion that is not confirmed */
#define PROBE_SLOW_REST   30            /* ... after which so many pass without another one */
#define PROBE_SLOW_OTHERS 3             /* hosts to compare with, at least */
#define PROBE_SLOW_ROWS   64            /* peers that are compared, at most */
#define PROBE_SLOW_SLACK  1000000ull    /* ns: what takes longer by less does not take longer */

/* Permille. */
#define PROBE_SLOW_ONE    1000u
#define PROBE_SLOW_FACTOR 1500u /* slower by that is slow */
#define PROBE_SLOW_WELL   1250u /* ... and by less than that well again */
#define PROBE_SLOW_BUSY   500u  /* of a window, for which something is on the wire to it */

enum probe_slow_state {
    PROBE_SLOW_LEARNS,  /* what is usual */
    PROBE_SLOW_USUAL,   /* as fast as ever, as far as is known */
    PROBE_SLOW_SUSPECT, /* the caller looks closer: it takes completions with each look, and asks
                           what the NICs of both ends move */
    PROBE_SLOW_SAID,
    PROBE_SLOW_STATES
};
const char *probe_slow_name(enum probe_slow_state s); /* "?" when it is none */

/* Looks of one window, at all connections that send to the peer. */
struct probe_slow_looks {
    uint32_t busy;   /* looks at which a work request had no completion */
    uint32_t parts;  /* completions */
    uint64_t bytes;  /* ... of so many */
    double queued;   /* bytes without completion, summed over the looks */
    uint32_t broken; /* looks at which a path was not up, or of last resort */
};

struct probe_slow_figures {
    uint64_t rate; /* bytes/s while something is on the wire */
    uint64_t wait; /* ns that a byte is on the wire (Little's law) */
};

/* All zero: a new one. */
struct probe_slow {
    uint8_t state;      /* enum probe_slow_state */
    uint8_t row, tries; /* windows */
    uint8_t rest;
    uint8_t n; /* windows learnt from */
    struct probe_slow_figures learnt[PROBE_SLOW_LEARN], usual;
    struct {
        bool known;
        struct probe_slow_figures is;
        uint32_t slow; /* permille: it takes so many times as long as is usual, and is that much
                          slower: the lesser of the two ... */
        uint32_t most; /* ... and the greater */
        uint32_t busy; /* permille */
    } last;            /* window */
};

/* The only writer of the state; false: that is no legal move, and nothing changes. */
bool probe_slow_move(struct probe_slow *s, enum probe_slow_state to);

/* A window of @looks looks over @ns has ended; @l is what they found of this peer. */
void probe_slow_window(struct probe_slow *s, const struct probe_slow_looks *l, uint32_t looks,
                       uint64_t ns);

/* A peer as it is compared. */
struct probe_slow_row {
    uint64_t host; /* the same for those of one host */
    uint32_t slow, most;
};

/*
 * Row @i of @n, at most PROBE_SLOW_ROWS, each of a window that is known, is slower than usual by
 * PROBE_SLOW_FACTOR and by 6 median absolute deviations beside the others, and no other host is;
 * there are PROBE_SLOW_OTHERS of them.
 */
bool probe_slow_is_alone(const struct probe_slow_row *row, int n, int i);

/* What the NICs of both ends move, all processes of their hosts together. */
enum probe_slow_load {
    PROBE_SLOW_LOAD_UNKNOWN,
    PROBE_SLOW_LOAD_FREE, /* no NIC moves a quarter of the best that it has done */
    PROBE_SLOW_LOAD_FULL  /* one does: what waits may wait for others (incast) */
};
/* @bytes in @ns, of a NIC whose best rate is @best (bytes/s; 0: not known). */
enum probe_slow_load probe_slow_load(uint64_t bytes, uint64_t ns, uint64_t best);

enum probe_slow_change {
    PROBE_SLOW_NONE,
    PROBE_SLOW_SAY,
    PROBE_SLOW_OVER /* what was said is over */
};

/* Takes the window of the last probe_slow_window(); @alone, @load: of that window. */
enum probe_slow_change probe_slow_decide(struct probe_slow *s, bool alone,
                                         enum probe_slow_load load);

#endif
