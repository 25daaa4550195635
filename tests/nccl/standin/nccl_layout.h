/*
 * What NCCL's host part and its kernels share, as far as the kernels' stand-in (kernel_*.c) uses
 * it, for the release that NCCL_RELEASE says (222 to 230; tests/nccl/rank/nccl_release.c has the
 * patch releases). Layouts as in the release's own debug information (tests/nccl/layout.sh compares
 * them with the library's DWARF by gdb).
 */
#ifndef NCCL_STANDIN_LAYOUT_H
#define NCCL_STANDIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if NCCL_RELEASE < 222 || NCCL_RELEASE > 230
#error "NCCL_RELEASE: no layouts for this release"
#endif
/* What debug information calls struct kernel_comm, and what comes before the channels. */
#if NCCL_RELEASE >= 228
#define KERNEL_COMM_NAME "ncclKernelComm"
#else
#define KERNEL_COMM_NAME "ncclDevComm"
#endif

enum { PROTO_LL, PROTO_LL128, PROTO_SIMPLE, PROTOS };
enum {
    ALGO_TREE,
    ALGO_RING,
    ALGO_COLLNET_DIRECT,
    ALGO_COLLNET_CHAIN,
    ALGO_NVLS,
    ALGO_NVLS_TREE,
    ALGO_PAT
};
enum {
    FUNC_BROADCAST,
    FUNC_REDUCE,
    FUNC_ALLGATHER,
    FUNC_REDUCESCATTER,
    FUNC_ALLREDUCE,
    FUNC_SENDRECV,
    FUNC_ALLGATHERV
};
enum { OP_SUM, OP_PROD, OP_MINMAX, OP_PREMULSUM, OP_SUMPOSTDIV, OPS };
enum {
    T_I8,
    T_U8,
    T_I32,
    T_U32,
    T_I64,
    T_U64,
    T_F16,
    T_F32,
    T_F64,
    T_BF16,
    T_F8E4M3,
    T_F8E5M2,
    TYPES_MAX
};
#define TYPES (NCCL_RELEASE >= 224 ? 12 : 10)
enum { WORK_P2P, WORK_COLL, WORK_COLL_REG, WORK_BROADCASTS /* since 2.29 */ };
enum { STORE_ARGS, STORE_FIFO, STORE_PERSISTENT };

#define STEPS        8 /* steps of a connection's buffer */
#define CHANNELS_MAX 64
#define TREE_ARITY   3
#define CONNS        2 /* of a pair of ranks: 0 rings and trees, 1 send and receive */
#define FIFO_OFFSET  1 /* conn_fifo.mode: data at .offset instead of by step (shared buffers) */
#define FLAG_DIRECT_NIC                                                                            \
    0x04 /* conn_info.flags: the NIC reads and writes registered buffers of the user */
#define LL_CLEAN_MASK   0x7ffffff8u
#define PROFILER_EVENTS 64

struct conn_fifo {
    int mode;
    int offset;
    ssize_t size; /* bytes of a step: told to the proxy before the tail; -1 when the proxy is done
                     with it */
    void *ptr;
};

struct conn_info {
    char *buffs[PROTOS]; /* where the receiver reads */
    void *mhandles[PROTOS];
    uint64_t *tail; /* written by the sender */
    uint64_t *head; /* written by the receiver */
    int flags;
    int shared;
    int step_size;
    void **ptr_exchange;
    uint64_t *redop_arg_exchange;
    struct conn_fifo *fifo; /* NULL: no proxy */
    uint64_t step;
    uint64_t ll_last_cleaning;
    char net_device_handle[32];
};

struct dev_peer {
    struct conn_info send[CONNS], recv[CONNS];
};

struct dev_ring {
    int prev, next;
    int *user_ranks; /* from this rank on */
#if NCCL_RELEASE >= 229
    int *rank_to_index;
#endif
    int index;
};

struct dev_tree {
    int depth;
    int up, down[TREE_ARITY]; /* -1: none */
};

struct dev_channel {
    struct dev_peer **peers;
    struct dev_ring ring;
    struct dev_tree tree;
    char collnet_and_nvls[NCCL_RELEASE >= 225 ? 288 : 296];
    uint32_t *work_fifo_done;
#if NCCL_RELEASE >= 226
    uint64_t work_counter;
#endif
} __attribute__((aligned(16)));

struct dev_profiler {
    struct {
        uint64_t counter, timestamp;
    } data[PROFILER_EVENTS];
};

struct kernel_comm {
    int rank, ranks, node, nodes;
    int buff_sizes[PROTOS];
    int p2p_chunk_size;
#if NCCL_RELEASE >= 230
    bool p2p_cross_clique;
#endif
#if NCCL_RELEASE >= 223
    int all_nvlink;
#endif
#if NCCL_RELEASE < 227
    uint32_t *work_consumed;
#endif
    int *dense_to_user;
    volatile uint32_t *abort_flag;
    struct dev_channel *channels;
#if NCCL_RELEASE >= 223
    int *rank_to_local;
#endif
#if NCCL_RELEASE >= 227
    struct dev_profiler *work_started, *work_completed; /* by channel */
#elif NCCL_RELEASE == 226
    uint64_t *work_started, *work_completed;
#endif
};

struct kernel_args {
    struct kernel_comm *comm;
    uint64_t channel_mask;
    uint8_t storage; /* STORE_ARGS ... */
    uint32_t work_mask;
    void *work_buf;
} __attribute__((aligned(16))); /* batches follow: the first of a block at its index */

struct work_batch {
    uint32_t next_jump : 14, next_extends : 1, work_type : 2, func_id : 15;
    uint32_t offset_base;
    uint64_t offset_bits; /* bit i: a work at offset_base + i * its size */
} __attribute__((aligned(16)));

struct work_coll {
    uint32_t channel_lo : 8, channel_hi : 8, warps : 8;
#if NCCL_RELEASE >= 224
    uint32_t op_arg_is_ptr : 1, reg_used : 1, net_reg_used : 1, one_node : 1, direct : 2,
        one_rpn : 1, profiled : 1;
#else
    uint32_t op_arg_is_ptr : 1, reg_used : 2, one_node : 1, direct : 4;
#endif
    uint32_t root;
#if NCCL_RELEASE >= 230
    uint8_t pad1[12];
#endif
    char *recvbuff, *sendbuff;
#if NCCL_RELEASE >= 230
    uint64_t pad2;
#endif
#if NCCL_RELEASE >= 223
    uintptr_t sendbuff_offset, recvbuff_offset;
    uintptr_t *sendbuff_rmt, *recvbuff_rmt;
#endif
    size_t count_lo, count_mid, count_hi;
    uint64_t grains_lo : 21, grains_mid : 21, grains_hi : 21;
    uint64_t op_arg;
#if NCCL_RELEASE >= 230
    uint8_t pad3[8];
#endif
} __attribute__((aligned(16)));

struct work_p2p {
    char *send_addr, *recv_addr;
    size_t send_bytes, recv_bytes;
    int send_rank, recv_rank;
    uint8_t p2p_channels, channel_base, send_channels, recv_channels;
    uint8_t send_chunk_fp8, recv_chunk_fp8;
    uint8_t send_ll : 1, recv_ll : 1, send_net_reg : 1, recv_net_reg : 1, send_ipc_reg : 1,
        recv_ipc_reg : 1, profiled : 1;
} __attribute__((aligned(16)));

#define WORK_COLL_REG_SIZE (sizeof(struct work_coll) + 192)
#define CHANNELS_AT                                                                                \
    ((sizeof(struct kernel_comm) + 15) / 16 *                                                      \
     16) /* ncclKernelCommAndChannels: from the communicator to the first channel */
#define WORKS_BYTES_MAX 1024

_Static_assert(sizeof(struct conn_info) == 152, "ncclConnInfo");
_Static_assert(sizeof(struct dev_channel) == (NCCL_RELEASE == 225 ? 352 : 368), "ncclDevChannel");
_Static_assert(sizeof(struct kernel_comm) == (NCCL_RELEASE >= 227   ? 88
                                              : NCCL_RELEASE == 226 ? 96
                                              : NCCL_RELEASE >= 223 ? 80
                                                                    : 64),
               KERNEL_COMM_NAME);
_Static_assert(sizeof(struct kernel_args) == 32, "ncclDevKernelArgs");
_Static_assert(sizeof(struct work_batch) == 16, "ncclDevWorkBatch");
_Static_assert(sizeof(struct work_coll) == (NCCL_RELEASE >= 230   ? 128
                                            : NCCL_RELEASE >= 223 ? 96
                                                                  : 64),
               "ncclDevWorkColl");
_Static_assert(sizeof(struct work_p2p) == 48, "ncclDevWorkP2p");

#endif
