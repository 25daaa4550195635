/* r2_stat --prom and --npd: what alerts are told apart by, and the line for a monitor; over
 * statistics files made by hand. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "plugin/telemetry/r2_event.h"
#include "tests/unit/prom_rig.h"
#include "tests/unit/suite.h"

/* Process @i has one NIC that is up and one whose port is down. */
static void begin(int i)
{
    struct r2_stat_who who = {
        .command = "test", .host = "h0", .pid = 4711 + i, .nics = 2, .capacity_up = 1};
    struct r2_stat_nic nic[2] = {{.name = "mlx5_0",
                                  .device = "mlx5_0",
                                  .port = 1,
                                  .guid = 1,
                                  .over = 3,
                                  .since = 5000000000},
                                 {.name = "mlx5_1",
                                  .device = "mlx5_1",
                                  .port = 2,
                                  .guid = 2,
                                  .state = R2_STAT_NIC_DOWN,
                                  .moved = 4,
                                  .since = 6000000000}};

    for (unsigned k = 0; k < 2; k++) {
        ck_assert_int_eq(r2_stat_put_nic(proc[i], k, &nic[k]), 1);
    }
    ck_assert_int_eq(r2_stat_put_who(proc[i], &who), 1);
}

/* NIC 1 of process @i, about which @blamed has been said since the fault. */
static void blame(int i, const char *blamed, uint8_t theirs)
{
    struct r2_stat_nic n = {.name = "mlx5_1",
                            .device = "mlx5_1",
                            .port = 2,
                            .guid = 2,
                            .theirs = theirs,
                            .moved = 4,
                            .since = 6000000000,
                            .trouble_at = 7000000000,
                            .blamed_at = 7000000000};

    snprintf(n.trouble, sizeof(n.trouble), "silent");
    snprintf(n.blamed, sizeof(n.blamed), "%s", blamed);
    ck_assert_int_eq(r2_stat_put_nic(proc[i], 1, &n), 1);
}

static void verdict(int i, uint64_t no, const char *code, const char *cause, uint64_t when)
{
    struct r2_stat_event e = {.no = no, .when = when, .kind = R2_EVENT_VERDICT};

    snprintf(e.code, sizeof(e.code), "%s", code);
    snprintf(e.cause, sizeof(e.cause), "%s", cause);
    ck_assert_int_eq(r2_stat_put_event(proc[i], &e), 1);
}

static void belongs(int i, const char *scheduler, const char *job, const char *command, uint32_t up)
{
    struct r2_stat_who w = {.host = "h0", .pid = 4711 + i, .nics = 2, .capacity_up = up};

    snprintf(w.scheduler, sizeof(w.scheduler), "%s", scheduler);
    snprintf(w.job, sizeof(w.job), "%s", job);
    snprintf(w.command, sizeof(w.command), "%s", command);
    w.history = 4;
    ck_assert_int_eq(r2_stat_put_who(proc[i], &w), 1);
}

static void to_stdout(void)
{
    ck_assert_msg(tool("--prom", text) == 0, "%s", errors);
    ck_assert_msg(doc_read(text) == 0, "%s", doc.why);
}

static int has(const char *line)
{
    return strstr(text, line) != NULL;
}

/* What alerts are told apart by: the NIC with code, blame and action; the job; verdicts by code. */
START_TEST(labels_of_alerts)
{
    begin(0);
    begin(1);
    to_stdout();
    ck_assert_msg(has("r2_nic_trouble_info{device=\"mlx5_1\",port=\"2\",state=\"down\",at=\"here\","
                      "code=\"\",blame=\"\",action=\"\"} 1\n"),
                  "%s", text);
    ck_assert(prom_sum("r2_nic_trouble_info") == 1); /* the other one is up */
    ck_assert(value_of("r2_jobs") == 1);             /* one command, no scheduler */
    ck_assert(!has("r2_verdict_timestamp_seconds"));

    blame(0, "R2-L02 mlx5_1 cable or switch port; job continues at 1/2; drain after job", 0);
    blame(1, "R2-L02 mlx5_1 cable or switch port; job continues at 1/2; drain after job", 0);
    belongs(0, "slurm", "81233", "a", 1);
    belongs(1, "slurm", "81234", "b", 2);
    verdict(0, 1, "R2-L02", "no-answer", 7000000000);
    verdict(0, 2, "R2-H01", "posted-nothing", 8000000000);
    verdict(1, 1, "R2-L02", "no-answer", 7500000000);
    to_stdout();
    ck_assert_msg(has("r2_nic_trouble_info{device=\"mlx5_1\",port=\"2\",state=\"avoided\",at="
                      "\"here\",code=\"R2-L02\",blame=\"cable-or-switch-port\",action="
                      "\"drain-after-job\"} 1\n"),
                  "%s", text);
    ck_assert(value_of("r2_jobs") == 2);
    ck_assert(prom_sum("r2_job_info") == 2);
    ck_assert_msg(has("r2_job_capacity_ratio{scheduler=\"slurm\",job_id=\"81233\",user=\""), "%s",
                  text);
    ck_assert(has("\",command=\"a\"} 0.500000\n") && has("\",command=\"b\"} 1.000000\n"));
    ck_assert(has("r2_verdict_timestamp_seconds{code=\"R2-L02\",blame=\"cable-or-switch-port\","
                  "action=\"drain-after-job\"} 7.500000000\n"));
    ck_assert(has("r2_verdict_timestamp_seconds{code=\"R2-H01\",blame=\"process\",action="
                  "\"look-at-process\"} 8.000000000\n"));

    verdict(1, 2, "R2-H01", "goes-on", 9000000000);
    blame(0, "h1:mlx5_1 its port or cable", 1);
    blame(1, "h1:mlx5_1 its port or cable", 1);
    to_stdout();
    ck_assert(!has("code=\"R2-H01\""));
    ck_assert(has("state=\"avoided\",at=\"peer\",code=\"\",blame=\"\",action=\"\"} 1\n"));
}
END_TEST

/* A line and an exit status for monitors. */
START_TEST(one_line_for_monitors)
{
    begin(0);
    begin(1);
    ck_assert_int_eq(tool("--npd", text), 1);
    ck_assert_msg(strncmp(text, "mlx5_1/2 down ", 14) == 0 && strlen(text) <= 81, "%s", text);
    ck_assert_int_eq(tool("--npd --check", text), 2);
    ck_assert_str_eq(text, "");
    for (int i = 0; i < 2; i++) {
        r2_stat_remove(proc[i]);
        proc[i] = NULL;
    }
    ck_assert_int_eq(tool("--npd", text), 0);
    ck_assert_str_eq(text, "no job here uses the plugin\n");
    ck_assert_int_eq(tool("--check", text), 2);
    ck_assert_int_eq(tool("--npd --run-dir /nowhere", text), 2);
    ck_assert_str_eq(text, "the run directory of jobs cannot be read\n");
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, labels_of_alerts);
    tcase_add_test(t, one_line_for_monitors);
}

int main(void)
{
    return suite_run("prom_labels", 120, prom_setup, prom_teardown, tests_add);
}
