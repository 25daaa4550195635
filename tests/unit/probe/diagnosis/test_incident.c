/*
 * One incident, one verdict: what breaks again on a NIC pair is said, too, unless it is a
 * consequence, and a flapping link does not flood; a verdict that names suspects only waits for a
 * better one, and one that comes later says which it revises. The rule, and two processes with one
 * connection.
 */
#include "plugin/probe/probe_incident.h"
#include "plugin/probe/diagnosis/r2_locate.h"
#include "plugin/base/r2_log.h"
#include "plugin/base/r2_time.h"
#include "probe/probe_verdict.h"
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"
#include "probe/diagnosis/r2_gossip.h"
#include "plugin/probe/diagnosis/r2_verdict.h"
#include "plugin/core/r2_notify.h"

#define MSEC R2_NS_PER_MS
#define FAST QUIET_RC, "NCCL_R2_LOOK=60000", "NCCL_R2_T_RETURN=20"

/* --- the rule --- */

/* clang-format off */
static const struct {
    struct probe_again a;
    enum probe_incident is;
    const char *what;
} table[] = {
    {{.open = 1, .new_incarnation = 1, .peer_anew = 1, .since_opened = 5000 * MSEC}, PROBE_SAME, "not decided yet: it joins"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 1, .since_opened = 300 * MSEC, .since_decided = 10 * MSEC}, PROBE_SAME, "another connection's incarnation over the same cable"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 0, .since_opened = 300 * MSEC, .since_decided = 10 * MSEC}, PROBE_SAME, "the same, as its driver sees it"},
    {{.found = PROBE_BLAME_UNKNOWN, .same_cause = 0, .since_opened = 900 * MSEC, .since_decided = 999 * MSEC}, PROBE_SAME, "the same, undecided"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 1, .since_opened = 1300 * MSEC, .since_decided = 1000 * MSEC}, PROBE_ANEW, "too late for a consequence"},
    {{.found = PROBE_BLAME_NONE, .same_cause = 1, .since_opened = 20 * MSEC, .since_decided = 10 * MSEC}, PROBE_SAME, "congestion breaks several queue pairs"},
    {{.found = PROBE_BLAME_NONE, .same_cause = 0, .since_opened = 20 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "a queue pair broke alone, then a cable"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 1, .new_incarnation = 1, .since_opened = 300 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "it came back, and broke again"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 1, .since_opened = 99 * MSEC, .since_decided = 10 * MSEC}, PROBE_MUTED, "the second time, at once"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 1, .since_opened = 100 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "the second time"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 3, .since_opened = 399 * MSEC, .since_decided = 10 * MSEC}, PROBE_MUTED, "it flaps"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 3, .since_opened = 400 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "it flaps, more slowly"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 4000000000u, .since_opened = 999 * MSEC, .since_decided = 10 * MSEC}, PROBE_MUTED, "it has flapped for long"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .new_incarnation = 1, .repeats = 4000000000u, .since_opened = 1000 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "once a second"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 1, .repeats = 9, .since_opened = 999 * MSEC, .since_decided = 10 * MSEC}, PROBE_SAME, "flaps or not, a consequence"},
    {{.found = PROBE_BLAME_LOCAL_LINK, .same_cause = 1, .peer_anew = 1, .repeats = 9, .since_opened = 20 * MSEC, .since_decided = 10 * MSEC}, PROBE_ANEW, "the peer has decided"},
};
/* clang-format on */

START_TEST(rule)
{
    ck_assert_msg(probe_incident_judge(&table[_i].a) == table[_i].is, "%s", table[_i].what);
}
END_TEST

/* An incarnation that ends every millisecond, of which each is a new one: a case at most every
 * second in the end, and never none. */
START_TEST(flaps_do_not_flood)
{
    uint64_t opened = 0, last = 0;
    unsigned cases = 0, repeats = 0;

    for (uint64_t now = 1; now <= 60000; now++) {
        struct probe_again a = {.found = PROBE_BLAME_LOCAL_LINK,
                                .new_incarnation = 1,
                                .repeats = repeats,
                                .since_opened = (now - opened) * MSEC};

        if (probe_incident_judge(&a) == PROBE_ANEW) {
            ck_assert_uint_le(now - last, 1000);
            last = opened = now;
            repeats++;
            cases++;
        }
    }
    ck_assert_uint_ge(cases, 60);
    ck_assert_uint_le(cases, 65);
}
END_TEST

/* --- between two processes --- */

static struct r2_case *case_at(int side)
{
    struct r2_inst *inst = rig->side[side].inst;

    for (int i = 0; i < R2_CASES; i++) {
        if (inst->diagnosis.cases[i].state != R2_CASE_FREE && inst->diagnosis.cases[i].nic == 0 &&
            inst->diagnosis.cases[i].peer_nic == 0) {
            return &inst->diagnosis.cases[i];
        }
    }
    return NULL;
}

static int decided(struct rig *r)
{
    return case_at(0) && case_at(0)->state == R2_CASE_DECIDED;
}

static int held(struct rig *r)
{
    return case_at(0) && case_at(0)->state == R2_CASE_HELD;
}

static int returned(struct rig *r)
{
    return ib_conn_up(&r->side[0].comm->conn, 0) && ib_conn_up(&r->side[1].comm->conn, 0);
}

static int blames(struct rig *r)
{
    return strstr(r->last_warn[0], "R2-") || strstr(r->last_warn[1], "R2-");
}

static void forget_warnings(void)
{
    rig->last_warn[0][0] = rig->last_warn[1][0] = '\0';
}

/* It goes silent under a message. */
static void breaks(const char *fault)
{
    fire(fault);
    recv_post(0, BIG);
    send_post(0, BIG);
    finish(1, BIG, 10 * RIG_S);
}

/* A queue pair breaks alone, or the cable, and the path is back; then, within a second after the
 * verdict, the cable: that is said. */
START_TEST(another_incident_within_a_second)
{
    uint64_t first, id;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    breaks(_i ? "h0:n0 blackhole" : "h0:n0 qp-error");
    ck_assert(rig_until(rig, decided, 5 * RIG_S));
    ck_assert_int_eq(case_at(0)->found, _i ? PROBE_BLAME_UNKNOWN : PROBE_BLAME_NONE);
    if (_i) {
        fire("h0:n0 restore");
    }
    first = rig_now(rig);
    id = case_at(0)->id;
    ck_assert(rig_until(rig, returned, 900 * RIG_MS));
    messages(2, BIG);
    forget_warnings();
    breaks("h0:n0 blackhole");
    ck_assert(case_at(0) != NULL);
    ck_assert_uint_gt(case_at(0)->id, id);
    ck_assert_msg(case_at(0)->opened < rig_now(rig) && rig_now(rig) - first < RIG_S,
                  "%llu ms: not within a second of the first",
                  (unsigned long long)((rig_now(rig) - first) / RIG_MS));
    ck_assert_msg(rig_until(rig, blames, 5 * RIG_S), "the second incident is not said");
    ck_assert_uint_eq(case_at(0)->before.repeats, 1);
    stop();
}
END_TEST

/* What is said of one failure is said once, whoever of the other incarnations over the pair ends
 * later. */
START_TEST(consequences_have_no_case)
{
    uint32_t id;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    breaks("h0:n0 blackhole");
    ck_assert(rig_until(rig, decided, 5 * RIG_S));
    id = case_at(0)->id;
    rig->side[0].comm->fo.path[0].why.fault = IB_FAULT_WC;
    r2_locate_lost(rig->side[0].comm, 0);
    ck_assert_uint_eq(case_at(0)->id, id);
    ck_assert_int_eq(case_at(0)->state, R2_CASE_DECIDED);
    ck_assert_uint_eq(case_at(0)->before.muted_next, 0);
    stop();
}
END_TEST

/* Undecided, and while that is held the port itself tells: one line, and it names the part. */
START_TEST(a_held_verdict_is_not_said_when_a_better_one_comes)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    fire("h0:n0 blackhole");
    recv_post(0, BIG);
    send_post(0, BIG);
    ck_assert(rig_until(rig, held, 10 * RIG_S));
    ck_assert(!blames(rig));
    fire("h0:n0 down");
    ck_assert(rig_until(rig, decided, 2 * RIG_S));
    ck_assert_msg(strstr(rig->last_warn[0], "R2-L01 host=host0 nic=fab0") != NULL, "%s",
                  rig->last_warn[0]);
    ck_assert_ptr_null(strstr(rig->last_warn[0], "revises="));
    ck_assert_int_eq(rig->side[0].inst->diagnosis.verdicts->undecided.reported, 0);
    ck_assert_ptr_null(strstr(rig->last_warn[1], "R2-F03"));
    finish(1, BIG, 10 * RIG_S);
    stop();
}
END_TEST

/* The better one comes later: it says which line it revises, once; not after long, nor when the
 * pair has been good again. */
START_TEST(a_verdict_says_which_it_revises)
{
    enum { SOON, LATE, HEALED } how = (unsigned)_i;
    char revises[64], code[64];
    const char *said;
    int s;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    breaks("h0:n0 blackhole");
    ck_assert(rig_until(rig, blames, 10 * RIG_S));
    s = strstr(rig->last_warn[1], "R2-") != NULL; /* one of the two ends says it */
    said = rig->last_warn[s];
    ck_assert_msg(strstr(said, "R2-F03 ") && strstr(said, " since="), "%s", said);
    snprintf(revises, sizeof(revises), " revises=R2-F03@%.13s ",
             strstr(said, " since=") + strlen(" since="));
    snprintf(code, sizeof(code), "R2-L01 host=host%d nic=fab0", s);
    if (how == HEALED) {
        rig->side[!s].inst->diagnosis.verdicts->undecided = (struct r2_undecided){
            .reported = 1, .peer = rig->side[!s].comm->peer}; /* as if it had said it, too */
        fire("h0:n0 restore");
        ck_assert(rig_until(rig, returned, 5 * RIG_S));
        ck_assert_int_eq(rig->side[!s].inst->diagnosis.verdicts->undecided.reported, 0);
    } else {
        rig_run(rig, how == LATE ? 11 * RIG_S : 3 * RIG_S);
    }
    forget_warnings();
    fire(s ? "h1:n0 down" : "h0:n0 down");
    ck_assert(rig_until(rig, blames, 2 * RIG_S));
    ck_assert_msg(strstr(said, code) != NULL, "%s", said);
    ck_assert_msg((strstr(said, revises) != NULL) == (how == SOON), "'%s' in '%s'", revises, said);
    ck_assert_int_eq(rig->side[s].inst->diagnosis.verdicts->undecided.reported,
                     how == LATE); /* after so long it is another fault */
    stop();
}
END_TEST

/* A NIC pair's return says nothing of what is undecided about another. */
START_TEST(another_pair_is_back)
{
    struct r2_undecided *u;
    struct r2_inst *inst;
    struct r2_peer *peer;

    start(2, (const char *[]){FAST, NULL});
    inst = rig->side[0].inst;
    peer = rig->side[0].comm->peer;
    u = &inst->diagnosis.verdicts->undecided;
    rig_enter(&rig->side[0]);
    *u = (struct r2_undecided){.reported = 1, .nic = 0, .peer_nic = 1, .peer = peer};
    r2_locate_back(inst, peer, 1, 1);
    r2_locate_back(inst, peer, 0, 0);
    ck_assert_int_eq(u->reported, 1);
    r2_locate_back(inst, peer, 0, 1);
    ck_assert_int_eq(u->reported, 0);
    stop();
}
END_TEST

/* A port that is down, or a device that failed, is blamed at once; a driver's errors blame nobody.
 */
START_TEST(a_driver_with_errors_is_not_blamed)
{
    static const struct {
        enum r2_nic_change change;
        int blamed;
    } row[] = {{R2_NIC_FAILS, 0},
               {R2_NIC_REMOVED, 0},
               {R2_NIC_UP, 0},
               {R2_NIC_DOWN, 1},
               {R2_NIC_FATAL, 1}};
    struct r2_inst *inst;

    start(2, (const char *[]){FAST, NULL});
    inst = rig->side[0].inst;
    rig_enter(&rig->side[0]);
    r2_locate_subscriber.on_nic(inst, 0, row[_i].change);
    ck_assert_int_eq(inst->diagnosis.verdicts->found.at != 0, row[_i].blamed);
    stop();
}
END_TEST

/* As long as a case is open the watchdog comes again soon, not with its next tick. */
START_TEST(an_open_case_is_looked_at_soon)
{
    struct r2_inst *inst;

    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    inst = rig->side[0].inst;
    rig_enter(&rig->side[0]);
    inst->watch.probing = 0;
    r2_locate_subscriber.on_watch(inst, r2_now(inst), 0);
    ck_assert_int_eq(inst->watch.probing, 0);
    breaks("h0:n0 blackhole");
    ck_assert(rig_until(rig, held, 5 * RIG_S));
    rig_enter(&rig->side[0]);
    inst->watch.probing = 0;
    r2_locate_subscriber.on_watch(inst, r2_now(inst), 0);
    ck_assert_int_eq(inst->watch.probing, 1);
    stop();
}
END_TEST

static int say_nothing(struct rig *r, int from, int type, union fo_body *body)
{
    return from == 0;
}

/*
 * RC gives up on the probe before it gives up on the data, and the peer's process says nothing: its
 * host may stand still. The pair waits for a new queue pair then, and cannot be asked; that it was,
 * and has not answered, counts.
 */
START_TEST(a_question_that_rc_gave_up_is_not_answered)
{
    start(2, (const char *[]){"NCCL_IB_TIMEOUT=17", "NCCL_IB_RETRY_CNT=3", "NCCL_R2_T_PACKET=100",
                              "NCCL_R2_LOOK=60000", NULL});
    wait_probes();
    messages(2, BIG);
    recv_post(0, BIG);
    rig_run(rig, 5 * RIG_MS);
    rig->filter = say_nothing;
    fire("h1:n0 blackhole");
    fire("h1:n1 blackhole");
    send_post(0, BIG);
    ck_assert(rig_until(rig, decided, 60 * RIG_S));
    ck_assert_int_eq(pair_of(0, 0)->probe.unanswered, 1);
    ck_assert_int_eq(r2_pair_is_probing(pair_of(0, 0)), 0);
    ck_assert_int_eq(case_at(0)->facts.peer, PROBE_TIMEOUT);
    ck_assert_int_eq(case_at(0)->facts.direct, PROBE_TIMEOUT);
    /* the other paths have not been asked: nothing says that the job goes on */
    ck_assert_msg(strstr(rig->last_warn[0], "R2-F03 ") && !strstr(rig->last_warn[0], " fate="),
                  "%s", rig->last_warn[0]);
    rig->filter = NULL;
    fire("h1:n0 restore");
    fire("h1:n1 restore");
    finish(1, BIG, 100 * RIG_S);
    rig_run(rig, 5 * RIG_S);
    ck_assert_int_eq(pair_of(0, 0)->probe.unanswered, 0);
    stop();
}
END_TEST

/* --- what is no verdict --- */

/* The channel goes: said when it does not come back for 10 s, at both ends, once; data goes on.
 * Then anew. */
START_TEST(a_channel_that_does_not_come_back)
{
    start(2, (const char *[]){FAST, NULL});
    wait_probes();
    messages(2, BIG);
    rig_oob_cut(rig, 1);
    rig_run(rig, 9 * RIG_S);
    rig_oob_cut(rig, 0);
    rig_run(rig, 5 * RIG_S);
    ck_assert_msg(!blames(rig), "it came back: '%s', '%s'", rig->last_warn[0], rig->last_warn[1]);
    for (int again = 0; again < 2; again++) {
        rig_oob_cut(rig, 1);
        rig_run(rig, 9 * RIG_S);
        ck_assert(!blames(rig));
        rig_run(rig, 2 * RIG_S);
        ck_assert_msg(strstr(rig->last_warn[0], "R2-O01 host=host1 nic=- blame=oob-channel ") !=
                          NULL,
                      "%s", rig->last_warn[0]);
        ck_assert_msg(strstr(rig->last_warn[1], "R2-O01 host=host0 nic=- blame=oob-channel ") !=
                          NULL,
                      "%s", rig->last_warn[1]);
        ck_assert_ptr_nonnull(
            strstr(rig->last_warn[0], " how=channel:lost fate=continues do=check-oob-network"));
        forget_warnings();
        rig_run(rig, 30 * RIG_S);
        ck_assert(!blames(rig));
        messages(2, BIG);
        rig_oob_cut(rig, 0);
        rig_run(rig, 5 * RIG_S);
    }
    nothing_moved();
    stop();
}
END_TEST

/* Its process was blamed when the time was over. It speaks again, over NICs, and the channel is
 * still lost. */
START_TEST(a_channel_that_is_lost_still)
{
    struct r2_inst *inst;

    start(2, (const char *[]){FAST, "NCCL_R2_INBAND=1", NULL});
    wait_probes();
    messages(2, BIG);
    rig_oob_cut(rig, 1);
    rig_run(rig, RIG_S);
    inst = process_stop(1);
    rig_enter(&rig->side[0]);
    r2_locate_peer(rig->side[0].inst, rig->side[0].comm->peer, PROBE_TIMEOUT);
    rig_run(rig, 15 * RIG_S);
    ck_assert(r2_gossip_peer_blamed(rig->side[0].inst, rig->side[0].comm->peer));
    ck_assert_ptr_null(strstr(rig->last_warn[0], "R2-O01"));
    process_go(1, inst);
    rig_run(rig, 5 * RIG_S);
    ck_assert(!r2_gossip_peer_blamed(rig->side[0].inst, rig->side[0].comm->peer));
    ck_assert_msg(strstr(rig->last_warn[0], "R2-O01 host=host1 nic=- ") != NULL, "%s",
                  rig->last_warn[0]);
    rig_oob_cut(rig, 0);
    rig_run(rig, RIG_S);
    stop();
}
END_TEST

static char lines[2][RIG_LOG];
static int n_lines;

static void take_line(enum r2_log_level level, const char *file, int line, const char *msg)
{
    if (level == R2_LOG_WARN && n_lines < 2) {
        snprintf(lines[n_lines++], RIG_LOG, "%s", msg);
    }
}

/* An option that cannot be obeyed: the code, and behind it what frameworks show. */
START_TEST(an_option_that_cannot_be_obeyed)
{
    struct r2_listen *none = NULL;
    uint8_t handle[R2_NET_HANDLE_SIZE];

    start(2, (const char *[]){FAST, NULL});
    r2_log_flush();
    rig_enter(&rig->side[1]);
    snprintf(rig->side[1].inst->cfg.error, sizeof(rig->side[1].inst->cfg.error),
             "NCCL_R2_X=1: 2 to 3 is allowed");
    n_lines = 0;
    r2_log_sink_set(take_line);
    ck_assert_int_eq(r2_net_listen(rig->side[1].inst, 0, handle, &none), R2_ERR_CONFIG);
    r2_log_flush();
    r2_log_sink_set(NULL);
    ck_assert_int_eq(n_lines, 2);
    ck_assert_msg(
        strstr(
            lines[0],
            "R2-C01 host=host1 nic=- blame=configuration how=option fate=ends do=correct-option"),
        "%s", lines[0]);
    ck_assert_msg(strstr(lines[1], "NCCL_R2_X=1: 2 to 3 is allowed"), "%s", lines[1]);
    stop();
}
END_TEST

static TCase *new_case(Suite *s, const char *name)
{
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
    return t;
}

int main(void)
{
    Suite *s = suite_create("incidents");
    TCase *t = new_case(s, "rule");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, rule, 0, (int)(sizeof(table) / sizeof(table[0])));
    tcase_add_test(t, flaps_do_not_flood);
    t = new_case(s, "two processes");
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, another_incident_within_a_second, 0, 2);
    tcase_add_test(t, consequences_have_no_case);
    tcase_add_test(t, a_question_that_rc_gave_up_is_not_answered);
    tcase_add_test(t, a_held_verdict_is_not_said_when_a_better_one_comes);
    tcase_add_loop_test(t, a_verdict_says_which_it_revises, 0, 3);
    tcase_add_test(t, a_channel_that_does_not_come_back);
    tcase_add_test(t, another_pair_is_back);
    tcase_add_loop_test(t, a_driver_with_errors_is_not_blamed, 0, 5);
    tcase_add_test(t, an_open_case_is_looked_at_soon);
    tcase_add_test(t, a_channel_that_is_lost_still);
    tcase_add_test(t, an_option_that_cannot_be_obeyed);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
