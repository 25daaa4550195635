/*
 * When something breaks again where something has just been found broken: is it the same incident,
 * whose verdict stands, or another that is to be reported, too (docs/diagnosis.md)? Pure; any
 * thread.
 */
#ifndef PROBE_INCIDENT_H
#define PROBE_INCIDENT_H

#include <stdint.h>

enum probe_incident {
    PROBE_SAME,  /* a consequence of what the case is about */
    PROBE_MUTED, /* another one, too soon after the last: counted, not investigated */
    PROBE_ANEW,  /* another one: a case of its own */
    PROBE_INCIDENTS
};

/* Of the latest case on a NIC pair, and of what happens now. Times in ns of one clock. */
struct probe_again {
    uint8_t open;            /* it is not decided yet */
    uint8_t found;           /* enum probe_blame: its verdict */
    uint8_t same_cause;      /* what ends an incarnation now is what it was opened for */
    uint8_t new_incarnation; /* ... of an incarnation that began after it was opened */
    uint8_t peer_anew; /* the peer's LOCATE is of another case than the one that was answered: it
                          has decided that one, for both ends */
    unsigned repeats;  /* cases before it on this pair, one after the other */
    uint64_t since_opened, since_decided;
};

#define PROBE_AGAIN_NS                                                                             \
    1000000000ull /* after a verdict: what ends incarnations later is never a consequence */
#define PROBE_AGAIN_MIN_NS                                                                         \
    100000000ull /* from one case to the next but one; doubles up to PROBE_AGAIN_NS */

/* What it is that happens now. */
enum probe_incident probe_incident_judge(const struct probe_again *a);

#endif
