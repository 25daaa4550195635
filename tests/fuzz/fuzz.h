/*
 * What the fuzz targets share (tests/fuzz/README.md). An input is read as a program: numbers and
 * choices are taken off its front, and behind its end everything is zero, so that every input means
 * something and a longer one goes on where a shorter one ended.
 *
 * A target is one LLVMFuzzerTestOneInput(). libFuzzer calls it (make fuzz), or fuzz_corpus.c with
 * the files that are kept (make check).
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Always 0; what is wrong ends the process. One thread; whatever it makes is gone when it returns.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_in {
    const uint8_t *p, *end;
};

static inline int fuzz_more(const struct fuzz_in *in)
{
    return in->p < in->end;
}

static inline uint64_t fuzz_get(struct fuzz_in *in, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes && in->p < in->end; i++) {
        v |= (uint64_t)*in->p++ << (8 * i);
    }
    return v;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
    return (uint8_t)fuzz_get(in, 1);
}

/* A number of [0, n). */
static inline unsigned fuzz_pick(struct fuzz_in *in, unsigned n)
{
    return (unsigned)fuzz_get(in, n > 256 ? 2 : 1) % n;
}

/* Up to @max bytes, as many as are left; *at is NULL where none is. */
static inline size_t fuzz_bytes(struct fuzz_in *in, size_t max, const uint8_t **at)
{
    size_t left = (size_t)(in->end - in->p), n = left < max ? left : max;

    *at = n ? in->p : NULL;
    in->p += n;
    return n;
}

/* A text up to a zero byte, the end of the input or @room - 1; ended by a zero. */
static inline size_t fuzz_text(struct fuzz_in *in, char *out, size_t room)
{
    size_t n = 0;

    while (fuzz_more(in) && n + 1 < room) {
        char c = (char)*in->p++;

        if (c == '\0') {
            break;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return n;
}

/* A number at which bounds break, or any: one byte of input chooses, eight more give the value
 * where it says so. */
static inline uint64_t fuzz_number(struct fuzz_in *in)
{
    static const uint64_t hard[] = {
        0,          1,          2,           7,          8,          15,         16,
        31,         32,         63,          64,         127,        128,        255,
        256,        257,        0x7fff,      0x8000,     0xffff,     0x10000,    0x7fffffff,
        0x80000000, 0xffffffff, 0x100000000, 1ull << 47, 1ull << 63, ~0ull >> 1, ~0ull};
    unsigned i = fuzz_pick(in, 64);

    return i < sizeof(hard) / sizeof(hard[0]) ? hard[i] : fuzz_get(in, i & 8 ? 8 : 4);
}

/* Changes a few of the @n bytes at @b, which were right. */
static inline void fuzz_edit(struct fuzz_in *in, uint8_t *b, size_t n)
{
    size_t at = n ? fuzz_pick(in, n > 256 ? 65536 : 256) % n : 0;
    unsigned how = fuzz_u8(in), len = 1u << (how & 3);
    uint64_t v;

    if (n == 0) {
        return;
    }
    if (how & 4) {
        b[at] = (uint8_t)(b[at] + (int8_t)fuzz_u8(in));
    } else {
        for (v = fuzz_number(in); len-- && at < n; at++, v >>= 8) {
            b[at] = (uint8_t)v;
        }
    }
}

static inline __attribute__((noreturn)) void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

/* What must hold whatever the input is. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fuzz_fail(__FILE__, __LINE__, #cond);                                                  \
    } while (0)

#endif
