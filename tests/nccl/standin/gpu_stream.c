/* Streams, events and copies: a stream is a queue that a thread works off. */
#include "tests/nccl/standin/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of so many copies of rows one goes on when the call has returned, as all do on a GPU: a thread's
 * turn for each would take seconds per MB on a machine with much other work. */
#define ROWS_LATE 8

struct job {
    gpu_fn fn;
    void *arg;
    struct job *next;
};
struct gpu_stream {
    int dev;
    bool busy, thread_on, ends;
    struct job *head, **tail;
    pthread_t thread;
    struct gpu_stream *next;
};
struct gpu_event {
    uint64_t asked, done;
    double at;
    int waits;
    bool dead;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct gpu_stream *streams, *default_stream[GPUS_MAX];

static struct gpu_stream *stream_new(int dev)
{
    struct gpu_stream *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        gpu_die("out of memory");
    }
    s->dev = dev;
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    return s;
}

struct gpu_stream *gpu_stream_new(int dev)
{
    struct gpu_stream *s;

    pthread_mutex_lock(&lock);
    s = stream_new(dev);
    pthread_mutex_unlock(&lock);
    return s;
}

struct gpu_stream *gpu_stream_of(void *handle)
{
    struct gpu_stream *s;

    if ((uintptr_t)handle > 2) {
        return handle;
    }
    pthread_mutex_lock(&lock);
    if (default_stream[gpu_current] == NULL) {
        default_stream[gpu_current] = stream_new(gpu_current);
    }
    s = default_stream[gpu_current];
    pthread_mutex_unlock(&lock);
    return s;
}

static void *stream_run(void *arg)
{
    struct gpu_stream *s = arg;

    gpu_current = s->dev;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct job *j = s->busy ? NULL : s->head; /* busy: with a quick one */

        if (j == NULL) {
            if (s->ends && !s->busy) {
                break;
            }
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        s->busy = true;
        s->head = j->next;
        if (s->head == NULL) {
            s->tail = &s->head;
        }
        pthread_mutex_unlock(&lock);
        j->fn(j->arg);
        free(j);
        pthread_mutex_lock(&lock);
        s->busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void gpu_push(struct gpu_stream *s, gpu_fn fn, void *arg, bool quick)
{
    struct job *j;

    pthread_mutex_lock(&lock);
    if (quick && s->head == NULL && !s->busy) {
        s->busy = true;
        pthread_mutex_unlock(&lock);
        fn(arg);
        pthread_mutex_lock(&lock);
        s->busy = false;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        return;
    }
    j = malloc(sizeof(*j));
    if (j == NULL) {
        gpu_die("out of memory");
    }
    *j = (struct job){fn, arg, NULL};
    *s->tail = j;
    s->tail = &j->next;
    if (!s->thread_on) {
        s->thread_on = true;
        if (pthread_create(&s->thread, NULL, stream_run, s) != 0) {
            gpu_die("no thread for a stream");
        }
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool idle(struct gpu_stream *s)
{
    return s->head == NULL && !s->busy;
}

bool gpu_idle(struct gpu_stream *s)
{
    bool is;

    pthread_mutex_lock(&lock);
    is = idle(s);
    pthread_mutex_unlock(&lock);
    return is;
}

void gpu_sync(struct gpu_stream *s)
{
    pthread_mutex_lock(&lock);
    while (!idle(s)) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void gpu_sync_all(void)
{
    pthread_mutex_lock(&lock);
    for (struct gpu_stream *s = streams; s;) {
        if (s->dev == gpu_current && !idle(s)) {
            pthread_cond_wait(&changed, &lock);
            s = streams;
        } else {
            s = s->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void gpu_stream_free(struct gpu_stream *s)
{
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    while (!idle(s)) {
        pthread_cond_wait(&changed, &lock);
    }
    for (struct gpu_stream **p = &streams; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
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
    struct mark *m = malloc(sizeof(*m));

    if (m == NULL) {
        gpu_die("out of memory");
    }
    *m = (struct mark){e, n};
    return m;
}

struct gpu_event *gpu_event_new(void)
{
    return calloc(1, sizeof(struct gpu_event));
}

/* Lock held. */
static void event_drop(struct gpu_event *e)
{
    if (e->dead && e->waits == 0) {
        free(e);
    }
}

void gpu_event_free(struct gpu_event *e)
{
    pthread_mutex_lock(&lock);
    e->dead = true;
    event_drop(e);
    pthread_mutex_unlock(&lock);
}

static void event_reached(void *arg)
{
    struct mark *m = arg;

    pthread_mutex_lock(&lock);
    if (m->n > m->e->done) {
        m->e->done = m->n;
        m->e->at = now();
    }
    m->e->waits--;
    event_drop(m->e);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(m);
}

void gpu_event_record(struct gpu_event *e, struct gpu_stream *s)
{
    uint64_t n;

    pthread_mutex_lock(&lock);
    n = ++e->asked;
    e->waits++;
    pthread_mutex_unlock(&lock);
    gpu_push(s, event_reached, mark_new(e, n), true);
}

static void event_waited(void *arg)
{
    struct mark *m = arg;

    pthread_mutex_lock(&lock);
    while (m->e->done < m->n) {
        pthread_cond_wait(&changed, &lock);
    }
    m->e->waits--;
    event_drop(m->e);
    pthread_mutex_unlock(&lock);
    free(m);
}

void gpu_event_wait(struct gpu_event *e, struct gpu_stream *s)
{
    uint64_t n;

    pthread_mutex_lock(&lock);
    n = e->asked;
    if (e->done >= n) {
        pthread_mutex_unlock(&lock);
        return;
    }
    e->waits++;
    pthread_mutex_unlock(&lock);
    gpu_push(s, event_waited, mark_new(e, n), false);
}

bool gpu_event_done(struct gpu_event *e)
{
    bool is;

    pthread_mutex_lock(&lock);
    is = e->done >= e->asked;
    pthread_mutex_unlock(&lock);
    return is;
}

void gpu_event_sync(struct gpu_event *e)
{
    pthread_mutex_lock(&lock);
    for (uint64_t n = e->asked; e->done < n;) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
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
    free(m);
}

static void move_push(struct gpu_stream *s, void *dst, const void *src, int value, size_t len)
{
    struct move *m;

    if (len == 0) {
        return;
    }
    m = malloc(sizeof(*m));
    if (m == NULL) {
        gpu_die("out of memory");
    }
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
    free(r);
}

void gpu_copy_rows(const struct gpu_rows *r, struct gpu_stream *s)
{
    static atomic_uint copies;
    struct gpu_rows *copy;

    if (r->width == 0 || r->rows == 0) {
        return;
    }
    copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        gpu_die("out of memory");
    }
    *copy = *r;
    gpu_push(s, rows_run, copy, atomic_fetch_add(&copies, 1) % ROWS_LATE != 0);
}

void gpu_set(void *dst, int value, size_t len, struct gpu_stream *s)
{
    move_push(s, dst, NULL, value, len);
}
