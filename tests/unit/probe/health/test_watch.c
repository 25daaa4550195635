/* Directed scenarios of the watchdog (docs/health.md): which silence is found, as what and
 * how soon. Which silence is none: test_watch_none.c. The pairs and their handshake: test_pair.c.
 */
#include "plugin/core/r2_registry.h"
#include "tests/unit/watch_rig.h"

/* --- each kind of silence --- */

static const struct {
    const char *before, *fault;
    unsigned limit_ms; /* until everything is done */
} silence[] = {
    {NULL, "h0:n0 blackhole", 100},
    {NULL, "h0:n0 blackhole-tx", 100},
    {NULL, "h0:n0 blackhole-rx", 100},
    {NULL, "h0:n0 ack-lost", 200},
    {NULL, "h0:n0 hang", 250},
    {NULL, "h0:n0 send-stuck", 200},
    {NULL, "h1:n0 blackhole", 100},
    {NULL, "h1:n0 blackhole-tx", 100},
    {NULL, "h1:n0 blackhole-rx", 100},
    {NULL, "h1:n0 ack-lost", 300}, /* the way back is good: asked twice */
    {NULL, "h1:n0 hang", 350},     /* a soft fence at R: T_fence, and T_packet once S has stopped */
    {NULL, "h1:n0 send-stuck", 200},
    {"h0:n0 retry7-forever", "h1:n0 blackhole", 100},
    {"h1:n0 retry7-forever", "h0:n0 blackhole-rx", 100},
};
#define SILENCES (int)(sizeof(silence) / sizeof(silence[0]))

#define TICK_MS 10 /* behind a pause, ticks come at other instants: by less than that */

/* Nothing for so long that nobody looks at either end any more. */
static void both_rest(void)
{
    rig_run(rig, 2 * RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(rig->side[s].comm->conn.touched, 0);
        ck_assert_uint_eq(rig->side[s].comm->conn.awake, 0);
        ck_assert_ptr_null(r2_comms_awake(rig->side[s].inst));
    }
}

/* Under traffic, and with one message alone behind it; also where both ends have rested. */
START_TEST(silence_is_found_and_traffic_goes_on)
{
    int i = _i / 4, n = _i % 2 ? 1 : 16, rests = _i % 4 >= 2;
    uint64_t limit = (silence[i].limit_ms + (rests ? TICK_MS : 0)) * RIG_MS;
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    for (int k = 0; k < 3; k++) {
        messages(250, BIG); /* the rate is known */
        rig_run(rig, 20 * RIG_MS);
    }
    if (rests) {
        both_rest();
    }
    if (silence[i].before) {
        fire(silence[i].before);
    }
    for (int k = 0; k < n; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS); /* the CTS are there */
    fire(silence[i].fault);
    for (int k = 0; k < n; k++) {
        send_post(k, BIG);
    }
    took = finish(n, BIG, 2 * RIG_S);
    /* whom it did not keep from finishing notices all the same: R by its unconfirmed writes */
    ck_assert_msg(rig_until(rig, path_0_is_down, 200 * RIG_MS), "%s is not found",
                  silence[i].fault);
    found_as(0, IB_FAULT_SILENT);
    ck_assert_msg(took < limit, "%s took %.3f ms", silence[i].fault, (double)took / 1e6);
    messages(8, BIG);
    stop();
}
END_TEST

/* Nothing to send: R alone has work out, its CTS. */
START_TEST(lost_cts_is_found_by_the_receiver)
{
    static const char *const fault[] = {"h1:n0 blackhole-tx", "h1:n0 blackhole", "h0:n0 hang",
                                        "h1:n0 send-stuck"};

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, BIG);
    both_rest(); /* nothing is unconfirmed */
    fire(fault[_i]);
    recv_post(0, BIG);
    ck_assert_msg(rig_until(rig, path_0_is_down, 200 * RIG_MS), "%s is not found", fault[_i]);
    ck_assert_int_eq(fault_at(1, 0), IB_FAULT_SILENT);
    send_post(0, BIG);
    finish(1, BIG, 500 * RIG_MS);
    stop();
}
END_TEST

/* R reported its receive, its acknowledgement got lost on the way, and NCCL does not call R any
 * more. */
START_TEST(lost_last_ack_with_an_idle_receiver)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig->side[0].asleep = rig->side[1].asleep = 1;
    recv_post(0, 100);
    send_post(0, 100);
    rig_run(rig, 5 * RIG_US); /* the data is there and acknowledged by the NIC */
    fire("h1:n0 blackhole-tx");
    rig->side[1].asleep = 0;
    rig_run(rig, 100 * RIG_US);
    ck_assert_int_eq(rig->side[1].head, rig->side[1].tail);
    rig->side[1].asleep = 1;
    rig->side[0].asleep = 0;
    finish(1, 100, 100 * RIG_MS);
    ck_assert(rig_until(rig, path_0_is_down, 200 * RIG_MS));
    found_as(0, IB_FAULT_SILENT);
    stop();
}
END_TEST

/* S's NIC has acknowledged R's last acknowledgement and lost it: R has nothing unconfirmed, and S
 * asks for ever. */
START_TEST(last_ack_lost_behind_the_nic_of_the_sender)
{
    struct r2_inst *inst;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    recv_post(0, 100);
    send_post(0, 100);
    inst = process_stop(0);
    rig_run(rig, 200 * RIG_MS);
    rig->side[1].asleep = 1;
    ck_assert_uint_eq(rig->side[0].comm->conn.path[0].mem.ring->ack[0], 5);
    ck_assert_uint_eq(rig->side[1].comm->conn.path[0].sq.used, 0);
    rig->side[0].comm->conn.path[0].mem.ring->ack[0] = 4;
    process_go(0, inst);
    finish(1, 100, 5 * RIG_S);
    nothing_moved();
    stop();
}
END_TEST

/* R's NIC acknowledges and its completion queue stays empty: every completion at S is good, every
 * probe is answered. */
START_TEST(acknowledged_and_not_delivered)
{
    int n = _i ? 4 : 1;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(8, BIG);
    driver.hidden = driver_hook(1, 0)->cq;
    for (int k = 0; k < n; k++) {
        recv_post(k, BIG);
        send_post(k, BIG);
    }
    finish(n, BIG, 250 * RIG_MS);
    ck_assert_uint_ge(driver.fired, 1);
    found_as(0, IB_FAULT_UNDELIVERED);
    messages(8, BIG);
    stop();
}
END_TEST

/* A message in parts over three paths, and one of them loses its part: that one alone is claimed.
 */
START_TEST(claims_name_the_path_that_lost)
{
    start(3, (const char *[]){QUIET_RC, "NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=1024", NULL});
    wait_probes();
    messages(8, BIG);
    driver.hidden = driver_hook(1, _i)->cq;
    for (int k = 0; k < 4; k++) {
        recv_post(k, BIG);
        send_post(k, BIG);
    }
    finish(4, BIG, 250 * RIG_MS);
    ck_assert_uint_ge(driver.fired, 1);
    found_as(_i, IB_FAULT_UNDELIVERED);
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[1].comm->fo.switches, 1);
    stop();
}
END_TEST

static int (*port_query)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
static unsigned port_queries;

static int port_query_count(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    port_queries++;
    return port_query(ctx, port, attr);
}

/* The port may know, and its event may be lost: it is read when its NIC is suspected, not with the
 * next look. */
START_TEST(suspicion_reads_the_port)
{
    start(2, (const char *[]){QUIET_RC, "NCCL_R2_LOOK=60000", NULL});
    wait_probes();
    messages(4, 100);
    port_query = rig->side[0].inst->v.query_port;
    rig->side[0].inst->v.query_port = port_query_count;
    recv_post(0, 100);
    rig_run(rig, RIG_S);
    port_queries = 0;
    fire("h1:n0 blackhole");
    send_post(0, 100);
    rig_run(rig, 25 * RIG_MS);
    ck_assert_uint_eq(port_queries, 0);
    finish(1, 100, RIG_S);
    ck_assert_uint_ge(port_queries, 2);
    stop();
}
END_TEST

/* The pair answers; this one queue pair of S, or of R, sends nothing. */
START_TEST(stuck_queue_pair_on_a_pair_that_answers)
{
    uint64_t took;

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=12", NULL});
    wait_probes();
    messages(8, BIG);
    driver.stuck = driver_hook(_i, 0)->qp;
    recv_post(0, BIG);
    if (_i == 0) {
        send_post(0, BIG);
    }
    took = rig_now(rig);
    ck_assert(rig_until(rig, path_0_is_down, 400 * RIG_MS));
    took = rig_now(rig) - took;
    ck_assert_uint_ge(driver.fired, 1);
    ck_assert_msg(strstr(rig->side[_i].comm->fo.last_fault, "last packet lost"), "found as %s",
                  rig->side[_i].comm->fo.last_fault);
    ck_assert_msg(took >= 50 * RIG_MS, "after %.3f ms", (double)took / 1e6);
    if (_i == 1) {
        send_post(0, BIG);
    }
    finish(1, BIG, 100 * RIG_MS);
    stop();
}
END_TEST

static int no_probe(struct rig *r, int from, int type, union fo_body *body)
{
    r->filter_count += type == FO_MSG_PROBE;
    return type != FO_MSG_PROBE;
}

/* R's NIC hangs and no probe queue pair ever stood: silence alone, and twice T_stuck of it. */
START_TEST(hang_where_nobody_can_be_asked)
{
    uint64_t took;

    rig = rig_create(2, 0,
                     (const char *[]){"NCCL_IB_TIMEOUT=12", "NCCL_IB_RETRY_CNT=7",
                                      "NCCL_R2_T_STUCK=100", "NCCL_R2_T_PACKET=100", NULL});
    rig->filter = no_probe;
    rig_connect(rig, 0, 0);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    messages(4, BIG);
    fire("h0:n0 retry7-forever");
    recv_post(0, BIG);
    rig_run(rig, RIG_MS);
    fire("h1:n0 hang");
    send_post(0, BIG);
    took = rig_now(rig);
    ck_assert(rig_until(rig, path_0_is_down, RIG_S));
    took = rig_now(rig) - took;
    ck_assert_int_gt(rig->filter_count, 0);
    found_as(0, IB_FAULT_STALL);
    ck_assert_msg(took >= 200 * RIG_MS && took < 400 * RIG_MS, "after %.3f ms", (double)took / 1e6);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

/* Other messages go on over another path; the one whose completion is lost is found all the same.
 */
START_TEST(silence_of_one_path_beside_one_that_moves)
{
    static uint64_t small[256];
    struct ib_mr *s_small, *r_small;
    uint64_t end;
    int stuck;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    s_small = rig_reg(rig, 0, small, 1024);
    r_small = rig_reg(rig, 1, (uint8_t *)small + 1024, 1024);
    rig_run(rig, RIG_MS);
    recv_post(0, BIG);
    rig_run(rig, RIG_MS);
    fire("h1:n0 ack-lost");
    stuck = (int)rig->side[0].tail;
    send_post(0, BIG);
    rig_run(rig, RIG_MS);
    ck_assert(
        rig_done(rig, 1, (int)rig->side[1].tail - 1)); /* R has it, and says so by its own writes */
    ck_assert(!rig_done(rig, 0, stuck));
    for (end = rig_now(rig) + 300 * RIG_MS; rig_now(rig) < end && !rig_done(rig, 0, stuck);) {
        ck_assert_int_ge(rig_irecv1(rig, (uint8_t *)small + 1024, 8, 1, r_small), 0);
        rig_send_wait(rig, small, 8, 1, s_small);
        rig_run(rig, 10 * RIG_MS);
    }
    ck_assert_msg(rig_done(rig, 0, stuck),
                  "the work request without completion is not looked for while others end");
    finish(1, BIG, RIG_S);
    found_as(0, IB_FAULT_SILENT);
    rig_dereg(rig, 0, s_small);
    rig_dereg(rig, 1, r_small);
    stop();
}
END_TEST

/* R's send queue is full of writes that nothing confirms. */
START_TEST(full_send_queue_of_the_receiver)
{
    struct ib_path *path;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(4, 100);
    rig_run(rig, RIG_S);
    path = &rig->side[1].comm->conn.path[0];
    rig->side[0].asleep = 1;
    for (int i = 0; i < 200; i++) {
        rig_irecv1(rig, in[0], 8, i, r_mr);
        if (i == 0) {
            fire("h1:n0 blackhole-tx");
        }
    }
    path->sq.used = (uint16_t)path->cap.sq_depth; /* acknowledgements alone took what CTS leave */
    ck_assert_msg(rig_until(rig, path_0_is_down, 300 * RIG_MS), "not found, %u of %u in use",
                  path->sq.used, path->cap.sq_depth);
    ck_assert_int_eq(fault_at(1, 0), IB_FAULT_SILENT);
    rig->side[0].asleep = 0;
    rig->side[1].tail = rig->side[1].head;
    stop();
}
END_TEST

/* What has been seen of the rate bounds the wait, also where no tick ever found work under way. */
START_TEST(short_bursts_measure_the_rate)
{
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 16; k++) {
            recv_post(k, BIG);
            send_post(k, BIG);
        }
        finish(16, BIG, RIG_S);
        rig_run(rig, 20 * RIG_MS);
    }
    for (int k = 0; k < 32; k++) {
        recv_post(k, BIG);
    }
    rig_run(rig, RIG_MS);
    fire("h1:n0 blackhole");
    for (int k = 0; k < 32; k++) {
        send_post(k, BIG);
    }
    took = finish(32, BIG, 2 * RIG_S); /* 2 MiB: 0.84 s at the rate of a path that was never
                                          measured, four times over */
    ck_assert_msg(took < 300 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

/* Queue pairs that have lost their address reach nobody: the event asks, nobody has to be silent
 * for T_suspect first. */
START_TEST(a_changed_address_is_asked_about)
{
    uint64_t since;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_T_SUSPECT=600", NULL});
    wait_probes();
    messages(8, BIG);
    fire(_i ? "h1:n0 gid-change" : "h0:n0 gid-change");
    since = rig_now(rig);
    ck_assert_msg(rig_until(rig, path_0_is_down, 2 * RIG_S), "path 0 is up");
    ck_assert_uint_lt(rig_now(rig) - since, 100 * RIG_MS);
    found_as(0, IB_FAULT_SILENT);
    messages(8, BIG);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("watchdog");
    TCase *t = tcase_create("watchdog");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_changed_address_is_asked_about, 0, 2);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_loop_test(t, silence_is_found_and_traffic_goes_on, 0, 4 * SILENCES);
    tcase_add_loop_test(t, lost_cts_is_found_by_the_receiver, 0, 4);
    tcase_add_test(t, lost_last_ack_with_an_idle_receiver);
    tcase_add_test(t, last_ack_lost_behind_the_nic_of_the_sender);
    tcase_add_loop_test(t, acknowledged_and_not_delivered, 0, 2);
    tcase_add_loop_test(t, claims_name_the_path_that_lost, 0, 3);
    tcase_add_test(t, suspicion_reads_the_port);
    tcase_add_loop_test(t, stuck_queue_pair_on_a_pair_that_answers, 0, 2);
    tcase_add_test(t, hang_where_nobody_can_be_asked);
    tcase_add_test(t, silence_of_one_path_beside_one_that_moves);
    tcase_add_test(t, full_send_queue_of_the_receiver);
    tcase_add_test(t, short_bursts_measure_the_rate);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
