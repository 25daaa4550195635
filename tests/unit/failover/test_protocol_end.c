/* Directed scenarios of ends: options that end or steer a connection, the last path, close and
 * abort on dead hardware (P22, P25-P27). */
#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_log.h"

#define BIG 65536

static struct rig *rig;
static uint8_t out[8][BIG], in[8][BIG];
static struct ib_mr *s_mr, *r_mr;

static void teardown(void)
{
    rig_destroy(rig);
    rig = NULL;
}

static void connect_and_register(void)
{
    rig_connect(rig, 0, 0);
    memset(in, 0, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static void start(int nics, const char *const *options)
{
    rig = rig_create(nics, 0, options);
    connect_and_register();
}

static void stop(void)
{
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

static void begin(int i, size_t size)
{
    memset(out[i], 0x11 * (i + 1), size);
    ck_assert_int_ge(rig_irecv1(rig, in[i], size, 0, r_mr), 0);
    rig_send_wait(rig, out[i], size, 0, s_mr);
}

static void message(size_t size)
{
    begin(0, size);
    ck_assert(rig_until(rig, rig_all_done, 10 * RIG_S));
    ck_assert_int_eq(memcmp(in[0], out[0], size), 0);
    memset(in[0], 0, size);
}

/* What both ends say when they have ended. */
static void both_fail_within(uint64_t ns, const char *says)
{
    ck_assert(rig_until(rig, rig_both_failed, ns));
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], says) && strstr(rig->last_warn[1], says), "%s / %s",
                  rig->last_warn[0], rig->last_warn[1]);
}

/* --- options --- */

START_TEST(failover_off_ends_with_the_first_failure)
{
    start(3, (const char *[]){"NCCL_R2_FAILOVER=off", NULL});
    ck_assert_int_eq(rig->side[0].comm->conn.npaths, 1);
    message(100);
    rig->side[1].asleep = 1;
    begin(0, 100);
    rig_fault(rig, "h0:n0 down");
    rig->side[1].asleep = 0;
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    both_fail_within(RIG_S, "NCCL_R2_FAILOVER=off");
    stop();
}
END_TEST

START_TEST(failover_off_at_one_end_is_one_path)
{
    start(3, (const char *[]){_i ? "0:NCCL_R2_FAILOVER=off" : "1:NCCL_R2_FAILOVER=off", NULL});
    message(100);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig->side[_i ? 0 : 1].comm->fo.error, R2_ERR_COMM);
    stop();
}
END_TEST

START_TEST(min_nics_ends_below_it)
{
    start(3, (const char *[]){"NCCL_R2_MIN_NICS=2", NULL});
    message(100);
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 100 * RIG_MS);
    message(100);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    rig_fault(rig, "h1:n2 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_isend(rig, out[1], 100, 0, s_mr), -1);
    both_fail_within(RIG_S, "NCCL_R2_MIN_NICS=2");
    stop();
}
END_TEST

/* A connection that never had as many says so at once. */
START_TEST(min_nics_holds_from_the_start)
{
    rig = rig_create(2, 0, (const char *[]){"NCCL_R2_MIN_NICS=2", NULL});
    rig_fault(rig, "h0:n1 down");
    rig_run(rig, 300 * RIG_MS);
    connect_and_register();
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig_irecv1(rig, in[1], 100, 0, r_mr), -1);
    ck_assert_int_eq(rig_isend(rig, out[1], 100, 0, s_mr), -1);
    both_fail_within(RIG_S, "NCCL_R2_MIN_NICS=2");
    stop();
}
END_TEST

START_TEST(min_nics_more_than_there_are)
{
    start(2, (const char *[]){"NCCL_R2_MIN_NICS=3", NULL});
    ck_assert_int_eq(rig_irecv1(rig, in[1], 100, 0, r_mr), -1);
    ck_assert_int_eq(rig_isend(rig, out[1], 100, 0, s_mr), -1);
    both_fail_within(RIG_S, "NCCL_R2_MIN_NICS=3");
    stop();
}
END_TEST

/* After the primary's death: all survivors, or the first backup alone, retransmissions included. */
START_TEST(balance_spreads_over_survivors_and_off_does_not)
{
    const struct ib_conn *l;

    start(4, (const char *[]){_i ? "NCCL_R2_BALANCE=on" : "NCCL_R2_BALANCE=off",
                              "NCCL_R2_CUT_MIN=1024", NULL});
    l = &rig->side[0].comm->conn;
    message(BIG);
    ck_assert_uint_eq(l->path[0].count.bytes, BIG);
    rig_fault(rig, "h0:n0 blackhole-tx");
    for (int i = 0; i < 8; i++) { /* eight messages are retransmitted */
        begin(i, BIG);
    }
    rig_fault(rig, "h0:n0 down");
    ck_assert(rig_until(rig, rig_all_done, 10 * RIG_S));
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(memcmp(in[i], out[i], BIG), 0);
    }
    for (int i = 0; i < 20; i++) {
        message(BIG);
    }
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts, 8);
    if (_i) {
        for (int p = 1; p < 4; p++) {
            ck_assert_uint_ge(l->path[p].count.bytes, 20 * BIG / 4);
        }
    } else {
        ck_assert_uint_eq(l->path[1].count.bytes, 28 * BIG);
        ck_assert_uint_eq(l->path[2].count.bytes + l->path[3].count.bytes, 0);
    }
    stop();
}
END_TEST

START_TEST(spread_uses_all_paths_from_the_start)
{
    start(3, (const char *[]){"NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=1024", NULL});
    message(BIG);
    for (int p = 0; p < 3; p++) {
        ck_assert_uint_gt(rig->side[0].comm->conn.path[p].count.bytes, BIG / 4);
        ck_assert_uint_eq(rig->side[0].comm->conn.path[p].count.wrs, 1);
    }
    stop();
}
END_TEST

/* Both rails lose an end, and not the same one: only pairs across rails are left. */
START_TEST(backup_scope_any_goes_across_rails)
{
    rig = rig_create(2, 1, (const char *[]){"NCCL_R2_BACKUP_SCOPE=any", NULL});
    connect_and_register();
    ck_assert_int_eq(rig->side[0].comm->conn.npaths, 4);
    message(100);
    rig_fault(rig, "h0:n0 down");
    rig_fault(rig, "h1:n1 down");
    message(100);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    ck_assert_int_eq(__builtin_popcount(rig->side[0].comm->conn.up), 1);
    stop();
}
END_TEST

START_TEST(backup_scope_rail_does_not)
{
    rig = rig_create(2, 1, (const char *[]){"NCCL_R2_GIVE_UP=300", NULL});
    connect_and_register();
    ck_assert_int_eq(rig->side[0].comm->conn.npaths, 2);
    message(100);
    begin(0, 100);
    rig_fault(rig, "h0:* down");
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    both_fail_within(RIG_S, "no path left for 300 ms");
    stop();
}
END_TEST

static int has_failed(struct rig *r)
{
    return r->side[r->filter_count].comm->fo.error != R2_OK;
}

/* The end that gives up first tells the other one, whose own time is not over: why is said there,
 * too. */
START_TEST(who_gives_up_later_says_why)
{
    rig = rig_create(
        2, 0, (const char *[]){_i ? "1:NCCL_R2_GIVE_UP=300" : "0:NCCL_R2_GIVE_UP=300", NULL});
    connect_and_register();
    message(100);
    begin(0, 100);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    rig_fault(rig, "h0:* down");
    rig->filter_count = _i;
    ck_assert(rig_until(rig, has_failed, RIG_S));
    rig_dereg(rig, _i, _i ? r_mr : s_mr);
    rig_close(rig, _i);
    rig->filter_count = !_i;
    ck_assert(rig_until(rig, has_failed, RIG_S));
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[!_i],
                         _i ? "the receiver closed its end before it had everything; no path for "
                            : "the sender aborted; no path for ") &&
                      strstr(rig->last_warn[!_i], " ms; last: "),
                  "%s", rig->last_warn[!_i]);
    rig_dereg(rig, !_i, _i ? s_mr : r_mr);
}
END_TEST

/* ... also where all that is heard of it is that it does not know the connection any more, or
 * nothing at all about a path that went first. */
START_TEST(who_is_left_alone_says_why)
{
    union fo_body b = {.bye_ok = {0}};
    const int silent = _i / 2, side = _i % 2;

    rig = rig_create(2, 0, (const char *[]){silent ? "NCCL_R2_GIVE_UP=300" : NULL, NULL});
    connect_and_register();
    message(100);
    begin(0, 100);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    if (silent) {
        rig_oob_cut(rig, 1);
        rig_fault(rig, "*:n0 down");
        rig_run(rig, 100 * RIG_MS);
        rig_fault(rig, "*:n1 down");
    } else {
        rig_fault(rig, "*:* down");
        rig_run(rig, 100 * RIG_MS);
        b.bye_ok.dst = rig->side[side].comm->id;
        b.bye_ok.src = rig->side[!side].comm->id;
        rig_inject(rig, side, FO_MSG_GONE, &b);
    }
    rig->filter_count = side;
    ck_assert(rig_until(rig, has_failed, RIG_S));
    r2_log_flush();
    ck_assert_msg(
        strstr(rig->last_warn[side], silent ? "nothing from the peer about path 0 for 300 ms"
                                            : "the peer does not know the connection any more") &&
            strstr(rig->last_warn[side], "; no path for ") &&
            strstr(rig->last_warn[side], " ms; last: "),
        "%s", rig->last_warn[side]);
    rig_oob_cut(rig, 0);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/* ... and where nothing was outstanding when the receiver went. */
START_TEST(who_sends_after_the_receivers_end_says_why)
{
    start(2, NULL);
    message(100);
    rig_fault(rig, "h0:* down");
    rig_run(rig, 100 * RIG_MS);
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig->side[0].comm->fo.error, R2_OK);
    ck_assert_int_lt(rig_isend(rig, out[1], 100, 0, s_mr), 0);
    ck_assert_int_eq(rig->side[0].comm->fo.error, R2_ERR_PEER);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], "the receiver has closed its end; no path for ") &&
                      strstr(rig->last_warn[0], " ms; last: "),
                  "%s", rig->last_warn[0]);
    rig_dereg(rig, 0, s_mr);
}
END_TEST

static int send_done(struct rig *r)
{
    return r->side[0].head == r->side[0].tail;
}

/* e2e waits for the process at the other end, cqe for its NIC. Less than T_suspect: after it S asks
 * and R's service thread answers. */
START_TEST(ack_cqe_needs_no_receiver)
{
    start(2, (const char *[]){_i ? "0:NCCL_R2_ACK=cqe" : "0:NCCL_R2_ACK=e2e", NULL});
    message(100);
    ck_assert_int_ge(rig_irecv1(rig, in[0], 100, 0, r_mr), 0);
    rig->side[1].asleep = 1;
    rig_send_wait(rig, out[0], 100, 0, s_mr);
    ck_assert_int_eq(rig_until(rig, send_done, 20 * RIG_MS), _i);
    rig->side[1].asleep = 0;
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    stop();
}
END_TEST

/* A work request that failed is no delivery in either mode. */
START_TEST(ack_cqe_counts_good_completions_only)
{
    start(2, (const char *[]){"NCCL_R2_ACK=cqe", NULL});
    message(100);
    rig->side[1].asleep = 1;
    ck_assert_int_ge(rig_irecv1(rig, in[0], 100, 0, r_mr), 0);
    rig_oob_cut(rig, 1); /* no settlement: only the failed completion is there */
    rig_run(rig, RIG_MS);
    rig_fault(rig, "h0:n0 blackhole-tx");
    rig_send_wait(rig, out[0], 100, 0, s_mr);
    rig_run(rig, RIG_MS);
    rig_fault(rig, "h0:n0 qp-error");
    ck_assert(!rig_until(rig, send_done, RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    rig_oob_cut(rig, 0);
    rig->side[1].asleep = 0;
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_int_eq(memcmp(in[0], out[0], 100), 0);
    stop();
}
END_TEST

/* --- ends --- */

static const char *const dead[] = {"* fatal", "* remove", "* hang", "* down", "* blackhole"};
#define DEAD    (int)(sizeof(dead) / sizeof(dead[0]))
#define HANGS   2
#define REMOVED 1

/* Requests outstanding, every NIC of one or both hosts dead in each way: close returns, nothing is
 * left. */
START_TEST(close_with_requests_on_dead_hardware)
{
    static const char *const where[] = {"h0:", "h1:", "*:"};
    char text[32];
    uint64_t before;

    start(2, (const char *[]){"NCCL_R2_LINGER=500", NULL});
    message(100);
    rig->side[1].asleep = 1;
    for (int i = 0; i < 4; i++) {
        begin(i, BIG);
    }
    ck_assert_uint_eq(rig->side[0].tail - rig->side[0].head + rig->side[1].tail - rig->side[1].head,
                      8);
    strcpy(text, where[_i % 3]);
    strcat(text, dead[_i / 3]);
    rig_fault(rig, text);
    if (_i % 2) {
        rig_run(rig, 10 * RIG_MS); /* the failure is known, fences are under way */
    }
    before = rig_now(rig);
    stop(); /* as NCCL does on abort */
    /* P27: dead devices are not waited for; one that answers and flushes nothing is, at either end,
     * for T_fence and half of T_pcie; at the receiver one that was removed, for T_pcie */
    ck_assert_uint_lt(rig_now(rig) - before, _i / 3 == HANGS     ? 62 * RIG_MS
                                             : _i / 3 == REMOVED ? 21 * RIG_MS
                                                                 : RIG_MS);
    before = rig_now(rig);
    rig_close(rig, 0);
    rig_close(rig, 1);
    ck_assert_uint_eq(rig_now(rig), before);
    rig_run(rig, 5 * RIG_S);
    ck_assert_int_eq(rig_comms(rig, 0), 0);
    ck_assert_int_eq(rig_comms(rig, 1), 0);
}
END_TEST

static int receiver_failed(struct rig *r)
{
    return r->side[1].status != R2_OK;
}

START_TEST(abort_of_one_end_ends_the_other)
{
    start(2, NULL);
    message(100);
    rig->side[1].asleep = 1;
    begin(0, BIG);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig->side[1].asleep = 0;
    ck_assert(rig_until(rig, receiver_failed, RIG_S));
    ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
    rig_dereg(rig, 1, r_mr);
}
END_TEST

/* P26: R is done and closes; its last ack never arrives; the path dies. S's send ends well all the
 * same. */
START_TEST(tombstone_gives_the_last_acknowledgement)
{
    start(2, NULL);
    message(100);
    rig->side[0].asleep = rig->side[1].asleep = 1;
    begin(0, 100);
    rig_run(rig, 5 * RIG_US);
    rig_fault(rig, "h1:n0 blackhole-tx");
    rig->side[1].asleep = 0;
    rig_run(rig, RIG_MS);
    ck_assert_int_eq(rig->side[1].head, rig->side[1].tail); /* R has all of it */
    ck_assert_int_eq(memcmp(in[0], out[0], 100), 0);
    rig->side[0].asleep = 0;
    rig_run(rig, 100 * RIG_US);
    ck_assert(!send_done(rig)); /* S has not heard */
    rig->side[0].asleep = 1;
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, 1);
    rig_fault(rig, "h0:n0 down");
    rig->side[0].asleep = 0;
    ck_assert(rig_until(rig, send_done, RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->fo.switches, 1);
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts, 0);
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig_run(rig, RIG_S);
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
}
END_TEST

/* One NIC after another, at either end, with traffic: the last path carries everything, then both
 * ends say why. */
START_TEST(one_by_one_to_the_last_path)
{
    start(4, (const char *[]){"NCCL_R2_GIVE_UP=300", NULL});
    for (int n = 0; n < 3; n++) {
        char text[32] = "h0:n0 down";

        text[1] = (char)('0' + n % 2);
        text[4] = (char)('0' + n);
        for (int i = 0; i < 8; i++) {
            begin(i, BIG);
        }
        rig_fault(rig, text);
        ck_assert(rig_until(rig, rig_all_done, RIG_S));
        for (int i = 0; i < 8; i++) {
            ck_assert_int_eq(memcmp(in[i], out[i], BIG), 0);
        }
    }
    ck_assert_int_eq(__builtin_popcount(rig->side[0].comm->conn.up), 1);
    begin(0, BIG);
    ck_assert_int_ge(rig_irecv1(rig, in[1], 100, 0, r_mr), 0);
    rig_fault(rig, "h1:n3 fatal");
    both_fail_within(2 * RIG_S, "no path left for 300 ms");
    stop();
}
END_TEST

static int both_have_switched(struct rig *r)
{
    return r->side[0].comm->fo.switches == 1 && r->side[1].comm->fo.switches == 1;
}

/* R's last acknowledgement is lost and NCCL does not call R any more: S must still end. */
START_TEST(ack_lost_while_the_receiver_idles)
{
    start(2, NULL);
    message(100);
    rig->side[0].asleep = rig->side[1].asleep = 1;
    begin(0, 100);
    rig_run(rig, 5 * RIG_US); /* the data is there and acknowledged by the NIC */
    rig_fault(rig, "h1:n0 blackhole-tx");
    rig->side[1].asleep = 0;
    rig_run(rig, RIG_MS);
    ck_assert_int_eq(rig->side[1].head, rig->side[1].tail); /* R has reported its receive */
    ck_assert_int_eq(memcmp(in[0], out[0], 100), 0);
    rig->side[0].asleep = 0;
    rig_run(rig, 100 * RIG_US);
    ck_assert(!send_done(rig));
    ck_assert(rig_until(rig, send_done, 10 * RIG_S));
    ck_assert(rig_until(rig, both_have_switched, 10 * RIG_S));
    ck_assert_uint_eq(rig->side[0].comm->tx->count.retransmitted_parts, 0);
    stop();
}
END_TEST

static void add_options(TCase *t)
{
    tcase_add_test(t, failover_off_ends_with_the_first_failure);
    tcase_add_loop_test(t, failover_off_at_one_end_is_one_path, 0, 2);
    tcase_add_test(t, min_nics_ends_below_it);
    tcase_add_test(t, min_nics_holds_from_the_start);
    tcase_add_test(t, min_nics_more_than_there_are);
    tcase_add_loop_test(t, balance_spreads_over_survivors_and_off_does_not, 0, 2);
    tcase_add_test(t, spread_uses_all_paths_from_the_start);
    tcase_add_test(t, backup_scope_any_goes_across_rails);
    tcase_add_test(t, backup_scope_rail_does_not);
    tcase_add_loop_test(t, ack_cqe_needs_no_receiver, 0, 2);
    tcase_add_test(t, ack_cqe_counts_good_completions_only);
}

int main(void)
{
    Suite *s = suite_create("protocol: ends");
    TCase *t = tcase_create("ends");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    add_options(t);
    tcase_add_loop_test(t, close_with_requests_on_dead_hardware, 0, 3 * DEAD);
    tcase_add_test(t, abort_of_one_end_ends_the_other);
    tcase_add_test(t, tombstone_gives_the_last_acknowledgement);
    tcase_add_loop_test(t, who_gives_up_later_says_why, 0, 2);
    tcase_add_loop_test(t, who_is_left_alone_says_why, 0, 4);
    tcase_add_test(t, who_sends_after_the_receivers_end_says_why);
    tcase_add_test(t, one_by_one_to_the_last_path);
    tcase_add_test(t, ack_lost_while_the_receiver_idles);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
