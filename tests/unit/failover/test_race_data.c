/* Races of the data path: what is under way, landed, polled or acknowledged at the instant of a
 * failure (P1-P14, P16, P21). */
#include "tests/unit/race_rig.h"

/* --- acknowledgements --- */

/* In the middle of a burst: those of R's NIC alone, or R's own words with them. */
START_TEST(ack_lost_in_the_middle)
{
    uint64_t lost;

    start(3, NULL);
    messages(4, 1000);
    recv_burst(8, 1000);
    for (int i = 0; i < 4; i++) {
        send_post(i);
    }
    wait_acked(8, 10 * RIG_MS);
    lost = counters(1, 0)->acks_lost + counters(1, 0)->tx_dropped;
    fire(_i ? "h1:n0 blackhole-tx" : "h1:n0 ack-lost");
    for (int i = 4; i < 8; i++) {
        send_post(i);
    }
    wait_acked(12, 10 * RIG_MS); /* R has all of it */
    ck_assert(!sends_done(rig));
    finish(8, RIG_S);
    ck_assert_uint_gt(counters(1, 0)->acks_lost + counters(1, 0)->tx_dropped, lost);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    ck_assert_uint_eq(retransmitted(), 0); /* the ledger finished it */
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(slot[i].landed, 1000);
    }
    stop();
}
END_TEST

/* --- landed, not polled --- */

/* The data is in memory, its completion in the queue, nobody polls: R's fence does. */
START_TEST(landed_and_not_polled_at_the_fence)
{
    uint64_t before;

    start(2, NULL);
    messages(4, 1000);
    recv_burst(4, 5000);
    rig->side[1].asleep = 1;
    send_burst(4);
    rig_run(rig, 100 * RIG_US);
    before = acked();
    for (int i = 0; i < 4; i++) {
        slot_is_right(i); /* landed ... */
    }
    ck_assert_uint_eq(before, 4); /* ... and not polled */
    if (_i) {
        give_up_path(1, 0);
    } else {
        fire("h0:n0 down");
    }
    ck_assert(rig_until(rig, sends_done, RIG_S)); /* NCCL still does not call R */
    ck_assert_uint_eq(acked(), before + 4);
    ck_assert_uint_eq(retransmitted(), 0);
    rig->side[1].asleep = 0;
    finish(4, RIG_MS);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 5000);
    }
    stop();
}
END_TEST

/* The completions do not show before R gives up waiting for its markers: what they say is not taken
 * afterwards. */
START_TEST(landed_and_shown_after_the_close)
{
    start(2, (const char *[]){"NCCL_R2_T_PACKET=200", "NCCL_R2_T_DEAD=300", NULL});
    messages(4, 1000);
    recv_burst(4, 5000);
    hold_completions(1, 0);
    send_burst(4);
    rig_run(rig, 100 * RIG_US);
    give_up_path(1, 0);
    wait_acked(8, 100 * RIG_MS); /* the retransmission ... */
    ck_assert_uint_eq(retransmitted(), 4);
    ck_assert(path_at(1, 0)->soft);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 10000); /* ... after the first copy */
        ck_assert(!rig_done(rig, 1, slot[i].r_op));
    }
    show_completions();
    finish(4, 500 * RIG_MS);
    ck_assert(!path_at(1, 0)->soft);
    stop();
}
END_TEST

/* R has reported the messages and posted their slots again before S knows that they arrived. */
START_TEST(slot_used_again_while_the_sender_recovers)
{
    start(2, NULL);
    messages(4, 1000);
    recv_burst(3, 4000);
    rig->side[0].asleep = 1; /* S polls nothing until it is woken below */
    fire("h1:n0 blackhole-tx");
    send_burst(3);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(rig->side[1].head, rig->side[1].tail); /* reported */
    ck_assert_uint_eq(comm(0)->tx->sack, 4);                 /* S does not know */
    for (int i = 0; i < 3; i++) {
        ck_assert(rig_done(rig, 1, slot[i].r_op));
        slot_is_right(i);
        recv_post(i, 3000);
    }
    if (_i) {
        give_up_path(1, 0);
    } else {
        fire("h0:n0 qp-error");
    }
    rig->side[0].asleep = 0;
    ck_assert(rig_until(rig, sends_done, RIG_S));
    ck_assert_uint_eq(retransmitted(), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(slot[i].landed, 0);
    }
    send_burst(3);
    finish(3, RIG_S);
    stop();
}
END_TEST

/* --- late --- */

enum { RECYCLED, REPORTED, OPEN, VARIANTS };

/* A packet of an old incarnation arrives when its message was retransmitted: the slot is somebody
 * else's, nobody's, or still its own. */
START_TEST(late_packet_of_an_old_incarnation)
{
    uint64_t refused;

    start(2, NULL);
    messages(4, 1000);
    recv_burst(2, 2000);
    rig->side[1].asleep = _i == OPEN;
    fire("h0:n0 delay 5ms");
    send_burst(2);
    rig_run(rig, 10 * RIG_US);
    give_up_path(0, 0);
    refused = counters(1, 0)->rx_wrong_state;
    if (_i == OPEN) {
        wait_settled(0);
        rig_run(rig, RIG_MS);
    } else {
        finish(2, 2 * RIG_MS);
    }
    ck_assert_uint_eq(retransmitted(), 2);
    ck_assert_uint_eq(counters(1, 0)->rx_wrong_state, refused); /* it is still under way */
    for (int i = 0; _i == RECYCLED && i < 2; i++) {
        recv_post(i, 3000);
    }
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_ge(counters(1, 0)->rx_wrong_state, refused + 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(slot[i].landed, _i == RECYCLED ? 0 : 2000);
    }
    rig->side[1].asleep = 0;
    if (_i == RECYCLED) {
        send_burst(2);
    }
    finish(2, RIG_S);
    stop();
}
END_TEST

/* A CTS that comes late: beside nothing, after its copy into a ring that is closed, or into one
 * that S still uses. */
START_TEST(late_cts)
{
    uint64_t refused, writes;

    start(2, (const char *[]){"NCCL_R2_T_SUSPECT=100", NULL});
    messages(4, 1000);
    refused = counters(0, 0)->rx_wrong_state;
    fire("h1:n0 delay 20ms");
    recv_post(0, 3000);
    recv_post(1, 3000);
    writes = counters(0, 0)->dma_writes;
    rig_run(rig, 2 * RIG_MS);
    ck_assert_int_eq(rig_isend(rig, out[0], 1, 0, s_mr), -1); /* it is under way */
    if (_i == 0) {
        send_burst(2);
        finish(2, 100 * RIG_MS);
        ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
        ck_assert_uint_eq(comm(1)->rx->count.cts_rewritten, 0);
        ck_assert_uint_gt(counters(0, 0)->dma_writes, writes);
        stop();
        return;
    }
    channel_hook();
    channel[1].late_ns = _i == 1 ? 0 : 50 * RIG_MS;
    give_up_path(1, 0);
    send_burst(2);
    ck_assert_uint_eq(comm(1)->rx->count.cts_rewritten, 2);
    ck_assert_uint_eq(counters(0, 0)->dma_writes, writes); /* the copies were sooner */
    if (_i == 1) {
        finish(2, 10 * RIG_MS);
        recv_burst(2, 1000); /* the next ones, in the slots of the ring after it */
        rig_run(rig, 30 * RIG_MS);
        ck_assert_uint_gt(counters(0, 0)->rx_wrong_state, refused);
        send_burst(2);
    } else {
        rig_run(rig, 30 * RIG_MS);
        ck_assert_uint_gt(counters(0, 0)->dma_writes, writes); /* landed, and was not taken twice */
        ck_assert(is_up(0, 0));
        ck_assert_uint_gt(channel[1].late, 0);
    }
    finish(2, 200 * RIG_MS);
    ck_assert_uint_eq(comm(0)->tx->cts_seen, posted);
    stop();
}
END_TEST

/* --- who sees it, and when --- */

/* Both ends at the same instant, by themselves; parts lost, or landed and unpolled. */
START_TEST(both_ends_detect_at_once)
{
    start(3, NULL);
    messages(4, 1000);
    recv_burst(8, BIG);
    rig->side[1].asleep = 1;
    if (_i & 1) {
        fire("h0:n0 blackhole-tx");
    }
    send_burst(8);
    rig_run(rig, 200 * RIG_US);
    rig->side[1].asleep = 0;
    if (_i & 2) {
        fire("*:n0 down");
        rig_run(rig, 5 * RIG_US);
    } else {
        give_up_path(0, 0);
        give_up_path(1, 0);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(path_at(s, 0)->why.fault,
                         _i & 2 ? IB_FAULT_PORT : IB_FAULT_ADMIN); /* not by the other's word */
    }
    ck_assert_uint_eq(path_at(0, 0)->down_since, path_at(1, 0)->down_since);
    finish(8, 20 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), _i & 1 ? 8 : 0);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    ck_assert_uint_eq(comm(1)->fo.switches, 1);
    stop();
}
END_TEST

/* S loses path 0 and R path 1 at the same instant, each by itself, and messages in parts were under
 * way on all of them.
 */
START_TEST(each_end_loses_another_path_at_once)
{
    start(4, (const char *[]){"NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL});
    messages(4, 1000);
    recv_burst(8, 60000);
    rig->side[1].asleep = 1;
    if (_i) { /* parts lost on both; else landed and unpolled, on the two that stay as well */
        fire("h0:n0 blackhole-tx");
        fire("h0:n1 blackhole-tx");
    }
    send_burst(8);
    rig_run(rig, 100 * RIG_US);
    rig->side[1].asleep = 0;
    give_up_path(0, 0);
    give_up_path(1, 1);
    finish(8, 20 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), _i ? 16 : 0);
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(path_at(s, s)->why.fault, IB_FAULT_ADMIN);
        ck_assert_int_eq(path_at(s, !s)->why.fault, IB_FAULT_PEER);
        ck_assert_uint_eq(comm(s)->conn.up, 12);
    }
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(slot[i].landed, 60000);
    }
    stop();
}
END_TEST

/* Path 1 fails; the messages went over path 0, where nothing is wrong, and are in memory, unpolled.
 */
START_TEST(fault_on_a_path_the_message_never_used)
{
    static const char *const fault[] = {"h1:n1 down", "h0:n1 qp-error", "*:n1 down"};

    start(2, NULL);
    messages(4, 1000);
    ck_assert_uint_eq(comm(0)->conn.path[1].count.bytes, 0);
    recv_burst(4, 5000);
    hold_completions(1, 0);
    send_burst(4);
    rig_run(rig, 100 * RIG_US);
    fire(fault[_i]);
    wait_settled(1);
    for (int i = 0; i < 4; i++) {
        slot_is_right(i);
    }
    ck_assert_uint_eq(acked(), 4); /* what is in memory is not in the ledger that settled path 1 */
    ck_assert_uint_eq(retransmitted(), 0);
    show_completions();
    finish(4, RIG_MS);
    for (int i = 0; i < 4; i++) {
        recv_post(i, 3000);
    }
    rig_run(rig, 5 * RIG_MS);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 0);
    }
    send_burst(4);
    finish(4, RIG_S);
    ck_assert(is_up(0, 0) && is_up(1, 0));
    stop();
}
END_TEST

/* --- the survivor --- */

/* Messages lost on path 0; path 1, where their retransmission goes, dies before the first part
 * posted again, or after some. */
START_TEST(survivor_dies_during_the_retransmission)
{
    uint64_t had, arrived;

    start(3, (const char *[]){"NCCL_R2_BALANCE=off", NULL});
    messages(4, 1000);
    if (_i) {
        fire("*:n1 rate 1GB/s");
    }
    recv_burst(8, BIG);
    fire("h0:n0 blackhole-tx");
    send_burst(8);
    had = acked();
    when_said(FO_MSG_FENCED, 1, NULL, _i ? NULL : "h0:n1 down");
    fire("h0:n0 down");
    if (_i) {
        wait_acked(had + 3, 10 * RIG_MS);
        arrived = acked() - had;
        ck_assert_uint_lt(arrived, 8);
        ck_assert_uint_eq(comm(0)->tx->count.retransmitted_parts, 8);
        fire("h0:n1 down");
    }
    finish(8, 20 * RIG_MS);
    ck_assert_uint_gt(at_record.fired, 0);
    if (_i) {
        ck_assert_uint_lt(retransmitted(), 16); /* what had arrived was not sent a third time */
        ck_assert_uint_gt(comm(0)->conn.path[1].count.bytes, 0);
    } else {
        ck_assert_uint_eq(comm(0)->conn.path[1].count.bytes, 0);
        ck_assert_uint_eq(retransmitted(), 8);
    }
    ck_assert_uint_eq(comm(0)->fo.switches, 2);
    ck_assert_uint_eq(comm(0)->conn.up, 4);
    stop();
}
END_TEST

/* A message in parts over three paths: one part is lost with its path, two have landed; the plan is
 * another one by then. */
START_TEST(part_lost_and_sent_again_as_it_was_cut)
{
    start(4, (const char *[]){"NCCL_R2_SPREAD=on", "NCCL_R2_CUT_MIN=128", NULL});
    messages(4, 1000);
    recv_burst(4, 60000);
    fire(_i ? "h1:n2 blackhole-rx" : "h0:n0 blackhole-tx");
    send_burst(4);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(acked(), 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_gt(slot[i].landed, 30000);
        ck_assert_uint_lt(slot[i].landed, 60000);
    }
    give_up_path(0, _i ? 2 : 0);
    finish(4, 20 * RIG_MS);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(slot[i].landed, 60000); /* each byte once: the cut is what it was */
    }
    ck_assert_uint_eq(retransmitted(), 4);
    stop();
}
END_TEST

/* --- groups, and what is empty --- */

/* A group of eight: three have landed, two are lost under way, three are sent afterwards. */
START_TEST(group_partly_delivered)
{
    void *data[8];
    size_t size[8];
    int tag[8], op, s_op[8];

    start(2, NULL);
    messages(4, 1000);
    for (int i = 0; i < 8; i++) {
        data[i] = in[i];
        size[i] = 100 * (size_t)(i + 1);
        tag[i] = 50 + i;
        slot[i] = (struct race_slot){.number = posted++, .size = size[i], .s_op = -1};
        memset(in[i], POISON, BIG);
    }
    op = rig_irecv(rig, 8, data, size, tag, r_mr);
    ck_assert_int_ge(op, 0);
    for (int i = 0; i < 8; i++) {
        slot[i].r_op = op;
        slot[i].rig = rig;
    }
    for (int i = 0; i < 8; i++) {
        int k = i * 3 % 8; /* another order than that of the tags */

        if (i == 3) {
            rig_run(rig, 100 * RIG_US);
            ck_assert(!rig_done(rig, 1, op));
            fire("h0:n0 blackhole-tx");
        }
        if (i == 5) {
            rig_run(rig, 100 * RIG_US);
            fire("h0:n0 down");
            rig_run(rig, 20 * RIG_US);
        }
        fill(out[k], slot[k].number, size[k]);
        s_op[k] = rig_send_wait(rig, out[k], size[k], 50 + k, s_mr);
    }
    sent += 8;
    ck_assert(rig_until(rig, rig_all_done, 20 * RIG_MS));
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(rig_size(rig, 1, op, i), size[i]);
        ck_assert_uint_eq(rig_size(rig, 0, s_op[i], 0), size[i]);
        ck_assert_uint_eq(slot[i].landed, size[i]);
        slot_is_right(i);
    }
    ck_assert_uint_eq(retransmitted(), 2);
    stop();
}
END_TEST

/* Messages without a byte between others: lost, or landed and unpolled, when the path dies. */
START_TEST(zero_bytes_under_way)
{
    start(2, NULL);
    messages(4, 1000);
    for (int i = 0; i < 6; i++) {
        recv_post(i, i % 2 ? 500 : 0);
    }
    rig_run(rig, 20 * RIG_US);
    rig->side[1].asleep = 1;
    if (_i) {
        fire("h0:n0 blackhole-tx");
    }
    send_burst(6);
    rig_run(rig, 100 * RIG_US);
    fire("h0:n0 down");
    wait_settled(0);
    ck_assert_uint_eq(retransmitted(), _i ? 6 : 0);
    rig->side[1].asleep = 0;
    finish(6, 20 * RIG_MS);
    stop();
}
END_TEST

/* --- flaps that no event tells of --- */

/* Shorter than what RC repairs and than any suspicion. */
START_TEST(flap_shorter_than_retry)
{
    uint64_t late;

    start(2, NULL);
    messages(4, 1000);
    for (int n = 0; n < 5; n++) {
        recv_burst(4, BIG);
        late = counters(_i, 0)->tx_dropped + counters(_i, 0)->rx_dropped;
        fire(_i ? "h1:n0 blackhole" : "h0:n0 blackhole");
        send_burst(4);
        rig_run(rig, 15 * RIG_MS);
        ck_assert_uint_gt(counters(_i, 0)->tx_dropped + counters(_i, 0)->rx_dropped, late);
        ck_assert(!rig_all_done(rig));
        fire(_i ? "h1:n0 up" : "h0:n0 up");
        finish(4, 200 * RIG_MS);
    }
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    ck_assert_uint_eq(retransmitted(), 0);
    stop();
}
END_TEST

/* Longer: RC gives up, with nothing else to find it; the link is whole again later, and the path
 * returns. */
START_TEST(flap_longer_than_retry)
{
    start(2, (const char *[]){"NCCL_R2_WATCHDOG=off", "NCCL_IB_TIMEOUT=10", "NCCL_IB_RETRY_CNT=2",
                              "NCCL_R2_T_RETURN=50", "NCCL_R2_T_PACKET=100", NULL});
    messages(4, 1000);
    recv_burst(4, BIG);
    fire("h0:n0 blackhole");
    send_burst(4);
    finish(4, 100 * RIG_MS);
    ck_assert_int_eq(path_at(0, 0)->why.fault, IB_FAULT_WC);
    ck_assert_int_eq(path_at(0, 0)->why.wc_status, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_gt(counters(0, 0)->retry_exceeded, 0);
    ck_assert_uint_eq(retransmitted(), 4);
    fire("h0:n0 up");
    wait_returned(0, 2);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, ack_lost_in_the_middle, 0, 2);
    tcase_add_loop_test(t, landed_and_not_polled_at_the_fence, 0, 2);
    tcase_add_test(t, landed_and_shown_after_the_close);
    tcase_add_loop_test(t, slot_used_again_while_the_sender_recovers, 0, 2);
    tcase_add_loop_test(t, late_packet_of_an_old_incarnation, 0, VARIANTS);
    tcase_add_loop_test(t, late_cts, 0, 3);
    tcase_add_loop_test(t, both_ends_detect_at_once, 0, 4);
    tcase_add_loop_test(t, each_end_loses_another_path_at_once, 0, 2);
    tcase_add_loop_test(t, fault_on_a_path_the_message_never_used, 0, 3);
    tcase_add_loop_test(t, survivor_dies_during_the_retransmission, 0, 2);
    tcase_add_loop_test(t, part_lost_and_sent_again_as_it_was_cut, 0, 2);
    tcase_add_test(t, group_partly_delivered);
    tcase_add_loop_test(t, zero_bytes_under_way, 0, 2);
    tcase_add_loop_test(t, flap_shorter_than_retry, 0, 2);
    tcase_add_test(t, flap_longer_than_retry);
}

int main(void)
{
    return run_suite("races: data", add);
}
