/*
 * Runs a schedule of transfers between nodes: chunk by chunk, NICs shared by all transfers under
 * way (max-min, by weight), no latency. The data are sets of contributions, so that one that is
 * missing, added twice, or changed while it is sent shows. Sizes in D, bandwidth in B, times in
 * D/B. One thread; memory that is not there ends the process (util_mem_alloc()).
 */
#ifndef R2_PLAN_SIM_H
#define R2_PLAN_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_NODES 128

enum sim_kind {
    SIM_ADD,  /* what comes is added to what is there */
    SIM_COPY, /* what comes replaces what is there, all of which it has to contain */
    SIM_JOIN, /* moves nothing: an op that others can wait for */
};

struct sim;
/* @slots places for each chunk and node: 0 begins with the node's own contribution, others empty.
 */
struct sim *sim_open(int nodes, const double *b, int slots);
void sim_close(struct sim *s);

/* A piece of the data, of @size. Returns its number. */
int sim_chunk_add(struct sim *s, double size);

/*
 * A transfer of a chunk from a slot of @src to one of @dst; of one channel, @src and @dst they are
 * under way one at a time, in the order in which they were added. src == dst takes no time. Returns
 * its number.
 */
int sim_op_add(struct sim *s, enum sim_kind kind, int channel, int chunk, int src, int from,
               int dst, int to);
/* @op begins when @before is done; @before < 0: nothing. */
void sim_op_after(struct sim *s, int op, int before);

struct sim_result {
    double time;
    double sent[SIM_NODES], received[SIM_NODES]; /* in D */
    int transfers;
    char wrong[160]; /* empty: every node has every contribution exactly once */
};

/* @is_weighted: the transfers of a connection share NICs by what all of that connection carries;
 * else all connections alike. Once for each sim. */
void sim_run(struct sim *s, bool is_weighted, struct sim_result *r);

#endif
