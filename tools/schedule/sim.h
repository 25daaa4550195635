/*
 * Runs a schedule of transfers between nodes: chunk by chunk, NICs shared by all transfers under
 * way (share.h), no latency. The data are sets of contributions, so that one that is
 * missing, added twice, or changed while it is sent shows. Sizes in D, bandwidth in B, times in
 * D/B. One thread; memory that is not there ends the process (util_mem_alloc()).
 */
#ifndef SCHEDULE_SIM_H
#define SCHEDULE_SIM_H

#include "tools/schedule/spread.h"

struct sim_result {
    double time;
    double sent[STEPS_NODES], received[STEPS_NODES]; /* in D */
    int transfers;
    char wrong[160]; /* empty: every node has every contribution exactly once */
};

/* How the transfers of connections share NICs. */
enum sim_by {
    SIM_BYTES,       /* by what all of a connection carries: chunk-level striping, R2CCL's model */
    SIM_CONNECTIONS, /* all connections alike, as if each port knew of all queue pairs */
    /* A sending NIC serves its connections in turn; at a receiving one those that send to it are
     * alike, however many connections they have: a switch that arbitrates by input port. */
    SIM_SENDERS,
};

/* @b: of each node. */
void sim_run(const struct steps *steps, const double *b, enum sim_by by, struct sim_result *r);

/* Over the NICs that @spread names, all of one rate, 1/nics of a node: each carries the parts of
 * its own, and what one has left is of no use to another. */
void sim_run_spread(const struct spread *spread, enum sim_by by, struct sim_result *r);

#endif
