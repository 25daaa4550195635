/*
 * Fences on NICs whose library keeps its own account of queue pairs in ERR
 * (tests/fabric/model/fab_fault.h, `provider`): they end within milliseconds, the path returns, and
 * what such a library makes up is not taken for the NIC's word.
 */
#include "tests/unit/race_rig.h"

#include "plugin/probe/health/r2_pair.h"

#define N    8
#define SIZE 3000

static const char *const kinds[] = {"plain", "send-refused", "bnxt", "ionic", "mana"};
#define KINDS (int)(sizeof(kinds) / sizeof(kinds[0]))

static void provider(int host, const char *kind)
{
    char text[40];

    snprintf(text, sizeof(text), "h%d:* provider %s", host, kind);
    fire(text);
}

static void begin(const char *at_s, const char *at_r)
{
    race_nic.linger_ns = 5 * RIG_MS;
    start(2, (const char *[]){"NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", NULL});
    provider(0, at_s);
    provider(1, at_r);
    messages(4, SIZE);
}

static int both_hard(struct rig *r)
{
    return path_at(0, 0)->state == FO_FENCED && path_at(0, 0)->fence.stage == IB_FENCE_HARD &&
           !path_at(0, 0)->soft && path_at(1, 0)->state == FO_FENCED &&
           path_at(1, 0)->fence.stage == IB_FENCE_HARD && !path_at(1, 0)->soft;
}

static int both_down(struct rig *r)
{
    return !is_up(0, 0) && !is_up(1, 0);
}

/* How path 0 ends: by an end that is told to; by a port; by queue pairs in ERR, for which a library
 * takes no marker at all. */
static const struct {
    int admin; /* side, or -1 */
    const char *fault, *end;
} causes[] = {
    {0, NULL, NULL}, {1, NULL, NULL}, {-1, "h1:n0 down", "h1:n0 up"}, {-1, "*:n0 qp-error", NULL}};
#define CAUSES (int)(sizeof(causes) / sizeof(causes[0]))

START_TEST(ends_in_time_and_the_path_returns)
{
    const char *kind = kinds[_i % KINDS];
    int cause = _i / KINDS;
    uint64_t down;

    begin(kind, kind);
    recv_burst(N, SIZE);
    if (causes[cause].fault) {
        fire(causes[cause].fault);
    }
    send_burst(N);
    if (causes[cause].admin >= 0) {
        give_up_path(causes[cause].admin, 0);
    }
    ck_assert(rig_until(rig, both_down, 10 * RIG_S));
    down = rig_now(rig);
    finish(N, 100 * RIG_MS);
    ck_assert_msg(rig_until(rig, both_hard, 100 * RIG_MS), "%s: fence %s at S, %s at R", kind,
                  ib_fence_stage_name(path_at(0, 0)->fence.stage),
                  ib_fence_stage_name(path_at(1, 0)->fence.stage));
    ck_assert_uint_le(rig_now(rig) - down, 100 * RIG_MS);
    if (causes[cause].end) {
        fire(causes[cause].end);
    }
    wait_returned(0, 2);
    for (int host = 0; host < 2;
         host++) { /* and once more, in an incarnation that began on this library */
        give_up_path(host, 0);
        ck_assert(rig_until(rig, both_hard, 100 * RIG_MS));
        wait_returned(0, 3 + (uint32_t)host);
        messages(2, SIZE);
    }
    if (strcmp(kind, "plain") != 0 && strcmp(kind, "ionic") != 0 && cause == CAUSES - 1) {
        ck_assert_uint_gt(counters(0, 0)->posts_refused + counters(1, 0)->posts_refused, 0);
    }
    if (strcmp(kind, "bnxt") == 0 || strcmp(kind, "ionic") == 0) {
        ck_assert_uint_gt(counters(0, 0)->flushes_made_up, 0);
        ck_assert_uint_gt(counters(1, 0)->flushes_made_up, 0);
    }
    stop();
}
END_TEST

/* The marker goes out before ERR: with the NIC's own flush no fence is soft, not for a moment,
 * where posts are refused in ERR. */
START_TEST(a_refused_send_does_not_make_it_soft)
{
    begin("send-refused", "send-refused");
    recv_burst(N, SIZE);
    send_burst(N);
    give_up_path(1, 0);
    while (!both_hard(rig)) {
        ck_assert(!path_at(0, 0)->soft && !path_at(1, 0)->soft);
        rig_turn(rig, 10 * RIG_US);
        ck_assert_uint_lt(rig_now(rig), 10 * RIG_S);
    }
    ck_assert_uint_eq(counters(0, 0)->posts_refused + counters(1, 0)->posts_refused, 0);
    finish(N, 100 * RIG_MS);
    stop();
}
END_TEST

/* R's library has flushed everything, and R's NIC takes what comes in the next milliseconds: a
 * second copy must not be done meanwhile. */
START_TEST(what_a_library_makes_up_is_held_for)
{
    uint64_t down;

    begin("plain", kinds[2 + _i]);
    recv_burst(N, SIZE);
    fire("h0:n0 delay 3ms");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    give_up_path(1, 0);
    down = rig_now(rig);
    ck_assert_uint_ge(finish(N, 100 * RIG_MS), 19 * RIG_MS); /* T_pcie */
    ck_assert_uint_lt(rig_now(rig) - down, 50 * RIG_MS);
    ck_assert_uint_ge(counters(1, 0)->lingered, N); /* it did take them */
    stop();
}
END_TEST

/* S's library has flushed its sends, R cannot fence: S's NIC may read the buffers still, so they
 * are not NCCL's, whatever is acknowledged. */
START_TEST(a_sender_keeps_its_buffers_meanwhile)
{
    uint64_t down;

    begin("ionic", "plain");
    rig->side[0].inst->cfg.t_pcie_ms = 60; /* longer than R takes to find that it cannot */
    rig->side[1].inst->cfg.t_packet_ms = 5000;
    recv_burst(N, SIZE);
    fire("h1:n0 hang");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    down = rig_now(rig);
    give_up_path(1, 0);
    while (acked() < posted) { /* retransmitted on path 1 */
        rig_turn(rig, 10 * RIG_US);
        ck_assert_uint_lt(rig_now(rig) - down, 100 * RIG_MS);
    }
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(comm(0)->tx->sack, posted);
    ck_assert(!rig_done(rig, 0, slot[0].s_op));
    while (!rig_done(rig, 0, slot[N - 1].s_op)) {
        rig_turn(rig, 10 * RIG_US);
        ck_assert_uint_lt(rig_now(rig) - down, 100 * RIG_MS);
    }
    ck_assert_uint_ge(rig_now(rig) - down, 59 * RIG_MS);
    ck_assert_int_eq(path_at(0, 0)->fence.stage, IB_FENCE_HARD);
    fire("h1:n0 unhang");
    finish(N, RIG_S);
    stop();
}
END_TEST

/* A device that hangs answers no command: nothing is believed before it does. */
START_TEST(a_hung_device_is_not_believed)
{
    uint64_t back;

    begin("plain", kinds[2 + _i]);
    rig->side[1].inst->cfg.t_packet_ms = 5000; /* the way of P18 (b) would be the shorter one */
    recv_burst(N, SIZE);
    fire("h1:n0 hang");
    send_burst(N);
    give_up_path(1, 0);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_int_eq(path_at(1, 0)->fence.stage, IB_FENCE_SOFT);
    ck_assert_uint_eq(acked(), posted);
    ck_assert(!rig_done(rig, 1, slot[0].r_op));
    fire("h1:n0 unhang");
    back = rig_now(rig);
    finish(N, 2 * RIG_S);
    ck_assert_uint_le(rig_now(rig) - back, 1100 * RIG_MS); /* the next try, and T_pcie */
    ck_assert_uint_ge(rig_now(rig) - back, 19 * RIG_MS);
    wait_returned(0, 2);
    stop();
}
END_TEST

/*
 * R's device says ERR and hangs with arrivals in hand, its library has flushed them: they land when
 * it is back, however long that is. It is asked again before the flush is believed, and the second
 * copies are not done before.
 */
START_TEST(a_device_may_hang_after_its_answer)
{
    uint64_t back;

    race_nic = (struct fab_nic_cfg){.pauses = true};
    begin("plain", kinds[2 + _i]);
    rig->side[1].inst->cfg.t_packet_ms = 5000; /* the way of P18 (b) would be the shorter one */
    recv_burst(N, SIZE);
    fire("h0:n0 delay 3ms");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    give_up_path(1, 0);
    while (path_at(1, 0)->fence.erred_at == 0) {
        rig_turn(rig, 10 * RIG_US);
        ck_assert_uint_lt(rig_now(rig), 10 * RIG_S);
    }
    fire("h1:n0 hang");
    rig_run(rig, 200 * RIG_MS); /* many T_pcie */
    ck_assert_uint_eq(acked(), posted);
    ck_assert_int_eq(path_at(1, 0)->fence.stage, IB_FENCE_SOFT);
    ck_assert(!rig_done(rig, 1, slot[0].r_op));
    fire("h1:n0 unhang");
    back = rig_now(rig);
    finish(N, 2 * RIG_S);
    ck_assert_uint_ge(counters(1, 0)->lingered, N);     /* it had them in hand */
    ck_assert_uint_ge(rig_now(rig) - back, 9 * RIG_MS); /* half of T_pcie behind the answer */
    ck_assert_uint_le(rig_now(rig) - back, 1100 * RIG_MS);
    wait_returned(0, 2);
    stop();
}
END_TEST

/* A probe's queue pair that broke with nothing posted: where the library refuses the next question,
 * no completion ever says so. */
START_TEST(a_probe_that_is_refused_has_broken)
{
    struct r2_pair *pair = NULL;
    int rc;

    begin("plain", kinds[_i]);
    for (struct r2_pair *x = rig->side[1].inst->index.pairs; x; x = x->next) {
        pair = x->nic == 0 && x->peer_nic == 0 ? x : pair;
    }
    ck_assert_ptr_nonnull(pair);
    ck_assert_int_eq(pair->build.state, R2_PAIR_JOINED);
    ck_assert_uint_eq(probe_qp_out(&pair->qp), 0);
    fire("h1:n0 qp-error");
    rc = probe_qp_post(&pair->qp, 0);
    ck_assert_int_eq(rc != 0, strcmp(kinds[_i], "plain") != 0 && strcmp(kinds[_i], "ionic") != 0);
    ck_assert_int_eq(probe_qp_poll(&pair->qp), -1);
    want_path = 0;
    ck_assert(rig_until(rig, path_settled, RIG_S));
    wait_returned(0, 2);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, ends_in_time_and_the_path_returns, 0, KINDS * CAUSES);
    tcase_add_test(t, a_refused_send_does_not_make_it_soft);
    tcase_add_loop_test(t, what_a_library_makes_up_is_held_for, 0, 2);
    tcase_add_test(t, a_sender_keeps_its_buffers_meanwhile);
    tcase_add_loop_test(t, a_hung_device_is_not_believed, 0, 3);
    tcase_add_loop_test(t, a_device_may_hang_after_its_answer, 0, 3);
    tcase_add_loop_test(t, a_probe_that_is_refused_has_broken, 0, KINDS);
}

int main(void)
{
    return run_suite("fence: providers", add);
}
