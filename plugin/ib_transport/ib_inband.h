/*
 * Messages of the plugin over NICs: what carries control records while the out-of-band channel does
 * not (docs/control.md).
 *
 * Per NIC one pool: a shared receive queue, a completion queue with a channel, buffers for both
 * directions. Per NIC pair and peer process one queue pair on it, apart from data and probes. A
 * message arrives whole or not at all; one that is lost, or for which there is no room, is not sent
 * again from here: its sender repeats it.
 *
 * open, create, connect, quiet, destroy and close may block in the driver and run on the device's
 * worker (close: when the workers have stopped); the others on the service thread, never while a
 * job of the queue pair they name is out. The pool's buffers are the service thread's once a job
 * that opened it has been reaped.
 */
#ifndef IB_INBAND_H
#define IB_INBAND_H

#include <stdint.h>

#include "ib_path.h"

#define IB_INBAND_MESSAGE                                                                          \
    1024 /* bytes at most: every record but a REQ of a host with more than 29 NICs */
#define IB_INBAND_RECVS    64 /* of a NIC, for all its queue pairs */
#define IB_INBAND_SENDS    32 /* likewise */
#define IB_INBAND_QP_SENDS 8
#define IB_INBAND_SPARE                                                                            \
    16 /* of IB_INBAND_SENDS: one for a queue pair at most. What takes none leaves them to the     \
          others */

struct ib_inband_pool {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    uint8_t *mem;                    /* IB_INBAND_RECVS, then IB_INBAND_SENDS messages */
    uint32_t owner[IB_INBAND_SENDS]; /* number of the queue pair that sends the buffer; 0: free */
    uint32_t
        turn[IB_INBAND_SENDS]; /* which use of it that is: numbers of queue pairs are used again */
    uint8_t tried;             /* open has been called: it is not tried again */
    int rc;                    /* ... with this result */
    uint8_t sick;              /* a buffer could not be posted again; the service thread's */
};

struct ib_inband_qp {
    struct ibv_qp *qp; /* NULL: none */
    uint32_t qpn, psn; /* qpn is kept until ib_inband_reclaim() */
    uint8_t out;       /* messages without completion */
    uint8_t up;        /* connected, and nothing has failed on it */
    uint8_t stuck;     /* could not be destroyed: its buffers stay its own */
};

/* Opens the pool of @nic, once. Positive errno (EOPNOTSUPP: no shared receive queues), 0. */
int ib_inband_open(struct ib_inband_pool *pool, struct ib_nics *nics, int nic);
/* All queue pairs are destroyed. */
void ib_inband_close(struct ib_inband_pool *pool, const struct ib_nics *nics);

/* A queue pair in INIT on an open pool. Positive errno, 0. */
int ib_inband_create(struct ib_inband_qp *q, const struct ib_inband_pool *pool,
                     struct ib_nics *nics, int nic, uint32_t psn);
/* INIT -> RTR -> RTS, by way @way (ib_way_port.h), to queue pair @qpn, which starts with @psn, at
 * @port. Positive errno, 0. */
int ib_inband_connect(struct ib_inband_qp *q, struct ib_nics *nics, int nic, unsigned way,
                      const struct ib_addr *port, uint32_t qpn, uint32_t psn);
/* Nothing of it is sent any more. */
void ib_inband_quiet(struct ib_inband_qp *q, const struct ib_nics *nics);
void ib_inband_destroy(struct ib_inband_qp *q, const struct ib_nics *nics);
/* After destroy: buffers that it was sending are free again. */
void ib_inband_reclaim(struct ib_inband_qp *q, struct ib_inband_pool *pool);

/* Sends a copy of @msg, 1 to IB_INBAND_MESSAGE bytes, with @imm as its immediate. 0; EAGAIN when as
 * many are out as fit; ENOTCONN when it is not up; else the errno of the call. */
int ib_inband_send(struct ib_inband_qp *q, struct ib_inband_pool *pool, const void *msg, size_t len,
                   uint32_t imm);

/* Upcalls of ib_inband_progress(). @msg is valid during the call only. They may call
 * ib_inband_send(). */
struct ib_inband_sink {
    void *arg;
    void (*message)(void *arg, int nic, uint32_t qpn, const void *msg, size_t len, uint32_t imm);
    /* A message of ours on this queue pair is through; or has failed (@failed), and the queue pair
     * with it. */
    void (*sent)(void *arg, int nic, uint32_t qpn, int failed);
};

/* Takes what has completed, and asks the channel for an event at the next completion. */
void ib_inband_progress(struct ib_inband_pool *pool, const struct ib_nics *nics, int nic,
                        const struct ib_inband_sink *sink);

#endif
