#include "probe_incident.h"

#include "probe_verdict.h"

/* The first repetition is looked into at once. A flapping link then has a case at most every
 * second. */
static uint64_t gap_of(unsigned repeats)
{
    uint64_t gap = PROBE_AGAIN_MIN_NS;

    if (repeats == 0) {
        return 0;
    }
    for (unsigned i = 1; i < repeats && gap < PROBE_AGAIN_NS; i++) {
        gap *= 2;
    }
    return gap < PROBE_AGAIN_NS ? gap : PROBE_AGAIN_NS;
}

enum probe_incident probe_incident_judge(const struct probe_again *a)
{
    if (a->open) {
        return PROBE_SAME;
    }
    if (a->peer_anew) {
        return PROBE_ANEW; /* facts of the last case would be a wrong answer; its end counts the
                              repetitions */
    }
    if (a->since_decided < PROBE_AGAIN_NS && !a->new_incarnation &&
        (a->same_cause || a->found != PROBE_BLAME_NONE)) {
        return PROBE_SAME; /* incarnations of one pair end one after the other, each as its driver
                            * sees it
                            */
    }
    return a->since_opened < gap_of(a->repeats) ? PROBE_MUTED : PROBE_ANEW;
}
