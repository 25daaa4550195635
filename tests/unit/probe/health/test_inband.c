/* Control messages over NICs while the out-of-band channel does not carry them
 * (docs/control.md). */
#include "tests/unit/inband_rig.h"

#include <errno.h>

static const char *const on[] = {"NCCL_R2_INBAND=on", "NCCL_R2_GIVE_UP=2000", "NCCL_R2_BALANCE=off",
                                 NULL};

static uint64_t carried(void)
{
    return inst(0)->inband.received + inst(1)->inband.received;
}

/* @n messages under way on path @p, all lost there; the ends do not know yet. */
static void lose_messages(int n, int p)
{
    char text[] = "h0:n0 blackhole-tx";

    text[4] = (char)('0' + p);
    recv_burst(n, 3000);
    fire(text);
    send_burst(n);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(acked(), posted - (unsigned)n);
}

/* --- it takes the channel's place --- */

static const char *const failure[] = {"h0:n0 down", "h1:n0 fatal", "*:n0 down", "h1:n0 qp-error",
                                      "h0:n0 remove"};
#define FAILURES (int)(sizeof(failure) / sizeof(failure[0]))

/* The channel is lost for good, then a path: settled all the same, and in the time that settlement
 * takes. */
START_TEST(settled_without_the_channel)
{
    begin(3, (const char *[]){"NCCL_R2_INBAND=on", "NCCL_R2_GIVE_UP=2000", "NCCL_R2_T_PACKET=100",
                              NULL});
    rig_oob_cut(rig, 1);
    lose_messages(8, 0);
    fire(failure[_i]);
    finish(8, 200 * RIG_MS); /* a device that is gone cannot fence: T_packet */
    ck_assert_uint_eq(retransmitted(), 8);
    ck_assert_uint_gt(carried(), 0);
    rig_run(rig, 5 * RIG_S); /* beyond NCCL_R2_GIVE_UP: nobody misses anybody */
    ck_assert(rig->oob_cut);
    stop();
}
END_TEST

/* One path after the other, to the last one, in silence as well: the question over a pair needs the
 * peer's word, too. */
START_TEST(chain_without_the_channel)
{
    static const char *const how[] = {" down", " blackhole"};

    begin(4, on);
    rig_oob_cut(rig, 1);
    for (int p = 0; p < 3; p++) {
        char text[32];

        lose_messages(8, p);
        snprintf(text, sizeof(text), "h1:n%d%s", p, how[_i]);
        fire(text);
        finish(8, 500 * RIG_MS);
        ck_assert_uint_eq(retransmitted(), 8);
    }
    ck_assert_uint_eq(comm(0)->conn.up, 8);
    stop();
}
END_TEST

/* The channel takes everything and brings nothing, one way or both, and no end is told: what is not
 * answered goes over NICs as well. */
START_TEST(channel_that_stands_still)
{
    begin(3, on);
    rig_run(rig, RIG_S);
    channel_hook();
    channel[0].silent = _i != 1;
    channel[1].silent = _i != 0;
    for (int p = 0; p < 2; p++) {
        lose_messages(8, p);
        fire(p ? "h1:n1 blackhole" : "h0:n0 down");
        finish(8, 300 * RIG_MS);
        ck_assert_uint_eq(retransmitted(), 8);
    }
    ck_assert_uint_gt(carried(), 0);
    stop();
}
END_TEST

static int path_0_back(struct rig *r)
{
    return ib_conn_up(&r->side[0].comm->conn, 0) && ib_conn_up(&r->side[1].comm->conn, 0);
}

/* A path returns as a new incarnation, and a new connection is made, without the channel. */
START_TEST(return_without_the_channel)
{
    begin(3, (const char *[]){"NCCL_R2_INBAND=on", "NCCL_R2_T_RETURN=100", NULL});
    rig_oob_cut(rig, 1);
    lose_messages(8, 0);
    fire("h0:n0 down");
    finish(8, 100 * RIG_MS);
    ck_assert(!is_up(0, 0) && !is_up(1, 0));
    fire("h0:n0 up");
    fire("h0:n0 clear");
    ck_assert(rig_until(rig, path_0_back, 20 * RIG_S));
    ck_assert_uint_eq(inc(0, 0), 2);
    messages(8, 3000);
    ck_assert(rig->oob_cut);
    stop();
}
END_TEST

static int nobody_left(struct rig *r)
{
    return rig_comms(r, 0) == 0 && rig_comms(r, 1) == 0;
}

/* BYE and its answer. */
START_TEST(close_without_the_channel)
{
    begin(2, on);
    rig_oob_cut(rig, 1);
    messages(4, 3000);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, _i);
    rig_close(rig, !_i);
    ck_assert(rig_until(rig, nobody_left, RIG_S));
}
END_TEST

/* --- and no more than that --- */

/* A failure and a return while the channel does its work. */
START_TEST(silent_while_the_channel_answers)
{
    begin(3, (const char *[]){"NCCL_R2_INBAND=on", "NCCL_R2_T_RETURN=100", NULL});
    lose_messages(8, 0);
    fire("h0:n0 down");
    finish(8, 100 * RIG_MS);
    fire("h0:n0 up");
    fire("h0:n0 clear");
    ck_assert(rig_until(rig, path_0_back, 20 * RIG_S));
    messages(4, 3000);
    ck_assert_uint_eq(inst(0)->inband.sent + inst(1)->inband.sent, 0);
    stop();
}
END_TEST

static uint64_t rnr(void)
{
    struct fab_counters sum;

    fab_inproc_totals(rig->f, &sum);
    return sum.rnr_naks;
}

/* A process that stands still takes no buffer back: it is not sent more than it has. */
START_TEST(process_that_stands_still)
{
    begin(3, (const char *[]){"NCCL_R2_INBAND=on", "NCCL_R2_GIVE_UP=100000", NULL});
    rig_oob_cut(rig, 1);
    rig_run(rig, 10 * RIG_MS);
    rig->side[1].still = rig->side[1].asleep = 1;
    lose_messages(8, 0);
    fire("h0:n0 down");
    rig_run(rig, 20 * RIG_S);
    ck_assert_uint_ge(inst(0)->inband.sent, 16);
    ck_assert_uint_lt(inst(0)->inband.sent, 60);
    ck_assert_uint_eq(rnr(), 0);
    rig->side[1].still = rig->side[1].asleep = 0;
    rig_kick(&rig->side[1]);
    finish(8, 3 * RIG_S);
    ck_assert_uint_eq(retransmitted(), 8);
    stop();
}
END_TEST

START_TEST(off)
{
    start(2, (const char *[]){_i ? "0:NCCL_R2_INBAND=on" : "NCCL_R2_INBAND=off",
                              NULL}); /* one end has it: as if none had */
    messages(4, 1000);
    rig_run(rig, RIG_S);
    ck_assert(!pair(0, 0)->inband.up && !pair(1, 0)->inband.up);
    rig_oob_cut(rig, 1);
    lose_messages(8, 0);
    fire("h0:n0 down");
    rig_run(rig, RIG_S);
    ck_assert(!rig_all_done(rig));
    rig_oob_cut(rig, 0);
    finish(8, 300 * RIG_MS);
    ck_assert_uint_eq(carried(), 0);
    stop();
}
END_TEST

/* --- what can fail --- */

static void break_qp(int side, int nic)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    rig_enter(&rig->side[side]);
    ck_assert_int_eq(inst(side)->v.modify_qp(pair(side, nic)->inband.qp, &attr, IBV_QP_STATE), 0);
}

/* A queue pair for messages breaks alone. It is found out when it is used, another pair carries the
 * words, and it is made anew. */
START_TEST(broken_queue_pair)
{
    uint32_t inc;

    begin(3, on);
    inc = pair(0, 1)->inc;
    break_qp(0, 1);
    rig_oob_cut(rig, 1);
    lose_messages(8, 0);
    fire("h0:n0 down");
    finish(8, 500 * RIG_MS);
    for (int i = 0; i < 20 && pair(0, 1)->inc == inc; i++) { /* until its turn has come twice */
        rig_enter(&rig->side[0]);
        r2_peer_emit(inst(0), comm(0)->peer, FO_MSG_BYE_OK,
                     &(union fo_body){.bye_ok = {.dst = 77777, .src = 77777}});
        rig_kick(&rig->side[0]);
        rig_run(rig, 100 * RIG_MS);
    }
    rig_run(rig, RIG_S);
    ck_assert_uint_ne(pair(0, 1)->inc, inc);
    ck_assert(pair(0, 1)->inband.up && pair(1, 1)->inband.up);
    lose_messages(8, 1); /* and carries them when it is alone */
    fire("h0:n1 qp-error");
    rig_run(rig, 50 * RIG_MS);
    fire("h1:n2 down");
    finish(8, 2 * RIG_S);
    ck_assert(rig->oob_cut);
}
END_TEST

static struct ibv_srq *no_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    errno = EOPNOTSUPP;
    return NULL;
}

/* A device without shared receive queues: everything but this works. */
START_TEST(device_without_shared_receive_queues)
{
    race_create(2, on);
    for (int s = 0; s < 2; s++) {
        inst(s)->v.create_srq = _i ? NULL : no_srq;
    }
    rig_connect(rig, 0, 0);
    race_register();
    messages(4, 1000);
    rig_run(rig, RIG_S);
    ck_assert(r2_pair_ready(pair(0, 0)) && pair(0, 0)->inband.qp == NULL);
    rig_oob_cut(rig, 1);
    lose_messages(8, 0);
    fire("h0:n0 down");
    rig_run(rig, 100 * RIG_MS);
    ck_assert(!rig_all_done(rig));
    rig_oob_cut(rig, 0);
    finish(8, 300 * RIG_MS);
    stop();
}
END_TEST

/* Bytes that are no list of records: dropped and counted, like those of the channel. */
START_TEST(garbage)
{
    uint8_t msg[64];
    uint64_t bad;

    begin(2, on);
    memset(msg, 0x5a, sizeof(msg));
    bad = inst(1)->refused.bad_messages;
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_inband_send(inst(0), comm(0)->peer, msg, sizeof(msg)),
                     0); /* not even sent: no record ends in it */
    ck_assert_int_eq(
        ib_inband_send(&pair(0, 1)->inband, &inst(0)->inband.pool[1], msg, sizeof(msg), 0), 0);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(inst(1)->refused.bad_messages, bad + 1);
    ck_assert_uint_eq(inst(1)->inband.received, 1);
    messages(4, 3000);
    stop();
}
END_TEST

static size_t one_long_record(uint8_t *msg, size_t room)
{
    union fo_body b = {
        .req = {.src = 1, .listen = 99999, .nnics = FO_MAX_NICS, .qps = 1, .host = "h"}};

    for (int i = 0; i < FO_MAX_NICS; i++) {
        snprintf(b.req.nic[i].name, sizeof(b.req.nic[i].name), "nic%d", i);
    }
    return fo_pack(FO_MSG_REQ, &b, msg, room);
}

/* A long list goes in pieces of whole records, each over two pairs of different NICs. */
START_TEST(long_lists_go_in_pieces)
{
    static uint8_t msg[R2_OOB_MAX_MESSAGE];
    union fo_body body = {.bye_ok = {.dst = 99999, .src = 99999}};
    size_t len = 0, one;
    uint64_t unknown, records = 0;
    int pieces;

    begin(3, on);
    while ((one = fo_pack(FO_MSG_SETTLED,
                          &(union fo_body){.settled = {.dst = 99999, .src = 99999, .inc = 1}},
                          msg + len, 6000 - len)) > 0) {
        len += one;
        records++;
    }
    len += fo_pack(FO_MSG_BYE_OK, &body, msg + len, sizeof(msg) - len);
    records++;
    rig_run(rig, 100 * RIG_MS);
    unknown = inst(1)->refused.unknown_records;
    one = len;
    rig_enter(&rig->side[0]);
    pieces = r2_inband_send(inst(0), comm(0)->peer, msg, len);
    ck_assert_int_eq(pieces, 6);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(inst(1)->inband.received, 12);
    ck_assert_uint_eq(inst(1)->refused.unknown_records - unknown, 2 * records);
    len = one_long_record(
        msg,
        sizeof(
            msg)); /* what is longer than a message waits for the channel, and holds up nothing */
    ck_assert_uint_gt(len, IB_INBAND_MESSAGE);
    len += fo_pack(FO_MSG_BYE_OK, &body, msg + len, sizeof(msg) - len);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_inband_send(inst(0), comm(0)->peer, msg, len), 1);
    rig_run(rig, 10 * RIG_MS);
    ck_assert_uint_eq(inst(1)->inband.received, 14);
    stop();
}
END_TEST

/* Buffers come back: far more messages than there are. */
START_TEST(buffers_come_back)
{
    begin(2, on);
    rig_oob_cut(rig, 1);
    rig_run(rig, 10 * RIG_MS);
    for (int i = 0; i < 500; i++) {
        for (int s = 0; s < 2; s++) { /* each is heard by the other */
            rig_enter(&rig->side[s]);
            r2_peer_emit(inst(s), comm(s)->peer, FO_MSG_BYE_OK,
                         &(union fo_body){.bye_ok = {.dst = 77777, .src = 77777}});
            rig_kick(&rig->side[s]);
        }
        rig_run(rig, 100 * RIG_US);
    }
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_ge(inst(s)->inband.received, 2 * 490);
        for (int i = 0; i < IB_INBAND_SENDS; i++) {
            ck_assert_uint_eq(inst(s)->inband.pool[0].owner[i] + inst(s)->inband.pool[1].owner[i],
                              0);
        }
        ck_assert_uint_eq(pair(s, 0)->inband.out + pair(s, 1)->inband.out, 0);
    }
    ck_assert_uint_eq(rnr(), 0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, settled_without_the_channel, 0, FAILURES);
    tcase_add_loop_test(t, chain_without_the_channel, 0, 2);
    tcase_add_loop_test(t, channel_that_stands_still, 0, 3);
    tcase_add_test(t, return_without_the_channel);
    tcase_add_loop_test(t, close_without_the_channel, 0, 2);
    tcase_add_test(t, silent_while_the_channel_answers);
    tcase_add_test(t, process_that_stands_still);
    tcase_add_loop_test(t, off, 0, 2);
    tcase_add_test(t, broken_queue_pair);
    tcase_add_loop_test(t, device_without_shared_receive_queues, 0, 2);
    tcase_add_test(t, garbage);
    tcase_add_test(t, long_lists_go_in_pieces);
    tcase_add_test(t, buffers_come_back);
}

int main(void)
{
    return run_suite("control messages over NICs", add);
}
