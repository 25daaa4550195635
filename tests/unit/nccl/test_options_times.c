/* Options that are times: how long something takes is what the option says, for more than one value
 * of it. */
#include "tests/unit/watch_rig.h"

#include "plugin/base/r2_log.h"

/* "NAME=value" for this test's option; the text incarnations until the next call with the same
 * @slot. */
static const char *with(int slot, const char *name, int value)
{
    static char text[4][64];

    snprintf(text[slot], sizeof(text[slot]), "%s=%d", name, value);
    return text[slot];
}

static uint64_t time_until(int (*cond)(struct rig *r), uint64_t limit)
{
    uint64_t from = rig_now(rig);

    ck_assert_msg(rig_until(rig, cond, limit), "not in %llu ms",
                  (unsigned long long)(limit / RIG_MS));
    return rig_now(rig) - from;
}

/* @took is @ns, and less than @slack more. */
static void took_about(uint64_t took, uint64_t ns, uint64_t slack)
{
    ck_assert_msg(took >= ns && took < ns + slack, "took %.3f ms, the option says %.3f",
                  (double)took / 1e6, (double)ns / 1e6);
}

static void admin_down(int side, int p)
{
    rig_enter(&rig->side[side]);
    fo_fault(&rig->side[side].comm->fo, p, &(struct ib_fault_info){.fault = IB_FAULT_ADMIN});
}

static int send_done(struct rig *r)
{
    return r->side[0].op[0].req == NULL;
}

/* Eight receives posted and one filled: no CTS carries its acknowledgement, and it is not worth a
 * write of its own yet.
 */
START_TEST(ack_waits_t_ack)
{
    static const int us[] = {0, 20, 3000};
    uint64_t took;

    start(2, (const char *[]){with(0, "NCCL_R2_T_ACK", us[_i]), NULL});
    for (int i = 0; i < 8; i++) {
        recv_post(i, 100);
    }
    rig_run(rig, RIG_MS);
    send_post(0, 100);
    took = time_until(send_done, RIG_S);
    took_about(took, us[_i] * RIG_US, 300 * RIG_US);
    for (int i = 1; i < 8; i++) {
        send_post(i, 100);
    }
    finish(8, 100, RIG_S);
    stop();
}
END_TEST

static int down_lost(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_DOWN || from != 0;
}

/* A sender says DOWN when the path goes down, and at once again, as another word, when its fence is
 * through; which of the two is first to come out with the thread's turn is no question of
 * T_repeat. */
START_TEST(unanswered_words_are_repeated_after_t_repeat)
{
    static const int ms[] = {5, 40};
    uint64_t at[3] = {0}, t = ms[_i] * RIG_MS;
    int n = 0;

    start(2, (const char *[]){QUIET_RC, with(0, "NCCL_R2_T_REPEAT", ms[_i]), NULL});
    rig->filter = down_lost;
    admin_down(0, 0);
    rig_run(rig, 4 * t);
    for (unsigned i = 0; i < rig->sent_count; i++) {
        if (rig->sent[i].type == FO_MSG_DOWN && rig->sent[i].from == 0 && n < 3 &&
            (rig->sent[i].body.down.flags & FO_FLAG_FENCED)) {
            at[n++] = rig->sent[i].at;
        }
    }
    ck_assert_int_eq(n, 3);
    took_about(at[1] - at[0], t, RIG_MS);
    took_about(at[2] - at[1], 2 * t, RIG_MS);
    rig->filter = NULL;
    stop();
}
END_TEST

static int r_is_soft(struct rig *r)
{
    return r->side[1].comm->fo.path[0].soft;
}

START_TEST(a_fence_turns_soft_after_t_fence)
{
    static const int ms[] = {20, 150};
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, "NCCL_R2_WATCHDOG=off", with(0, "NCCL_R2_T_FENCE", ms[_i]),
                              NULL});
    messages(1, 100);
    fire("h1:n0 hang");
    rig_run(rig, RIG_MS);
    admin_down(1, 0);
    took = time_until(r_is_soft, RIG_S);
    took_about(took, ms[_i] * RIG_MS, 2 * RIG_MS);
    fire("h1:n0 unhang");
    stop();
}
END_TEST

static int r_is_fenced(struct rig *r)
{
    return r->side[1].comm->fo.path[0].state == FO_FENCED;
}

static int received(struct rig *r)
{
    return r->side[1].head == r->side[1].tail;
}

/* The NIC that can no longer flush may have writes on their way to the GPU when its queue pair is
 * fenced. */
START_TEST(gpu_memory_is_held_for_t_pcie)
{
    static const int ms[] = {0, 20, 120};
    uint64_t fenced;
    struct ib_mr *gpu;

    start(2, (const char *[]){QUIET_RC, with(0, "NCCL_R2_T_PCIE", ms[_i]), NULL});
    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_reg(rig->side[1].comm, in, sizeof(in), IB_PTR_CUDA, 0, -1, &gpu),
                     R2_OK);
    memset(in[0], 0, 100);
    ck_assert_int_ge(rig_irecv1(rig, in[0], 100, 0, gpu), 0);
    rig_run(rig, RIG_MS);
    admin_down(1, 0);
    time_until(r_is_fenced, RIG_S);
    fenced = rig_now(rig);
    send_post(0, 100);
    time_until(received, RIG_S);
    took_about(rig_now(rig) - fenced + RIG_MS, ms[_i] * RIG_MS, 3 * RIG_MS);
    ck_assert_int_eq(memcmp(in[0], out[0], 100), 0);
    finish(1, 100, RIG_S);
    rig_dereg(rig, 1, gpu);
    stop();
}
END_TEST

static int receiver_is_gone(struct rig *r)
{
    return rig_comms(r, 1) == 0;
}

/* Nobody comes for the final ledger. */
START_TEST(a_closed_receiver_stays_for_linger)
{
    static const int ms[] = {200, 2000};
    uint64_t took;

    start(2, (const char *[]){QUIET_RC, with(0, "NCCL_R2_LINGER", ms[_i]), NULL});
    messages(1, 100);
    rig_oob_cut(rig, 1);
    rig_run(rig, RIG_MS);
    rig_dereg(rig, 1, r_mr);
    rig_close(rig, 1);
    ck_assert_int_eq(rig_comms(rig, 1), 1);
    took = time_until(receiver_is_gone, 10 * RIG_S);
    took_about(took, ms[_i] * RIG_MS, 100 * RIG_MS);
    rig_dereg(rig, 0, s_mr);
}
END_TEST

static uint64_t drained_ns;

static void drain_seen(struct r2_oob *oob, uint64_t limit_ns)
{
    drained_ns = limit_ns;
}

START_TEST(last_words_wait_for_exit)
{
    static const int ms[] = {0, 2000, 60000};
    struct r2_inst *inst;
    struct r2_oob_ops ops;

    rig = rig_create(1, 0, (const char *[]){with(0, "NCCL_R2_EXIT", ms[_i]), NULL});
    inst = rig->side[0].inst;
    ops = *inst->oob->ops;
    ops.drain = drain_seen;
    inst->oob->ops = &ops;
    drained_ns = UINT64_MAX;
    rig_enter(&rig->side[0]);
    ck_assert_int_eq(r2_inst_exit_notify(inst), 0);
    ck_assert_uint_eq(drained_ns, ms[_i] * RIG_MS);
    rig_destroy(rig); /* while the table is there */
    rig = NULL;
}
END_TEST

/* The verdict needs both: silence for T_suspect, and no answer for T_probe. */
START_TEST(silence_is_a_verdict_after_t_suspect_and_t_probe)
{
    static const struct {
        int suspect, probe;
    } ms[] = {{30, 30}, {400, 30}, {30, 400}};
    uint64_t least = (uint64_t)(ms[_i].suspect + ms[_i].probe) * RIG_MS, took;

    start(2, (const char *[]){QUIET_RC, with(0, "NCCL_R2_T_SUSPECT", ms[_i].suspect),
                              with(1, "NCCL_R2_T_PROBE", ms[_i].probe), NULL});
    wait_probes();
    messages(8, BIG);
    recv_post(0, BIG);
    rig_run(rig, RIG_MS);
    fire("h0:n0 blackhole-tx");
    send_post(0, BIG);
    took = time_until(path_0_is_down, 2 * RIG_S);
    found_as(0, IB_FAULT_SILENT);
    /* the watch has steps of a quarter of T_suspect, and R may ask as well as S */
    took_about(took, least, (uint64_t)ms[_i].suspect * RIG_MS + 60 * RIG_MS);
    finish(1, BIG, RIG_S);
    stop();
}
END_TEST

static int path_0_has_returned(struct rig *r)
{
    return ib_conn_up(&r->side[0].comm->conn, 0) && ib_conn_up(&r->side[1].comm->conn, 0) &&
           r->side[0].comm->conn.path[0].inc > 1;
}

START_TEST(return_after_its_time_or_never)
{
    static const int ms[] = {100, 3000, 100};
    int never = _i == 2;

    start(2, (const char *[]){QUIET_RC, with(0, "NCCL_R2_T_RETURN", ms[_i]),
                              never ? "NCCL_R2_FAILBACK=never" : "NCCL_R2_FAILBACK=auto", NULL});
    wait_probes();
    messages(4, 100);
    fire("h0:n0 down");
    messages(4, 100);
    time_until(path_0_is_down, RIG_S);
    rig_run(rig, RIG_S);
    fire("h0:n0 up");
    if (never) {
        ck_assert(!rig_until(rig, path_0_has_returned, 60 * RIG_S));
    } else {
        took_about(time_until(path_0_has_returned, 30 * RIG_S), ms[_i] * RIG_MS,
                   ms[_i] * RIG_MS + RIG_S);
    }
    messages(4, 100);
    stop();
}
END_TEST

static int (*true_query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
static int ports_read;

static int query_port_counted(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    ports_read++;
    return true_query_port(ctx, port, attr);
}

START_TEST(ports_are_read_every_look)
{
    static const int ms[] = {50, 500};
    struct r2_inst *inst;

    start(2, (const char *[]){with(0, "NCCL_R2_LOOK", ms[_i]), NULL});
    rig_run(rig, RIG_S);
    inst = rig->side[0].inst;
    true_query_port = inst->v.query_port;
    inst->v.query_port = query_port_counted;
    ports_read = 0;
    rig_run(rig, 5 * RIG_S);
    inst->v.query_port = true_query_port;
    ck_assert_msg(abs(ports_read - 2 * 5000 / ms[_i]) <= 2 + 200 / ms[_i],
                  "%d ports were read in 5 s", ports_read);
    stop();
}
END_TEST

static int conf_lost(struct rig *r, int from, int type, union fo_body *body)
{
    return type != FO_MSG_CONF;
}

START_TEST(set_up_ends_after_connect)
{
    static const int ms[] = {500, 7000};
    char says[64];
    uint64_t from;

    rig = rig_create(2, 0, (const char *[]){with(0, "NCCL_R2_CONNECT", ms[_i]), NULL});
    rig->filter = conf_lost;
    from = rig_now(rig);
    ck_assert_int_eq(rig_connect_fails(rig, 0, 0), R2_ERR_COMM);
    took_about(rig_now(rig) - from, ms[_i] * RIG_MS, 20 * RIG_MS);
    snprintf(says, sizeof(says), "not done within NCCL_R2_CONNECT=%d ms", ms[_i]);
    r2_log_flush();
    ck_assert_msg(strstr(rig->last_warn[0], says) != NULL, "it says '%s'", rig->last_warn[0]);
}
END_TEST

static void rig_end(void)
{
    if (rig) {
        teardown();
    }
}

int main(void)
{
    Suite *s = suite_create("options: times");
    TCase *t = tcase_create("times");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, rig_end);
    tcase_add_loop_test(t, ack_waits_t_ack, 0, 3);
    tcase_add_loop_test(t, unanswered_words_are_repeated_after_t_repeat, 0, 2);
    tcase_add_loop_test(t, a_fence_turns_soft_after_t_fence, 0, 2);
    tcase_add_loop_test(t, gpu_memory_is_held_for_t_pcie, 0, 3);
    tcase_add_loop_test(t, a_closed_receiver_stays_for_linger, 0, 2);
    tcase_add_loop_test(t, last_words_wait_for_exit, 0, 3);
    tcase_add_loop_test(t, silence_is_a_verdict_after_t_suspect_and_t_probe, 0, 3);
    tcase_add_loop_test(t, return_after_its_time_or_never, 0, 3);
    tcase_add_loop_test(t, ports_are_read_every_look, 0, 2);
    tcase_add_loop_test(t, set_up_ends_after_connect, 0, 2);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
