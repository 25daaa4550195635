/*
 * Collectives through NCCL's public calls, their data and what must come out. Out of place; float32
 * that holds small whole numbers, so that sums are exact in any order; what an element is depends
 * on rank, place and @rep, so that nothing old passes.
 */
#ifndef R2_GPU_OPS_H
#define R2_GPU_OPS_H

#include <stddef.h>

/* Bytes behind a receive buffer that must stay as they are. */
#define GPU_GUARD_BYTES 4096
#define GPU_POISON      0xff

struct gpu_op;

struct gpu_job {
    const struct gpu_op *op;
    int rank, nranks;
    size_t share; /* elements: of a rank's block where the operation cuts into blocks, else all */
    void *comm, *stream;
    void *send, *recv; /* GPU memory */
    float *host;       /* as large as the larger of both, and the guard */
};

struct gpu_op {
    const char *name;
    int blocks_sent, blocks_received;        /* 1: a share; 2: a share for each rank */
    double bus;                              /* busbw = algbw x this ... */
    int bus_is_ring;                         /* ... x (n-1)/n */
    int (*start)(const struct gpu_job *job); /* NCCL's result */
    float (*expect)(const struct gpu_job *job, size_t i, int rep);
};

/* By name; NULL: there is none. */
const struct gpu_op *gpu_op_find(const char *name);
/* Names, for a message. */
const char *gpu_op_names(void);

/* Elements sent and received by a rank; elements that the size of the operation is made of. */
size_t gpu_op_sent(const struct gpu_job *job);
size_t gpu_op_received(const struct gpu_job *job);

/* New data, and a receive buffer without any. 0, or -1 with a line on stderr. Blocks. */
int gpu_job_fill(const struct gpu_job *job, int rep);
/* Elements that are wrong, and 1 for a guard that was written; -1 with a line on stderr. Blocks. */
long long gpu_job_check(const struct gpu_job *job, int rep);

#endif
