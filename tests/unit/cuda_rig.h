/* The CUDA driver's copy engine over the stand-in for the driver (tests/gpu/fake), whose GPUs have
 * no memory that a program can touch. One per test process. */
#ifndef TEST_CUDA_RIG_H
#define TEST_CUDA_RIG_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "ib_transport/verbs/ib_device.h"
#include "bounce/r2_cuda.h"
#include "base/r2_log.h"
#include "suite.h"
#include "tests/gpu/fake/fake_cuda.h"

#define RIG_DRIVER  "gpu-fake/cuda/libcuda.so.1" /* below the build folder */
#define RIG_UNKNOWN 999 /* an error of the driver's that may mean anything */

static char rig_path[512];
static const struct fake_cuda_ctl *fake;
static struct r2_cuda *cuda;
static const struct ib_copy_ops *const ops = &r2_cuda_ops;
static int rig_warns, rig_infos; /* lines of log since rig_logged() */
static char rig_line[1024];      /* the last of them */

/* What the test does in the part of NCCL and PyTorch. */
static struct {
    int (*retain)(void **ctx, int device);
    int (*release)(int device);
    int (*state)(int device, unsigned *flags, int *active);
    int (*push)(void *ctx);
    int (*pop)(void **ctx);
    int (*mode)(int *mode);
    int (*alloc)(uint64_t *ptr, size_t len);
    int (*free)(uint64_t ptr);
    void *(*bytes)(const void *ptr);
} app;

static void rig_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    rig_warns += level == R2_LOG_WARN;
    rig_infos += level == R2_LOG_INFO;
    snprintf(rig_line, sizeof(rig_line), "%s", msg);
}

/* How many lines there were since the last time. */
static inline int rig_logged(void)
{
    int n;

    r2_log_flush();
    n = rig_warns + rig_infos;
    rig_warns = rig_infos = 0;
    return n;
}

static inline void rig_symbol(void *lib, const char *name, void *slot)
{
    void *p = dlsym(lib, name);

    ck_assert_msg(p != NULL, "the stand-in has no %s", name);
    memcpy(slot, &p, sizeof(p));
}

/* The driver at @path, by default that of the build folder, with @gpus (-1: as the environment
 * says). */
static inline void rig_load(const char *path, int gpus)
{
    const struct fake_cuda_ctl *(*ctl)(void) = NULL;
    const char *build = getenv("R2_BUILD");
    void *lib;

    snprintf(rig_path, sizeof(rig_path), "%s/" RIG_DRIVER, build ? build : "build");
    lib = dlopen(path ? path : rig_path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(lib != NULL, "%s (R2_BUILD names the build folder)", dlerror());
    rig_symbol(lib, "fake_cuda_ctl", &ctl);
    rig_symbol(lib, "cuDevicePrimaryCtxRetain", &app.retain);
    rig_symbol(lib, "cuDevicePrimaryCtxRelease_v2", &app.release);
    rig_symbol(lib, "cuDevicePrimaryCtxGetState", &app.state);
    rig_symbol(lib, "cuCtxPushCurrent_v2", &app.push);
    rig_symbol(lib, "cuCtxPopCurrent_v2", &app.pop);
    rig_symbol(lib, "cuMemAlloc_v2", &app.alloc);
    rig_symbol(lib, "cuMemFree_v2", &app.free);
    rig_symbol(lib, "fake_cuda_host", &app.bytes);
    if (path == NULL) {
        rig_symbol(lib, "cuThreadExchangeStreamCaptureMode", &app.mode);
    }
    fake = ctl();
    fake->gpus_set(gpus);
    r2_log_sink_set(rig_sink);
}

static inline void rig_open(int gpus)
{
    char why[256] = "x";

    rig_load(NULL, gpus);
    ck_assert_int_eq(r2_cuda_open(rig_path, &cuda, why, sizeof(why)), 0);
    ck_assert_str_eq(why, "");
}

/* Nothing of the driver's is left, and nothing was said, but for @retained contexts: the test's
 * own, and all where a lane was broken. */
static inline void rig_close(int retained)
{
    struct fake_cuda_live l;

    r2_cuda_close(cuda);
    l = fake->live();
    ck_assert_int_eq(l.memory + l.host + l.streams + l.events, 0);
    ck_assert_int_eq(l.retained, retained);
    ck_assert_uint_eq(fake->count().wrong, 0);
    ck_assert_msg(rig_logged() == 0, "%s", rig_line);
}

/* What a thread has of the driver's. */
struct rig_thread {
    int depth, current, mode;
};

static inline struct rig_thread rig_thread(void)
{
    return (struct rig_thread){fake->depth(), fake->current(), fake->capture_mode()};
}

static inline void rig_thread_is(struct rig_thread want)
{
    ck_assert_int_eq(fake->depth(), want.depth);
    ck_assert_int_eq(fake->current(), want.current);
    ck_assert_int_eq(fake->capture_mode(), want.mode);
}

/* The test's thread from now on has a context of @gpu's current, and captures by itself (mode 1).
 */
static inline void rig_thread_busy(int gpu)
{
    int mode = 1;
    void *ctx;

    ck_assert_int_eq(app.retain(&ctx, gpu), 0);
    ck_assert_int_eq(app.push(ctx), 0);
    ck_assert_int_eq(app.mode(&mode), 0);
}

static inline int live_sum(void)
{
    struct fake_cuda_live l = fake->live();

    return l.memory + l.host + l.streams + l.events;
}

/* Descriptors that the process has open. */
static inline int fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/*
 * A call of the plugin's in which the driver's @n-th call failed: whether it did fail. The thread
 * is as it was at
 * @before, unless the driver refused just that: then it is put right here.
 */
static inline int rig_fault_seen(struct rig_thread before)
{
    const char *name = fake->failed();
    int mode = before.mode;
    void *ctx;

    fake->fail_at(NULL, 0, 0); /* takes back an order that nothing came for */
    if (name != NULL && strcmp(name, "cuCtxPopCurrent_v2") == 0) {
        ck_assert_int_eq(fake->depth(), before.depth + 1);
        ck_assert_int_eq(app.pop(&ctx), 0);
    } else if (name != NULL && strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0) {
        ck_assert_int_eq(app.mode(&mode), 0);
    }
    rig_thread_is(before);
    return name != NULL;
}

#endif
