/*
 * How long transfers to one peer take now, and whether that has left the band in which it usually
 * is (docs/diagnosis.md, "Transfer times of a peer"). Times in, figures and verdicts out. Pure: no
 * clock, no allocation; no function blocks. One thread.
 */
#ifndef R2_BAND_H
#define R2_BAND_H

#include <stdbool.h>
#include <stdint.h>

/* Transfers are told apart by the size of the message: one that waits for its turn on the wire and
 * one that fills it have nothing in common. */
enum r2_band_size { R2_BAND_16K, R2_BAND_128K, R2_BAND_1M, R2_BAND_MORE, R2_BAND_SIZES };
enum r2_band_size r2_band_size(uint64_t bytes);
const char *r2_band_size_name(unsigned size); /* "16K", ...: up to so many bytes; "more" */

#define R2_BAND_KEEP     128 /* times of a window; of more the last ones */
#define R2_BAND_TIMES    16  /* a window has at least so many ... */
#define R2_BAND_FEW      4   /* ... or these, where it is R2_BAND_LONGEST old */
#define R2_BAND_SHORTEST 1000000000ull
#define R2_BAND_LONGEST  10000000000ull  /* ns */
#define R2_BAND_LEARN    8               /* windows, whose median is the middle of the band */
#define R2_BAND_ROW      3               /* windows in a row that decide */
#define R2_BAND_SLACK    1000000ull      /* ns: a change by less is none */
#define R2_BAND_PAUSE    30000000000ull  /* ns between two verdicts */
#define R2_BAND_STAYS    600000000000ull /* ns outside, until that is the usual */

enum r2_band_state { R2_BAND_LEARNS, R2_BAND_INSIDE, R2_BAND_ABOVE, R2_BAND_BELOW, R2_BAND_STATES };
const char *r2_band_state_name(unsigned state); /* "learning", ...; "?" when it is none */

/* What is to be announced. */
enum r2_band_change {
    R2_BAND_NONE,
    R2_BAND_SLOWER, /* it has left the band upwards */
    R2_BAND_FASTER, /* ... downwards */
    R2_BAND_BACK,   /* it is inside again */
    R2_BAND_USUAL,  /* it has been outside for R2_BAND_STAYS, and a new band is learnt */
    R2_BAND_CHANGES
};
const char *r2_band_change_name(unsigned change);

/* Zero bytes are a new one. */
struct r2_band {
    struct {
        uint64_t ns[R2_BAND_KEEP];
        uint32_t n;     /* all of this window */
        uint64_t began; /* of the first of them, ns */
    } window;
    struct {
        uint64_t p50, p99, at; /* ns; at: when it ended; 0: none has */
        uint32_t n;
    } last;         /* window that is complete */
    uint64_t times; /* all there were */
    uint64_t learnt[R2_BAND_LEARN];
    uint32_t windows; /* of those learnt from */
    uint64_t middle;  /* ns; 0: not known yet */
    uint8_t state;    /* enum r2_band_state */
    uint8_t row;      /* windows that speak for another state, one after the other ... */
    uint8_t row_for;  /* ... which */
    uint8_t said;     /* the state that was announced last, LEARNS: none */
    uint64_t since;   /* ... that the state is, ns */
    uint64_t said_at; /* ns; 0: never */
};

/* The only writer of the state, which is @to since @now from then on: false, and nothing changes,
 * when that is no legal move. r2_band_turn() alone calls it, and its suite. */
bool r2_band_move(struct r2_band *b, enum r2_band_state to, uint64_t now);

/* A transfer took @ns; @now: the clock of r2_band_turn(), not 0. */
void r2_band_note(struct r2_band *b, uint64_t ns, uint64_t now);
/*
 * Ends the window where that is due. What it returns is announced: with @mute, which is for a
 * caller that has said too much lately, R2_BAND_NONE, and what was to be said stays due.
 */
enum r2_band_change r2_band_turn(struct r2_band *b, uint64_t now, int mute);
/* The bounds of the band; both 0 while it is learnt. */
void r2_band_bounds(const struct r2_band *b, uint64_t *low, uint64_t *high);

#endif
