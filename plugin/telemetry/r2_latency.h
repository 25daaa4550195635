/*
 * How long sends take (docs/diagnosis.md): from the return of the call that posts a message to the
 * test of it that finds all of its work requests completed, for one message of R2_LATENCY_EVERY.
 *
 * Counted for the connection, and for the NIC of the part that was seen out last, by the NIC that
 * the part went to first. A message that a failure has posted again counts with all of its time.
 *
 * Threads: begin and look are for NCCL's thread, the gate held; no function blocks.
 */
#ifndef R2_LATENCY_H
#define R2_LATENCY_H

#include "base/r2_hist.h"
#include "core/r2_inst.h"
#include "r2_band.h"

#define R2_LATENCY_EVERY  128 /* messages, in the mean */
#define R2_LATENCY_RECENT 32  /* times that wait to be taken */

struct r2_latency_one {
    uint64_t ns;
    enum r2_band_size size;
};

/* What a sending connection counts. Free with free(). NULL: the process keeps no statistics, or out
 * of memory; then nothing is timed. Before the connection is entered in the tables. */
struct r2_latency *r2_latency_new(const struct r2_config *cfg);
/* What c->timed.left begins with. @id makes connections begin at different messages. */
uint32_t r2_latency_first(struct r2_latency *l, uint32_t id);

/* c->timed.left has come to 0 with @m, which was just started as @req: makes that a
 * R2_REQ_SEND_TIMED, unless one is timed already, and sets c->timed.left anew. */
void r2_latency_begin(struct r2_comm *c, struct r2_req *req, const struct ib_smsg *m);
/* @m, of a R2_REQ_SEND_TIMED, was tested; @done: it is done, and its slot still as it was. */
void r2_latency_poll(struct r2_comm *c, const struct ib_smsg *m, int done);

/* What connection @c, which is timed, and NIC @nic have counted. Any thread, while @c stands. */
void r2_latency_read(const struct r2_comm *c, struct r2_hist out[R2_SEND_SIZES]);
void r2_latency_read_nic(const struct r2_inst *inst, int nic, struct r2_hist out[R2_SEND_SIZES]);
/* What @c, which is timed, has timed since the last call, of more the last ones; how many.
 * Service thread. */
int r2_latency_take(struct r2_comm *c, struct r2_latency_one out[R2_LATENCY_RECENT]);

#endif
