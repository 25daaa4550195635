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
#include <stddef.h>
#include <stdint.h>

#include "ib_transport/verbs/ib_verbs.h"

struct tcpdev_params {
    struct in_addr addr; /* of the interface, which is where peers dial */
    int speed_mbps;      /* of the interface; 0: not known */
    uint64_t rate;       /* bytes a second at most, of all that it sends; 0: no limit */
    uint8_t secret[10];  /* random */
};

/*
 * Adds the device to those of @v: the list has one more, and each call that concerns it is answered
 * here, all others by the table as it was. Several may be added before the first is opened; the
 * product has one. 0, or a positive errno with the reason in @why. Thread: init only. Blocks: no.
 */
int tcpdev_add(struct ib_verbs *v, const struct tcpdev_params *params, char *why, size_t why_len);

/*
 * The process ends: memory that is registered is touched no more, since what runs behind this may
 * take it away. Any thread; blocks for some ten microseconds.
 */
void tcpdev_exit(void);

#endif
