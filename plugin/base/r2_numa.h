/* Memory near a NUMA node, by the calling thread's memory policy for the time of an allocation. */
#ifndef R2_NUMA_H
#define R2_NUMA_H

/*
 * New pages of this thread come from @node, if it has any left, until r2_numa_forget(). 0; -1 with
 * nothing changed: @node is not known (-1) or not allowed, a policy was chosen by somebody
 * (numactl), or the calls are forbidden here (containers). Does not block.
 */
int r2_numa_prefer(int node);
/* Back to no policy. Only after a r2_numa_prefer() that returned 0. */
void r2_numa_forget(void);

#endif
