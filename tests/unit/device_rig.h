/* What the suites of devices share: fake devices, opened and closed, and what was logged of it. */
#ifndef DEVICE_RIG_H
#define DEVICE_RIG_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_log.h"
#include "ib_transport/verbs/ib_device.h"
#include "tests/support/fake_verbs.h"
#include "tests/unit/suite.h"

static struct ib_verbs verbs;
static struct r2_config cfg;
static struct ib_nics nics;
static char why[256];
static char logged[1 << 16];

static inline void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    size_t used = strlen(logged);

    snprintf(logged + used, sizeof(logged) - used, "%s%s\n", level == R2_LOG_WARN ? "WARN " : "",
             msg);
}

static inline int logs(const char *part)
{
    r2_log_flush();
    return strstr(logged, part) != NULL;
}

static inline void setup(void)
{
    fake_reset();
    fake_table(&verbs);
    r2_config_defaults(&cfg);
    r2_log_sink_set(sink);
    logged[0] = '\0';
}

static inline void option(const char *name, const char *value)
{
    ck_assert_msg(r2_config_set(&cfg, name, value, why, sizeof(why)) == 0, "%s", why);
}

static inline void open_all(int count)
{
    ck_assert_msg(ib_nics_open(&nics, &verbs, &cfg, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(nics.count, count);
}

/* Closes, and checks that nothing of any device stays behind. */
static inline void close_all(void)
{
    ib_nics_close(&nics);
    for (int i = 0; i < fake_dev_count; i++) {
        ck_assert_int_eq(fake_dev[i].opened, 0);
        ck_assert_int_eq(fake_dev[i].pds, 0);
    }
}

#endif
