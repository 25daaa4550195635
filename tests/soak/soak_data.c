/* Contents of messages, and of memory that nobody may write. */
#include "tests/soak/soak.h"

#include <string.h>

static uint64_t word_at(uint64_t key, size_t i)
{
    uint64_t z = (key + i) * 0x9e3779b97f4a7c15ull;

    return z ^ (z >> 29);
}

void soak_fill(uint8_t *at, size_t len, uint64_t key)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        uint64_t w = word_at(key, i / 8);
        memcpy(at + i, &w, 8);
    }
    if (i < len) {
        uint64_t w = word_at(key, i / 8);
        memcpy(at + i, &w, len - i);
    }
}

int64_t soak_check(const uint8_t *at, size_t len, uint64_t key)
{
    for (size_t i = 0; i < len; i += 8) {
        uint64_t w = word_at(key, i / 8);
        size_t n = len - i < 8 ? len - i : 8;
        if (memcmp(at + i, &w, n) == 0) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            if (at[i + k] != ((const uint8_t *)&w)[k]) {
                return (int64_t)(i + k);
            }
        }
    }
    return -1;
}

int64_t soak_check_poison(const uint8_t *at, size_t len)
{
    if (len == 0 || (at[0] == SOAK_POISON && memcmp(at, at + 1, len - 1) == 0)) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        if (at[i] != SOAK_POISON) {
            return (int64_t)i;
        }
    }
    return -1;
}
