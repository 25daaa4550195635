/*
 * Which entry of a port's GID table names the port.
 */
#ifndef IB_GID_H
#define IB_GID_H

#include <stdint.h>

#include "base/r2_config.h"
#include "ib_verbs.h"

/* NCCL_IB_ADDR_FAMILY, NCCL_IB_ADDR_RANGE, NCCL_IB_ROCE_VERSION_NUM. */
struct ib_gid_rule {
    int family;         /* 4, 6; 0: any */
    int bits;           /* of @prefix, 0 to 128: which leading bits a GID has to have */
    uint8_t prefix[16]; /* as a GID: IPv4 is mapped */
    int version;        /* preferred */
};

/* -1 with variable, value and what is allowed in @why; *rule then lets every entry pass. Pure. */
int ib_gid_rule_parse(struct ib_gid_rule *rule, const struct r2_config *cfg, char *why,
                      size_t why_len);

/* Whether the rule lets this entry name a port. Pure. */
int ib_gid_fits(const struct ib_gid_rule *rule, const union ibv_gid *gid);

/* An entry, and what was in it. */
struct ib_gid_entry {
    uint8_t index;
    uint8_t version; /* 1, 2: of RoCE; 0: not known, or InfiniBand */
    union ibv_gid gid;
};

/*
 * InfiniBand: the entry of NCCL_IB_ROUTABLE_FLID_GID_INDEX if it has an FLID, else entry 0. RoCE:
 * NCCL_IB_GID_INDEX if given; else, of the entries of NCCL_IB_ADDR_FAMILY and in
 * NCCL_IB_ADDR_RANGE, in this order of weight, the preferred RoCE version (v2, since v1 does not
 * cross routers), an address that is not link-local, an IPv4 address; of equals the first. The
 * index may change when addresses of the host do: an address that goes while queue pairs use it
 * leaves its entry empty until they are gone, and comes back in another one. With the index given
 * the address that this entry had first, @home (zero: none yet), is followed; where it is nowhere,
 * what the entry has is taken if it is of the same kind.
 * 0 and *@e; or a positive errno, and *@e is undefined; ERANGE: the given index is outside of the
 * table; EADDRNOTAVAIL: the given entry is empty, or none is usable and has the given family and
 * range. Any thread; may block in the driver.
 */
int ib_gid_choose(const struct ib_verbs *v, struct ibv_context *ctx, uint8_t port,
                  const struct ibv_port_attr *attr, const struct r2_config *cfg,
                  const struct ib_gid_entry *home, struct ib_gid_entry *e);

/* @e was chosen, with the index @given, -1: with none: it is @home's if there was none. Pure. */
void ib_gid_home_note(struct ib_gid_entry *home, int given, const struct ib_gid_entry *e);

/*
 * Of a GID of InfiniBand, as NCCL reads it: 10 bits fixed, 22 bits 0, 16 bits FLID, 16 bits subnet
 * prefix, 64 bits of the port. The FLID is the LID under which the subnet is reached from other
 * ones, 0: none is announced. Pure.
 */
static inline uint16_t ib_gid_flid(const uint8_t raw[16])
{
    return (uint16_t)(raw[4] << 8 | raw[5]);
}
static inline uint16_t ib_gid_subnet(const uint8_t raw[16])
{
    return (uint16_t)(raw[6] << 8 | raw[7]);
}

/* How good an entry is, 0 for unusable; pure. @version: 1, 2, 0 unknown; @preferred: 1, 2. */
int ib_gid_score(const union ibv_gid *gid, int version, int preferred);

#endif
