/* Device model: errors of requests, of memory regions and of queues, and what both ends hear of
 * them. */
#include "tests/unit/test_fabric_pair.h"

#include <sys/mman.h>
#include <unistd.h>

static struct pair p;
static struct ibv_sge sge;
static struct ibv_send_wr wr;

/* A write of 64 bytes from side 0 to side 1, to be spoilt by the test. */
static void start(const struct pair_cfg *c)
{
    pair_open(&p, c);
    sge = (struct ibv_sge){.addr = (uintptr_t)p.s[0].buf, .length = 64, .lkey = p.s[0].mr->lkey};
    wr = (struct ibv_send_wr){
        .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)p.s[1].buf;
    wr.wr.rdma.rkey = p.s[1].mr->rkey;
}

/* Posts it between good ones and expects it, and only it, to fail so; the one behind it is flushed.
 */
static void expect_failure(enum ibv_wc_status status)
{
    struct ibv_send_wr *bad;

    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 0, 0, 1000, 9000, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 1000, 9000, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 0, IBV_WC_SUCCESS);
    pair_expect(&p, 0, 1, status);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    pair_expect_none(&p, 0);
    ck_assert_int_eq(fab_ibv_qp(p.s[0].qp)->state, IBV_QPS_ERR);
    pair_expect_no_event(&p, 0);
}

static void expect_remote(enum ibv_event_type type)
{
    ck_assert_int_eq(fab_ibv_qp(p.s[1].qp)->state, IBV_QPS_ERR);
    pair_expect_event(&p, 1, type);
    pair_close(&p);
}

START_TEST(wrong_rkey)
{
    start(NULL);
    wr.wr.rdma.rkey += 1;
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

START_TEST(remote_out_of_bounds)
{
    start(NULL);
    wr.wr.rdma.remote_addr = (uintptr_t)p.s[1].buf + PAIR_BUF - 63;
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

START_TEST(remote_without_right)
{
    struct ibv_mr *mr;

    start(NULL);
    mr = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    wr.wr.rdma.rkey = mr->rkey;
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    p.v.dereg_mr(mr);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

START_TEST(remote_of_another_domain)
{
    struct ibv_pd *pd;
    struct ibv_mr *mr;

    start(NULL);
    pd = p.v.alloc_pd(p.s[1].ctx);
    mr = p.v.reg_mr(pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
    wr.wr.rdma.rkey = mr->rkey;
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    p.v.dereg_mr(mr);
    p.v.dealloc_pd(pd);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

START_TEST(remote_deregistered)
{
    struct ibv_mr *mr;

    start(NULL);
    mr = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
    wr.wr.rdma.rkey = mr->rkey;
    p.v.dereg_mr(mr);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

/* The key that was let go last is the first to be handed out again, whole: who still writes by it
 * writes into the new region. */
START_TEST(remote_registered_again)
{
    struct ibv_mr *mr[3];
    struct ibv_send_wr *bad;
    uint32_t key[3];

    start(NULL);
    memset(p.s[0].buf, 7, 64);
    for (int i = 0; i < 3; i++) {
        mr[i] = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
        key[i] = mr[i]->rkey;
    }
    for (int i = 0; i < 3; i++) {
        p.v.dereg_mr(mr[i]);
    }
    for (int i = 2; i >= 0; i--) {
        mr[i] = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
        ck_assert_uint_eq(mr[i]->rkey, key[i]);
    }
    wr.wr.rdma.rkey = key[0];
    wr.send_flags = IBV_SEND_SIGNALED;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(p.s[1].buf[63], 7);
    for (int i = 0; i < 3; i++) {
        p.v.dereg_mr(mr[i]);
    }
    pair_close(&p);
}
END_TEST

START_TEST(read_without_right)
{
    struct ibv_mr *mr;

    start(NULL);
    mr = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma.rkey = mr->rkey;
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    p.v.dereg_mr(mr);
    expect_remote(IBV_EVENT_QP_ACCESS_ERR);
}
END_TEST

START_TEST(qp_without_right)
{
    struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    start(NULL);
    ck_assert_int_eq(p.v.modify_qp(p.s[1].qp, &a, IBV_QP_ACCESS_FLAGS), 0);
    wr.opcode = IBV_WR_RDMA_READ;
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    expect_remote(IBV_EVENT_QP_REQ_ERR);
}
END_TEST

START_TEST(zero_length_needs_no_key)
{
    struct ibv_send_wr *bad;

    start(NULL);
    wr.num_sge = 0;
    wr.wr.rdma.rkey = 12345;
    wr.send_flags = IBV_SEND_SIGNALED;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

START_TEST(local_key)
{
    struct ibv_mr *mr = NULL;

    start(NULL);
    if (_i == 0) {
        sge.lkey += 1;
    } else if (_i == 1) {
        sge.addr = (uintptr_t)p.s[0].buf + PAIR_BUF - 63;
    } else {
        mr = p.v.reg_mr(p.s[0].pd, p.s[0].buf, 64, 0); /* a read needs local write */
        sge.lkey = mr->lkey;
        wr.opcode = IBV_WR_RDMA_READ;
    }
    expect_failure(IBV_WC_LOC_PROT_ERR);
    if (mr) {
        p.v.dereg_mr(mr);
    }
    pair_close(&p);
}
END_TEST

START_TEST(local_region_gone_before_sending)
{
    struct ibv_mr *mr;
    struct ibv_send_wr *bad;

    start(NULL);
    mr = p.v.reg_mr(p.s[0].pd, p.s[0].buf, 64, 0);
    sge.lkey = mr->lkey;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    p.v.dereg_mr(mr);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_LOC_PROT_ERR);
    pair_close(&p);
}
END_TEST

START_TEST(message_too_long)
{
    start(NULL);
    sge.length = (1u << 30) + 1;
    expect_failure(IBV_WC_LOC_LEN_ERR);
    pair_close(&p);
}
END_TEST

START_TEST(receive_too_short)
{
    start(NULL);
    ck_assert_int_eq(pair_recv(&p, 1, 50, 0, 63), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 51, 0, 64), 0);
    wr.opcode = IBV_WR_SEND;
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    pair_expect(&p, 1, 50, IBV_WC_LOC_LEN_ERR);
    pair_expect(&p, 1, 51, IBV_WC_WR_FLUSH_ERR);
    expect_remote(IBV_EVENT_QP_REQ_ERR);
}
END_TEST

START_TEST(receive_key_wrong)
{
    struct ibv_sge rsge;
    struct ibv_recv_wr rr = {.wr_id = 50, .sg_list = &rsge, .num_sge = 1}, *bad;

    start(NULL);
    rsge =
        (struct ibv_sge){.addr = (uintptr_t)p.s[1].buf, .length = 64, .lkey = p.s[1].mr->lkey + 1};
    ck_assert_int_eq(ibv_post_recv(p.s[1].qp, &rr, &bad), 0);
    wr.opcode = IBV_WR_SEND;
    expect_failure(IBV_WC_REM_OP_ERR);
    pair_expect(&p, 1, 50, IBV_WC_LOC_PROT_ERR);
    pair_close(&p);
}
END_TEST

START_TEST(reads_not_allowed)
{
    struct pair_cfg c = {.rd_atom = -1};

    start(&c);
    wr.opcode = IBV_WR_RDMA_READ;
    expect_failure(IBV_WC_LOC_QP_OP_ERR);
    pair_close(&p);
}
END_TEST

/* Accepted and acknowledged, then the region goes away before the DMA: the bytes are dropped and no
 * good completion appears, also where another one has its key by then. */
START_TEST(dereg_drops_accepted_dma)
{
    struct pair_cfg c = {.opts = {.dma_ns = 500 * PAIR_US}};
    struct ibv_mr *mr, *again;
    struct ibv_send_wr *bad;

    for (uint64_t seed = 0; seed < 5; seed++) {
        c.seed = seed;
        start(&c);
        memset(p.s[0].buf, 7, 64);
        mr = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.wr.rdma.rkey = mr->rkey;
        wr.send_flags = IBV_SEND_SIGNALED;
        ck_assert_int_eq(pair_recv(&p, 1, 50, 0, 0), 0);
        ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
        pair_run_for(&p, 3 * PAIR_US);
        pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
        p.v.dereg_mr(mr);
        again = seed & 1 ? p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS) : NULL;
        ck_assert(!again || again->rkey == wr.wr.rdma.rkey);
        pair_run(&p);
        if (again) {
            p.v.dereg_mr(again);
        }
        ck_assert_uint_eq(p.s[1].buf[0], 0);
        ck_assert_uint_eq(pair_cnt(&p, 1)->dma_dropped, 1);
        pair_expect(&p, 1, 50, IBV_WC_WR_FLUSH_ERR);
        expect_remote(IBV_EVENT_QP_ACCESS_ERR);
    }
}
END_TEST

/* The same under a write, with one that carries an immediate accepted behind it: a responder
 * executes in order, so that one is no good completion either. */
START_TEST(nothing_is_executed_behind_dropped_dma)
{
    struct pair_cfg c = {.opts = {.dma_ns = 500 * PAIR_US}};
    struct ibv_mr *mr;
    struct ibv_send_wr *bad;

    for (uint64_t seed = 0; seed < 5; seed++) {
        c.seed = seed;
        start(&c);
        memset(p.s[0].buf, 7, 64);
        mr = p.v.reg_mr(p.s[1].pd, p.s[1].buf, 64, PAIR_ALL_ACCESS);
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma.rkey = mr->rkey;
        wr.send_flags = 0;
        ck_assert_int_eq(pair_recv(&p, 1, 50, 0, 0), 0);
        ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.wr.rdma.rkey = p.s[1].mr->rkey;
        wr.wr.rdma.remote_addr += 128;
        wr.send_flags = IBV_SEND_SIGNALED;
        ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
        pair_run_for(&p, 3 * PAIR_US);
        pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
        p.v.dereg_mr(mr);
        pair_run(&p);
        ck_assert_uint_eq(p.s[1].buf[0], 0);
        ck_assert_uint_eq(p.s[1].buf[128], 0);
        ck_assert_uint_eq(pair_cnt(&p, 1)->dma_dropped, 2);
        pair_expect(&p, 1, 50, IBV_WC_WR_FLUSH_ERR);
        expect_remote(IBV_EVENT_QP_ACCESS_ERR);
    }
}
END_TEST

START_TEST(bad_registrations)
{
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    start(NULL);
    munmap(hole, 4096);
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, p.s[0].buf, 0, 0));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, hole, 4096, 0));
    ck_assert_int_eq(errno, EFAULT);
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, p.s[0].buf, SIZE_MAX, 0));
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, p.s[0].buf, 64, IBV_ACCESS_REMOTE_WRITE));
    ck_assert_int_eq(errno, EINVAL);
    pair_fault(&p, "h0:n0 mr-fail 1");
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, p.s[0].buf, 64, 0));
    ck_assert_int_eq(errno, ENOMEM);
    ck_assert_int_eq(p.v.dereg_mr(p.v.reg_mr(p.s[0].pd, p.s[0].buf, 64, 0)), 0);
    pair_close(&p);
}
END_TEST

START_TEST(iova_and_dmabuf)
{
    int fd = memfd_create("dmabuf", 0);
    struct ibv_send_wr *bad;
    struct ibv_mr *mr;
    uint8_t *map;

    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    start(NULL);
    memset(p.s[0].buf, 9, 64);
    mr = p.v.reg_dmabuf_mr(p.s[1].pd, 4100, 64, 0x7000, fd, PAIR_ALL_ACCESS);
    ck_assert_ptr_nonnull(mr);
    wr.wr.rdma.rkey = mr->rkey;
    wr.wr.rdma.remote_addr = 0x7000;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    pair_run(&p);
    ck_assert_uint_eq(map[4099], 0);
    ck_assert_uint_eq(map[4100], 9);
    ck_assert_uint_eq(map[4163], 9);
    ck_assert_uint_eq(map[4164], 0);
    p.v.dereg_mr(mr);
    munmap(map, 8192);
    close(fd);
    pair_close(&p);
}
END_TEST

START_TEST(cq_overrun)
{
    struct pair_cfg c = {.cqe = 4, .sig_all = 1};

    start(&c);
    for (uint64_t i = 0; i < 5; i++) {
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 0, 64, 0), 0);
    }
    pair_run(&p);
    ck_assert_uint_eq(pair_cnt(&p, 0)->cq_overruns, 1);
    pair_expect_event(&p, 0, IBV_EVENT_CQ_ERR);
    pair_expect_event(&p, 0, IBV_EVENT_QP_FATAL);
    for (uint64_t i = 0; i < 4; i++) {
        pair_expect(&p, 0, i, IBV_WC_SUCCESS);
    }
    pair_expect_none(&p, 0); /* the fifth, and every flush, are lost */
    ck_assert_int_eq(fab_ibv_qp(p.s[0].qp)->state, IBV_QPS_ERR);
    pair_close(&p);
}
END_TEST

START_TEST(exactly_full_is_no_overrun)
{
    struct pair_cfg c = {.cqe = 4, .sig_all = 1};

    start(&c);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 4; i++) {
            ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 0, 64, 0), 0);
        }
        pair_run(&p);
        for (uint64_t i = 0; i < 4; i++) {
            pair_expect(&p, 0, i, IBV_WC_SUCCESS);
        }
    }
    pair_expect_no_event(&p, 0);
    pair_close(&p);
}
END_TEST

START_TEST(shared_receive_queue)
{
    struct ibv_srq_attr limit = {.srq_limit = 3};
    struct pair_cfg c = {.srq = 5};
    struct ibv_qp *a, *b;
    struct ibv_send_wr *bad;

    start(&c);
    a = pair_new_qp(&p, &p.s[0]);
    b = pair_new_qp(&p, &p.s[1]);
    pair_connect_qps(&p, a, b, 7);
    for (uint64_t i = 0; i < 5; i++) {
        ck_assert_int_eq(pair_recv(&p, 1, i, 0, 64), 0);
    }
    ck_assert_int_eq(pair_recv(&p, 1, 5, 0, 64), ENOMEM);
    ck_assert_int_eq(fab_ibv_modify_srq(p.s[1].srq, &limit, IBV_SRQ_LIMIT), 0);
    wr.opcode = IBV_WR_SEND;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    pair_run(&p);
    ck_assert_int_eq(ibv_post_send(a, &wr, &bad), 0);
    pair_run(&p);
    pair_expect_no_event(&p, 1);
    ck_assert_int_eq(ibv_post_send(a, &wr, &bad), 0);
    pair_run(&p);
    pair_expect_event(&p, 1, IBV_EVENT_SRQ_LIMIT_REACHED); /* two are left */
    ck_assert_uint_eq(pair_expect(&p, 1, 0, IBV_WC_SUCCESS).qp_num, p.s[1].qp->qp_num);
    ck_assert_uint_eq(pair_expect(&p, 1, 1, IBV_WC_SUCCESS).qp_num, b->qp_num);
    pair_expect(&p, 1, 2, IBV_WC_SUCCESS);
    ck_assert_int_eq(pair_recv(&p, 1, 5, 0, 64), 0);
    ck_assert_int_eq(pair_to_state(&p, b, IBV_QPS_ERR), 0);
    pair_run(&p);
    pair_expect_event(&p, 1, IBV_EVENT_QP_LAST_WQE_REACHED);
    pair_expect_none(&p, 1); /* receives of a shared queue are not flushed */
    ck_assert_int_eq(fab_ibv_destroy_srq(p.s[1].srq), EBUSY);
    p.v.destroy_qp(a);
    p.v.destroy_qp(b);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_error");
    TCase *t = tcase_create("error");

    tcase_add_test(t, wrong_rkey);
    tcase_add_test(t, remote_out_of_bounds);
    tcase_add_test(t, remote_without_right);
    tcase_add_test(t, remote_of_another_domain);
    tcase_add_test(t, remote_deregistered);
    tcase_add_test(t, remote_registered_again);
    tcase_add_test(t, read_without_right);
    tcase_add_test(t, qp_without_right);
    tcase_add_test(t, zero_length_needs_no_key);
    tcase_add_loop_test(t, local_key, 0, 3);
    tcase_add_test(t, local_region_gone_before_sending);
    tcase_add_test(t, message_too_long);
    tcase_add_test(t, receive_too_short);
    tcase_add_test(t, receive_key_wrong);
    tcase_add_test(t, reads_not_allowed);
    tcase_add_test(t, dereg_drops_accepted_dma);
    tcase_add_test(t, nothing_is_executed_behind_dropped_dma);
    tcase_add_test(t, bad_registrations);
    tcase_add_test(t, iova_and_dmabuf);
    tcase_add_test(t, cq_overrun);
    tcase_add_test(t, exactly_full_is_no_overrun);
    tcase_add_test(t, shared_receive_queue);
    suite_add_tcase(s, t);
    return pair_main(s);
}
