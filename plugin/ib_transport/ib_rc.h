/*
 * The states of an RC queue pair, RESET to RTS, and ERR (IBTA 10.3.1): the one place that fills
 * their attributes, for data, probes, control messages and flushes alike. On the device's worker,
 * since a driver may block in each of these calls, unless said otherwise. Errors are positive
 * errnos.
 */
#ifndef IB_RC_H
#define IB_RC_H

#include <stdint.h>

#include "ib_transport/verbs/ib_device.h"

#define IB_SL_MAX 15 /* service levels of InfiniBand: 4 bits */

#define IB_RC_RNR_TIMER 12 /* 0.64 ms (IBTA table 46): no receive is missing but by a fault */
#define IB_RC_RNR_RETRY 7  /* for ever */

/* What the owner of the queue pair decides about it. */
struct ib_rc {
    uint32_t psn;  /* of the first packet sent; 24 bits count */
    uint8_t reads; /* RDMA reads outstanding, as initiator and as responder */
    uint8_t rnr_timer, rnr_retry;
    uint8_t timeout, retry_cnt;
    uint8_t traffic_class; /* of the communicator: traffic class on RoCE, service level on
                              InfiniBand; where the environment names one, that counts */
    uint8_t way;           /* through the fabric (ib_way_port.h); 0: the driver's choice */
};

/* The queue pair at the other end. */
struct ib_rc_peer {
    const struct ib_addr *port;
    uint32_t qpn, psn; /* of the psn 24 bits count */
};

/*
 * Fills the address part of INIT -> RTR but for the port: @peer as reached from @local. A class
 * that the environment names goes before that of the communicator, as in NCCL. A packet of
 * InfiniBand for another subnet has a GRH and goes to the LID under which the routers announce that
 * subnet (FLID); with any other LID it would come to a port of this one. Pure.
 */
void ib_rc_ah_fill(const struct r2_config *cfg, uint8_t traffic_class, const struct ib_addr *local,
                   const struct ib_addr *peer, struct ibv_ah_attr *ah);

/* RESET -> INIT on NIC @nic with IBV_ACCESS_* of @access. EADDRNOTAVAIL: its port never had an
 * address, so that no peer could be told where it is. */
int ib_rc_init(struct ib_nics *nics, int nic, struct ibv_qp *qp, unsigned access);
/* INIT -> RTR -> RTS. The MTU is the smaller one of the two ports. */
int ib_rc_connect(struct ib_nics *nics, int nic, struct ibv_qp *qp, const struct ib_rc *rc,
                  const struct ib_rc_peer *peer);
/* Any state -> ERR: what is posted is flushed, nothing is sent any more. Also on the service
 * thread, where the owner accepts that it may block. */
int ib_rc_error(const struct ib_nics *nics, struct ibv_qp *qp);

#endif
