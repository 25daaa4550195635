/*
 * What takes long says so: a drain that is not free yet, and hosts that do not answer over ssh, of
 * which a script stands in. Here a tenth of a second is long.
 */
#define PATIENCE_FIRST_S 0.1

#include <check.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "tools/r2_ctl/drain.c"
#include "tools/shared/sources_ssh.c"

#include "tests/unit/suite.h"

static char dir[64], text[4096];
static int walks, free_after;

/* --- what drain.c wants of r2_ctl --- */

int ctl_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return 1;
}

/* Two processes, until there are none. */
void ctl_rows_walk(const struct ctl *c, void (*take)(void *arg, const struct ctl_row *r), void *arg)
{
    struct ctl_row r = {.uid = 1000,
                        .who = {.command = "python3", .pid = 4711},
                        .nic = {.name = "mlx5_3", .usable = 3, .last = 1, .drained = 1}};

    if (walks++ == free_after) {
        return;
    }
    take(arg, &r);
    r.who.pid = 4712;
    take(arg, &r);
}

int ctl_names_known(const struct ctl *c, int n, char *const *names)
{
    return 0;
}

/* --- */

static void setup(void)
{
    char path[100];

    snprintf(dir, sizeof(dir), "/tmp/r2-patience-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/said", dir);
    ck_assert_ptr_nonnull(freopen(path, "w+", stderr));
    setvbuf(stderr, NULL, _IONBF, 0);
    walks = 0;
}

static void teardown(void)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static const char *said(void)
{
    size_t n;

    rewind(stderr);
    n = fread(text, 1, sizeof(text) - 1, stderr);
    text[n] = '\0';
    return text;
}

START_TEST(when_a_line_is_due)
{
    struct patience p = {0};

    ck_assert(!patience_is_due(&p, 0));
    ck_assert(!patience_is_due(&p, 0.09));
    ck_assert(patience_is_due(&p, 0.11));
    ck_assert(!patience_is_due(&p, 10.0));
    ck_assert(patience_is_due(&p, 10.2));
    ck_assert(!patience_is_due(&p, 20.1));
    ck_assert(patience_is_due(&p, 60));
}
END_TEST

START_TEST(a_drain_that_is_free_soon)
{
    struct ctl c = {.limit_s = 60};
    char *names[] = {(char *)"mlx5_3"};

    free_after = 2;
    ck_assert_int_eq(ctl_drain_wait(&c, 1, names), 0);
    ck_assert_str_eq(said(), "");
}
END_TEST

START_TEST(a_drain_that_takes_long)
{
    struct ctl c = {.limit_s = 60};
    char *names[] = {(char *)"mlx5_3"};

    free_after = 20; /* steps of 20 ms */
    ck_assert_int_eq(ctl_drain_wait(&c, 1, names), 0);
    ck_assert_str_eq(
        said(),
        "r2_ctl: not free yet after 0 s: python3 (pid 4711) and 1 more; waits for at most 60 s more\n");
}
END_TEST

static int json_take(void *arg, int at, const char *answer)
{
    return 0;
}

/* One host answers at once, two never do. */
START_TEST(hosts_that_do_not_answer)
{
    struct sources_remote r[] = {{.host = "h0"}, {.host = "h1"}, {.host = "h2"}};
    struct sources s = {.seconds = 1};
    struct sources_take t = {.json = json_take};
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/ssh", dir);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs("#!/bin/sh\ncase $* in *h0*) echo '{}' ;; *) exec sleep 100 ;; esac\n", f);
    ck_assert_int_eq(fclose(f) | chmod(path, 0755), 0);
    snprintf(path, sizeof(path), "%s:%s", dir, getenv("PATH"));
    setenv("PATH", path, 1);
    sources_ssh_read(&s, &t, r, 3);
    ck_assert_str_eq(r[0].why, "");
    ck_assert_str_eq(r[1].why, "no answer within 1 s");
    ck_assert_str_eq(r[2].why, "no answer within 1 s");
    ck_assert_msg(strstr(said(), ": after 0 s waits for answers of 2 hosts: h1, h2\n") != NULL,
                  "%s", text);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, when_a_line_is_due);
    tcase_add_test(t, a_drain_that_is_free_soon);
    tcase_add_test(t, a_drain_that_takes_long);
    tcase_add_test(t, hosts_that_do_not_answer);
}

int main(void)
{
    return suite_run("patience", 60, setup, teardown, add);
}
