/* Streams, events and copies: a stream is a queue that a thread works off. */
#include "tests/nccl/standin/gpu_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of so many copies of rows one goes on when the call has returned, as all do on a GPU: a thread's
 * turn for each would take seconds per MB on a machine with much other work. */
#define ROWS_LATE 8

pthread_mutex_t gpu_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t gpu_changed = PTHREAD_COND_INITIALIZER;
struct gpu_stream *gpu_streams;
static struct gpu_stream *default_stream[GPUS_MAX];

void *gpu_calloc(size_t len)
{
    void *p = calloc(1, len);

    if (p == NULL) {
        gpu_die("out of memory");
    }
    return p;
}

static struct gpu_stream *stream_new(int dev)
{
    struct gpu_stream *s = gpu_calloc(sizeof(*s));

    s->dev = dev;
    s->tail = &s->head;
    s->next = gpu_streams;
    gpu_streams = s;
    return s;
}

struct gpu_stream *gpu_stream_new(int dev)
{
    struct gpu_stream *s;

    pthread_mutex_lock(&gpu_lock);
    s = stream_new(dev);
    pthread_mutex_unlock(&gpu_lock);
    return s;
}

struct gpu_stream *gpu_stream_of(void *handle)
{
    struct gpu_stream *s;

    if ((uintptr_t)handle > 2) {
        return handle;
    }
    pthread_mutex_lock(&gpu_lock);
    if (default_stream[gpu_current] == NULL) {
        default_stream[gpu_current] = stream_new(gpu_current);
    }
    s = default_stream[gpu_current];
    pthread_mutex_unlock(&gpu_lock);
    return s;
}

static void *stream_run(void *arg)
{
    struct gpu_stream *s = arg;

    gpu_current = s->dev;
    pthread_mutex_lock(&gpu_lock);
    for (;;) {
        struct gpu_job *j = s->busy ? NULL : s->head; /* busy: with a quick one */

        if (j == NULL) {
            if (s->ends && !s->busy) {
                break;
            }
            pthread_cond_wait(&gpu_changed, &gpu_lock);
            continue;
        }
        s->busy = true;
        s->head = j->next;
        if (s->head == NULL) {
            s->tail = &s->head;
        }
        pthread_mutex_unlock(&gpu_lock);
        j->fn(j->arg);
        free(j->arg);
        free(j);
        pthread_mutex_lock(&gpu_lock);
        s->busy = false;
        pthread_cond_broadcast(&gpu_changed);
    }
    pthread_mutex_unlock(&gpu_lock);
    return NULL;
}

void gpu_push(struct gpu_stream *s, gpu_fn fn, void *arg, bool quick)
{
    struct gpu_job *j;

    pthread_mutex_lock(&gpu_lock);
    if (s->capture) {
        gpu_capture_add(s->capture, fn, arg);
        pthread_mutex_unlock(&gpu_lock);
        return;
    }
    if (quick && s->head == NULL && !s->busy) {
        s->busy = true;
        pthread_mutex_unlock(&gpu_lock);
        fn(arg);
        free(arg);
        pthread_mutex_lock(&gpu_lock);
        s->busy = false;
        pthread_cond_broadcast(&gpu_changed);
        pthread_mutex_unlock(&gpu_lock);
        return;
    }
    j = gpu_calloc(sizeof(*j));
    *j = (struct gpu_job){fn, arg, NULL};
    *s->tail = j;
    s->tail = &j->next;
    if (!s->thread_on) {
        s->thread_on = true;
        if (pthread_create(&s->thread, NULL, stream_run, s) != 0) {
            gpu_die("no thread for a stream");
        }
    }
    pthread_cond_broadcast(&gpu_changed);
    pthread_mutex_unlock(&gpu_lock);
}

static bool idle(struct gpu_stream *s)
{
    return s->head == NULL && !s->busy;
}

bool gpu_idle(struct gpu_stream *s)
{
    bool is;

    pthread_mutex_lock(&gpu_lock);
    is = idle(s);
    pthread_mutex_unlock(&gpu_lock);
    return is;
}

void gpu_sync(struct gpu_stream *s)
{
    pthread_mutex_lock(&gpu_lock);
    while (!idle(s)) {
        pthread_cond_wait(&gpu_changed, &gpu_lock);
    }
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_sync_all(void)
{
    pthread_mutex_lock(&gpu_lock);
    for (struct gpu_stream *s = gpu_streams; s;) {
        if (s->dev == gpu_current && !idle(s)) {
            pthread_cond_wait(&gpu_changed, &gpu_lock);
            s = gpu_streams;
        } else {
            s = s->next;
        }
    }
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_stream_free(struct gpu_stream *s)
{
    pthread_mutex_lock(&gpu_lock);
    s->ends = true;
    pthread_cond_broadcast(&gpu_changed);
    while (!idle(s)) {
        pthread_cond_wait(&gpu_changed, &gpu_lock);
    }
    for (struct gpu_stream **p = &gpu_streams; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            break;
        }
    }
    pthread_mutex_unlock(&gpu_lock);
    if (s->thread_on) {
        pthread_join(s->thread, NULL);
    }
    free(s);
}

struct mark {
    struct gpu_event *e;
    uint64_t n;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct mark *mark_new(struct gpu_event *e, uint64_t n)
{
    struct mark *m = gpu_calloc(sizeof(*m));

    *m = (struct mark){e, n};
    return m;
}

struct gpu_event *gpu_event_new(void)
{
    return calloc(1, sizeof(struct gpu_event));
}

/* Lock held. */
static void event_end(struct gpu_event *e)
{
    if (e->dead && e->waits == 0) {
        free(e);
    }
}

void gpu_event_drop(struct gpu_event *e)
{
    e->waits--;
    event_end(e);
}

void gpu_event_reach(struct gpu_event *e, uint64_t n)
{
    if (n > e->done) {
        e->done = n;
        e->at = now();
    }
    pthread_cond_broadcast(&gpu_changed);
}

void gpu_event_await(struct gpu_event *e, uint64_t n)
{
    while (e->done < n) {
        pthread_cond_wait(&gpu_changed, &gpu_lock);
    }
}

void gpu_event_free(struct gpu_event *e)
{
    pthread_mutex_lock(&gpu_lock);
    e->dead = true;
    event_end(e);
    pthread_mutex_unlock(&gpu_lock);
}

static void event_reached(void *arg)
{
    struct mark *m = arg;

    pthread_mutex_lock(&gpu_lock);
    gpu_event_reach(m->e, m->n);
    gpu_event_drop(m->e);
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_event_record(struct gpu_event *e, struct gpu_stream *s)
{
    uint64_t n;

    pthread_mutex_lock(&gpu_lock);
    if (s->capture) { /* a mark for who waits within the capture */
        e->captured = gpu_capture_id(s->capture);
        pthread_mutex_unlock(&gpu_lock);
        return;
    }
    e->captured = 0;
    n = ++e->asked;
    e->waits++;
    pthread_mutex_unlock(&gpu_lock);
    gpu_push(s, event_reached, mark_new(e, n), true);
}

static void event_waited(void *arg)
{
    struct mark *m = arg;

    pthread_mutex_lock(&gpu_lock);
    gpu_event_await(m->e, m->n);
    gpu_event_drop(m->e);
    pthread_mutex_unlock(&gpu_lock);
}

int gpu_event_wait(struct gpu_event *e, struct gpu_stream *s, bool external)
{
    uint64_t n;
    int rc;

    pthread_mutex_lock(&gpu_lock);
    rc = gpu_capture_wait(e, s, external);
    n = e->asked;
    if (rc >= 0 || e->done >= n) {
        pthread_mutex_unlock(&gpu_lock);
        return rc >= 0 ? rc : 0;
    }
    e->waits++;
    pthread_mutex_unlock(&gpu_lock);
    gpu_push(s, event_waited, mark_new(e, n), false);
    return 0;
}

bool gpu_event_done(struct gpu_event *e)
{
    bool is;

    pthread_mutex_lock(&gpu_lock);
    is = e->done >= e->asked;
    pthread_mutex_unlock(&gpu_lock);
    return is;
}

void gpu_event_sync(struct gpu_event *e)
{
    pthread_mutex_lock(&gpu_lock);
    gpu_event_await(e, e->asked);
    pthread_mutex_unlock(&gpu_lock);
}

double gpu_event_time(struct gpu_event *e)
{
    return e->at;
}

/* ---- copies ---- */

struct move {
    void *dst;
    const void *src;
    int value;
    size_t len;
};

/* In the order of addresses, word by word, as LL128 has it from PCIe: a line's flag is not there
 * before the line is. */
static void copy_forward(char *dst, const char *src, size_t len)
{
    size_t i = 0;

    if (((uintptr_t)dst | (uintptr_t)src) % 8 == 0) {
        for (; i + 8 <= len; i += 8) {
            *(volatile uint64_t *)(dst + i) = *(const uint64_t *)(src + i);
        }
    }
    if (i < len) {
        memcpy(dst + i, src + i, len - i);
    }
}

static void move_run(void *arg)
{
    struct move *m = arg;

    if (m->src && ((char *)m->dst + m->len <= (const char *)m->src ||
                   (const char *)m->src + m->len <= (char *)m->dst)) {
        copy_forward(m->dst, m->src, m->len);
    } else if (m->src) {
        memmove(m->dst, m->src, m->len);
    } else {
        memset(m->dst, m->value, m->len);
    }
}

static void move_push(struct gpu_stream *s, void *dst, const void *src, int value, size_t len)
{
    struct move *m;

    if (len == 0) {
        return;
    }
    m = gpu_calloc(sizeof(*m));
    *m = (struct move){dst, src, value, len};
    gpu_push(s, move_run, m, true);
}

void gpu_copy(void *dst, const void *src, size_t len, struct gpu_stream *s)
{
    move_push(s, dst, src, 0, len);
}

static void rows_run(void *arg)
{
    struct gpu_rows *r = arg;

    for (size_t i = r->rows; i-- > 0;) {
        copy_forward((char *)r->dst + i * r->dst_pitch, (const char *)r->src + i * r->src_pitch,
                     r->width);
    }
}

void gpu_copy_rows(const struct gpu_rows *r, struct gpu_stream *s)
{
    static atomic_uint copies;
    struct gpu_rows *copy;

    if (r->width == 0 || r->rows == 0) {
        return;
    }
    copy = gpu_calloc(sizeof(*copy));
    *copy = *r;
    gpu_push(s, rows_run, copy, atomic_fetch_add(&copies, 1) % ROWS_LATE != 0);
}

void gpu_set(void *dst, int value, size_t len, struct gpu_stream *s)
{
    move_push(s, dst, NULL, value, len);
}
