/*
 * Bytes a second of each NIC: what two looks at a process differ by, over the time between what the
 * process wrote, not between the looks. One thread; nothing blocks.
 */
#ifndef R2_STAT_RATES_H
#define R2_STAT_RATES_H

#include "tools/r2_stat/stat.h"

struct rates_proc;

/* Zeroes are one without any look. */
struct rates {
    struct rates_proc *proc;
    int n;
};

/*
 * The next look, at @now (ns, CLOCK_REALTIME). A process that has written nothing since the one
 * before keeps its rates for a second, and has none of anything then; one whose clock was set back
 * begins anew. 0; -1: out of memory, @r is as it was.
 */
int rates_take(struct rates *r, const struct stat_found *f, uint64_t now);
void rates_free(struct rates *r);

/* Bytes a second over @nic, of those of the @n processes from @p on that have been seen twice.
 * False: there is none. */
bool rates_get(const struct rates *r, struct stat_proc *const *p, int n,
               const struct r2_stat_nic *nic, double *sent, double *received);

#endif
