/* Captures and graphs of CUDA's driver, as far as a test program and libr2coll.so call them. */
#include <cuda.h>

#include "tests/nccl/standin/gpu.h"

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
    unsigned long long id;
    bool is_spoiled;
    struct gpu_graph *g = gpu_capture_of(gpu_stream_of(s), &id, &is_spoiled);

    *status = g == NULL    ? CU_STREAM_CAPTURE_STATUS_NONE
              : is_spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    int number = (int)*mode;

    gpu_capture_mode_swap(&number);
    *mode = (CUstreamCaptureMode)number;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    return (CUresult)gpu_capture_begin(gpu_stream_of(s), (enum gpu_capture_mode)mode);
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    return (CUresult)gpu_capture_end(gpu_stream_of(s), (struct gpu_graph **)graph);
}

/* What can be launched is the graph itself. */
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    gpu_graph_hold((struct gpu_graph *)graph);
    *exec = (CUgraphExec)graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream s)
{
    return (CUresult)gpu_graph_launch((struct gpu_graph *)exec, gpu_stream_of(s));
}

CUresult cuGraphDestroy(CUgraph graph)
{
    gpu_graph_free((struct gpu_graph *)graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    gpu_graph_free((struct gpu_graph *)exec);
    return CUDA_SUCCESS;
}
