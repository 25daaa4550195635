/* r2_stat run as a program over statistics files of two processes, made by hand, and what it prints
 * read as Prometheus would. One translation unit; each test in a process of its own. */
#ifndef PROM_RIG_H
#define PROM_RIG_H

#include <check.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/telemetry/r2_stat_file.h"
#include "tests/unit/prom_doc.h"

#define TEXT 65536

static char dir[64], prom_file[96], counters_file[112], text[TEXT], errors[TEXT];

static inline void file_get(const char *name, char out[TEXT])
{
    FILE *f = fopen(name, "r");
    size_t n = f ? fread(out, 1, TEXT - 1, f) : 0;

    ck_assert_msg(f != NULL, "%s: %s", name, strerror(errno));
    out[n] = '\0';
    fclose(f);
}

/* r2_stat --run-dir DIR ARGUMENTS; its output, exit status returned. */
static inline int tool(const char *arguments, char out[TEXT])
{
    char self[PATH_MAX] = "", command[PATH_MAX + 400], name[96];
    int rc;

    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    snprintf(command, sizeof(command), "%s/../../r2_stat --run-dir %s %s >%s/out 2>%s/err",
             dirname(self), dir, arguments, dir, dir);
    rc = system(command);
    snprintf(name, sizeof(name), "%s/out", dir);
    file_get(name, out);
    unlink(name);
    snprintf(name, sizeof(name), "%s/err", dir);
    file_get(name, errors);
    unlink(name);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}
/* Sum over all series of that metric. */
static inline double prom_sum(const char *metric)
{
    size_t n = strlen(metric);
    double sum = 0;

    for (int i = 0; i < doc.n; i++) {
        sum += strncmp(doc.series[i], metric, n) == 0 &&
                       (doc.series[i][n] == '{' || doc.series[i][n] == '\0')
                   ? doc.value[i]
                   : 0;
    }
    return sum;
}
static struct r2_stat *proc[2];

static inline void prom_setup(void)
{
    char why[700];

    snprintf(dir, sizeof(dir), "/tmp/r2-prom-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(prom_file, sizeof(prom_file), "%s/r2.prom", dir);
    snprintf(counters_file, sizeof(counters_file), "%s.counters", prom_file);
    for (unsigned i = 0; i < 2; i++) {
        proc[i] = r2_stat_create(dir, geteuid(), 7 + i, why, sizeof(why));
        ck_assert_msg(proc[i] != NULL, "%s", why);
    }
}

static inline void prom_teardown(void)
{
    for (int i = 0; i < 2; i++) {
        r2_stat_remove(proc[i]);
        proc[i] = NULL;
    }
    unlink(prom_file);
    unlink(counters_file);
    ck_assert_msg(rmdir(dir) == 0, "something is left in %s", dir);
}

#endif
