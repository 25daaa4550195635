/*
 * SipHash-2-4 with a 64 bit result: the keyed hash that authenticates the out-of-band channel.
 * Pure; any thread.
 */
#ifndef R2_SIPHASH_H
#define R2_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct r2_siphash_key {
    uint64_t k0, k1;
};

/* Key of 16 bytes, little endian halves. */
struct r2_siphash_key r2_siphash_key(const uint8_t bytes[16]);

/* @data may be NULL when @len is 0. */
uint64_t r2_siphash(struct r2_siphash_key key, const void *data, size_t len);

#endif
