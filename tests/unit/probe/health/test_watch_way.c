/* Directed scenarios of the watchdog: lost packets, words and queue pairs of probes neither hide a
 * fault nor make one. Silence of the data: test_watch.c, test_watch_none.c. */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#include "plugin/probe/health/r2_loopback.h"
#include "plugin/probe/health/r2_pair_int.h"
#include "core/r2_registry.h"

/* --- what was lost before hides nothing later --- */

static int first_question_is_out(struct rig *r)
{
    return pair_of(0, 0) && r2_pair_is_probing(pair_of(0, 0));
}

/* The packet of the first question gets lost: RC repeats it a second later. That is no time that
 * answers take. */
START_TEST(a_packet_lost_at_set_up_hides_no_fault)
{
    uint64_t since;

    rig = rig_create(2, 0, (const char *[]){QUIET_RC, NULL});
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    fire("h0:n0 blackhole");
    ck_assert(rig_until(rig, first_question_is_out, RIG_S));
    rig_run(rig, 5 * RIG_MS);
    fire("h0:n0 up");
    rig_run(rig, RIG_S / 2);
    ck_assert_uint_eq(pair_of(0, 0)->probe.last_ok, 0);
    rig_run(rig, RIG_S);
    ck_assert_uint_ne(pair_of(0, 0)->probe.last_ok, 0);
    messages(4, BIG);
    recv_post(0, BIG);
    rig_run(rig, 100 * RIG_MS);
    fire(_i ? "h1:n0 blackhole" : "h0:n0 blackhole-tx");
    since = rig_now(rig);
    send_post(0, BIG);
    ck_assert(rig_until(rig, path_0_is_down, 10 * RIG_S));
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(rig_now(rig) - since < 200 * RIG_MS, "after %.3f ms",
                  (double)(rig_now(rig) - since) / 1e6);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* --- words --- */

static void ask(int side, uint64_t limit)
{
    rig_enter(&rig->side[side]);
    r2_pair_send_probe(pair_of(side, 0), rig->side[side].inst->watch.clock, limit);
    ck_assert(r2_pair_is_probing(pair_of(side, 0)));
}

/* Both ends ask, and no answer comes for long: each word is answered by another one, and that is
 * all. */
START_TEST(ends_that_both_ask_are_brief)
{
    unsigned before[2];

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    fire("h1:n0 blackhole");
    for (int s = 0; s < 2; s++) {
        before[s] = rig_count(rig, s, FO_MSG_PROBE);
        ask(s, 500 * RIG_MS);
    }
    rig_run(rig, 400 * RIG_MS);
    for (int s = 0; s < 2; s++) {
        unsigned words = rig_count(rig, s, FO_MSG_PROBE) - before[s];

        ck_assert(pair_of(s, 0)->probe.state >= R2_PROBE_TIMED);
        ck_assert_msg(words >= 1 && words <= 4, "side %d said %u words", s, words);
    }
    rig_run(rig, 200 * RIG_MS);
    found_as(0, IB_FAULT_SILENT);
    stop();
}
END_TEST

/* R has said that its end is in order when it finds that it is not, and a question of its own is
 * out that nobody there waits for. */
START_TEST(word_that_is_taken_back_behind_another_question)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    rig->filter = flush_is_slow;
    driver_hook(1, 0);
    driver.late = pair_of(1, 0)->qp.cq;
    probe_break(1, 0);
    ask(1, 0);
    message_held_up(0, 100 * RIG_MS);
    ck_assert_int_ge(rig->filter_count, 1);
    ck_assert_ptr_null(driver.late);
    no_pair_moved();
    stop();
}
END_TEST

/* Acknowledgements are lost for good, the way back is good, and our queue pair had broken before:
 * made anew twice, and no back-off between. */
START_TEST(a_broken_queue_pair_adds_no_back_off)
{
    uint64_t since;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, BIG);
    rig_run(rig, 100 * RIG_MS);
    probe_break(0, 0);
    fire("h1:n0 ack-lost");
    since = rig_now(rig);
    send_post(0, BIG);
    ck_assert(rig_until(rig, path_0_is_down, 5 * RIG_S));
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(rig_now(rig) - since < 220 * RIG_MS, "after %.3f ms",
                  (double)(rig_now(rig) - since) / 1e6);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* Words about a pair never come while a question is out there. */
static int words_are_late(struct rig *r, int from, int type, union fo_body *body)
{
    const struct r2_pair *pair = pair_of(!from, 0);
    int late = type == FO_MSG_PROBE && body->probe.nic == 0 && pair && r2_pair_is_judged(pair);

    r->filter_count += late;
    return !late;
}

/* No NIC of the pair can send any more, and RC waits for acknowledgements of before: the queue
 * pairs made to ask break before a word can come. */
START_TEST(two_nics_that_cannot_send_are_found)
{
    uint64_t since;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, BIG);
    rig_run(rig, 100 * RIG_MS);
    fire("h0:n0 ack-lost");
    fire("h1:n0 ack-lost");
    since = rig_now(rig);
    send_post(0, BIG);
    rig_run(rig, 5 * RIG_MS);
    fire("h0:n0 send-error");
    fire("h1:n0 send-error");
    rig->filter = words_are_late;
    ck_assert(rig_until(rig, path_0_is_down, 2 * RIG_S));
    found_as(0, IB_FAULT_SILENT);
    ck_assert_int_gt(rig->filter_count, 0);
    ck_assert_msg(rig_now(rig) - since < 300 * RIG_MS, "after %.3f ms",
                  (double)(rig_now(rig) - since) / 1e6);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* --- whether the way is good --- */

static int question_is_over(struct rig *r)
{
    return !r2_pair_is_probing(pair_of(0, 0)) && !r2_pair_is_probing(pair_of(1, 0));
}

static int loop_is_idle(struct rig *r)
{
    return !r->side[0].inst->diagnosis.loop[0].asking;
}

/* Our loop has been asked and has answered, on a queue pair that it had. */
static void loop_answers(void)
{
    struct r2_loopback *l = &rig->side[0].inst->diagnosis.loop[0];
    unsigned before = l->questions;

    rig_enter(&rig->side[0]);
    r2_loopback_probe(rig->side[0].inst, 0, rig->side[0].inst->watch.clock, 30 * RIG_MS);
    r2_inst_wake(rig->side[0].inst);
    ck_assert(rig_until(rig, loop_is_idle, RIG_S));
    ck_assert_uint_eq(l->questions, before + 1);
    ck_assert_uint_eq(l->outcome, PROBE_OK);
    ck_assert_uint_eq(l->fresh, 0);
}

/* The acknowledgements of a question were lost for a while, and the peer said that its own has been
 * answered. */
static void peer_says_that_it_works(void)
{
    fire("h1:n0 ack-lost");
    ask(0, 500 * RIG_MS);
    rig_run(rig, 20 * RIG_MS);
    ck_assert(pair_of(0, 0)->probe.state == R2_PROBE_GOOD);
    fire("h1:n0 restore");
    ck_assert(rig_until(rig, question_is_over, 100 * RIG_MS));
}

/* The loop of NIC 0 is not there, and its device's worker does nothing for now: it is wanted. */
static void loop_is_late(void)
{
    struct r2_inst *inst = rig->side[0].inst;
    struct r2_loopback *l = &inst->diagnosis.loop[0];

    rig_enter(&rig->side[0]);
    probe_qp_destroy(&l->qp, &inst->nics);
    *l = (struct r2_loopback){.state = R2_LOOPBACK_NONE};
    rig->side[0].worker_armed |= 1; /* as if it were under way */
    r2_loopback_want(inst, 0);
    r2_inst_wake(inst);
}

static void worker_goes_on(void)
{
    struct r2_inst *inst = rig->side[0].inst;

    rig->side[0].worker_armed &= ~1u;
    inst->env.kick_worker(inst->env.arg, 0);
}

/* A worker with much to do, as when a job begins: a queue pair that is made later than the question
 * may take is asked all the same, or no loop would ever count. */
START_TEST(a_loop_that_is_made_late_counts)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    loop_is_late();
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(rig->side[0].inst->diagnosis.loop[0].state, R2_LOOPBACK_BUILD);
    worker_goes_on();
    rig_run(rig, RIG_S);
    ck_assert_int_eq(rig->side[0].inst->diagnosis.loop[0].state, R2_LOOPBACK_READY);
    ck_assert_uint_eq(rig->side[0].inst->diagnosis.loop[0].works, 1);
    loop_answers();
    stop();
}
END_TEST

/* Asked for the first time, and no answer: nobody knows whether this NIC has a loop at all. */
START_TEST(a_loop_that_has_never_answered_is_no_evidence)
{
    struct r2_loopback *l;
    unsigned before;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    l = &rig->side[0].inst->diagnosis.loop[0];
    before = l->questions;
    loop_is_late();
    l->questions = before;
    rig_run(rig, 2 * RIG_S);
    ck_assert_uint_eq(l->questions, before + 1);
    ck_assert_uint_eq(l->outcome, PROBE_NA);
    worker_goes_on();
    rig_run(rig, RIG_S);
    stop();
}
END_TEST

static void loop_breaks(void)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    rig_enter(&rig->side[0]);
    ck_assert_int_eq(rig->side[0].inst->v.modify_qp(
                         rig->side[0].inst->diagnosis.loop[0].qp.lane[0].qp, &attr, IBV_QP_STATE),
                     0);
}

/*
 * What was said and measured of earlier questions, and a loop on a new queue pair, say nothing
 * about this one: it is not put twice. The queue pairs that a NIC has may send nothing while new
 * ones do, so that a second question would be answered.
 */
static const struct {
    void (*before)(void);
    const char *fault;
} once[] = {
    {loop_answers, "h0:n0 blackhole"},
    {loop_answers, "h0:n0 send-stuck"},
    {peer_says_that_it_works, "h1:n0 blackhole"},
    {peer_says_that_it_works, "h0:n0 send-stuck"},
    {loop_breaks, "h0:n0 send-stuck"},
    {NULL, "h1:n0 blackhole-rx"},
};

static uint32_t asked_inc;
static int count_anew(struct rig *r, int from, int type, union fo_body *body)
{
    r->filter_count += type == FO_MSG_PROBE && from == 0 && body->probe.nic == 0 &&
                       body->probe.inc != asked_inc && ib_conn_up(&r->side[0].comm->conn, 0);
    return 1;
}

START_TEST(a_way_that_is_not_good_is_asked_once)

{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, BIG);
    rig_run(rig, 100 * RIG_MS);
    if (once[_i].before) {
        once[_i].before();
    }
    asked_inc = pair_of(0, 0)->inc;
    rig->filter = count_anew;
    fire(once[_i].fault);
    send_post(0, BIG);
    ck_assert_msg(rig_until(rig, path_0_is_down, 300 * RIG_MS), "%s is not found", once[_i].fault);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_int_eq(rig->filter_count, 0);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* The packet of the question that the peer waits for gets lost: it is repeated as one of our own
 * is. */
START_TEST(the_question_for_the_peer_is_repeated)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    fire("h1:n0 blackhole-tx");
    ask(0, 500 * RIG_MS);
    rig_run(rig, 2 * RIG_MS);
    ck_assert(r2_pair_is_probing(pair_of(1, 0)) && pair_of(1, 0)->probe.check);
    fire("h1:n0 up");
    ck_assert_msg(rig_until(rig, question_is_over, 30 * RIG_MS), "not answered");
    nothing_moved();
    stop();
}
END_TEST

static int count_works(struct rig *r, int from, int type, union fo_body *body)
{
    r->filter_count += type == FO_MSG_PROBE && from == 1 && (body->probe.flags & FO_PROBE_WORKS);
    return 1;
}

/* The peer is told once for each time that it asks, and not for what nobody asked. */
START_TEST(the_peer_is_told_once)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    rig->filter = count_works;
    rig_enter(&rig->side[0]);
    r2_pair_renew(pair_of(0, 0)); /* a word that asks nothing */
    r2_inst_wake(rig->side[0].inst);
    rig_run(rig, 10 * RIG_MS);
    for (int i = 0; i < 3; i++) {
        ask(1, 0);
        ck_assert(rig_until(rig, question_is_over, 30 * RIG_MS));
    }
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(rig->filter_count, 0);
    peer_says_that_it_works();
    rig_run(rig, 10 * RIG_MS);
    ck_assert_int_eq(rig->filter_count, 1);
    ask(1, 0);
    rig_run(rig, 30 * RIG_MS);
    ck_assert_int_eq(rig->filter_count, 1);
    stop();
}
END_TEST

static union fo_body word_of_r;
static int keep_word(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == FO_MSG_PROBE && from == 1 && body->probe.nic == 0) {
        word_of_r = *body;
    }
    r->filter_count += type == FO_MSG_PROBE && from == 0 && (body->probe.flags & FO_PROBE_REQUEST);
    return 1;
}

/* R's word comes after we have asked and before we have told R so: R hears of it all the same, and
 * each time. */
START_TEST(the_peer_is_asked_in_any_case)
{
    struct rig_side *s;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    s = &rig->side[0];
    rig->filter = keep_word;
    rig_enter(&rig->side[1]);
    r2_pair_renew(pair_of(1, 0));
    r2_inst_wake(rig->side[1].inst);
    rig_run(rig, 20 * RIG_MS);
    ck_assert_uint_eq(word_of_r.probe.inc, pair_of(0, 0)->announce.peer_inc);
    for (int i = 1; i <= 2; i++) {
        ask(0, 100 * RIG_MS);
        s->comm->peer->refs++; /* as a message holds it */
        r2_pair_on_probe(s->inst, s->comm->peer, &word_of_r.probe);
        s->comm->peer->refs--;
        ck_assert(pair_of(0, 0)->probe.state >= R2_PROBE_TIMED);
        ck_assert(rig_until(rig, question_is_over, 30 * RIG_MS));
        rig_run(rig, 10 * RIG_MS);
        ck_assert_int_eq(rig->filter_count, i);
    }
    stop();
}
END_TEST

/* The answer stood in a queue, and was sent before the way broke: the peer is not told that it
 * works. */
START_TEST(an_answer_of_before_the_question_is_none)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    rig->filter = count_works;
    fire("h0:n0 delay 20ms");
    ask(1, 0);
    rig_run(rig, 10 * RIG_MS);
    fire("h0:n0 blackhole");
    ask(0, 30 * RIG_MS);
    rig_run(rig, 5 * RIG_MS);
    ck_assert_uint_ne(pair_of(1, 0)->announce.owes, 0);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_gt(pair_of(1, 0)->probe.last_ok, pair_of(1, 0)->announce.owes_since);
    ck_assert(r2_pair_is_probing(pair_of(1, 0))); /* another one is out for that */
    ck_assert_int_eq(pair_of(0, 0)->probe.state, R2_PROBE_TIMED);
    ck_assert_int_eq(rig->filter_count, 0);
    ck_assert(rig_until(rig, path_0_is_down, 50 * RIG_MS));
    found_as(0, IB_FAULT_SILENT);
    stop();
}
END_TEST

/*
 * The peer's host stands still just when a probe's queue pair is new, and for longer than RC waits
 * for an answer: what fails then is no evidence of anything.
 */
START_TEST(a_new_queue_pair_and_a_host_that_stands_still)
{
    struct r2_inst *inst;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    rig_enter(&rig->side[0]);
    r2_pair_rebuild(pair_of(0, 0));
    rig_run(rig, 10 * RIG_US);
    while (!r2_pair_ready(pair_of(0, 0))) {
        ck_assert_uint_eq(pair_of(0, 0)->probe.last_ok, 0);
        rig_turn(rig, RIG_US);
    }
    inst = process_stop(1);
    fire("h1:* hang");
    ask(0, 30 * RIG_MS);
    rig_run(rig, (1050 + (uint64_t)_i * 10) * RIG_MS);
    ck_assert_uint_eq(pair_of(0, 0)->probe.last_ok, 0);
    fire("h1:* unhang");
    process_go(1, inst);
    rig_run(rig, 3 * RIG_S);
    nothing_moved();
    ck_assert_uint_eq(pair_of(0, 0)->probe.silent_at, 0);
    ck_assert_uint_ne(pair_of(0, 0)->probe.last_ok, 0);
    stop();
}
END_TEST

/* A probe of @side, and the refusal of the one behind it, get lost; the first is out already where
 * @asked. */
static void stand_still(int side, int asked, uint64_t limit)
{
    static const char *const fault[2][4] = {
        {"h0:n0 blackhole-tx", "h0:n0 up", "h1:n0 ack-lost", "h1:n0 restore"},
        {"h1:n0 blackhole-tx", "h1:n0 up", "h0:n0 ack-lost", "h0:n0 restore"}};
    const struct fab_counters *there = &fab_inproc_nic(rig->f, 1 - side, 0)->cnt;
    uint64_t naks = there->seq_naks, lost = there->acks_lost;

    fire(fault[side][0]);
    ask(side, limit);
    rig_run(rig, RIG_MS);
    fire(fault[side][1]);
    fire(fault[side][2]);
    if (asked) {
        ask(side, limit);
    }
    rig_run(rig, 9 * RIG_MS); /* more than T_probe / 4 */
    ck_assert_uint_gt(there->seq_naks, naks);
    ck_assert_uint_gt(there->acks_lost, lost);
    fire(fault[side][3]);
}

/* The peer's own queue pair stands still when it is asked, and it could not say that its question
 * has been answered: it makes that anew. */
START_TEST(a_peer_that_stands_still_is_made_anew)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, 100 * RIG_MS);
    stand_still(1, 1, 0);
    rig_run(rig, 120 * RIG_MS);
    ck_assert(r2_pair_is_probing(pair_of(1, 0)) && !r2_pair_is_judged(pair_of(1, 0)));
    stand_still(0, 0, 30 * RIG_MS);
    rig_run(rig, 300 * RIG_MS);
    nothing_moved();
    wait_probes();
    stop();
}
END_TEST

/*
 * A way that was silent for a second has filled the half of the queue that is posted again and
 * again. Who asks when it is good again has an answer at once, not when RC repeats by time.
 */
START_TEST(a_question_finds_room_behind_those_that_were_lost)
{
    struct r2_pair *pair;
    uint64_t answers;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    pair = pair_of(0, 0);
    fire("h0:n0 blackhole");
    r2_pair_send_probe(pair, pair->inst->watch.clock, 0);
    while (probe_qp_out(&pair->qp) < PROBE_QP_DEPTH / 2) {
        ck_assert_int_eq(probe_qp_post(&pair->qp, pair->inst->watch.clock), 0);
    }
    answers = pair->probe.answers;
    rig_run(rig, 50 * RIG_MS);
    ck_assert_uint_eq(pair->probe.answers, answers);
    fire("h0:n0 up");
    r2_pair_send_probe(pair, pair->inst->watch.clock, 0);
    rig_run(rig, 5 * RIG_MS);
    ck_assert_uint_gt(pair->probe.answers, answers);
    nothing_moved();
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_packet_lost_at_set_up_hides_no_fault, 0, 2);
    tcase_add_test(t, ends_that_both_ask_are_brief);
    tcase_add_test(t, word_that_is_taken_back_behind_another_question);
    tcase_add_test(t, a_broken_queue_pair_adds_no_back_off);
    tcase_add_test(t, two_nics_that_cannot_send_are_found);
    tcase_add_loop_test(t, a_way_that_is_not_good_is_asked_once, 0,
                        (int)(sizeof(once) / sizeof(once[0])));
    tcase_add_test(t, a_question_finds_room_behind_those_that_were_lost);
    tcase_add_test(t, a_loop_that_is_made_late_counts);
    tcase_add_test(t, a_loop_that_has_never_answered_is_no_evidence);
    tcase_add_test(t, the_question_for_the_peer_is_repeated);
    tcase_add_test(t, the_peer_is_told_once);
    tcase_add_test(t, the_peer_is_asked_in_any_case);
    tcase_add_test(t, a_peer_that_stands_still_is_made_anew);
    tcase_add_test(t, an_answer_of_before_the_question_is_none);
    tcase_add_loop_test(t, a_new_queue_pair_and_a_host_that_stands_still, 0, 16);
}

int main(void)
{
    return suite_run("watchdog: way", 60, NULL, teardown, add);
}
