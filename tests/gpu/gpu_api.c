#include "tests/gpu/gpu_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct gpu_cuda gpu_cuda;
struct gpu_nccl gpu_nccl;

struct row {
    const char *name;
    size_t offset;
};

#define CUDA(symbol, field)                                                                        \
    {                                                                                              \
        symbol, offsetof(struct gpu_cuda, field)                                                   \
    }
#define NCCL(symbol, field)                                                                        \
    {                                                                                              \
        symbol, offsetof(struct gpu_nccl, field)                                                   \
    }
static const struct row cuda_rows[] = {
    CUDA("cuInit", init),
    CUDA("cuDriverGetVersion", driver_get_version),
    CUDA("cuDeviceGet", device_get),
    CUDA("cuDeviceGetName", device_get_name),
    CUDA("cuDevicePrimaryCtxRetain", primary_ctx_retain),
    CUDA("cuCtxSetCurrent", ctx_set_current),
    CUDA("cuMemAlloc_v2", mem_alloc),
    CUDA("cuMemcpyHtoD_v2", memcpy_to),
    CUDA("cuMemcpyDtoH_v2", memcpy_from),
    CUDA("cuMemsetD8_v2", memset_d8),
    CUDA("cuCtxSynchronize", ctx_synchronize),
    CUDA("cuStreamCreate", stream_create),
    CUDA("cuStreamQuery", stream_query),
    CUDA("cuGetErrorString", get_error_string),
    {NULL, 0},
};
static const struct row nccl_rows[] = {
    NCCL("ncclGetVersion", get_version),
    NCCL("ncclGetUniqueId", get_unique_id),
    NCCL("ncclCommInitRank", comm_init_rank),
    NCCL("ncclCommDestroy", comm_destroy),
    NCCL("ncclCommGetAsyncError", comm_get_async_error),
    NCCL("ncclGetErrorString", get_error_string),
    NCCL("ncclAllReduce", all_reduce),
    NCCL("ncclAllGather", all_gather),
    NCCL("ncclReduceScatter", reduce_scatter),
    NCCL("ncclBroadcast", broadcast),
    NCCL("ncclSend", send),
    NCCL("ncclRecv", recv),
    NCCL("ncclGroupStart", group_start),
    NCCL("ncclGroupEnd", group_end),
    {NULL, 0},
};

/* Fills the function pointers of @table. A library stays open. */
static int library_load(const char *name, const struct row *row, void *table)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);

    if (lib == NULL) {
        fprintf(stderr, "gpu_coll: %s\n", dlerror());
        return -1;
    }
    for (; row->name != NULL; row++) {
        void *f = dlsym(lib, row->name);

        if (f == NULL) {
            fprintf(stderr, "gpu_coll: %s has no %s\n", name, row->name);
            return -1;
        }
        memcpy((char *)table + row->offset, &f, sizeof(f));
    }
    return 0;
}

int gpu_api_load(void)
{
    int cuda = library_load("libcuda.so.1", cuda_rows, &gpu_cuda);
    int nccl = library_load("libnccl.so.2", nccl_rows, &gpu_nccl);

    return cuda == 0 && nccl == 0 ? 0 : -1;
}

int gpu_cuda_fail(const char *what, int error)
{
    const char *text = NULL;

    gpu_cuda.get_error_string(error, &text);
    fprintf(stderr, "gpu_coll: %s: CUDA error %d, %s\n", what, error, text ? text : "unknown");
    return -1;
}
