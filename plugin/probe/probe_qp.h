/*
 * The queue pair of a probe: zero-byte RDMA writes between two NICs, apart from data
 * (docs/health.md). IBTA 9.7.4.1.2: a request of length zero needs no valid R_Key, so
 * nothing of the peer's memory is named.
 *
 * create, connect and destroy may block in the driver and run on the device's worker; the others on
 * the service thread, never while a job of this queue pair is out.
 */
#ifndef PROBE_QP_H
#define PROBE_QP_H

#include <stdint.h>

#include "ib_transport/ib_path.h"

#define PROBE_QP_DEPTH   16
#define PROBE_QP_TIMEOUT 18 /* RC's own; probe_qp.c */
#define PROBE_QP_TIMEOUT_NS                                                                        \
    (4096ull << PROBE_QP_TIMEOUT) /* IBTA 9.7.6.1.3: nothing is repeated by time sooner */

struct probe_qp {
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    uint32_t psn;
    uint64_t answered; /* when the last one that has been answered was posted */
    uint16_t out;      /* posted, no completion yet */
    uint8_t refused;   /* its library took no post: it knows the queue pair to be in ERR */
    uint8_t unable;    /* it broke because our own NIC could send nothing: that says nothing of the
                          peer's */
    uint8_t reads;     /* set before create: the peer may read, too */
};

/* Positive errno, 0 when it stands in INIT. What was made before a failure is destroyed by
 * probe_qp_destroy(). */
int probe_qp_create(struct probe_qp *q, struct ib_nics *nics, int nic, uint32_t psn);
/* INIT -> RTR -> RTS; @peer as probe_qp_addr_get() gave it there. Positive errno or 0. */
int probe_qp_connect(struct probe_qp *q, struct ib_nics *nics, int nic,
                     const struct ib_path_addr *peer);
/* Nothing of it is sent any more, nor again. Worker. */
void probe_qp_quiet(struct probe_qp *q, const struct ib_nics *nics);
void probe_qp_destroy(struct probe_qp *q, const struct ib_nics *nics);

void probe_qp_addr_get(const struct probe_qp *q, struct ib_nics *nics, int nic,
                       struct ib_path_addr *out);

/* Posts one more, at @at of any clock. 0; EAGAIN when as many are out as fit; else the errno of the
 * call. */
int probe_qp_post(struct probe_qp *q, uint64_t at);
/* 1: an answer came since the last poll; 0: none; -1: a completion in error, a post that was
 * refused before, or the poll failed. */
int probe_qp_poll(struct probe_qp *q);

#endif
