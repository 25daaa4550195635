/*
 * The operations as pure arithmetic: how many elements, over which steps, from where to where. Ring
 * algorithms cut the data in chunks and loops as NCCL's kernels do; sendrecv, alltoall, gather and
 * scatter are pairs of one-way streams. Everything here is a pure function; any thread; nothing
 * blocks.
 */
#ifndef R2_PERF_ALGO_H
#define R2_PERF_ALGO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum algo_op {
    ALGO_ALL_REDUCE,
    ALGO_ALL_GATHER,
    ALGO_REDUCE_SCATTER,
    ALGO_BROADCAST,
    ALGO_REDUCE,
    ALGO_SENDRECV,
    ALGO_ALLTOALL,
    ALGO_GATHER,
    ALGO_SCATTER,
    ALGO_COUNT
};

struct algo_info {
    const char *name;
    bool rooted;      /* -r counts, and the root column */
    bool reduces;     /* combines inputs */
    bool names_redop; /* nccl-tests runs one row set per -o and prints it */
    bool pairwise;    /* one-way streams instead of a ring */
    bool in_place_ok; /* an in-place run has a defined result that can be checked */
    int slices;       /* messages a chunk is cut into */
    int slice_steps;  /* steps (eighths of a connection's buffer) per message */
};

const struct algo_info *algo_info_get(enum algo_op op);
/* The operation called @name ("all_reduce" or "all_reduce_perf"); ALGO_COUNT when there is none. */
enum algo_op algo_op_find(const char *name);

/* Elements, for a size of @count elements over @nranks, as nccl-tests counts them. */
struct algo_counts {
    size_t send, recv;                   /* elements in each buffer of one rank */
    size_t param;                        /* the count that the operation is called with */
    size_t send_in_place, recv_in_place; /* x rank: where the buffers lie in the shared one */
};
void algo_counts_get(enum algo_op op, size_t count, size_t type_size, int nranks,
                     struct algo_counts *out);

/* Pairwise operations: whether @src sends to @dst; a copy to itself is a pair, too. */
bool algo_pair_exists(enum algo_op op, int src, int dst, int nranks, int root);

/* Bytes that algorithm bandwidth divides by the time. */
size_t algo_bytes_get(enum algo_op op, size_t param, size_t type_size, int nranks);
/* busbw / algbw. */
double algo_bus_factor(enum algo_op op, int nranks);

/* Channels that a message is worth: below 32 KiB per channel fewer are used. At least 1. */
int algo_channels_get(size_t bytes, int channels);

enum algo_flags {
    ALGO_RECV = 1,       /* takes one chunk from the previous rank */
    ALGO_SEND = 2,       /* passes one chunk on to the next */
    ALGO_SRC = 4,        /* reads the user's input */
    ALGO_DST = 8,        /* writes the user's output */
    ALGO_REDUCE_IN = 16, /* combines the received chunk with the input */
    ALGO_FINISH = 32     /* the last reduction of this chunk */
};

/* One chunk: offsets in elements of the user's buffers. */
struct algo_act {
    unsigned flags;
    size_t src, dst, n;
};

/* One rank's share of one channel of an operation. For pairs, one direction to or from @peer. */
struct algo_lane {
    enum algo_op op;
    int rank, nranks, root, peer;
    bool pair_send; /* pairs: this lane sends */
    int channel, nchannels;
    size_t count;     /* param count of the operation, elements */
    size_t align;     /* elements per 16 bytes, at least 1 */
    size_t chunk;     /* elements per chunk, a multiple of align */
    size_t base, len; /* set by algo_lane_cut */
};

/* Compute the channel's part (base, len). */
void algo_lane_cut(struct algo_lane *lane);
/* Number of chunks this lane handles; 0 for an operation without elements. */
uint64_t algo_acts_count(const struct algo_lane *lane);
/* How many of those chunks arrive from another rank. */
uint64_t algo_recvs_count(const struct algo_lane *lane);
/* Chunk number @i < algo_acts_count(). */
void algo_act_get(const struct algo_lane *lane, uint64_t i, struct algo_act *out);
/* Elements of a slice when a chunk of @n elements is cut into @slices, none larger than @slice_max.
 */
size_t algo_slice_size(size_t n, int slices, size_t slice_max);

#endif
