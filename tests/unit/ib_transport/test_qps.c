/* NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS: several queue pairs over a NIC pair. */
#include "tests/unit/drain_rig.h"

#include "service/r2_setup.h"

#define QPS4  "NCCL_IB_QPS_PER_CONNECTION=4"
#define SPLIT "NCCL_IB_SPLIT_DATA_ON_QPS=1"

/* --- decisions --- */

START_TEST(every_pair_first_then_more_for_the_primary)
{
    static const struct {
        int pairs, qps, n, of_pair[8];
    } row[] = {
        {1, 1, 1, {1}},
        {1, 4, 4, {4}},
        {1, 8, 8, {8}},
        {1, 128, 8, {8}},
        {2, 2, 4, {2, 2}},
        {2, 4, 8, {4, 4}},
        {2, 128, 8, {7, 1}},
        {4, 2, 8, {2, 2, 2, 2}},
        {4, 4, 8, {4, 2, 1, 1}},
        {3, 3, 8, {3, 3, 2}},
        {8, 4, 8, {1, 1, 1, 1, 1, 1, 1, 1}},
    };

    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        uint8_t s[IB_MAX_PATHS], r[IB_MAX_PATHS];
        int of[8] = {0};

        for (int k = 0; k < row[i].pairs; k++) {
            s[k] = (uint8_t)k;
            r[k] = (uint8_t)(10 + k);
        }
        ck_assert_msg(r2_setup_more(s, r, row[i].pairs, row[i].qps) == row[i].n, "row %u", i);
        for (int k = 0; k < row[i].n; k++) {
            ck_assert_int_eq(r[k], 10 + s[k]);
            ck_assert(k >= row[i].pairs || s[k] == k); /* the order of the pairs stands */
            of[s[k]]++;
        }
        ck_assert_msg(memcmp(of, row[i].of_pair, sizeof(of)) == 0, "row %u", i);
    }
}
END_TEST

/* --- connections --- */

static int used(int side, const uint64_t *before, int from, int to)
{
    int n = 0;

    for (int p = from; p < to; p++) {
        n += carried(side, p) > before[p];
    }
    return n;
}

static void note(int side, uint64_t *before)
{
    for (int p = 0; p < comm(side)->conn.npaths; p++) {
        before[p] = carried(side, p);
    }
}

/* Which paths of side 0 are over its NIC @nic. */
static uint32_t over(int nic)
{
    uint32_t mask = 0;

    for (int p = 0; p < comm(0)->conn.npaths; p++) {
        mask |= (uint32_t)(comm(0)->conn.path[p].nic == nic) << p;
    }
    return mask;
}

/* Options as in a job: the primary alone while it is healthy. */
static void begin_qps(int nics, const char *a, const char *b)
{
    start(nics, (const char *[]){"NCCL_R2_SPREAD=off", a, b, NULL});
}

START_TEST(whole_messages_go_over_the_primarys_queue_pairs_in_turn)
{
    uint64_t before[IB_MAX_PATHS], wrs;

    begin_qps(2, QPS4, NULL);
    ck_assert_int_eq(comm(0)->conn.npaths, 8);
    ck_assert_int_eq(__builtin_popcount(over(0)), 4);
    ck_assert_int_eq(__builtin_popcount(over(1)), 4);
    note(0, before);
    wrs = posted(0);
    messages(8);
    ck_assert_uint_eq(posted(0) - wrs, 8); /* one each */
    for (int p = 0; p < 8; p++) {
        ck_assert_uint_eq(carried(0, p) - before[p], over(0) >> p & 1 ? 2 * sizeof(out[0]) : 0);
    }
    stop();
}
END_TEST

/* The primary's NIC has refused the buffer: all of the plan's paths are over it, and the message
 * goes over another NIC whatever its size. */
START_TEST(a_buffer_that_the_primary_refused)
{
    begin_qps(2, QPS4, _i ? "NCCL_IB_SPLIT_DATA_ON_QPS=1" : NULL);
    messages(1);
    rig_dereg(rig, 0, s_mr);
    rig_fault(rig, "h0:n0 mr-fail 1");
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    ck_assert_ptr_null(s_mr->mr[0]);
    messages(4);
    stop();
}
END_TEST

START_TEST(split_messages_go_over_all_of_them)
{
    uint64_t before[IB_MAX_PATHS], wrs;

    begin_qps(2, QPS4, SPLIT);
    note(0, before);
    wrs = posted(0);
    messages(8);
    ck_assert_uint_eq(posted(0) - wrs, 32);
    for (int p = 0; p < 8; p++) {
        ck_assert_uint_eq(carried(0, p) - before[p], over(0) >> p & 1 ? 2 * sizeof(out[0]) : 0);
    }
    stop();
}
END_TEST

/* Whoever wants more gets it. The other end's cut is its own: only S splits. */
START_TEST(the_larger_number_of_both_ends)
{
    begin_qps(1, _i & 1 ? "1:NCCL_IB_QPS_PER_CONNECTION=3" : "0:NCCL_IB_QPS_PER_CONNECTION=3",
              _i & 2 ? "1:" SPLIT : NULL);
    ck_assert_int_eq(comm(0)->conn.npaths, 3);
    ck_assert_int_eq(comm(1)->conn.npaths, 3);
    messages(3);
    ck_assert_uint_eq(posted(0), 3);
    stop();
}
END_TEST

/* All at once with the NIC, whichever end it is of: the survivors' queue pairs go on, and all
 * return. */
START_TEST(a_nic_takes_all_its_queue_pairs_along)
{
    uint64_t before[IB_MAX_PATHS];

    begin_qps(2, QPS4, _i & 1 ? SPLIT : NULL);
    messages(4);
    begin_message();
    rig_fault(rig, _i & 2 ? "h1:n0 down" : "h0:n0 down");
    end_message();
    for (int p = 0; p < 8; p++) {
        if (over(0) >> p & 1) {
            wait_settled(p);
        }
    }
    ck_assert_uint_eq(comm(0)->conn.up, over(1));
    note(0, before);
    messages(8);
    ck_assert_int_eq(used(0, before, 0, 8), 4);
    rig_fault(rig, _i & 2 ? "h1:n0 up" : "h0:n0 up");
    for (int p = 0; p < 8; p++) {
        if (over(0) >> p & 1) {
            wait_up(p, 2);
        }
    }
    note(0, before);
    messages(8);
    ck_assert_int_eq(used(0, before, 0, 8), 4); /* the primary's again */
    ck_assert_uint_gt(carried(0, 0), before[0]);
    stop();
}
END_TEST

/* One queue pair alone: its sisters go on, the backup sleeps. */
START_TEST(a_queue_pair_fails_alone)
{
    uint64_t before[IB_MAX_PATHS];

    start(2, (const char *[]){"NCCL_R2_SPREAD=off", QPS4, "NCCL_R2_FAILBACK=never",
                              "NCCL_R2_MIN_NICS=2", NULL});
    messages(4);
    rig_enter(&rig->side[_i]);
    fo_fault(&comm(_i)->fo, 0, &(struct ib_fault_info){.fault = IB_FAULT_QP});
    rig_kick(&rig->side[_i]);
    wait_settled(0);
    ck_assert_int_eq(__builtin_popcount(comm(0)->conn.up), 7);
    note(0, before);
    messages(6);
    for (int p = 0; p < 8; p++) {
        ck_assert_uint_eq(carried(0, p) - before[p],
                          p && (over(0) >> p & 1) ? 2 * sizeof(out[0]) : 0);
    }
    stop();
}
END_TEST

static int none_of_nic_0(struct rig *r)
{
    return ((comm(0)->conn.up | comm(1)->conn.up) & over(0)) == 0;
}

/* No answer: none of them is kept as a last path while another NIC is there; with one NIC alone
 * none is given up. */
START_TEST(silence_of_a_pair_is_that_of_all)
{
    begin_qps(2, QPS4, _i & 1 ? SPLIT : NULL);
    rig_run(rig, RIG_S); /* probes stand */
    messages(4);
    rig_fault(rig, "h0:n0 blackhole");
    begin_message();
    end_message();
    messages(2);
    ck_assert(rig_until(rig, none_of_nic_0, 10 * RIG_S));
    stop();
}
END_TEST

/* A message whose CTS is there, into a NIC that says nothing any more. */
static void begin_in_silence(void)
{
    uint64_t *o = out[count % 2], *i = in[count % 2];

    memset(i, 0xff, sizeof(in[0]));
    for (unsigned k = 0; k < WORDS; k++) {
        o[k] = count << 32 | k;
    }
    ck_assert_int_ge(rig_irecv1(rig, i, sizeof(in[0]), 0, r_mr), 0);
    rig_run(rig, RIG_MS);
    rig_fault(rig, "h0:n0 blackhole");
    rig_send_wait(rig, o, sizeof(out[0]), 0, s_mr);
}

START_TEST(silence_of_the_only_pair_ends_none)
{
    start(1, (const char *[]){QPS4, _i & 1 ? SPLIT : "NCCL_R2_SPREAD=off", "NCCL_IB_TIMEOUT=18",
                              "NCCL_R2_T_STUCK=100", NULL});
    rig_run(rig, RIG_S);
    messages(4);
    begin_in_silence();
    rig_run(rig, 7 * RIG_S); /* longer than a queue pair may stand still, shorter than RC tries */
    ck_assert_uint_eq(comm(0)->conn.up, 15);
    ck_assert_uint_eq(comm(1)->conn.up, 15);
    rig_fault(rig, "h0:n0 restore");
    end_message();
    ck_assert_uint_eq(inc(0, 0), 1);
    stop();
}
END_TEST

static int has_ended(struct rig *r)
{
    return comm(0)->fo.error != R2_OK;
}

/* ... and nobody waits for ever. */
START_TEST(the_only_pair_is_given_up_in_the_end)
{
    start(1, (const char *[]){QPS4, "NCCL_R2_GIVE_UP=2000", "NCCL_IB_TIMEOUT=18",
                              "NCCL_R2_T_STUCK=100", NULL});
    rig_run(rig, RIG_S);
    messages(4);
    begin_in_silence();
    ck_assert(rig_until(rig, has_ended, 200 * RIG_S));
    ck_assert(strstr(rig->last_warn[0], "last path") || strstr(rig->last_warn[0], "no path"));
}
END_TEST

START_TEST(a_drained_nic_loses_all_of_them)
{
    begin_qps(2, QPS4, NULL);
    messages(2);
    begin_message();
    drain(_i, 1);
    end_message();
    ck_assert(rig_until(rig, none_of_nic_0, 10 * RIG_S));
    ck_assert_uint_eq(comm(0)->tx->count.retransmitted_parts, 0);
    messages(2);
    drain(_i, 0);
    wait_up(0, 2);
    messages(2);
    stop();
}
END_TEST

/* More than there is room for: clamped, and said once however many connections there are. */
START_TEST(too_many_are_fewer_and_said_once)
{
    static const struct {
        const char *qps;
        int nics, paths, primary, said;
    } row[] = {
        {"NCCL_IB_QPS_PER_CONNECTION=128", 1, 8, 8, 1},
        {"NCCL_IB_QPS_PER_CONNECTION=8", 1, 8, 8, 0},
        {"NCCL_IB_QPS_PER_CONNECTION=8", 4, 8, 5, 1},
        {"NCCL_IB_QPS_PER_CONNECTION=4", 4, 8, 4, 0},
        {"NCCL_IB_QPS_PER_CONNECTION=2", 8, 8, 1, 1},
    };

    begin_qps(row[_i].nics, row[_i].qps, NULL);
    ck_assert_int_eq(comm(0)->conn.npaths, row[_i].paths);
    ck_assert_int_eq(__builtin_popcount(ib_conn_pair(&comm(0)->conn, 0)), row[_i].primary);
    for (int side = 0; side < 2; side++) {
        ck_assert_int_eq(rig->side[side].inst->logged.qps, row[_i].said);
        ck_assert_int_eq(strstr(rig->last_warn[side], "NCCL_IB_QPS_PER_CONNECTION=") != NULL,
                         row[_i].said);
        rig->last_warn[side][0] = '\0';
        r2_setup_check_qps(comm(side), 128);
        ck_assert_int_eq(rig->side[side].inst->logged.qps, 1);
        ck_assert(!row[_i].said || rig->last_warn[side][0] == '\0');
    }
    messages(4);
    stop();
}
END_TEST

/* Without failover, too; the first failure still ends it. */
START_TEST(without_failover)
{
    start(2, (const char *[]){"NCCL_R2_FAILOVER=off", QPS4, NULL});
    ck_assert_int_eq(comm(0)->conn.npaths, 4);
    messages(4);
    for (int p = 0; p < 4; p++) {
        ck_assert_uint_gt(carried(0, p), 0);
    }
    rig_fault(rig, "h0:n0 down");
    rig_run(rig, RIG_S);
    ck_assert_int_ne(comm(0)->fo.error, R2_OK);
    ck_assert(strstr(comm(0)->fo.why, "NCCL_R2_FAILOVER=off") != NULL);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, every_pair_first_then_more_for_the_primary);
    tcase_add_test(t, whole_messages_go_over_the_primarys_queue_pairs_in_turn);
    tcase_add_test(t, split_messages_go_over_all_of_them);
    tcase_add_loop_test(t, a_buffer_that_the_primary_refused, 0, 2);
    tcase_add_loop_test(t, the_larger_number_of_both_ends, 0, 4);
    tcase_add_loop_test(t, a_nic_takes_all_its_queue_pairs_along, 0, 4);
    tcase_add_loop_test(t, a_queue_pair_fails_alone, 0, 2);
    tcase_add_loop_test(t, silence_of_a_pair_is_that_of_all, 0, 2);
    tcase_add_loop_test(t, silence_of_the_only_pair_ends_none, 0, 2);
    tcase_add_test(t, the_only_pair_is_given_up_in_the_end);
    tcase_add_loop_test(t, a_drained_nic_loses_all_of_them, 0, 2);
    tcase_add_loop_test(t, too_many_are_fewer_and_said_once, 0, 5);
    tcase_add_test(t, without_failover);
}

int main(void)
{
    return run_suite("queue pairs per NIC pair", add);
}
