/* Device model: states and their attributes, flush, markers, RESET, limits. */
#include "tests/unit/test_fabric_pair.h"

/* Each attribute that a move demands is refused when missing; one that it does not know is refused
 * when there. */
static void try_masks(struct pair *p, struct ibv_qp *qp, struct ibv_qp_attr *a, int required,
                      int foreign)
{
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
        if (required & bit && bit != IBV_QP_STATE) {
            ck_assert_msg(p->v.modify_qp(qp, a, required & ~bit) == EINVAL,
                          "taken without attribute 0x%x", bit);
        }
        if (foreign & bit) {
            ck_assert_msg(p->v.modify_qp(qp, a, required | bit) == EINVAL,
                          "taken with attribute 0x%x", bit);
        }
    }
}

START_TEST(attributes_of_each_move)
{
    struct pair_cfg c = {.no_connect = 1};
    struct ibv_qp_attr a = {.port_num = 1,
                            .path_mtu = IBV_MTU_4096,
                            .timeout = 14,
                            .retry_cnt = 3,
                            .rnr_retry = 7,
                            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3}}};
    int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
              IBV_QP_MAX_QP_RD_ATOMIC;
    struct ibv_qp *qp;
    struct pair p;

    pair_open(&p, &c);
    qp = p.s[0].qp;
    a.ah_attr.grh.dgid = p.s[1].gid;
    a.qp_state = IBV_QPS_RTR;
    ck_assert_int_eq(p.v.modify_qp(qp, &a, rtr), EINVAL); /* not from RESET */
    a.qp_state = IBV_QPS_INIT;
    try_masks(&p, qp, &a, init, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_AV);
    ck_assert_int_eq(p.v.modify_qp(qp, &a, init), 0);
    ck_assert_int_eq(p.v.modify_qp(qp, &a, init), 0); /* INIT to INIT */
    a.qp_state = IBV_QPS_RTS;
    ck_assert_int_eq(p.v.modify_qp(qp, &a, rts), EINVAL);
    a.qp_state = IBV_QPS_RTR;
    try_masks(&p, qp, &a, rtr, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    ck_assert_int_eq(p.v.modify_qp(qp, &a, rtr), 0);
    a.qp_state = IBV_QPS_RTS;
    try_masks(&p, qp, &a, rts, IBV_QP_AV | IBV_QP_RQ_PSN | IBV_QP_PORT);
    ck_assert_int_eq(p.v.modify_qp(qp, &a, rts), 0);
    ck_assert_int_eq(qp->state, IBV_QPS_RTS);
    a.qp_state = IBV_QPS_INIT;
    ck_assert_int_eq(p.v.modify_qp(qp, &a, init), EINVAL);
    a.cur_qp_state = IBV_QPS_RTR;
    ck_assert_int_eq(p.v.modify_qp(qp, &a, IBV_QP_CUR_STATE), EINVAL);
    ck_assert_int_eq(pair_to_state(&p, qp, IBV_QPS_ERR), 0);
    a.qp_state = IBV_QPS_RTS;
    ck_assert_int_eq(p.v.modify_qp(qp, &a, rts), EINVAL);
    ck_assert_int_eq(pair_to_state(&p, qp, IBV_QPS_RESET), 0);
    ck_assert_int_eq(qp->state, IBV_QPS_RESET);
    pair_close(&p);
}
END_TEST

START_TEST(values_out_of_range)
{
    struct pair_cfg c = {.no_connect = 1};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_4096,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 3}}},
                       a;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct pair p;

    pair_open(&p, &c);
    rtr.ah_attr.grh.dgid = p.s[1].gid;
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 2};
    ck_assert_int_eq(
        p.v.modify_qp(p.s[0].qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        EINVAL);
    ck_assert_int_eq(pair_to_init(&p, p.s[0].qp), 0);
    a = rtr, a.ah_attr.is_global = 0;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.ah_attr.grh.sgid_index = 4;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.min_rnr_timer = 32;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.max_dest_rd_atomic = 17;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.dest_qp_num = 1 << 24;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.path_mtu = 6;
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), EINVAL);
    a = rtr, a.ah_attr.grh.dgid.raw[15] = 99; /* nobody there */
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), ETIMEDOUT);
    a = rtr, a.ah_attr.grh.dgid.raw[14] = 1; /* another rail */
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, mask), ETIMEDOUT);
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &rtr, mask), 0);
    pair_close(&p);
}
END_TEST

START_TEST(posting_by_state)
{
    struct pair_cfg c = {.no_connect = 1};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_recv(&p, 0, 1, 0, 64), EINVAL);
    ck_assert_int_eq(pair_to_init(&p, p.s[0].qp), 0);
    ck_assert_int_eq(pair_recv(&p, 0, 1, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), EINVAL);
    ck_assert_int_eq(pair_to_rtr(&p, p.s[0].qp, &p.s[1].gid, p.s[1].qp->qp_num, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), EINVAL);
    ck_assert_int_eq(pair_to_rts(&p, p.s[0].qp, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 0, 8, 0), EOPNOTSUPP);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    pair_expect(&p, 0, 1, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 0, 1, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}
END_TEST

/* ERR flushes both queues in order, unsignaled work requests too; what is posted later flushes at
 * once. */
START_TEST(flush_order)
{
    struct pair_cfg c = {.seed = 3, .opts = {.cqe_ns = (uint64_t)_i * PAIR_US}};
    uint64_t send = 0, recv = 100;
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, &c);
    pair_fault(&p, "h1:n0 blackhole");
    for (uint32_t i = 0; i < 10; i++) {
        ck_assert_int_eq(pair_recv(&p, 0, 100 + i, 0, 64), 0);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 0, 64, 0), 0);
    }
    pair_run_for(&p, 100 * PAIR_US);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    ck_assert_int_eq(pair_recv(&p, 0, 110, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 10, 0, 0, 64, 0), 0);
    pair_run(&p);
    ck_assert_uint_lt(fab_inproc_now(p.f), PAIR_MS); /* the retransmission timer is gone */
    while (pair_poll(&p, 0, &wc)) {
        ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
        ck_assert_uint_eq(wc.wr_id, wc.wr_id < 100 ? send++ : recv++);
    }
    ck_assert_uint_eq(send, 11);
    ck_assert_uint_eq(recv, 111);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 11, 0, 0, 64, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 11, IBV_WC_WR_FLUSH_ERR);
    pair_expect_none(&p, 0);
    pair_close(&p);
}
END_TEST

struct watch {
    uint64_t writes, late;
    bool closed;
};

static void on_write(void *arg, int host, int nic, uint32_t qpn, void *addr, uint32_t len)
{
    struct watch *w = arg;

    if (host != 1) {
        return;
    }
    w->writes++;
    w->late += w->closed;
}

/* Side 0 writes, side 1 cuts the connection in the middle by @state, with a receive marker if it is
 * ERR. Returns writes after the cut. */
static uint64_t cut(uint64_t seed, enum ibv_qp_state state, uint64_t *accepted)
{
    struct watch w = {0};
    struct pair_cfg c = {.seed = seed,
                         .opts = {.dma_ns = 20 * PAIR_US,
                                  .cqe_ns = 5 * PAIR_US,
                                  .jitter_ns = 2 * PAIR_US,
                                  .on_memory_write = on_write,
                                  .arg = &w}};
    struct ibv_wc wc = {0};
    struct pair p;

    pair_open(&p, &c);
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert_int_eq(pair_recv(&p, 1, i, 0, 0), 0);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 0, 30000, 0), 0);
    }
    pair_run_for(&p, 5 * PAIR_US + seed % 50 * PAIR_US);
    ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, state), 0);
    if (state == IBV_QPS_ERR) {
        ck_assert_int_eq(pair_recv(&p, 1, 999, 0, 0), 0);
        while (wc.wr_id != 999) {
            while (pair_poll(&p, 1, &wc) == 0) {
                ck_assert(fab_inproc_step(p.f));
            }
        }
    }
    w.closed = true;
    pair_run(&p);
    *accepted += w.writes;
    pair_close(&p);
    return w.late;
}

/* The marker property: after the flush of a receive posted in ERR no DMA of that queue pair
 * happens. With RESET instead it does. */
START_TEST(no_dma_after_the_marker)
{
    uint64_t late_err = 0, late_reset = 0, n = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        late_err += cut(seed, IBV_QPS_ERR, &n);
        late_reset += cut(seed, IBV_QPS_RESET, &n);
    }
    ck_assert_uint_eq(late_err, 0);
    ck_assert_uint_gt(late_reset, 0);
    ck_assert_uint_gt(n, 10000);
}
END_TEST

/* Destroying does not wait either: what was accepted lands in memory that is still registered. */
START_TEST(destroy_does_not_wait_for_dma)
{
    struct watch w = {0};
    struct pair_cfg c = {.opts = {.dma_ns = 100 * PAIR_US, .on_memory_write = on_write, .arg = &w}};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 60000, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 3 * PAIR_US);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS); /* acknowledged */
    ck_assert_uint_lt(w.writes, 15);
    w.closed = true;
    ck_assert_int_eq(p.v.destroy_qp(p.s[1].qp), 0);
    p.s[1].qp = NULL;
    pair_run(&p);
    ck_assert_uint_gt(w.late, 0);
    ck_assert_uint_eq(w.writes, 15);
    pair_close(&p);
}
END_TEST

/* RESET forgets work requests and completions silently; the queue pair can be connected again. */
START_TEST(reset_is_silent)
{
    struct pair p;

    pair_open(&p, NULL);
    ck_assert_int_eq(pair_recv(&p, 0, 1, 0, 64), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 1, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_to_state(&p, p.s[i].qp, IBV_QPS_RESET), 0);
    }
    pair_run(&p);
    pair_expect_none(&p, 0);
    pair_expect_none(&p, 1);
    pair_connect_qps(&p, p.s[0].qp, p.s[1].qp, 5);
    for (uint32_t i = 0; i < 64; i++) { /* all slots are free again */
        ck_assert_int_eq(pair_recv(&p, 1, i, 0, 64), 0);
    }
    for (uint32_t i = 0; i < 64; i++) {
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, i, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    }
    pair_run(&p);
    for (uint32_t i = 0; i < 64; i++) {
        pair_expect(&p, 0, i, IBV_WC_SUCCESS);
        pair_expect(&p, 1, i, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}
END_TEST

START_TEST(receiver_in_error_is_silent_to_the_sender)
{
    struct pair_cfg c = {.timeout = 8, .retry = 1};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, IBV_QPS_ERR), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_wrong_state, 2);
    ck_assert_uint_eq(pair_cnt(&p, 1)->dma_writes, 0);
    pair_close(&p);
}
END_TEST

/* SQD: what was begun ends, nothing new begins, and the program hears when it is quiet. */
START_TEST(drain)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    struct pair_cfg c = {.rate = 1000000000};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 100000, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 100000, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 10 * PAIR_US);
    ck_assert_int_eq(p.v.modify_qp(p.s[0].qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_expect_none(&p, 0);
    pair_expect_event(&p, 0, IBV_EVENT_SQ_DRAINED);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_RTS), 0);
    pair_run(&p);
    pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

START_TEST(limits)
{
    struct ibv_device_attr d;
    struct ibv_qp_init_attr init;
    struct pair p;

    pair_open(&p, NULL);
    ck_assert_int_eq(p.v.query_device(p.s[0].ctx, &d), 0);
    init = (struct ibv_qp_init_attr){
        .send_cq = p.s[0].cq, .recv_cq = p.s[0].cq, .qp_type = IBV_QPT_RC};
    init.cap.max_send_wr = (uint32_t)d.max_qp_wr + 1;
    ck_assert_ptr_null(p.v.create_qp(p.s[0].pd, &init));
    ck_assert_int_eq(errno, EINVAL);
    init.cap.max_send_wr = 1;
    init.cap.max_recv_sge = (uint32_t)d.max_sge + 1;
    ck_assert_ptr_null(p.v.create_qp(p.s[0].pd, &init));
    init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = FAB_MAX_INLINE + 1;
    ck_assert_ptr_null(p.v.create_qp(p.s[0].pd, &init));
    init.cap.max_inline_data = 0;
    init.qp_type = IBV_QPT_UD;
    ck_assert_ptr_null(p.v.create_qp(p.s[0].pd, &init));
    ck_assert_int_eq(errno, EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    init.recv_cq = p.s[1].cq; /* of another device */
    ck_assert_ptr_null(p.v.create_qp(p.s[0].pd, &init));
    ck_assert_ptr_null(p.v.create_cq(p.s[0].ctx, 0, NULL, NULL, 0));
    ck_assert_ptr_null(p.v.create_cq(p.s[0].ctx, d.max_cqe + 1, NULL, NULL, 0));
    ck_assert_int_eq(p.v.dealloc_pd(p.s[0].pd), EBUSY);
    ck_assert_int_eq(p.v.destroy_cq(p.s[0].cq), EBUSY);
    ck_assert_int_eq(p.v.destroy_comp_channel(p.s[0].ch), EBUSY);
    pair_close(&p);
}
END_TEST

START_TEST(numbers_are_reused_lowest_first)
{
    struct ibv_qp *a, *b;
    struct pair p;
    uint32_t old;

    pair_open(&p, NULL);
    a = pair_new_qp(&p, &p.s[0]);
    old = a->qp_num;
    b = pair_new_qp(&p, &p.s[0]);
    ck_assert_uint_ne(b->qp_num, old);
    p.v.destroy_qp(a);
    a = pair_new_qp(&p, &p.s[0]);
    ck_assert_uint_eq(a->qp_num, old);
    p.v.destroy_qp(a);
    p.v.destroy_qp(b);
    pair_close(&p);
}
END_TEST

START_TEST(events_are_acknowledged_before_destroy)
{
    struct ibv_async_event ev;
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 qp-error");
    ck_assert_int_eq(p.v.get_async_event(p.s[0].ctx, &ev), 0);
    ck_assert_ptr_eq(ev.element.qp, p.s[0].qp);
    ck_assert_int_eq(p.v.destroy_qp(p.s[0].qp), EBUSY);
    p.v.ack_async_event(&ev);
    pair_fault(&p, "h1:n0 qp-error"); /* an event that nobody got goes with its queue pair */
    ck_assert_int_eq(p.v.destroy_qp(p.s[1].qp), 0);
    pair_expect_no_event(&p, 1);
    p.s[1].qp = NULL;
    pair_close(&p);
}
END_TEST

START_TEST(query)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr a;
    struct pair p;

    pair_open(&p, NULL);
    ck_assert_int_eq(p.v.query_qp(p.s[0].qp, &a, IBV_QP_STATE, &init), 0);
    ck_assert_int_eq(a.qp_state, IBV_QPS_RTS);
    ck_assert_uint_eq(a.dest_qp_num, p.s[1].qp->qp_num);
    ck_assert_uint_eq(a.sq_psn, 0xfffff0);
    ck_assert_uint_eq(a.timeout, 14);
    ck_assert_uint_eq(init.cap.max_send_wr, 64);
    ck_assert_ptr_eq(init.send_cq, p.s[0].cq);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_state");
    TCase *t = tcase_create("state");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, attributes_of_each_move);
    tcase_add_test(t, values_out_of_range);
    tcase_add_test(t, posting_by_state);
    tcase_add_loop_test(t, flush_order, 0, 4);
    tcase_add_test(t, no_dma_after_the_marker);
    tcase_add_test(t, destroy_does_not_wait_for_dma);
    tcase_add_test(t, reset_is_silent);
    tcase_add_test(t, receiver_in_error_is_silent_to_the_sender);
    tcase_add_test(t, drain);
    tcase_add_test(t, limits);
    tcase_add_test(t, numbers_are_reused_lowest_first);
    tcase_add_test(t, events_are_acknowledged_before_destroy);
    tcase_add_test(t, query);
    suite_add_tcase(s, t);
    return pair_main(s);
}
