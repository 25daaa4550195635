/* Between r2_cuda.c (driver, contexts, memory) and r2_cuda_lane.c (copies). */
#ifndef R2_CUDA_INT_H
#define R2_CUDA_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "r2_cuda.h"

/* Values of the driver's published interface. */
enum {
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_DEVICE_UNAVAILABLE = 46,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_INVALID_HANDLE = 400,
    CU_NOT_READY = 600,
    CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    CU_NOT_PERMITTED = 800,
    CU_NOT_SUPPORTED = 801,
    CU_CAPTURE_UNSUPPORTED = 900, /* and those up to CU_CAPTURE_LAST: a capture forbids the call */
    CU_CAPTURE_LAST = 908,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_CAPTURE_RELAXED = 2,
    CU_MEMORY_UNIFIED = 4,
};

/* CUDA_MEMCPY2D, version 2. */
struct cu_copy_2d {
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    uint64_t src;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    uint64_t dst;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};

/* The calls: CUresult and CUdevice are int, CUdeviceptr has 64 bits, handles are pointers. */
struct cu_calls {
    int (*init)(unsigned flags);
    int (*error_string)(int error, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_pci)(char *id, int len, int device);
    int (*device_can_access_peer)(int *can, int device, int peer);
    int (*primary_retain)(void **ctx, int device);
    int (*primary_release)(int device);
    int (*primary_state)(int device, unsigned *flags, int *active);
    int (*ctx_push)(void *ctx);
    int (*ctx_pop)(void **ctx);
    int (*peer_enable)(void *peer, unsigned flags);
    int (*pointer_attribute)(void *value, int attribute, uint64_t ptr);
    int (*mem_alloc)(uint64_t *ptr, size_t len);
    int (*mem_free)(uint64_t ptr);
    int (*host_alloc)(void **ptr, size_t len, unsigned flags);
    int (*host_free)(void *ptr);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*memcpy_async)(uint64_t dst, uint64_t src, size_t len, void *stream);
    /* NULL where the driver is too old for them */
    int (*memcpy_2d)(const struct cu_copy_2d *copy, void *stream);
    int (*capture_mode)(int *mode);
    int (*range_handle)(void *handle, uint64_t ptr, size_t len, int type, unsigned long long flags);
};

struct cu_gpu {
    int device;
    _Atomic(void *) ctx; /* primary context; NULL: not used yet. Written once, under r2_cuda.lock */
};

/* Const after r2_cuda_open(), but for the atomics. */
struct r2_cuda {
    struct cu_calls cu;
    size_t page; /* bytes of a page of the host */
    int gpus;
    atomic_int broken;    /* some lane is or was: its copies may run for ever */
    pthread_mutex_t lock; /* first use of a context: held while the driver makes it */
    struct cu_gpu gpu[];
};

/* Calls of the driver that belong together, of one thread: from cu_enter() to cu_leave(). */
struct cu_scope {
    const char *call; /* that failed in enter or leave */
    int mode;         /* the thread's mode of stream capture */
};

/* cu_enter() in the primary context of @gpu, which is made if need be: into *@ctx. errno, with a
 * line of log. */
int r2_cuda_enter(struct r2_cuda *c, int gpu, struct cu_scope *s, void **ctx);

/* The end of it. An error of the driver's is logged and changes nothing of what was done before. */
void r2_cuda_leave(const struct r2_cuda *c, struct cu_scope *s);

/* The primary context of @gpu. The driver's error, or 0; within a scope. */
int r2_cuda_ctx(struct r2_cuda *c, int gpu, void **ctx);

/* Logs that @call for @gpu (IB_COPY_HOST: none) gave @error, which is not 0; returns its errno. */
int r2_cuda_failed(const struct r2_cuda *c, const char *call, int gpu, int error);

/* The driver's text; never NULL. */
const char *r2_cuda_text(const struct cu_calls *cu, int error);

/* errno for an error of the driver. */
int r2_cuda_errno(int error);

/* The rest of the operations, by r2_cuda_lane.c. */
int r2_cuda_lane_open(void *arg, int from, int to, unsigned slots, void **lane);
void r2_cuda_lane_close(void *arg, void *lane);
int r2_cuda_begin(void *arg, void *lane, unsigned slot, void *dst, const void *src, size_t len);
int r2_cuda_begin_lines(void *arg, void *lane, unsigned slot, void *dst, const void *src,
                        size_t len);
int r2_cuda_done(void *arg, void *lane, unsigned slot);

static inline int cu_relax(const struct r2_cuda *c, struct cu_scope *s)
{
    s->call = "cuThreadExchangeStreamCaptureMode";
    s->mode = CU_CAPTURE_RELAXED;
    return c->cu.capture_mode ? c->cu.capture_mode(&s->mode) : 0;
}

static inline int cu_restore(const struct r2_cuda *c, const struct cu_scope *s)
{
    int mode = s->mode;

    return c->cu.capture_mode ? c->cu.capture_mode(&mode) : 0;
}

/* 0, or the driver's error: then the thread is as it was. */
static inline int cu_enter(const struct r2_cuda *c, void *ctx, struct cu_scope *s)
{
    int rc = cu_relax(c, s);

    if (rc != 0) {
        return rc;
    }
    rc = c->cu.ctx_push(ctx);
    if (rc != 0) {
        s->call = "cuCtxPushCurrent_v2";
        cu_restore(c, s);
    }
    return rc;
}

/* 0, or the driver's first error: then the thread is not as it was, and nothing can be done about
 * it. */
static inline int cu_leave(const struct r2_cuda *c, struct cu_scope *s)
{
    void *ctx;
    int rc = c->cu.ctx_pop(&ctx), restored = cu_restore(c, s);

    s->call = rc ? "cuCtxPopCurrent_v2" : "cuThreadExchangeStreamCaptureMode";
    return rc ? rc : restored;
}

#endif
