/*
 * Bonds of two ports under one RDMA device (mlx5's RoCE LAG): which of the two a queue pair sends
 * over (docs/health.md, "Bonds"). The kernel derives that from the flow label by the bond's own
 * hash policy, and those that hash no ports, the default one among them, send whatever goes to one
 * host over one port. mlx5dv of rdma-core, opened at run time, tells the device otherwise.
 */
#ifndef IB_LAG_H
#define IB_LAG_H

#include "ib_device.h"

#define IB_LAG_LIBRARY "libmlx5.so.1"
#define IB_LAG_PORTS   2 /* what mlx5dv can tell apart */

/* The port, from 1, that way @way (ib_way.h) of a bond takes: ways in turn; 0 for way 0, which is
 * the driver's choice. Pure. */
unsigned ib_lag_port(unsigned way);

/*
 * Which NICs are such bonds; where one is, opens @library and looks up what it needs. Without it,
 * or with an old one, one line says so and the kernel's choice stands. Init only; the library stays
 * open.
 */
void ib_lag_open(struct ib_nics *nics, const char *library);

/*
 * @qp of NIC @nic, which has just come to RTS and has sent nothing, sends over the port of @way. A
 * refusal is logged once for the NIC, which is not tried again: the queue pair is as good as
 * before. The device's worker; may block in the driver.
 */
void ib_lag_place(struct ib_nics *nics, int nic, struct ibv_qp *qp, unsigned way);

#endif
