/* CUDA's driver as far as NCCL, the plugin and the software fabric call it. All of it is of the
 * published interface. */
#include <cuda.h>

#include "tests/nccl/standin/gpu.h"

#include <stdio.h>

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

/* Returns CUDA's error where this call may not be made while a capture goes on. */
#define ALLOWED(check)                                                                             \
    do {                                                                                           \
        int rc_ = check;                                                                           \
        if (rc_) {                                                                                 \
            return (CUresult)rc_;                                                                  \
        }                                                                                          \
    } while (0)

static CUresult of_device(bool is)
{
    return is ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
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
    return of_device(gpu_has(ordinal));
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    gpu_name_copy(name, (size_t)len);
    return of_device(gpu_has(dev));
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    gpu_uuid_copy(uuid->bytes, dev);
    return of_device(gpu_has(dev));
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice dev)
{
    *value = gpu_attribute((int)a);
    return of_device(gpu_has(dev));
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
    return of_device(gpu_busid_copy(id, len, dev));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    *can = gpu_reaches(dev, peer);
    return of_device(gpu_has(dev) && gpu_has(peer));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    if (gpu_has(dev)) {
        *ctx = context_of(dev);
    }
    return of_device(gpu_has(dev));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return of_device(gpu_has(dev));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return of_device(gpu_has(dev));
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
    ALLOWED(gpu_unsafe(__func__));
    gpu_sync_all();
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t len)
{
    ALLOWED(gpu_unsafe(__func__));
    *ptr = (CUdeviceptr)gpu_alloc(len, GPU_MEM_DEVICE, gpu_current);
    return *ptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr ptr)
{
    ALLOWED(gpu_unsafe(__func__));
    return gpu_free((void *)ptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo(size_t *left, size_t *all)
{
    *left = gpu_left(gpu_current);
    *all = GPU_MEMORY;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **ptr, size_t len, unsigned flags)
{
    ALLOWED(gpu_unsafe(__func__));
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
        *(unsigned *)value = gpu_is_device_memory(&m) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
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

/* The address of a side of a copy of rows; 0: it is none (an array). */
static CUdeviceptr rows_begin(CUmemorytype type, const void *host, CUdeviceptr device, size_t x,
                              size_t y, size_t pitch)
{
    CUdeviceptr at = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device;

    return type == CU_MEMORYTYPE_ARRAY || at == 0 ? 0 : at + y * pitch + x;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream s)
{
    CUdeviceptr dst = rows_begin(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes,
                                 c->dstY, c->dstPitch);
    CUdeviceptr src = rows_begin(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes,
                                 c->srcY, c->srcPitch);

    if (dst == 0 || src == 0 || c->dstPitch < c->WidthInBytes || c->srcPitch < c->WidthInBytes) {
        gpu_log("a copy of rows between arrays, from or to nowhere, or of rows that overlap");
        return CUDA_ERROR_INVALID_VALUE;
    }
    gpu_copy_rows(&(struct gpu_rows){(void *)dst, (const void *)src, c->dstPitch, c->srcPitch,
                                     c->WidthInBytes, c->Height},
                  gpu_stream_of(s));
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
    ALLOWED(gpu_unsafe_on(__func__, gpu_stream_of(s)));
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
    ALLOWED(gpu_unsafe_at(__func__, (struct gpu_event *)e));
    return gpu_event_done((struct gpu_event *)e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    ALLOWED(
        gpu_event_wait((struct gpu_event *)e, gpu_stream_of(s), flags == CU_EVENT_WAIT_EXTERNAL));
    return CUDA_SUCCESS;
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
    return gpu_launch((struct gpu_kernel *)f, gx, params, extra, gpu_stream_of(s))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    return gpu_launch((struct gpu_kernel *)f, c->gridDimX, params, extra, gpu_stream_of(c->hStream))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
