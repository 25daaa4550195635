/*
 * One measurement: an operation of one size, timed over many iterations, every element of every one
 * of them checked.
 *
 * Iterations run back to back in batches, each with its own buffers, as nccl-tests queues them on a
 * stream; filling and checking happen between batches and are not timed.
 */
#ifndef R2_PERF_MEASURE_H
#define R2_PERF_MEASURE_H

#include "tools/r2_perf/engine.h"
#include "tools/r2_perf/opts.h"
#include "tools/r2_perf/report.h"
#include "tools/r2_perf/verify.h"

struct measure_case;

struct measure {
    const struct opts *o;
    struct boot *boot;
    struct engine *engine;
    struct verify *verify;
    int rank, nranks;
    char *pool; /* buffers of a batch */
    size_t pool_bytes;
    struct engine_op *ops; /* of a batch */
    struct verify_case *cases;
    int room;            /* operations that a batch may have */
    uint64_t serial;     /* of the next operation: equal on all ranks */
    uint64_t checked;    /* operations checked so far */
    uint64_t wrong;      /* elements wrong so far, all ranks, timed or not */
    double bus_bytes;    /* worth of all recorded operations */
    bool recording;      /* the trace runs */
    struct trace *trace; /* gets the operations of the watched size; NULL: nobody asks */
    void (*started)(void *arg,
                    uint64_t start_ns); /* when the watched size starts; NULL: nobody asks */
    bool (*unfinished)(
        void *arg); /* rank 0, watched size: must go on, whatever its time; NULL: no */
    void *started_arg;
    /* All ranks, around each batch, which is then one iteration; NULL: nobody asks. -1 once the run
     * has failed. */
    int (*before)(void *arg, const struct measure_case *c, bool timed);
    int (*after)(void *arg, const struct measure_case *c, bool timed, int operations,
                 double seconds);
    void *around_arg;
};

/* What to measure. */
struct measure_case {
    enum type_id type;
    enum type_redop redop;
    int root;
    size_t bytes; /* the size asked for */
    bool in_place;
    bool watched; /* the trace records it */
};

/* 0, or -1 with the reason in @error: no memory for the largest size. Other fields are set by the
 * caller before. */
int measure_open(struct measure *m, char *error, size_t error_bytes);
void measure_close(struct measure *m);

/* @n unchecked operations of this size. All ranks. 0, or -1 once the run has failed. Thread: main;
 * blocks. */
int measure_warmup(struct measure *m, const struct measure_case *c, int n);
/*
 * Measure; @cell is complete on rank 0 (times and wrong counts of all ranks), @iters the iterations
 * made. With -I the cell's arrays are allocated, the caller frees. All ranks. 0, or -1 once the run
 * has failed. Thread: main; blocks.
 */
int measure_run(struct measure *m, const struct measure_case *c, struct report_cell *cell,
                int *iters);
/* Counts of a case, for the row. */
void measure_counts_get(const struct measure *m, const struct measure_case *c,
                        struct algo_counts *counts);

#endif
