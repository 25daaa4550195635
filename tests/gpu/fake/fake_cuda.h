/*
 * The stand-in for CUDA's driver, as tests see it beside the driver's own calls.
 *
 * FAKE_CUDA_GPUS in the environment: how many GPUs there are, 0 to 16, 1 by default. With 0
 * cuInit() fails, as the driver's does.
 */
#ifndef R2_FAKE_CUDA_H
#define R2_FAKE_CUDA_H

/* What of the driver's is not given back yet. */
struct fake_cuda_live {
    int memory, host, streams, events; /* allocations, objects */
    int retained;                      /* primary contexts, as often as they are retained */
};

/* What has been done. */
struct fake_cuda_count {
    unsigned copies; /* by streams, done */
    unsigned any;    /* cuMemcpyAsync(), from any memory to any, begun */
    unsigned
        staged; /* of these, between GPUs of which the first has no access to the second's memory */
    unsigned spoiled; /* captures ended by a call of a thread that was not relaxed */
    unsigned wrong;   /* streams that wait for the default one, events that take the time, memory of
                         the host of one   context alone */
};

/* Every function from any thread. */
struct fake_cuda_ctl {
    void (*gpus_set)(int n);      /* -1: as the environment says */
    void (*peers_set)(int able);  /* whether GPUs reach each other's memory; at first they do */
    void (*dmabuf_set)(int able); /* whether there are DMA-BUFs; at first not */
    void (*skew_set)(unsigned offset); /* of memory from now on, from the beginning of its page */
    void (*capture_set)(int on);       /* some thread captures a graph in global mode */

    /* On: copies of streams wait until they are released, and what comes behind them in their
     * streams. Off: all are done now. */
    void (*hold)(int on);
    /* Does up to @n waiting copies of @gpu's streams (-1: of all), oldest first. How many it did.
     */
    unsigned (*release)(int gpu, unsigned n);

    /* The call of @name after the next @after ones returns @error and does nothing; NULL: of
     * whatever name. Once; replaces an order not carried out. */
    void (*fail_at)(const char *name, unsigned after, int error);
    /* Which call has failed by the last order; NULL: none yet. */
    const char *(*failed)(void);

    /* The next thread that calls @name runs @what first. Once. */
    void (*before)(const char *name, void (*what)(void));

    struct fake_cuda_live (*live)(void);
    struct fake_cuda_count (*count)(void);

    /* The calling thread: contexts on its stack; the GPU whose context is current, -1: none; mode
     * of capture. */
    int (*depth)(void);
    int (*current)(void);
    int (*capture_mode)(void);
};

/* By dlsym(). */
const struct fake_cuda_ctl *fake_cuda_ctl(void);

/* Where the bytes of "GPU" memory at @ptr are in this process; NULL: it is none. */
void *fake_cuda_host(const void *ptr);

#endif
