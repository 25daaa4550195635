/* Races with the out-of-band channel, and failures that only one end sees (P16, P20, P21, P30). */
#include "tests/unit/race_rig.h"

static void cut(void)
{
    rig_oob_cut(rig, 1);
}

/* @n messages under way on path 0, all lost there; the ends do not know yet. */
static void lose_messages(int n, size_t size)
{
    recv_burst(n, size);
    fire("h0:n0 blackhole-tx");
    send_burst(n);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(acked(), posted - (unsigned)n);
}

/* Both ends have settled path 0, and nobody has anything left to say about it. */
static void silence(void)
{
    unsigned n[2];

    wait_settled(0);
    rig_run(rig, RIG_S);
    for (int s = 0; s < 2; s++) {
        n[s] = rig_count(rig, s, FO_MSG_DOWN) + rig_count(rig, s, FO_MSG_FENCED) +
               rig_count(rig, s, FO_MSG_SETTLED);
    }
    rig_run(rig, RIG_S);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(n[s], rig_count(rig, s, FO_MSG_DOWN) + rig_count(rig, s, FO_MSG_FENCED) +
                                    rig_count(rig, s, FO_MSG_SETTLED));
    }
}

/* --- the channel is lost --- */

/* Just before each of the words of a settlement goes out, and back 300 ms later; other paths carry
 * on meanwhile. */
START_TEST(channel_lost_before_each_word)
{
    static const struct {
        int type, from, seer;
    } word[] = {
        {FO_MSG_DOWN, 0, 0}, {FO_MSG_FENCED, 1, 0}, {FO_MSG_FENCED, 1, 1}, {FO_MSG_SETTLED, 0, 0}};
    start(3, NULL);
    messages(4, 1000);
    lose_messages(8, 3000);
    when_said(word[_i].type, word[_i].from, cut, NULL);
    give_up_path(word[_i].seer, 0);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_gt(at_record.fired, 0);
    ck_assert(rig->oob_cut);
    ck_assert_int_eq(rig_all_done(rig), word[_i].type == FO_MSG_SETTLED);
    for (int i = 8; i < 12; i++) { /* new messages do not wait for it (P22) */
        recv_post(i, 1000);
        send_post(i);
    }
    rig_run(rig, RIG_MS);
    for (int i = 8; i < 12 && !word[_i].seer; i++) { /* but where S knows nothing of it */
        slot_is_right(i);
    }
    rig_oob_cut(rig, 0);
    finish(12, 10 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), word[_i].seer ? 12 : 8);
    silence();
    stop();
}
END_TEST

static const char *const together[] = {"h0:n0 down", "h1:n0 fatal", "*:n0 down"};

static void lose_path_and_channel(int i)
{
    start(2, (const char *[]){"NCCL_R2_GIVE_UP=2000", "NCCL_R2_T_PACKET=100", "NCCL_R2_T_DEAD=200",
                              NULL});
    messages(4, 1000);
    lose_messages(8, BIG);
    rig_oob_cut(rig, 1);
    fire(together[i]);
    rig_run(rig, RIG_S);
    ck_assert(!rig_all_done(rig));
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
}

/* Path and channel at the same instant; the channel comes back. */
START_TEST(channel_and_path_lost_together)
{
    lose_path_and_channel(_i);
    rig_oob_cut(rig, 0);
    finish(8, 300 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), 8);
    stop();
}
END_TEST

static int receiver_failed(struct rig *r)
{
    return r->side[1].status != R2_OK;
}

static int sender_failed(struct rig *r)
{
    return r->side[0].status != R2_OK;
}

/* The same, and it never does: who knows of the failure ends. A receiver that was told nothing has
 * no reason to. */
START_TEST(channel_and_path_lost_for_good)
{
    lose_path_and_channel(_i);
    ck_assert(rig_until(rig, _i == 0 ? sender_failed : rig_both_failed, 3 * RIG_S));
    for (int s = 0; s < (_i == 0 ? 1 : 2); s++) {
        ck_assert_int_eq(rig->side[s].status, R2_ERR_PEER);
        ck_assert_msg(strstr(comm(s)->fo.why, "nothing from the peer about path 0"), "%s",
                      comm(s)->fo.why);
    }
    nothing_twice();
    if (_i == 0) {
        rig_run(rig, 10 * RIG_S);
        ck_assert_int_eq(rig->side[1].status, R2_OK);
        rig_dereg(
            rig, 0,
            s_mr); /* NCCL ends the sender's side, and the channel is back for its last words */
        rig_close(rig, 0);
        rig_oob_cut(rig, 0);
        ck_assert(rig_until(rig, receiver_failed, RIG_S));
        ck_assert_int_eq(rig->side[1].status, R2_ERR_PEER);
    }
}
END_TEST

/* R has everything, and its acknowledgement is lost with path 0. The channel is out: the word comes
 * again over path 1.
 */
START_TEST(ack_told_again_without_the_channel)
{
    start(2, NULL);
    messages(4, 1000);
    recv_burst(4, 3000);
    rig_oob_cut(rig, 1);
    fire("h1:n0 blackhole-tx");
    send_burst(4);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(rig->side[1].head, rig->side[1].tail);
    ck_assert_uint_eq(comm(0)->tx->sack, 4);
    give_up_path(0, 0);
    rig_run(rig, 5 * RIG_MS);
    ck_assert(!sends_done(rig));
    give_up_path(1, 0);
    finish(4, 5 * RIG_MS);
    ck_assert_uint_eq(retransmitted(), 0);
    ck_assert(rig->oob_cut);
    rig_oob_cut(rig, 0);
    silence();
    stop();
}
END_TEST

/* --- the channel is bad --- */

enum { DOUBLED, REORDERED, BOTH, SECONDS_LATE, DEAF_R, DEAF_S, KINDS };

static void spoil_channel(int kind)
{
    channel_hook();
    for (int s = 0; s < 2; s++) {
        channel[s].copies = kind == DOUBLED || kind == BOTH ? 3 : 0;
        channel[s].late_ns = kind == SECONDS_LATE ? 2 * RIG_S : kind <= BOTH ? 1 : 0;
        channel[s].spread_ns = kind == REORDERED || kind == BOTH ? 20 * RIG_MS : 0;
    }
    channel[0].silent =
        kind ==
        DEAF_R; /* half open: one end's words arrive, the other's vanish, and nobody is told */
    channel[1].silent = kind == DEAF_S;
}

/* One path after another fails meanwhile, with parts lost under way. */
START_TEST(channel_doubles_reorders_delays_or_is_half_open)
{
    static const char *const fault[] = {"h0:n0 down", "h1:n1 qp-error", "h1:n2 down"};
    static const uint64_t limit[KINDS] = {20 * RIG_MS, 100 * RIG_MS,  100 * RIG_MS,
                                          5 * RIG_S,   1200 * RIG_MS, 1200 * RIG_MS};
    unsigned kind = (unsigned)_i;
    uint64_t took = 0;

    start(4, (const char *[]){"NCCL_R2_FAILBACK=never", "NCCL_R2_BALANCE=off", NULL});
    messages(4, 1000);
    spoil_channel(_i);
    for (int n = 0; n < 3; n++) {
        char text[] = "h0:n0 blackhole-tx";

        text[4] = (char)('0' + n);
        recv_burst(8, 3000);
        fire(text);
        send_burst(8);
        rig_run(rig, 20 * RIG_US);
        fire(fault[n]);
        if (kind == DEAF_R || kind == DEAF_S) {
            rig_run(rig, RIG_S);
            /* what R sees by itself needs no word of S's before FENCED */
            ck_assert_int_eq(rig_all_done(rig), kind == DEAF_R && n > 0);
            memset(channel, 0, sizeof(channel)); /* whole again */
            took += finish(8, 200 * RIG_MS);
            spoil_channel(_i);
        } else {
            took += finish(8, limit[kind]);
        }
        ck_assert_uint_eq(retransmitted(), 8);
    }
    if (kind == SECONDS_LATE) {
        ck_assert_uint_ge(took, 3 * 2 * RIG_S); /* it was in the way */
    }
    ck_assert(kind >= DEAF_R || channel[0].late + channel[1].late > 0);
    ck_assert(kind == DOUBLED || kind == BOTH ? channel[0].doubled > 0 && channel[1].doubled > 0
                                              : 1);
    rig_run(rig, 10 * RIG_S); /* the last of it arrives */
    ck_assert_uint_eq(comm(0)->conn.up, 8);
    ck_assert_uint_eq(comm(1)->conn.up, 8);
    stop();
}
END_TEST

/* --- one end sees it --- */

/* By an event at one end alone, while the channel needs 50 ms: the other end goes on using what is
 * over. */
START_TEST(seen_by_one_end_alone)
{
    int seer = _i & 1;
    uint64_t wrs;

    start(2, NULL);
    messages(4, 1000);
    recv_burst(8, 3000);
    channel_hook();
    channel[0].late_ns = channel[1].late_ns = 50 * RIG_MS;
    fire("h0:n0 blackhole-tx");
    send_burst(4);
    rig_run(rig, 20 * RIG_US);
    if (_i & 2) {
        give_up_path(seer, 0);
    } else {
        fire(seer ? "h1:n0 qp-error" : "h0:n0 qp-error");
        rig_run(rig, 20 * RIG_US);
    }
    ck_assert(!is_up(seer, 0) && is_up(!seer, 0));
    wrs = comm(0)->conn.path[0].count.wrs;
    for (int i = 4; i < 8; i++) {
        send_post(i);
    }
    ck_assert_uint_eq(comm(0)->conn.path[0].count.wrs - wrs,
                      seer ? 4 : 0); /* S posts on an incarnation that R has closed */
    rig_run(rig, 20 * RIG_MS);
    ck_assert(is_up(!seer, 0));
    finish(8, 200 * RIG_MS);
    ck_assert_int_ne(path_at(seer, 0)->why.fault, IB_FAULT_PEER);
    ck_assert_int_eq(path_at(!seer, 0)->why.fault, IB_FAULT_PEER);
    ck_assert_uint_eq(retransmitted(), seer ? 8 : 4);
    stop();
}
END_TEST

/* By RC at the sender alone, with the watchdog off: R never has anything outstanding that could
 * fail. */
START_TEST(seen_by_the_senders_completions_alone)
{
    start(2, (const char *[]){"NCCL_R2_WATCHDOG=off", "NCCL_IB_TIMEOUT=10", "NCCL_IB_RETRY_CNT=2",
                              NULL});
    messages(4, 1000);
    recv_burst(8, 3000);
    rig_run(rig, 10 * RIG_MS); /* its CTS are acknowledged */
    fire("h1:n0 blackhole-rx");
    send_burst(8);
    finish(8, 100 * RIG_MS);
    ck_assert_int_eq(path_at(0, 0)->why.fault, IB_FAULT_WC);
    ck_assert_int_eq(path_at(1, 0)->why.fault, IB_FAULT_PEER);
    ck_assert_uint_eq(retransmitted(), 8);
    stop();
}
END_TEST

/* By RC at the receiver alone: its CTS is lost, and S has nothing under way at all. */
START_TEST(seen_by_the_receivers_completions_alone)
{
    start(2, (const char *[]){"NCCL_R2_WATCHDOG=off", "NCCL_IB_TIMEOUT=10", "NCCL_IB_RETRY_CNT=2",
                              NULL});
    messages(4, 1000);
    rig_run(rig, 10 * RIG_MS);
    fire("h1:n0 blackhole-tx");
    for (int i = 0; i < 20; i++) { /* one of them is signaled */
        recv_post(i, 3000);
    }
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(comm(0)->tx->cts_seen, 4);
    for (int i = 0; i < 20; i++) {
        send_post(i);
    }
    finish(20, 10 * RIG_MS);
    ck_assert_int_eq(path_at(1, 0)->why.fault, IB_FAULT_WC);
    ck_assert_int_eq(path_at(0, 0)->why.fault, IB_FAULT_PEER);
    ck_assert_uint_eq(comm(1)->rx->count.cts_rewritten, 20);
    ck_assert_uint_eq(retransmitted(), 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, channel_lost_before_each_word, 0, 4);
    tcase_add_loop_test(t, channel_and_path_lost_together, 0, 3);
    tcase_add_loop_test(t, channel_and_path_lost_for_good, 0, 3);
    tcase_add_test(t, ack_told_again_without_the_channel);
    tcase_add_loop_test(t, channel_doubles_reorders_delays_or_is_half_open, 0, KINDS);
    tcase_add_loop_test(t, seen_by_one_end_alone, 0, 4);
    tcase_add_test(t, seen_by_the_senders_completions_alone);
    tcase_add_test(t, seen_by_the_receivers_completions_alone);
}

int main(void)
{
    return run_suite("races: channel", add);
}
