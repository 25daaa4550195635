/* Seeded random numbers for engines (splitmix64): the same seed gives the same sequence on every
 * machine. */
#ifndef FAB_RNG_H
#define FAB_RNG_H

#include <stdint.h>

struct fab_rng {
    uint64_t s;
};

static inline uint64_t fab_rng_next(struct fab_rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Evenly in [0, n], n below 2^63. */
static inline uint64_t fab_rng_upto(struct fab_rng *r, uint64_t n)
{
    return n ? fab_rng_next(r) % (n + 1) : 0;
}

static inline int fab_rng_chance(struct fab_rng *r, uint32_t ppm)
{
    return ppm && fab_rng_next(r) % 1000000 < ppm;
}

#endif
