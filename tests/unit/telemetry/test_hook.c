/* The program of NCCL_R2_ON_EVENT: who of a host runs it, and what the job notices of it. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/base/r2_log.h"
#include "plugin/telemetry/r2_hook.h"
#include "tests/support/times.h"
#include "tests/unit/suite.h"

#define LINE "{\"kind\":\"checkpoint\"}\n"

/* As /proc shows signals: all but 32 and 33, which are libc's own. */
#define LIBC_LEAVES (~(3ull << 31))

static char dir[64], program[96], report[96];
static volatile sig_atomic_t children;
static struct r2_hook_env *env;

static int run(const char *path, const char *reason, const char *where, const char *key)
{
    return r2_hook_start(&(struct r2_hook_run){.program = path,
                                               .reason = reason,
                                               .line = LINE,
                                               .len = strlen(LINE),
                                               .dir = where,
                                               .key = key,
                                               .env = env});
}

/* --- who has been told --- */

static char told[R2_HOOK_TOLD];
static size_t told_len;

static int is_told(uint64_t now, const char *key)
{
    char out[R2_HOOK_TOLD];
    size_t len = told_len;

    if (!r2_hook_told(told, &len, now, key, out)) {
        return 0;
    }
    ck_assert_uint_le(len, sizeof(told));
    memcpy(told, out, len);
    told_len = len;
    return 1;
}

static void told_set(const char *text)
{
    told_len = strlen(text);
    memcpy(told, text, told_len);
}

START_TEST(once_in_a_while)
{
    told_set("");
    ck_assert(is_told(5 * S, "hang:1"));
    ck_assert(!is_told(5 * S, "hang:1"));
    ck_assert(is_told(6 * S, "last-nic:1"));
    ck_assert(is_told(7 * S, "hang:11")); /* another one */
    ck_assert(is_told(8 * S, "hang:"));
    ck_assert(!is_told(5 * S + R2_HOOK_PAUSE_NS - 1, "hang:1"));
    ck_assert(is_told(5 * S + R2_HOOK_PAUSE_NS, "hang:1"));
    ck_assert(!is_told(5 * S + R2_HOOK_PAUSE_NS, "last-nic:1"));
    ck_assert(is_told(6 * S + R2_HOOK_PAUSE_NS, "last-nic:1"));
}
END_TEST

/* Of another boot, of somebody else's making, half written: not taken for a word to anybody. */
START_TEST(what_is_no_such_line_is_left_out)
{
    told_set("9000000000 hang:1\n");
    ck_assert(is_told(8 * S, "hang:1")); /* it is of a time to come */
    told_set("x hang:1\n-1 hang:1\n1e9 hang:1\n99999999999999999999999 hang:1\n1000000000\n\n \n"
             "1000000000 \n1000000000hang:1\n1000000000 hang:1");
    ck_assert(is_told(8 * S, "hang:1"));
    ck_assert_uint_eq(told_len, strlen("8000000000 hang:1\n"));
    ck_assert_int_eq(memcmp(told, "8000000000 hang:1\n", told_len), 0);
}
END_TEST

START_TEST(the_oldest_go_where_there_is_no_room)
{
    char key[100];
    unsigned n = 200;

    told_set("");
    for (unsigned i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "key-%u-%064u", i, i);
        ck_assert(is_told(S + i, key));
    }
    ck_assert(!is_told(2 * S, key)); /* the latest stays */
    ck_assert_uint_gt(told_len, R2_HOOK_TOLD - 100);
    snprintf(key, sizeof(key), "key-%u-%064u", 0, 0);
    ck_assert(is_told(2 * S, key));
    memset(told, 'x', sizeof(told)); /* full of something else, without an end */
    told_len = sizeof(told);
    ck_assert(is_told(2 * S, "hang"));
    ck_assert_uint_eq(told_len, strlen("2000000000 hang\n"));
}
END_TEST

/* --- running --- */

static unsigned threads(void)
{
    DIR *d = opendir("/proc/self/task");
    unsigned n = 0;

    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

/* Until the threads that were made have ended, which is when the programs have begun. */
static void threads_end(unsigned had)
{
    while (threads() > had) {
        usleep(1000); /* the suite's limit bounds it */
    }
}

static void on_child(int sig)
{
    children++;
}

static void on_other(int sig)
{
    abort();
}

/* It appends a line with what it finds, whole. */
static void setup(void)
{
    struct sigaction act = {.sa_handler = on_child};
    FILE *f;

    snprintf(dir, sizeof(dir), "/tmp/r2-hook-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(program, sizeof(program), "%s/program", dir);
    snprintf(report, sizeof(report), "%s/report", dir);
    ck_assert_int_eq(mkfifo(report, 0600), 0);
    f = fopen(program, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "#!/bin/sh\n"
            "in=$(cat)\n"
            "fds=$(ls /proc/$$/fd | tr '\\n' ,)\n"
            "sig=$(grep -E '^Sig(Blk|Ign|Cgt)' /proc/$$/status | tr -d '\\n\\t')\n"
            "echo \"$# $1|$in|$PPID|$fds|$sig|${LD_PRELOAD-none}|$R2_HOOK_TEST\" >%s\n",
            report);
    fclose(f);
    ck_assert_int_eq(chmod(program, 0700), 0);
    ck_assert_int_eq(sigaction(SIGCHLD, &act, NULL), 0);
    children = 0;
}

static void remove_in_dir(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    unlink(path);
}

static void teardown(void)
{
    char name[64];

    snprintf(name, sizeof(name), "nccl-net-r2.%u.told", (unsigned)geteuid());
    remove_in_dir(name);
    remove_in_dir("program");
    remove_in_dir("report");
    rmdir(dir);
}

/* The report of one run; the fifo's other end is the program's. */
static const char *report_read(void)
{
    static char text[1024];
    FILE *f = fopen(report, "re");

    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
    fclose(f);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static const char *field(const char *text, int n)
{
    static char out[512];

    while (n-- > 0) {
        text = strchr(text, '|');
        ck_assert_ptr_nonnull(text);
        text++;
    }
    snprintf(out, sizeof(out), "%.*s", (int)strcspn(text, "|"), text);
    return out;
}

/* The job: with a handler for everything, signals blocked, descriptors that stay open at exec, and
 * something loaded before. */
START_TEST(the_job_notices_nothing)
{
    unsigned had = threads();
    struct sigaction other = {.sa_handler = on_other}, ignore = {.sa_handler = SIG_IGN};
    unsigned long long blocked, ignored;
    char ppid[24];
    const char *text;
    sigset_t some;

    ck_assert_int_eq(dup2(2, 77), 77);
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaction(SIGUSR2, &other, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    pthread_sigmask(SIG_BLOCK, &some, NULL);
    setenv("LD_PRELOAD", "/nowhere.so", 1);
    setenv("R2_HOOK_TEST", "as it was", 1);
    if (_i) {
        close(0); /* a job without its standard input */
    }
    env = r2_hook_env_copy();
    ck_assert_ptr_nonnull(env);
    setenv("R2_HOOK_TEST", "changed meanwhile", 1);
    ck_assert_int_eq(run(program, "last-nic", "", "k"), 0);
    free(env);
    env = NULL;
    text = report_read();
    ck_assert_str_eq(field(text, 0), "1 last-nic");
    ck_assert_str_eq(field(text, 1), "{\"kind\":\"checkpoint\"}");
    snprintf(ppid, sizeof(ppid), "%d", (int)getpid());
    ck_assert_str_ne(field(text, 2), ppid);
    ck_assert_ptr_nonnull(strstr(field(text, 3), "2,"));
    ck_assert_msg(strstr(field(text, 3), "77,") == NULL, "%s", field(text, 3));
    ck_assert_int_eq(sscanf(field(text, 4), "SigBlk:%16llxSigIgn:%16llx", &blocked, &ignored), 2);
    ck_assert_uint_eq(blocked, 0);
    ck_assert_uint_eq(ignored & LIBC_LEAVES, 0);
    ck_assert_str_eq(field(text, 5), "none");
    ck_assert_str_eq(field(text, 6), "as it was");
    threads_end(had);
    ck_assert_int_eq(children, 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

/* Of eight processes one runs it; for another reason, one again. */
START_TEST(one_of_a_host)
{
    unsigned had = threads();
    int keep = open(report, O_RDWR | O_CLOEXEC); /* so that no program waits for a reader */
    char text[4096];
    ssize_t n;

    for (int i = 0; i < 16; i++) {
        ck_assert_int_eq(
            run(program, i % 2 ? "hang" : "last-nic", dir, i % 2 ? "hang:1" : "last-nic:1"), 0);
    }
    threads_end(had);
    for (size_t len = 0; len == 0 || memchr(text, '\n', len) == memrchr(text, '\n', len);
         len += (size_t)n) {
        n = read(keep, text + len, sizeof(text) - 1 - len);
        ck_assert_int_gt(n, 0);
        text[len + (size_t)n] = '\0';
    }
    ck_assert_ptr_nonnull(strstr(text, "1 hang|"));
    ck_assert_ptr_nonnull(strstr(text, "1 last-nic|"));
    ck_assert_int_eq(run(program, "third", dir, "third:1"), 0);
    n = read(keep, text,
             sizeof(text) - 1); /* what a third one of the others would have come before */
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(strncmp(text, "1 third|", 8), 0);
    close(keep);
    threads_end(had);
}
END_TEST

static char last[1024];

static void sink(enum r2_log_level level, const char *file, int line, const char *text)
{
    if (level == R2_LOG_WARN) {
        snprintf(last, sizeof(last), "%s", text);
    }
}

START_TEST(why_it_cannot_be_run)
{
    unsigned had = threads();
    char path[128], expect[300];

    r2_log_sink_set(sink);
    snprintf(path, sizeof(path), _i ? "%s" : "%s/none", dir);
    ck_assert_int_eq(run(path, "hang", dir, "k"), 0);
    threads_end(had);
    r2_log_flush();
    snprintf(expect, sizeof(expect), "NCCL_R2_ON_EVENT=%s cannot be run: %s", path,
             strerror(_i ? EACCES : ENOENT));
    ck_assert_msg(strstr(last, expect) != NULL, "%s", last);
    ck_assert_int_eq(children, 0);
}
END_TEST

/* What the processes agree by is no file of ours: said, and run all the same. */
START_TEST(a_file_that_is_not_ours)
{
    unsigned had = threads();
    char path[160];

    r2_log_sink_set(sink);
    ck_assert_int_eq(r2_hook_path(dir, path, sizeof(path)), 0);
    ck_assert_int_eq(symlink("/nowhere", path), 0);
    ck_assert_int_eq(run(program, "hang", dir, "k"), 0);
    ck_assert_str_eq(field(report_read(), 0), "1 hang");
    threads_end(had);
    r2_log_flush();
    ck_assert_msg(strstr(last, "other processes of this host may run it, too") != NULL, "%s", last);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(what_is_too_long)
{
    static char text[R2_HOOK_LINE + 1];
    struct r2_hook_run r = {.program = program,
                            .reason = "hang",
                            .line = text,
                            .len = sizeof(text),
                            .dir = "",
                            .key = "k"};
    char path[600];

    ck_assert_int_eq(r2_hook_start(&r), E2BIG);
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    r.len = 0;
    r.program = path;
    ck_assert_int_eq(r2_hook_start(&r), E2BIG);
    ck_assert_int_eq(r2_hook_path(path, last, sizeof(path)), -1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_file_that_is_not_ours);
    tcase_add_test(t, what_is_too_long);
    tcase_add_test(t, once_in_a_while);
    tcase_add_test(t, what_is_no_such_line_is_left_out);
    tcase_add_test(t, the_oldest_go_where_there_is_no_room);
    tcase_add_loop_test(t, the_job_notices_nothing, 0, 2);
    tcase_add_test(t, one_of_a_host);
    tcase_add_loop_test(t, why_it_cannot_be_run, 0, 2);
}

int main(void)
{
    return suite_run("hook", 60, setup, teardown, add);
}
