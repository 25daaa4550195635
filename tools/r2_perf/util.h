/*
 * Small things every part of the driver needs: exit codes, the clock, allocation, parsing of
 * numbers with units. All functions here may be called from any thread and none blocks.
 */
#ifndef R2_PERF_UTIL_H
#define R2_PERF_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "plugin/base/r2_time.h"

/* The exit codes of nccl-tests. 2 (CUDA) cannot happen here. */
enum perf_exit {
    PERF_OK = 0,
    PERF_INTERNAL = 1, /* the driver, the launch or the fault commands */
    PERF_NET = 3,      /* the plugin reported an error, or a rank died */
    PERF_TIMEOUT = 4,  /* no progress for --timeout seconds */
    PERF_USAGE = 6,    /* an option or its value */
    PERF_RESULT = 7,   /* wrong data, or slower than NCCL_TESTS_MIN_BW allows */
};

/* Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a machine. */
static inline uint64_t util_now_ns(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

static inline size_t util_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t util_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* @n rounded up to a multiple of @unit (> 0). */
static inline size_t util_size_roundup(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* A well mixed 64-bit value of @x: equal inputs give equal outputs in every process. */
static inline uint64_t util_hash64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* The same in all processes of a machine, or of a container that has a host name of its own. */
uint64_t util_machine_id(void);
/* Zeroed memory of @n x @size bytes; ends the process with PERF_INTERNAL when there is none. Caller
 * frees. */
void *util_mem_alloc(size_t n, size_t size);
/* @p resized to @n x @size bytes, new bytes undefined; ends the process as above. Caller frees. */
void *util_mem_resize(void *p, size_t n, size_t size);
/* A copy of @s; caller frees. NULL stays NULL. */
char *util_str_copy(const char *s);
/* printf into new memory; caller frees. */
char *util_str_format(const char *fmt, ...) __attribute__((format(printf, 1, 2), nonnull(1)));

/* "8", "64K", "1.5M", "2g" (binary units) to bytes. False when it is not such a number or does not
 * fit. */
bool util_size_parse(const char *text, size_t *bytes);
/* "250ms", "2s", "1.5s", "3m", "10us"; a bare number is seconds. False when it is not such a time.
 */
bool util_time_parse(const char *text, uint64_t *ns);
/* A whole decimal number in [@lo, @hi]. */
bool util_int_parse(const char *text, long lo, long hi, long *value);

#endif
