/* CUDA's runtime as far as NCCL and a test program call it; see gpu.h. Kernels: runtime_kernels.c.
 * Everything here is of the published interface. */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "tests/nccl/standin/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 13000

static _Thread_local cudaError_t last;

static cudaError_t fail(cudaError_t e, const char *call)
{
    gpu_log("%s: error %d", call, e);
    return last = e;
}
#define FAIL(e) fail(e, __func__)

/* Returns CUDA's error where this call may not be made while a capture goes on. */
#define ALLOWED(check)                                                                             \
    do {                                                                                           \
        int rc_ = check;                                                                           \
        if (rc_) {                                                                                 \
            return FAIL((cudaError_t)rc_);                                                         \
        }                                                                                          \
    } while (0)

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = gpu_count();
    return *count > 0 ? cudaSuccess : FAIL(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *dev)
{
    *dev = gpu_current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int dev)
{
    if (!gpu_has(dev)) {
        return FAIL(cudaErrorInvalidDevice);
    }
    gpu_current = dev;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int dev, unsigned device_flags, unsigned flags)
{
    (void)dev;
    (void)device_flags;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ALLOWED(gpu_unsafe(__func__));
    gpu_sync_all();
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int dev)
{
    if (!gpu_has(dev)) {
        return FAIL(cudaErrorInvalidDevice);
    }
    *value = gpu_attribute((int)attribute);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev)
{
    unsigned domain = 0, bus = 0, device = 0;

    if (!gpu_has(dev)) {
        return FAIL(cudaErrorInvalidDevice);
    }
    memset(p, 0, sizeof(*p));
    sscanf(gpu_busid(dev), "%x:%x:%x", &domain, &bus, &device);
    gpu_name_copy(p->name, sizeof(p->name));
    gpu_uuid_copy(p->uuid.bytes, dev);
    p->totalGlobalMem = 8ull << 30;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)gpu_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->major = gpu_sm() / 10;
    p->minor = gpu_sm() % 10;
    p->multiProcessorCount = gpu_attribute(cudaDevAttrMultiProcessorCount);
    p->unifiedAddressing = 1;
    p->canMapHostMemory = 1;
    p->asyncEngineCount = 2;
    p->pciDomainID = (int)domain;
    p->pciBusID = (int)bus;
    p->pciDeviceID = (int)device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev)
{
    return gpu_busid_copy(id, len, dev) ? cudaSuccess : FAIL(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetByPCIBusId(int *dev, const char *id)
{
    return gpu_busid_find(id, dev) ? cudaSuccess : FAIL(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int dev, int peer)
{
    *can = gpu_reaches(dev, peer);
    return gpu_has(dev) && gpu_has(peer) ? cudaSuccess : FAIL(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    (void)limit;
    (void)value;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    (void)limit;
    *value = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = VERSION;
    return cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;

    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorString(cudaError_t e)
{
    static _Thread_local char text[48];

    if (e == cudaSuccess) {
        return "no error";
    }
    snprintf(text, sizeof(text), "error %d of the stand-in for CUDA", (int)e);
    return text;
}

const char *cudaGetErrorName(cudaError_t e)
{
    return cudaGetErrorString(e);
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **ptr, size_t len)
{
    ALLOWED(gpu_unsafe(__func__));
    if (len == 0) {
        *ptr = NULL;
        return cudaSuccess;
    }
    *ptr = gpu_alloc(len, GPU_MEM_DEVICE, gpu_current);
    return *ptr ? cudaSuccess : FAIL(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *ptr)
{
    if (ptr == NULL) {
        return cudaSuccess;
    }
    ALLOWED(gpu_unsafe(__func__));
    gpu_sync_all();
    return gpu_free(ptr) ? cudaSuccess : FAIL(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **ptr, size_t len, unsigned flags)
{
    ALLOWED(gpu_unsafe(__func__));
    (void)flags;
    *ptr = gpu_alloc(len, GPU_MEM_HOST, gpu_current);
    return *ptr ? cudaSuccess : FAIL(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **ptr, size_t len)
{
    return cudaHostAlloc(ptr, len, 0);
}

/* NCCL calls it in whatever mode a thread is; whether CUDA allows that during a capture, nobody
 * says. */
cudaError_t cudaFreeHost(void *ptr)
{
    return ptr == NULL || gpu_free(ptr) ? cudaSuccess : FAIL(cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void *ptr, size_t len, unsigned flags)
{
    ALLOWED(gpu_unsafe(__func__));
    (void)flags;
    return gpu_note(ptr, len, GPU_MEM_REGISTERED, gpu_current) ? cudaSuccess
                                                               : FAIL(cudaErrorMemoryAllocation);
}

cudaError_t cudaHostUnregister(void *ptr)
{
    return gpu_free(ptr) ? cudaSuccess : FAIL(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags)
{
    (void)flags;
    *dev = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *ptr)
{
    struct gpu_mem m;

    memset(a, 0, sizeof(*a));
    if (!gpu_find(ptr, &m)) {
        a->type = cudaMemoryTypeUnregistered;
        a->device = -2;
        a->hostPointer = (void *)ptr;
        return cudaSuccess;
    }
    a->type = gpu_is_device_memory(&m) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    a->device = m.dev;
    a->devicePointer = (void *)ptr;
    a->hostPointer = a->type == cudaMemoryTypeHost ? (void *)ptr : NULL;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t len, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    (void)kind;
    gpu_copy(dst, src, len, gpu_stream_of(s));
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t len, enum cudaMemcpyKind kind)
{
    ALLOWED(gpu_unsafe(__func__));
    cudaMemcpyAsync(dst, src, len, kind, NULL);
    gpu_sync(gpu_stream_of(NULL));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t len, cudaStream_t s)
{
    gpu_set(dst, value, len, gpu_stream_of(s));
    return cudaSuccess;
}

cudaError_t cudaMemset(void *dst, int value, size_t len)
{
    ALLOWED(gpu_unsafe(__func__));
    gpu_set(dst, value, len, gpu_stream_of(NULL));
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *left = gpu_left(gpu_current);
    *all = GPU_MEMORY;
    return cudaSuccess;
}

/* Pools are malloc and free in the stream's order; the pool itself is nothing. */
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    (void)props;
    *pool = malloc(1);
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value)
{
    (void)pool;
    (void)a;
    (void)value;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **ptr, size_t len, cudaStream_t s)
{
    (void)s;
    *ptr = gpu_alloc(len, GPU_MEM_DEVICE, gpu_current);
    return *ptr ? cudaSuccess : FAIL(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t len, cudaMemPool_t pool, cudaStream_t s)
{
    (void)pool;
    return cudaMallocAsync(ptr, len, s);
}

static void free_run(void *arg)
{
    gpu_free(*(void **)arg);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t s)
{
    void **box = malloc(sizeof(*box));

    if (box == NULL) {
        return FAIL(cudaErrorMemoryAllocation);
    }
    *box = ptr;
    gpu_push(gpu_stream_of(s), free_run, box, true);
    return cudaSuccess;
}

/* Memory of another process on this machine: by its file. */
struct ipc {
    int pid, fd;
    size_t len;
};

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
    struct gpu_mem m;
    struct ipc ipc;

    if (!gpu_find(ptr, &m) || m.fd < 0) {
        return FAIL(cudaErrorInvalidValue);
    }
    ipc = (struct ipc){(int)getpid(), m.fd, m.len};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &ipc, sizeof(ipc));
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle, unsigned flags)
{
    struct ipc ipc;

    (void)flags;
    memcpy(&ipc, &handle, sizeof(ipc));
    *ptr = gpu_import(ipc.pid, ipc.fd, ipc.len, gpu_current);
    return *ptr ? cudaSuccess : FAIL(cudaErrorInvalidValue);
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    return gpu_free(ptr) ? cudaSuccess : FAIL(cudaErrorInvalidValue);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    *s = (cudaStream_t)gpu_stream_new(gpu_current);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s)
{
    return cudaStreamCreateWithFlags(s, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    gpu_stream_free((struct gpu_stream *)s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    ALLOWED(gpu_unsafe_on(__func__, gpu_stream_of(s)));
    gpu_sync(gpu_stream_of(s));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    ALLOWED(gpu_unsafe_on(__func__, gpu_stream_of(s)));
    return gpu_idle(gpu_stream_of(s)) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    ALLOWED(
        gpu_event_wait((struct gpu_event *)e, gpu_stream_of(s), flags == cudaEventWaitExternal));
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long *id)
{
    *id = (unsigned long long)(uintptr_t)s;
    return cudaSuccess;
}

struct host_call {
    cudaHostFn_t fn;
    void *arg;
};

static void host_run(void *arg)
{
    struct host_call *h = arg;

    h->fn(h->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    struct host_call *h = malloc(sizeof(*h));

    *h = (struct host_call){fn, arg};
    gpu_push(gpu_stream_of(s), host_run, h, false);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = (cudaEvent_t)gpu_event_new();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    gpu_event_free((struct gpu_event *)e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    gpu_event_record((struct gpu_event *)e, gpu_stream_of(s));
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    ALLOWED(gpu_unsafe_at(__func__, (struct gpu_event *)e));
    return gpu_event_done((struct gpu_event *)e) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    ALLOWED(gpu_unsafe_at(__func__, (struct gpu_event *)e));
    gpu_event_sync((struct gpu_event *)e);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)((gpu_event_time((struct gpu_event *)to) -
                   gpu_event_time((struct gpu_event *)from)) *
                  1e3);
    return cudaSuccess;
}
