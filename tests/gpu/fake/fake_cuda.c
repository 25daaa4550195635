/*
 * libcuda.so.1 without a GPU: memory of this process. Enough to run gpu_coll's own logic where there is no driver
 * (run.sh --dry-run); it shows nothing about CUDA. Every allocation is zeroed by nobody, as on a GPU.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGetName(char *name, int len, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **ctx, int device);
EXPORT int cuCtxSetCurrent(void *ctx);
EXPORT int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes);
EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes);
EXPORT int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes);
EXPORT int cuCtxSynchronize(void);
EXPORT int cuStreamCreate(void **stream, unsigned flags);
EXPORT int cuStreamQuery(void *stream);
EXPORT int cuGetErrorString(int error, const char **text);

#define INVALID_VALUE  1
#define INVALID_DEVICE 101
#define OUT_OF_MEMORY  2

static int context;

int cuInit(unsigned flags)
{
    return flags ? INVALID_VALUE : 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 0;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? 0 : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int len, int device)
{
    strncpy(name, "no GPU: fake", (size_t)len);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **ctx, int device)
{
    *ctx = &context;
    return 0;
}

int cuCtxSetCurrent(void *ctx)
{
    return ctx == &context ? 0 : INVALID_VALUE;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t bytes)
{
    void *p = malloc(bytes);

    *ptr = (uint64_t)(uintptr_t)p;
    return p ? 0 : OUT_OF_MEMORY;
}

int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes)
{
    memcpy((void *)(uintptr_t)dst, src, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes)
{
    memcpy(dst, (void *)(uintptr_t)src, bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)dst, value, bytes);
    return 0;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &context;
    return 0;
}

int cuStreamQuery(void *stream)
{
    return stream == &context ? 0 : INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == INVALID_DEVICE ? "invalid device" : "fake";
    return 0;
}
