/* Cross pairs: the auxiliary points of two hosts (docs/diagnosis.md). Where rails reach each
 * other the end that broke is named; where they do not, nothing is asked after the first question,
 * and no time-out is counted. */
#include "tests/unit/watch_rig.h"

#include <stdlib.h>

#include "plugin/probe/health/r2_cross.h"
#include "plugin/base/r2_log.h"
#include "plugin/probe/health/r2_watch.h"

#define CABLES 18 /* two ends, three NICs, three ways to be silent */

static int nics;

/* Time goes on, in steps that are long for who sends and short for who asks. */
static void idle(uint64_t ns)
{
    for (uint64_t end = rig_now(rig) + ns; rig_now(rig) < end;) {
        rig_turn(rig, RIG_MS);
    }
}

static void join(int crossrail)
{
    rig = rig_create(nics, crossrail, (const char *[]){QUIET_RC, "NCCL_R2_T_RETURN=50", NULL});
    connect_ends();
    wait_probes();
    for (int k = 0; k < 3; k++) {
        messages(250, BIG);
        rig_run(rig, 20 * RIG_MS);
    }
    idle(RIG_S);
}

/* Cross pairs of @side; @good: of these, those that answer. */
static int crosses(int side, int *good)
{
    int n = 0;

    *good = 0;
    for (struct r2_pair *p = rig->side[side].inst->index.pairs; p; p = p->next) {
        if (!r2_cross_carries(p)) {
            ck_assert(p->nic != p->peer_nic);
            ck_assert_ptr_null(p->inband.qp);
            n++;
            *good += r2_pair_ready(p) && p->probe.answers > 0;
        }
    }
    return n;
}

static int all_good(struct rig *r)
{
    int a, b;

    crosses(0, &a);
    crosses(1, &b);
    return a == nics && b == nics;
}

static const char *const fault[] = {"blackhole", "blackhole-tx", "blackhole-rx"};

/* One cable goes silent: at each end, each NIC, each way. Both ends see the pair silent, and one
 * other port tells which. */
START_TEST(the_end_of_a_silent_cable_is_named)
{
    char text[64], want[64];
    int host = _i & 1, nic;

    nics = (const int[]){2, 3, 4}[_i / CABLES];
    nic = _i / 2 % 3 % nics;
    join(1);
    ck_assert(all_good(rig));
    rig->last_warn[0][0] = rig->last_warn[1][0] = '\0';
    snprintf(text, sizeof(text), "h%d:n%d %s", host, nic, fault[_i % CABLES / 6]);
    snprintf(want, sizeof(want), "R2-L02 host=host%d nic=fab%d ", host, nic);
    fire(text);
    for (int k = 0; k < 3; k++) { /* those that are not used have no work to lose: all are asked */
        r2_watch_probe(pair_of(0, nic));
        recv_post(0, BIG);
        rig_run(rig, RIG_MS);
        send_post(0, BIG);
        finish(1, BIG, 2 * RIG_S);
        idle(3 * RIG_S);
    }
    r2_log_flush();
    ck_assert_msg(nic != 0 || strstr(rig->last_warn[0], want) || strstr(rig->last_warn[1], want),
                  "%s / %s", rig->last_warn[0], rig->last_warn[1]);
    for (int s = 0; s < 2; s++) {
        ck_assert_msg(rig->last_warn[s][0] == '\0' || strstr(rig->last_warn[s], "R2-") == NULL ||
                          strstr(rig->last_warn[s], want),
                      "%s", rig->last_warn[s]);
    }
    fire("*:* up");
    for (int s = 0; s < 100 && !all_good(rig); s++) {
        idle(RIG_S);
    }
    ck_assert(all_good(rig)); /* what failed is asked again when the NIC is back */
    messages(4, BIG);
    stop();
}
END_TEST

/* Rails that do not reach each other: one question at set-up, its queue pair stopped before RC's
 * time-out; nothing afterwards, and no evidence of it. */
START_TEST(rails_apart_cost_one_question)
{
    struct fab_counters sum;
    unsigned said;
    int good;

    nics = 3;
    join(0);
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(crosses(s, &good), 1);
        ck_assert_int_eq(good, 0);
    }
    said = rig_count(rig, 0, FO_MSG_PROBE) + rig_count(rig, 1, FO_MSG_PROBE);
    idle(60 * RIG_S);
    messages(4, BIG);
    rig_fault(rig, "h0:n1 down");
    idle(RIG_S);
    rig_fault(rig, "h0:n1 up");
    idle(10 * RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(crosses(s, &good), 1);
        ck_assert_int_eq(good, 0);
    }
    fab_inproc_totals(rig->f, &sum);
    ck_assert_uint_eq(sum.timeouts, 0);
    ck_assert_uint_le(rig_count(rig, 0, FO_MSG_PROBE) + rig_count(rig, 1, FO_MSG_PROBE) - said,
                      24); /* of the NIC that returned */
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    fire("h1:n0 blackhole");
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 2 * RIG_S);
    idle(3 * RIG_S);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], "R2-F03") || strstr(rig->last_warn[1], "R2-F03"),
                  "%s / %s", rig->last_warn[0], rig->last_warn[1]);
    stop();
}
END_TEST

#define RAILS 8

static unsigned no_probe, left_out;

static void note_no_probe(enum r2_log_level level, const char *file, int line, const char *msg)
{
    no_probe += strstr(msg, " has no probe: ") != NULL;
    if (strstr(msg, " more NIC pairs have no probe")) {
        left_out += (unsigned)strtoul(strstr(msg, " : ") + 3, NULL, 10);
    }
}

/* Each peer of a job has such a pair where rails do not reach each other: the first are named, the
 * others counted. */
START_TEST(pairs_without_a_probe_are_counted)
{
    unsigned asked = 0;

    nics = RAILS;
    join(0);
    r2_log_flush();
    no_probe = left_out = 0;
    r2_log_sink_set(note_no_probe);
    for (int i = 0; i < RAILS; i++) {
        for (int j = 0; j < RAILS; j++) {
            struct r2_comm *c = rig->side[0].comm;

            if (i != j && r2_pair_find(c->inst, c->peer, i, j) == NULL) {
                rig_enter(&rig->side[0]);
                r2_pair_meet(c->inst, c->peer, i, j, 1);
                asked++;
            }
        }
    }
    rig_run(rig, RIG_S);
    r2_log_many_over();
    r2_log_flush();
    ck_assert_uint_gt(asked, 2 * R2_LOG_FIRST);
    ck_assert_uint_le(no_probe, R2_LOG_FIRST);
    ck_assert_uint_ge(no_probe + left_out, asked);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cross pairs");
    TCase *t = tcase_create("cross");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, the_end_of_a_silent_cable_is_named, 0, 3 * CABLES);
    tcase_add_test(t, rails_apart_cost_one_question);
    tcase_add_test(t, pairs_without_a_probe_are_counted);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
