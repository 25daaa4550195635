/* Prints gdb commands and what they must answer in a library of release NCCL_RELEASE, one pair a
 * line (layout.sh). */
#include <stdio.h>

#include "tests/nccl/standin/nccl_layout.h"

#define SIZE(ours, theirs) printf("print sizeof(struct %s)\t%zu\n", theirs, sizeof(struct ours))
#define AT(ours, field, theirs, their_field)                                                       \
    printf("print (int)(long)&((struct %s*)0)->%s\t%zu\n", theirs, their_field,                    \
           offsetof(struct ours, field))

int main(void)
{
    SIZE(conn_fifo, "ncclConnFifo");
    AT(conn_fifo, offset, "ncclConnFifo", "offset");
    AT(conn_fifo, size, "ncclConnFifo", "size");
    SIZE(conn_info, "ncclConnInfo");
    AT(conn_info, tail, "ncclConnInfo", "tail");
    AT(conn_info, head, "ncclConnInfo", "head");
    AT(conn_info, flags, "ncclConnInfo", "flags");
    AT(conn_info, step_size, "ncclConnInfo", "stepSize");
    AT(conn_info, fifo, "ncclConnInfo", "connFifo");
    AT(conn_info, step, "ncclConnInfo", "step");
    SIZE(dev_peer, "ncclDevChannelPeer");
    AT(dev_peer, recv, "ncclDevChannelPeer", "recv");
    SIZE(dev_channel, "ncclDevChannel");
    AT(dev_channel, ring, "ncclDevChannel", "ring");
    AT(dev_channel, ring.user_ranks, "ncclDevChannel", "ring.userRanks");
    AT(dev_channel, ring.index, "ncclDevChannel", "ring.index");
    AT(dev_channel, tree.up, "ncclDevChannel", "tree.up");
    AT(dev_channel, tree.down, "ncclDevChannel", "tree.down");
#if NCCL_RELEASE >= 226
    AT(dev_channel, work_counter, "ncclDevChannel", "workCounter");
#endif
    SIZE(kernel_comm, KERNEL_COMM_NAME);
    AT(kernel_comm, buff_sizes, KERNEL_COMM_NAME, "buffSizes");
    AT(kernel_comm, p2p_chunk_size, KERNEL_COMM_NAME, "p2pChunkSize");
    AT(kernel_comm, abort_flag, KERNEL_COMM_NAME, "abortFlag");
#if NCCL_RELEASE < 227
    AT(kernel_comm, work_consumed, KERNEL_COMM_NAME, "workConsumed");
#endif
#if NCCL_RELEASE >= 226
    AT(kernel_comm, work_started, KERNEL_COMM_NAME, "workStarted");
#endif
#if NCCL_RELEASE >= 227
    SIZE(dev_profiler, "ncclDevProfiler");
#endif
    SIZE(kernel_args, "ncclDevKernelArgs");
    AT(kernel_args, channel_mask, "ncclDevKernelArgs", "channelMask");
    AT(kernel_args, storage, "ncclDevKernelArgs", "workStorageType");
    AT(kernel_args, work_mask, "ncclDevKernelArgs", "workMask");
    AT(kernel_args, work_buf, "ncclDevKernelArgs", "workBuf");
    SIZE(work_coll, "ncclDevWorkColl");
    AT(work_coll, root, "ncclDevWorkColl", "root");
    AT(work_coll, recvbuff, "ncclDevWorkColl", "recvbuff");
    AT(work_coll, sendbuff, "ncclDevWorkColl", "sendbuff");
    AT(work_coll, count_lo, "ncclDevWorkColl", "cbd.countLo");
    AT(work_coll, count_hi, "ncclDevWorkColl", "cbd.countHi");
    AT(work_coll, op_arg, "ncclDevWorkColl", "redOpArg");
    SIZE(work_p2p, "ncclDevWorkP2p");
    AT(work_p2p, send_bytes, "ncclDevWorkP2p", "sendBytes");
    AT(work_p2p, recv_rank, "ncclDevWorkP2p", "recvRank");
    AT(work_p2p, recv_chunk_fp8, "ncclDevWorkP2p", "recvChunkSize_u32fp8");
    printf("print sizeof(struct ncclDevWorkCollReg)\t%zu\n", WORK_COLL_REG_SIZE);
    printf("print (int)(long)&((struct " KERNEL_COMM_NAME "AndChannels*)0)->channels\t%zu\n",
           CHANNELS_AT);
    return 0;
}
