/*
 * A verbs device over TCP: RC queue pairs, completion queues and memory keys in this process's
 * memory, carried by the kernel's TCP to the same device of another process. To those who use verbs
 * it is one more NIC, so that paths, fences, ledgers and probes are what they are for every NIC; it
 * is the one of last resort, for hosts of which no RDMA NIC is left (docs/last-resort.md).
 *
 * What is exact here and is not with hardware: when modify_qp has brought a queue pair to ERR, not
 * one byte is read or written on its behalf any more, and each flush completion is the device's
 * own.
 *
 * Streams are dialled with the first work request, one per peer process, shared by all queue pairs
 * to it. One thread per device, started with the first queue pair, does all that touches sockets.
 */
#ifndef TCPDEV_H
#define TCPDEV_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ib_transport/verbs/ib_verbs.h"

#define TCPDEV_COPY_NS 1000000000ull

/* What it takes to move bytes between memory of one GPU and a piece of page-locked memory. */
struct tcpdev_lanes {
    void *piece;   /* as long as was asked for; the engine's thread alone reads and writes it */
    void *lane[2]; /* from the GPU, to it */
};

/*
 * By whom bytes of GPUs are moved: the layer above has the driver. One copy at a time, of the
 * engine's thread; open() comes from a thread that registers memory, and is over before the first
 * copy of its lanes.
 */
struct tcpdev_copies {
    /* The ordinal of the GPU whose memory @addr is; -1: of none, or nobody knows. May block. */
    int (*gpu_of)(void *arg, const void *addr);
    /* Makes ready what copies @piece bytes at a time. 0 or errno. May block. There to the end of
     * the process. */
    int (*open)(void *arg, int gpu, size_t piece, struct tcpdev_lanes *out);
    /*
     * Begins to copy. errno: nothing runs. @to_gpu: of each line of 128 bytes of memory the last 8
     * come behind the others, and no aligned word of 8 is seen by halves.
     */
    int (*begin)(void *arg, const struct tcpdev_lanes *lanes, bool to_gpu, void *dst,
                 const void *src, size_t len);
    /* 1: it has ended; 0: it runs; -1: it may run for ever. */
    int (*done)(void *arg, const struct tcpdev_lanes *lanes, bool to_gpu);
    uint64_t most_ns; /* a copy that takes longer never ends; 0: TCPDEV_COPY_NS */
};

/* Before the first device is opened. Without it memory of GPUs is refused. */
void tcpdev_copies_set(const struct tcpdev_copies *c, void *arg);

struct tcpdev_params {
    struct in_addr addr;   /* of the interface, which is where peers dial */
    struct in6_addr addr6; /* the same; ::: none, it is IPv4 */
    uint32_t scope;        /* IPv6: number of the interface, on whose link link-local peers are */
    int speed_mbps;        /* of the interface; 0: not known */
    uint64_t rate;         /* bytes a second at most, of all that it sends; 0: no limit */
    uint8_t secret[10];    /* random */
};

/*
 * Adds the device to those of @v: the list has one more, and each call that concerns it is answered
 * here, all others by the table as it was. Several may be added before the first is opened; the
 * product has one. 0, or a positive errno with the reason in @why. Thread: init only. Blocks: no.
 */
int tcpdev_add(struct ib_verbs *v, const struct tcpdev_params *params, char *why, size_t why_len);

/*
 * The process ends: memory that is registered is touched no more, since what runs behind this may
 * take it away. Any thread; blocks for some ten microseconds; while a copy of a GPU's memory runs,
 * until it has ended, 1.5 s at most.
 */
void tcpdev_exit(void);

#endif
