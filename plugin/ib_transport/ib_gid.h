/*
 * Which entry of a port's GID table names the port.
 */
#ifndef IB_GID_H
#define IB_GID_H

#include <stdint.h>

#include "ib_transport/ib_verbs.h"
#include "r2_config.h"

/*
 * InfiniBand: entry 0. RoCE: NCCL_IB_GID_INDEX if given; else, in this order of weight, RoCE v2 before v1 (v1 does not
 * cross routers), an address that is not link-local, an IPv4 address; of equals the first. The index may change when
 * addresses of the host do. 0, or a positive errno; ERANGE: the given index is outside of the table. Any thread; may
 * block in the driver.
 */
int ib_gid_choose(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port, const struct ibv_port_attr *attr,
                  const struct r2_config *cfg, uint8_t *index, union ibv_gid *gid);

/* How good an entry is, 0 for unusable; pure. @version: 1, 2, 0 unknown. */
int ib_gid_score(const union ibv_gid *gid, int version);

#endif
