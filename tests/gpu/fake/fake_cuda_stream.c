/*
 * Streams, events and copies of the stand-in for CUDA's driver. What is enqueued is in one queue,
 * in the order of the calls; each stream's part of it is done in order, at once or when a test
 * releases it.
 */
#include "tests/gpu/fake/fake_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NON_BLOCKING   1
#define DISABLE_TIMING 2
#define UNIFIED        4

/* CUDA_MEMCPY2D, version 2. */
struct copy_2d {
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

EXPORT int cuStreamCreate(void **stream, unsigned flags);
EXPORT int cuStreamDestroy_v2(void *stream);
EXPORT int cuStreamQuery(void *stream);
EXPORT int cuStreamSynchronize(void *stream);
EXPORT int cuEventCreate(void **event, unsigned flags);
EXPORT int cuEventDestroy_v2(void *event);
EXPORT int cuEventRecord(void *event, void *stream);
EXPORT int cuEventQuery(void *event);
EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, void *stream);
EXPORT int cuMemcpy2DAsync_v2(const struct copy_2d *copy, void *stream);
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, void *stream);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream);
EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream);

/* All under fake_lock. */
struct stream {
    struct stream *next;
    struct context *ctx;
};
/* Done when what it was last recorded behind is done; never recorded: done. */
struct event {
    struct event *next;
    struct context *ctx;
    unsigned recorded, reached;
};
/* A copy, or with an event that one's record. */
struct work {
    struct work *next;
    struct stream *stream;
    struct event *event;
    unsigned record;
    uint64_t dst, src;
    size_t bytes, pitch, rows; /* from row to row: at both ends */
};
static struct stream *streams;
static struct event *events;
static struct work *works;
static int holding;

static struct stream *stream_find(const void *p)
{
    struct stream *s = streams;

    while (s != NULL && s != p) {
        s = s->next;
    }
    return s;
}

static struct event *event_find(const void *p)
{
    struct event *e = events;

    while (e != NULL && e != p) {
        e = e->next;
    }
    return e;
}

static int stream_waits(const struct stream *s)
{
    for (const struct work *w = works; w != NULL; w = w->next) {
        if (w->stream == s) {
            return 1;
        }
    }
    return 0;
}

/* The GPU does it. What it reads or writes must still be there: a program that frees it before dies
 * here, as in the driver its data would. */
static void work_do(const struct work *w)
{
    int to_gpu, from_gpu;
    void *to, *from;

    if (w->event != NULL) {
        w->event->reached = w->record;
        return;
    }
    to = fake_bytes_at(w->dst, (w->rows - 1) * w->pitch + w->bytes, &to_gpu);
    from = fake_bytes_at(w->src, (w->rows - 1) * w->pitch + w->bytes, &from_gpu);
    if (to == NULL || from == NULL) {
        abort();
    }
    for (size_t row = 0; row < w->rows; row++) {
        memcpy((char *)to + row * w->pitch, (char *)from + row * w->pitch, w->bytes);
    }
    fake_count.copies++;
    if (to_gpu >= 0 && from_gpu >= 0 && to_gpu != from_gpu &&
        !(w->stream->ctx->peers & 1u << to_gpu)) {
        fake_count.staged++;
    }
}

/* Does the work of @s, up to the first copy if @copies is 0. */
static void stream_run(const struct stream *s, unsigned copies)
{
    struct work **at = &works, *w;

    while ((w = *at) != NULL) {
        if (w->stream != s) {
            at = &w->next;
            continue;
        }
        if (w->event == NULL && copies == 0) {
            return;
        }
        copies -= w->event == NULL;
        work_do(w);
        *at = w->next;
        free(w);
    }
}

static int work_add(struct stream *s, const struct work *what)
{
    struct work **at = &works, *w = malloc(sizeof(*w));

    if (w == NULL) {
        return OUT_OF_MEMORY;
    }
    *w = *what;
    w->stream = s;
    w->next = NULL;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = w;
    stream_run(s, holding ? 0 : ~0u);
    return 0;
}

void fake_hold(int on)
{
    pthread_mutex_lock(&fake_lock);
    holding = on;
    for (struct stream *s = streams; s != NULL && !on; s = s->next) {
        stream_run(s, ~0u);
    }
    pthread_mutex_unlock(&fake_lock);
}

unsigned fake_release(int gpu, unsigned n)
{
    unsigned done = 0;
    struct work *w;

    pthread_mutex_lock(&fake_lock);
    for (; done < n; done++) {
        w = works;
        while (w != NULL && gpu >= 0 && w->stream->ctx->device != gpu) {
            w = w->next;
        }
        if (w == NULL) {
            break;
        }
        stream_run(w->stream, 1);
    }
    pthread_mutex_unlock(&fake_lock);
    return done;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct stream *s = rc == 0 ? calloc(1, sizeof(*s)) : NULL;

    if (s == NULL || flags > 1) {
        free(s);
        return rc ? rc : flags > 1 ? INVALID_VALUE : OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    s->ctx = fake_current();
    s->next = streams;
    streams = s;
    fake_live.streams++;
    fake_count.wrong += flags != NON_BLOCKING;
    pthread_mutex_unlock(&fake_lock);
    *stream = s;
    return 0;
}

/* What waits in it is done: it has not to be over, and the GPU may be that fast. */
int cuStreamDestroy_v2(void *stream)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct stream *s, **at = &streams;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    s = stream_find(stream);
    if (s == NULL || s->ctx != fake_current()) {
        rc = INVALID_HANDLE;
    } else {
        stream_run(s, ~0u);
        while (*at != s) {
            at = &(*at)->next;
        }
        *at = s->next;
        free(s);
        fake_live.streams--;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuStreamQuery(void *stream)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_UNSAFE);
    struct stream *s;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    s = stream_find(stream);
    rc = s == NULL ? INVALID_HANDLE : stream_waits(s) ? NOT_READY : 0;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuStreamSynchronize(void *stream)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_UNSAFE);
    struct stream *s;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    s = stream_find(stream);
    if (s != NULL) {
        stream_run(s, ~0u);
    }
    pthread_mutex_unlock(&fake_lock);
    return s ? 0 : INVALID_HANDLE;
}

int cuEventCreate(void **event, unsigned flags)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct event *e = rc == 0 ? calloc(1, sizeof(*e)) : NULL;

    if (e == NULL || flags > 7) {
        free(e);
        return rc ? rc : flags > 7 ? INVALID_VALUE : OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    e->ctx = fake_current();
    e->next = events;
    events = e;
    fake_live.events++;
    fake_count.wrong += (flags & DISABLE_TIMING) == 0;
    pthread_mutex_unlock(&fake_lock);
    *event = e;
    return 0;
}

int cuEventDestroy_v2(void *event)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct event *e, **at = &events;
    struct work **next = &works, *w;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    e = event_find(event);
    if (e == NULL || e->ctx != fake_current()) {
        rc = INVALID_HANDLE;
    } else {
        while ((w = *next) != NULL) {
            if (w->event == e) {
                *next = w->next;
                free(w);
            } else {
                next = &w->next;
            }
        }
        while (*at != e) {
            at = &(*at)->next;
        }
        *at = e->next;
        free(e);
        fake_live.events--;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuEventRecord(void *event, void *stream)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct stream *s;
    struct event *e;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    s = stream_find(stream);
    e = event_find(event);
    if (s == NULL || e == NULL || s->ctx != fake_current() || e->ctx != s->ctx) {
        rc = INVALID_HANDLE;
    } else {
        rc = work_add(s, &(struct work){.event = e, .record = ++e->recorded});
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuEventQuery(void *event)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    struct event *e;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    e = event_find(event);
    if (e == NULL || e->ctx != fake_current()) {
        rc = INVALID_HANDLE;
    } else {
        rc = e->reached == e->recorded ? 0 : NOT_READY;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

static int rows_add(const char *name, const struct work *what, void *stream)
{
    size_t bytes = (what->rows - 1) * what->pitch + what->bytes;
    int rc = fake_enter(name, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE), gpu;
    struct stream *s;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    s = stream_find(stream);
    if (s == NULL || s->ctx != fake_current()) {
        rc = INVALID_HANDLE;
    } else if (fake_bytes_at(what->dst, bytes, &gpu) == NULL ||
               fake_bytes_at(what->src, bytes, &gpu) == NULL) {
        rc = INVALID_VALUE;
    } else {
        rc = work_add(s, what);
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

static int copy_add(const char *name, uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    return rows_add(name, &(struct work){.dst = dst, .src = src, .bytes = bytes, .rows = 1},
                    stream);
}

/* Between unified addresses alone, and of one pitch. */
int cuMemcpy2DAsync_v2(const struct copy_2d *p, void *stream)
{
    struct work what = {
        .dst = p->dst, .src = p->src, .bytes = p->width, .pitch = p->src_pitch, .rows = p->height};

    if (p->src_type != UNIFIED || p->dst_type != UNIFIED || p->src_x || p->src_y || p->dst_x ||
        p->dst_y || p->src_pitch != p->dst_pitch || p->width == 0 || p->width > p->src_pitch ||
        p->height == 0) {
        return INVALID_VALUE;
    }
    return rows_add(__func__, &what, stream);
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    int rc = copy_add(__func__, dst, src, bytes, stream);

    pthread_mutex_lock(&fake_lock);
    fake_count.any += rc == 0;
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

/* FAKE_CUDA_COUNT: a file to which each process appends how often it did, at its end. */
static __attribute__((destructor)) void count_write(void)
{
    const char *path = getenv("FAKE_CUDA_COUNT");
    FILE *f = path ? fopen(path, "a") : NULL;

    if (f != NULL) {
        fprintf(f, "%u\n", fake_count.any);
        fclose(f);
    }
}

int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, void *stream)
{
    return copy_add(__func__, dst, src, bytes, stream);
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream)
{
    return copy_add(__func__, dst, (uint64_t)(uintptr_t)src, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
    return copy_add(__func__, (uint64_t)(uintptr_t)dst, src, bytes, stream);
}
