/* What the suites of registrations share: three devices made by hand, a cache over them, and who
 * leaves nothing behind. */
#ifndef MR_RIG_H
#define MR_RIG_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ib_transport/verbs/ib_mr.h"
#include "base/r2_log.h"
#include "tests/support/fake_verbs.h"

#define PAGE  4096u
#define NICS  3
#define ALL   ((1u << NICS) - 1)
#define LIMIT 60000000000ull /* ns: a bound against hangs */

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static struct ib_mr_cache *cache;
static char *mem; /* page aligned, never touched: the fake does not look */
static int lines;

static inline void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    lines += strstr(msg, "cannot be registered") != NULL;
}

static inline void begin(void)
{
    char why[128];

    for (int i = 0; i < NICS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        fake_add(name);
    }
    ck_assert_int_eq(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)), 0);
    for (int i = 0; i < NICS; i++) {
        atomic_store(&fake_dev[i].reg_calls, 0); /* opening asks about DMA-BUF */
    }
    cache = ib_mr_cache_create(&nics, 1);
    ck_assert_ptr_nonnull(cache);
    r2_log_flush();
    lines = 0;
}

static inline void setup(void)
{
    fake_reset();
    fake_table(&verbs);
    r2_config_defaults(&cfg);
    cfg.t_fence_ms = 2000; /* nobody is late, however busy the machine */
    r2_log_sink_set(sink);
    mem = aligned_alloc(PAGE, 64 * PAGE);
}

static inline int live(void)
{
    int n = 0;

    for (int i = 0; i < NICS; i++) {
        n += atomic_load(&fake_dev[i].mrs);
    }
    return n;
}

static inline void end(void)
{
    struct ib_mr_stats st;

    ib_mr_cache_stats(cache, &st);
    ck_assert_int_eq(st.live, 0);
    ck_assert_int_eq(live(), 0);
    ck_assert_uint_eq(ib_mr_cache_destroy(cache, LIMIT), 0);
    ib_nics_close(&nics);
    free(mem);
}

static inline struct ib_mr *host(size_t at, size_t len, uint64_t mask)
{
    return ib_mr_get(cache, mem + at, len, IB_PTR_HOST, 0, -1, mask);
}

#endif
