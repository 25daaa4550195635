/* Between the files of the stand-in for CUDA's driver. */
#ifndef R2_FAKE_CUDA_INT_H
#define R2_FAKE_CUDA_INT_H

#include "tests/gpu/fake/fake_cuda.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define INVALID_VALUE       1
#define OUT_OF_MEMORY       2
#define NOT_INITIALIZED     3
#define NO_DEVICE           100
#define INVALID_DEVICE      101
#define INVALID_CONTEXT     201
#define PEER_UNSUPPORTED    217
#define INVALID_HANDLE      400
#define NOT_READY           600
#define PEER_ENABLED        704
#define NOT_SUPPORTED       801
#define CAPTURE_UNSUPPORTED 900

#define GPUS_MAX 16

struct context {
    int device;
    int retained;
    unsigned peers; /* a bit for each GPU whose memory it reaches */
};

/* All under fake_lock. */
extern pthread_mutex_t fake_lock;
extern struct context fake_ctx[GPUS_MAX];
extern struct fake_cuda_live fake_live;
extern struct fake_cuda_count fake_count;
extern int fake_gpus, fake_peers, fake_dmabuf;
extern unsigned fake_skew;

enum {
    FAKE_INIT = 1,   /* after cuInit() alone */
    FAKE_CTX = 2,    /* with a context current */
    FAKE_UNSAFE = 4, /* not while a graph is captured, unless the thread is relaxed */
};

/* What every call begins with: @name, and what it wants (FAKE_*). 0, or the error that it returns.
 * Takes the lock for a moment. */
int fake_enter(const char *name, int wants);

/* The thread's current context; NULL: none. */
struct context *fake_current(void);

/* With the lock held: the bytes of [@ptr, @ptr+@len) of one allocation, and whose they are; NULL:
 * it is none. */
void *fake_memory_at(uint64_t ptr, size_t len, int *gpu);

/* With the lock held: the bytes of memory of a GPU or the host; NULL: an address of a GPU where
 * there is no memory.
 * @gpu: -1 host. */
void *fake_bytes_at(uint64_t ptr, size_t len, int *gpu);

/* Of fake_cuda_stream.c, without the lock. */
void fake_hold(int on);
unsigned fake_release(int gpu, unsigned n);

#endif
