/*
 * Ways through a fabric of many: what switches hash of a packet is its five-tuple, of which a RoCE
 * v2 sender chooses the UDP source port. Drivers make it of the flow label of the address vector
 * (Linux: rdma_flow_label_to_udp_sport), so that a queue pair with another label takes another way
 * where there is one. Pure.
 */
#ifndef IB_WAY_H
#define IB_WAY_H

#include <stdint.h>

#define IB_WAYS_MAX 16

/*
 * Flow label of way @way, 1 to IB_WAYS_MAX, between the ports with these two GIDs; 0 for way 0: the
 * driver chooses, by queue pair numbers. The same at both ends, so that where a switch hashes both
 * directions alike, acknowledgements take the way of the data. Labels of up to 14 bits become
 * different ports, one to one; those of one pair of ports differ in their lowest bits alone, which
 * linear hashes (CRC, XOR) map to different ways.
 */
uint32_t ib_way_label(unsigned way, const uint8_t gid[16], const uint8_t peer_gid[16]);
/* The UDP source port that a driver makes of @label; 0: it follows from queue pair numbers. */
uint16_t ib_way_udp_port(uint32_t label);

#endif
