/* Bounce buffer that is short: rings that are full or too small, lanes that are lent, engines that
 * fail, paths that leave the plan. */
#include "tests/unit/relay_rig.h"

#define RING 16384u
#define ON   "NCCL_IB_ADAPTIVE_ROUTING=1", "NCCL_IB_AR_THRESHOLD=100"

static uint8_t host_mem[BIG];

/* A message out of host memory @mr, through slot 0. */
static void host_message(struct ib_mr *mr, size_t size)
{
    recv_post(0, size);
    fill(host_mem, sent++, size);
    slot[0].s_op = rig_send_wait(rig, host_mem, size, 0, mr);
    finish(1, RIG_S);
}

/* --- what a ring takes --- */

/* What finds no room waits for it on its path, and all comes in order. */
START_TEST(full_ring_is_waited_for)
{
    unsigned turns = 0;

    relay_start(2, 1, 8 * RING, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    ck_assert_uint_eq(comm(0)->conn.relay.ring, RING);
    engine.hold = 1;
    recv_burst(8, 5000);
    send_burst(8);
    rig_run(rig, 100 * RIG_US);
    ck_assert_uint_eq(engine.begun, 3);
    while (engine.ended < 8) {
        ck_assert_uint_gt(copies_end(), 0);
        rig_run(rig, 100 * RIG_US);
        turns++;
    }
    ck_assert_uint_eq(turns, 3);
    ck_assert_uint_eq(engine.begun, 8);
    finish(8, RIG_S);
    ck_assert_uint_eq(s_path(1)->count.bytes, 0);
    engine.hold = 0;
    stop();
    relay_stop(0);
}
END_TEST

/* As large as the ring: bounced, wherever the ring stands. Larger: in parts of that size, and over
 * the NIC that takes the memory where these would be too many. */
START_TEST(part_as_large_as_the_ring)
{
    relay_start(2, 1, 8 * 2048, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    ck_assert_uint_eq(comm(0)->conn.relay.ring, 2048);
    messages(3, 300);
    messages(2, 2048);
    ck_assert_uint_eq(engine.begun, 5);
    messages(1, 2049);
    ck_assert_uint_eq(engine.begun, 7);
    messages(1, R2_MAX_PARTS * 2048);
    ck_assert_uint_eq(engine.begun, 7 + R2_MAX_PARTS);
    ck_assert_uint_eq(s_path(1)->count.bytes, 0);
    messages(1, R2_MAX_PARTS * 2048 + 1);
    ck_assert_uint_eq(engine.begun, 7 + R2_MAX_PARTS);
    ck_assert_uint_eq(s_path(1)->count.bytes, R2_MAX_PARTS * 2048 + 1);
    stop();
    relay_stop(0);
}
END_TEST

/* ... where the other NIC is down, and the one left does not take the memory. */
START_TEST(message_larger_than_the_ring_has_one_way)
{
    relay_start(2, 1, 8 * 2048, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    fire("h0:n1 down");
    wait_settled(1);
    messages(2, 5000);
    ck_assert_uint_eq(engine.begun, 6);
    ck_assert_uint_eq(s_path(1)->count.bytes, 0);
    stop();
    relay_stop(0);
}
END_TEST

/* A part that is under way must fit into the ring of the path that it may have to move to. */
START_TEST(parts_can_move_to_a_bounced_path)
{
    relay_start(2, 2, 8 * 2048, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    recv_burst(1, 5000);
    fire("h0:n0 blackhole");
    send_burst(1);
    ck_assert_uint_eq(s_path(0)->count.bytes, 5000);
    give_up_path(0, 0);
    finish(1, RIG_S);
    ck_assert_uint_eq(engine.begun, 3);
    ck_assert_uint_eq(retransmitted(), 3);
    ck_assert_uint_eq(s_path(1)->count.bytes, 5000);
    stop();
    relay_stop(0);
}
END_TEST

/* Host memory, which every NIC takes, and empty messages need no copy; on a path with a lane they
 * go as two work requests where others would. */
START_TEST(what_needs_no_copy)
{
    struct ib_mr *mr;
    uint64_t wrs;

    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", ON, NULL});
    mr = rig_reg(rig, 0, host_mem, sizeof(host_mem));
    ck_assert_uint_eq(s_path(0)->part.pair_min, 100);
    ck_assert_uint_eq(s_path(0)->part.one_max, 0);
    wrs = s_path(0)->count.wrs;
    messages(2, 5000);
    ck_assert_uint_eq(s_path(0)->count.wrs - wrs, 2);
    ck_assert_uint_eq(engine.begun, 2);
    host_message(mr, 5000);
    host_message(mr, 100);
    messages(3, 0);
    ck_assert_uint_eq(s_path(0)->count.wrs - wrs, 2 + 2 + 1 + 3);
    ck_assert_uint_eq(engine.begun, 2);
    ck_assert_uint_eq(comm(1)->conn.path[0].nrecords, 1);
    ck_assert_uint_eq(s_path(1)->count.wrs, 0);
    messages(1, 5000);
    ck_assert_uint_eq(engine.begun, 3);
    stop();
    rig_dereg(rig, 0, mr);
    relay_stop(0);
}
END_TEST

/* --- lanes --- */

/* As if other connections had them. */
static void lanes_get(struct ib_bounce_lane **lane, int n)
{
    const struct ib_relay *relay = &comm(0)->conn.relay;

    rig_enter(&rig->side[0]);
    for (int i = 0; i < n; i++) {
        lane[i] = relay->lane_get(relay->arg, 0);
        ck_assert_ptr_nonnull(lane[i]);
    }
    ck_assert(!relay->lane_wanted(relay->arg, 0));
    ck_assert_ptr_null(relay->lane_get(relay->arg, 0));
    ck_assert(relay->lane_wanted(relay->arg, 0));
}

static void lanes_put(struct ib_bounce_lane **lane, int n)
{
    const struct ib_relay *relay = &comm(0)->conn.relay;

    rig_enter(&rig->side[0]);
    for (int i = 0; i < n; i++) {
        relay->lane_put(relay->arg, 0, lane[i]);
    }
}

/* None is left: parts go over a NIC that takes the memory; where there is none they wait for one
 * that is back. */
START_TEST(all_lanes_are_lent)
{
    struct ib_bounce_lane *other[R2_RELAY_LANES];

    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, NULL});
    lanes_get(other, R2_RELAY_LANES);
    messages(1, 5000);
    ck_assert_uint_eq(engine.begun, 0);
    ck_assert_uint_eq(s_path(1)->count.bytes, 5000);
    fire("h0:n1 down");
    wait_settled(1);
    recv_burst(1, 5000);
    send_burst(1);
    rig_run(rig, 50 * RIG_MS);
    ck_assert_uint_eq(engine.begun, 0);
    ck_assert_uint_eq(slot[0].landed, 0);
    lanes_put(other, 1);
    finish(1, RIG_S);
    ck_assert_uint_eq(engine.begun, 1);
    ck_assert_ptr_null(lane_of(0));
    lanes_put(other + 1, R2_RELAY_LANES - 1);
    stop();
    relay_stop(0);
}
END_TEST

/* Who has one begins nothing new in it while others wait, and gives it back when it is idle. */
START_TEST(a_lane_that_others_wait_for)
{
    struct ib_bounce_lane *other[R2_RELAY_LANES], *back;

    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, NULL});
    engine.hold = 1;
    recv_burst(2, 5000);
    send_post(0);
    ck_assert_ptr_nonnull(lane_of(0));
    lanes_get(other, R2_RELAY_LANES - 1);
    rig_run(rig, RIG_MS);
    ck_assert(lane_of(0)->leaving);
    send_post(1);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(engine.begun, 1);
    ck_assert_uint_eq(slot[1].landed, 5000); /* straight, over the other NIC */
    ck_assert_uint_eq(copies_end(), 1);
    finish(2, RIG_S);
    rig_enter(&rig->side[0]);
    ck_assert_ptr_null(lane_of(0));
    back = comm(0)->conn.relay.lane_get(comm(0)->conn.relay.arg, 0);
    ck_assert_ptr_nonnull(back);
    lanes_put(&back, 1);
    lanes_put(other, R2_RELAY_LANES - 1);
    engine.hold = 0;
    stop();
    relay_stop(0);
}
END_TEST

/* The primary is back: what is in the backup's ring is sent over that, and its lane goes. */
START_TEST(path_leaves_the_plan)
{
    relay_start(2, 2, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, ON, NULL});
    messages(1, 5000);
    ck_assert_uint_eq(engine.begun, 0);
    fire("h0:n0 down");
    wait_settled(0);
    messages(1, 5000);
    ck_assert_uint_eq(engine.begun, 1);
    engine.hold = 1;
    recv_burst(2, 5000);
    send_burst(2);
    fire("h0:n0 up");
    wait_returned(0, 2);
    ck_assert_uint_eq(engine.begun, 3);
    recv_post(2, 5000); /* new ones go over the primary meanwhile */
    send_post(2);
    rig_run(rig, RIG_MS);
    ck_assert_uint_eq(slot[2].landed, 5000);
    ck_assert_uint_eq(slot[0].landed + slot[1].landed, 0);
    ck_assert_ptr_nonnull(lane_of(1));
    ck_assert_uint_eq(copies_end(), 2);
    finish(3, RIG_S);
    ck_assert_ptr_null(lane_of(1));
    ck_assert(is_up(0, 1));
    ck_assert_uint_eq(s_path(0)->part.one_max, 100);
    ck_assert_uint_eq(engine.begun, 3);
    stop();
    relay_stop(0);
}
END_TEST

/* --- a driver that hangs --- */

/* Neither end can fence: what was posted may read the ring still, and nobody gets it before the
 * hold is over. */
START_TEST(soft_fence_keeps_the_ring)
{
    relay_start(2, 1, 0,
                (const char *[]){"NCCL_R2_RELAY=host", "NCCL_R2_T_DEAD=1000",
                                 "NCCL_R2_T_PACKET=500", NULL});
    recv_burst(1, 5000);
    fire("*:n0 hang");
    send_burst(1);
    rig_run(rig, 10 * RIG_US);
    ck_assert_uint_eq(engine.ended, 1);
    ck_assert_uint_eq(lane_of(0)->ring.reading, 0);
    ck_assert(!ib_bounce_idle(&lane_of(0)->ring));
    give_up_path(0, 0);
    wait_acked(1, 500 * RIG_MS);
    rig_run(rig, 300 * RIG_MS);
    ck_assert_uint_eq(path_at(0, 0)->soft, 1);
    ck_assert_ptr_nonnull(lane_of(0));
    ck_assert(lane_of(0)->soft);
    ck_assert(!ib_bounce_idle(&lane_of(0)->ring));
    ck_assert(!rig_done(rig, 0, slot[0].s_op));
    finish(1, 3 * RIG_S);
    messages(1, 5000);
    ck_assert_ptr_null(lane_of(0));
    stop();
    relay_stop(0);
}
END_TEST

/* --- an engine that fails --- */

/* A copy that is refused: the path goes down, another carries, and that NIC's bounce buffer is not
 * used again. */
START_TEST(engine_refuses_a_copy)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", SHORT, NULL});
    messages(1, 5000);
    ck_assert_uint_eq(engine.begun, 1);
    engine.refuse = ENOMEM;
    messages(1, 5000);
    ck_assert_uint_eq(engine.refused, 1);
    ck_assert_uint_eq(s_path(1)->count.bytes, 5000);
    engine.refuse = 0;
    wait_returned(0, 2);
    messages(4, 5000);
    ck_assert_ptr_null(lane_of(0));
    ck_assert_uint_eq(engine.begun, 1);
    ck_assert_uint_eq(s_path(1)->count.bytes, 5 * 5000);
    stop();
    relay_stop(0);
}
END_TEST

static int sender_failed(struct rig *r)
{
    return r->side[0].status != R2_OK;
}

/* One that does not say any more what runs: the connection ends with that reason, and the ring
 * stays where it is. */
START_TEST(engine_does_not_know)
{
    relay_start(2, 1, 0, (const char *[]){"NCCL_R2_RELAY=host", NULL});
    engine.hold = 1;
    recv_burst(1, 5000);
    send_burst(1);
    ck_assert_uint_eq(engine.begun, 1);
    engine.broken = 1;
    ck_assert(rig_until(rig, sender_failed, RIG_S));
    ck_assert_int_eq(rig->side[0].status, R2_ERR_SYSTEM);
    ck_assert_ptr_nonnull(strstr(comm(0)->fo.why, "copy engine"));
    ck_assert(lane_of(0)->lost);
    ck_assert_uint_eq(slot[0].landed, 0);
    relay_stop(1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, full_ring_is_waited_for);
    tcase_add_test(t, part_as_large_as_the_ring);
    tcase_add_test(t, message_larger_than_the_ring_has_one_way);
    tcase_add_test(t, parts_can_move_to_a_bounced_path);
    tcase_add_test(t, what_needs_no_copy);
    tcase_add_test(t, all_lanes_are_lent);
    tcase_add_test(t, a_lane_that_others_wait_for);
    tcase_add_test(t, path_leaves_the_plan);
    tcase_add_test(t, soft_fence_keeps_the_ring);
    tcase_add_test(t, engine_refuses_a_copy);
    tcase_add_test(t, engine_does_not_know);
}

int main(void)
{
    return run_suite("relay: ring", add);
}
