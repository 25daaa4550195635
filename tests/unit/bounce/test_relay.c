/* Sending by way of a bounce buffer (docs/balance.md), on the two-instance rig: what is posted
 * when, and who reads and writes what until when. */
#include "balance/r2_balance_int.h"
#include "tests/unit/relay_rig.h"
#include "tests/unit/early_flush.h"

/* --- in health --- */

/* Nothing is posted before its copy has ended; then all of it, in order, and the lane goes back
 * with the connection. */
START_TEST(carries_by_way_of_a_bounce_buffer)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_RELAY_MEMORY=8", NULL});
    ck_assert(is_bounced(0));
    ck_assert(!is_bounced(1));
    ck_assert_uint_eq(engine.asked, 8u << 20);
    ck_assert_uint_eq(comm(0)->conn.relay.ring, 1u << 20);
    engine.hold = 1;
    recv_burst(8, 5000);
    send_burst(8);
    rig_run(rig, 2 * RIG_MS);
    ck_assert_uint_eq(engine.begun, 8);
    ck_assert_uint_eq(lane_of(0)->ring.reading, 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(slot[i].landed, 0);
        ck_assert(!rig_done(rig, 0, slot[i].s_op));
    }
    for (int i = 0; i < 8; i++) {
        copy_end(lane_of(0)->copies);
        rig_run(rig, 100 * RIG_US);
        ck_assert_uint_eq(slot[i].landed, 5000);
        ck_assert_uint_eq(i < 7 ? slot[i + 1].landed : 0, 0);
    }
    finish(8, RIG_S);
    engine.hold = 0;
    stop();
    ck_assert_uint_eq(engine.begun, 12);
    relay_stop(0);
}
END_TEST

/* Off: nothing is made or asked for at set-up, at the first buffer and under traffic, and a NIC
 * that refuses the memory carries nothing. */
START_TEST(off_costs_nothing)
{
    relay_start(2, 1, 0,
                (const char *[]){_i ? "NCCL_R2_RELAY=off" : "NCCL_R2_RELAY_MEMORY=64", NULL});
    ck_assert(!is_bounced(0));
    messages(8, 5000);
    ck_assert_uint_eq(s_path(0)->count.bytes, 0);
    ck_assert_uint_gt(s_path(1)->count.bytes, 0);
    ck_assert_ptr_null(rig->side[0].inst->mem.relay);
    ck_assert_ptr_null(rig->side[0].inst->balance->ways.bounced);
    ck_assert_ptr_null(comm(0)->conn.relay.lane_get);
    ck_assert_uint_eq(comm(0)->tx->lanes | comm(0)->tx->pending, 0);
    ck_assert_uint_eq(comm(0)->tx->size.ring_most, 0);
    stop();
    relay_stop(0);
    ck_assert_uint_eq(engine.calls, 0);
    ck_assert_uint_gt(engine.registrations_refused, 0);
}
END_TEST

static int policy_now(void)
{
    int mode = -1;

    syscall(SYS_get_mempolicy, &mode, NULL, 0ul, NULL, 0ul);
    return mode;
}

static const struct {
    int node, before, during;
} where[] = {
    {0, MPOL_DEFAULT, MPOL_PREFERRED},  /* the only node that every machine has */
    {-1, MPOL_DEFAULT, MPOL_DEFAULT},   /* not known */
    {1023, MPOL_DEFAULT, MPOL_DEFAULT}, /* not there */
    {1024, MPOL_DEFAULT, MPOL_DEFAULT},
    {0, MPOL_INTERLEAVE, MPOL_INTERLEAVE}, /* somebody's own choice */
    {0, MPOL_LOCAL, MPOL_LOCAL},
};

/* Host memory comes from the NIC's node, and nothing of that stays with NCCL's thread. */
START_TEST(host_memory_is_near_the_nic)
{
    int able = policy_now() >= 0; /* not in every container */
    unsigned long nodes = 1;

    ck_assert(!able || policy_now() == MPOL_DEFAULT);
    if (able && where[_i].before != MPOL_DEFAULT) {
        ck_assert_int_eq(syscall(SYS_set_mempolicy, where[_i].before,
                                 where[_i].before == MPOL_LOCAL ? NULL : &nodes, 64ul),
                         0);
    }
    engine_next = (struct engine){.nic_node = where[_i].node + 1};
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    ck_assert(is_bounced(0));
    ck_assert_int_eq(engine.policy, able ? where[_i].during : -1);
    ck_assert_uint_eq(engine.node,
                      engine.policy == MPOL_PREFERRED || engine.policy == MPOL_INTERLEAVE ? 1 : 0);
    ck_assert_int_eq(policy_now(), able ? where[_i].before : -1);
    stop();
    relay_stop(0);
}
END_TEST

static const struct {
    const char *what;
    int no_memory, no_bounce, no_lane, hidden;
} without[] = {
    {"no memory", .no_memory = ENOMEM},
    {"the NIC does not take that either", .no_bounce = 1},
    {"no lane", .no_lane = 1},
    {"no last lane", .no_lane = R2_RELAY_LANES},
    {"nobody knows the GPU", .hidden = 1},
};

/* What cannot be made is not tried again, leaves nothing behind, and the NIC carries what it
 * carried without. */
START_TEST(goes_on_without_a_bounce_buffer)
{
    struct ib_mr *again;
    unsigned asks;

    engine_next = (struct engine){.no_memory = without[_i].no_memory,
                                  .no_bounce = without[_i].no_bounce,
                                  .no_lane = without[_i].no_lane,
                                  .hidden = without[_i].hidden};
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    ck_assert_msg(!is_bounced(0), "%s", without[_i].what);
    asks = engine.asks;
    ck_assert_uint_eq(asks, !without[_i].hidden);
    ck_assert(!without[_i].no_bounce || engine.registrations_refused >= 2);
    again = register_as(IB_PTR_CUDA);
    ck_assert_uint_eq(engine.asks, asks);
    messages(4, 5000);
    ck_assert_uint_eq(engine.begun, 0);
    ck_assert_uint_eq(s_path(0)->count.bytes, 0);
    ck_assert_uint_eq(engine.lanes, 0);
    ck_assert_ptr_null(engine.mem[0]);
    rig_dereg(rig, 0, again);
    stop();
    relay_stop(0);
}
END_TEST

/* --- a path that dies while copies run --- */

/* Of three parts one is copied and with the NIC: that one alone may still come, and S says so
 * (P35). */
START_TEST(only_what_is_posted_is_live)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, NULL});
    engine.hold = 1;
    recv_burst(3, 5000);
    fire("h0:n0 delay 5ms");
    send_burst(3);
    copy_end(lane_of(0)->copies);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(engine.begun, 3);
    ck_assert_uint_eq(engine.ended, 1);
    ck_assert_uint_eq(s_path(0)->parts_out, 3);
    give_up_path(0, 0);
    ck_assert_uint_eq(path_at(0, 0)->live.n, 1);
    ck_assert_uint_eq(path_at(0, 0)->live.base, comm(0)->tx->sack);
    ck_assert_uint_eq(path_at(0, 0)->live.mask[0], 1);
    wait_acked(3, RIG_S);
    copies_end();
    finish(3, RIG_S);
    engine.hold = 0;
    stop();
    relay_stop(0);
}
END_TEST

/* Another path carries at once; done waits for the copy, whose lane serves the path's next
 * incarnation then. */
START_TEST(path_dies_under_a_copy)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, NULL});
    engine.hold = 1;
    recv_burst(2, 5000);
    send_burst(2);
    ck_assert_uint_eq(engine.begun, 2);
    fire("h0:n0 down");
    wait_acked(2, RIG_S);
    ck_assert_uint_eq(path_at(0, 0)->live.n, 0); /* what is not posted never will be (P35) */
    ck_assert_uint_eq(engine.ended, 0);
    ck_assert_uint_eq(retransmitted(), 2);
    rig_run(rig, 50 * RIG_MS);
    for (int i = 0; i < 2; i++) {
        ck_assert(!rig_done(rig, 0, slot[i].s_op));
        ck_assert(rig_done(rig, 1, slot[i].r_op));
        slot_is_right(i);
    }
    ck_assert_ptr_nonnull(lane_of(0));
    ck_assert(lane_of(0)->closing);
    if (_i) { /* the path is back while they run: it carries without a lane what it can, which is
                 nothing */
        fire("h0:n0 up");
        wait_returned(0, 2);
        ck_assert_uint_lt(lane_of(0)->inc, inc(0, 0));
        recv_post(2, 5000);
        send_post(2);
        wait_acked(3, RIG_S);
        ck_assert_uint_eq(engine.begun, 2);
    }
    ck_assert_uint_eq(copies_end(), 2);
    finish(2 + _i, RIG_S);
    if (!_i) {
        rig_run(rig, RIG_MS);
        ck_assert_ptr_null(lane_of(0));
        fire("h0:n0 up");
        wait_returned(0, 2);
    }
    engine.hold = 0;
    messages(4, 5000);
    ck_assert_ptr_null(lane_of(0)); /* idle: given back */
    ck_assert_uint_gt(engine.begun, 2);
    ck_assert_uint_gt(s_path(0)->count.bytes, 0);
    stop();
    relay_stop(0);
}
END_TEST

/* A GPU that hangs: its copies do not end, and the path is given up like one whose queue pair
 * stands still. What it was to carry goes another way, but is not done: the engine may read it
 * still. */
START_TEST(a_gpu_that_hangs)
{
    relay_start(
        2, 1, 0,
        (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_T_STUCK=200", "NCCL_IB_TIMEOUT=8", NULL});
    engine.hold = 1;
    recv_burst(1, 5000);
    send_burst(1);
    ck_assert_uint_eq(engine.begun, 1);
    wait_acked(1, 5 * RIG_S);
    ck_assert(!is_up(0, 0));
    ck_assert_int_eq(path_at(0, 0)->why.fault, IB_FAULT_STALL);
    ck_assert_uint_eq(retransmitted(), 1);
    rig_run(rig, RIG_S);
    ck_assert(!rig_done(rig, 0, slot[0].s_op));
    slot_is_right(0);
    ck_assert_uint_eq(copies_end(), 1);
    finish(1, RIG_S);
    engine.hold = 0;
    stop();
    relay_stop(0);
}
END_TEST

/* --- the end of the connection --- */

static int no_comm(struct rig *r)
{
    return rig_comms(r, 0) == 0;
}

/* A connection that is closed idle. */
START_TEST(closed_idle)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    messages(3, 5000);
    ck_assert_uint_eq(engine.begun, 3);
    rig_close(rig, 0);
    rig_close(rig, 1);
    ck_assert(rig_until(rig, no_comm, RIG_S));
    relay_stop(0);
}
END_TEST

/* Aborted under copies: it stands until they have ended, or for T_dead; then the ring that they may
 * write is nobody's any more. */
START_TEST(closed_under_copies)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_T_DEAD=300", NULL});
    engine.hold = 1;
    recv_burst(2, 5000);
    send_burst(2);
    ck_assert_uint_eq(engine.begun, 2);
    rig_dereg(rig, 0, s_mr);
    rig_close(rig, 0);
    rig_close(rig, 1);
    rig_run(rig, 200 * RIG_MS);
    ck_assert_int_eq(rig_comms(rig, 0), 1);
    ck_assert_uint_eq(slot[0].landed + slot[1].landed, 0);
    if (_i == 0) {
        ck_assert_uint_eq(copies_end(), 2);
    }
    ck_assert(rig_until(rig, no_comm, RIG_S));
    ck_assert_uint_eq(engine.ended, _i == 0 ? 2 : 0);
    ck_assert_uint_eq(slot[0].landed + slot[1].landed, 0);
    relay_stop(_i);
}
END_TEST

/* The process ends while a copy runs. */
START_TEST(process_ends_under_a_copy)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    engine.hold = 1;
    recv_burst(1, 5000);
    send_burst(1);
    ck_assert_uint_eq(engine.begun, 1);
    rig_enter(&rig->side[0]);
    rig->side[0].comm = NULL;
    rig->side[0].head = rig->side[0].tail;
    engine.broken = _i; /* ... or nobody knows */
    relay_stop(1);
}
END_TEST

/* NCCL takes the registration away under a copy: what it brings is sent to nobody (P27). */
START_TEST(aborted_under_a_copy)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    engine.hold = 1;
    recv_burst(1, 5000);
    send_burst(1);
    ck_assert_uint_eq(engine.begun, 1);
    rig_dereg(rig, 0, s_mr);
    rig_turn(rig, RIG_US);
    ck_assert_int_eq(rig->side[0].status, R2_ERR_ARG);
    ck_assert_uint_eq(copies_end(), 1);
    rig_run(rig, 100 * RIG_MS);
    ck_assert_uint_eq(slot[0].landed, 0);
    ck_assert_ptr_null(lane_of(0));
    relay_stop(0);
}
END_TEST

/*
 * The library flushes a part that the device has in hand: its bytes in the ring are the device's
 * until the fence has ended, and no other connection gets the lane.
 */
START_TEST(a_flush_before_the_fence_frees_no_ring)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_WATCHDOG=off", NULL});
    recv_burst(1, 5000);
    fire("h1:n0 hang");
    send_burst(1);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(engine.ended, 1); /* copied, and posted */
    fire("h0:n0 hang");
    library_flushes(IB_WR_BOUNCE, posted - 1, 1);
    rig_run(rig, RIG_MS);
    ck_assert_int_eq(flush.left, 0);
    ck_assert(!is_up(0, 0));
    ck_assert_uint_eq(comm(0)->tx->lanes & 1, 1);
    rig_run(rig, RIG_S); /* the fence is soft */
    ck_assert(path_at(0, 0)->soft);
    ck_assert_uint_eq(comm(0)->tx->lanes & 1, 1);
    fire("*:n0 unhang");
    finish(1, 10 * RIG_S);
    ck_assert_uint_eq(comm(0)->tx->lanes & 1, 0);
    stop();
    relay_stop(0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_flush_before_the_fence_frees_no_ring);
    tcase_add_test(t, carries_by_way_of_a_bounce_buffer);
    tcase_add_loop_test(t, off_costs_nothing, 0, 2);
    tcase_add_loop_test(t, goes_on_without_a_bounce_buffer, 0,
                        (int)(sizeof(without) / sizeof(without[0])));
    tcase_add_loop_test(t, host_memory_is_near_the_nic, 0, (int)(sizeof(where) / sizeof(where[0])));
    tcase_add_test(t, only_what_is_posted_is_live);
    tcase_add_loop_test(t, path_dies_under_a_copy, 0, 2);
    tcase_add_test(t, a_gpu_that_hangs);
    tcase_add_test(t, closed_idle);
    tcase_add_loop_test(t, closed_under_copies, 0, 2);
    tcase_add_loop_test(t, process_ends_under_a_copy, 0, 2);
    tcase_add_test(t, aborted_under_a_copy);
}

int main(void)
{
    return run_suite("relay", add);
}
