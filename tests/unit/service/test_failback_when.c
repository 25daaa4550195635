/* When a path may return: policy, hold time, damping, fences, the last path, NICs dead at start;
 * and what must go on meanwhile. */
#include "tests/unit/failback_rig.h"

#include <stdio.h>

#include "plugin/probe/health/r2_pair.h"
#include "plugin/service/r2_reconnect.h"

#define HOLD (50 * RIG_MS)

static void flap(const char *nic, uint64_t down_ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%s down", nic);
    rig_fault(rig, text);
    rig_run(rig, down_ns);
    snprintf(text, sizeof(text), "%s up", nic);
    rig_fault(rig, text);
}

/* --- policy --- */

START_TEST(never_is_never_wherever_it_is_said)
{
    start(2, (const char *[]){_i ? "1:NCCL_R2_FAILBACK=never" : "0:NCCL_R2_FAILBACK=never", NULL});
    flap("h0:n0", RIG_MS);
    for (int i = 0; i < 60; i++) {
        messages(1);
        rig_run(rig, RIG_S);
    }
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert_uint_eq(inc(0, 0), 1);
    /* a receiver that may not have it asks ever more rarely */
    ck_assert_uint_le(rig_count(rig, 1, FO_MSG_OPEN), 16);
    ck_assert_int_eq(rig_count(rig, 1, FO_MSG_OPEN) > 0, !_i);
    stop();
}
END_TEST

/* --- hold time and damping --- */

START_TEST(each_failure_soon_after_a_return_doubles_the_hold)
{
    uint64_t took[4];

    start(2, NULL);
    for (unsigned i = 0; i < 4; i++) {
        rig_run(rig, 120 * RIG_MS); /* longer than a packet incarnations, shorter than what counts
                                       as lasting */
        flap("h1:n0", RIG_MS);
        took[i] = wait_up(0, 2 + i);
        messages(1);
    }
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_ge(took[i], HOLD << i);
        ck_assert_uint_le(took[i], (HOLD << i) + (HOLD << i) / 4 + 20 * RIG_MS);
    }
    rig_run(rig, 5 * RIG_S); /* ten holds: it lasts */
    flap("h1:n0", RIG_MS);
    ck_assert_uint_le(wait_up(0, 6), 2 * HOLD);
    carries(0);
    stop();
}
END_TEST

static int answers_again(struct rig *r)
{
    for (const struct r2_pair *p = r->side[1].inst->index.pairs; p; p = p->next) {
        if (p->nic == 0 && p->probation.good_since) {
            return 1;
        }
    }
    return 0;
}

/* A NIC that is away in between, at either end, makes the hold time begin anew. */
START_TEST(the_hold_time_is_without_a_miss)
{
    uint64_t since;

    start(2, NULL);
    rig_fault(rig, "h0:n0 down");
    wait_settled(0);
    rig_fault(rig, "h0:n0 up");
    ck_assert(rig_until(rig, answers_again, RIG_S));
    rig_run(rig, HOLD * 8 / 10);
    ck_assert(!is_up(1, 0));
    since = rig_now(rig);
    flap(_i ? "h1:n0" : "h0:n0", 0);
    wait_up(0, 2);
    ck_assert_uint_ge(rig_now(rig) - since, HOLD);
    carries(0);
    stop();
}
END_TEST

/* However long it was away, and however rarely it is asked by then: the announcement of either end
 * asks at once. */
START_TEST(a_port_that_comes_back_is_asked_at_once)
{
    start(2, NULL);
    rig_fault(rig, _i ? "h1:n0 down" : "h0:n0 down");
    wait_settled(0);
    rig_run(rig, 100 * RIG_S);
    rig_fault(rig, _i ? "h1:n0 up" : "h0:n0 up");
    ck_assert_uint_le(wait_up(0, 2), HOLD + 30 * RIG_MS);
    carries(0);
    stop();
}
END_TEST

START_TEST(a_storm_costs_few_incarnations)
{
    start(2, NULL);
    for (int i = 0; i < 300; i++) {
        flap(i & 1 ? "h0:n0" : "h1:n0", (uint64_t)(i % 7) * RIG_MS / 2);
        if (i % 10 == 0) {
            messages(1);
        }
        rig_run(rig, (uint64_t)(i % 5) * RIG_MS);
    }
    ck_assert_uint_le(inc(1, 0), 4);
    wait_up(0, inc(1, 0));
    ck_assert_uint_ge(inc(1, 0), 2);
    ck_assert_uint_ge(comm(0)->fo.switches, 1);
    carries(0);
    stop();
}
END_TEST

/* Without an event: silence took it, an answer brings it back. */
START_TEST(a_blackhole_that_ends_is_found)
{
    start(2, NULL);
    rig_fault(rig, "h0:n0 blackhole");
    begin_message();
    end_message();
    wait_settled(0);
    rig_run(rig, 3 * RIG_S);
    ck_assert(!is_up(1, 0));
    rig_fault(rig, "h0:n0 restore");
    ck_assert_uint_le(wait_up(0, 2), 30 * HOLD + RIG_S);
    carries(0);
    stop();
}
END_TEST

/* --- what returns --- */

START_TEST(new_addresses_are_used)
{
    start(2, NULL);
    rig_fault(rig, _i ? "h1:n0 gid-change" : "h0:n0 gid-change");
    begin_message();
    end_message();
    wait_settled(0);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* It never stood; later it does. */
START_TEST(a_path_that_could_not_be_built_at_start_comes_later)
{
    create(2, NULL);
    rig_fault(rig, _i ? "h1:n1 mr-fail" : "h0:n1 mr-fail");
    rig_connect(rig, 0, 0);
    ck_assert(!is_up(0, 1) && !is_up(1, 1));
    rig_fault(rig, _i ? "h1:n1 restore" : "h0:n1 restore");
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    wait_up(1, 2);
    carries(1);
    stop();
}
END_TEST

START_TEST(a_nic_that_is_down_at_start_comes_later)
{
    create(2, NULL);
    rig_fault(rig, _i ? "h1:n0 down" : "h0:n0 down");
    join();
    messages(4);
    rig_run(rig, 2 * RIG_S);
    rig_fault(rig, _i ? "h1:n0 up" : "h0:n0 up");
    ck_assert_uint_le(wait_up(0, 2), HOLD + 30 * RIG_MS);
    carries(0);
    stop();
}
END_TEST

/* Ends that could only fence softly: the path returns when the queue pair is quiet after all, not
 * before. */
START_TEST(a_driver_that_hung_is_waited_for)
{
    start(2, (const char *[]){"NCCL_R2_T_DEAD=300", NULL});
    begin_message();
    rig_fault(rig, _i ? "h1:n0 hang" : "h0:n0 hang");
    end_message();
    rig_enter(&rig->side[0]);
    fo_fault(&comm(0)->fo, 0, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
    wait_settled(0);
    rig_run(rig, 5 * RIG_S); /* whatever held is over: time has stood in for proof */
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert_uint_eq(inc(1, 0), 1);
    rig_fault(rig, _i ? "h1:n0 unhang" : "h0:n0 unhang");
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* Memory that is flushed as a GPU's is: the hold of PCIe comes first, and the lanes of the NIC go
 * on. */
START_TEST(flushed_memory_returns_too)
{
    start(2, (const char *[]){"NCCL_R2_FLUSH=always", NULL});
    messages(2);
    begin_message();
    rig_fault(rig, "h1:n0 down");
    end_message();
    wait_settled(0);
    rig_fault(rig, "h1:n0 up");
    wait_up(0, 2);
    carries(0);
    ck_assert_uint_eq(comm(1)->flush.lane->lacks, 0);
    stop();
}
END_TEST

/* --- the last path --- */

/* A message of which the receive was there before all paths were lost. */
static void begin_without_path(void)
{
    uint64_t *o = out[count % 2], *i = in[count % 2];

    for (unsigned k = 0; k < WORDS; k++) {
        o[k] = count << 32 | k;
    }
    ck_assert_int_ge(rig_irecv1(rig, i, sizeof(in[0]), 0, r_mr), 0);
    rig_run(rig, RIG_MS);
    ck_assert_int_eq(rig_isend(rig, o, 8, 99, s_mr),
                     -1); /* no receive has this tag: its CTS is read, that is all */
    rig_fault(rig, "h0:* down");
    wait_settled(0);
    wait_settled(1);
    rig_send_wait(rig, o, sizeof(out[0]), 0, s_mr);
}

START_TEST(without_any_path_one_answer_is_enough)
{
    start(2, (const char *[]){"NCCL_R2_T_RETURN=3000", "NCCL_R2_GIVE_UP=2000", NULL});
    messages(1);
    begin_without_path();
    ck_assert_uint_eq(comm(0)->conn.up | comm(1)->conn.up, 0);
    rig_run(rig, RIG_S);
    rig_fault(rig, "h0:n1 up");
    ck_assert_uint_le(wait_up(1, 2), 100 * RIG_MS);
    end_message();
    carries(1);
    stop();
}
END_TEST

START_TEST(too_late_is_too_late)
{
    start(2, (const char *[]){"NCCL_R2_GIVE_UP=2000", NULL});
    begin_message();
    rig_fault(rig, "h0:* down");
    ck_assert_int_ge(rig_irecv1(rig, in[1], 8, 0, r_mr), -1);
    ck_assert(rig_until(rig, rig_both_failed, 5 * RIG_S));
    ck_assert_uint_ge(rig_now(rig), 2 * RIG_S);
    ck_assert_ptr_nonnull(strstr(comm(0)->fo.why, "no path left for 2000 ms"));
    rig_fault(rig, "h0:* up");
    rig_run(rig, 5 * RIG_S);
    ck_assert_uint_eq(comm(0)->conn.up, 0); /* what has ended does not return */
}
END_TEST

static int all_down_lose(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_OPEN_UP;
}

static int s_failed(struct rig *r)
{
    return comm(0)->fo.error != R2_OK;
}

/* Attempts that fail do not put off the end. */
START_TEST(attempts_do_not_extend_the_wait)
{
    uint64_t since;

    start(2, (const char *[]){"NCCL_R2_GIVE_UP=12000", NULL});
    since = rig_now(rig);
    rig->filter = all_down_lose;
    rig_fault(rig, "h0:* down");
    wait_settled(0);
    wait_settled(1);
    rig_fault(rig, "h0:n0 up");
    ck_assert(rig_until(rig, s_failed, 30 * RIG_S));
    ck_assert_uint_ge(rig_now(rig) - since, 12 * RIG_S);
    ck_assert_uint_le(rig_now(rig) - since, 13 * RIG_S);
    ck_assert_uint_ge(inc(0, 0), 2);
}
END_TEST

/* A message that was begun without any path fits what the device takes, wherever it goes in the
 * end. */
START_TEST(a_message_cut_without_a_path_is_no_larger_than_a_device_takes)
{
    start(2, NULL);
    for (int i = 0; i < 2; i++) {
        rig->side[0].inst->nics.nic[i].max_msg_sz = 4096;
    }
    begin_without_path();
    ck_assert_uint_eq(comm(0)->tx->msg[0].nparts, sizeof(out[0]) / 4096);
    rig_fault(rig, "h0:* up");
    end_message();
    stop();
}
END_TEST

/* --- traffic --- */

/* A path returns while parts of a message are under way on the survivors, or wait for one. */
START_TEST(it_returns_into_a_message)
{
    start(3, NULL);
    for (uint32_t n = 2; n < 8; n++) {
        rig->side[1].asleep = 1;
        begin_message();
        rig_fault(rig, n & 1 ? "h0:n0 down" : "h1:n1 down");
        wait_settled(n & 1 ? 0 : 1);
        rig_fault(rig, n & 1 ? "h0:n0 up" : "h1:n1 up");
        wait_up(n & 1 ? 0 : 1, 2);
        rig->side[1].asleep = 0;
        end_message();
        rig_run(rig, RIG_S);
    }
    carries(0);
    carries(1);
    stop();
}
END_TEST

/* The survivors are lost in turn: after a few rounds nothing runs on a queue pair of the set-up. */
START_TEST(every_path_in_turn)
{
    char nic[8];

    start(3, NULL);
    for (int i = 0; i < 12; i++) {
        snprintf(nic, sizeof(nic), "h%d:n%d", i & 1, i % 3);
        begin_message();
        flap(nic, RIG_MS);
        end_message();
        wait_up(i % 3, 2 + (uint32_t)i / 3);
        carries(i % 3);
        rig_run(rig, 200 * RIG_MS);
    }
    for (int p = 0; p < 3; p++) {
        ck_assert_uint_eq(inc(0, p), 5);
        ck_assert_uint_eq(inc(1, p), 5);
    }
    stop();
}
END_TEST

/* The sender closes in the middle of a group: the receiver's open receives end, they do not wait
 * for what cannot come.
 */
START_TEST(a_group_that_is_matched_in_part_ends_with_its_sender)
{
    void *data[2];
    size_t sizes[2] = {8, 8};
    int tags[2] = {1, 2};

    start(2, NULL);
    data[0] = in[0];
    data[1] = in[1];
    ck_assert_int_ge(rig_irecv(rig, 2, data, sizes, tags, r_mr), 0);
    rig_send_wait(rig, out[0], 8, 2, s_mr);
    rig_run(rig, 10 * RIG_MS);
    rig_fault(rig, "h0:* qp-error"); /* the ledger tells the sender that its message is there */
    rig_run(rig, 500 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].head, rig->side[0].tail);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
}
END_TEST

/* --- many at once --- */

#define MANY 60
static struct r2_comm *many[2][MANY];
static unsigned most;

static void connect_many(void)
{
    int left = MANY;
    struct {
        struct r2_listen *listen;
        uint8_t handle[R2_NET_HANDLE_SIZE];
    } *l = calloc(MANY, sizeof(*l));

    ck_assert_ptr_nonnull(l);
    for (int i = 0; i < MANY; i++) {
        rig_enter(&rig->side[1]);
        ck_assert_int_eq(r2_net_listen(rig->side[1].inst, i % 2, l[i].handle, &l[i].listen), R2_OK);
    }
    for (uint64_t end = rig_now(rig) + 10 * RIG_S; left > 0 && rig_now(rig) < end;
         rig_run(rig, 20 * RIG_US)) {
        left = 0;
        for (int i = 0; i < MANY; i++) {
            rig_enter(&rig->side[0]);
            if (many[0][i] == NULL) {
                ck_assert_int_eq(r2_net_connect(rig->side[0].inst, i % 2, l[i].handle, &many[0][i]),
                                 R2_OK);
            }
            rig_enter(&rig->side[1]);
            if (many[1][i] == NULL) {
                ck_assert_int_eq(r2_net_accept(l[i].listen, &many[1][i]), R2_OK);
            }
            left += !many[0][i] + !many[1][i];
        }
    }
    ck_assert_int_eq(left, 0);
    for (int i = 0; i < MANY; i++) {
        rig_enter(&rig->side[1]);
        r2_net_close_listen(l[i].listen);
    }
    free(l);
}

static void count_builds(void)
{
    for (int i = 0; i < 4; i++) {
        unsigned now = rig->side[i / 2].inst->reconnect.builds[i % 2];

        most = now > most ? now : most;
    }
}

static int all_up(void)
{
    int up = 0;

    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < MANY; i++) {
            up += __builtin_popcount(many[side][i]->conn.up);
        }
    }
    return up == 2 * 2 * MANY;
}

static int none_up(struct rig *r)
{
    unsigned up = 0;

    for (int i = 0; i < MANY; i++) {
        up |= many[0][i]->conn.up | many[1][i]->conn.up;
    }
    return up == 0;
}

/* All NICs of a host are away for a moment: every connection has both paths back soon, a few at a
 * time. */
START_TEST(many_connections_return_a_few_at_a_time)
{
    uint64_t since;

    create(2, NULL);
    connect_many();
    rig_fault(rig, _i ? "h1:* down" : "h0:* down");
    ck_assert(rig_until(rig, none_up, RIG_S));
    rig_run(rig, 100 * RIG_MS);
    rig_fault(rig, _i ? "h1:* up" : "h0:* up");
    since = rig_now(rig);
    while (!all_up() && rig_now(rig) - since < 10 * RIG_S) {
        fab_inproc_step(rig->f); /* NCCL does not call */
        count_builds();
    }
    ck_assert_uint_le(rig_now(rig) - since, HOLD + 500 * RIG_MS);
    ck_assert_uint_le(most, R2_RECONNECT_AT_ONCE);
    ck_assert_uint_ge(most, R2_RECONNECT_AT_ONCE / 2);
    for (int side = 0; side < 2; side++) {
        ck_assert_uint_eq(rig->side[side].inst->reconnect.builds[0] +
                              rig->side[side].inst->reconnect.builds[1],
                          0);
        ck_assert_uint_eq(rig->side[side].inst->reconnect.waiting, 0);
        for (int i = 0; i < MANY; i++) {
            ck_assert_uint_eq(many[side][i]->conn.path[0].inc, 2);
            rig_enter(&rig->side[side]);
            r2_net_close(many[side][i]);
        }
    }
}
END_TEST

/* --- options, and a channel that is out --- */

START_TEST(under_other_options)
{
    static const char *const options[] = {"NCCL_R2_WATCHDOG=off", "NCCL_R2_SPREAD=off",
                                          "NCCL_R2_BALANCE=off",  "NCCL_R2_ACK=cqe",
                                          "NCCL_R2_T_PACKET=0",   "NCCL_R2_T_REPEAT=10000"};

    start(3, (const char *[]){options[_i], NULL});
    messages(4);
    for (uint32_t n = 2; n < 5; n++) {
        flap(n & 1 ? "h0:n0" : "h1:n0", RIG_MS);
        messages(2);
        wait_up(0, n);
        carries(0);
        rig_run(rig, RIG_S);
    }
    stop();
}
END_TEST

static int cut_at;

static int cut(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == cut_at) {
        cut_at = 0;
        rig_oob_cut(r, 1);
        return 0;
    }
    return 1;
}

/* The channel is lost with a record, for less and for longer than an exchange may take. */
START_TEST(the_channel_is_lost_in_the_middle)
{
    static const int at[] = {FO_MSG_OPEN, FO_MSG_OPEN_OK, FO_MSG_OPEN_UP};
    uint64_t took;

    start(2, NULL);
    cut_at = at[_i % 3];
    rig->filter = cut;
    flap("h0:n0", RIG_MS);
    rig_run(rig, _i < 3 ? 2 * RIG_S : 8 * RIG_S);
    ck_assert_int_eq(cut_at, 0);
    ck_assert(!is_up(0, 0));
    rig_oob_cut(rig, 0);
    took = wait_up(0, _i < 3 ? 2 : 3);
    ck_assert_uint_le(took, _i < 3 ? 20 * RIG_MS : RIG_S); /* what is unanswered is said at once */
    ck_assert_uint_eq(inc(0, 0), inc(1, 0));
    carries(0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, never_is_never_wherever_it_is_said, 0, 2);
    tcase_add_test(t, each_failure_soon_after_a_return_doubles_the_hold);
    tcase_add_loop_test(t, the_hold_time_is_without_a_miss, 0, 2);
    tcase_add_loop_test(t, a_port_that_comes_back_is_asked_at_once, 0, 2);
    tcase_add_test(t, a_storm_costs_few_incarnations);
    tcase_add_test(t, a_blackhole_that_ends_is_found);
    tcase_add_loop_test(t, new_addresses_are_used, 0, 2);
    tcase_add_loop_test(t, a_path_that_could_not_be_built_at_start_comes_later, 0, 2);
    tcase_add_loop_test(t, a_nic_that_is_down_at_start_comes_later, 0, 2);
    tcase_add_loop_test(t, a_driver_that_hung_is_waited_for, 0, 2);
    tcase_add_test(t, flushed_memory_returns_too);
    tcase_add_test(t, without_any_path_one_answer_is_enough);
    tcase_add_test(t, too_late_is_too_late);
    tcase_add_test(t, attempts_do_not_extend_the_wait);
    tcase_add_test(t, a_message_cut_without_a_path_is_no_larger_than_a_device_takes);
    tcase_add_test(t, it_returns_into_a_message);
    tcase_add_test(t, every_path_in_turn);
    tcase_add_test(t, a_group_that_is_matched_in_part_ends_with_its_sender);
    tcase_add_loop_test(t, under_other_options, 0, 6);
    tcase_add_loop_test(t, the_channel_is_lost_in_the_middle, 0, 6);
    tcase_add_loop_test(t, many_connections_return_a_few_at_a_time, 0, 2);
}

int main(void)
{
    return run_suite("fail-back: conditions", add);
}
