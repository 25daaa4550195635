/*
 * Memory of GPUs behind the TCP device: the engine's thread alone copies between it and a piece of
 * page-locked memory, one piece at a time, by calls of the layer above (tcpdev.h). The device's
 * lock is not held meanwhile; what the copy is for is marked (tcpdev_gpus), and who ends it waits.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/r2_log.h"
#include "tcpdev_int.h"

#define SPIN_NS 50000ull /* a copy takes some ten microseconds: behind that the thread sleeps */
#define NAP_NS  20000

/* Written before the first device is opened. */
static const struct tcpdev_copies *copies;
static void *copies_arg;

void tcpdev_copies_set(const struct tcpdev_copies *c, void *arg)
{
    copies = c;
    copies_arg = arg;
}

/* d->gpu.lock held. The place of GPU @ordinal; NULL with errno. */
static struct tcpdev_gpu *gpu_place(struct tcpdev *d, int ordinal)
{
    struct tcpdev_gpu *g = &d->gpu.place[ordinal];

    if (!g->opened) {
        errno = copies->open(copies_arg, ordinal, TCPDEV_CHUNK, &g->lanes);
        g->opened = errno == 0;
    }
    return g->opened ? g : NULL;
}

struct tcpdev_gpu *tcpdev_gpu_of(struct tcpdev *d, const void *addr, size_t len)
{
    int ordinal = copies ? copies->gpu_of(copies_arg, addr) : -1;
    struct tcpdev_gpu *g;

    if (copies && ordinal < 0) { /* it may begin with the rest of a page */
        ordinal = copies->gpu_of(copies_arg, (const char *)addr + len / 2);
    }
    if (ordinal < 0 || ordinal >= TCPDEV_GPUS) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    pthread_mutex_lock(&d->gpu.lock);
    g = gpu_place(d, ordinal);
    pthread_mutex_unlock(&d->gpu.lock);
    if (g && atomic_load(&g->broken)) {
        errno = EIO;
        return NULL;
    }
    return g;
}

static uint64_t copy_most(void)
{
    return copies->most_ns ? copies->most_ns : TCPDEV_COPY_NS;
}

/* 0: done. EINPROGRESS: it may run, and write, at any time from here on. Else nothing runs. */
static int copy_run(const struct tcpdev_gpu *g, bool to_gpu, void *dst, const void *src, size_t len)
{
    int rc = copies->begin(copies_arg, &g->lanes, to_gpu, dst, src, len), ended;
    uint64_t since = tcpdev_now(), took;

    if (rc != 0) {
        return rc;
    }
    while ((ended = copies->done(copies_arg, &g->lanes, to_gpu)) == 0) {
        took = tcpdev_now() - since;
        if (took > copy_most()) {
            break;
        }
        if (took < SPIN_NS) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        }
    }
    return ended == 1 ? 0 : EINPROGRESS;
}

/* Lock held. What became of a copy that did not end well. */
static void copy_failed(struct tcpdev_qp *q, struct tcpdev_mr *m, bool to_gpu, int rc)
{
    m->dead = true;
    if (rc == EINPROGRESS) {
        q->end.stuck |= to_gpu;
        m->stuck = true;
        if (!atomic_exchange(&m->gpu->broken, true)) {
            R2_WARN("last resort: a copy %s memory of a GPU does not end: nothing of that GPU goes "
                    "over TCP any more",
                    to_gpu ? "to" : "from");
        }
        return;
    }
    R2_WARN(
        "last resort: memory of a GPU at %p + %zu cannot be copied: %s. It does not go over TCP "
        "any more",
        m->base.addr, m->base.length, strerror(rc));
}

/* Lock held, and not meanwhile: @dst, @src are the piece and memory of @m, or the other way round.
 */
static bool copy(struct tcpdev_qp *q, struct tcpdev_mr *m, bool to_gpu, void *dst, const void *src,
                 uint32_t len)
{
    struct tcpdev *d = q->dev;
    int rc;

    d->gpu.busy_qp = q;
    d->gpu.busy_mr = m;
    pthread_mutex_unlock(&d->lock);
    rc = copy_run(m->gpu, to_gpu, dst, src, len);
    pthread_mutex_lock(&d->lock);
    if (rc != 0) {
        copy_failed(q, m, to_gpu, rc);
    }
    d->gpu.busy_qp = NULL;
    d->gpu.busy_mr = NULL;
    pthread_cond_broadcast(&d->gpu.copied);
    return rc == 0 && !q->end.stuck;
}

bool tcpdev_gpu_write(struct tcpdev_qp *q, struct tcpdev_mr *m, void *to, const void *from,
                      uint32_t len)
{
    memcpy(m->gpu->lanes.piece, from, len);
    return copy(q, m, true, to, m->gpu->lanes.piece, len);
}

const void *tcpdev_gpu_read(struct tcpdev_qp *q, struct tcpdev_mr *m, const void *from,
                            uint32_t len)
{
    return copy(q, m, false, m->gpu->lanes.piece, from, len) ? m->gpu->lanes.piece : NULL;
}

static bool is_busy(const struct tcpdev *d, const struct tcpdev_qp *q, const struct tcpdev_mr *m)
{
    return (q && d->gpu.busy_qp == q) || (m && d->gpu.busy_mr == m);
}

int tcpdev_gpu_wait(struct tcpdev *d, struct tcpdev_qp *q, struct tcpdev_mr *m)
{
    struct timespec end;
    uint64_t ns;

    if (is_busy(d, q, m)) {
        ns = tcpdev_now() + copy_most() + TCPDEV_COPY_NS / 2;
        end = (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                                .tv_nsec = (long)(ns % 1000000000)};
        while (is_busy(d, q, m) && pthread_cond_timedwait(&d->gpu.copied, &d->lock, &end) == 0) {
        }
    }
    if (is_busy(d, q, m)) { /* the driver itself does not come back */
        d->gpu.busy_qp->end.stuck = true;
        d->gpu.busy_mr->stuck = true;
    }
    return (q && q->end.stuck) || (m && m->stuck) ? EIO : 0;
}

void tcpdev_gpu_setup(struct tcpdev *d)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->gpu.copied, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&d->gpu.lock, NULL);
}

void tcpdev_gpu_end(struct tcpdev *d)
{
    pthread_cond_destroy(&d->gpu.copied);
    pthread_mutex_destroy(&d->gpu.lock);
}
