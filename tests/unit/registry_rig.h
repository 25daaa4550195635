/* What the suites of the host registry share: a directory of its own for each test, registries in
 * it. */
#ifndef REGISTRY_RIG_H
#define REGISTRY_RIG_H

#include "plugin/base/r2_host_registry.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/suite.h"

static char dir[64], path[128], why[600];
static const struct r2_host_registry_who me = {
    .command = "test", .host = "h0", .pid = 4711, .since = 1};

static inline void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-registry-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(r2_host_registry_path(dir, geteuid(), path, sizeof(path)), 0);
}

static inline void teardown(void)
{
    unlink(path);
    ck_assert_msg(rmdir(dir) == 0, "%s is not empty", dir);
}

static inline struct r2_host_registry *must_open(void)
{
    struct r2_host_registry *b = r2_host_registry_open(dir, &me, why, sizeof(why));

    ck_assert_msg(b != NULL, "%s", why);
    return b;
}

/* With a descriptor. The kernel counts instances of inotify per user, 128 by default, and other
 * tests of this user may have them all for a while. */
static inline struct r2_host_registry *must_open_woken(void)
{
    for (int tries = 0;; tries++) {
        struct r2_host_registry *b = must_open();
        int fd = r2_host_registry_fd(b);

        if (fd >= 0) {
            return b;
        }
        r2_host_registry_close(b);
        ck_assert_msg(tries < 600, "no inotify for a minute");
        poll(NULL, 0, 100);
    }
}

static inline struct r2_host_registry_event event_of(int k)
{
    struct r2_host_registry_event e = {.kind = 1 + k % (R2_HOST_REGISTRY_KINDS - 1),
                                       .guid = 1000u + (unsigned)k,
                                       .port = 1,
                                       .lid = 7,
                                       .when = 5};

    memset(e.gid, k, sizeof(e.gid));
    return e;
}

static inline int alive_count(struct r2_host_registry *b)
{
    struct r2_host_registry_who who;
    int n = 0;

    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        n += r2_host_registry_slot(b, i, &who);
    }
    return n;
}

static inline int run_suite(const char *name, void (*add)(TCase *t))
{
    return suite_run(name, 60, setup, teardown, add);
}

#endif
