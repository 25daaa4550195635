/* Flush of GPU memory (P17): which NICs are read through, what is left alone, and what a fence
 * keeps. NICs that fail meanwhile are in test_flush_nic.c. */
#include "tests/unit/flush_rig.h"

START_TEST(host_memory_is_left_alone)
{
    create(2, "auto");
    open_conn(IB_PTR_HOST);
    transfer(0, MB);
    ck_assert_ptr_null(flush_one(0, MB));
    ck_assert_uint_eq(rx->flush.lane->reads, 0);
    ck_assert_int_eq(rx->rx->msg[0].gpu, 0);
    finish();
}
END_TEST

START_TEST(a_message_that_came_over_two_nics)
{
    struct r2_req *req;
    int done;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    ck_assert_uint_eq(ib_recv_from(rx->rx, 0), 3);
    req = flush_one(0, MB);
    ck_assert_ptr_nonnull(req);
    ck_assert_uint_eq(rx->flush.lane->op[req->seq].out[0], 1);
    ck_assert_uint_eq(rx->flush.lane->op[req->seq].out[1], 1);
    ck_assert_int_eq(r2_net_test(req, &done, NULL), R2_OK);
    ck_assert_int_eq(done, 0); /* the clock has not moved */
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 2);
    ck_assert_uint_eq(rx->flush.lane->replaced, 0);
    ck_assert_int_eq(lane(0)->used + lane(1)->used, 0);
    finish();
}
END_TEST

START_TEST(always_flushes_host_memory)
{
    struct r2_req *req;

    create(1, "always");
    open_conn(IB_PTR_HOST);
    transfer(64, 100);
    req = flush_one(64, 100);
    ck_assert_ptr_nonnull(req);
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 1);
    finish();
}
END_TEST

/* i: asked for by NCCL's own variable, not asked for; and with NCCL_R2_FLUSH=always, which reads
 * whatever NCCL's says. */
START_TEST(switched_off_as_in_nccl)
{
    bool off = _i % 2 == 0, always = _i >= 2;
    struct r2_req *req;

    create_with(1, always ? "always" : "auto", "NCCL_GDR_FLUSH_DISABLE", off ? "1" : "0");
    open_conn(IB_PTR_CUDA);
    transfer(64, 100);
    req = flush_one(64, 100);
    ck_assert_int_eq(req == NULL, off && !always);
    if (req) {
        wait_done(req);
    }
    ck_assert_uint_eq(rx->flush.lane->reads, req != NULL);
    finish();
}
END_TEST

START_TEST(groups_and_what_is_empty)
{
    void *data[3] = {in, in + 4096, in + 8192};
    int sizes[3] = {100, 0, 100};
    struct ib_mr *mrs[3];
    struct r2_req *req;

    create(1, "auto");
    open_conn(IB_PTR_CUDA);
    data[0] = in;
    data[1] = in + 4096;
    data[2] = in + 8192;
    mrs[0] = mrs[1] = mrs[2] = rx_mr;
    transfer(0, 100);
    transfer(8192, 100);
    ck_assert_int_eq(r2_net_iflush(rx, 3, data, sizes, mrs, &req), R2_OK);
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 2);
    sizes[0] = sizes[2] = 0;
    ck_assert_int_eq(r2_net_iflush(rx, 3, data, sizes, mrs, &req), R2_OK);
    ck_assert_ptr_null(req);
    finish();
}
END_TEST

/* An address that no message began at: it may have come over any NIC that carried data. */
START_TEST(an_unknown_address_is_read_through_all)
{
    struct r2_req *req;

    create(3, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    req = flush_one(77, 10);
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 3);
    finish();
}
END_TEST

START_TEST(as_many_as_receives)
{
    struct r2_req *req[IB_FLUSH_OPS], *more;
    void *data;
    int len = 64;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    data = in;
    transfer(0, 64);
    for (int i = 0; i < IB_FLUSH_OPS; i++) {
        req[i] = flush_one(0, 64);
        ck_assert_ptr_nonnull(req[i]);
    }
    ck_assert_int_eq(r2_net_iflush(rx, 1, &data, &len, &rx_mr, &more), R2_ERR_ARG);
    ck_assert_ptr_null(more);
    for (int i = 0; i < IB_FLUSH_OPS; i++) {
        wait_done(req[i]);
    }
    ck_assert_uint_eq(rx->flush.lane->reads, IB_FLUSH_OPS);
    wait_done(flush_one(0, 64));
    finish();
}
END_TEST

/* Refused by the NIC for what is asked: trying on every NIC for ever would help nobody. */
START_TEST(a_buffer_that_is_not_registered_there)
{
    struct r2_req *req;
    int done;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, 64);
    req = flush_one(BUF_LEN + 4096, 64);
    ck_assert_int_eq(duo_wait(&d, req, LIMIT, &done, NULL), R2_ERR_COMM);
    ck_assert_int_eq(done, 0);
    finish();
}
END_TEST

/* @carries: path 1 has a part under way when its NIC fails. */
static uint64_t recv_time_after_fence(int carries)
{
    struct r2_req *r = post_recv(0, MB), *s = NULL;

    if (carries) {
        duo_fault(&d, "h0:n1 delay 5ms");
        post_send(0, MB, &s);
        ck_assert_uint_gt(tx->conn.path[1].parts_out, 0);
    }
    duo_fault(&d, "h1:n1 down");
    while (rx->fo.path[1].state != FO_FENCED) {
        duo_run(&d, 10000);
    }
    if (!carries) {
        post_send(0, MB, &s);
    }
    wait_both(r, s);
    return duo_now(&d) - rx->conn.path[1].closed_at;
}

/* What the path carried: of an idle one nothing crosses PCIe any more (P35). */
START_TEST(a_fence_holds_open_gpu_receives)
{
    uint64_t t;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    t = recv_time_after_fence(1);
    ck_assert_uint_ge(t, PCIE_MS * DUO_MS);
    ck_assert_uint_lt(t, (PCIE_MS + 2) * DUO_MS);
    ck_assert_uint_eq(rx->fo.path[1].quarantine_until, 0);
    finish();
}
END_TEST

/* An abort, whose memory may be somebody else's at once, waits for as long (P27). */
START_TEST(an_abort_waits_for_what_a_fence_holds)
{
    struct r2_req *r, *s = NULL;

    create(2, "auto");
    open_conn(_i ? IB_PTR_HOST : IB_PTR_CUDA);
    r = post_recv(0, MB);
    duo_fault(&d, "h0:n1 delay 5ms");
    post_send(0, MB, &s);
    duo_fault(&d, "h1:n1 down");
    while (rx->fo.path[1].state != FO_FENCED) {
        duo_run(&d, 10000);
    }
    ck_assert_int_eq(rx->fo.path[1].fence.stage, IB_FENCE_HARD);
    ck_assert_uint_eq(fo_unhalted(&rx->fo), _i ? 1 : 3);
    wait_both(r, s);
    ck_assert_uint_eq(fo_unhalted(&rx->fo), 1); /* path 0 is up */
    finish();
}
END_TEST

START_TEST(a_fence_holds_no_host_receive)
{
    create(2, "auto");
    open_conn(IB_PTR_HOST);
    ck_assert_uint_lt(recv_time_after_fence(_i), 5 * DUO_MS);
    finish();
}
END_TEST

START_TEST(a_fence_of_an_idle_path_holds_none)
{
    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    ck_assert_uint_lt(recv_time_after_fence(0), 5 * DUO_MS);
    finish();
}
END_TEST

/* NULL would mean flushed: a visitor in the connection must not lead to it. */
START_TEST(a_visitor_delays_the_reads)
{
    struct r2_req *req;

    create(1, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, 64);
    atomic_store(&rx->gate.word, R2_GATE_VISITOR); /* one thread: a visitor that stays */
    req = flush_one(0, 64);
    ck_assert_ptr_nonnull(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 0);
    atomic_store(&rx->gate.word, 0);
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->reads, 1);
    finish();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("flush");
    TCase *t = tcase_create("flush");
    SRunner *r;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, host_memory_is_left_alone);
    tcase_add_test(t, a_message_that_came_over_two_nics);
    tcase_add_test(t, always_flushes_host_memory);
    tcase_add_loop_test(t, switched_off_as_in_nccl, 0, 4);
    tcase_add_test(t, groups_and_what_is_empty);
    tcase_add_test(t, an_unknown_address_is_read_through_all);
    tcase_add_test(t, as_many_as_receives);
    tcase_add_test(t, a_buffer_that_is_not_registered_there);
    tcase_add_test(t, a_fence_holds_open_gpu_receives);
    tcase_add_loop_test(t, an_abort_waits_for_what_a_fence_holds, 0, 2);
    tcase_add_loop_test(t, a_fence_holds_no_host_receive, 0, 2);
    tcase_add_test(t, a_fence_of_an_idle_path_holds_none);
    tcase_add_test(t, a_visitor_delays_the_reads);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
