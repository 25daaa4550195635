/* Directed scenarios of the watchdog: silence that is no fault moves nothing, and where nothing
 * could take over it ends, if ever, with a reason. */
#include "tests/unit/watch_rig.h"

#include "plugin/base/r2_log.h"

/* The last path, a single one from the start, failover or the watchdog off: RC decides, which here
 * never does. */
START_TEST(no_verdict_where_nothing_could_take_over)
{
    static const char *const off[] = {"NCCL_R2_WATCHDOG=on", "NCCL_R2_MIN_NICS=1",
                                      "NCCL_R2_FAILOVER=off", "NCCL_R2_WATCHDOG=off"};

    start(_i == 0 ? 1 : 2,
          (const char *[]){QUIET_RC, off[_i], "NCCL_R2_T_STUCK=100", "NCCL_IB_TIMEOUT=14", NULL});
    messages(4, BIG);
    if (_i == 1) {
        fire("h0:n1 down");
        rig_run(rig, 100 * RIG_MS);
        ck_assert_uint_eq(rig->side[0].comm->conn.up, 1);
    }
    fire("h0:n0 retry7-forever");
    fire("h1:n0 retry7-forever");
    recv_post(0, BIG);
    fire("h1:n0 blackhole");
    rig_run(rig, 2 * RIG_S);
    ck_assert(ib_conn_up(&rig->side[0].comm->conn, 0));
    ck_assert(ib_conn_up(&rig->side[1].comm->conn, 0));
    fire("h1:n0 up");
    send_post(0, BIG);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* ... and which ends with a reason once NCCL_R2_GIVE_UP is over: no error completion would ever do
 * it. */
START_TEST(last_path_that_stays_silent_ends)
{
    static const char *const fault[] = {"h1:n0 blackhole", "h0:n0 hang", "h1:n0 hang", NULL};

    start(_i & 1 ? 2 : 1,
          (const char *[]){QUIET_RC, "NCCL_R2_GIVE_UP=2000", "NCCL_IB_TIMEOUT=14", NULL});
    messages(4, BIG);
    if (_i & 1) {
        fire("h0:n1 down");
        rig_run(rig, 100 * RIG_MS);
    }
    fire("h0:n0 retry7-forever");
    fire("h1:n0 retry7-forever");
    recv_post(0, BIG);
    rig_run(rig, RIG_MS);
    if (fault[_i / 2]) {
        fire(fault[_i / 2]);
    } else {
        driver.hidden = driver_hook(1, 0)->cq;
    }
    send_post(0, BIG);
    recv_post(1, BIG);
    rig_run(rig, 1900 * RIG_MS);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    rig_run(rig, 4 * RIG_S);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], "the last path, NIC fab0 - NIC 0, is silent for") ||
                      strstr(rig->last_warn[1], "the last path, NIC fab0 - NIC 0, is silent for"),
                  "%s / %s", rig->last_warn[0], rig->last_warn[1]);
    ck_assert(rig->side[0].status == R2_ERR_COMM || rig->side[1].status == R2_ERR_COMM);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/* Nobody calls one end, or both, for ten seconds: NICs and service threads go on. */
START_TEST(sleep_of_a_caller_is_no_fault)
{
    start(2, (const char *[]){QUIET_RC, "NCCL_R2_T_STUCK=100", "NCCL_IB_TIMEOUT=12", NULL});
    wait_probes();
    messages(4, BIG);
    for (int k = 0; k < 4; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS);
    rig->side[0].asleep = _i & 1;
    rig->side[1].asleep = _i >> 1;
    for (int k = 0; k < 4; k++) {
        send_post(k, BIG);
    }
    rig_run(rig, 10 * RIG_S);
    nothing_moved();
    ck_assert_uint_eq(rig->side[0].comm->tx->sack,
                      8); /* also where only R's service thread could say so */
    rig->side[0].asleep = rig->side[1].asleep = 0;
    finish(4, BIG, RIG_MS);
    stop();
}
END_TEST

/* A whole process does not run for three seconds, work outstanding, once even while it asks: its
 * NIC answers. */
START_TEST(sleep_of_a_process_is_no_fault)
{
    int side = _i & 1;
    struct r2_inst *inst;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_T_STUCK=100", "NCCL_IB_TIMEOUT=12", NULL});
    wait_probes();
    messages(4, BIG);
    for (int k = 0; k < 4; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS);
    for (int k = 0; k < 4; k++) {
        send_post(k, BIG);
    }
    if (_i >> 1) {
        r2_pair_send_probe(pair_of(side, 0), rig->side[side].inst->watch.clock, 30 * RIG_MS);
    }
    inst = process_stop(side);
    rig_run(rig, 3 * RIG_S);
    process_go(side, inst);
    finish(4, BIG, 100 * RIG_MS);
    rig_run(rig, 500 * RIG_MS);
    nothing_moved();
    stop();
}
END_TEST

/*
 * What the peer asks and says has waited for a service thread that was late: the question that it
 * makes us put has not been out for so long, however short the wait for its answer is.
 */
START_TEST(words_that_waited_shorten_no_question)
{
    struct r2_inst *inst;

    start(3, (const char *[]){QUIET_RC, "NCCL_R2_T_PROBE=2", NULL});
    wait_probes();
    messages(4, BIG);
    rig_run(rig, 100 * RIG_MS);
    inst = process_stop(_i);
    fire(_i ? "h0:n0 qp-error" : "h1:n0 qp-error");
    rig_run(rig, 10 * RIG_MS);
    process_go(_i, inst);
    rig_run(rig, 500 * RIG_MS);
    for (int s = 0; s < 2; s++) {
        ck_assert_msg(rig->side[s].comm->fo.switches == 1, "side %d: %s", s,
                      rig->side[s].comm->fo.last_fault);
    }
    messages(4, BIG);
    stop();
}
END_TEST

/* Nor where its NICs stop with it, as those of the software fabric do: then nobody can be asked
 * about them. */
START_TEST(sleep_of_a_process_with_its_nics_is_no_fault)
{
    struct r2_inst *inst;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    recv_post(0, BIG);
    rig_run(rig, RIG_MS);
    inst = process_stop(_i);
    fire(_i ? "h1:n0 hang" : "h0:n0 hang");
    fire(_i ? "h1:n1 hang" : "h0:n1 hang");
    if (_i) {
        send_post(0, BIG);
    } else {
        recv_post(1, BIG);
    }
    rig_run(rig, 3 * RIG_S);
    nothing_moved();
    fire(_i ? "h1:n0 unhang" : "h0:n0 unhang");
    fire(_i ? "h1:n1 unhang" : "h0:n1 unhang");
    process_go(_i, inst);
    if (!_i) {
        send_post(0, BIG);
        send_post(1, BIG);
    }
    finish(1, BIG, 5 * RIG_S);
    rig_run(rig, RIG_S);
    no_pair_moved(); /* what was under way is lost with its last packet */
    stop();
}
END_TEST

/* Everything stands still for half a minute, packets on their way: that is no half minute of
 * silence. */
START_TEST(stop_of_the_world_is_no_fault)
{
    start(2, (const char *[]){"NCCL_IB_TIMEOUT=14", "NCCL_R2_T_STUCK=100", NULL});
    wait_probes();
    messages(4, BIG);
    fire("h0:n0 delay 20ms");
    fire("h1:n0 delay 20ms");
    recv_post(0, BIG);
    rig_run(rig, 25 * RIG_MS);
    send_post(0, BIG);
    rig_run(rig, 5 * RIG_MS);
    fab_inproc_skip(rig->f, 30 * RIG_S);
    finish(1, BIG, RIG_S);
    rig_run(rig, RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/* Slow from the first byte on: nothing is measured yet, and every queue is full. */
START_TEST(slow_links_are_no_fault)
{
    static const char *const rate[] = {"20MB/s", "5MB/s", "2MB/s"};
    char text[32];

    rig = rig_create(2, 0, (const char *[]){QUIET_RC, NULL});
    for (int h = 0; h < 2; h++) {
        snprintf(text, sizeof(text), "h%d:n0 rate %s", h, rate[_i % 3]);
        rig_fault(rig, text);
    }
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    if (_i / 3) {
        for (int k = 0; k < 16; k++) {
            recv_post(k, BIG);
            send_post(k, BIG);
        }
        finish(16, BIG, 30 * RIG_S);
    } else {
        for (int k = 0; k < 8; k++) {
            recv_post(0, sizeof(in));
            send_post(0, sizeof(out));
            finish(1, sizeof(out), 30 * RIG_S);
        }
    }
    nothing_moved();
    stop();
}
END_TEST

/* Fast, then slow: what was measured is far from what comes. */
START_TEST(a_link_that_slows_down_is_no_fault)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    for (int k = 0; k < 40; k++) {
        messages(8, BIG);
        rig_run(rig, RIG_MS);
    }
    fire("h0:n0 rate 5MB/s");
    fire("h1:n0 rate 5MB/s");
    for (int k = 0; k < 16; k++) {
        recv_post(k, BIG);
        send_post(k, BIG);
    }
    finish(16, BIG, 30 * RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/* What RC repairs: lost packets, and a link that is away for less than a probe is waited for. */
START_TEST(loss_and_short_flaps_are_no_fault)
{
    static const char *const loss[] = {"h1:n0 loss 1%", "h0:n0 loss 5%", NULL};

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=13", "NCCL_IB_RETRY_CNT=7", NULL});
    wait_probes();
    if (loss[_i]) {
        fire("h0:n0 retry7-forever");
        fire("h1:n0 retry7-forever");
        fire(loss[_i]);
    }
    for (int k = 0; k < 200; k++) {
        if (!loss[_i] && k % 20 == 10) {
            recv_post(1, BIG);
            rig_run(rig, 100 * RIG_US);
            fire("h0:n0 blackhole");
            send_post(1, BIG);
            rig_run(rig,
                    (unsigned)(k / 20 + 1) * 5 * RIG_MS); /* up to 50 ms: longer than T_suspect */
            fire("h0:n0 up");
            finish(1, 0, RIG_S);
            rig_run(rig, 100 * RIG_MS);
        }
        messages(1, BIG);
    }
    no_pair_moved();
    stop();
}
END_TEST

/* The other end closes, all done or with a receive outstanding, and this one lives on: no evidence
 * against any path (P25), though nobody answers probes any more. */
START_TEST(close_is_no_fault)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    if (_i >> 1) {
        recv_post(0, BIG);
    }
    rig_run(rig, RIG_MS);
    rig_close(rig, _i & 1);
    rig_run(rig, 25 * RIG_S); /* what is unconfirmed now stays so: less than RC, more than a queue
                                 pair may stand still */
    ck_assert_uint_eq(rig->side[1 - (_i & 1)].comm->fo.switches, 0);
    rig_dereg(rig, 1 - (_i & 1), _i & 1 ? s_mr : r_mr);
    rig_close(rig, 1 - (_i & 1));
    rig_run(rig, RIG_S);
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
    ck_assert(rig->side[0].inst->index.pairs == NULL && rig->side[1].inst->index.pairs == NULL);
}
END_TEST

static int question_put(struct rig *r)
{
    return r2_pair_is_judged(pair_of(0, 0));
}

static int probe_words_lost(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_PROBE;
}

/*
 * RC refuses a gap once. The probe is lost, and the refusal of those behind it, too: the queue pair
 * is silent until its time-out, long after the verdict, over a way that is good.
 */
static void lose_probe_and_refusal(uint64_t phase)
{
    const struct fab_counters *there = &fab_inproc_nic(rig->f, 1, 0)->cnt;
    struct r2_pair *pair = pair_of(0, 0);
    uint32_t inc = pair->inc;
    uint64_t lost, naks;

    recv_post(0, 100);
    rig_run(rig, 150 * RIG_MS + phase);
    rig->filter = probe_words_lost; /* R asks nothing while the way is bad: its own question would
                                       get lost, too */
    driver.held = driver_hook(0, 0)->cq;
    send_post(0, 100);
    rig_run(rig, RIG_MS);
    fire("h0:n0 blackhole-tx");
    ck_assert(rig_until(rig, question_put, RIG_S));
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(pair->probe.posted, 1);
    fire("h0:n0 up");
    fire("h1:n0 ack-lost");
    lost = there->acks_lost;
    naks = there->seq_naks;
    while (pair->probe.posted < 2) {
        rig_run(rig, RIG_MS);
    }
    rig_run(rig, RIG_MS);
    ck_assert_uint_gt(there->seq_naks, naks);
    ck_assert_uint_gt(there->acks_lost, lost);
    fire("h1:n0 restore");
    rig->filter = NULL;
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_ne(pair->inc, inc); /* it was silent until it was made anew */
    driver.held = NULL;
    finish(1, 100, RIG_S);
    no_pair_moved();
}

/* And again, once a question has been answered. The other end asks as well, by its own ticks:
 * sooner, later, or just before it hears of this question. */
START_TEST(lost_probe_and_lost_refusal_are_no_fault)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    for (int i = 0; i < 3; i++) {
        lose_probe_and_refusal((uint64_t)_i * RIG_MS);
        rig_run(rig, 11 * RIG_S); /* it is the first time again */
        wait_probes();
    }
    stop();
}
END_TEST

static void add_none(TCase *t)
{
    tcase_add_loop_test(t, no_verdict_where_nothing_could_take_over, 0, 4);
    tcase_add_loop_test(t, last_path_that_stays_silent_ends, 0, 8);
    tcase_add_loop_test(t, sleep_of_a_caller_is_no_fault, 1, 4);
    tcase_add_loop_test(t, sleep_of_a_process_is_no_fault, 0, 4);
    tcase_add_loop_test(t, words_that_waited_shorten_no_question, 0, 2);
    tcase_add_loop_test(t, sleep_of_a_process_with_its_nics_is_no_fault, 0, 2);
    tcase_add_test(t, stop_of_the_world_is_no_fault);
    tcase_add_loop_test(t, slow_links_are_no_fault, 0, 6);
    tcase_add_test(t, a_link_that_slows_down_is_no_fault);
    tcase_add_loop_test(t, loss_and_short_flaps_are_no_fault, 0, 3);
    tcase_add_loop_test(t, lost_probe_and_lost_refusal_are_no_fault, 0, 8);
    tcase_add_loop_test(t, close_is_no_fault, 0, 4);
}

int main(void)
{
    Suite *s = suite_create("watchdog: nothing");
    TCase *t = tcase_create("nothing");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    add_none(t);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
