#include "coll_real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/r2_symbols.h"

#define ROW(table, field, name)                                                                    \
    {                                                                                              \
        name, offsetof(struct table, field), 0                                                     \
    }
#define OPTIONAL(table, field, name)                                                               \
    {                                                                                              \
        name, offsetof(struct table, field), 1                                                     \
    }

static struct coll_real real;
static struct coll_cuda cuda;
static const char *real_missing = "", *cuda_missing = "";

static const struct r2_symbol real_rows[] = {
    ROW(coll_real, get_version, "ncclGetVersion"),
    ROW(coll_real, get_unique_id, "ncclGetUniqueId"),
    ROW(coll_real, init_rank, "ncclCommInitRank"),
    ROW(coll_real, init_rank_config, "ncclCommInitRankConfig"),
    ROW(coll_real, finalize, "ncclCommFinalize"),
    ROW(coll_real, destroy, "ncclCommDestroy"),
    ROW(coll_real, abort, "ncclCommAbort"),
    OPTIONAL(coll_real, revoke, "ncclCommRevoke"),
    OPTIONAL(coll_real, shrink, "ncclCommShrink"),
    ROW(coll_real, async_error, "ncclCommGetAsyncError"),
    ROW(coll_real, group_start, "ncclGroupStart"),
    ROW(coll_real, group_end, "ncclGroupEnd"),
    OPTIONAL(coll_real, group_simulate_end, "ncclGroupSimulateEnd"),
    ROW(coll_real, all_reduce, "ncclAllReduce"),
    ROW(coll_real, broadcast, "ncclBroadcast"),
    ROW(coll_real, bcast, "ncclBcast"),
    ROW(coll_real, reduce, "ncclReduce"),
    ROW(coll_real, all_gather, "ncclAllGather"),
    ROW(coll_real, reduce_scatter, "ncclReduceScatter"),
    ROW(coll_real, send, "ncclSend"),
    ROW(coll_real, recv, "ncclRecv"),
    OPTIONAL(coll_real, all_to_all, "ncclAlltoAll"),
    OPTIONAL(coll_real, gather, "ncclGather"),
    OPTIONAL(coll_real, scatter, "ncclScatter"),
};

static const struct r2_symbol cuda_rows[] = {
    ROW(coll_cuda, ctx_get_current, "cuCtxGetCurrent"),
    ROW(coll_cuda, ctx_set_current, "cuCtxSetCurrent"),
    ROW(coll_cuda, stream_create, "cuStreamCreate"),
    ROW(coll_cuda, stream_destroy, "cuStreamDestroy_v2"),
    ROW(coll_cuda, stream_is_capturing, "cuStreamIsCapturing"),
    ROW(coll_cuda, stream_wait_event, "cuStreamWaitEvent"),
    ROW(coll_cuda, event_create, "cuEventCreate"),
    ROW(coll_cuda, event_record, "cuEventRecord"),
    ROW(coll_cuda, event_query, "cuEventQuery"),
    ROW(coll_cuda, event_destroy, "cuEventDestroy_v2"),
    ROW(coll_cuda, capture_mode, "cuThreadExchangeStreamCaptureMode"),
    ROW(coll_cuda, mem_get_info, "cuMemGetInfo_v2"),
};

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* NULL, or what is missing. */
static const char *calls_find(void *lib, const char *name, const struct r2_symbol *rows, size_t n,
                              void *table)
{
    return lib != NULL ? r2_symbols_find(lib, rows, n, table) : name;
}

/* The next library that has NCCL's calls. A program that opens NCCL by itself, out of the loader's
 * sight, has it under its name. */
static void real_find(void)
{
    void *lib = dlsym(RTLD_NEXT, "ncclCommInitRank") != NULL
                    ? RTLD_NEXT
                    : dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);

    real_missing = calls_find(lib, "libnccl.so.2", real_rows, COUNT(real_rows), &real);
    if (real_missing != NULL) {
        fprintf(stderr, "libr2coll.so: NCCL is not there: %s is missing\n", real_missing);
    }
}

const struct coll_real *coll_real_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, real_find);
    return real_missing == NULL ? &real : NULL;
}

bool coll_real_version_defers_aborts(int version)
{
    return version >= 22800 && version < 23100;
}

bool coll_real_defers_aborts(void)
{
    const struct coll_real *r = coll_real_get();
    int version = 0;

    return r != NULL && r->get_version(&version) == COLL_SUCCESS &&
           coll_real_version_defers_aborts(version);
}

static void cuda_find(void)
{
    cuda_missing = calls_find(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "libcuda.so.1",
                              cuda_rows, COUNT(cuda_rows), &cuda);
}

const struct coll_cuda *coll_cuda_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, cuda_find);
    return cuda_missing == NULL ? &cuda : NULL;
}
