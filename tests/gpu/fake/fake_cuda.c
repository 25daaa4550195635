/*
 * libcuda.so.1 without a GPU: its memory is memory of this process, under addresses that are none of it, so that
 * whoever touches it otherwise than by copies of the driver dies. Enough to run gpu_coll's own logic (run.sh --dry-run)
 * and the fabric's way to memory of a GPU; it shows nothing about CUDA. Calls may come from any thread.
 */
#include "tests/gpu/fake/fake_cuda.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int len, int device);
int cuDevicePrimaryCtxRetain(void **ctx, int device);
int cuCtxSetCurrent(void *ctx);
int cuCtxPushCurrent_v2(void *ctx);
int cuCtxPopCurrent_v2(void **ctx);
int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes);
int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream);
int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes);
int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr);
int cuCtxSynchronize(void);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamQuery(void *stream);
int cuStreamSynchronize(void *stream);
int cuGetErrorString(int error, const char **text);
void *fake_cuda_host(const void *ptr);
#pragma GCC visibility pop

#define INVALID_VALUE   1
#define OUT_OF_MEMORY   2
#define INVALID_DEVICE  101
#define INVALID_CONTEXT 201

/* Allocation @k has the addresses from BASE + k * STEP: below where the kernel maps anything unasked. */
#define BASE 0x200000000000ull
#define STEP (1ull << 32)
#define MOST 1024

static struct {
    void *bytes;
    size_t len;
} memory[MOST];
static int memories; /* under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int context;
static _Thread_local int current; /* whether the thread has the context */

/* [@ptr, @ptr+@len) of one allocation; NULL: it is none. */
static void *memory_at(uint64_t ptr, size_t len)
{
    uint64_t k = ptr < BASE ? MOST : (ptr - BASE) / STEP, at = (ptr - BASE) % STEP;
    void *p = NULL;

    pthread_mutex_lock(&lock);
    if (k < (uint64_t)memories && len <= memory[k].len && at <= memory[k].len - len)
        p = (char *)memory[k].bytes + at;
    pthread_mutex_unlock(&lock);
    return p;
}

void *fake_cuda_host(const void *ptr)
{
    return memory_at((uint64_t)(uintptr_t)ptr, 1);
}

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
    current = ctx == &context;
    return current ? 0 : INVALID_VALUE;
}

int cuCtxPushCurrent_v2(void *ctx)
{
    if (ctx != &context)
        return INVALID_VALUE;
    current++;
    return 0;
}

int cuCtxPopCurrent_v2(void **ctx)
{
    if (current == 0)
        return INVALID_CONTEXT;
    current--;
    *ctx = &context;
    return 0;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t bytes)
{
    void *p = bytes <= STEP ? malloc(bytes) : NULL;
    int rc = OUT_OF_MEMORY;

    pthread_mutex_lock(&lock);
    if (p != NULL && memories < MOST) {
        memory[memories].bytes = p;
        memory[memories].len = bytes;
        *ptr = BASE + (uint64_t)memories++ * STEP;
        rc = 0;
    }
    pthread_mutex_unlock(&lock);
    return current ? rc : INVALID_CONTEXT;
}

int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes)
{
    void *to = memory_at(dst, bytes);

    if (!current || to == NULL)
        return to == NULL ? INVALID_VALUE : INVALID_CONTEXT;
    memcpy(to, src, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes)
{
    const void *from = memory_at(src, bytes);

    if (!current || from == NULL)
        return from == NULL ? INVALID_VALUE : INVALID_CONTEXT;
    memcpy(dst, from, bytes);
    return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream)
{
    return stream == &context ? cuMemcpyHtoD_v2(dst, src, bytes) : INVALID_VALUE;
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
    return stream == &context ? cuMemcpyDtoH_v2(dst, src, bytes) : INVALID_VALUE;
}

int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes)
{
    void *to = memory_at(dst, bytes);

    if (to == NULL)
        return INVALID_VALUE;
    memset(to, value, bytes);
    return 0;
}

/* CU_POINTER_ATTRIBUTE_MEMORY_TYPE (2): device (2); CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL (9). */
int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr)
{
    if (memory_at(ptr, 1) == NULL || (attribute != 2 && attribute != 9))
        return INVALID_VALUE;
    *(int *)value = attribute == 2 ? 2 : 0;
    return 0;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &context;
    return current ? 0 : INVALID_CONTEXT;
}

int cuStreamQuery(void *stream)
{
    return stream == &context ? 0 : INVALID_VALUE;
}

int cuStreamSynchronize(void *stream)
{
    return cuStreamQuery(stream);
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == INVALID_DEVICE ? "invalid device" : "fake";
    return 0;
}
