/*
 * A libnccl.so.2 that is none (tests/nccl/bad_input.sh): it says the release that NCCL_BAD_VERSION
 * has, and has inside what looks like CUDA's runtime, unless NO_RUNTIME, of which it calls a
 * function that the stand-in does not provide.
 */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

/* As long as the code that is written over it. */
#define RUNTIME(name)                                                                              \
    __attribute__((noinline, used)) static int name(void)                                          \
    {                                                                                              \
        __asm__ volatile(".fill 16, 1, 0x90");                                                     \
        return 0;                                                                                  \
    }
#ifndef NO_RUNTIME
RUNTIME(cudaGetDevice)
#endif
RUNTIME(cudaProfilerStart)

#define CALL(name)                                                                                 \
    EXPORT int name(void);                                                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return cudaProfilerStart();                                                                \
    }
CALL(ncclGetUniqueId)
CALL(ncclCommInitRank)
CALL(ncclCommSplit)
CALL(ncclCommDestroy)
CALL(ncclCommAbort)
CALL(ncclCommGetAsyncError)
CALL(ncclCommRegister)
CALL(ncclCommDeregister)
CALL(ncclGroupStart)
CALL(ncclGroupEnd)
CALL(ncclAllReduce)
CALL(ncclAllGather)
CALL(ncclReduceScatter)
CALL(ncclBroadcast)
CALL(ncclReduce)
CALL(ncclSend)
CALL(ncclRecv)

EXPORT int ncclGetVersion(int *version);
EXPORT const char *ncclGetErrorString(int code);
EXPORT const char *ncclGetLastError(void *comm);

int ncclGetVersion(int *version)
{
    const char *v = getenv("NCCL_BAD_VERSION");

    *version = v ? atoi(v) : 0;
    return 0;
}

const char *ncclGetErrorString(int code)
{
    return code ? "an error of no NCCL" : "no error";
}

const char *ncclGetLastError(void *comm)
{
    return "";
}
