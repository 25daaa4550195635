/*
 * A library that flushes a queue pair before any fence has moved it (bnxt_re from v50 on at a QP
 * event, every bnxt_re behind the first error completion): what it makes up while the path is still
 * up says no more of S's buffers than what it makes up behind ERR (P13, P16.4, P19).
 */
#include "tests/unit/race_rig.h"
#include "tests/unit/early_flush.h"

#define N    4
#define SIZE 3000

static int soft_at_both(struct rig *r)
{
    return path_at(0, 0)->soft && path_at(1, 0)->soft;
}

/*
 * Both devices hang, S's with its sends in hand, and answer no command. Row: whether S's library
 * has flushed these sends before. What R has by path 1 is not done at S, whose NIC may read the
 * buffers still; here it does, when it is back.
 */
START_TEST(a_device_hangs_behind_a_flush)
{
    start(2, (const char *[]){"NCCL_R2_T_PACKET=2000", NULL});
    fire("*:n0 provider bnxt");
    messages(4, SIZE);
    recv_burst(N, SIZE);
    fire("*:n0 hang");
    send_burst(N);
    if (_i) {
        library_flushes(IB_WR_DATA, posted - N, N);
    } else {
        give_up_path(0, 0);
    }
    ck_assert(rig_until(rig, soft_at_both, RIG_S));
    ck_assert_int_eq(flush.left, 0);
    wait_acked(posted, RIG_S);
    rig_run(rig, 5 * RIG_MS);
    for (int i = 0; i < N; i++) {
        ck_assert(!rig_done(rig, 1, slot[i].r_op));
        if (rig_done(rig, 0, slot[i].s_op)) {
            fprintf(stderr, "message %d is done at S, whose fence is %s\n", i,
                    ib_fence_stage_name(path_at(0, 0)->fence.stage));
            memset(out[i], 0x5a, SIZE); /* it is NCCL's again */
        }
    }
    fire("*:n0 unhang");
    finish(N, 10 * RIG_S);
    stop();
}
END_TEST

/*
 * One send is under way, and S's device answers. As a_sender_keeps_its_buffers_meanwhile
 * (fence_provider): its buffer is held for T_pcie, whether the library flushes before the move to
 * ERR (row 1) or in it.
 */
START_TEST(a_flush_before_the_fence_makes_no_path_idle)
{
    uint64_t down;

    race_nic.linger_ns = 5 * RIG_MS;
    start(2, (const char *[]){NULL});
    fire("h0:n0 provider ionic");
    messages(4, SIZE);
    rig->side[0].inst->cfg.t_pcie_ms = 60;
    rig->side[1].inst->cfg.t_packet_ms = 5000;
    recv_burst(1, SIZE);
    fire("h1:n0 hang");
    send_burst(1);
    rig_run(rig, 100 * RIG_US);
    down = rig_now(rig);
    if (_i) {
        library_flushes(IB_WR_DATA, posted - 1, 1);
    }
    give_up_path(1, 0);
    wait_acked(posted, 100 * RIG_MS);
    while (!rig_done(rig, 0, slot[0].s_op)) {
        rig_turn(rig, 10 * RIG_US);
        ck_assert_uint_lt(rig_now(rig) - down, 200 * RIG_MS);
    }
    ck_assert_msg(rig_now(rig) - down >= 59 * RIG_MS, "done at S after %.3f ms, fence %s, idle %d",
                  (double)(rig_now(rig) - down) / 1e6,
                  ib_fence_stage_name(path_at(0, 0)->fence.stage), path_at(0, 0)->fence.idle);
    fire("h1:n0 unhang");
    finish(1, RIG_S);
    stop();
}
END_TEST

/*
 * A message that found no room and was never posted lies in the slot of one that went by this
 * incarnation. The incarnation ends with flushes that the library made up: no NIC can read the
 * buffer of the new message, which is done as soon as it has arrived.
 */
START_TEST(what_was_never_posted_is_held_for_no_fence)
{
    struct ib_path *p;
    struct ib_send *tx;
    struct ib_smsg *m;
    int used;

    start(2, (const char *[]){NULL});
    messages(R2_LEDGER_WINDOW, 64);
    tx = comm(0)->tx;
    p = &comm(0)->conn.path[0];
    used = p->sq.used;
    p->sq.used = p->cap.sq_depth;
    recv_burst(1, 64);
    send_post(0);
    m = &tx->msg[(posted - 1) % R2_LEDGER_WINDOW];
    ck_assert_int_eq(m->unposted, 1);
    ck_assert_int_eq(m->part[0].path, 0);
    ib_send_incarnation_closed(tx, 0, p->inc, IB_SEND_CLOSE_FLUSHED);
    ck_assert_int_eq(m->soft, 0);
    p->sq.used = used;
    finish(1, RIG_S);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, a_device_hangs_behind_a_flush, 0, 2);
    tcase_add_test(t, what_was_never_posted_is_held_for_no_fence);
    tcase_add_loop_test(t, a_flush_before_the_fence_makes_no_path_idle, 0, 2);
}

int main(void)
{
    return run_suite("fence: flushed while up", add);
}
