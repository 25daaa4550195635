/* CUDA's driver as far as NCCL, the plugin and the software fabric call it. All of it is of the
 * published interface. */
#include <cuda.h>

#include "tests/nccl/standin/gpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERSION 13000

static int contexts[GPUS_MAX]; /* a context is the address of its device's */
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;

static CUcontext context_of(int dev)
{
    return (CUcontext)&contexts[dev];
}

static int dev_of(CUcontext ctx)
{
    return (int)((int *)ctx - contexts);
}

int gpu_attribute(int attribute);
int gpu_attribute(int attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return gpu_sm() / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return gpu_sm() % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return gpu_sm() >= 90 ? 232448 : 166912;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 108;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        return gpu_dmabuf();
    default:
        gpu_log("attribute %d of a GPU: 0", attribute);
        return 0;
    }
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *v)
{
    *v = VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult e, const char **text)
{
    static _Thread_local char s[48];

    snprintf(s, sizeof(s), e ? "error %d of the stand-in for CUDA" : "no error", (int)e);
    *text = s;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult e, const char **text)
{
    return cuGetErrorString(e, text);
}

CUresult cuDeviceGetCount(int *n)
{
    *n = gpu_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    *dev = ordinal;
    return ordinal >= 0 && ordinal < gpu_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    (void)dev;
    snprintf(name, (size_t)len, "no GPU, sm_%d", gpu_sm());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = (char)(dev + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice dev)
{
    (void)dev;
    *value = gpu_attribute((int)a);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
    snprintf(id, (size_t)len, "%s", gpu_busid(dev));
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    *can = dev != peer;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    *ctx = context_of(dev);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    (void)dev;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    (void)dev;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    *ctx = context_of(gpu_current);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    if (ctx) {
        gpu_current = dev_of(ctx);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
    *dev = gpu_current;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    if (depth == 16) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stack[depth++] = context_of(gpu_current);
    gpu_current = dev_of(ctx);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
    if (depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ctx) {
        *ctx = context_of(gpu_current);
    }
    gpu_current = dev_of(stack[--depth]);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    (void)peer;
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    gpu_sync_all();
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t len)
{
    *ptr = (CUdeviceptr)gpu_alloc(len, GPU_MEM_DEVICE, gpu_current);
    return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr ptr)
{
    return gpu_free((void *)ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **ptr, size_t len, unsigned flags)
{
    (void)flags;
    *ptr = gpu_alloc(len, GPU_MEM_HOST, gpu_current);
    return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *ptr)
{
    return gpu_free(ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *len, CUdeviceptr ptr)
{
    struct gpu_mem m;

    if (!gpu_find((void *)ptr, &m)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base) {
        *base = (CUdeviceptr)m.addr;
    }
    if (len) {
        *len = m.len;
    }
    return CUDA_SUCCESS;
}

/* The only one of the driver's VMM that NCCL (2.30) calls without looking whether it is there. */
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags flags)
{
    (void)prop;
    (void)flags;
    *bytes = 2u << 20;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute a, CUdeviceptr ptr)
{
    struct gpu_mem m;

    if (!gpu_find((void *)ptr, &m)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)a) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = m.kind == GPU_MEM_DEVICE || m.kind == GPU_MEM_IPC
                                 ? CU_MEMORYTYPE_DEVICE
                                 : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = m.dev;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)value = m.fd >= 0;
        return CUDA_SUCCESS;
    default:
        gpu_log("attribute %d of a pointer: not here", (int)a);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t len,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    (void)flags;
    if (!gpu_dmabuf() || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *(int *)handle = gpu_export((void *)ptr, len);
    return *(int *)handle >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream s)
{
    gpu_copy((void *)dst, (void *)src, len, gpu_stream_of(s));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t len, CUstream s)
{
    gpu_copy((void *)dst, src, len, gpu_stream_of(s));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t len, CUstream s)
{
    gpu_copy(dst, (void *)src, len, gpu_stream_of(s));
    return CUDA_SUCCESS;
}

/* ---- streams, events, kernels ---- */

CUresult cuStreamCreate(CUstream *s, unsigned flags)
{
    (void)flags;
    *s = (CUstream)gpu_stream_new(gpu_current);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream s)
{
    gpu_stream_free((struct gpu_stream *)s);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream s)
{
    gpu_sync(gpu_stream_of(s));
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    (void)flags;
    *e = (CUevent)gpu_event_new();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent e)
{
    gpu_event_free((struct gpu_event *)e);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    gpu_event_record((struct gpu_event *)e, gpu_stream_of(s));
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent e)
{
    return gpu_event_done((struct gpu_event *)e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
                        void **extra)
{
    (void)gy;
    (void)gz;
    (void)bx;
    (void)by;
    (void)bz;
    (void)shared;
    return gpu_launch((const struct gpu_kernel *)f, gx, params, extra, gpu_stream_of(s))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    return gpu_launch((const struct gpu_kernel *)f, c->gridDimX, params, extra,
                      gpu_stream_of(c->hStream))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
