/* What streams, events and graphs share: gpu_stream.c and gpu_graph.c. */
#ifndef GPU_INT_H
#define GPU_INT_H

#include "tests/nccl/standin/gpu.h"

#include <pthread.h>

struct gpu_capture;
struct gpu_job {
    gpu_fn fn;
    void *arg;
    struct gpu_job *next;
};
struct gpu_stream {
    int dev;
    bool busy, thread_on, ends;
    struct gpu_job *head, **tail;
    struct gpu_capture *capture; /* what is queued goes into its graph; NULL: none */
    pthread_t thread;
    struct gpu_stream *next;
};
struct gpu_event {
    uint64_t asked, done;
    unsigned long long captured; /* the capture in which it was recorded last; 0: none */
    double at;
    int waits; /* that still use it */
    bool dead;
};

extern pthread_mutex_t gpu_lock; /* of all streams, events, captures */
extern pthread_cond_t gpu_changed;
extern struct gpu_stream *gpu_streams;

void *gpu_calloc(size_t len); /* ends the process where there is no memory */
/* With the lock held. */
void gpu_event_drop(struct gpu_event *e);                    /* one use less */
void gpu_event_reach(struct gpu_event *e, uint64_t n);       /* record number @n */
void gpu_event_await(struct gpu_event *e, uint64_t n);       /* waits for it */
struct gpu_capture *gpu_capture_find(unsigned long long id); /* one that goes on; NULL */
unsigned long long gpu_capture_id(const struct gpu_capture *c);
void gpu_capture_add(struct gpu_capture *c, gpu_fn fn, void *arg);
int gpu_capture_spoil(struct gpu_capture *c, int error); /* its end will say so; @error */
int gpu_capture_wait(struct gpu_event *e, struct gpu_stream *s, bool external); /* -1: not of one */

#endif
