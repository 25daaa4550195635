/*
 * Holds where neither end can fence, since both drivers do not return: what they may rest on
 * (P18, P19), while S's NIC goes on repeating.
 */
#include "tests/unit/race_rig.h"

#include <errno.h>

#include "plugin/ib_transport/ib_fence_proof.h"

#define N    4
#define LEN  20000
#define DEAD 1500 /* ms; RC repeats for less */

static uint64_t done_at;

/* S's process has other plans with its memory, and the way that swallowed its packets is mended. */
static void way_is_back(void *arg)
{
    memset(out, 0x5a, sizeof(out));
    fire("h0:n0 up");
}

/* Path 0 has swallowed what S posted, R has all of it by path 1, both drivers are stuck. */
static void both_stuck(void)
{
    start(2, (const char *[]){"NCCL_R2_T_PACKET=100", "NCCL_R2_T_DEAD=1500", "NCCL_IB_TIMEOUT=16",
                              "NCCL_IB_RETRY_CNT=7", NULL});
    recv_burst(N, LEN);
    fire("h0:n0 blackhole-tx");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    rig->side[0].worker_armed |= 1;
    rig->side[1].worker_armed |= 1;
}

/* Until @ns after now: when R's first message is done. */
static void watch(uint64_t ns)
{
    uint64_t from = rig_now(rig);

    done_at = 0;
    while (rig_now(rig) - from < ns) {
        if (!done_at && rig_done(rig, 1, slot[0].r_op)) {
            done_at = rig_now(rig) - from;
        }
        rig_run(rig, RIG_MS);
    }
}

static void freed(void)
{
    for (int side = 0; side < 2; side++) {
        rig->side[side].worker_armed &= ~1u;
        rig_enter(&rig->side[side]);
        while (r2_inst_worker_step(rig->side[side].inst, 0)) {
        }
        rig_kick(&rig->side[side]);
    }
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    ck_assert_int_eq(rig->side[0].inst->v.query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* S aborts, and says so before its queue pairs are in ERR: that they are is nobody's word. */
START_TEST(an_abort_is_no_fence)
{
    both_stuck();
    channel[0].silent = 1; /* R hears of its stop with BYE first, and counts from there */
    rig->filter = race_filter;
    give_up_path(1, 0);
    wait_acked(posted, RIG_S);
    rig_run(rig, 800 * RIG_MS);
    channel[0].silent = 0;
    ck_assert(path_at(1, 0)->soft && !path_at(1, 0)->peer_stopped);
    ck_assert(!rig_done(rig, 1, slot[0].r_op));
    fab_inproc_at(rig->f, rig_now(rig) + 300 * RIG_MS, way_is_back, NULL);
    rig_close(rig, 0);
    ck_assert_int_eq(path_at(1, 0)->state, FO_FENCED);
    watch(2 * RIG_S);
    ck_assert_uint_eq(ghost_writes, 0);
    ck_assert_uint_ge(done_at, (DEAD - 100) * RIG_MS);
    ck_assert_ptr_nonnull(strstr(rig->last_warn[1], "neither end could fence"));
    freed();
}
END_TEST

/*
 * S's hold has ended by time, its word on path 0 was lost and is said again: still soft. Then S's
 * queue pair breaks by itself, and its NIC flushes the markers: proof without the driver.
 */
START_TEST(time_makes_no_fence_hard)
{
    both_stuck();
    channel[0].silent = 1;
    rig->filter = race_filter;
    give_up_path(1, 0);
    give_up_path(0, 0);
    rig_run(rig, (DEAD + 100) * RIG_MS);
    ck_assert(!path_at(1, 0)->settled);
    channel[0].silent = 0;
    fab_inproc_at(rig->f, rig_now(rig) + 300 * RIG_MS, way_is_back, NULL);
    rig_run(rig, 250 * RIG_MS);
    ck_assert(path_at(1, 0)->settled && path_at(1, 0)->peer_soft);
    ck_assert_int_eq(path_at(0, 0)->fence.stage, IB_FENCE_SOFT);
    watch(DEAD * RIG_MS);
    ck_assert_uint_eq(ghost_writes, 0);
    ck_assert_uint_ge(done_at, 100 * RIG_MS); /* T_packet since */
    ck_assert_int_eq(path_at(0, 0)->fence.stage, IB_FENCE_HARD);
    ck_assert_int_eq(state_of(comm(0)->conn.path[0].qp), IBV_QPS_ERR);
    ck_assert(path_at(0, 0)->fence.job.busy);
    freed();
}
END_TEST

/* The NIC's own marker comes while the driver is asked again, and is stuck: proof all the same. */
START_TEST(a_marker_comes_while_a_question_is_out)
{
    start(2, (const char *[]){"NCCL_R2_T_PACKET=20000", NULL});
    recv_burst(N, LEN);
    send_burst(N);
    hold_completions(1, 0);
    give_up_path(1, 0);
    rig_run(rig, 5 * RIG_MS);
    rig->side[1].worker_armed |= 1;
    rig_run(rig, 55 * RIG_MS);
    ck_assert_int_eq(path_at(1, 0)->fence.stage, IB_FENCE_SOFT);
    ck_assert(path_at(1, 0)->fence.job.busy);
    show_completions();
    rig_run(rig, 100 * RIG_MS);
    ck_assert_int_eq(path_at(1, 0)->fence.stage, IB_FENCE_HARD);
    ck_assert(rig_done(rig, 1, slot[0].r_op));
    ck_assert_int_eq(path_at(1, 0)->state, FO_FENCED); /* the job's is not touched */
    freed();
    wait_returned(0, 2);
    stop();
}
END_TEST

static int (*real_modify)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static unsigned refused;

static int modify_refuses(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (attr->qp_state == IBV_QPS_ERR) {
        refused++;
        return ETIMEDOUT;
    }
    return real_modify(qp, attr, mask);
}

/*
 * S's driver refuses the move to ERR, and its NIC gets through by itself: its queue pair takes
 * packets still, which is no end. The path does not return before it is in ERR.
 */
START_TEST(what_got_through_is_moved_all_the_same)
{
    struct ib_verbs *v;
    uint64_t until;

    start(2, (const char *[]){"NCCL_R2_T_PACKET=100", "NCCL_R2_T_DEAD=20000", "NCCL_R2_T_RETURN=50",
                              "NCCL_IB_TIMEOUT=16", "NCCL_IB_RETRY_CNT=7", NULL});
    v = &rig->side[0].inst->v;
    real_modify = v->modify_qp;
    v->modify_qp = modify_refuses;
    refused = 0;
    recv_burst(N, LEN);
    fire("h0:n0 blackhole-tx");
    send_burst(N);
    rig_run(rig, 100 * RIG_US);
    rig->side[1].worker_armed |= 1;
    give_up_path(1, 0);
    wait_acked(posted, RIG_S);
    rig_run(rig, 100 * RIG_MS);
    ck_assert(path_at(0, 0)->soft && !rig_done(rig, 0, slot[0].s_op));
    fire("h0:n0 up");
    until = rig_now(rig) + 3 * RIG_S;
    while (rig_now(rig) < until) {
        rig_run(rig, 10 * RIG_MS);
        ck_assert_int_eq(path_at(0, 0)->fence.stage, IB_FENCE_SOFT);
        ck_assert_int_eq(state_of(comm(0)->conn.path[0].qp), IBV_QPS_RTS);
    }
    ck_assert(comm(0)->conn.path[0].marker.out & IB_MARK_SEND); /* it did get through */
    ck_assert_uint_gt(refused, 3);                              /* asked again and again */
    v->modify_qp = real_modify;
    freed();
    finish(N, 2 * RIG_S);
    wait_returned(0, 2);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, what_got_through_is_moved_all_the_same);
    tcase_add_test(t, an_abort_is_no_fence);
    tcase_add_test(t, time_makes_no_fence_hard);
    tcase_add_test(t, a_marker_comes_while_a_question_is_out);
}

int main(void)
{
    return run_suite("race: holds", add);
}
