#include "tools/shared/stat_nic.h"

#define SAME_NS 1000000000ull /* a verdict's time and that of what it is about differ by less */

/* The verdict is about what happened at @at: the two are noted one after the other, the verdict's
 * time being the fault's. */
static bool verdict_of(const struct r2_stat_nic *n, uint64_t at)
{
    return n->blamed[0] && n->blamed_at + SAME_NS >= at;
}

const char *stat_nic_word(const struct r2_stat_nic *n, const char **why, uint64_t *since)
{
    *why = n->why;
    *since = n->since;
    if (n->state != R2_STAT_NIC_UP) {
        *why = verdict_of(n, n->since) ? n->blamed : n->why;
        return r2_stat_nic_state_name(n->state);
    }
    if (n->drained) {
        *why = n->why; /* the administrator's words */
        return "drained";
    }
    if (n->moved == 0) {
        return "up";
    }
    *why = verdict_of(n, n->trouble_at) ? n->blamed : n->trouble;
    *since = n->trouble_at;
    return n->over ? "partly" : "avoided";
}

int stat_nic_badness(const struct r2_stat_nic *n)
{
    return n->state != R2_STAT_NIC_UP ? 4 + n->state
           : n->moved                 ? (n->theirs ? 2 : 3)
           : n->drained               ? 1
                                      : 0;
}
