/*
 * Lanes of the CUDA driver's copy engine: a stream, and an event for each slot.
 */
#include "r2_cuda_int.h"
#include "r2_cuda_lines.h"

#include <errno.h>
#include <stdlib.h>

#include "base/r2_log.h"

/* Guarded by its user's gate. */
struct lane {
    void *ctx, *stream;
    int gpu; /* of the context */
    unsigned slots;
    unsigned char broken; /* what runs is not known: for good */
    unsigned char logged; /* its line of log is written */
    void *event[];
};

/* The driver copies directly between GPUs that reach each other; where they do not, through the
 * host. */
static int peer_enable(struct r2_cuda *c, int from, int to)
{
    const char *call = "cuDeviceCanAccessPeer";
    int can = 0, rc = c->cu.device_can_access_peer(&can, c->gpu[from].device, c->gpu[to].device);
    void *peer;

    if (rc == 0 && !can) {
        return 0;
    }
    if (rc == 0) {
        rc = r2_cuda_ctx(c, to, &peer);
        if (rc != 0) {
            return r2_cuda_failed(c, "cuDevicePrimaryCtxRetain", to, rc);
        }
        call = "cuCtxEnablePeerAccess";
        rc = c->cu.peer_enable(peer, 0);
    }
    if (rc != 0 && rc != CU_PEER_ACCESS_ALREADY_ENABLED) {
        R2_INFO(
            "CUDA: GPU %d does not reach memory of GPU %d, copies take the way through the host: %s: %s (%d)",
            from, to, call, r2_cuda_text(&c->cu, rc), rc);
    }
    return 0;
}

/* What there is of the driver's objects is destroyed; each is tried. Within a scope. */
static void lane_clear(const struct r2_cuda *c, struct lane *l)
{
    const char *call = NULL;
    int first = 0, rc;

    for (unsigned i = 0; i < l->slots; i++) {
        rc = l->event[i] ? c->cu.event_destroy(l->event[i]) : 0;
        if (rc != 0 && first == 0) {
            first = rc;
            call = "cuEventDestroy_v2";
        }
    }
    rc = l->stream ? c->cu.stream_destroy(l->stream) : 0;
    if (rc != 0 && first == 0) {
        first = rc;
        call = "cuStreamDestroy_v2";
    }
    if (first != 0) {
        r2_cuda_failed(c, call, l->gpu, first);
    }
}

/* Within a scope of the lane's context; errno. */
static int lane_build(const struct r2_cuda *c, struct lane *l)
{
    int rc = c->cu.stream_create(&l->stream, CU_STREAM_NON_BLOCKING);

    if (rc != 0) {
        l->stream = NULL;
        return r2_cuda_failed(c, "cuStreamCreate", l->gpu, rc);
    }
    for (unsigned i = 0; i < l->slots; i++) {
        rc = c->cu.event_create(&l->event[i], CU_EVENT_DISABLE_TIMING);
        if (rc != 0) {
            l->event[i] = NULL;
            return r2_cuda_failed(c, "cuEventCreate", l->gpu, rc);
        }
    }
    return 0;
}

int r2_cuda_lane_open(void *arg, int from, int to, unsigned slots, void **lane)
{
    struct r2_cuda *c = arg;
    int gpu = from == IB_COPY_HOST ? to : from, rc;
    struct cu_scope s;
    struct lane *l;

    if (from < IB_COPY_HOST || from >= c->gpus || to < IB_COPY_HOST || to >= c->gpus ||
        gpu == IB_COPY_HOST || slots == 0 || slots > R2_CUDA_SLOTS_MAX) {
        return EINVAL;
    }
    l = calloc(1, sizeof(*l) + slots * sizeof(l->event[0]));
    if (l == NULL) {
        return ENOMEM;
    }
    l->gpu = gpu;
    l->slots = slots;
    rc = r2_cuda_enter(c, gpu, &s, &l->ctx);
    if (rc != 0) {
        free(l);
        return rc;
    }
    if (from != IB_COPY_HOST && to != IB_COPY_HOST && from != to) {
        rc = peer_enable(c, from, to);
    }
    if (rc == 0) {
        rc = lane_build(c, l);
    }
    if (rc != 0) {
        lane_clear(c, l);
    }
    r2_cuda_leave(c, &s);
    if (rc == 0) {
        *lane = l;
    } else {
        free(l);
    }
    return rc;
}

void r2_cuda_lane_close(void *arg, void *lane)
{
    struct r2_cuda *c = arg;
    struct lane *l = lane;
    struct cu_scope s;
    void *ctx;

    if (r2_cuda_enter(c, l->gpu, &s, &ctx) == 0) {
        lane_clear(c, l);
        r2_cuda_leave(c, &s);
    }
    free(l);
}

/* Once per lane: it is the data path that gets here. Returns the errno. */
static __attribute__((noinline, cold)) int lane_failed(const struct r2_cuda *c, struct lane *l,
                                                       const char *call, int error)
{
    if (l->logged) {
        return r2_cuda_errno(error);
    }
    l->logged = 1;
    return r2_cuda_failed(c, call, l->gpu, error);
}

static __attribute__((noinline, cold)) void lane_break(struct r2_cuda *c, struct lane *l,
                                                       const char *call, int error)
{
    atomic_store(&c->broken, 1);
    l->broken = 1;
    lane_failed(c, l, call, error);
}

/*
 * Errors by which the driver says that the call itself cannot be carried out, before it has begun
 * anything. All others may be those of work enqueued before, as the driver reserves for itself, or
 * come half way through.
 */
static __attribute__((cold)) int copy_is_refused(int error)
{
    return error == CU_INVALID_VALUE || error == CU_NOT_INITIALIZED || error == CU_DEINITIALIZED ||
           error == CU_INVALID_DEVICE || error == CU_INVALID_CONTEXT ||
           error == CU_INVALID_HANDLE || error == CU_NOT_PERMITTED || error == CU_NOT_SUPPORTED ||
           (error >= CU_CAPTURE_UNSUPPORTED && error <= CU_CAPTURE_LAST);
}

/* @call, a copy, has failed. errno when nothing runs; 0 when that is not sure, and the lane is
 * broken. */
static __attribute__((noinline, cold)) int copy_failed(struct r2_cuda *c, struct lane *l,
                                                       const char *call, int error)
{
    if (copy_is_refused(error)) {
        return lane_failed(c, l, call, error);
    }
    lane_break(c, l, call, error);
    return 0;
}

int r2_cuda_begin(void *arg, void *lane, unsigned slot, void *dst, const void *src, size_t len)
{
    struct r2_cuda *c = arg;
    struct lane *l = lane;
    struct cu_scope s;
    int rc, err = 0;

    if (l->broken || slot >= l->slots) {
        return l->broken ? EIO : EINVAL;
    }
    rc = cu_enter(c, l->ctx, &s);
    if (rc != 0) {
        return lane_failed(c, l, s.call, rc);
    }
    rc = c->cu.memcpy_async((uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src, len, l->stream);
    if (rc != 0) {
        err = copy_failed(c, l, "cuMemcpyAsync", rc);
    } else {
        rc = c->cu.event_record(l->event[slot], l->stream);
        if (rc != 0) {
            lane_break(c, l, "cuEventRecord",
                       rc); /* the copy runs, and nothing will tell its end */
        }
    }
    rc = cu_leave(c, &s);
    if (rc != 0) {
        lane_break(c, l, s.call, rc);
    }
    return err;
}

/* @p of the bytes, behind what is in the stream. 0 or the driver's error; @call: which. */
static int piece_begin(const struct r2_cuda *c, const struct lane *l, const struct r2_cuda_piece *p,
                       void *dst, const void *src, const char **call)
{
    uint64_t to = (uint64_t)(uintptr_t)dst + p->off, from = (uint64_t)(uintptr_t)src + p->off;
    struct cu_copy_2d copy = {.src_type = CU_MEMORY_UNIFIED,
                              .src = from,
                              .src_pitch = R2_CUDA_LINE,
                              .dst_type = CU_MEMORY_UNIFIED,
                              .dst = to,
                              .dst_pitch = R2_CUDA_LINE,
                              .width = p->width,
                              .height = p->rows};

    *call = p->rows == 1 ? "cuMemcpyAsync" : "cuMemcpy2DAsync_v2";
    return p->rows == 1 ? c->cu.memcpy_async(to, from, p->width, l->stream)
                        : c->cu.memcpy_2d(&copy, l->stream);
}

/* Within a scope. As begin() says; once a piece of it runs, 0, and what fails then breaks the lane.
 */
static int pieces_begin(struct r2_cuda *c, struct lane *l, unsigned slot, void *dst,
                        const void *src, size_t len)
{
    struct r2_cuda_piece piece[R2_CUDA_PIECES];
    int n = r2_cuda_lines_cut((uint64_t)(uintptr_t)dst, len, piece), rc = 0;
    const char *call = NULL;

    for (int i = 0; i < n; i++) {
        rc = piece_begin(c, l, &piece[i], dst, src, &call);
        if (rc != 0 && i == 0) {
            return copy_failed(c, l, call, rc);
        }
        if (rc != 0) {
            lane_break(c, l, call, rc);
            return 0;
        }
    }
    rc = c->cu.event_record(l->event[slot], l->stream);
    if (rc != 0) {
        lane_break(c, l, "cuEventRecord", rc);
    }
    return 0;
}

int r2_cuda_begin_lines(void *arg, void *lane, unsigned slot, void *dst, const void *src,
                        size_t len)
{
    struct r2_cuda *c = arg;
    struct lane *l = lane;
    struct cu_scope s;
    int rc, err;

    if (c->cu.memcpy_2d == NULL) {
        return EOPNOTSUPP;
    }
    if (len == 0) {
        return 0;
    }
    if (l->broken || slot >= l->slots) {
        return l->broken ? EIO : EINVAL;
    }
    rc = cu_enter(c, l->ctx, &s);
    if (rc != 0) {
        return lane_failed(c, l, s.call, rc);
    }
    err = pieces_begin(c, l, slot, dst, src, len);
    rc = cu_leave(c, &s);
    if (rc != 0) {
        lane_break(c, l, s.call, rc);
    }
    return err;
}

int r2_cuda_done(void *arg, void *lane, unsigned slot)
{
    struct r2_cuda *c = arg;
    struct lane *l = lane;
    struct cu_scope s;
    int rc, left;

    if (l->broken || slot >= l->slots) {
        return -1;
    }
    rc = cu_enter(c, l->ctx, &s);
    if (rc != 0) {
        lane_break(c, l, s.call, rc);
        return -1;
    }
    rc = c->cu.event_query(l->event[slot]);
    if (rc != 0 && rc != CU_NOT_READY) {
        lane_break(c, l, "cuEventQuery", rc);
    }
    left = cu_leave(c, &s);
    if (left != 0) {
        lane_break(c, l, s.call, left);
    }
    return rc == 0 ? 1 : rc == CU_NOT_READY ? 0 : -1;
}
