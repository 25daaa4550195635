/* What the suites of options share: an environment and files of a test's own, and what was logged
 * of them. */
#ifndef TEST_CONFIG_RIG_H
#define TEST_CONFIG_RIG_H

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_conf_file.h"
#include "base/r2_config.h"
#include "base/r2_log.h"

static char warns[16384], infos[16384];
static int warn_count;

static inline void sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    char *to = level == R2_LOG_WARN ? warns : infos;
    size_t used = strlen(to);

    warn_count += level == R2_LOG_WARN;
    snprintf(to + used, sizeof(warns) - used, "%s\n", msg + strlen("NET/R2 : "));
}

/* An environment of our own: pairs "NAME=value". */
static char *env[32];

static inline const char *env_get(void *arg, const char *name)
{
    size_t n = strlen(name);

    for (int i = 0; env[i] != NULL; i++) {
        if (strncmp(env[i], name, n) == 0 && env[i][n] == '=') {
            return env[i] + n + 1;
        }
    }
    return NULL;
}

static char dir[64], lock_path[96], profile_path[96], profile_env[160];
static struct r2_config cfg;

static inline void fresh(void)
{
    strcpy(dir, "/tmp/r2-test-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(lock_path, sizeof(lock_path), "%s/lock.conf", dir);
    snprintf(profile_path, sizeof(profile_path), "%s/profile.conf", dir);
    snprintf(profile_env, sizeof(profile_env), "NCCL_R2_PROFILE=%s", profile_path);
    memset(env, 0, sizeof(env));
    warns[0] = infos[0] = '\0';
    warn_count = 0;
    r2_log_sink_set(sink);
}

static inline void remove_files(void)
{
    chmod(dir, 0700);
    unlink(lock_path);
    unlink(profile_path);
    rmdir(dir);
}

static inline void put(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

/* The administrator's file: one that this process may not write (a plain user), or root's own
 * (root). */
static inline void put_lock(const char *text)
{
    put(lock_path, text, 0444);
    chmod(dir, 0555);
}

static inline void load(void)
{
    struct r2_config_sources src = {
        .get_env = env_get, .environ_names = env, .lock_path = lock_path};

    r2_config_load(&cfg, &src);
    r2_config_log(&cfg);
    r2_log_flush();
}

/* Two values of a row that differ, as text. */
static inline void two_values(const struct r2_opt_row *r, char *a, char *b, size_t len)
{
    snprintf(a, len, "alpha");
    snprintf(b, len, "beta");
    if (r->type == R2_OPT_BOOL) {
        snprintf(a, len, "on");
        snprintf(b, len, "off");
    } else if (r->type == R2_OPT_INT) {
        snprintf(a, len, "%lld", (long long)r->min);
        snprintf(b, len, "%lld", (long long)r->max);
    } else if (r->type == R2_OPT_ENUM) {
        snprintf(a, len, "%.*s", (int)strcspn(r->choices, "|"), r->choices);
        snprintf(b, len, "%s", strrchr(r->choices, '|') + 1);
    }
}

#endif
