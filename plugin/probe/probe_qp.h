/*
 * The queue pairs of a probe: zero-byte RDMA writes between two NICs, apart from data
 * (docs/health.md). IBTA 9.7.4.1.2: a request of length zero needs no valid R_Key, so nothing of
 * the peer's memory is named. Where the fabric has several ways, each probe goes over two of them
 * at once, on a queue pair of its own each: the NICs are well if either is answered.
 *
 * create, connect and destroy may block in the driver and run on the device's worker; the others on
 * the service thread, never while a job of these queue pairs is out.
 */
#ifndef PROBE_QP_H
#define PROBE_QP_H

#include <stdint.h>

#include "ib_transport/ib_path.h"

#define PROBE_QP_DEPTH   16
#define PROBE_QP_LANES   2
#define PROBE_QP_TIMEOUT 18 /* RC's own; probe_qp.c */
#define PROBE_QP_TIMEOUT_NS                                                                        \
    (4096ull << PROBE_QP_TIMEOUT) /* IBTA 9.7.6.1.3: nothing is repeated by time sooner */

/* One queue pair; all clocks are the caller's. */
struct probe_lane {
    struct ibv_qp *qp; /* NULL: there is none */
    uint32_t psn;
    uint8_t way;       /* ib_way.h */
    uint8_t used;      /* it is connected */
    uint8_t failed;    /* a completion in error, or its library took no post: it is in ERR */
    uint16_t out;      /* posted, no completion yet */
    uint64_t answered; /* when the last one that has been answered was posted */
    uint64_t posted;   /* when the last one was */
    uint64_t waits;    /* with some out: the oldest of them was posted then, at the latest */
};

struct probe_qp {
    struct probe_lane lane[PROBE_QP_LANES];
    struct ibv_cq *cq;
    uint64_t answered; /* when the last one that has been answered, over either, was posted */
    uint8_t unable;    /* one broke because our own NIC could send nothing: that says nothing of the
                          peer's */
    uint8_t reads;     /* set before create: the peer may read, too */
    uint8_t two;       /* set before create: two ways */
};

/* The second queue pair at the other end, and the two ways; NULL where there is none. */
struct probe_qp_alt {
    uint32_t qpn, psn; /* 0: it has none */
    uint8_t way[PROBE_QP_LANES];
};

/* Positive errno, 0 when they stand in INIT. What was made before a failure is destroyed by
 * probe_qp_destroy(). A second one that cannot be made is left out. */
int probe_qp_create(struct probe_qp *q, struct ib_nics *nics, int nic, uint32_t psn);
/* INIT -> RTS. A second one that cannot be connected is left out. */
int probe_qp_connect(struct probe_qp *q, struct ib_nics *nics, int nic,
                     const struct ib_path_addr *peer, const struct probe_qp_alt *alt);
/* Worker: what is posted is not sent again. The queue pairs are in ERR and are destroyed next. */
void probe_qp_quiet(struct probe_qp *q, const struct ib_nics *nics);
void probe_qp_destroy(struct probe_qp *q, const struct ib_nics *nics);
/* Of the first; the second differs in number and PSN. */
void probe_qp_addr_get(const struct probe_qp *q, struct ib_nics *nics, int nic,
                       struct ib_path_addr *out);

/* Posts one more over each way, at @at of any clock. 0; EAGAIN when as many are out as fit; else
 * the errno of the call, where no queue pair takes it. */
int probe_qp_post(struct probe_qp *q, uint64_t at);
/* 1: an answer came since the last poll; 0: none; -1: none, and every queue pair has failed, or the
 * poll failed. */
int probe_qp_poll(struct probe_qp *q);
/* Posted, over the way that has most, and without completion as of the last poll. */
unsigned probe_qp_out(const struct probe_qp *q);
/*
 * The lane that is silent, or has failed, while the other one has answered what was posted @least
 * later than the oldest that this one waits for; -1: none. As of the last poll.
 */
int probe_qp_silent(const struct probe_qp *q, uint64_t least);

#endif
