/*
 * Memory of a GPU behind the NICs of this process, on a fabric that was made with --gpu: where a
 * NIC would reach it over PCIe, CUDA's driver copies. The driver is the one that the process has
 * loaded itself; without one, and on other fabrics, all memory is memory of the host.
 *
 * Every call comes with the engine's lock held. A copy waits until it is done, on a stream of its
 * own, so that it does not wait for a kernel that waits for it.
 */
#include "tests/fabric/shm/shm_engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_MAX 64
/* CUDA's driver: attributes of a pointer, a kind of memory, a flag of a stream. */
#define ATTR_MEMORY_TYPE    2
#define ATTR_DEVICE_ORDINAL 9
#define MEMORY_DEVICE       2
#define STREAM_NON_BLOCKING 1
#define CAPTURE_RELAXED     2

static struct {
    int (*pointer_get)(void *value, int attribute, uint64_t ptr);
    int (*device_get)(int *device, int ordinal);
    int (*ctx_retain)(void **ctx, int device);
    int (*ctx_push)(void *ctx);
    int (*ctx_pop)(void **ctx);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*copy_to)(uint64_t dst, const void *src, size_t len, void *stream);
    int (*copy_from)(void *dst, uint64_t src, size_t len, void *stream);
    int (*capture_mode)(int *mode);
} cu;
static enum { GPU_UNKNOWN, GPU_OFF, GPU_ON } gpu_state;
static struct {
    void *ctx, *stream;
} gpu[GPU_MAX];

static const struct {
    const char *name;
    void *call;
} gpu_calls[] = {
    {"cuPointerGetAttribute", &cu.pointer_get},
    {"cuDeviceGet", &cu.device_get},
    {"cuDevicePrimaryCtxRetain", &cu.ctx_retain},
    {"cuCtxPushCurrent_v2", &cu.ctx_push},
    {"cuCtxPopCurrent_v2", &cu.ctx_pop},
    {"cuStreamCreate", &cu.stream_create},
    {"cuStreamSynchronize", &cu.stream_synchronize},
    {"cuMemcpyHtoDAsync_v2", &cu.copy_to},
    {"cuMemcpyDtoHAsync_v2", &cu.copy_from},
    {"cuThreadExchangeStreamCaptureMode", &cu.capture_mode},
};

/* The driver may be loaded later than the fabric: asked again until it is there. */
static void gpu_visit(struct shm_engine *e)
{
    char path[SEG_PATH_MAX + 64];
    void *lib;

    if (gpu_state != GPU_UNKNOWN) {
        return;
    }
    snprintf(path, sizeof(path), "%s/host%d/" SEG_GPU_FILE, e->map.dir, e->host);
    if (access(path, F_OK) != 0) {
        gpu_state = GPU_OFF;
        return;
    }
    lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (lib == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(gpu_calls) / sizeof(gpu_calls[0]); i++) {
        void *f = dlsym(lib, gpu_calls[i].name);

        if (f == NULL) {
            fprintf(stderr, "softfab: libcuda.so.1 has no %s: memory of a GPU is not reached\n",
                    gpu_calls[i].name);
            gpu_state = GPU_OFF;
            return;
        }
        memcpy(gpu_calls[i].call, &f, sizeof(f));
    }
    gpu_state = GPU_ON;
}

/* The GPU that @addr belongs to; -1: memory of the host. */
static int gpu_of(const void *addr)
{
    int type = 0, ordinal = -1;

    if (gpu_state != GPU_ON ||
        cu.pointer_get(&type, ATTR_MEMORY_TYPE, (uint64_t)(uintptr_t)addr) != 0 ||
        type != MEMORY_DEVICE) {
        return -1;
    }
    if (cu.pointer_get(&ordinal, ATTR_DEVICE_ORDINAL, (uint64_t)(uintptr_t)addr) != 0 ||
        ordinal < 0 || ordinal >= GPU_MAX) {
        return -1;
    }
    return ordinal;
}

bool shm_gpu_has(struct fab_engine *eng, const void *addr, size_t len)
{
    gpu_visit(shm_engine_of(eng));
    return len > 0 && gpu_of(addr) >= 0 && gpu_of((const char *)addr + len - 1) == gpu_of(addr);
}

/* A copy that fails leaves nothing that could go on: the NIC that this stands for has no such
 * failure. */
static void gpu_need(int rc, const char *call)
{
    if (rc != 0) {
        fprintf(stderr, "softfab: %s returned %d: memory of the GPU cannot be reached\n", call, rc);
        abort();
    }
}

static void gpu_enter(int k)
{
    int device;

    if (gpu[k].ctx == NULL) {
        gpu_need(cu.device_get(&device, k), "cuDeviceGet");
        gpu_need(cu.ctx_retain(&gpu[k].ctx, device), "cuDevicePrimaryCtxRetain");
    }
    gpu_need(cu.ctx_push(gpu[k].ctx), "cuCtxPushCurrent");
    if (gpu[k].stream == NULL) {
        gpu_need(cu.stream_create(&gpu[k].stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    }
}

/*
 * In the order of addresses, as PCIe writes do it: who polls the last word of a line (NCCL's LL128)
 * finds the others there. memcpy() promises no order, and "rep movsb" has none within a cache line.
 */
static void copy_in_order(char *dst, const char *src, size_t len)
{
    for (; len > 0 && ((uintptr_t)dst & 7) != 0; len--) {
        __atomic_store_n(dst++, *src++, __ATOMIC_RELEASE);
    }
    for (; len >= 8; len -= 8, dst += 8, src += 8) {
        uint64_t word;

        memcpy(&word, src, sizeof(word));
        __atomic_store_n((uint64_t *)(void *)dst, word, __ATOMIC_RELEASE);
    }
    for (; len > 0; len--) {
        __atomic_store_n(dst++, *src++, __ATOMIC_RELEASE);
    }
}

void shm_gpu_copy(struct fab_engine *eng, void *dst, const void *src, size_t len)
{
    int to = gpu_of(dst), from = to < 0 ? gpu_of(src) : -1, k = to < 0 ? from : to;
    int mode = CAPTURE_RELAXED; /* a NIC does not ask whether somebody captures a graph */
    void *ctx;

    if (k < 0) {
        copy_in_order(dst, src, len);
        return;
    }
    gpu_need(cu.capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
    gpu_enter(k);
    if (to >= 0) {
        gpu_need(cu.copy_to((uint64_t)(uintptr_t)dst, src, len, gpu[k].stream),
                 "cuMemcpyHtoDAsync");
    } else {
        gpu_need(cu.copy_from(dst, (uint64_t)(uintptr_t)src, len, gpu[k].stream),
                 "cuMemcpyDtoHAsync");
    }
    gpu_need(cu.stream_synchronize(gpu[k].stream), "cuStreamSynchronize");
    gpu_need(cu.ctx_pop(&ctx), "cuCtxPopCurrent");
    gpu_need(cu.capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
}
