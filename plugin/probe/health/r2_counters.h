/*
 * Error counters of our NICs (ib_counters.h): read when the first connection over a NIC stands and
 * when a case is opened, on the device's worker; nobody waits for them. Service thread; nothing
 * blocks.
 */
#ifndef R2_COUNTERS_H
#define R2_COUNTERS_H

#include "ib_transport/verbs/ib_counters.h"
#include "ib_transport/verbs/ib_worker.h"

struct r2_inst;

struct r2_counters {
    struct ib_job job; /* first */
    struct r2_inst *inst;
    int nic;
    uint8_t tried, there, begun; /* looked for; found; @start is filled */
    struct ib_counters read;     /* the worker's while the job is out */
    struct ib_counters start, last;
    uint64_t requested_at, last_at; /* ns: when the present reading was ordered; the latest that
                                   came back was; 0: none */
};

/* Allocates one for each NIC. -1: out of memory. Freed with the instance. */
int r2_counters_open(struct r2_inst *inst);
/* A connection over NIC @nic stands: read for the first time, if it was not. */
void r2_counters_want(struct r2_inst *inst, int nic);
/* Something is wrong over NIC @nic: read again, unless that is under way. */
void r2_counters_request(struct r2_inst *inst, int nic);
/* What was read later than @since (ns): 1 and both readings, or 0. The pointers hold until the next
 * turn. */
int r2_counters_get(const struct r2_inst *inst, int nic, uint64_t since,
                    const struct ib_counters **start, const struct ib_counters **last);

#endif
