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
static int walks, free_after, processes;

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

/* Processes that have two NICs each, until there are none. */
void ctl_rows_walk(const struct ctl *c, void (*take)(void *arg, const struct ctl_row *r), void *arg)
{
    struct ctl_row r = {.uid = 1000,
                        .who = {.command = "python3", .pid = 4711},
                        .nic = {.name = "mlx5_3", .usable = 3, .last = 1, .drained = 1}};

    if (walks++ == free_after) {
        return;
    }
    for (int i = 0; i < processes; i++, r.who.pid++) {
        snprintf(r.nic.name, sizeof(r.nic.name), "mlx5_3");
        take(arg, &r);
        snprintf(r.nic.name, sizeof(r.nic.name), "mlx5_4");
        take(arg, &r);
    }
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
    processes = 2;
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
    ck_assert(!patience_is_due(&p, 69.9));
    ck_assert(patience_is_due(&p, 70));
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
    static const char *const more[] = {"", " and 1 more", " and 2 more"};
    struct ctl c = {.limit_s = 60};
    char *names[] = {(char *)"mlx5_3", (char *)"mlx5_4"}, line[200];

    processes = _i + 1;
    free_after = 20; /* steps of 20 ms */
    ck_assert_int_eq(ctl_drain_wait(&c, 2, names), 0);
    snprintf(line, sizeof(line),
             "r2_ctl: not free yet after 0 s: python3 (pid 4711)%s; waits for at most 60 s more\n",
             more[_i]);
    ck_assert_str_eq(said(), line);
}
END_TEST

/* What is left is said, and at the end who it is, once. */
START_TEST(a_drain_that_is_not_free)
{
    struct ctl c = {.limit_s = 1};
    char *names[] = {(char *)"mlx5_3"};

    processes = 1;
    free_after = -1;
    ck_assert_int_eq(ctl_drain_wait(&c, 1, names), 1);
    ck_assert_str_eq(
        said(),
        "r2_ctl: not free yet after 0 s: python3 (pid 4711); waits for at most 1 s more\n"
        "mlx5_3: process 4711 (python3, user 1000) has 3 connections over it, for 1 of them it is "
        "the last NIC\n"
        "not free after 1 s\n");
}
END_TEST

static int json_take(void *arg, int at, const char *answer)
{
    return 0;
}

/* One host answers at once, two never do. On a busy machine "at once" may be after the line. */
START_TEST(hosts_that_do_not_answer)
{
    struct sources_remote r[] = {{.host = "h0"}, {.host = "h1"}, {.host = "h2"}};
    struct sources s = {.seconds = 5};
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
    ck_assert_str_eq(r[1].why, "no answer within 5 s");
    ck_assert_str_eq(r[2].why, "no answer within 5 s");
    said();
    ck_assert_msg(strstr(text, ": after 0 s waits for answers of 2 hosts: h1, h2\n") ||
                      strstr(text, " s waits for answers of 3 hosts: h0, h1, h2\n"),
                  "%s", text);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
}
END_TEST

/* More than are asked at once, and of names that do not fit a line. */
START_TEST(many_hosts_that_do_not_answer)
{
    struct run run[AT_ONCE] = {0};
    struct sources_remote r = {.host = "a-host-whose-name-is-long"};
    struct sources_remote h = {.host = "h0"};
    const char *all;

    run[0].to = run[2].to = &h;
    hosts_say(run, 2, 5, 13.2);
    ck_assert_msg(strstr(said(), ": after 13 s waits for answers of 7 hosts: h0, h0, ...\n") !=
                      NULL,
                  "%s", text);
    for (int i = 0; i < AT_ONCE; i++) {
        run[i].to = &r;
    }
    hosts_say(run, AT_ONCE, 0, 13.2);
    all = strstr(said(), " of 16 hosts: a-host-whose-name-is-long, ");
    ck_assert_msg(all && strstr(all, ", ...\n"), "%s", text);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, when_a_line_is_due);
    tcase_add_test(t, a_drain_that_is_free_soon);
    tcase_add_loop_test(t, a_drain_that_takes_long, 0, 3);
    tcase_add_test(t, a_drain_that_is_not_free);
    tcase_add_test(t, hosts_that_do_not_answer);
    tcase_add_test(t, many_hosts_that_do_not_answer);
}

int main(void)
{
    return suite_run("patience", 60, setup, teardown, add);
}
