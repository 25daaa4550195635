/* Options: defaults, values, the environment, names that are near misses, and the job that a
 * process belongs to. Files of options are in test_config_lock.c. */
#include "tests/unit/config_rig.h"

START_TEST(defaults)
{
    load();
    ck_assert_int_eq(cfg.failover, 1);
    ck_assert_int_eq(cfg.t_dead_ms, -1);
    ck_assert_int_eq(cfg.ack, R2_ACK_E2E);
    ck_assert_int_eq(cfg.ib_gid_index, -1);
    ck_assert_int_eq(cfg.ib_disable, 0);
    ck_assert_str_eq(cfg.backup_nics, "");
    ck_assert_str_eq(cfg.error, "");
    ck_assert_str_eq(infos, "");
    ck_assert_str_eq(warns, "");
}
END_TEST

/* Every row's default is inside its own range, names are unique and enums have choices. */
START_TEST(table_is_sound)
{
    int n;
    const struct r2_opt_row *r = r2_config_rows(&n);
    char text[R2_OPT_STRING_MAX], why[256];

    r2_config_defaults(&cfg);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(strncmp(r[i].name, "NCCL_", 5), 0);
        ck_assert_uint_gt(strlen(r[i].help), 8);
        r2_config_text(&cfg, i, text, sizeof(text));
        ck_assert_msg(r2_config_set(&cfg, r[i].name, text, why, sizeof(why)) == 0,
                      "%s: own text refused: %s", r[i].name, why);
        ck_assert_msg(r2_config_set(&cfg, r[i].name, r[i].def, why, sizeof(why)) == 0, "%s", why);
        if (r[i].type == R2_OPT_INT) {
            ck_assert_int_le(r[i].min, r[i].max);
        }
        if (r[i].type == R2_OPT_ENUM) {
            ck_assert_ptr_nonnull(strchr(r[i].choices, '|'));
        }
        for (int j = 0; j < i; j++) {
            ck_assert_str_ne(r[i].name, r[j].name);
            ck_assert_uint_ne(r[i].offset, r[j].offset);
        }
    }
}
END_TEST

static const struct {
    const char *name, *value;
    int64_t want; /* -999: refused */
} values[] = {
    {"NCCL_R2_T_ACK", "0", 0},
    {"NCCL_R2_T_ACK", "1000000", 1000000},
    {"NCCL_R2_T_ACK", "1000001", -999},
    {"NCCL_R2_T_ACK", "-1", -999},
    {"NCCL_R2_T_ACK", "0x10", 16},
    {"NCCL_R2_T_ACK", "010", 8},
    {"NCCL_R2_T_ACK", " 5", -999},
    {"NCCL_R2_T_ACK", "5 ", -999},
    {"NCCL_R2_T_ACK", "5ms", -999},
    {"NCCL_R2_T_ACK", "", -999},
    {"NCCL_R2_T_ACK", "+7", 7},
    {"NCCL_R2_T_ACK", "5 # note", -999},
    {"NCCL_R2_T_ACK", "99999999999999999999", -999},
    {"NCCL_R2_T_ACK", "\"5\"", -999},
    {"NCCL_R2_FAILOVER", "on", 1},
    {"NCCL_R2_FAILOVER", "OFF", 0},
    {"NCCL_R2_FAILOVER", "yes", 1},
    {"NCCL_R2_FAILOVER", "no", 0},
    {"NCCL_R2_FAILOVER", "true", 1},
    {"NCCL_R2_FAILOVER", "false", 0},
    {"NCCL_R2_FAILOVER", "1", 1},
    {"NCCL_R2_FAILOVER", "0", 0},
    {"NCCL_R2_FAILOVER", "2", -999},
    {"NCCL_R2_FAILOVER", "o", -999},
    {"NCCL_R2_FAILOVER", "on ", -999},
    {"NCCL_R2_ACK", "cqe", R2_ACK_CQE},
    {"NCCL_R2_ACK", "e2e", R2_ACK_E2E},
    {"NCCL_R2_ACK", "flush", R2_ACK_FLUSH},
    {"NCCL_R2_ACK", "e2", -999},
    {"NCCL_R2_ACK", "e2e|cqe", -999},
    {"NCCL_R2_ACK", "1", -999},
    {"NCCL_IB_GID_INDEX", "-1", -1},
    {"NCCL_IB_GID_INDEX", "-2", -999},
    {"NCCL_IB_DISABLE", "2", 1},
};

START_TEST(value_table)
{
    int n, row = -1;
    const struct r2_opt_row *r = r2_config_rows(&n);
    char why[256] = "";
    int rc;

    r2_config_defaults(&cfg);
    for (int i = 0; i < n; i++) {
        row = strcmp(r[i].name, values[_i].name) == 0 ? i : row;
    }
    ck_assert_int_ge(row, 0);
    rc = r2_config_set(&cfg, values[_i].name, values[_i].value, why, sizeof(why));
    if (values[_i].want == -999) {
        ck_assert_int_eq(rc, -1);
        ck_assert_ptr_nonnull(strstr(why, values[_i].name));
        ck_assert_ptr_nonnull(strstr(why, "expected"));
    } else {
        ck_assert_msg(rc == 0, "%s", why);
        ck_assert_int_eq(*(int64_t *)((char *)&cfg + r[row].offset), values[_i].want);
    }
}
END_TEST

START_TEST(set_refuses_unknown_and_too_long)
{
    char big[300], why[256];

    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    r2_config_defaults(&cfg);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_R2_NOPE", "1", why, sizeof(why)), -1);
    ck_assert_ptr_nonnull(strstr(why, "NCCL_R2_NOPE"));
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_IB_HCA", big, why, sizeof(why)), -1);
    ck_assert_str_eq(cfg.ib_hca, "");
    big[255] = '\0';
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_IB_HCA", big, why, sizeof(why)), 0);
    ck_assert_uint_eq(strlen(cfg.ib_hca), 255);
}
END_TEST

/* A hold that nothing ends lasts as long as RC may repeat: four times what NCCL_IB_TIMEOUT says,
 * for each try (IBTA 9.7.6.1.3), and a packet behind it. */
START_TEST(a_hold_outlasts_the_transport)
{
    load();
    ck_assert_uint_eq(r2_config_dead_ns(&cfg), 4 * 8 * (4096ull << 20) + 2000000000);
    env[0] = "NCCL_IB_TIMEOUT=31";
    env[1] = "NCCL_IB_RETRY_CNT=0";
    env[2] = "NCCL_R2_T_PACKET=5";
    load();
    ck_assert_uint_eq(r2_config_dead_ns(&cfg), 4 * (4096ull << 31) + 5000000);
    env[3] = "NCCL_R2_T_DEAD=0";
    load();
    ck_assert_uint_eq(r2_config_dead_ns(&cfg), 0);
}
END_TEST

START_TEST(environment_is_read_and_logged)
{
    env[0] = "NCCL_R2_T_DEAD=77";
    env[1] = "NCCL_R2_ACK=cqe";
    env[2] = "NCCL_R2_FAILOVER=on"; /* its default: not logged */
    env[3] = "NCCL_R2_T_ACK=";      /* taken back: not an error */
    load();
    ck_assert_int_eq(cfg.t_dead_ms, 77);
    ck_assert_int_eq(cfg.ack, R2_ACK_CQE);
    ck_assert_int_eq(cfg.t_ack_us, 20);
    ck_assert_str_eq(cfg.error, "");
    ck_assert_str_eq(warns, "");
    ck_assert_str_eq(infos, "NCCL_R2_ACK=cqe source=environment default=e2e\n"
                            "NCCL_R2_T_DEAD=77 source=environment default=-1\n");
}
END_TEST

START_TEST(bad_value_is_kept_as_error)
{
    env[0] = "NCCL_R2_T_DEAD=soon";
    env[1] = "NCCL_R2_T_ACK=-4";
    load();
    ck_assert_str_eq(
        cfg.error, "NCCL_R2_T_ACK=-4 (environment): expected a whole number from 0 to 1000000 us");
    ck_assert_int_eq(cfg.t_dead_ms, -1);
    ck_assert_int_eq(cfg.t_ack_us, 20);
    ck_assert_int_eq(warn_count, 2);
    ck_assert_ptr_nonnull(strstr(warns, "NCCL_R2_T_DEAD=soon"));
}
END_TEST

/* NCCL's own variables: NCCL's habit. */
START_TEST(bad_value_of_nccl_is_no_error)
{
    env[0] = "NCCL_IB_TIMEOUT=99";
    env[1] = "NCCL_IB_TC=abc";
    load();
    ck_assert_str_eq(cfg.error, "");
    ck_assert_str_eq(warns, "");
    ck_assert_int_eq(cfg.ib_timeout, 20);
    ck_assert_str_eq(infos, "Invalid value 99 for NCCL_IB_TIMEOUT, using default 20\n"
                            "Invalid value abc for NCCL_IB_TC, using default -1\n");
}
END_TEST

START_TEST(near_misses)
{
    env[0] = "NCCL_R2_FAILOVR=off";
    env[1] = "NCCL_R2_failover=off";
    env[2] = "NCCL_R2_SOMETHING_ELSE=1";
    env[3] = "R2_ACCESS_KEY_ID=secret-of-somebody";
    env[4] = "NCCL_R2_T_DEAD =5";
    env[5] = "NO_EQUALS_SIGN";
    env[6] = "NCCL_IB_HAC=mlx5_0";
    env[7] = "NCCL_IB_TIMEOUTS=22";
    env[8] = "NCCL_IB_FIFO_TC=3";
    env[9] = "NCCL_R2_A_NAME_THAT_IS_LONGER_THAN_ANY_NAME_OF_THE_ROWS_OF_THE_TABLE_IS=1";
    load();
    ck_assert_int_eq(warn_count, 6);
    ck_assert_str_eq(
        warns,
        "unknown variable 'NCCL_R2_FAILOVR' in the environment: did you mean NCCL_R2_FAILOVER?\n"
        "unknown variable 'NCCL_R2_failover' in the environment: did you mean NCCL_R2_FAILOVER?\n"
        "unknown variable 'NCCL_R2_SOMETHING_ELSE' in the environment\n"
        "unknown variable 'NCCL_R2_T_DEAD ' in the environment: did you mean NCCL_R2_T_DEAD?\n"
        "unknown variable 'NCCL_IB_TIMEOUTS' in the environment: did you mean NCCL_IB_TIMEOUT?\n"
        "unknown variable 'NCCL_R2_A_NAME_THAT_IS_LONGER_THAN_ANY_NAME_OF_THE_ROWS_OF_THE_' in the environment\n");
    ck_assert_int_eq(cfg.failover, 1);
    ck_assert_ptr_null(strstr(infos, "secret"));
}
END_TEST

START_TEST(distance)
{
    ck_assert_int_eq(r2_conf_name_distance("abc", "abc", 2), 0);
    ck_assert_int_eq(r2_conf_name_distance("abc", "ABC", 2), 0);
    ck_assert_int_eq(r2_conf_name_distance("abc", "abd", 2), 1);
    ck_assert_int_eq(r2_conf_name_distance("abc", "ab", 2), 1);
    ck_assert_int_eq(r2_conf_name_distance("abc", "xabcy", 2), 2);
    ck_assert_int_eq(r2_conf_name_distance("kitten", "sitting", 3), 3);
    ck_assert_int_eq(r2_conf_name_distance("kitten", "sitting", 2), 3);
    ck_assert_int_eq(r2_conf_name_distance("", "ab", 2), 2);
    ck_assert_int_eq(r2_conf_name_distance("abcd", "badc", 2), 3);
}
END_TEST

/* A name with a letter too many, or in small letters, is told its right form; a value under it is
 * not taken. Of NCCL's, those of its IB transport. */
START_TEST(near_miss_of_every_row)
{
    int n;
    const struct r2_opt_row *r = &r2_config_rows(&n)[_i];
    char value[2][64], wrong[64], var[160], want[320], before[R2_OPT_STRING_MAX],
        text[R2_OPT_STRING_MAX];

    two_values(r, value[0], value[1], sizeof(value[0]));
    r2_config_defaults(&cfg);
    r2_config_text(&cfg, _i, before, sizeof(before));
    for (int k = 0; k < 2; k++) {
        snprintf(wrong, sizeof(wrong), "%s%s", r->name, k ? "" : "X");
        if (k) {
            wrong[8] = (char)(wrong[8] - 'A' + 'a');
        }
        snprintf(var, sizeof(var), "%s=%s", wrong,
                 strcmp(before, value[0]) == 0 ? value[1] : value[0]);
        snprintf(want, sizeof(want), "unknown variable '%s' in the environment: did you mean %s?\n",
                 wrong, r->name);
        if (strncmp(r->name, "NCCL_R2_", 8) != 0 && strncmp(r->name, "NCCL_IB_", 8) != 0) {
            want[0] = '\0';
        }
        env[0] = var;
        warns[0] = '\0';
        load();
        ck_assert_str_eq(warns, want);
        r2_config_text(&cfg, _i, text, sizeof(text));
        ck_assert_str_eq(text, before);
    }
}
END_TEST

START_TEST(line_rules)
{
    struct r2_conf_pair p;
    char big[3000];

    ck_assert_int_eq(r2_conf_line_parse("A=b\n", &p), 1);
    ck_assert_str_eq(p.name, "A");
    ck_assert_str_eq(p.value, "b");
    ck_assert_int_eq(r2_conf_line_parse("A=b\r\n", &p), 1);
    ck_assert_str_eq(p.value, "b");
    ck_assert_int_eq(r2_conf_line_parse("A=b=c # d", &p), 1);
    ck_assert_str_eq(p.value, "b=c # d");
    ck_assert_int_eq(r2_conf_line_parse(" A =\"b\" ", &p), 1);
    ck_assert_str_eq(p.name, " A ");
    ck_assert_str_eq(p.value, "\"b\" ");
    ck_assert_int_eq(r2_conf_line_parse("#A=b", &p), 0);
    ck_assert_int_eq(r2_conf_line_parse(" #A=b", &p), 1);
    ck_assert_int_eq(r2_conf_line_parse("A", &p), 0);
    ck_assert_int_eq(r2_conf_line_parse("\n", &p), 0);
    ck_assert_int_eq(r2_conf_line_parse("", &p), 0);
    ck_assert_int_eq(r2_conf_line_parse("A=", &p), 1);
    ck_assert_str_eq(p.value, "");
    memset(big, 'v', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    big[1100] = '=';
    ck_assert_int_eq(r2_conf_line_parse(big, &p), 1);
    ck_assert_uint_eq(strlen(p.name), 1023);
    ck_assert_uint_eq(strlen(p.value), 1023);
}
END_TEST

START_TEST(digest_covers_policy_only)
{
    char why[128];
    uint32_t d;

    r2_config_defaults(&cfg);
    d = r2_config_digest(&cfg);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_R2_LOG", "trace", why, sizeof(why)), 0);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_SOCKET_IFNAME", "eth9", why, sizeof(why)), 0);
    ck_assert_uint_eq(r2_config_digest(&cfg), d);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_R2_ACK", "cqe", why, sizeof(why)), 0);
    ck_assert_uint_ne(r2_config_digest(&cfg), d);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_R2_ACK", "e2e", why, sizeof(why)), 0);
    ck_assert_uint_eq(r2_config_digest(&cfg), d);
    ck_assert_int_eq(r2_config_set(&cfg, "NCCL_R2_BACKUP_NICS", "mlx5_1", why, sizeof(why)), 0);
    ck_assert_uint_ne(r2_config_digest(&cfg), d);
}
END_TEST

/* --- job --- */

static const char *job_env(void *arg, const char *name)
{
    for (const char *const *e = arg; *e; e += 2) {
        if (strcmp(e[0], name) == 0) {
            return e[1];
        }
    }
    return NULL;
}

START_TEST(job_of_the_scheduler)
{
    static const char *const slurm[] = {"SLURM_JOB_ID", "81233", "SLURM_STEP_ID", "4", "PBS_JOBID",
                                        "no",           NULL};
    static const char *const lsf[] = {"SLURM_JOB_ID", "", "LSB_JOBID", "7\n\x1b[2J", NULL};
    static const char *const none[] = {"SLURM_STEP_ID", "4", NULL};
    char longest[300];
    const char *flux[] = {"FLUX_JOB_ID", longest, NULL};
    struct r2_job job;

    r2_config_job(&job, job_env, (void *)slurm);
    ck_assert_str_eq(job.scheduler, "slurm");
    ck_assert_str_eq(job.id, "81233");
    ck_assert_str_eq(job.step, "4");
    r2_config_job(&job, job_env, (void *)lsf);
    ck_assert_str_eq(job.scheduler, "lsf");
    ck_assert_str_eq(job.id, "7??[2J"); /* it may reach a terminal */
    ck_assert_str_eq(job.step, "");
    r2_config_job(&job, job_env, (void *)none);
    ck_assert_str_eq(job.scheduler, "");
    ck_assert_str_eq(job.id, "");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    r2_config_job(&job, job_env, (void *)flux);
    ck_assert_uint_eq(strlen(job.id), sizeof(job.id) - 1);
    ck_assert_int_eq(job.rank, -1);
}
END_TEST

/* torchrun without --rdzv-id. */
START_TEST(jobs_without_a_number)
{
    static const struct {
        const char *env[7], *scheduler, *id;
    } row[] = {
        {{"TORCHELASTIC_RUN_ID", "77", "MASTER_ADDR", "n1", "MASTER_PORT", "1"},
         "torchelastic",
         "77"},
        {{"TORCHELASTIC_RUN_ID", "none", "MASTER_ADDR", "n1", "MASTER_PORT", "29500"},
         "torchelastic",
         "n1:29500"},
        {{"TORCHELASTIC_RUN_ID", "none", "MASTER_ADDR", "n\n", "MASTER_PORT", "1"},
         "torchelastic",
         "n?:1"},
        {{"TORCHELASTIC_RUN_ID", "none", "MASTER_ADDR", "n1"}, "", ""},
        {{"TORCHELASTIC_RUN_ID", "none"}, "", ""},
        {{"SLURM_JOB_ID", "none", "MASTER_ADDR", "n1", "MASTER_PORT", "1"}, "slurm", "none"}};
    char longest[300];
    const char *long_name[] = {"TORCHELASTIC_RUN_ID", "none",  "MASTER_ADDR", longest,
                               "MASTER_PORT",         "29501", NULL};
    struct r2_job job;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        r2_config_job(&job, job_env, (void *)row[i].env);
        ck_assert_str_eq(job.scheduler, row[i].scheduler);
        ck_assert_str_eq(job.id, row[i].id);
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    r2_config_job(&job, job_env, (void *)long_name);
    ck_assert_uint_eq(strlen(job.id), sizeof(job.id) - 1);
    ck_assert_str_eq(strchr(job.id, ':'), ":29501");
}
END_TEST

START_TEST(rank_of_the_launcher)
{
    static const struct {
        const char *env[5];
        int rank;
    } row[] = {{{"RANK", "7", "SLURM_PROCID", "3"}, 7},
               {{"RANK", "x7", "SLURM_PROCID", "3"}, 3},
               {{"OMPI_COMM_WORLD_RANK", "0"}, 0},
               {{"PMI_RANK", "12"}, 12},
               {{"RANK", "-1"}, -1},
               {{"RANK", "7 "}, -1},
               {{"RANK", "99999999999999999999"}, -1},
               {{"RANK", ""}, -1},
               {{"HOME", "/"}, -1}};
    struct r2_job job;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        r2_config_job(&job, job_env, (void *)row[i].env);
        ck_assert_msg(job.rank == row[i].rank, "row %zu: %d", i, (int)job.rank);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    SRunner *r;
    int failed, rows;

    r2_config_rows(&rows);
    tcase_add_checked_fixture(t, fresh, remove_files);
    tcase_add_test(t, defaults);
    tcase_add_test(t, table_is_sound);
    tcase_add_loop_test(t, value_table, 0, sizeof(values) / sizeof(values[0]));
    tcase_add_test(t, set_refuses_unknown_and_too_long);
    tcase_add_test(t, a_hold_outlasts_the_transport);
    tcase_add_test(t, environment_is_read_and_logged);
    tcase_add_test(t, bad_value_is_kept_as_error);
    tcase_add_test(t, bad_value_of_nccl_is_no_error);
    tcase_add_test(t, near_misses);
    tcase_add_test(t, distance);
    tcase_add_loop_test(t, near_miss_of_every_row, 0, rows);
    tcase_add_test(t, line_rules);
    tcase_add_test(t, digest_covers_policy_only);
    tcase_add_test(t, job_of_the_scheduler);
    tcase_add_test(t, jobs_without_a_number);
    tcase_add_test(t, rank_of_the_launcher);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
