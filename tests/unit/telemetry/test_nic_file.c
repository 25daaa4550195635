/* The file of NICs' histories: processes that enter at once, one that is killed in between, what is
 * damaged, and what is not to be trusted. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/telemetry/r2_nic_file.h"
#include "tests/unit/fsize.h"
#include "tests/unit/suite.h"

#define HOUR 3600ull

static char dir[64], path[128], bad[136], next[136], why[700];
static struct r2_nic_history h;

static void setup(void)
{
    snprintf(dir, sizeof(dir), "/tmp/r2-nics-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(r2_nic_file_path(dir, geteuid(), path, sizeof(path)), 0);
    snprintf(bad, sizeof(bad), "%s.bad", path);
    snprintf(next, sizeof(next), "%s.new", path);
}

static void teardown(void)
{
    unlink(path);
    unlink(bad);
    ck_assert_msg(rmdir(dir) == 0, "something is left in %s", dir);
}

static struct r2_nic_note note(uint64_t guid, uint64_t at)
{
    return (struct r2_nic_note){
        .fact = R2_NIC_FAILED, .guid = guid, .port = 1, .at = at, .job = 1, .name = "fab0"};
}

static enum r2_nic_file_result enter(uint64_t guid, uint64_t at)
{
    struct r2_nic_note n = note(guid, at);

    return r2_nic_file_enter(path, geteuid(), &n, 1, why, sizeof(why));
}

static enum r2_nic_file_result get(void)
{
    return r2_nic_file_read(path, geteuid(), &h, why, sizeof(why));
}

static void file_put(const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

START_TEST(what_is_entered_stays)
{
    struct r2_nic_note two[2] = {note(1, 90 * HOUR), note(2, 90 * HOUR)};
    struct stat st;

    ck_assert_int_eq(get(), R2_NIC_FILE_NONE);
    ck_assert_int_eq(r2_nic_file_enter(path, geteuid(), two, 2, why, sizeof(why)), R2_NIC_FILE_OK);
    ck_assert_int_eq(enter(1, 95 * HOUR), R2_NIC_FILE_OK);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, 2);
    ck_assert_uint_eq(h.nic[0].hours, 2);
    ck_assert_uint_eq(h.nic[1].hours, 1);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(access(next, F_OK), -1);
}
END_TEST

/* Eight processes of two jobs, 40 hours each: none of them is lost. */
START_TEST(processes_enter_at_once)
{
    enum { PROCS = 8, TIMES = 40 };

    for (unsigned i = 0; i < PROCS; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            for (unsigned k = 0; k < TIMES; k++) {
                while (enter(100 + i, (1000 + k) * HOUR) == R2_NIC_FILE_BUSY) {
                    usleep(100);
                }
            }
            _exit(0);
        }
        ck_assert_int_gt(pid, 0);
    }
    for (int i = 0; i < PROCS; i++) {
        int status = -1;

        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, PROCS);
    for (unsigned i = 0; i < PROCS; i++) {
        ck_assert_uint_eq(h.nic[i].hours, TIMES);
    }
    ck_assert_int_eq(access(bad, F_OK), -1);
}
END_TEST

/* At every moment there is a whole one. */
START_TEST(a_process_that_is_killed_leaves_it_whole)
{
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            for (uint64_t k = 0;; k++) {
                enter(1, (1000 + k) * HOUR);
            }
        }
        usleep((useconds_t)(1000 + 137 * i));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        ck_assert_int_eq(get() == R2_NIC_FILE_OK || get() == R2_NIC_FILE_NONE, 1);
    }
    ck_assert_int_eq(enter(2, 50 * HOUR), R2_NIC_FILE_OK); /* nor does it leave the lock */
    ck_assert_int_eq(access(next, F_OK), -1);
}
END_TEST

START_TEST(who_holds_it_is_not_waited_for)
{
    int fd;

    ck_assert_int_eq(enter(1, HOUR), R2_NIC_FILE_OK);
    fd = open(path, O_RDWR);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_BUSY);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK); /* readers do not care */
    ck_assert_uint_eq(h.nic[0].hours, 1);
    close(fd);
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_OK);
}
END_TEST

/* Named by its reader, set aside by the next that enters, and never counted. */
START_TEST(a_damaged_one_is_named_and_set_aside)
{
    static const char *const text[] = {
        "garbage\n", "r2.nic-history/2\nend 00000000\n",
        "r2.nic-history/1\nnic 0000000000000001 1 fab0 324000\nhour 90 7 0 00000000\nend 12345678\n",
        "r2.nic-history/1\nnic 0000000000000001 1 fab0 324000\nhour 90 7"};
    char say[300];

    file_put(text[_i]);
    ck_assert_int_eq(get(), R2_NIC_FILE_DAMAGED);
    ck_assert_uint_eq(h.nics, 0);
    snprintf(say, sizeof(say), "%s is damaged, line ", path);
    ck_assert_msg(strncmp(why, say, strlen(say)) == 0, "%s", why);
    ck_assert_int_eq(access(bad, F_OK), -1); /* a reader leaves it */
    ck_assert_int_eq(enter(5, 9 * HOUR), R2_NIC_FILE_DAMAGED);
    ck_assert_int_eq(access(bad, F_OK), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, 1);
    ck_assert_uint_eq(h.nic[0].guid, 5);
}
END_TEST

/* The lock is on it: who comes meanwhile must not find another file, or none. */
START_TEST(a_damaged_one_keeps_its_name_until_the_next_has_it)
{
    struct stat before, after;

    file_put("garbage\n");
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_int_eq(mkdir(next, 0700), 0); /* the next one cannot be written */
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(enter(5, 9 * HOUR), R2_NIC_FILE_FAILED);
        ck_assert_ptr_nonnull(strstr(why, ".nics.new: "));
        ck_assert_int_eq(stat(path, &after), 0);
        ck_assert_uint_eq(after.st_ino, before.st_ino);
    }
    ck_assert_int_eq(rmdir(next), 0);
    ck_assert_int_eq(enter(5, 9 * HOUR), R2_NIC_FILE_DAMAGED);
    ck_assert_int_eq(stat(bad, &after), 0);
    ck_assert_uint_eq(after.st_ino, before.st_ino);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
}
END_TEST

/* The file is as it was, the error is named, and nothing is left beside it. */
START_TEST(a_full_disk_leaves_it_as_it_was)
{
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_OK);
    errno = 0; /* ten bytes go, the others do not */
    ck_assert_int_eq(FSIZE_LIMITED(10, enter(2, 9 * HOUR)), R2_NIC_FILE_FAILED);
    ck_assert_msg(strstr(why, ".nics.new: No space left on device") != NULL, "%s", why);
    ck_assert_int_eq(access(next, F_OK), -1);
    ck_assert_int_eq(get(), R2_NIC_FILE_OK);
    ck_assert_uint_eq(h.nics, 1);
}
END_TEST

/* A directory in its place, a directory that is not there, a file of somebody else. */
START_TEST(what_is_no_file_of_ours_is_named)
{
    struct r2_nic_note n = note(1, 9 * HOUR);
    const uid_t other = geteuid() + 1;

    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_FAILED);
    ck_assert_ptr_nonnull(strstr(why, "is not a file"));
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_FAILED);
    ck_assert_ptr_nonnull(strstr(why, "Is a directory"));
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(r2_nic_file_enter("/nowhere/nics", geteuid(), &n, 1, why, sizeof(why)),
                     R2_NIC_FILE_FAILED);
    ck_assert_str_eq(why, "/nowhere/nics: No such file or directory");
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_OK);
    ck_assert_int_eq(r2_nic_file_read(path, other, &h, why, sizeof(why)), R2_NIC_FILE_FAILED);
    ck_assert_uint_eq(h.nics, 0);
    ck_assert_int_eq(r2_nic_file_enter(path, other, &n, 1, why, sizeof(why)), R2_NIC_FILE_FAILED);
    ck_assert_ptr_nonnull(strstr(why, "belongs to user"));
}
END_TEST

START_TEST(one_that_is_too_large_is_damaged)
{
    ck_assert_int_eq(enter(1, HOUR), R2_NIC_FILE_OK);
    ck_assert_int_eq(truncate(path, 2 * R2_NIC_HISTORY_TEXT), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_DAMAGED);
    ck_assert_uint_eq(h.nics, 0);
}
END_TEST

START_TEST(what_others_may_write_is_not_used)
{
    char other[80];

    ck_assert_int_eq(enter(1, HOUR), R2_NIC_FILE_OK);
    ck_assert_int_eq(chmod(path, 0622), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_FAILED);
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_FAILED);
    ck_assert_ptr_nonnull(strstr(why, "written by others"));
    unlink(path);
    snprintf(other, sizeof(other), "%s/other", dir);
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_FAILED);
    ck_assert_int_eq(enter(1, 9 * HOUR), R2_NIC_FILE_FAILED);
    ck_assert_int_eq(access(other, F_OK), -1);
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(get(), R2_NIC_FILE_FAILED); /* and does not wait */
}
END_TEST

START_TEST(names)
{
    uid_t uid = 0;

    ck_assert_int_eq(r2_nic_file_name("nccl-net-r2.1000.nics", &uid), 1);
    ck_assert_uint_eq(uid, 1000);
    ck_assert_int_eq(r2_nic_file_name("nccl-net-r2.1000.nics.bad", &uid), 0);
    ck_assert_int_eq(r2_nic_file_name("nccl-net-r2.01.nics", &uid), 0);
    ck_assert_int_eq(r2_nic_file_name("nccl-net-r2.x.nics", &uid), 0);
    ck_assert_int_eq(r2_nic_file_name("nccl-net-r2.1.stat", &uid), 0);
    ck_assert_int_eq(r2_nic_file_path("/a/directory/that/is/long", 0, why, 20), -1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_is_entered_stays);
    tcase_add_test(t, processes_enter_at_once);
    tcase_add_test(t, a_process_that_is_killed_leaves_it_whole);
    tcase_add_test(t, who_holds_it_is_not_waited_for);
    tcase_add_loop_test(t, a_damaged_one_is_named_and_set_aside, 0, 4);
    tcase_add_test(t, a_damaged_one_keeps_its_name_until_the_next_has_it);
    tcase_add_test(t, a_full_disk_leaves_it_as_it_was);
    tcase_add_test(t, what_is_no_file_of_ours_is_named);
    tcase_add_test(t, one_that_is_too_large_is_damaged);
    tcase_add_test(t, what_others_may_write_is_not_used);
    tcase_add_test(t, names);
}

int main(void)
{
    return suite_run("nic_file", 60, setup, teardown, add);
}
