/* A device that hangs (fab_fault.h, `hang`), and what becomes of what it had in hand. */
#include "tests/unit/test_fabric_pair.h"

#include <errno.h>

/* Everything succeeds, nothing moves; on unhang it goes on. */
START_TEST(hang)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 hang");
    ck_assert_int_eq(pair_recv(&p, 0, 7, 0, 8), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_port_state(&p, 0), IBV_PORT_ACTIVE);
    pair_run(&p);
    pair_expect_none(&p, 0);
    pair_expect_no_event(&p, 0);
    if (_i) {
        ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
        pair_run(&p);
        pair_expect_none(&p, 0); /* not even the flush */
    }
    pair_fault(&p, _i == 2 ? "h0:n0 restore" : "h0:n0 unhang");
    pair_run(&p);
    if (_i) {
        pair_expect(&p, 0, 7, IBV_WC_WR_FLUSH_ERR);
    }
    pair_expect(&p, 0, 1, _i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/* Data accepted before a hang lands after it, also when the queue pair was destroyed meanwhile:
 * destroy proves nothing.
 */
START_TEST(hang_keeps_accepted_data)
{
    struct pair_cfg c = {.opts = {.dma_ns = 50 * PAIR_US}};
    uint64_t landed = 0;
    struct pair p;

    for (uint64_t seed = 0; seed < 10; seed++) {
        c.seed = seed;
        pair_open(&p, &c);
        memset(p.s[0].buf, 1, 8);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
        pair_run_for(&p, 3 * PAIR_US);
        pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
        pair_fault(&p, "h1:n0 hang");
        pair_run(&p);
        ck_assert_int_eq(p.v.destroy_qp(p.s[1].qp), 0);
        p.s[1].qp = NULL;
        landed += p.s[1].buf[0] == 0;
        pair_fault(&p, "h1:n0 unhang");
        pair_run(&p);
        ck_assert_uint_eq(p.s[1].buf[0], 1);
        pair_close(&p);
    }
    ck_assert_uint_gt(landed, 5);
}
END_TEST

/* What comes while a device hangs waits in the switch, where that pauses; else it is lost, and RC
 * repeats it. */
START_TEST(hang_pauses_what_arrives)
{
    struct pair_cfg c = {.timeout = 22, .opts = {.nic = {.pauses = _i != 0}}};
    struct pair p;

    pair_open(&p, &c);
    memset(p.s[0].buf, 1, 8);
    pair_fault(&p, "h1:n0 hang");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 10 * PAIR_MS);
    ck_assert_uint_eq(p.s[1].buf[0], 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_paused, (unsigned)_i);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_hung, !_i);
    pair_fault(&p, "h1:n0 unhang");
    pair_run_for(&p, 10 * PAIR_MS);
    ck_assert_uint_eq(p.s[1].buf[0], (unsigned)_i);
    if (_i) {
        pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
        pair_fault(&p, "h1:n0 hang"); /* closed with something that waits */
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 8, IBV_SEND_SIGNALED), 0);
        pair_run_for(&p, 10 * PAIR_MS);
    }
    pair_close(&p);
}
END_TEST

/* A device's time stands still with it: what has 100 us to go has that behind the hang. */
START_TEST(hang_is_no_time)
{
    struct pair_cfg c = {.opts = {.nic = {.linger_ns = PAIR_MS}}};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h1:n0 provider ionic");
    memset(p.s[0].buf, 1, 8);
    ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, IBV_QPS_ERR), 0);
    pair_fault(&p, "h1:n0 hang");
    pair_run_for(&p, 10 * PAIR_MS);
    pair_fault(&p, "h1:n0 unhang");
    pair_run_for(&p, (_i ? 1100 : 900) * PAIR_US);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 50 * PAIR_US);
    ck_assert_uint_eq(p.s[1].buf[0], (unsigned)!_i);
    pair_close(&p);
}
END_TEST

START_TEST(hang_holds_modify)
{
    struct pair_cfg c = {
        .opts = {.hang_modify_ns = 60000 * PAIR_MS, .hang_modify_fails_ppm = 1000000}};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 hang");
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), ETIMEDOUT);
    ck_assert_uint_ge(fab_inproc_now(p.f), 60000 * PAIR_MS);
    ck_assert_int_eq(fab_ibv_qp(p.s[0].qp)->state, IBV_QPS_RTS);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_hang");
    TCase *t = tcase_create("hang");

    tcase_add_loop_test(t, hang, 0, 3);
    tcase_add_test(t, hang_keeps_accepted_data);
    tcase_add_loop_test(t, hang_pauses_what_arrives, 0, 2);
    tcase_add_loop_test(t, hang_is_no_time, 0, 2);
    tcase_add_test(t, hang_holds_modify);
    suite_add_tcase(s, t);
    return pair_main(s);
}
