/* A CTS that the sender's NIC has acknowledged and lost (docs/health.md): nobody has
 * anything outstanding, and S has to ask. */
#include "tests/unit/suite.h"
#include "tests/unit/watch_rig.h"

#define S_COMM (rig->side[0].comm)
#define R_COMM (rig->side[1].comm)

/* The CTS of all open receives are gone from the memory of S, as if its NIC had died between
 * acknowledging and writing them. */
static void lose_cts(void)
{
    int lost = 0;

    for (int p = 0; p < S_COMM->conn.npaths; p++) {
        struct ib_ring *ring = S_COMM->conn.path[p].mem.ring;

        for (uint64_t seq = S_COMM->tx->cts_seen; seq < R_COMM->rx->ledger.rpost; seq++) {
            struct ib_cts *e = &ring->entry[seq % R2_LEDGER_WINDOW];

            lost += e->seq == seq && e->n != 0;
            memset(e, 0xff, sizeof(*e));
        }
    }
    ck_assert_int_gt(lost, 0);
}

/* S's NCCL was elsewhere meanwhile; R has had its control writes confirmed long ago. */
static void receives_wait(int n)
{
    rig->side[0].asleep = 1;
    for (int i = 0; i < n; i++) {
        recv_post(i, BIG);
    }
    rig_run(rig, RIG_S);
    ck_assert_int_eq(R_COMM->conn.path[0].sq.ctl_run, 0); /* confirmed */
    rig->side[0].asleep = 0;
}

START_TEST(a_lost_cts_is_asked_for)
{
    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(3, BIG);
    receives_wait(8);
    lose_cts();
    for (int i = 0; i < 8; i++) {
        send_post(i, BIG);
    }
    ck_assert_uint_lt(finish(8, BIG, 5 * RIG_S), RIG_S);
    ck_assert_uint_ge(rig_count(rig, 0, FO_MSG_CTS_REQUEST), 1);
    ck_assert_uint_le(rig_count(rig, 0, FO_MSG_CTS_REQUEST), 2);
    nothing_moved();
    messages(3, BIG);
    stop();
}
END_TEST

/* And the NIC that lost it is dead: the other path has the CTS, and is found to be the better one.
 */
START_TEST(and_the_nic_is_dead)
{
    start(2, (const char *[]){QUIET_RC, "NCCL_R2_LOOK=60000", NULL});
    wait_probes();
    messages(3, BIG);
    receives_wait(4);
    lose_cts();
    fire(_i == 0 ? "h0:n0 hang" : _i == 1 ? "h0:n0 blackhole" : "h0:n0 blackhole-rx");
    for (int i = 0; i < 4; i++) {
        send_post(i, BIG);
    }
    finish(4, BIG, 5 * RIG_S);
    ck_assert_msg(rig_until(rig, path_0_is_down, 5 * RIG_S), "path 0 is up");
    messages(3, BIG);
    stop();
}
END_TEST

/* A receiver that is slow: S asks, less and less often, and nothing comes of it. */
START_TEST(a_slow_receiver_is_left_in_peace)
{
    uint64_t wrs;
    unsigned asked;

    start(2, (const char *[]){QUIET_RC, NULL});
    wait_probes();
    messages(3, BIG);
    rig_run(rig, RIG_S);
    wrs = R_COMM->conn.path[0].count.wrs + R_COMM->conn.path[1].count.wrs;
    for (int i = 0; i < 10000; i++) { /* isend that finds nothing, for 10 s */
        ck_assert_int_eq(rig_isend(rig, out[0], BIG, 0, s_mr), -1);
        rig_turn(rig, RIG_MS);
    }
    asked = rig_count(rig, 0, FO_MSG_CTS_REQUEST);
    ck_assert_uint_ge(asked, 8);
    ck_assert_uint_le(asked, 16);
    ck_assert_uint_eq(R_COMM->conn.path[0].count.wrs + R_COMM->conn.path[1].count.wrs, wrs);
    ck_assert_uint_eq(rig_count(rig, 1, FO_MSG_CTS_REQUEST), 0);
    nothing_moved();
    messages(3, BIG);
    stop();
}
END_TEST

/* Nobody wants to send: nobody asks. */
START_TEST(an_idle_sender_does_not_ask)
{
    start(2, (const char *[]){_i ? "NCCL_R2_WATCHDOG=off" : QUIET_RC, NULL});
    messages(3, BIG);
    for (int i = 0; i < 2000; i++) {
        if (_i) {
            ck_assert_int_eq(rig_isend(rig, out[0], BIG, 0, s_mr), -1);
        }
        rig_turn(rig, RIG_MS);
    }
    ck_assert_uint_eq(rig_count(rig, 0, FO_MSG_CTS_REQUEST), 0);
    stop();
}
END_TEST

/* Late, repeated, absurd: what is open is written again at most, and S takes each once. */
START_TEST(any_number_may_come)
{
    static const uint64_t seq[] = {0, 1, 2, 3, 255, 256, 257, 1ull << 32, ~0ull};
    union fo_body b = {.cts_request = {0}};

    start(3, (const char *[]){QUIET_RC, NULL});
    messages(5, BIG);
    b.cts_request.dst = R_COMM->id;
    b.cts_request.src = S_COMM->id;
    for (int i = 0; i < 6; i++) {
        recv_post(i, BIG);
    }
    for (int k = 0; k < 3; k++) {
        for (unsigned i = 0; i < sizeof(seq) / sizeof(seq[0]); i++) {
            b.cts_request.seq = seq[i];
            rig_inject(rig, 1, FO_MSG_CTS_REQUEST, &b);
            rig_run(rig, 50 * RIG_US);
        }
    }
    for (int i = 0; i < 6; i++) {
        send_post(i, BIG);
    }
    finish(6, BIG, 5 * RIG_S);
    b.cts_request.dst = S_COMM->id; /* to a sender */
    b.cts_request.src = R_COMM->id;
    b.cts_request.seq = 0;
    rig_inject(rig, 0, FO_MSG_CTS_REQUEST, &b);
    messages(5, BIG);
    nothing_moved();
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_lost_cts_is_asked_for);
    tcase_add_loop_test(t, and_the_nic_is_dead, 0, 3);
    tcase_add_test(t, a_slow_receiver_is_left_in_peace);
    tcase_add_loop_test(t, an_idle_sender_does_not_ask, 0, 2);
    tcase_add_test(t, any_number_may_come);
}

int main(void)
{
    return suite_run("a CTS that is lost", 60, NULL, teardown, add);
}
