/* FNV-1a, 32 bits (draft-eastlake-fnv, 2): tells accidents, not attacks. Pure. */
#ifndef R2_FNV_H
#define R2_FNV_H

#include <stddef.h>
#include <stdint.h>

#define R2_FNV_BASIS 2166136261u
#define R2_FNV_PRIME 16777619u

/* @hash with @len bytes of @data added; the first one is R2_FNV_BASIS. */
static inline uint32_t r2_fnv_add(uint32_t hash, const void *data, size_t len)
{
    const uint8_t *b = data;

    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ b[i]) * R2_FNV_PRIME;
    }
    return hash;
}

#endif
