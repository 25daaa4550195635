/* The administrator's file and the job's profile: what each of them beats, when a file is not
 * taken, and that this holds for every option. */
#include "tests/unit/config_rig.h"
#include "tests/unit/suite.h"

START_TEST(lock_beats_environment)
{
    put_lock(
        "# the administrator's\nNCCL_R2_FAILOVER=on\nNCCL_R2_T_DEAD=9000\nNCCL_R2_T_DEAD=1\nNCCL_R2_ACK=e2e\r\n");
    env[0] = "NCCL_R2_FAILOVER=off";
    env[1] = "NCCL_R2_T_DEAD=9000";
    load();
    ck_assert_int_eq(cfg.failover, 1);
    ck_assert_int_eq(cfg.t_dead_ms, 9000);
    ck_assert_int_eq(cfg.source[0], R2_SRC_LOCK);
    ck_assert_str_eq(warns, "NCCL_R2_FAILOVER=off (environment) overruled by lock.conf: on\n");
    ck_assert_str_eq(cfg.error, "");
    ck_assert_ptr_nonnull(strstr(infos, "NCCL_R2_T_DEAD=9000 source=lock.conf default=-1\n"));
    ck_assert_ptr_nonnull(strstr(infos, "NCCL_R2_FAILOVER=on source=lock.conf default=on\n"));
}
END_TEST

START_TEST(lock_conflict_may_end_the_job)
{
    put_lock("NCCL_R2_FAILOVER=on\nNCCL_R2_LOCK_CONFLICT=fail\n");
    env[0] = "NCCL_R2_FAILOVER=off";
    load();
    ck_assert_ptr_nonnull(strstr(cfg.error, "NCCL_R2_FAILOVER is pinned by lock.conf"));
    env[0] = "NCCL_R2_FAILOVER=1"; /* the same, in other words */
    load();
    ck_assert_str_eq(cfg.error, "");
}
END_TEST

START_TEST(writable_lock_is_ignored)
{
    put(lock_path, "NCCL_R2_FAILOVER=off\n", 0666);
    load();
    ck_assert_int_eq(cfg.failover, 1);
    ck_assert_int_eq(warn_count, 1);
    ck_assert_ptr_nonnull(strstr(warns, "is ignored"));
    ck_assert_ptr_nonnull(strstr(warns, lock_path));
}
END_TEST

/* A file that the job cannot write in a folder that it can: it could put another in its place. */
START_TEST(replaceable_lock_is_ignored)
{
    put(lock_path, "NCCL_R2_FAILOVER=off\n", 0444);
    chmod(dir, 0777);
    load();
    ck_assert_int_eq(cfg.failover, 1);
    ck_assert_ptr_nonnull(strstr(warns, "is ignored"));
}
END_TEST

START_TEST(lock_that_is_no_file_is_an_error)
{
    ck_assert_int_eq(mkdir(lock_path, 0555), 0);
    chmod(dir, 0555);
    load();
    ck_assert_ptr_nonnull(strstr(cfg.error, "cannot be read"));
    chmod(dir, 0755);
    rmdir(lock_path);
}
END_TEST

START_TEST(bad_and_unknown_lines_of_a_lock)
{
    put_lock("NCCL_R2_T_DEAD = 5\nNCCL_R2_WHAT=1\nNCCL_R2_T_ACK=x\nOTHER=1\n");
    load();
    ck_assert_ptr_nonnull(strstr(
        warns, "unknown option 'NCCL_R2_T_DEAD ' in lock.conf: did you mean NCCL_R2_T_DEAD?"));
    ck_assert_ptr_nonnull(strstr(warns, "unknown option 'NCCL_R2_WHAT' in lock.conf\n"));
    ck_assert_ptr_null(strstr(warns, "OTHER"));
    ck_assert_str_eq(cfg.error,
                     "NCCL_R2_T_ACK=x (lock.conf): expected a whole number from 0 to 1000000 us");
}
END_TEST

START_TEST(profile_is_weakest)
{
    put(profile_path, "NCCL_R2_T_DEAD=11\nNCCL_R2_T_ACK=12\nNCCL_R2_LINGER=13\n", 0666);
    put_lock("NCCL_R2_LINGER=14\n");
    env[0] = profile_env;
    env[1] = "NCCL_R2_T_ACK=99";
    load();
    ck_assert_int_eq(cfg.t_dead_ms, 11);
    ck_assert_int_eq(cfg.t_ack_us, 99);
    ck_assert_int_eq(cfg.t_linger_ms, 14);
    ck_assert_str_eq(warns, "NCCL_R2_LINGER=13 (profile) overruled by lock.conf: 14\n");
    ck_assert_ptr_nonnull(
        strstr(infos, "NCCL_R2_T_ACK=12 (profile) overruled by environment: 99\n"));
    ck_assert_ptr_nonnull(strstr(infos, "NCCL_R2_T_DEAD=11 source=profile default=-1\n"));
}
END_TEST

START_TEST(missing_profile_is_an_error)
{
    env[0] = profile_env;
    load();
    ck_assert_ptr_nonnull(strstr(cfg.error, "NCCL_R2_PROFILE"));
    ck_assert_ptr_nonnull(strstr(cfg.error, profile_path));
}
END_TEST

/* Whatever the option: the administrator's value holds, either way round, and one line says what it
 * beat. */
START_TEST(lock_wins_for_every_row)
{
    int n;
    const struct r2_opt_row *r = &r2_config_rows(&n)[_i];
    char value[2][64], line[160], var[160], want[352], text[R2_OPT_STRING_MAX];

    two_values(r, value[0], value[1], sizeof(value[0]));
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof(line), "%s=%s\n", r->name, value[i]);
        snprintf(var, sizeof(var), "%s=%s", r->name, value[!i]);
        snprintf(want, sizeof(want), "%s (environment) overruled by lock.conf: %s\n", var,
                 value[i]);
        chmod(dir, 0755);
        unlink(lock_path);
        put_lock(line);
        env[0] = var;
        warns[0] = '\0';
        load();
        r2_config_text(&cfg, _i, text, sizeof(text));
        ck_assert_str_eq(text, value[i]);
        ck_assert_int_eq(cfg.source[_i], R2_SRC_LOCK);
        ck_assert_msg(strstr(warns, want) != NULL, "'%s' is not in '%s'", want, warns);
    }
}
END_TEST

static void add(TCase *t)
{
    int rows;

    r2_config_rows(&rows);
    tcase_add_test(t, lock_beats_environment);
    tcase_add_test(t, lock_conflict_may_end_the_job);
    tcase_add_test(t, writable_lock_is_ignored);
    tcase_add_test(t, replaceable_lock_is_ignored);
    tcase_add_test(t, lock_that_is_no_file_is_an_error);
    tcase_add_test(t, bad_and_unknown_lines_of_a_lock);
    tcase_add_test(t, profile_is_weakest);
    tcase_add_test(t, missing_profile_is_an_error);
    tcase_add_loop_test(t, lock_wins_for_every_row, 0, rows);
}

int main(void)
{
    return suite_run("config_lock", 60, fresh, remove_files, add);
}
