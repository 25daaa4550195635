/* The marker of a receive queue (P16.3), which an arrival may take: it does not when R sees the
 * fault in the middle of a poll and S fills its window once more. */
#include "tests/unit/race_rig.h"

#include "ib_transport/ib_fence_proof.h"

#define DEPTH 64 /* receives of a path; S has 48 parts out at most */
#define OUT   48
#define LEN   100

static struct {
    int (*poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    struct ibv_cq *cq; /* of R's path 0 */
    int hidden;        /* nothing shows */
    int fault;         /* with the first full batch */
    int after;         /* completions that were taken since, other than by a drain */
} hook;

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    const struct ib_fault_info info = {.fault = IB_FAULT_ADMIN};
    int got = cq == hook.cq && hook.hidden ? 0 : hook.poll(cq, n, wc);

    if (cq != hook.cq || got == 0) {
        return got;
    }
    hook.after += !is_up(1, 0) ? got : 0;
    if (hook.fault && got == n) {
        hook.fault = 0;
        fo_fault(&comm(1)->fo, 0, &info);
    }
    return got;
}

static void begin(void)
{
    struct ibv_context_ops *ops;

    start(2, (const char *[]){"NCCL_R2_RQ_DEPTH=64", "NCCL_R2_FAILBACK=never", NULL});
    ck_assert_uint_eq(comm(1)->conn.path[0].cap.rq_depth, DEPTH);
    messages(4, LEN);
    ops = &rig->side[1].inst->nics.nic[0].ctx->ops;
    memset(&hook, 0, sizeof(hook));
    hook.poll = ops->poll_cq;
    hook.cq = comm(1)->conn.path[0].cq;
    ops->poll_cq = poll_cq;
}

/* One message after the other through buffers of their own, @n of them from number @first. */
static void receives(int n)
{
    for (int i = 0; i < n; i++) {
        ck_assert_int_ge(rig_irecv1(rig, in[0] + i * LEN, LEN, 0, r_mr), 0);
    }
}

static int sends(int from, int n)
{
    int i;

    for (i = from; i < n; i++) {
        fill(out[0] + i * LEN, (uint64_t)i, LEN);
        if (rig_isend(rig, out[0] + i * LEN, LEN, 0, s_mr) < 0) {
            break;
        }
    }
    return i;
}

START_TEST(a_fault_in_the_middle_of_a_poll)
{
    struct rig_side *r;
    int sent_now;

    begin();
    r = &rig->side[1];
    receives(2 * OUT);
    rig_run(rig, RIG_MS);
    hook.hidden = 1;
    sent_now = sends(0, 2 * OUT);
    rig_run(rig, 50 * RIG_US);
    ck_assert_int_eq(sent_now, 2 * OUT); /* half of them wait for room */
    ck_assert_int_eq(comm(0)->conn.path[0].parts_out, OUT);
    rig_oob_cut(rig, 1);  /* S does not hear of the fault, */
    r->worker_armed |= 1; /* and R's queue pair goes on */
    hook.hidden = 0;
    hook.fault = 1;
    rig_run(rig, 100 * RIG_US);
    ck_assert(!hook.fault && !is_up(1, 0));
    ck_assert_int_eq(hook.after, 0);
    ck_assert_uint_gt(comm(0)->conn.path[0].parts_out, OUT / 2); /* S has filled its window again */
    r->worker_armed &= ~1u;
    rig_enter(r);
    while (r2_inst_worker_step(r->inst, 0)) {
    }
    rig_kick(r);
    rig_run(rig, 5 * RIG_MS);
    ck_assert_int_eq(path_at(1, 0)->fence.stage, IB_FENCE_HARD);
    rig_oob_cut(rig, 0);
    ck_assert(rig_until(rig, rig_all_done, 100 * RIG_MS));
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    ck_assert_int_eq(memcmp(in[0], out[0], 2 * OUT * LEN), 0);
    ck_assert_uint_eq(comm(1)->rx->count.duplicates, 0);
}
END_TEST

static int fenced_hard(struct rig *r)
{
    return path_at(1, 0)->fence.stage == IB_FENCE_HARD;
}

/*
 * An arrival does take it: S has one part more out than R has receives, of which it knows all but a
 * batch. Another marker stands behind ERR then, and tells as much; also where a receive posted in
 * ERR is flushed by the next move to ERR alone. Where the library makes flushes up T_pcie is waited
 * for, as ever.
 */
START_TEST(a_marker_that_an_arrival_takes)
{
    static const char *const device[] = {NULL, "h1:n0 recv-kept", "h1:n0 provider ionic"};
    struct rig_side *r;
    int n;

    begin();
    r = &rig->side[1];
    if (device[_i]) {
        fire(device[_i]);
    }
    receives(2 * OUT);
    rig_run(rig, RIG_MS);
    hook.hidden = 1;
    comm(0)->conn.rq_depth =
        DEPTH + IB_RECV_BATCH + 1 + 16; /* 16 slots are kept for the oldest message */
    n = sends(0, 2 * OUT);
    rig_run(rig, 50 * RIG_US);
    ck_assert_int_eq(n, 2 * OUT);
    ck_assert_int_eq(comm(0)->conn.path[0].parts_out, DEPTH + IB_RECV_BATCH + 1);
    rig_oob_cut(rig, 1);  /* S does not hear of the fault, */
    r->worker_armed |= 1; /* and R's queue pair goes on */
    give_up_path(1, 0);
    ck_assert_int_eq(comm(1)->conn.path[0].marker.posted, IB_MARK_RECV | IB_MARK_SEND);
    rig_run(rig, 5 * RIG_MS); /* RNR: it is tried again, and finds the marker */
    hook.hidden = 0;
    r->worker_armed &= ~1u;
    rig_enter(r);
    while (r2_inst_worker_step(r->inst, 0)) {
    }
    rig_kick(r);
    ck_assert(rig_until(rig, fenced_hard, RIG_S));
    ck_assert_int_eq(path_at(1, 0)->fence.again, 1);
    comm(0)->conn.rq_depth = DEPTH;
    rig_oob_cut(rig, 0);
    ck_assert(rig_until(rig, rig_all_done, RIG_S));
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    ck_assert_int_eq(memcmp(in[0], out[0], 2 * OUT * LEN), 0);
    ck_assert_uint_eq(comm(1)->rx->count.duplicates, 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_marker_that_an_arrival_takes, 0, 3);
    tcase_add_test(t, a_fault_in_the_middle_of_a_poll);
}

int main(void)
{
    return run_suite("fence: markers", add);
}
