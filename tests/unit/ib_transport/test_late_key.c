/* A NIC whose driver registers late: its key stands as 0 in the CTS (protocol section 4), and comes
 * while messages wait. */
#include "tests/unit/race_rig.h"

/* R's memory is not registered on NIC 0 when its receives are posted, and is when the messages are
 * sent. */
static void key_late(int n, size_t size)
{
    struct ibv_mr *late = atomic_exchange(&r_mr->mr[0], NULL);

    ck_assert_ptr_nonnull(late);
    ib_mr_changed(r_mr);
    recv_burst(n, size);
    atomic_store(&r_mr->mr[0], late);
    ib_mr_changed(r_mr);
    for (uint64_t seq = posted - (uint64_t)n; seq < posted; seq++) {
        const struct ib_cts *e = &comm(0)->conn.path[0].mem.ring->entry[seq % R2_LEDGER_WINDOW];

        ck_assert(ib_cts_valid(e, seq) && e->rkey[0] == 0 && e->rkey[1] != 0);
    }
}

/* No part of these messages goes that way, planned or not; those that come behind do. */
START_TEST(key_that_comes_late)
{
    uint64_t from;

    start(2, (const char *[]){_i ? "NCCL_R2_SPREAD=on" : NULL, NULL});
    messages(4, 1000);
    key_late(4, BIG);
    from = comm(0)->conn.path[0].count.bytes;
    send_burst(4);
    finish(4, RIG_S);
    ck_assert_uint_eq(comm(0)->conn.path[0].count.bytes, from);
    ck_assert_uint_eq(comm(0)->fo.switches + comm(1)->fo.switches, 0);
    messages(4, BIG);
    ck_assert_uint_gt(comm(0)->conn.path[0].count.bytes, from);
    stop();
}
END_TEST

/* The only NIC that has it is lost: the message waits for that one, or for the end, and is never
 * posted with a key of 0. */
START_TEST(key_that_comes_late_and_the_other_nic_dies)
{
    uint64_t from;

    start(2, (const char *[]){"NCCL_R2_GIVE_UP=300", "NCCL_R2_FAILBACK=never", NULL});
    messages(4, 1000);
    key_late(1, 3000);
    give_up_path(0, 1);
    wait_settled(1);
    from = comm(0)->conn.path[0].count.wrs;
    send_post(0);
    rig_run(rig, 200 * RIG_MS);
    ck_assert(!rig_all_done(rig));
    rig_run(rig, RIG_S);
    ck_assert_int_eq(rig->side[0].status, R2_ERR_COMM);
    ck_assert_str_eq(comm(0)->fo.why, "a buffer is registered on none of the paths left");
    ck_assert_uint_eq(comm(0)->conn.path[0].count.wrs, from);
    ck_assert_uint_eq(slot[0].landed, 0);
    slots_taken_away = 1;
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, key_that_comes_late, 0, 2);
    tcase_add_test(t, key_that_comes_late_and_the_other_nic_dies);
}

int main(void)
{
    return run_suite("a key that comes late", add);
}
