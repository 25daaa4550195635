/* Functions of CUDA's runtime that NCCL or nccl-tests is linked with and that are not here: the
 * process ends with the name of the one that is called. cuda_runtime_api.h is left out: the
 * arguments do not matter. */
#include "tests/nccl/standin/gpu.h"

#define ABSENT(name)                                                                               \
    void name(void);                                                                               \
    void name(void)                                                                                \
    {                                                                                              \
        gpu_die("%s is called, and the stand-in does not have it", #name);                         \
    }

ABSENT(cudaGraphAddEventWaitNode)
ABSENT(cudaGraphAddHostNode)
ABSENT(cudaGraphAddKernelNode)
ABSENT(cudaGraphExecUpdate)
ABSENT(cudaMallocManaged)
ABSENT(cudaMemcpyBatchAsync)
ABSENT(cudaStreamAddCallback)
