/* Arithmetic of times in ns. Pure. */
#ifndef R2_TIME_H
#define R2_TIME_H

#include <stdint.h>

/* Milliseconds as ns. */
#define R2_MS(ms) ((uint64_t)(ms)*1000000)

/*
 * Time from @since to @now, 0 when @now is the older one: a turn of the service thread takes its
 * time once, at its beginning, and what NCCL's thread stamps meanwhile lies after it.
 */
static inline uint64_t r2_elapsed(uint64_t now, uint64_t since)
{
    return now > since ? now - since : 0;
}

/* Of two deadlines the earlier one. */
static inline uint64_t r2_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
