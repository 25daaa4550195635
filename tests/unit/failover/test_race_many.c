/* Races of more than one connection: both directions of a NIC pair, several communicators and
 * devices of a process, two processes of a host on one NIC (P29-P31). */
#include "tests/unit/race_rig.h"

/* --- both directions --- */

#define BACK 16

/* A connection from process 1 to process 0, beside the rig's; its requests are this file's. */
static struct {
    struct r2_listen *listen;
    struct r2_comm *tx, *rx; /* at process 1, at process 0 */
    struct ib_mr *tx_mr, *rx_mr;
    struct r2_req *s_req[BACK], *r_req[BACK];
    uint8_t out[BACK][BIG], in[BACK][BIG];
    unsigned s_done, r_done;
} back;

static void back_connect(int dev)
{
    uint8_t handle[R2_NET_HANDLE_SIZE];

    memset(&back, 0, sizeof(back));
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_listen(rig->side[0].inst, dev, handle, &back.listen), R2_OK);
    for (int i = 0; i < 100000 && !(back.tx && back.rx); i++) {
        if (!back.tx) {
            rig_enter(&rig->side[1]);
            ck_assert_int_eq(r2_net_connect(rig->side[1].inst, dev, handle, &back.tx), R2_OK);
        }
        if (!back.rx) {
            rig_enter(&rig->side[0]);
            ck_assert_int_eq(r2_net_accept(back.listen, &back.rx), R2_OK);
        }
        rig_turn(rig, 10 * RIG_US);
    }
    ck_assert(back.tx && back.rx);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(
        r2_net_reg(back.tx, back.out, sizeof(back.out), IB_PTR_HOST, 0, -1, &back.tx_mr), R2_OK);
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_reg(back.rx, back.in, sizeof(back.in), IB_PTR_HOST, 0, -1, &back.rx_mr),
                     R2_OK);
}

/* What NCCL's thread at either end does for it in a turn: starts what is not started, tests what
 * is. */
static void back_turn(int n, size_t size, int tag0)
{
    for (int i = 0; i < n; i++) {
        void *data = back.in[i];
        int tag = tag0 + i, done = 0;
        int got = 0;

        rig_enter(&rig->side[0]);
        if (!back.r_req[i] && back.r_done <= (unsigned)i) {
            ck_assert_int_eq(
                r2_net_irecv(back.rx, 1, &data, &size, &tag, &back.rx_mr, &back.r_req[i]), R2_OK);
        } else if (back.r_req[i] && back.r_done == (unsigned)i) {
            ck_assert_int_eq(r2_net_test(back.r_req[i], &done, &got), R2_OK);
            if (done) {
                ck_assert_uint_eq((size_t)got, size);
                back.r_req[i] = NULL;
                back.r_done++;
            }
        }
    }
    rig_enter(&rig->side[1]);
    for (int i = 0; i < n; i++) {
        int done = 0;

        if (!back.s_req[i] && back.s_done <= (unsigned)i) {
            ck_assert_int_eq(
                r2_net_isend(back.tx, back.out[i], size, tag0 + i, back.tx_mr, &back.s_req[i]),
                R2_OK);
        } else if (back.s_req[i] && back.s_done == (unsigned)i) {
            ck_assert_int_eq(r2_net_test(back.s_req[i], &done, NULL), R2_OK);
            if (done) {
                back.s_req[i] = NULL;
                back.s_done++;
            }
        }
    }
}

static void back_begin(int n, size_t size, int tag0)
{
    back.s_done = back.r_done = 0;
    for (int i = 0; i < n; i++) {
        fill(back.out[i], 1000000 + (unsigned)(tag0 + i), size);
        memset(back.in[i], POISON, BIG);
    }
    back_turn(n, size, tag0);
    rig_run(rig, 20 * RIG_US);
    back_turn(n, size, tag0);
}

static void back_finish(int n, size_t size, int tag0, uint64_t limit)
{
    uint64_t end = rig_now(rig) + limit;

    while ((back.s_done < (unsigned)n || back.r_done < (unsigned)n) && rig_now(rig) < end) {
        back_turn(n, size, tag0);
        rig_turn(rig, RIG_US);
    }
    ck_assert_uint_eq(back.r_done, (unsigned)n);
    ck_assert_uint_eq(back.s_done, (unsigned)n);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(memcmp(back.in[i], back.out[i], size), 0);
        ck_assert_uint_eq(back.in[i][size], POISON);
    }
    ck_assert_uint_eq(back.rx->rx->count.duplicates + back.rx->rx->count.bad_arrivals, 0);
}

static void back_close(void)
{
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_net_dereg(back.rx, back.rx_mr), R2_OK);
    r2_net_close(back.rx);
    r2_net_close_listen(back.listen);
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_dereg(back.tx, back.tx_mr), R2_OK);
    r2_net_close(back.tx);
}

/* One NIC pair carries data both ways when it fails: each end is S of one connection and R of the
 * other. */
START_TEST(both_directions_of_one_nic_pair)
{
    static const char *const fault[] = {"h0:n0 down",     "h1:n0 down",    "*:n0 down",
                                        "h0:n0 qp-error", "*:n0 qp-error", "*:n0 blackhole"};
    int silent = _i == 5;

    start(3, NULL);
    back_connect(0);
    messages(4, 1000);
    back_begin(8, 1000, 100);
    back_finish(8, 1000, 100, 100 * RIG_MS);
    recv_burst(8, 30000);
    fire("*:n0 rate 1GB/s"); /* some of it is through when it fails, and the rest is not, both ways
                              */
    send_burst(8);
    back_begin(8, 30000, 200);
    rig_run(rig, 100 * RIG_US);
    back_turn(8, 30000, 200);
    ck_assert(!rig_all_done(rig));
    ck_assert_uint_lt(back.r_done, 8);
    fire(fault[_i]);
    back_finish(8, 30000, 200, silent ? RIG_S : 20 * RIG_MS);
    finish(8, silent ? RIG_S : 20 * RIG_MS);
    ck_assert_uint_gt(retransmitted(), 0);
    ck_assert_uint_gt(back.tx->tx->count.retransmitted_parts, 0);
    ck_assert_uint_eq(comm(0)->fo.switches, 1);
    ck_assert_uint_eq(back.tx->fo.switches, 1);
    ck_assert_uint_eq(back.rx->fo.switches, 1);
    back_begin(8, 1000, 300);
    back_finish(8, 1000, 300, 100 * RIG_MS);
    back_close();
    stop();
}
END_TEST

/* --- several communicators, several devices --- */

#define CONNS 6
#define NICS  3

struct ends {
    struct r2_comm *comm[2];
    struct r2_listen *listen;
    struct ib_mr *mr[2];
    uint64_t posted, sent;
};
static struct ends conn[CONNS];

/* The rig's connection is @i from now on; requests of all of them are tested together. */
static void use(int i)
{
    rig->side[0].comm = conn[i].comm[0];
    rig->side[1].comm = conn[i].comm[1];
    s_mr = conn[i].mr[0];
    r_mr = conn[i].mr[1];
}

static void connect_all(const int *dev)
{
    for (int i = 0; i < CONNS; i++) {
        rig->side[0].comm = rig->side[1].comm = NULL;
        rig->listen = NULL;
        rig_connect(rig, dev[i], dev[i]);
        race_register();
        conn[i] =
            (struct ends){.comm = {comm(0), comm(1)}, .listen = rig->listen, .mr = {s_mr, r_mr}};
    }
}

/* Message @k of connection @i, in slot 8i + k. */
static void conn_recv(int i, int k, size_t size)
{
    use(i);
    posted = conn[i].posted;
    recv_post(8 * i + k, size);
    slot[8 * i + k].number += (uint64_t)i << 32; /* no two connections have the same bytes */
    conn[i].posted = posted;
}

static void conn_send(int i, int k)
{
    struct race_slot *t = &slot[8 * i + k];

    use(i);
    ck_assert_uint_eq(t->number, ((uint64_t)i << 32) + conn[i].sent++);
    fill(out[8 * i + k], t->number, t->size);
    t->s_op = rig_send_wait(rig, out[8 * i + k], t->size, 0, s_mr);
}

static void conns_finish(int n, uint64_t limit)
{
    ck_assert(rig_until(rig, rig_all_done, limit));
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    for (int i = 0; i < CONNS; i++) {
        use(i);
        for (int k = 0; k < n; k++) {
            ck_assert_uint_eq(rig_size(rig, 1, slot[8 * i + k].r_op, 0), slot[8 * i + k].size);
            slot_is_right(8 * i + k);
        }
        nothing_twice();
    }
}

static void conns_close(void)
{
    for (int i = 0; i < CONNS; i++) {
        use(i);
        rig_dereg(rig, 0, s_mr);
        rig_dereg(rig, 1, r_mr);
        rig_close(rig, 0);
        rig_close(rig, 1);
        rig_enter(&rig->side[1]);
        r2_net_close_listen(conn[i].listen);
    }
    rig->listen = NULL;
}

/* Six connections of a process, two on each of three devices, all with messages under way: a NIC of
 * one end dies, then another one. */
START_TEST(several_communicators_and_devices)
{
    static const int dev[CONNS] = {0, 1, 2, 0, 1, 2};
    static const char *const first[] = {"h0:n0 down", "h1:n0 fatal", "*:n0 qp-error"};

    race_create(NICS, (const char *[]){"NCCL_R2_FAILBACK=never", "NCCL_R2_T_PACKET=100",
                                       "NCCL_R2_T_DEAD=200", NULL});
    connect_all(dev);
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < 4; k++) {
            for (int i = 0; i < CONNS; i++) {
                conn_recv(i, k, 3000);
            }
        }
        rig_run(rig, 50 * RIG_US);
        if (round == 1) {
            fire("h0:n0 blackhole-tx");
        } else if (round == 2) {
            fire("h0:n2 blackhole-tx");
        }
        for (int k = 0; k < 4; k++) {
            for (int i = CONNS - 1; i >= 0; i--) {
                conn_send(i, k);
            }
        }
        if (round > 0) {
            fire(round == 1 ? first[_i] : "h1:n2 down");
        }
        conns_finish(4, RIG_S);
        for (int i = 0; i < CONNS; i++) {
            const struct ib_conn *l = &conn[i].comm[0]->conn;

            ck_assert_int_eq(__builtin_popcount(l->up), NICS - round);
            if (round == 1) { /* those whose primary it was have retransmitted; the others lost a
                                 sleeping path */
                ck_assert_int_eq(conn[i].comm[0]->tx->count.retransmitted_parts > 0, dev[i] == 0);
            }
        }
    }
    ck_assert_uint_eq(rig_comms(rig, 0), CONNS);
    conns_close();
    rig_run(rig, RIG_S);
    ck_assert_uint_eq(rig_comms(rig, 0) + rig_comms(rig, 1), 0);
}
END_TEST

/* --- two processes of a host --- */

struct process_pair {
    struct rig *rig;
    struct ib_mr *s_mr, *r_mr;
    uint64_t posted, sent;
};
static struct process_pair pair[2];

static void use_pair(int i)
{
    rig = pair[i].rig;
    s_mr = pair[i].s_mr;
    r_mr = pair[i].r_mr;
}

static int both_done(struct rig *r)
{
    rig_turn(pair[1].rig, 0);
    return rig_all_done(pair[0].rig) && rig_all_done(pair[1].rig);
}

static void pair_begin(int i, int n, size_t size)
{
    use_pair(i);
    posted = pair[i].posted;
    for (int k = 0; k < n; k++) {
        memset(in[32 * i + k], POISON, BIG);
        slot[32 * i + k] = (struct race_slot){
            .rig = rig, .number = ((uint64_t)i << 32) + posted++, .size = size, .s_op = -1};
        slot[32 * i + k].r_op = rig_irecv1(rig, in[32 * i + k], size, 0, r_mr);
        ck_assert_int_ge(slot[32 * i + k].r_op, 0);
    }
    pair[i].posted = posted;
    rig_run(rig, 20 * RIG_US);
}

static void pair_send(int i, int n)
{
    use_pair(i);
    for (int k = 0; k < n; k++) {
        struct race_slot *t = &slot[32 * i + k];

        fill(out[32 * i + k], t->number, t->size);
        t->s_op = rig_send_wait(rig, out[32 * i + k], t->size, 0, s_mr);
    }
}

/* Two processes on each host, a connection each, over the same NICs: both lose what is under way,
 * and neither's settlement disturbs the other's. */
START_TEST(two_processes_of_a_host_share_a_nic)
{
    static const char *const fault[] = {"h0:n0 down", "h1:n0 fatal", "*:n0 qp-error",
                                        "h1:n0 blackhole-rx"};
    static const char *const options[] = {"NCCL_R2_T_PACKET=100", "NCCL_R2_T_DEAD=200", NULL};

    start(2, options);
    pair[0] = (struct process_pair){.rig = rig, .s_mr = s_mr, .r_mr = r_mr};
    pair[1].rig = rig = rig_create_beside(pair[0].rig, options);
    rig_connect(rig, 0, 0);
    race_register();
    pair[1] = (struct process_pair){.rig = rig, .s_mr = s_mr, .r_mr = r_mr};
    for (int i = 0; i < 2; i++) {
        pair_begin(i, 8, 3000);
    }
    rig = pair[0].rig;
    fire("h0:n0 blackhole-tx");
    for (int i = 0; i < 2; i++) {
        pair_send(i, 8);
    }
    fire(fault[_i]);
    ck_assert(rig_until(pair[0].rig, both_done, RIG_S));
    for (int i = 0; i < 2; i++) {
        use_pair(i);
        ck_assert_int_eq(rig->side[0].status, R2_OK);
        ck_assert_int_eq(rig->side[1].status, R2_OK);
        for (int k = 0; k < 8; k++) {
            ck_assert_uint_eq(rig_size(rig, 1, slot[32 * i + k].r_op, 0), 3000);
            slot_is_right(32 * i + k);
        }
        ck_assert_uint_eq(comm(0)->fo.switches, 1);
        ck_assert_uint_eq(comm(0)->tx->count.retransmitted_parts, 8);
        nothing_twice();
        rig_dereg(rig, 0, s_mr);
        rig_dereg(rig, 1, r_mr);
    }
    rig = pair[0].rig;
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, both_directions_of_one_nic_pair, 0, 6);
    tcase_add_loop_test(t, several_communicators_and_devices, 0, 3);
    tcase_add_loop_test(t, two_processes_of_a_host_share_a_nic, 0, 4);
}

int main(void)
{
    return run_suite("races: many", add);
}
