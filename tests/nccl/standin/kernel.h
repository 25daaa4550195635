/*
 * NCCL's kernels on the CPU, inner interface: a block (a channel) is a thread, and speaks the three
 * protocols on the connections' buffers, so that NCCL's own proxies and transports carry the data.
 * Rings, trees, send and receive; no CollNet, NVLS, PAT, symmetric memory. Waiting polls memory and
 * sleeps, for many of these share few cores.
 */
#ifndef NCCL_STANDIN_KERNEL_H
#define NCCL_STANDIN_KERNEL_H

#include <pthread.h>
#include <string.h>

#include "tests/nccl/standin/gpu.h"
#include "tests/nccl/standin/nccl_layout.h"

#define PEERS_MAX TREE_ARITY
#define TILE                                                                                       \
    8192 /* bytes that a reduction works on at once: a multiple of what LL and LL128 take */

/* What a batch of work names by its number. func -1: no number of the library's. */
struct kernel_function {
    int func, op, type, algo, proto;
};
/* The function with that number; ends the process when the library has none. Any thread. */
const struct kernel_function *kernel_function_get(unsigned id);

/* Bytes of an element of enum T_*. */
extern const unsigned char kernel_type_size[TYPES_MAX];
/* acc = x op acc, @n elements. @arg: the operation's argument as NCCL's host gives it. Pure, as
 * what follows. */
void kernel_combine(int op, int type, uint64_t arg, void *acc, const void *x, size_t n);
/* What an operation does with a rank's own input, and with the last result. */
void kernel_pre_op(int op, int type, uint64_t arg, void *acc, size_t n);
void kernel_post_op(int op, int type, uint64_t arg, void *acc, size_t n);

struct block {
    const struct kernel_args *args;
    const struct kernel_comm *comm;
    struct dev_channel *channel;
    int channel_id, index;
    int aborted; /* atomic, relaxed: threads of one block agree in the end */
};

/* An end of a connection, while a kernel uses it. */
struct end {
    struct conn_info *c;
    uint64_t step, seen;
    bool registered; /* the NIC moves the user's buffer itself */
};

struct prims {
    struct block *b;
    struct end recv[PEERS_MAX], send[PEERS_MAX];
    int recvs, sends;
    int proto;
    int slices, slice_steps; /* of a chunk; steps of a slice */
    int op, type;
    size_t elt;
    uint64_t arg;
    char *in, *out;
    bool p2p;
    size_t step_elts;
};

/* What prims_op() does with a chunk, ORed. */
enum { PRIM_RECV = 1, PRIM_SEND = 2, PRIM_IN = 4, PRIM_OUT_SRC = 8, PRIM_OUT = 16, PRIM_POST = 32 };

/* Which peers and buffers; ends lists at -1. */
struct prims_plan {
    const struct kernel_function *f;
    int slices, slice_steps;
    const int *recv_peers, *send_peers;
    int recv_most, send_most;
    int conn; /* 0 rings and trees, 1 send and receive */
    void *in, *out;
    uint64_t arg;
    bool net_reg;
};
void prims_begin(struct prims *p, struct block *b, const struct prims_plan *plan);
/* One chunk of @n elements (none or fewer: still a step of each slice). Blocks until the peers have
 * done their part. */
void prims_op(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n);
/* Writes the steps back; waits until the NIC is done with registered buffers. */
void prims_end(struct prims *p);

void prims_simple(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n);
void prims_ll(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n);
void prims_ll128(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n);

/* Whether the job is being aborted. */
bool block_is_aborted(struct block *b);
/* Once more around a loop that waits, which spins, then sleeps: false when the job is being
 * aborted. */
bool block_waits(struct block *b, unsigned *spins);
/* Until *@p + @credit is @want. The sum may pass zero: a proxy that lends its buffers begins with a
 * head of -STEPS. */
void block_wait_step(struct block *b, struct end *e, const uint64_t *p, uint64_t credit,
                     uint64_t want);
/* A thread with a small stack; ends the process when there is none. */
void block_thread_start(pthread_t *t, void *(*fn)(void *), void *arg);

/* One collective's part of this channel; works of a batch of sends and receives, side by side. */
void kernel_collective_run(struct block *b, const struct kernel_function *f, struct work_coll *w);
void kernel_p2p_run(struct block *b, struct work_p2p *works, int n);

/* attach.c: what the loaded libnccl.so.2 has at a symbol that it does not export, and what is at an
 * address. */
void *attach_symbol(const char *name, size_t *len);
const char *attach_name(const void *addr);

static inline size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t size_div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

#endif
