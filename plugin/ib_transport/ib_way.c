#include "ib_way.h"

#include "base/r2_fnv.h"

#define LOW_BITS  4 /* of the label: the way; the ten above it: the two ports */
#define HIGH_MASK 0x3ffu

uint32_t ib_way_label(unsigned way, const uint8_t gid[16], const uint8_t peer_gid[16])
{
    uint8_t both[16];
    uint32_t high;

    if (way == 0 || way > IB_WAYS_MAX) {
        return 0;
    }
    for (int i = 0; i < 16; i++) {
        both[i] = (uint8_t)(gid[i] ^ peer_gid[i]);
    }
    high = r2_fnv_add(R2_FNV_BASIS, both, sizeof(both));
    high = (high ^ high >> 10 ^ high >> 20) & HIGH_MASK;
    return (high ? high : 1) << LOW_BITS | (way - 1);
}

uint16_t ib_way_udp_port(uint32_t label)
{
    return label ? (uint16_t)(0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f))) : 0;
}
