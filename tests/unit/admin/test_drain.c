/* Planned drains (docs/control.md): traffic leaves a healthy NIC without a retransmission, and
 * comes back. */
#include "tests/unit/drain_rig.h"

/* Drained at either end, under traffic: what is on the way ends there, nothing is posted twice, the
 * incarnation ends, undrained it returns. */
START_TEST(traffic_leaves_and_comes_back)
{
    uint64_t s, wrs;

    start(3, NULL);
    messages(4);
    begin_message();
    drain(_i, 1);
    end_message();
    wait_settled(0);
    s = carried(0, 0);
    wrs = posted(0);
    messages(8);
    ck_assert_uint_eq(carried(0, 0), s);
    ck_assert_uint_eq(posted(0) - wrs, 16); /* two paths, one part each, nothing twice */
    ck_assert_int_eq(comm(0)->fo.path[0].why.fault, IB_FAULT_ADMIN);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    rig_run(rig, RIG_S);
    ck_assert(!is_up(0, 0) && !is_up(1, 0)); /* it does not return by itself */
    ck_assert_uint_eq(inc(1, 0), 1);
    drain(_i, 0);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

/* NCCL calls neither end: the drain must not wait for it. */
START_TEST(an_idle_connection_is_drained)
{
    start(2, NULL);
    messages(2);
    rig->side[0].asleep = rig->side[1].asleep = 1;
    drain(_i, 2);
    want_path = 1;
    ck_assert(rig_until(rig, settled, RIG_S));
    rig->side[0].asleep = rig->side[1].asleep = 0;
    messages(2);
    stop();
}
END_TEST

static int lose_questions(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_DELIVERY_QUERY && type != FO_MSG_PROBE;
}

/* What is not acknowledged is under way, even when the sender has its completion: the incarnation
 * ends after it, and nothing goes twice. */
START_TEST(what_is_under_way_arrives_first)
{
    start(2, NULL);
    messages(2);
    rig->filter = lose_questions;
    begin_message();
    rig->side[0].asleep = rig->side[1].asleep =
        1; /* the receiver is not called: it acknowledges nothing */
    ck_assert_int_gt(ib_send_live_parts(comm(0)->tx, 0, 1), 0);
    drain(_i, 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    rig->side[0].asleep = rig->side[1].asleep = 0;
    end_message();
    wait_settled(0);
    ck_assert_uint_eq(comm(0)->tx->count.retransmitted_parts, 0);
    messages(2);
    stop();
}
END_TEST

/* The bits are the NICs of who drains, whatever number they have at the other end. */
START_TEST(each_end_numbers_its_own_nics)
{
    const char *options[] = {"NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", "NCCL_R2_SPREAD=on",
                             "NCCL_R2_CUT_MIN=128", NULL};
    int other;

    rig = rig_create(2, 1, options);
    count = 0;
    rig_connect(rig, 0, 1);
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    ck_assert_int_ne(comm(0)->conn.path[0].nic,
                     comm(0)->conn.path[0].peer_nic); /* or this test tells nothing */
    messages(2);
    drain(_i, 1u << comm(_i)->conn.path[0].nic);
    wait_settled(0);
    for (other = 1; other < comm(0)->conn.npaths &&
                    comm(_i)->conn.path[other].nic == comm(_i)->conn.path[0].nic;
         other++) {
    }
    ck_assert_int_lt(other, comm(0)->conn.npaths);
    ck_assert(is_up(0, other) && is_up(1, other));
    ck_assert_uint_eq(inc(0, other), 1);
    messages(2);
    stop();
}
END_TEST

static int lost_left;
static int lose_drains(struct rig *r, int from, int type, union fo_body *body)
{
    int lost = (type == FO_MSG_DRAIN || type == FO_MSG_DRAIN_OK) && lost_left > 0;

    lost_left -= lost;
    return !lost;
}

START_TEST(the_word_is_said_until_it_is_answered)
{
    start(2, NULL);
    rig->filter = lose_drains;
    lost_left = 5;
    drain(1, 1);
    wait_settled(0);
    rig_run(rig, RIG_S);
    ck_assert_int_eq(lost_left, 0);
    ck_assert_uint_ge(rig_count(rig, 1, FO_MSG_DRAIN), 4);
    lost_left = (int)rig_count(rig, 1, FO_MSG_DRAIN);
    rig_run(rig, 5 * RIG_S);
    ck_assert_int_eq(lost_left,
                     (int)rig_count(rig, 1, FO_MSG_DRAIN)); /* answered: not said any more */
    stop();
}
END_TEST

START_TEST(late_words_change_nothing)
{
    union fo_body first = {.drain = {.nics = 1, .gen = 1}};

    start(2, NULL);
    drain(1, 1);
    wait_settled(0);
    drain(1, 0);
    wait_up(0, 2);
    rig_inject(rig, 0, FO_MSG_DRAIN, &first);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].inst->index.peers->drain.nics, 0);
    carries(0);
    /* an answer to an older word does not stop the present one */
    rig->filter = lose_drains;
    lost_left = 1000;
    drain(1, 2);
    first.drain.gen = 2;
    rig_inject(rig, 1, FO_MSG_DRAIN_OK, &first);
    rig_run(rig, 10 * RIG_MS);
    lost_left = 0;
    wait_settled(1);
    stop();
}
END_TEST

/* Bits for NICs that there are not. */
START_TEST(a_peer_may_say_anything)
{
    union fo_body b = {.drain = {.nics = 0xfffffffe, .gen = 0xffffffff}};

    start(2, NULL);
    rig_inject(rig, 0, FO_MSG_DRAIN, &b);
    wait_settled(1);
    b.drain = (struct fo_drain){.nics = 0, .gen = 0}; /* numbers wrap */
    rig_inject(rig, 0, FO_MSG_DRAIN, &b);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].inst->index.peers->drain.nics, 0);
    messages(4);
    stop();
}
END_TEST

START_TEST(a_last_path_stays)
{
    start(2, NULL);
    drain(_i, 3);
    rig_run(rig, 2 * RIG_S);
    ck_assert_int_eq(__builtin_popcount(comm(0)->conn.up),
                     2); /* both are drained, neither is worse */
    messages(4);
    drain(_i, 1);
    wait_settled(0);
    drain(_i, 3);
    rig_run(rig, 2 * RIG_S);
    ck_assert(is_up(0, 1));
    messages(4);
    stop();
}
END_TEST

/* The other NICs fail: the drained one carries on, without waiting out any hold time. */
START_TEST(drained_is_better_than_none)
{
    start(2, (const char *[]){"NCCL_R2_T_RETURN=1000", NULL});
    drain(0, 1);
    wait_settled(0);
    rig_fault(rig, "h1:n1 down");
    wait_up(0, 2);
    messages(4);
    rig_fault(rig, "h1:n1 up");
    wait_up(1, 2);
    wait_settled(0); /* and is drained again */
    messages(4);
    stop();
}
END_TEST

/* The last path falls silent where RC says nothing for long: the drained one is better than that,
 * too. */
START_TEST(drained_is_better_than_silence)
{
    static const char *const fault[] = {"h1:n1 blackhole", "h1:n1 blackhole-rx",
                                        "h0:n1 blackhole-rx", "h0:n1 hang"};
    static const char *const mend[] = {"h1:n1 restore", "h1:n1 restore", "h0:n1 restore",
                                       "h0:n1 unhang"};

    start(2, (const char *[]){"NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7", NULL});
    messages(2);
    drain(_i & 1, 1);
    wait_settled(0);
    rig_fault(rig, fault[_i / 2]);
    begin_message();
    want_path = 0;
    want_incarnation = 2;
    ck_assert_msg(rig_until(rig, up_again, 2 * RIG_S), "%s, and the drained path does not return",
                  fault[_i / 2]);
    end_message();
    ck_assert(!is_up(0, 1) && !is_up(1, 1));
    messages(2);
    rig_fault(rig, mend[_i / 2]);
    wait_up(1, 2);
    wait_settled(0); /* and is drained again */
    messages(2);
    stop();
}
END_TEST

START_TEST(not_below_the_fewest_paths)
{
    uint64_t s, r;
    uint8_t turn;

    start(2, (const char *[]){"NCCL_R2_MIN_NICS=2", NULL});
    messages(2);
    drain(0, 1);
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0)); /* its incarnation goes on */
    s = carried(0, 0);
    r = comm(1)->conn.path[0].count.wrs;
    messages(4);
    ck_assert_uint_eq(carried(0, 0), s);                   /* unused, */
    ck_assert_uint_eq(comm(1)->conn.path[0].count.wrs, r); /* by control writes, too */
    turn = comm(0)->tx->turn[1];
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(comm(0)->tx->turn[1], turn); /* and nobody waits for what cannot be */
    stop();
}
END_TEST

START_TEST(without_failover_nothing_ends)
{
    start(1, (const char *[]){"NCCL_R2_FAILOVER=off", NULL});
    drain(0, 1);
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0));
    messages(4);
    stop();
}
END_TEST

/* By the option, before any connection is made. */
START_TEST(drained_from_the_start)
{
    create(2, (const char *[]){_i ? "1:NCCL_R2_DRAIN==fab0" : "0:NCCL_R2_DRAIN==fab0", NULL});
    join();
    ck_assert_uint_eq(rig->side[_i].inst->drain.nics, 1);
    wait_settled(0);
    messages(4);
    ck_assert_uint_eq(carried(0, 0), 0);
    stop();
}
END_TEST

/* A second connection, to a process that was told long ago. */
START_TEST(a_later_connection_knows)
{
    start(2, NULL);
    drain(1, 1);
    wait_settled(0);
    rig_run(rig, RIG_S);
    stop();
    rig_close(rig, 0);
    rig_close(rig, 1);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    rig_run(rig, 40 * RIG_S); /* tombstones and peers are forgotten */
    ck_assert_int_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
    count = 0;
    join();
    wait_settled(0);
    messages(2);
    stop();
}
END_TEST

/* A buffer that only the drained NIC knows: work avoids it no further than it can. */
START_TEST(a_buffer_of_one_nic_keeps_it)
{
    create(2, NULL);
    rig_connect(rig, 0, 0);
    rig_fault(rig, _i ? "h1:n1 mr-fail" : "h0:n1 mr-fail");
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
    rig_fault(rig, _i ? "h1:n1 restore" : "h0:n1 restore");
    messages(2);
    drain(0, 1);
    rig_run(rig, RIG_S);
    ck_assert(is_up(0, 0));
    messages(4);
    stop();
}
END_TEST

/* As often as anybody likes: a drain is no failure, and the return takes its hold time and no more.
 */
START_TEST(drains_are_no_flaps)
{
    start(2, NULL);
    for (uint32_t n = 2; n < 8; n++) {
        drain((int)n & 1, 1);
        wait_settled(0);
        drain((int)n & 1, 0);
        ck_assert_uint_lt(
            wait_up(0, n),
            600 * RIG_MS); /* T_return is 50 ms, T_packet 100; doubling it would be 1.6 s by now */
        messages(2);
    }
    stop();
}
END_TEST

static int lose_all_drains(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_DRAIN;
}

/* R does not know of the drain, and wants the path back again and again: S does not take it. */
START_TEST(a_receiver_that_is_not_told)
{
    start(2, NULL);
    rig->filter = lose_all_drains;
    drain(0, 1);
    wait_settled(0);
    rig_run(rig, 20 * RIG_S);
    ck_assert(!is_up(0, 0));
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    rig->filter = NULL;
    drain(0, 0);
    wait_up(0, 2);
    carries(0);
    stop();
}
END_TEST

static uint32_t refused_incarnation;
static int refusals;
static int lose_refusals(struct rig *r, int from, int type, union fo_body *body)
{
    if (from == 0 && type == FO_MSG_DOWN && body->down.reason == IB_FAULT_SETUP) {
        refused_incarnation = body->down.inc;
        refusals++;
        return 0;
    }
    return type != FO_MSG_DRAIN;
}

/* An incarnation that S refused stays refused when the drain is over: its refusal may still be on
 * the way, and would end the incarnation where it stands. */
START_TEST(a_refused_incarnation_stays_refused)
{
    int before;

    start(2, NULL);
    refusals = 0;
    rig->filter = lose_refusals;
    drain(0, 1);
    wait_settled(0);
    rig_run(rig, 3 * RIG_S);
    ck_assert_int_gt(refusals, 0);
    ck_assert_uint_eq(refused_incarnation, 2);
    drain(0, 0);
    before = refusals;
    rig_run(rig, RIG_S);
    ck_assert_int_gt(refusals, before); /* R still asks for that one */
    ck_assert_uint_eq(refused_incarnation, 2);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    ck_assert_uint_eq(inc(0, 0), 1);
    rig->filter = NULL;
    wait_up(0, 3);
    carries(0);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    stop();
}
END_TEST

/* The word that a drain is over was lost with the channel and the peer's memory of us: a new
 * connection brings it. */
START_TEST(an_undrain_that_was_missed)
{
    start(2, NULL);
    drain(1, 1);
    wait_settled(0);
    rig->side[0].inst->index.peers->drain.nics =
        1; /* as it stays where the undrain could not be said */
    drain(1, 0);
    wait_up(0, 2);
    rig->side[0].inst->index.peers->drain.nics = 1;
    rig->side[0].inst->index.peers->drain.gen--;
    rig_enter(&rig->side[1]);
    r2_drain_announce(rig->side[1].inst,
                      rig->side[1].inst->index.peers); /* set-up of a connection says it */
    rig_kick(&rig->side[1]);
    rig_run(rig, 50 * RIG_MS);
    ck_assert_uint_eq(rig->side[0].inst->index.peers->drain.nics, 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_buffer_of_one_nic_keeps_it, 0, 2);
    tcase_add_test(t, drains_are_no_flaps);
    tcase_add_test(t, a_receiver_that_is_not_told);
    tcase_add_test(t, a_refused_incarnation_stays_refused);
    tcase_add_test(t, an_undrain_that_was_missed);
    tcase_add_loop_test(t, traffic_leaves_and_comes_back, 0, 2);
    tcase_add_loop_test(t, an_idle_connection_is_drained, 0, 2);
    tcase_add_loop_test(t, what_is_under_way_arrives_first, 0, 2);
    tcase_add_loop_test(t, each_end_numbers_its_own_nics, 0, 2);
    tcase_add_test(t, the_word_is_said_until_it_is_answered);
    tcase_add_test(t, late_words_change_nothing);
    tcase_add_test(t, a_peer_may_say_anything);
    tcase_add_loop_test(t, a_last_path_stays, 0, 2);
    tcase_add_test(t, drained_is_better_than_none);
    tcase_add_loop_test(t, drained_is_better_than_silence, 0, 8);
    tcase_add_test(t, not_below_the_fewest_paths);
    tcase_add_test(t, without_failover_nothing_ends);
    tcase_add_loop_test(t, drained_from_the_start, 0, 2);
    tcase_add_test(t, a_later_connection_knows);
}

int main(void)
{
    return run_suite("drain", add);
}
