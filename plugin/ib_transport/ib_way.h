/*
 * Ways through a fabric of many: what switches hash of a packet is its five-tuple, of which a RoCE
 * v2 sender chooses the UDP source port. Drivers make it of the flow label of the address vector
 * (Linux: rdma_flow_label_to_udp_sport), so that a queue pair with another label takes another way
 * where there is one. Pure. InfiniBand: ib_way_port.h.
 */
#ifndef IB_WAY_H
#define IB_WAY_H

#include <stdint.h>

#define IB_WAYS_MAX     16
#define IB_WAYS_DEFAULT 8

#define IB_WAY_PORT_MIN                                                                            \
    0xc000u /* the lowest UDP source port that a flow label makes; the highest                     \
               is the highest that there is */

/* The ports of the fabric with these first bits in their GID; an IPv4 address is mapped. */
struct ib_way_net {
    uint8_t gid[16];
    uint8_t bits; /* 0: all */
};

/* Between a port of the one and a port of the other, in either direction, way n is port[n - 1]. */
struct ib_way_rule {
    struct ib_way_net end[2];
    uint8_t ports; /* 1 to IB_WAYS_MAX */
    uint16_t port[IB_WAYS_MAX];
    uint32_t line; /* of its file */
    uint32_t key;  /* of both ends: rules with the same ends have the same */
};

/* What NCCL_R2_WAYS says. Const after init. A NULL in its place in the calls below: IB_WAYS_DEFAULT
 * ways and no rule. */
struct ib_ways {
    unsigned n; /* between ports that no rule names, 1 to IB_WAYS_MAX; 1: the driver's choice */
    unsigned rules;
    struct ib_way_rule *rule; /* the first that names both ports counts */
};

/* How many ways there are at most between ports that no rule names. */
unsigned ib_ways_unnamed(const struct ib_ways *w);
/* How many ways there are between the ports with these two GIDs. */
unsigned ib_ways_count(const struct ib_ways *w, const uint8_t gid[16], const uint8_t peer_gid[16]);
/* The most that there may be between the port with @gid and any other one. */
unsigned ib_ways_most(const struct ib_ways *w, const uint8_t gid[16]);

/*
 * The number, as this end counts, of what an end calls way @way that did not know yet how many
 * there are, or counts them otherwise: between ports that a rule names 1 to ib_ways_count(), in
 * turn; else @way.
 */
unsigned ib_way_fold(const struct ib_ways *w, unsigned way, const uint8_t gid[16],
                     const uint8_t peer_gid[16]);

/*
 * Flow label of way @way, 1 to IB_WAYS_MAX, between the ports with these two GIDs. The same at both
 * ends, so that where a switch hashes both directions alike, acknowledgements take the way of the
 * data. Labels of up to 14 bits become different ports, one to one. Where no rule names the ports,
 * 0 for way 0: the driver chooses, by queue pair numbers; labels of one pair of ports differ in
 * their lowest bits alone, which linear hashes (CRC, XOR) map to different ways. Where one does,
 * way 0 has its first port, too.
 */
uint32_t ib_way_label(const struct ib_ways *w, unsigned way, const uint8_t gid[16],
                      const uint8_t peer_gid[16]);
/* The UDP source port that a driver makes of @label; 0: it follows from queue pair numbers. */
uint16_t ib_way_udp_port(uint32_t label);

#endif
