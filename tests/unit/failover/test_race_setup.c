/* Races of beginnings: NICs and the channel fail during connect, accept and registration (P23). */
#include "tests/unit/race_rig.h"

#include "plugin/control/fo_proto.h"

/* --- set-up --- */

static const int step[] = {FO_MSG_REQ, FO_MSG_REP, FO_MSG_CONF, FO_MSG_READY};
static const struct {
    int host;
    enum fab_fault_kind kind;
    const char *text;
    unsigned limit_ms; /* until messages are through: known by an event, held for T_pcie, found by
                          silence */
} at_setup[] = {
    {0, FAB_FAULT_DOWN, "h0:n0 down", 5},
    {1, FAB_FAULT_DOWN, "h1:n0 down", 5},
    {0, FAB_FAULT_FATAL, "h0:n0 fatal", 5},
    {1, FAB_FAULT_FATAL, "h1:n0 fatal", 5},
    {0, FAB_FAULT_QP_ERROR, "h0:n0 qp-error", 60},
    {1, FAB_FAULT_QP_ERROR, "h1:n0 qp-error", 5},
    {0, FAB_FAULT_BLACKHOLE, "h0:n0 blackhole", 200},
    {1, FAB_FAULT_BLACKHOLE, "h1:n0 blackhole", 200},
    {0, FAB_FAULT_HANG, "h0:n0 hang", 200},
    {1, FAB_FAULT_REMOVE, "h1:n0 remove", 30},
};
#define STEPS  (int)(sizeof(step) / sizeof(step[0]))
#define SETUPS (int)(sizeof(at_setup) / sizeof(at_setup[0]))

/* The NIC that NCCL chose fails, in each way, at either end, at each step of connect and accept. */
START_TEST(failure_during_connect_and_accept)
{
    uint64_t from;

    race_create(3, (const char *[]){"NCCL_R2_FAILBACK=never", "NCCL_R2_T_PACKET=100",
                                    "NCCL_R2_T_DEAD=200", NULL});
    when_said(step[_i % STEPS], -1, NULL, at_setup[_i / STEPS].text);
    from = rig_now(rig);
    rig_connect(rig, 0, 0);
    ck_assert_uint_lt(rig_now(rig) - from, 4 * RIG_S);
    ck_assert_uint_gt(at_record.fired, 0);
    ck_assert_uint_eq(counters(at_setup[_i / STEPS].host, 0)->faults[at_setup[_i / STEPS].kind], 1);
    race_register();
    ck_assert_uint_le(eight_messages(RIG_S), at_setup[_i / STEPS].limit_ms * RIG_MS);
    stop();
}
END_TEST

static void cut(void)
{
    rig_oob_cut(rig, 1);
}

/* The channel is lost just before each record of the set-up goes out, for 300 ms, and a NIC fails
 * meanwhile. */
START_TEST(channel_lost_during_connect_and_accept)
{
    static const char *const fault[] = {NULL, "h0:n0 down", "h1:n0 down"};
    int done = 0;

    race_create(3, (const char *[]){"NCCL_R2_FAILBACK=never", NULL});
    when_said(step[_i % STEPS], -1, cut, fault[_i / STEPS]);
    rig_connect_begin(rig, 0, 0);
    for (int i = 0; i < 30000; i++) {
        ck_assert_int_eq(rig_connect_turn(rig, 0, &done), R2_OK);
    }
    ck_assert_uint_gt(at_record.fired, 0);
    ck_assert(!done);
    rig_oob_cut(rig, 0);
    for (int i = 0; i < 10000 && !done; i++) {
        ck_assert_int_eq(rig_connect_turn(rig, 0, &done), R2_OK);
    }
    ck_assert(done); /* 100 ms later */
    race_register();
    recv_burst(4, 3000);
    send_burst(4);
    finish(4, 10 * RIG_MS);
    ck_assert_int_eq(comm(0)->conn.path[0].count.bytes == 0, _i / STEPS > 0);
    stop();
}
END_TEST

/* --- registration --- */

static struct {
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                             unsigned int access);
    const struct ibv_context *ctx;
    const char *fault;
    unsigned fired;
} in_reg;

static struct ibv_mr *reg_mr_and_die(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                     unsigned int access)
{
    if (pd->context == in_reg.ctx && in_reg.fired++ == 0) {
        rig_fault(rig, in_reg.fault);
    }
    return in_reg.reg_mr(pd, addr, len, iova, access);
}

/* The NIC that NCCL chose dies inside the call that registers a buffer on it. */
START_TEST(failure_during_register)
{
    static const char *const fault[] = {"h0:n0 fatal", "h1:n0 fatal", "h0:n0 down", "h1:n0 remove"};
    int side = _i & 1;
    struct r2_inst *inst;

    race_create(2, (const char *[]){"NCCL_R2_T_PACKET=100", "NCCL_R2_T_DEAD=200", NULL});
    rig_connect(rig, 0, 0);
    inst = rig->side[side].inst;
    in_reg.reg_mr = inst->v.reg_mr_iova2;
    in_reg.ctx = inst->nics.nic[0].ctx;
    in_reg.fault = fault[_i];
    in_reg.fired = 0;
    inst->v.reg_mr_iova2 = reg_mr_and_die;
    race_register();
    ck_assert_uint_gt(in_reg.fired, 0);
    recv_burst(4, 3000);
    send_burst(4);
    finish(4, RIG_S);
    ck_assert(!is_up(0, 0));
    stop();
}
END_TEST

/* A buffer that one NIC would not take: it goes over the other one; with that gone there is an
 * error, not a wait for ever. */
START_TEST(buffer_registered_on_one_nic_alone)
{
    race_create(2, (const char *[]){"NCCL_R2_GIVE_UP=1000", "NCCL_R2_FAILBACK=never", NULL});
    rig_connect(rig, 0, 0);
    fire(_i ? "h1:n0 mr-fail 1" : "h0:n0 mr-fail 1");
    race_register();
    recv_burst(4, 3000);
    send_burst(4);
    finish(4, RIG_MS);
    ck_assert_uint_eq(comm(0)->conn.path[0].count.bytes, 0);
    ck_assert_uint_eq(comm(0)->conn.up, 3);
    recv_burst(4, 3000);
    fire("h0:n1 blackhole-tx");
    send_burst(4);
    fire("h0:n1 down");
    ck_assert(rig_until(rig, somebody_failed, 3 * RIG_S));
    ck_assert_int_eq(rig->side[0].status, R2_ERR_COMM);
    ck_assert_msg(strstr(comm(0)->fo.why, "registered on none of the paths left"), "%s",
                  comm(0)->fo.why);
    ck_assert(is_up(0, 0));
    nothing_twice();
}
END_TEST

/* S's queue pairs go to ERR when CONF or READY is said: the event comes before the path is up, and
 * only once. */
START_TEST(qp_error_during_set_up)
{
    uint64_t took;

    race_create(
        3, (const char *[]){"NCCL_R2_FAILBACK=never", _i & 2 ? "NCCL_IB_TIMEOUT=20" : NULL, NULL});
    when_said(_i & 1 ? FO_MSG_READY : FO_MSG_CONF, -1, NULL, "h0:n0 qp-error");
    rig_connect(rig, 0, 0);
    ck_assert_uint_gt(at_record.fired, 0);
    race_register();
    took = eight_messages(100 * RIG_S);
    ck_assert_msg(took < 10 * RIG_MS, "%.3f ms", (double)took / 1e6);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, failure_during_connect_and_accept, 0, STEPS * SETUPS);
    tcase_add_loop_test(t, channel_lost_during_connect_and_accept, 0, 3 * STEPS);
    tcase_add_loop_test(t, failure_during_register, 0, 4);
    tcase_add_loop_test(t, buffer_registered_on_one_nic_alone, 0, 2);
    tcase_add_loop_test(t, qp_error_during_set_up, 0, 4);
}

int main(void)
{
    return run_suite("races: set-up", add);
}
