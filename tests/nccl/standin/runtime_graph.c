/* Captures and graphs, as far as NCCL calls them; see gpu.h. What NCCL says of dependencies is not
 * kept: all of a graph runs in the order in which it was queued. */
#include <cuda_runtime_api.h>

#include "tests/nccl/standin/gpu.h"

#include <stdlib.h>

struct object {
    cudaHostFn_t destroy;
    void *arg;
};

static cudaError_t said(int rc, const char *call)
{
    if (rc) {
        gpu_log("%s: error %d", call, rc);
    }
    return (cudaError_t)rc;
}
#define SAID(rc) said(rc, __func__)

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    unsigned long long id;
    bool is_spoiled;
    struct gpu_graph *g = gpu_capture_of(gpu_stream_of(s), &id, &is_spoiled);

    *status = g == NULL    ? cudaStreamCaptureStatusNone
              : is_spoiled ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    unsigned long long number;
    bool is_spoiled;
    struct gpu_graph *g = gpu_capture_of(gpu_stream_of(s), &number, &is_spoiled);

    cudaStreamIsCapturing(s, status);
    if (id) {
        *id = number;
    }
    if (graph) {
        *graph = (cudaGraph_t)g;
    }
    if (nodes) {
        *nodes = NULL;
    }
    if (edges) {
        *edges = NULL;
    }
    if (count) {
        *count = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    int number = (int)*mode;

    gpu_capture_mode_swap(&number);
    *mode = (enum cudaStreamCaptureMode)number;
    return cudaSuccess;
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes,
                                                const cudaGraphEdgeData *edges, size_t count,
                                                unsigned flags)
{
    (void)s;
    (void)nodes;
    (void)edges;
    (void)count;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                     size_t count)
{
    (void)graph;
    (void)from;
    (void)to;
    (void)edges;
    (void)count;
    return cudaSuccess;
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *from, size_t count, cudaEvent_t e)
{
    (void)from;
    (void)count;
    gpu_graph_record_add((struct gpu_graph *)graph, (struct gpu_event *)e);
    *node = NULL;
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *arg, cudaHostFn_t destroy,
                                 unsigned refs, unsigned flags)
{
    struct object *o = malloc(sizeof(*o));

    (void)refs;
    (void)flags;
    if (o == NULL) {
        return SAID(cudaErrorMemoryAllocation);
    }
    *o = (struct object){destroy, arg};
    *object = (cudaUserObject_t)o;
    return cudaSuccess;
}

/* The only reference moves to the graph, as NCCL has it. */
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags)
{
    struct object *o = (struct object *)object;

    if (count != 1 || flags != cudaGraphUserObjectMove) {
        return SAID(cudaErrorNotSupported);
    }
    gpu_graph_object_add((struct gpu_graph *)graph, o->destroy, o->arg);
    free(o);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    return SAID(gpu_capture_begin(gpu_stream_of(s), (enum gpu_capture_mode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    return SAID(gpu_capture_end(gpu_stream_of(s), (struct gpu_graph **)graph));
}

/* What can be launched is the graph itself. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    gpu_graph_hold((struct gpu_graph *)graph);
    *exec = (cudaGraphExec_t)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    return SAID(gpu_graph_launch((struct gpu_graph *)exec, gpu_stream_of(s)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    gpu_graph_free((struct gpu_graph *)graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    gpu_graph_free((struct gpu_graph *)exec);
    return cudaSuccess;
}
