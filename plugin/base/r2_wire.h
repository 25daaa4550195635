/*
 * Bounded, little-endian packing. A writer or reader that runs out of room turns bad and stays so:
 * check once at the end. Pure.
 */
#ifndef R2_WIRE_H
#define R2_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct r2_writer {
    uint8_t *p, *end;
    int bad;
};

struct r2_reader {
    const uint8_t *p, *end;
    int bad;
};

static inline void r2_put(struct r2_writer *w, uint64_t v, unsigned bytes)
{
    if (w->bad || (size_t)(w->end - w->p) < bytes) {
        w->bad = 1;
        return;
    }
    for (unsigned i = 0; i < bytes; i++) {
        *w->p++ = (uint8_t)(v >> (8 * i));
    }
}

static inline uint64_t r2_get(struct r2_reader *r, unsigned bytes)
{
    uint64_t v = 0;

    if (r->bad || (size_t)(r->end - r->p) < bytes) {
        r->bad = 1;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) {
        v |= (uint64_t)*r->p++ << (8 * i);
    }
    return v;
}

static inline void r2_put_bytes(struct r2_writer *w, const void *src, size_t n)
{
    if (w->bad || (size_t)(w->end - w->p) < n) {
        w->bad = 1;
        return;
    }
    memcpy(w->p, src, n);
    w->p += n;
}

static inline void r2_get_bytes(struct r2_reader *r, void *dst, size_t n)
{
    if (r->bad || (size_t)(r->end - r->p) < n) {
        r->bad = 1;
        memset(dst, 0, n);
        return;
    }
    memcpy(dst, r->p, n);
    r->p += n;
}

#endif
