/* Events that ask for a checkpoint: whole instances over the fabric, the last NIC of a process, and
 * who holds a job up. */
#include "tests/unit/report_rig.h"

static unsigned checkpoints(const char *how)
{
    char text[64];
    unsigned n = 0;

    snprintf(text, sizeof(text), "\"kind\":\"checkpoint\"");
    for (const char *at = lines(); (at = strstr(at, text)) != NULL; at++) {
        n += strncmp(strstr(at, "\"how\":") + 6, how, strlen(how)) == 0;
    }
    return n;
}

/* One NIC is left of several, by a failure or a drain: once, and not again when one comes and goes.
 */
START_TEST(the_last_nic_asks_for_a_checkpoint)
{
    const struct r2_stat_event *e;

    begin(3, NULL);
    messages(4);
    rig_fault(rig, "*:n0 down");
    messages(4);
    look(0);
    ck_assert_uint_eq(checkpoints("\"last-nic\""), 0); /* two are */
    rig_fault(rig, "*:n2 down");
    messages(4);
    e = event_find(look(0), R2_EVENT_CHECKPOINT);
    ck_assert_ptr_nonnull(e);
    ck_assert_int_eq(e->severity, R2_EVENT_WARNING);
    ck_assert_int_eq(e->capacity_up, 1);
    ck_assert_str_eq(e->text, "1 of 3 NICs left: a checkpoint is due");
    look(1);
    ck_assert_uint_eq(checkpoints("\"last-nic\""), 2); /* each process */
    rig_fault(rig, "*:n2 up");
    rig_run(rig, 3 * RIG_S);
    ck_assert_uint_eq(look(0)->who.capacity_up, 2);
    rig_fault(rig, "*:n2 down");
    messages(4);
    look(0);
    ck_assert_uint_eq(checkpoints("\"last-nic\""), 2); /* too soon */
    end();
}
END_TEST

/* A host with one NIC has always its last one. */
START_TEST(an_only_nic_asks_for_none)
{
    begin(1, NULL);
    messages(4);
    rig_fault(rig, "*:n0 down");
    rig_run(rig, RIG_S);
    look(0);
    ck_assert_uint_eq(checkpoints("\"last-nic\""), 0);
    end();
}
END_TEST

/* The last resort is an RDMA NIC of another kind: once, until one of the connection's own is back.
 */
START_TEST(a_nic_of_another_kind_asks_for_a_checkpoint)
{
    create(3, (const char *[]){"NCCL_R2_LAST_RESORT=auto", NULL});
    for (int i = 0; i < 2; i++) {
        rig->side[i].inst->nics.nic[2].speed_mbps = 10000;
    }
    report_begin();
    messages(4);
    rig_fault(rig, "*:n0 down");
    messages(4);
    look(0);
    ck_assert_uint_eq(checkpoints("\"last-resort\""), 0); /* its like carries */
    rig_fault(rig, "*:n1 down");
    messages(4);
    look(0);
    ck_assert_uint_eq(checkpoints("\"last-resort\""), 2); /* each process */
    ck_assert_ptr_nonnull(
        strstr(lines(), "\"text\":\"1 of 1 connections go over fab2, no NIC of their own kind is "
                        "left: a checkpoint is due\""));
    ck_assert_msg(strstr(rig->last_warn[0],
                         "last resort: no NIC of their own kind is left to 1 of 1 connections: "
                         "they go on over fab2 (10000 Mb/s)") != NULL,
                  "%s", rig->last_warn[0]);
    rig_fault(rig, "*:n1 up");
    rig_run(rig, 3 * RIG_S);
    look(0);
    ck_assert_uint_eq(report(0)->nic[2].aside, 0);
    ck_assert_uint_eq(checkpoints("\"last-resort\""), 2);
    end();
}
END_TEST

/* What cannot be run is said at the start, and the event comes all the same: also where nothing
 * else of a report is wanted. */
START_TEST(a_program_that_cannot_be_run)
{
    static const char *const option[] = {"NCCL_R2_ON_EVENT=relative", "NCCL_R2_ON_EVENT=/no/where"};
    static const char *const why[] = {"NCCL_R2_ON_EVENT=relative is not an absolute path",
                                      "NCCL_R2_ON_EVENT=/no/where: No such file or directory"};

    begin(2, (const char *[]){option[_i], "NCCL_R2_STATS=off", NULL});
    messages(4);
    ck_assert_msg(strstr(rig->last_warn[0], why[_i]) != NULL, "%s", rig->last_warn[0]);
    rig_fault(rig, "*:n0 down");
    messages(4);
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(checkpoints("\"last-nic\""), 2);
    end();
}
END_TEST

static void held_up(int severity, const char *how)
{
    struct r2_cause cause = {.code = "R2-H01",
                             .blame = "process",
                             .severity = severity,
                             .nic = -1,
                             .peer_host = "h7",
                             .how = how,
                             .brief = "R2-H01 h7"};

    rig_enter(&rig->side[0]);
    R2_NOTIFY(rig->side[0].inst, on_cause, rig->side[0].inst, &cause);
}

START_TEST(who_is_held_up_asks_for_a_checkpoint)
{
    begin(1, NULL);
    messages(4);
    held_up(0, "posted-nothing"); /* said before */
    look(0);
    ck_assert_uint_eq(checkpoints("\"hang\""), 0);
    held_up(1, "posted-nothing");
    held_up(1, "process-silent");
    look(0);
    ck_assert_uint_eq(checkpoints("\"hang\""), 1);
    ck_assert_ptr_nonnull(strstr(lines(), "\"text\":\"h7 holds the job up: a checkpoint is due\""));
    held_up(0, "goes-on");
    held_up(1, "posted-nothing");
    look(0);
    ck_assert_uint_eq(checkpoints("\"hang\""), 1); /* within ten minutes */
    held_up(0, "goes-on");
    rig_run(rig, 601 * RIG_S);
    held_up(1, "posted-nothing");
    look(0);
    ck_assert_uint_eq(checkpoints("\"hang\""), 2);
    end();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_last_nic_asks_for_a_checkpoint);
    tcase_add_test(t, an_only_nic_asks_for_none);
    tcase_add_test(t, a_nic_of_another_kind_asks_for_a_checkpoint);
    tcase_add_loop_test(t, a_program_that_cannot_be_run, 0, 2);
    tcase_add_test(t, who_is_held_up_asks_for_a_checkpoint);
}

int main(void)
{
    return suite_run("report_checkpoint", 60, NULL, NULL, add);
}
