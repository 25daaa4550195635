/* Times in ns: units, arithmetic, and what a clock shows. Any thread; nothing blocks. */
#ifndef R2_TIME_H
#define R2_TIME_H

#include <stdint.h>
#include <time.h>

#define R2_NS_PER_US 1000ull
#define R2_NS_PER_MS 1000000ull
#define R2_NS_PER_S  1000000000ull

/* Milliseconds as ns. */
#define R2_MS(ms) ((uint64_t)(ms)*1000000)

/* What @clock shows now. Within an instance r2_now() is asked, which may be virtual time. */
static inline uint64_t r2_clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * R2_NS_PER_S + (uint64_t)t.tv_nsec;
}

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
