/*
 * NCCL and CUDA's driver, opened at run time: the released libnccl.so.2, and below it the stand-in
 * for CUDA or the real one. Takes the place of r2_perf's plugin.c: to the driver, the library is
 * the plugin.
 */
#ifndef NCCL_RANK_LIB_H
#define NCCL_RANK_LIB_H

#include <cuda.h>
#include <nccl.h>
#include <stddef.h>

/* clang-format off */
/* Calls of NCCL's; each is what nccl.h says of the function of that name. */
#define NCCL_CALLS(X)                                                                              \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId) X(ncclCommInitRank) X(ncclCommSplit) X(ncclCommDestroy) X(ncclCommAbort)    \
        X(ncclCommGetAsyncError) X(ncclGetErrorString) X(ncclGetLastError) X(ncclCommRegister)     \
            X(ncclCommDeregister) X(ncclGroupStart) X(ncclGroupEnd) X(ncclAllReduce)               \
                X(ncclAllGather) X(ncclReduceScatter) X(ncclBroadcast) X(ncclReduce) X(ncclSend)   \
                    X(ncclRecv)
/* Calls of the driver's, by the names that cuda.h makes of them. */
#define CUDA_CALLS(X)                                                                              \
    X(cuInit)                                                                                      \
    X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetPCIBusId) X(cuDevicePrimaryCtxRetain)          \
        X(cuCtxSetCurrent) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemcpyHtoDAsync)         \
            X(cuMemcpyDtoHAsync) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuEventCreate)           \
                X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery)                             \
                    X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate)            \
                        X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy)                       \
                            X(cuThreadExchangeStreamCaptureMode)
/* clang-format on */

struct nccl_lib {
#define MEMBER(name) __typeof__(&name) name;
    NCCL_CALLS(MEMBER)
    CUDA_CALLS(MEMBER)
#undef MEMBER
    int version, gpus;
};
/* Filled by plugin_open(); constant from then on. */
extern struct nccl_lib nccl_lib;

/* "6 remote process exited or there was a network error: what NCCL said last" */
void nccl_lib_error_print(ncclResult_t code, ncclComm_t comm, char *text, size_t bytes);

#endif
