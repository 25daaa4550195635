/* Whose fault it is, in statistics and events: what others found out, and verdicts. */
#include "tests/unit/report_rig.h"

#include <limits.h>

#include "plugin/probe/probe_verdict.h"
#include "plugin/probe/health/r2_pair.h"
#include "base/r2_seam.h"
#include "core/r2_notify.h"
#include "probe/diagnosis/r2_gossip.h"

/* --- what libr2coll.so is told --- */

static unsigned told_usable;

static void on_nics(unsigned nics, unsigned usable, unsigned used, unsigned mbps)
{
    (void)nics;
    (void)used;
    (void)mbps;
    told_usable = usable;
}

const struct r2_seam *__wrap_r2_seam_find(void);
const struct r2_seam *__wrap_r2_seam_find(void)
{
    static const struct r2_seam seam = {.nics = on_nics};

    return &seam;
}

/* NICs of @side that a communicator that is made now would use. */
static unsigned usable_next(int side)
{
    look(side);
    told_usable = UINT_MAX;
    r2_report_rows_write(report(side));
    return told_usable;
}

/* --- what others found out --- */

/* A port of the peer's: our NIC is well, and says whose fault it is; the peer's own does not put it
 * on us. */
START_TEST(a_failure_at_the_other_end_is_told_apart)
{
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;
    static char mine[48];

    begin(2, NULL);
    messages(4);
    rig_fault(rig, _i ? "h0:n0 down" : "h1:n0 down");
    messages(4);
    wait_settled(0);
    snprintf(mine, sizeof(mine), "host%d:fab0 port or cable", !_i);
    v = look(_i);
    ck_assert_int_eq(v->nic[0].state, R2_STAT_NIC_UP);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].theirs, 1);
    ck_assert_str_eq(v->nic[0].trouble, mine);
    ck_assert_uint_eq(v->nic[1].theirs, 0);   /* nothing moved */
    ck_assert_uint_eq(v->who.capacity_up, 1); /* what carries now */
    ck_assert_uint_eq(usable_next(_i), 2);
    drain(_i, 1);
    ck_assert_uint_eq(usable_next(_i), 1);
    drain(_i, 0);
    ck_assert_uint_eq(usable_next(_i), 2);
    e = event_find(v, R2_EVENT_NEWS);
    ck_assert_ptr_nonnull(e);
    snprintf(mine, sizeof(mine), "host%d:fab0 port or cable, says host%d", !_i, !_i);
    ck_assert_str_eq(e->text, mine);
    ck_assert_str_eq(e->peer_nic, "fab0");
    ck_assert_str_eq(
        e->nic, "fab0"); /* one of the two ends has a cross pair from its other NIC to that port */
    v = look(!_i);
    ck_assert_uint_eq(v->nic[0].theirs, 0);
    ck_assert_uint_eq(usable_next(!_i), 1);
    ck_assert_ptr_null(event_find(v, R2_EVENT_NEWS)); /* it has found out itself */
    rig_fault(rig, _i ? "h0:n0 up" : "h1:n0 up");
    wait_up(0, 2);
    v = look(_i);
    ck_assert_uint_eq(v->nic[0].moved, 0);
    ck_assert_uint_eq(v->nic[0].theirs, 0);
    begin_message(); /* the next failure is another one, and of this nobody knows */
    rig_fault(rig, "h0:n0 blackhole");
    end_message();
    wait_settled(0);
    v = look(_i);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].theirs, 0);
    ck_assert_uint_eq(usable_next(_i), 1); /* it may be ours */
    end();
}
END_TEST

/* Nobody's port is down, and what others say decides: our end, the way between, theirs. Taken back,
 * it stays until the path does. */
START_TEST(a_word_says_whose_fault_a_silence_is)
{
    static const char *const texts[] = {"its NIC", "host1:fab0 path", "host1:fab0 port or cable"};
    static const enum probe_blame blames[] = {PROBE_BLAME_LOCAL_NIC, PROBE_BLAME_PATH,
                                              PROBE_BLAME_LOCAL_LINK};
    const struct r2_stat_view *v;
    struct probe_subject s;
    struct r2_pair *pair;

    begin(2, NULL);
    messages(4);
    begin_message();
    rig_fault(rig, "h0:n0 blackhole");
    end_message();
    wait_settled(0);
    v = look(0);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].theirs, 0); /* not known */
    pair = r2_pair_find(rig->side[0].inst, comm(0)->peer, 0, 0);
    ck_assert_ptr_nonnull(pair);
    s = _i == 0   ? r2_subject_nic(rig->side[0].inst, 0)
        : _i == 1 ? r2_subject_path(rig->side[0].inst, pair)
                  : r2_subject_remote(pair);
    report_put(0, &s, blames[_i]);
    v = look(0);
    ck_assert_str_eq(v->nic[0].trouble, texts[_i]);
    ck_assert_uint_eq(v->nic[0].theirs, _i == 2);
    report_put(0, &s, PROBE_BLAME_NONE);
    v = look(0);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].theirs, _i == 2);
    ck_assert_str_eq(v->event[v->events - 1].text, "host1:fab0 good again, says host7");
    end();
}
END_TEST

/* A path that stays down for what is known: that the peer's process stands still for a moment later
 * on is not why. */
START_TEST(a_process_that_stands_still_later_is_no_reason)
{
    const struct r2_stat_view *v;
    struct probe_subject nic, process;

    begin(2, NULL);
    messages(4);
    begin_message();
    rig_fault(rig, "h0:n0 blackhole");
    end_message();
    wait_settled(0);
    nic = r2_subject_nic(rig->side[0].inst, 0);
    process = r2_subject_process(rig->side[0].inst, comm(0)->peer);
    for (int i = 0; i < 2; i++) { /* once with the reason, once when it was taken back */
        report_put(0, &nic, i ? PROBE_BLAME_NONE : PROBE_BLAME_LOCAL_LINK);
        look(0);
        report_put(0, &process, PROBE_BLAME_PEER);
        look(0);
        report_put(0, &process, PROBE_BLAME_NONE);
        v = look(0);
        ck_assert_uint_eq(v->nic[0].moved, 1);
        ck_assert_uint_eq(v->nic[0].theirs, 0);
        ck_assert_str_eq(v->nic[0].trouble, "its port or cable");
    }
    end();
}
END_TEST

/* What does not concern a pair of this process is for the job's log: a large job's history would be
 * of nothing else. */
START_TEST(far_away_is_not_kept)
{
    const struct r2_stat_view *v;
    struct probe_subject s = {.a = 0x1234, .pa = 1};

    begin(1, NULL);
    messages(1);
    report_put(0, &s, PROBE_BLAME_LOCAL_LINK);
    v = look(0);
    ck_assert_ptr_nonnull(probe_gossip_find(rig->side[0].inst->diagnosis.gossip, &s));
    ck_assert_int_eq(v->events, 0);
    end();
}
END_TEST

START_TEST(a_drain_at_the_other_end_is_the_peers)
{
    const struct r2_stat_view *v;

    begin(2, NULL);
    messages(4);
    drain(1, 1);
    wait_settled(0);
    v = look(0);
    ck_assert_uint_eq(v->nic[0].moved, 1);
    ck_assert_uint_eq(v->nic[0].theirs, 1);
    ck_assert_str_eq(v->nic[0].trouble, "host1:fab0 drained");
    ck_assert_uint_eq(usable_next(0), 2);
    ck_assert_uint_eq(usable_next(1), 1);
    v = look(0);
    ck_assert_uint_ne(v->nic[0].trouble_at, 0);
    end();
}
END_TEST

static void announce(const struct r2_cause *cause)
{
    struct r2_inst *inst = rig->side[0].inst;

    R2_NOTIFY(inst, on_cause, inst, cause);
}

/* A verdict's cause is a list of what was measured. */
START_TEST(a_cause_is_not_cut_in_the_middle)
{
    static const char how[] =
        "no-answer,pair:silent,our-loop:ok,our-aux:silent,its-loop:ok,its-aux:ok";
    struct r2_cause verdict = {.nic = -1, .how = how};
    char longer[200] = "";
    const struct r2_stat_event *e;

    begin(1, NULL);
    announce(&verdict);
    e = event_find(look(0), R2_EVENT_VERDICT);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(e->cause, how);
    memset(longer, 'x', sizeof(longer) - 1);
    verdict.how = longer;
    announce(&verdict);
    e = &look(0)->event[1];
    ck_assert_uint_eq(strlen(e->cause), sizeof(e->cause) - 1);
    ck_assert_int_eq(e->cause[sizeof(e->cause) - 2], '~');
    end();
}
END_TEST

/* --- verdicts --- */

START_TEST(a_verdict_stands_at_its_nic)
{
    struct r2_cause verdict = {.code = "R2-L02",
                               .blame = "our port or cable",
                               .nic = 1,
                               .peer_host = "h1",
                               .peer_nic = "fab1",
                               .how = "probe",
                               .confidence = 90,
                               .evidence = {"loop ok", "aux timeout"},
                               .n_evidence = 2,
                               .counter = {"link_downed", "symbol_error"},
                               .counter_by = {1, 41},
                               .n_counters = 2,
                               .action = "moved",
                               .recommend = "drain-after-job",
                               .brief = "R2-L02 fab1/1 cable"};
    const struct r2_stat_view *v;
    const struct r2_stat_event *e;
    uint64_t first = 2; /* the event before it is the start */
    char want[160];

    begin(2, NULL);
    verdict.id = 7;
    announce(&verdict);
    v = look(0);
    snprintf(want, sizeof(want), "\"seq\":%llu,", (unsigned long long)first);
    ck_assert_msg(strstr(lines(), want) != NULL, "no %s in %s", want,
                  lines()); /* that is the number of its line */
    ck_assert_str_eq(v->nic[1].blamed, "R2-L02 fab1/1 cable");
    ck_assert_str_eq(v->nic[0].blamed, "");
    e = event_find(v, R2_EVENT_VERDICT);
    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(e->code, "R2-L02");
    ck_assert_str_eq(e->text, "fab1/1 cable"); /* the code has a place of its own */
    ck_assert_ptr_nonnull(strstr(
        lines(),
        "\"evidence\":[\"loop ok\",\"aux timeout\"],\"action\":\"moved\",\"recommend\":\"drain-after-job\""));
    ck_assert_ptr_nonnull(strstr(
        lines(), "\"counters_delta\":{\"link_downed\":1,\"symbol_error\":41},\"confidence\":90"));
    ck_assert_ptr_null(strstr(lines(), "revises"));
    verdict.revises = "R2-F03";
    verdict.revises_id = 7;
    verdict.id = 0;
    announce(&verdict);
    look(0);
    snprintf(
        want, sizeof(want),
        "\"code\":\"R2-L02\",\"blame\":\"our port or cable\",\"revises\":{\"code\":\"R2-F03\",\"seq\":%llu}",
        (unsigned long long)first);
    ck_assert_msg(strstr(lines(), want) != NULL, "no %s in %s", want, lines());
    verdict.revises = NULL;
    verdict.nic = -1; /* none of ours */
    verdict.n_evidence = 100;
    announce(&verdict);
    look(0);
    ck_assert_ptr_null(strstr(strstr(lines(), "\"seq\":4,"), "counters_delta")); /* of whose NIC? */
    verdict = (struct r2_cause){.nic = -1};
    announce(&verdict);
    v = look(0);
    ck_assert_uint_eq(v->who.verdicts, 4);
    end();
}
END_TEST

/* Seconds of the day of @key in the last line that has it; -1: none. */
static double time_of(const char *key)
{
    char want[32];
    const char *at = NULL, *p = lines();
    int h, m;
    double s;

    snprintf(want, sizeof(want), "\"%s\":\"", key);
    while ((p = strstr(p, want)) != NULL) {
        at = p += strlen(want);
    }
    return at && sscanf(at, "%*10sT%d:%d:%lfZ", &h, &m, &s) == 3 ? 3600 * h + 60 * m + s : -1;
}

/* A verdict happens when it is found, not when what it is about did. */
START_TEST(a_verdict_has_two_times)
{
    struct r2_cause verdict = {.code = "R2-L02", .nic = 1, .brief = "R2-L02 fab1/1 cable"};
    const struct r2_stat_event *e;
    uint64_t now;
    double ts, since;

    begin(2, NULL);
    rig_run(rig, 3 * RIG_S);
    verdict.since_ns = r2_now(rig->side[0].inst) - 1500 * RIG_MS;
    now = r2_now(rig->side[0].inst);
    announce(&verdict);
    e = event_find(look(0), R2_EVENT_VERDICT);
    ck_assert_ptr_nonnull(e);
    ck_assert_uint_eq(e->mono, now);
    ts = time_of("ts");
    since = time_of("since");
    ck_assert_msg(ts >= 0 && since >= 0, "ts %f, since %f in %s", ts, since, lines());
    ts += ts < since ? 86400 : 0; /* midnight */
    ck_assert_msg(ts - since > 1.499 && ts - since < 1.6, "ts %f, since %f", ts, since);
    end();
}
END_TEST

/* Work over the last path stands still and goes on over the same path: where a verdict has said
 * why, that was no stall without a fault. */
START_TEST(a_stall_that_a_verdict_is_about)
{
    static const char *const watchdog[] = {"NCCL_R2_WATCHDOG=off", "NCCL_R2_WATCHDOG=on"};
    static const char *const said[] = {", and went on without a fault", ", and went on; why: R2-"};
    const struct r2_stat_event *e;
    const struct r2_stat_view *v;

    begin(1, (const char *[]){"NCCL_IB_TIMEOUT=20", watchdog[_i], NULL});
    messages(4);
    rig_run(rig, RIG_S);
    begin_message();
    rig_fault(rig, "h0:n0 blackhole");
    rig_run(rig, 4 * RIG_S);
    rig_fault(rig, "h0:n0 up");
    end_message();
    v = look(0);
    ck_assert_uint_eq(v->who.faults, 0);
    e = event_find(v, R2_EVENT_STALL);
    ck_assert_ptr_nonnull(e);
    ck_assert_msg(strstr(e->text, said[_i]) != NULL, "%s", e->text);
    ck_assert_int_eq(event_find(v, R2_EVENT_VERDICT) != NULL, _i);
    end();
}
END_TEST

#define S 1000000000ull

START_TEST(a_stall_has_the_code_of_its_own_time)
{
    static const struct {
        const char *blamed, *code;
        uint64_t at;
    } rows[] = {
        {"R2-L02 fab1/1 cable", "R2-L02", 100 * S}, /* since the work stood still */
        {"R2-L02 fab1/1 cable", "R2-L02", 99 * S},  /* the other end's stood still before */
        {"R2-L02 fab1/1 cable", "", 99 * S - 1},    /* another failure's */
        {"R2-L02 fab1/1 cable", "R2-L02", 105 * S}, /* as it ends */
        {"R2-L02 fab1/1 cable", "", 105 * S + 1},   /* a later one's */
        {"R2-L02", "R2-L02", 101 * S},
        {"our port or cable", "", 101 * S}, /* no code */
        {"R2-L0234567 fab1/1", "", 101 * S},
        {"", "", 101 * S},
    };
    char code[R2_STAT_STALL_CODE];

    ck_assert_int_eq(r2_stat_stall_code(rows[_i].blamed, rows[_i].at, 5 * S, 105 * S, code),
                     rows[_i].code[0] != '\0');
    ck_assert_str_eq(code, rows[_i].code);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_verdict_has_two_times);
    tcase_add_loop_test(t, a_stall_that_a_verdict_is_about, 0, 2);
    tcase_add_loop_test(t, a_stall_has_the_code_of_its_own_time, 0, 9);
    tcase_add_loop_test(t, a_failure_at_the_other_end_is_told_apart, 0, 2);
    tcase_add_loop_test(t, a_word_says_whose_fault_a_silence_is, 0, 3);
    tcase_add_test(t, a_process_that_stands_still_later_is_no_reason);
    tcase_add_test(t, far_away_is_not_kept);
    tcase_add_test(t, a_drain_at_the_other_end_is_the_peers);
    tcase_add_test(t, a_cause_is_not_cut_in_the_middle);
    tcase_add_test(t, a_verdict_stands_at_its_nic);
}

int main(void)
{
    return suite_run("report: why", 60, NULL, NULL, add);
}
