/* Timer codes of the reliable transport. */
#include "fab_pkt.h"

/* In units of 10 us, by code, from the InfiniBand specification's table of RNR NAK timer values. */
static const uint32_t rnr_table[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                       16,    24,   32,   48,    64,    96,    128,   192,
                                       256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t fab_rnr_ns(uint8_t code)
{
    return (uint64_t)rnr_table[code & 31] * 10000;
}

uint64_t fab_timeout_ns(uint8_t timeout)
{
    return timeout & 31 ? 4096ull << (timeout & 31) : 0;
}
