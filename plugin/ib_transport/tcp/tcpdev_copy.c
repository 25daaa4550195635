/* How the TCP device writes memory of the host: as a NIC does. */
#include <string.h>

#include "tcpdev_int.h"

/*
 * Two words at once. Processors that have AVX write 16 bytes that are aligned at once (Intel's SDM,
 * volume 3, 9.1.1; AMD's APM, volume 2, 7.3.2), and stores of x86 are seen in their order; a fence
 * of the compiler alone keeps each of them in its place. ThreadSanitizer knows words alone.
 */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define HAS_PAIRS __builtin_cpu_supports("avx")

typedef uint64_t pair __attribute__((vector_size(16), may_alias));

/* @n: whole blocks of 64; @to is aligned to 16. */
static void pairs_copy(uint8_t *to, const uint8_t *from, size_t n)
{
    for (; n > 0; n -= 64, to += 64, from += 64) {
        pair *out = (pair *)to;
        pair a, b, c, d;

        memcpy(&a, from, sizeof(a));
        memcpy(&b, from + 16, sizeof(b));
        memcpy(&c, from + 32, sizeof(c));
        memcpy(&d, from + 48, sizeof(d));
        out[0] = a;
        __atomic_signal_fence(__ATOMIC_RELEASE);
        out[1] = b;
        __atomic_signal_fence(__ATOMIC_RELEASE);
        out[2] = c;
        __atomic_signal_fence(__ATOMIC_RELEASE);
        out[3] = d;
        __atomic_signal_fence(__ATOMIC_RELEASE);
    }
}
#else
#define HAS_PAIRS false

static void pairs_copy(uint8_t *to, const uint8_t *from, size_t n)
{
}
#endif

/* Release: for processors that reorder stores. */
static void words_copy(uint8_t *to, const uint8_t *from, size_t n)
{
    uint64_t word;

    for (; n > 0; n -= sizeof(word), to += sizeof(word), from += sizeof(word)) {
        memcpy(&word, from, sizeof(word));
        __atomic_store_n((uint64_t *)to, word, __ATOMIC_RELEASE);
    }
}

static void bytes_copy(uint8_t *to, const uint8_t *from, size_t n)
{
    for (; n > 0; n--) {
        __atomic_store_n(to++, *from++, __ATOMIC_RELEASE);
    }
}

void tcpdev_copy_in_order(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t head = -(uintptr_t)to & 7, len;

    head = head < n ? head : n;
    bytes_copy(to, from, head);
    to += head, from += head, n -= head;
    if (HAS_PAIRS && n >= 128) {
        head = -(uintptr_t)to & 8;
        words_copy(to, from, head);
        to += head, from += head, n -= head;
        len = n & ~(size_t)63;
        pairs_copy(to, from, len);
        to += len, from += len, n -= len;
    }
    len = n & ~(size_t)7;
    words_copy(to, from, len);
    bytes_copy(to + len, from + len, n - len);
}
