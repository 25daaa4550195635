/* Device model: what it mimics of the kernel's Soft-RoCE (tests/lab/fabric-vs-kernel.md), exact in
 * virtual time. */
#include "tests/unit/test_fabric_pair.h"

#define T8 (4096ull << 8) /* time-out 8 in ns */

static enum ibv_qp_state qp_state(struct pair *p, int i)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr a;

    ck_assert_int_eq(p->v.query_qp(p->s[i].qp, &a, IBV_QP_STATE, &init), 0);
    return a.qp_state;
}

/* Nothing was outstanding: the first request that is tried fails at once, those behind it are
 * flushed. */
START_TEST(send_error_when_idle)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 send-error");
    pair_run_for(&p, PAIR_MS);
    ck_assert_int_eq(qp_state(&p, 0), IBV_QPS_RTS); /* who sends nothing hears nothing */
    pair_expect_none(&p, 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, 0), 0);
    pair_run_for(&p, 1);
    pair_expect(&p, 0, 1, IBV_WC_LOC_QP_OP_ERR);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(qp_state(&p, 0), IBV_QPS_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 0)->send_errors, 1);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_packets, 0);
    pair_expect_no_event(&p, 0);
    pair_close(&p);
}
END_TEST

/* Something was on its way: it is what fails, when its time-out makes it be tried again. */
START_TEST(send_error_behind_outstanding)
{
    struct pair_cfg c = {.timeout = 8, .retry = 3};
    struct ibv_wc wc;
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 100);
    pair_fault(&p, "h0:n0 send-error");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    while (pair_poll(&p, 0, &wc) == 0) {
        ck_assert(fab_inproc_step(p.f));
    }
    ck_assert_uint_eq(fab_inproc_now(p.f), T8);
    ck_assert_uint_eq(wc.wr_id, 1);
    ck_assert_int_eq(wc.status, IBV_WC_LOC_QP_OP_ERR);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 0)->send_errors, 2);
    ck_assert_uint_eq(pair_cnt(&p, 0)->retry_exceeded, 0);
    pair_close(&p);
}
END_TEST

/* A window that is full is not a request that is tried: acknowledgements come first, and complete
 * what they cover. */
START_TEST(send_error_lets_acknowledged_through)
{
    struct pair p;

    pair_open(&p, NULL);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 100);
    pair_fault(&p, "h0:n0 send-error");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 10 * PAIR_US);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_expect(&p, 0, 2, IBV_WC_LOC_QP_OP_ERR);
    pair_close(&p);
}
END_TEST

START_TEST(send_error_ends_with_up)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 down");
    pair_fault(&p, "h0:n0 send-error");
    pair_fault(&p, _i ? "h0:n0 restore" : "h0:n0 up");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/* No completion, no event, state RTS, for ever; the other direction incarnations; ERR flushes; a
 * queue pair made later works.
 */
START_TEST(send_stuck)
{
    struct pair_cfg c = {.timeout = 8, .retry = 1};
    struct ibv_qp *old, *peer;
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 100);
    pair_fault(&p, "h0:n0 send-stuck"); /* the acknowledgement arrives and is not taken */
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 1000 * T8);
    pair_fault(&p, "h0:n0 up");
    pair_run_for(&p, 1000 * T8);
    pair_expect_none(&p, 0);
    pair_expect_no_event(&p, 0);
    ck_assert_int_eq(qp_state(&p, 0), IBV_QPS_RTS);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 3, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 1, 3, IBV_WC_SUCCESS);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    old = p.s[0].qp, peer = p.s[1].qp;
    p.s[0].qp = pair_new_qp(&p, &p.s[0]);
    p.s[1].qp = pair_new_qp(&p, &p.s[1]);
    pair_connect_qps(&p, p.s[0].qp, p.s[1].qp, 5);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 4, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 4, IBV_WC_SUCCESS);
    ck_assert_int_eq(p.v.destroy_qp(old), 0);
    ck_assert_int_eq(p.v.destroy_qp(peer), 0);
    pair_close(&p);
}
END_TEST

START_TEST(send_stuck_ends_with_reset)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 send-stuck");
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_RESET), 0);
    ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, IBV_QPS_RESET), 0);
    pair_connect_qps(&p, p.s[0].qp, p.s[1].qp, 9);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

static int device_count(struct pair *p, int host)
{
    struct ibv_device **list;
    int n;

    fab_inproc_set_host(p->f, host);
    list = p->v.get_device_list(&n);
    p->v.free_device_list(list);
    return n;
}

START_TEST(unplug)
{
    static const union ibv_gid none;
    union ibv_gid gid;
    struct pair_cfg c = {.timeout = 8, .retry = 1};
    struct ibv_port_attr port;
    struct ibv_context *again;
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 unplug");
    pair_fault(&p, "h0:n0 up"); /* does not plug it in */
    pair_expect_event(&p, 0, IBV_EVENT_GID_CHANGE);
    pair_expect_no_event(&p, 0);
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &port), ENODEV);
    ck_assert_int_eq(p.v.query_gid(p.s[0].ctx, 1, 3, &gid), 0);
    ck_assert_int_eq(memcmp(&gid, &none, sizeof gid), 0);
    ck_assert_int_eq(device_count(&p, 0), 1);
    ck_assert_int_eq(qp_state(&p, 0), IBV_QPS_RTS);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 1, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_int_eq(pair_recv(&p, 0, 2, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 3, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 3, IBV_WC_LOC_QP_OP_ERR);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    pair_fault(&p, "h0:n0 restore");
    ck_assert_int_eq(device_count(&p, 0), 2);
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &port),
                     ENODEV); /* what was open stays without its link */
    again = pair_open_dev(&p, 0, 0);
    ck_assert_ptr_nonnull(again);
    ck_assert_int_eq(p.v.query_port(again, 1, &port), 0);
    ck_assert_int_eq(port.state, IBV_PORT_ACTIVE);
    ck_assert_int_eq(p.v.close_device(again), 0);
    pair_close(&p);
}
END_TEST

/* A queue pair of an unplugged context takes and answers nothing after the device is back, whatever
 * its state. */
START_TEST(unplugged_stays_silent)
{
    struct pair_cfg c = {.timeout = 8, .retry = 1};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 unplug");
    pair_fault(&p, "h0:n0 restore");
    p.s[0].buf[0] = 7;
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 1, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_eq(p.s[0].buf[0], 7);
    ck_assert_uint_eq(pair_cnt(&p, 0)->rx_wrong_state, 2);
    pair_close(&p);
}
END_TEST

START_TEST(retry7_forever)
{
    struct pair_cfg c = {.timeout = 8, .retry = 7};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 retry7-forever");
    pair_fault(&p, "h0:n0 blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 1000 * T8);
    pair_expect_none(&p, 0);
    ck_assert_uint_ge(pair_cnt(&p, 0)->timeouts, 999);
    pair_fault(&p, "h0:n0 restore"); /* seven retries again, and the link works */
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_fault(&p, "h0:n0 blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 8 * T8);
    pair_expect(&p, 0, 2, IBV_WC_RETRY_EXC_ERR);
    pair_close(&p);
}
END_TEST

/* Six is six. */
START_TEST(retry7_forever_is_for_seven)
{
    struct pair_cfg c = {.timeout = 8, .retry = 6};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "*:n0 retry7-forever");
    pair_fault(&p, "h0:n0 blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 7 * T8);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    pair_close(&p);
}
END_TEST

/* A marker for the receives that is posted in ERR stays there; a second move to ERR brings it out.
 */
START_TEST(recv_kept)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 recv-kept");
    ck_assert_int_eq(pair_recv(&p, 0, 1, 0, 64), 0);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    ck_assert_int_eq(pair_recv(&p, 0, 2, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 3, 0, 0, 64, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 0, 3, IBV_WC_WR_FLUSH_ERR);
    pair_expect_none(&p, 0);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    pair_run(&p);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    pair_expect_none(&p, 0);
    pair_fault(&p, "h0:n0 restore");
    ck_assert_int_eq(pair_recv(&p, 0, 4, 0, 64), 0);
    pair_run(&p);
    pair_expect(&p, 0, 4, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_softroce");
    TCase *t = tcase_create("softroce");

    tcase_add_test(t, send_error_when_idle);
    tcase_add_test(t, send_error_behind_outstanding);
    tcase_add_test(t, send_error_lets_acknowledged_through);
    tcase_add_loop_test(t, send_error_ends_with_up, 0, 2);
    tcase_add_test(t, send_stuck);
    tcase_add_test(t, send_stuck_ends_with_reset);
    tcase_add_test(t, unplug);
    tcase_add_test(t, unplugged_stays_silent);
    tcase_add_test(t, retry7_forever);
    tcase_add_test(t, retry7_forever_is_for_seven);
    tcase_add_test(t, recv_kept);
    suite_add_tcase(s, t);
    return pair_main(s);
}
