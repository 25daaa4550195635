/*
 * Runs a schedule of transfers between nodes: chunk by chunk, NICs shared by all transfers under
 * way (max-min, by weight), no latency. The data are sets of contributions, so that one that is
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

/* @b: of each node. @is_weighted: the transfers of a connection share NICs by what all of that
 * connection carries; else all connections alike. */
void sim_run(const struct steps *steps, const double *b, bool is_weighted, struct sim_result *r);

/* Over the NICs that @spread names, all of one rate, 1/nics of a node: each carries the parts of
 * its own, and what one has left is of no use to another. */
void sim_run_spread(const struct spread *spread, bool is_weighted, struct sim_result *r);

#endif
