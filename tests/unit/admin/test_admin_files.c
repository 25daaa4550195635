/* Files of the administrator that are not there are not looked for, until something has come into
 * the run directory (docs/control.md). */
#include "tests/unit/drain_rig.h"

#include "plugin/base/r2_rundir.h"

static unsigned stamps; /* times of a file of the administrator that were asked for */

int __real_r2_rundir_stamp_get(const char *path, struct r2_rundir_stamp *stamp);
int __wrap_r2_rundir_stamp_get(const char *path, struct r2_rundir_stamp *stamp);

int __wrap_r2_rundir_stamp_get(const char *path, struct r2_rundir_stamp *stamp)
{
    stamps++;
    return __real_r2_rundir_stamp_get(path, stamp);
}

/* As if nothing had come into the directory for long. */
static void dir_age(time_t when)
{
    const struct timespec at[2] = {{.tv_sec = when}, {.tv_sec = when}};

    ck_assert_int_eq(utimensat(AT_FDCWD, dir, at, 0), 0);
}

START_TEST(a_file_that_is_not_there_is_not_looked_for)
{
    start(2, NULL);
    host_dir(0);
    dir_age(1000);
    rig_run(rig, RIG_S);
    stamps = 0;
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(stamps, 0);
    /* one that has come is found by the next look, and one that is there is looked at each time */
    file_write("fab0\n", 0644);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_gt(stamps, 0);
    ck_assert_uint_eq(rig->side[0].inst->drain.nics, 1);
    dir_age(2000);
    rig_run(rig, RIG_S);
    stamps = 0;
    rig_run(rig, RIG_S);
    ck_assert_uint_ge(stamps, 3);
    ck_assert_uint_le(stamps, 5);
    host_dir_remove();
    stop();
}
END_TEST

/* A change in the grain of time of the one before does not show in the directory. */
START_TEST(a_directory_that_was_just_changed_says_nothing)
{
    struct r2_rundir_dir seen = {.settled = 0};
    char name[128], other[128];

    start(2, NULL);
    host_dir(0);
    snprintf(name, sizeof(name), "%s/new", dir);
    snprintf(other, sizeof(other), "%s.other", dir);
    dir_age(time(NULL) + 10); /* young, however slow this is; ahead of the clock, too */
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    dir_age(1000);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 1);
    file_write_at(name, "", 0644);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    dir_age(1000); /* another one of the same time */
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 1);
    ck_assert_int_eq(unlink(name), 0);
    dir_age(1000);
    ck_assert_int_eq(rename(dir, other), 0);
    ck_assert_int_eq(mkdir(dir, 0755), 0);
    dir_age(1000);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(rmdir(dir), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    ck_assert_int_eq(rename(other, dir), 0);
    ck_assert_int_eq(r2_rundir_dir_same(dir, &seen), 0);
    host_dir_remove();
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_file_that_is_not_there_is_not_looked_for);
    tcase_add_test(t, a_directory_that_was_just_changed_says_nothing);
}

int main(void)
{
    return run_suite("admin_files", add);
}
