/* How many of the vantage points agree with a verdict. Pure; any thread; nothing blocks or is
 * allocated; nothing fails. */
#ifndef PROBE_SEEN_H
#define PROBE_SEEN_H

#include "probe_line.h"

/* What was probed; "far" and "near" from the side of who decides. */
enum probe_point {
    PROBE_POINT_PAIR,      /* the pair, by either end */
    PROBE_POINT_NEAR_LOOP, /* our NIC to itself */
    PROBE_POINT_NEAR_AUX,  /* our NIC to another remote port */
    PROBE_POINT_FAR_LOOP,
    PROBE_POINT_FAR_AUX,
    PROBE_POINT_OTHERS, /* a pair of the same two processes that shares neither NIC */
    PROBE_POINTS
};

struct probe_seen {
    unsigned by, of; /* that agree, of those that were probed and that the verdict is about */
};

/* Adds one that was probed, with its outcome (enum probe_outcome; NA: it was not). */
void probe_seen_add(struct probe_seen *s, enum probe_code code, enum probe_blame blame,
                    enum probe_point point, uint8_t outcome);

#endif
