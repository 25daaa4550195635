/*
 * The traces of all ranks put together: rate over time, stalls, and what a fault did to both.
 */
#ifndef R2_PERF_TIMELINE_H
#define R2_PERF_TIMELINE_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/fault.h"
#include "tools/r2_perf/trace.h"

/*
 * A pause is a fault's when it had begun this long after the fault was done: messages that were
 * under way may still arrive. The rate, too, gets this long before it counts as "after", and more
 * where a switch takes longer.
 */
#define TIMELINE_SETTLE_NS 200000000ull
/* A switch that our plugin tells of is a fault's when it began so soon: nothing takes longer to
 * find out. */
#define TIMELINE_DETECT_NS 10000000000ull

/* Who says how long the stall was. */
enum timeline_by {
    TIMELINE_BY_DRIVER, /* r2_perf: the longest pause of a connection that is the fault's */
    TIMELINE_BY_PLUGIN, /* the switch that the plugin told of: the stall_us of its event */
};

struct timeline_fault {
    struct fault_event event;
    enum timeline_by by;
    uint64_t stall_ns;
    int switch_rank;        /* by the plugin: of which rank */
    uint64_t switch_ns;     /* ... when its first connection lost a path */
    struct trace_gap pause; /* the driver's, also where the plugin has spoken */
    uint64_t end_ns;        /* of all of that */
};

struct timeline {
    uint64_t interval_ns;
    size_t n;
    double *busbw;  /* GB/s per interval; NaN where too little of it was timed */
    double *active; /* share of the interval in which a timed stretch ran, 0 to 1 */
    struct timeline_fault faults[OPTS_FAULTS_MAX];
    int nfaults;                   /* that fired */
    struct trace_gap stall;        /* longest pause of a connection with work */
    struct trace_gap stall_before; /* the same before the first fault */
    struct trace_gap stopped;      /* longest time in which nothing moved on any rank */
    double before, during, after;  /* GB/s; NaN: no such time */
    uint64_t after_ns;             /* from when on it is "after" */
    uint64_t failovers;            /* log lines, all ranks */
    int failover_ranks;
};

/*
 * Gather the traces of all ranks. @bus_bytes: what the recorded operations are worth as bus
 * bandwidth; @failovers: this rank's count. All ranks call it; only rank 0's @t is filled, with
 * @agent's events. Blocks. 0, or -1 once the run has failed. timeline_free in both cases.
 */
int timeline_gather(struct timeline *t, struct boot *boot, int rank, int nranks,
                    const struct trace *trace, double bus_bytes, uint64_t failovers,
                    const struct fault_agent *agent);
void timeline_free(struct timeline *t);

/*
 * When the stall of @f began. The driver's is a pause, whose place is known. The plugin says how
 * long it was, and when the path was lost, which lies within it: it begins where the pause around
 * the fault does, as far as that agrees, and not before the fault. Pure.
 */
uint64_t timeline_stall_start(const struct timeline_fault *f);

/*
 * Every rank's @bytes of @data, each padded to the longest, as one new array, of BOOT_RANKS_MAX
 * @sizes; caller frees. All ranks call it. Blocks. NULL once the run failed.
 */
char *timeline_all_get(struct boot *boot, int rank, int nranks, const void *data, uint64_t bytes,
                       uint64_t *sizes, uint64_t *longest);

#endif
