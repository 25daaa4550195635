/*
 * Faults at given times: a thread of rank 0 that runs `softfab fault` or a shell command when the
 * moment has come.
 */
#ifndef R2_PERF_FAULT_H
#define R2_PERF_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/r2_perf/opts.h"

struct fault_event {
    const struct opts_fault *spec;
    bool fired;
    uint64_t fired_ns; /* since the clock started: the command was started */
    uint64_t took_ns;  /* until it had ended */
    int status;        /* its exit status; 128 + signal; -1: could not be started */
};

struct fault_agent;

/* Start the thread. Commands for the fabric go to @softfab with --name @fabric (both may be NULL
 * without such faults).
 */
struct fault_agent *fault_agent_open(const struct opts *o, const char *softfab, const char *fabric);
/* Time zero of all faults. Any thread; does not block. */
void fault_agent_start(struct fault_agent *a, uint64_t t0_ns);
/* --after: whether a fault is still to be done, or the last one was done too short a time ago. Any
 * thread; does not block. */
bool fault_agent_unfinished(struct fault_agent *a);
/* No more faults; waits for one that is being done. */
void fault_agent_stop(struct fault_agent *a);
/* The events in order of time, after fault_agent_stop; valid until fault_agent_close. */
const struct fault_event *fault_events_get(const struct fault_agent *a, int *n);
void fault_agent_close(struct fault_agent *a);

#endif
