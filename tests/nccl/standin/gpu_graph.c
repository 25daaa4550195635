/*
 * Graphs: what streams of a capture would have done, in the order in which it was queued, which is
 * one of those that its dependencies allow. A launch runs all of it in the stream's thread.
 *
 * CUDA forbids some calls while anybody captures (cudaThreadExchangeStreamCaptureMode), by default
 * in all threads: such a call fails, and so does the capture, whoever made it.
 */
#include "tests/nccl/standin/gpu_int.h"

#include <stdlib.h>

enum { RUN, RECORD, WAIT };

struct node {
    int kind;
    gpu_fn fn; /* RUN */
    void *arg;
    struct gpu_event *e; /* RECORD, WAIT */
    struct node *next;
};
struct object {
    gpu_fn destroy;
    void *arg;
    struct object *next;
};
struct gpu_graph {
    int refs, marks; /* marks: nodes of events */
    struct node *head, **tail;
    struct object *objects;
};
struct gpu_capture {
    unsigned long long id;
    enum gpu_capture_mode mode;
    pthread_t thread;
    struct gpu_stream *origin;
    struct gpu_graph *graph;
    int error;
    struct gpu_capture *next;
};
struct launch {
    struct gpu_graph *g;
    uint64_t n[]; /* of each node of an event */
};

static struct gpu_capture *captures;
static unsigned long long last_id;
static _Thread_local enum gpu_capture_mode thread_mode;

/* --- the graph; lock held --- */

static void node_add(struct gpu_graph *g, int kind, gpu_fn fn, void *arg, struct gpu_event *e)
{
    struct node *n = gpu_calloc(sizeof(*n));

    *n = (struct node){kind, fn, arg, e, NULL};
    *g->tail = n;
    g->tail = &n->next;
    if (e) {
        e->waits++;
        g->marks++;
    }
}

static struct gpu_graph *graph_new(void)
{
    struct gpu_graph *g = gpu_calloc(sizeof(*g));

    g->refs = 1;
    g->tail = &g->head;
    return g;
}

void gpu_graph_record_add(struct gpu_graph *g, struct gpu_event *e)
{
    pthread_mutex_lock(&gpu_lock);
    node_add(g, RECORD, NULL, NULL, e);
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_graph_object_add(struct gpu_graph *g, gpu_fn destroy, void *arg)
{
    struct object *o = gpu_calloc(sizeof(*o));

    pthread_mutex_lock(&gpu_lock);
    *o = (struct object){destroy, arg, g->objects};
    g->objects = o;
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_graph_hold(struct gpu_graph *g)
{
    pthread_mutex_lock(&gpu_lock);
    g->refs++;
    pthread_mutex_unlock(&gpu_lock);
}

void gpu_graph_free(struct gpu_graph *g)
{
    struct node *n, *next;
    struct object *o, *after;
    bool is_last;

    pthread_mutex_lock(&gpu_lock);
    is_last = --g->refs == 0;
    for (n = g->head; n && is_last; n = next) {
        next = n->next;
        if (n->e) {
            gpu_event_drop(n->e);
        }
        free(n->arg);
        free(n);
    }
    pthread_mutex_unlock(&gpu_lock);
    if (!is_last) {
        return;
    }
    for (o = g->objects; o; o = after) {
        after = o->next;
        o->destroy(o->arg);
        free(o);
    }
    free(g);
}

/* --- capture --- */

struct gpu_capture *gpu_capture_find(unsigned long long id)
{
    struct gpu_capture *c = captures;

    while (c && c->id != id) {
        c = c->next;
    }
    return c;
}

unsigned long long gpu_capture_id(const struct gpu_capture *c)
{
    return c->id;
}

void gpu_capture_add(struct gpu_capture *c, gpu_fn fn, void *arg)
{
    node_add(c->graph, RUN, fn, arg, NULL);
}

int gpu_capture_spoil(struct gpu_capture *c, int error)
{
    gpu_log("a capture fails: error %d", error);
    c->error = GPU_CAPTURE_INVALIDATED;
    return error;
}

int gpu_capture_wait(struct gpu_event *e, struct gpu_stream *s, bool external)
{
    struct gpu_capture *of = external ? NULL : gpu_capture_find(e->captured);

    if (of && s->capture && s->capture != of) {
        return gpu_capture_spoil(of, gpu_capture_spoil(s->capture, GPU_CAPTURE_MERGE));
    }
    if (of) { /* what follows belongs to it */
        s->capture = of;
        return 0;
    }
    if (s->capture && external) {
        node_add(s->capture->graph, WAIT, NULL, NULL, e);
        return 0;
    }
    if (s->capture && e->asked) { /* on what is not in the graph */
        return gpu_capture_spoil(s->capture, GPU_CAPTURE_ISOLATION);
    }
    return s->capture ? 0 : -1;
}

int gpu_capture_begin(struct gpu_stream *s, enum gpu_capture_mode mode)
{
    struct gpu_capture *c = gpu_calloc(sizeof(*c));

    pthread_mutex_lock(&gpu_lock);
    if (s->capture) {
        pthread_mutex_unlock(&gpu_lock);
        free(c);
        return GPU_ILLEGAL_STATE;
    }
    *c = (struct gpu_capture){.id = ++last_id,
                              .mode = mode,
                              .thread = pthread_self(),
                              .origin = s,
                              .graph = graph_new(),
                              .next = captures};
    captures = s->capture = c;
    pthread_mutex_unlock(&gpu_lock);
    return 0;
}

int gpu_capture_end(struct gpu_stream *s, struct gpu_graph **graph)
{
    struct gpu_capture *c, **at = &captures;
    int rc;

    *graph = NULL;
    pthread_mutex_lock(&gpu_lock);
    c = s->capture;
    if (c == NULL || c->origin != s) {
        pthread_mutex_unlock(&gpu_lock);
        return c ? GPU_CAPTURE_UNMATCHED : GPU_ILLEGAL_STATE;
    }
    rc = c->mode != GPU_CAPTURE_RELAXED && !pthread_equal(c->thread, pthread_self())
             ? GPU_CAPTURE_WRONG_THREAD
             : c->error;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    for (struct gpu_stream *one = gpu_streams; one; one = one->next) {
        one->capture = one->capture == c ? NULL : one->capture;
    }
    pthread_mutex_unlock(&gpu_lock);
    if (rc) {
        gpu_graph_free(c->graph);
    } else {
        *graph = c->graph;
    }
    free(c);
    return rc;
}

struct gpu_graph *gpu_capture_of(struct gpu_stream *s, unsigned long long *id, bool *is_spoiled)
{
    struct gpu_graph *g;

    pthread_mutex_lock(&gpu_lock);
    g = s->capture ? s->capture->graph : NULL;
    *id = s->capture ? s->capture->id : 0;
    *is_spoiled = s->capture && s->capture->error;
    pthread_mutex_unlock(&gpu_lock);
    return g;
}

void gpu_capture_mode_swap(int *mode)
{
    enum gpu_capture_mode was = thread_mode;

    thread_mode = (enum gpu_capture_mode)mode[0];
    mode[0] = (int)was;
}

int gpu_unsafe(const char *call)
{
    int rc = 0;

    pthread_mutex_lock(&gpu_lock);
    for (struct gpu_capture *c = captures; c && thread_mode != GPU_CAPTURE_RELAXED; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self());

        if (own ? c->mode != GPU_CAPTURE_RELAXED
                : thread_mode == GPU_CAPTURE_GLOBAL && c->mode == GPU_CAPTURE_GLOBAL) {
            gpu_log("%s, while a %s captures", call, own ? "thread itself" : "thread");
            rc = gpu_capture_spoil(c, GPU_CAPTURE_UNSUPPORTED);
        }
    }
    pthread_mutex_unlock(&gpu_lock);
    return rc;
}

int gpu_unsafe_on(const char *call, struct gpu_stream *s)
{
    int rc = 0;

    pthread_mutex_lock(&gpu_lock);
    if (s->capture) {
        gpu_log("%s of a stream that is captured", call);
        rc = gpu_capture_spoil(s->capture, GPU_CAPTURE_UNSUPPORTED);
    }
    pthread_mutex_unlock(&gpu_lock);
    return rc ? rc : gpu_unsafe(call);
}

int gpu_unsafe_at(const char *call, struct gpu_event *e)
{
    struct gpu_capture *c;
    int rc = 0;

    pthread_mutex_lock(&gpu_lock);
    c = gpu_capture_find(e->captured);
    if (c) {
        gpu_log("%s of an event that is captured", call);
        rc = gpu_capture_spoil(c, GPU_CAPTURED_EVENT);
    }
    pthread_mutex_unlock(&gpu_lock);
    return rc ? rc : gpu_unsafe(call);
}

/* --- launch --- */

static void launch_run(void *arg)
{
    struct launch *l = arg;
    int mark = 0;

    for (struct node *n = l->g->head; n; n = n->next) {
        if (n->kind == RUN) {
            n->fn(n->arg);
            continue;
        }
        pthread_mutex_lock(&gpu_lock);
        if (n->kind == RECORD) {
            gpu_event_reach(n->e, l->n[mark++]);
        } else {
            gpu_event_await(n->e, l->n[mark++]);
        }
        pthread_mutex_unlock(&gpu_lock);
    }
    gpu_graph_free(l->g);
}

int gpu_graph_launch(struct gpu_graph *g, struct gpu_stream *s)
{
    struct launch *l = gpu_calloc(sizeof(*l) + (size_t)g->marks * sizeof(l->n[0]));
    int mark = 0;

    pthread_mutex_lock(&gpu_lock);
    if (s->capture) {
        pthread_mutex_unlock(&gpu_lock);
        gpu_die("a graph is launched into a capture, and the stand-in has no child graphs");
    }
    l->g = g;
    g->refs++;
    for (struct node *n = g->head; n; n = n->next) {
        if (n->kind != RUN) {
            l->n[mark++] = n->kind == RECORD ? ++n->e->asked : n->e->asked;
        }
    }
    pthread_mutex_unlock(&gpu_lock);
    gpu_push(s, launch_run, l, false);
    return 0;
}
