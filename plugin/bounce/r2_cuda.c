#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "base/r2_symbols.h"
#include "ib_transport/verbs/ib_device.h"
#include "r2_cuda_int.h"

#define LIBRARY "libcuda.so.1"

/* Values of the driver's published interface. */
#define POINTER_MEMORY_TYPE    2
#define POINTER_DEVICE_ORDINAL 9
#define MEMORY_DEVICE          2
#define HOST_PORTABLE          1u
#define DEVICE_DMA_BUF         124
#define RANGE_DMA_BUF_FD       1

/* A GPU's own pages: a registration by address pins whole ones. */
#define GPU_PAGE 65536u

#define ROW(field, symbol)                                                                         \
    {                                                                                              \
        symbol, offsetof(struct cu_calls, field), 0                                                \
    }
#define ROW_OPTIONAL(field, symbol)                                                                \
    {                                                                                              \
        symbol, offsetof(struct cu_calls, field), 1                                                \
    }

static const struct r2_symbol rows[] = {
    ROW(init, "cuInit"),
    ROW(error_string, "cuGetErrorString"),
    ROW(device_count, "cuDeviceGetCount"),
    ROW(device_get, "cuDeviceGet"),
    ROW(device_attribute, "cuDeviceGetAttribute"),
    ROW(device_pci, "cuDeviceGetPCIBusId"),
    ROW(device_can_access_peer, "cuDeviceCanAccessPeer"),
    ROW(primary_retain, "cuDevicePrimaryCtxRetain"),
    ROW(primary_release, "cuDevicePrimaryCtxRelease_v2"),
    ROW(primary_state, "cuDevicePrimaryCtxGetState"),
    ROW(ctx_push, "cuCtxPushCurrent_v2"),
    ROW(ctx_pop, "cuCtxPopCurrent_v2"),
    ROW(peer_enable, "cuCtxEnablePeerAccess"),
    ROW(pointer_attribute, "cuPointerGetAttribute"),
    ROW(mem_alloc, "cuMemAlloc_v2"),
    ROW(mem_free, "cuMemFree_v2"),
    ROW(host_alloc, "cuMemHostAlloc"),
    ROW(host_free, "cuMemFreeHost"),
    ROW(stream_create, "cuStreamCreate"),
    ROW(stream_destroy, "cuStreamDestroy_v2"),
    ROW(event_create, "cuEventCreate"),
    ROW(event_destroy, "cuEventDestroy_v2"),
    ROW(event_record, "cuEventRecord"),
    ROW(event_query, "cuEventQuery"),
    ROW(memcpy_async, "cuMemcpyAsync"),
    ROW_OPTIONAL(memcpy_2d, "cuMemcpy2DAsync_v2"),
    ROW_OPTIONAL(capture_mode, "cuThreadExchangeStreamCaptureMode"),
    ROW_OPTIONAL(range_handle, "cuMemGetHandleForAddressRange"),
};

int r2_cuda_errno(int error)
{
    switch (error) {
    case 0:
        return 0;
    case CU_INVALID_VALUE:
    case CU_INVALID_CONTEXT:
    case CU_INVALID_HANDLE:
        return EINVAL;
    case CU_OUT_OF_MEMORY:
        return ENOMEM;
    case CU_NOT_INITIALIZED:
    case CU_DEINITIALIZED:
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE:
        return ENODEV;
    case CU_DEVICE_UNAVAILABLE:
        return EBUSY;
    case CU_NOT_PERMITTED:
        return EPERM;
    case CU_NOT_SUPPORTED:
        return EOPNOTSUPP;
    default:
        return EIO;
    }
}

const char *r2_cuda_text(const struct cu_calls *cu, int error)
{
    const char *text = NULL;

    return cu->error_string(error, &text) == 0 && text != NULL ? text
                                                               : "an error that it has no text for";
}

int r2_cuda_failed(const struct r2_cuda *c, const char *call, int gpu, int error)
{
    const char *text = r2_cuda_text(&c->cu, error);
    /* while the process ends the driver may end first */
    enum r2_log_level level = error == CU_DEINITIALIZED ? R2_LOG_INFO : R2_LOG_WARN;

    if (gpu == IB_COPY_HOST) {
        r2_log_write(level, __FILE__, __LINE__, "CUDA: %s: %s (%d)", call, text, error);
    } else {
        r2_log_write(level, __FILE__, __LINE__, "CUDA: GPU %d: %s: %s (%d)", gpu, call, text,
                     error);
    }
    return r2_cuda_errno(error);
}

static int call_failed(const struct cu_calls *cu, const char *call, int error, char *why,
                       size_t why_len)
{
    snprintf(why, why_len, "%s%s: %s (%d)", error == CU_NO_DEVICE ? "no GPU: " : "", call,
             r2_cuda_text(cu, error), error);
    return r2_cuda_errno(error);
}

static int gpus_find(const struct cu_calls *cu, struct r2_cuda **out, char *why, size_t why_len)
{
    struct r2_cuda *c;
    int n = 0, rc = cu->init(0);

    if (rc != 0) {
        return call_failed(cu, "cuInit", rc, why, why_len);
    }
    rc = cu->device_count(&n);
    if (rc != 0) {
        return call_failed(cu, "cuDeviceGetCount", rc, why, why_len);
    }
    if (n < 1) {
        snprintf(why, why_len, "no GPU: cuDeviceGetCount says %d", n);
        return ENODEV;
    }
    c = calloc(1, sizeof(*c) + (size_t)n * sizeof(c->gpu[0]));
    if (c == NULL) {
        snprintf(why, why_len, "out of memory");
        return ENOMEM;
    }
    c->cu = *cu;
    c->gpus = n;
    atomic_init(&c->broken, 0);
    c->page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < n; i++) {
        atomic_init(&c->gpu[i].ctx, NULL);
        rc = cu->device_get(&c->gpu[i].device, i);
        if (rc != 0) {
            free(c);
            return call_failed(cu, "cuDeviceGet", rc, why, why_len);
        }
    }
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return 0;
}

int r2_cuda_open(const char *lib, struct r2_cuda **out, char *why, size_t why_len)
{
    const char *name = lib ? lib : LIBRARY;
    const char *missing;
    struct cu_calls cu;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int rc;

    if (handle == NULL) {
        const char *reason = dlerror();

        snprintf(why, why_len, "%s",
                 reason ? reason : "the CUDA driver's library cannot be opened");
        return ENOENT;
    }
    missing = r2_symbols_find(handle, rows, sizeof(rows) / sizeof(rows[0]), &cu);
    if (missing != NULL) {
        snprintf(why, why_len, "%s has no %s: the driver is too old", name, missing);
        dlclose(handle);
        return ENOSYS;
    }
    rc = gpus_find(&cu, out, why, why_len);
    if (rc == 0 && why_len > 0) {
        why[0] = '\0';
    }
    return rc;
}

void r2_cuda_close(struct r2_cuda *c)
{
    struct cu_scope s;
    int relaxed;

    if (c == NULL) {
        return;
    }
    relaxed = cu_relax(c, &s);
    for (int i = 0; i < c->gpus && !atomic_load(&c->broken); i++) {
        int rc = atomic_load(&c->gpu[i].ctx) ? c->cu.primary_release(c->gpu[i].device) : 0;

        if (rc != 0) {
            r2_cuda_failed(c, "cuDevicePrimaryCtxRelease_v2", i, rc);
        }
    }
    if (relaxed == 0) {
        cu_restore(c, &s);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int r2_cuda_ctx(struct r2_cuda *c, int gpu, void **ctx)
{
    struct cu_gpu *g = &c->gpu[gpu];
    int rc = 0;

    *ctx = atomic_load_explicit(&g->ctx, memory_order_acquire);
    if (*ctx != NULL) {
        return 0;
    }
    pthread_mutex_lock(&c->lock);
    *ctx = atomic_load_explicit(&g->ctx, memory_order_relaxed);
    if (*ctx == NULL) {
        rc = c->cu.primary_retain(ctx, g->device);
        if (rc == 0) {
            atomic_store_explicit(&g->ctx, *ctx, memory_order_release);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int r2_cuda_enter(struct r2_cuda *c, int gpu, struct cu_scope *s, void **ctx)
{
    int rc = cu_relax(c, s);

    if (rc != 0) {
        return r2_cuda_failed(c, s->call, gpu, rc);
    }
    s->call = "cuDevicePrimaryCtxRetain";
    rc = r2_cuda_ctx(c, gpu, ctx);
    if (rc == 0) {
        s->call = "cuCtxPushCurrent_v2";
        rc = c->cu.ctx_push(*ctx);
    }
    if (rc == 0) {
        return 0;
    }
    cu_restore(c, s);
    return r2_cuda_failed(c, s->call, gpu, rc);
}

void r2_cuda_leave(const struct r2_cuda *c, struct cu_scope *s)
{
    int rc = cu_leave(c, s);

    if (rc != 0) {
        r2_cuda_failed(c, s->call, IB_COPY_HOST, rc);
    }
}

static int gpu_of(void *arg, const void *addr)
{
    const struct r2_cuda *c = arg;
    uint64_t ptr = (uint64_t)(uintptr_t)addr;
    int type = 0, ordinal = -1;

    if (c->cu.pointer_attribute(&type, POINTER_MEMORY_TYPE, ptr) != 0 || type != MEMORY_DEVICE ||
        c->cu.pointer_attribute(&ordinal, POINTER_DEVICE_ORDINAL, ptr) != 0) {
        return IB_COPY_HOST;
    }
    return ordinal >= 0 && ordinal < c->gpus ? ordinal : IB_COPY_HOST;
}

static int gpu_pci(void *arg, int gpu, char *out, size_t len)
{
    const struct r2_cuda *c = arg;
    unsigned domain, bus, device, function;
    char text[32] = "";
    int rc;

    if (gpu < 0 || gpu >= c->gpus) {
        return EINVAL;
    }
    rc = c->cu.device_pci(text, sizeof(text), c->gpu[gpu].device);
    if (rc != 0) {
        return r2_cuda_failed(c, "cuDeviceGetPCIBusId", gpu, rc);
    }
    text[sizeof(text) - 1] = '\0';
    if (sscanf(text, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4) {
        R2_WARN("CUDA: GPU %d: cuDeviceGetPCIBusId says '%s', which is no PCI address", gpu, text);
        return EPROTO;
    }
    rc = snprintf(out, len, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return (size_t)rc < len ? 0 : ENAMETOOLONG;
}

static int gpu_used(void *arg, int gpu)
{
    const struct r2_cuda *c = arg;
    unsigned flags;
    int active = 0;

    return gpu >= 0 && gpu < c->gpus &&
           (atomic_load(&c->gpu[gpu].ctx) != NULL ||
            (c->cu.primary_state(c->gpu[gpu].device, &flags, &active) == 0 && active));
}

/* A DMA-BUF of memory of @gpu; -1: there is none, and the memory is registered by its address. */
static int dmabuf_make(const struct r2_cuda *c, int gpu, uint64_t addr, size_t len)
{
    int able = 0, fd = -1, rc;

    if (c->cu.range_handle == NULL ||
        c->cu.device_attribute(&able, DEVICE_DMA_BUF, c->gpu[gpu].device) != 0 || !able) {
        return -1;
    }
    if (addr % c->page != 0) {
        R2_INFO("CUDA: GPU %d: no DMA-BUF: the memory begins within a page of the host", gpu);
        return -1;
    }
    rc = c->cu.range_handle(&fd, addr, len, RANGE_DMA_BUF_FD, 0);
    if (rc != 0) {
        R2_INFO("CUDA: GPU %d: no DMA-BUF: cuMemGetHandleForAddressRange: %s (%d)", gpu,
                r2_cuda_text(&c->cu, rc), rc);
        return -1;
    }
    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC); /* a child that held it would hold the memory */
    }
    return fd;
}

/*
 * A GPU in whose context to handle memory of the host: one that is in use, because a context costs
 * some hundred MiB of its GPU's memory, and all processes of a host would take the first one's.
 */
static int gpu_in_use(const struct r2_cuda *c)
{
    for (int i = 0; i < c->gpus; i++) {
        if (atomic_load(&c->gpu[i].ctx) != NULL) {
            return i;
        }
    }
    for (int i = 0; i < c->gpus; i++) {
        unsigned flags;
        int active = 0;

        if (c->cu.primary_state(c->gpu[i].device, &flags, &active) == 0 && active) {
            return i;
        }
    }
    return 0;
}

static int mem_get(void *arg, int gpu, size_t len, struct ib_copy_mem *out)
{
    struct r2_cuda *c = arg;
    int on_host = gpu == IB_COPY_HOST, where = on_host ? gpu_in_use(c) : gpu, rc, fd = -1;
    size_t page = on_host || c->page > GPU_PAGE ? c->page : GPU_PAGE;
    struct cu_scope s;
    uint64_t addr = 0;
    void *ctx, *p = NULL;

    if (where < 0 || where >= c->gpus || len == 0 || len > SIZE_MAX - page) {
        return EINVAL;
    }
    len = (len + page - 1) / page * page;
    rc = r2_cuda_enter(c, where, &s, &ctx);
    if (rc != 0) {
        return rc;
    }
    if (on_host) {
        rc = c->cu.host_alloc(&p, len, HOST_PORTABLE);
    } else {
        rc = c->cu.mem_alloc(&addr, len);
        p = (void *)(uintptr_t)addr;
        fd = rc == 0 ? dmabuf_make(c, gpu, addr, len) : -1;
    }
    if (rc != 0) {
        rc = r2_cuda_failed(c, on_host ? "cuMemHostAlloc" : "cuMemAlloc_v2", gpu, rc);
    }
    r2_cuda_leave(c, &s);
    if (rc == 0) {
        *out = (struct ib_copy_mem){
            .addr = p, .len = len, .type = on_host ? IB_PTR_HOST : IB_PTR_CUDA, .dmabuf_fd = fd};
    }
    return rc;
}

static void mem_put(void *arg, struct ib_copy_mem *mem)
{
    struct r2_cuda *c = arg;
    int on_host = mem->type == IB_PTR_HOST, gpu, rc;
    struct cu_scope s;
    void *ctx;

    if (mem->addr == NULL) {
        return;
    }
    gpu = on_host ? gpu_in_use(c) : gpu_of(c, mem->addr);
    if (mem->dmabuf_fd >= 0) {
        close(mem->dmabuf_fd);
    }
    if (gpu == IB_COPY_HOST) {
        R2_WARN(
            "CUDA: %zu bytes of a GPU at %p are not freed: the driver does not say whose they are",
            mem->len, mem->addr);
    } else if (r2_cuda_enter(c, gpu, &s, &ctx) == 0) {
        rc = on_host ? c->cu.host_free(mem->addr) : c->cu.mem_free((uint64_t)(uintptr_t)mem->addr);
        if (rc != 0) {
            r2_cuda_failed(c, on_host ? "cuMemFreeHost" : "cuMemFree_v2",
                           on_host ? IB_COPY_HOST : gpu, rc);
        }
        r2_cuda_leave(c, &s);
    }
    *mem = (struct ib_copy_mem){.dmabuf_fd = -1};
}

const struct ib_copy_ops r2_cuda_ops = {
    .gpu_of = gpu_of,
    .gpu_pci = gpu_pci,
    .gpu_used = gpu_used,
    .mem_get = mem_get,
    .mem_put = mem_put,
    .lane_open = r2_cuda_lane_open,
    .lane_close = r2_cuda_lane_close,
    .begin = r2_cuda_begin,
    .begin_lines = r2_cuda_begin_lines,
    .done = r2_cuda_done,
};
