/*
 * The progress thread of a rank. It does what NCCL's proxy thread does with the plugin, and the
 * copying and reducing that a GPU kernel would do, in pieces of at most one message so that the
 * plugin is called often. It yields the processor when nothing moves and sleeps while there is
 * nothing to run.
 */
#ifndef R2_PERF_ENGINE_H
#define R2_PERF_ENGINE_H

#include "tools/r2_perf/boot.h"
#include "tools/r2_perf/trace.h"
#include "tools/r2_perf/type.h"
#include "tools/r2_perf/wire.h"
#include "tools/schedule/spread.h"

struct engine_op {
    enum type_id type;
    enum type_redop redop;
    int root;
    size_t count;      /* param count */
    char *send, *recv; /* this rank's buffers, offsets of in-place runs included */
    uint64_t end_ns;   /* out: when the result was complete on this rank */
};

/* Where barriers stand between operations: nccl-tests' -z. */
enum engine_blocking {
    ENGINE_FREE = 0,
    ENGINE_BARRIER = 1,
    ENGINE_WAIT = 2,
    ENGINE_BARRIER_UNTIMED = 3
};

struct engine_batch {
    struct engine_op *ops;
    int n;
    bool timed;       /* recorded in the trace */
    bool clock_start; /* the trace starts with this batch */
    enum engine_blocking blocking;
    int agg;          /* operations per iteration */
    uint64_t late_ns; /* this rank begins so much later than the others */
    void (*started)(void *arg,
                    uint64_t t0_ns); /* called once the batch has begun, on the progress thread,
                                        with the time zero of the trace; or NULL */
    void *started_arg;
    uint64_t start_ns, end_ns; /* out: from the barrier before the first to the end of the last */
    uint64_t excluded_ns;      /* out: part of that which does not count as time */
};

/*
 * For those who run a batch: begin it, after a barrier of all ranks, and end its time. The phase of
 * the watch stays set until the caller clears it. 0, or -1 once the run has failed. engine_batch.c;
 * thread: the one that runs the batch; blocks.
 */
int engine_batch_start(struct engine_batch *b, struct boot *boot, struct trace *trace);
void engine_batch_stop(struct engine_batch *b, struct trace *trace);

struct engine;

/* Start the thread over @wire's connections; it sleeps @idle_ns whenever nothing moved (0: yields).
 * NULL when there are no threads. Caller closes, before wire_close. */
struct engine *engine_open(struct wire *wire, struct trace *trace, uint64_t idle_ns);
void engine_close(struct engine *e);

/*
 * Run the batch on all ranks: the same batches in the same order everywhere. Blocks until the
 * results are complete and the plugin holds nothing any more. 0, or -1 once the run has failed.
 * Thread: main.
 */
int engine_run(struct engine *e, struct engine_batch *batch);

/*
 * From now on operations run by this schedule; NULL: by the operation's own algorithm. While no
 * batch runs; @spread stays until the next call. Whether there is such a thing: engine_can_play().
 */
void engine_play(struct engine *e, const struct spread *spread);
/* Bytes by NIC, of SPREAD_NICS, that schedules have moved since the last call. While no batch runs.
 */
void engine_played_take(struct engine *e, uint64_t *sent, uint64_t *received);
bool engine_can_play(void);

/* Whether buffers can be registered with the one who moves data: wire_setup.local_register. */
bool engine_can_register(void);

/* Messages whose size was not the sender's, so far; @first describes the first. While no batch
 * runs. */
uint64_t engine_mismatches_get(const struct engine *e, const char **first);

#endif
