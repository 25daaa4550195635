#include "r2_siphash.h"

struct sip_state {
    uint64_t v0, v1, v2, v3;
};

static uint64_t le64_load(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

static inline uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static inline void sip_round(struct sip_state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 = rotl(s->v2, 32);
}

static inline void sip_word(struct sip_state *s, uint64_t m)
{
    s->v3 ^= m;
    sip_round(s);
    sip_round(s);
    s->v0 ^= m;
}

struct r2_siphash_key r2_siphash_key(const uint8_t bytes[16])
{
    return (struct r2_siphash_key){.k0 = le64_load(bytes), .k1 = le64_load(bytes + 8)};
}

uint64_t r2_siphash(struct r2_siphash_key key, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t last = (uint64_t)(len & 0xff) << 56;
    struct sip_state s = {
        .v0 = key.k0 ^ 0x736f6d6570736575u,
        .v1 = key.k1 ^ 0x646f72616e646f6du,
        .v2 = key.k0 ^ 0x6c7967656e657261u,
        .v3 = key.k1 ^ 0x7465646279746573u,
    };

    for (; len >= 8; len -= 8, p += 8) {
        sip_word(&s, le64_load(p));
    }
    for (size_t i = 0; i < len; i++) {
        last |= (uint64_t)p[i] << (8 * i);
    }
    sip_word(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++) {
        sip_round(&s);
    }
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
