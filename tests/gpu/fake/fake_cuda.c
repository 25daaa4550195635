/*
 * libcuda.so.1 without a GPU: its memory is memory of this process, under addresses that are none
 * of it, so that whoever touches it otherwise than by copies of the driver dies. Enough to run
 * gpu_coll's own logic (run.sh
 * --dry-run), the fabric's way to memory of a GPU, and the plugin's copies
 * (tests/unit/bounce/test_cuda.c); it shows nothing about CUDA. Calls may come from any thread.
 *
 * Here: GPUs, contexts, and what tests order (fake_cuda.h). Stricter than the driver: nothing works
 * before cuInit(), and what belongs to a context wants just that one to be current.
 */
#include "tests/gpu/fake/fake_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuGetErrorString(int error, const char **text);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGetName(char *name, int len, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetPCIBusId(char *id, int len, int device);
EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer);
EXPORT int cuDevicePrimaryCtxRetain(void **ctx, int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
EXPORT int cuCtxSetCurrent(void *ctx);
EXPORT int cuCtxPushCurrent_v2(void *ctx);
EXPORT int cuCtxPopCurrent_v2(void **ctx);
EXPORT int cuCtxEnablePeerAccess(void *peer, unsigned flags);
EXPORT int cuCtxSynchronize(void);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT const struct fake_cuda_ctl *fake_cuda_ctl(void);

#define DEPTH_MAX      16
#define CAPTURE_MODES  3
#define RELAXED        2
#define DEVICE_DMA_BUF 124

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct context fake_ctx[GPUS_MAX];
struct fake_cuda_live fake_live;
struct fake_cuda_count fake_count;
int fake_gpus = -1, fake_peers = 1, fake_dmabuf;
unsigned fake_skew;

/* Under the lock. */
static int started, capturing;
static struct {
    char name[64]; /* empty: any */
    unsigned after;
    int error; /* 0: no order */
    char done[64];
} order;
static struct {
    char name[64];
    void (*what)(void); /* NULL: no order */
} visit;

/* Of a thread. */
static _Thread_local struct context *stack[DEPTH_MAX];
static _Thread_local int depth, mode;

/* Whether this call is the one that is to fail. Lock held. */
static int order_take(const char *name)
{
    int error = order.error;

    if (error == 0 || (order.name[0] != '\0' && strcmp(order.name, name) != 0)) {
        return 0;
    }
    if (order.after > 0) {
        order.after--;
        return 0;
    }
    order.error = 0;
    snprintf(order.done, sizeof(order.done), "%s", name);
    return error;
}

int fake_enter(const char *name, int wants)
{
    void (*what)(void);
    int rc;

    pthread_mutex_lock(&fake_lock);
    what = visit.what;
    if (what != NULL && strcmp(visit.name, name) == 0) {
        visit.what = NULL;
        pthread_mutex_unlock(&fake_lock);
        what();
        pthread_mutex_lock(&fake_lock);
    }
    rc = order_take(name);
    if (rc == 0 && wants != 0 && !started) {
        rc = NOT_INITIALIZED;
    }
    if (rc == 0 && (wants & FAKE_CTX) && fake_current() == NULL) {
        rc = INVALID_CONTEXT;
    }
    if (rc == 0 && (wants & FAKE_UNSAFE) && capturing && mode != RELAXED) {
        fake_count.spoiled++;
        rc = CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

struct context *fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

/* Lock held. */
static int gpus(void)
{
    const char *text = getenv("FAKE_CUDA_GPUS");
    int n = text ? atoi(text) : 1;

    if (fake_gpus < 0) {
        fake_gpus = n < 0 || n > GPUS_MAX ? 1 : n;
    }
    return fake_gpus;
}

static int device_bad(int device)
{
    int n;

    pthread_mutex_lock(&fake_lock);
    n = gpus();
    pthread_mutex_unlock(&fake_lock);
    return device < 0 || device >= n;
}

int cuInit(unsigned flags)
{
    int rc = fake_enter(__func__, 0);

    if (rc != 0 || flags != 0) {
        return rc ? rc : INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    started = started || gpus() > 0;
    rc = started ? 0 : NO_DEVICE;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuDriverGetVersion(int *version)
{
    *version = 0;
    return fake_enter(__func__, 0);
}

int cuGetErrorString(int error, const char **text)
{
    static const struct {
        int error;
        const char *text;
    } texts[] = {
        {INVALID_VALUE, "invalid argument"},
        {OUT_OF_MEMORY, "out of memory"},
        {NO_DEVICE, "no CUDA-capable device"},
        {INVALID_DEVICE, "invalid device"},
        {INVALID_CONTEXT, "invalid context"},
        {INVALID_HANDLE, "invalid handle"},
        {PEER_UNSUPPORTED, "no access to peer"},
        {CAPTURE_UNSUPPORTED, "not while a stream is capturing"},
    };
    int rc = fake_enter(__func__, 0);

    *text = "fake";
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].error == error) {
            *text = texts[i].text;
        }
    }
    if (rc != 0) {
        *text = NULL;
    }
    return rc;
}

int cuDeviceGetCount(int *count)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    pthread_mutex_lock(&fake_lock);
    *count = rc == 0 ? gpus() : 0;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuDeviceGet(int *device, int ordinal)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    *device = ordinal;
    return rc ? rc : device_bad(ordinal) ? INVALID_DEVICE : 0;
}

int cuDeviceGetName(char *name, int len, int device)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    snprintf(name, (size_t)len, "no GPU: fake");
    return rc;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || device_bad(device) || attribute != DEVICE_DMA_BUF) {
        return rc ? rc : device_bad(device) ? INVALID_DEVICE : INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    *value = fake_dmabuf;
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* In upper case, as the driver has it. */
int cuDeviceGetPCIBusId(char *id, int len, int device)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || device_bad(device) || len < 13) {
        return rc ? rc : device_bad(device) ? INVALID_DEVICE : INVALID_VALUE;
    }
    snprintf(id, (size_t)len, "%04X:%02X:00.0", device < 8 ? 0 : 0x1A, 0x3B + device);
    return 0;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || device_bad(device) || device_bad(peer)) {
        return rc ? rc : INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    *can = fake_peers && device != peer;
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **ctx, int device)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_UNSAFE);

    if (rc != 0 || device_bad(device)) {
        return rc ? rc : INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    fake_ctx[device].device = device;
    fake_ctx[device].retained++;
    fake_live.retained++;
    pthread_mutex_unlock(&fake_lock);
    *ctx = &fake_ctx[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_UNSAFE);

    if (rc != 0 || device_bad(device)) {
        return rc ? rc : INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    if (fake_ctx[device].retained > 0) {
        fake_ctx[device].retained--;
        fake_live.retained--;
    } else {
        rc = INVALID_CONTEXT;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || device_bad(device)) {
        return rc ? rc : INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake_lock);
    *flags = 0;
    *active = fake_ctx[device].retained > 0;
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* Whether @ctx is a context that somebody has retained. */
static int ctx_good(const void *ctx)
{
    int good = 0;

    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < GPUS_MAX; i++) {
        good |= ctx == &fake_ctx[i] && fake_ctx[i].retained > 0;
    }
    pthread_mutex_unlock(&fake_lock);
    return good;
}

int cuCtxSetCurrent(void *ctx)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || (ctx != NULL && !ctx_good(ctx))) {
        return rc ? rc : INVALID_CONTEXT;
    }
    if (depth > 0) {
        depth--;
    }
    if (ctx != NULL) {
        stack[depth++] = ctx;
    }
    return 0;
}

int cuCtxPushCurrent_v2(void *ctx)
{
    int rc = fake_enter(__func__, FAKE_INIT);

    if (rc != 0 || !ctx_good(ctx) || depth == DEPTH_MAX) {
        return rc ? rc : INVALID_CONTEXT;
    }
    stack[depth++] = ctx;
    return 0;
}

int cuCtxPopCurrent_v2(void **ctx)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX);

    if (rc == 0) {
        *ctx = stack[--depth];
    }
    return rc;
}

int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct context *own = fake_current(), *other = peer;

    if (rc != 0 || flags != 0 || !ctx_good(peer) || own == other) {
        return rc ? rc : flags ? INVALID_VALUE : own == other ? INVALID_DEVICE : INVALID_CONTEXT;
    }
    pthread_mutex_lock(&fake_lock);
    if (!fake_peers) {
        rc = PEER_UNSUPPORTED;
    } else if (own->peers & 1u << other->device) {
        rc = PEER_ENABLED;
    } else {
        own->peers |= 1u << other->device;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuCtxSynchronize(void)
{
    return fake_enter(__func__, FAKE_INIT | FAKE_CTX);
}

int cuThreadExchangeStreamCaptureMode(int *exchange)
{
    int rc = fake_enter(__func__, FAKE_INIT), was = mode;

    if (rc != 0 || *exchange < 0 || *exchange >= CAPTURE_MODES) {
        return rc ? rc : INVALID_VALUE;
    }
    mode = *exchange;
    *exchange = was;
    return 0;
}

/* What tests order. */

static void set(int *what, int value)
{
    pthread_mutex_lock(&fake_lock);
    *what = value;
    pthread_mutex_unlock(&fake_lock);
}

static void gpus_set(int n)
{
    set(&fake_gpus, n);
}

static void peers_set(int able)
{
    set(&fake_peers, able);
}

static void dmabuf_set(int able)
{
    set(&fake_dmabuf, able);
}

static void capture_set(int on)
{
    set(&capturing, on);
}

static void skew_set(unsigned offset)
{
    pthread_mutex_lock(&fake_lock);
    fake_skew = offset;
    pthread_mutex_unlock(&fake_lock);
}

static void fail_at(const char *name, unsigned after, int error)
{
    pthread_mutex_lock(&fake_lock);
    snprintf(order.name, sizeof(order.name), "%s", name ? name : "");
    order.after = after;
    order.error = error;
    order.done[0] = '\0';
    pthread_mutex_unlock(&fake_lock);
}

static void before(const char *name, void (*what)(void))
{
    pthread_mutex_lock(&fake_lock);
    snprintf(visit.name, sizeof(visit.name), "%s", name);
    visit.what = what;
    pthread_mutex_unlock(&fake_lock);
}

static const char *failed(void)
{
    static _Thread_local char name[sizeof(order.done)];

    pthread_mutex_lock(&fake_lock);
    memcpy(name, order.done, sizeof(name));
    pthread_mutex_unlock(&fake_lock);
    return name[0] ? name : NULL;
}

static struct fake_cuda_live live(void)
{
    struct fake_cuda_live l;

    pthread_mutex_lock(&fake_lock);
    l = fake_live;
    pthread_mutex_unlock(&fake_lock);
    return l;
}

static struct fake_cuda_count count(void)
{
    struct fake_cuda_count c;

    pthread_mutex_lock(&fake_lock);
    c = fake_count;
    pthread_mutex_unlock(&fake_lock);
    return c;
}

static int depth_now(void)
{
    return depth;
}

static int current_now(void)
{
    return fake_current() ? fake_current()->device : -1;
}

static int mode_now(void)
{
    return mode;
}

const struct fake_cuda_ctl *fake_cuda_ctl(void)
{
    static const struct fake_cuda_ctl ctl = {
        .gpus_set = gpus_set,
        .peers_set = peers_set,
        .dmabuf_set = dmabuf_set,
        .skew_set = skew_set,
        .capture_set = capture_set,
        .hold = fake_hold,
        .release = fake_release,
        .fail_at = fail_at,
        .failed = failed,
        .before = before,
        .live = live,
        .count = count,
        .depth = depth_now,
        .current = current_now,
        .capture_mode = mode_now,
    };

    return &ctl;
}
