/*
 * CUDA's driver and NCCL, opened at run time: this is built on machines that have neither. Declared
 * here is what gpu_coll calls, by their published interfaces; sizes and values have been the same
 * since NCCL 2.8 and CUDA 3.2.
 */
#ifndef R2_GPU_API_H
#define R2_GPU_API_H

#include <stddef.h>
#include <stdint.h>

#define GPU_NCCL_FLOAT32  7
#define GPU_NCCL_SUM      0
#define GPU_NCCL_ID_BYTES 128

struct gpu_nccl_id {
    char internal[GPU_NCCL_ID_BYTES];
};

/* CUDA's calls return 0 or an error; a pointer to GPU memory is a number. */
struct gpu_cuda {
    int (*init)(unsigned flags);
    int (*driver_get_version)(int *version);
    int (*device_get)(int *device, int ordinal);
    int (*device_get_name)(char *name, int len, int device);
    int (*primary_ctx_retain)(void **ctx, int device);
    int (*ctx_set_current)(void *ctx);
    int (*mem_alloc)(uint64_t *ptr, size_t bytes);
    int (*memcpy_to)(uint64_t dst, const void *src, size_t bytes);
    int (*memcpy_from)(void *dst, uint64_t src, size_t bytes);
    int (*memset_d8)(uint64_t dst, unsigned char value, size_t bytes);
    int (*ctx_synchronize)(void);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_query)(void *stream); /* GPU_CUDA_NOT_READY while there is work */
    int (*get_error_string)(int error, const char **text);
};
#define GPU_CUDA_NOT_READY           600
#define GPU_CUDA_STREAM_NON_BLOCKING 1

struct gpu_nccl {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct gpu_nccl_id *id);
    int (*comm_init_rank)(void **comm, int nranks, struct gpu_nccl_id id, int rank);
    int (*comm_destroy)(void *comm);
    int (*comm_get_async_error)(void *comm, int *error);
    const char *(*get_error_string)(int error);
    int (*all_reduce)(const void *s, void *r, size_t n, int type, int op, void *comm, void *stream);
    int (*all_gather)(const void *s, void *r, size_t n, int type, void *comm, void *stream);
    int (*reduce_scatter)(const void *s, void *r, size_t n, int type, int op, void *comm,
                          void *stream);
    int (*broadcast)(const void *s, void *r, size_t n, int type, int root, void *comm,
                     void *stream);
    int (*send)(const void *s, size_t n, int type, int peer, void *comm, void *stream);
    int (*recv)(void *r, size_t n, int type, int peer, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
};

extern struct gpu_cuda gpu_cuda;
extern struct gpu_nccl gpu_nccl;

/* Fill both. 0, or -1 with a line on stderr that names the library or the symbol. Not thread safe.
 */
int gpu_api_load(void);

/* One line for a failed CUDA call; returns -1. */
int gpu_cuda_fail(const char *what, int error);

#endif
