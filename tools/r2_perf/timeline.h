/*
 * The traces of all ranks put together: rate over time, stalls, and what a fault did to both.
 */
#ifndef R2_PERF_TIMELINE_H
#define R2_PERF_TIMELINE_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/fault.h"
#include "tools/r2_perf/trace.h"

/* After the last fault the rate gets this long to settle before it counts as "after". */
#define TIMELINE_SETTLE_NS 200000000ull

struct timeline_fault {
    struct fault_event event;
    struct trace_gap stall; /* longest pause of a connection that ended after this fault and before the next */
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
    uint64_t failovers;            /* log lines, all ranks */
    int failover_ranks;
};

/*
 * Gather the traces of all ranks. @bus_bytes: what the recorded operations are worth as bus bandwidth; @failovers: this
 * rank's count. All ranks call it; only rank 0's @t is filled, with @agent's events. Blocks.
 * 0, or -1 once the run has failed. timeline_free in both cases.
 */
int timeline_gather(struct timeline *t, struct boot *boot, int rank, int nranks, const struct trace *trace,
                    double bus_bytes, uint64_t failovers, const struct fault_agent *agent);
void timeline_free(struct timeline *t);

#endif
