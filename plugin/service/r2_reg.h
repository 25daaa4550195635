/* What NCCL registers on a connection (r2_net_reg, r2_net_dereg), and what becomes of it when the
 * connection ends. */
#ifndef R2_REG_H
#define R2_REG_H

#include "core/r2_inst.h"

/*
 * What NCCL leaves registered on a connection that ends stays so, since deregistering may
 * block in a driver and the memory may be in use on another connection; but no later registration
 * is answered with it. Gate held, or nobody else has @c.
 */
void r2_reg_leave(struct r2_comm *c);

#endif
