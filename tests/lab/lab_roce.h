/* A frame of RoCE v2 for the tests of the switch. */
#ifndef LAB_ROCE_H
#define LAB_ROCE_H

#include <stdint.h>
#include <string.h>

#define ROCE_LEN 60u

/* Ethernet, IPv4 and UDP of RoCE v2 from 10.10.0.@from to 10.10.0.@to. */
static inline void roce_make(uint8_t f[ROCE_LEN], int from, int to, unsigned sport)
{
    memset(f, 0, ROCE_LEN);
    f[12] = 0x08;
    f[14] = 0x45;
    f[14 + 9] = 17;
    memcpy(f + 26, (const uint8_t[]){10, 10, 0, (uint8_t)from, 10, 10, 0, (uint8_t)to}, 8);
    f[34] = (uint8_t)(sport >> 8);
    f[35] = (uint8_t)sport;
    f[36] = 4791 >> 8;
    f[37] = 4791 & 255;
}

#endif
