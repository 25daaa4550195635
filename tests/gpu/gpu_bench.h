/* One rank of gpu_coll. */
#ifndef R2_GPU_BENCH_H
#define R2_GPU_BENCH_H

#include <stddef.h>

struct gpu_bench_opts {
    const char *op;
    size_t bytes;
    int iters, rank, nranks, meet_fd, device;
};

/* Returns the exit status: 0; 1 a fault was not done, or something failed; 2 CUDA; 3 NCCL; 7 wrong
 * data. Blocks. */
int gpu_bench_run(const struct gpu_bench_opts *o);
/* The schedule's options, for all ranks; 0, or -1 with a line on stderr. */
int gpu_bench_fault_add(const char *text);
int gpu_bench_after_set(const char *text);
int gpu_bench_json_set(const char *text);

#endif
