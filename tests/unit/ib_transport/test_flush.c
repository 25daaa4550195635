/* Flush of GPU memory (P17): which NICs are read through, what takes the place of a NIC that
 * cannot, and that nothing is lost. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/duo.h"

#define MB       (1u << 20)
#define BUF_LEN  (2 * MB)
#define LIMIT    (5000 * DUO_MS)
#define PCIE_MS  20
#define FENCE_MS 20

static struct duo d;
static struct r2_comm *tx, *rx;
static struct ib_mr *tx_mr, *rx_mr;
static uint8_t *out, *in;

static void set(struct r2_config *cfg, const char *name, const char *value)
{
    char why[200];

    ck_assert_msg(r2_config_set(cfg, name, value, why, sizeof(why)) == 0, "%s: %s", name, why);
}

static void create(int nics, const char *mode)
{
    struct r2_config cfg;

    r2_config_defaults(&cfg);
    set(&cfg, "NCCL_R2_FLUSH", mode);
    set(&cfg, "NCCL_R2_SPREAD", "on");
    set(&cfg, "NCCL_R2_GIVE_UP", "1000");
    set(&cfg, "NCCL_IB_TIMEOUT", "10");
    ck_assert_int_eq(cfg.t_pcie_ms, PCIE_MS);
    ck_assert_int_eq(cfg.t_fence_ms, FENCE_MS);
    duo_create(&d, nics, 0, &cfg);
    out = aligned_alloc(4096, BUF_LEN);
    in = aligned_alloc(4096, BUF_LEN);
    for (unsigned i = 0; i < BUF_LEN; i++) {
        out[i] = (uint8_t)(i * 7 + (i >> 12));
    }
    memset(in, 0, BUF_LEN);
}

/* Memory of type @type at the receiver. On this fabric a pointer of the CUDA type is registered as
 * any other. */
static void open_conn(int type)
{
    ck_assert_int_eq(duo_connect(&d, 0, &tx, &rx), 0);
    ck_assert_int_eq(r2_net_reg(tx, out, BUF_LEN, IB_PTR_HOST, 0, -1, &tx_mr), R2_OK);
    ck_assert_int_eq(r2_net_reg(rx, in, BUF_LEN, type, 0, -1, &rx_mr), R2_OK);
}

static void finish(void)
{
    r2_net_dereg(tx, tx_mr);
    r2_net_dereg(rx, rx_mr);
    r2_net_close(tx);
    r2_net_close(rx);
    duo_run(&d, 100 * DUO_MS);
    ck_assert_ptr_null(d.end[1].inst->comms.all); /* nothing of it is left, lanes included */
    duo_destroy(&d);
    free(out);
    free(in);
}

static struct r2_req *post_recv(size_t off, size_t len)
{
    struct r2_req *req = NULL;
    void *data = in + off;
    int tag = 1;

    ck_assert_int_eq(r2_net_irecv(rx, 1, &data, &len, &tag, &rx_mr, &req), R2_OK);
    ck_assert_ptr_nonnull(req);
    return req;
}

static void post_send(size_t off, size_t len, struct r2_req **req)
{
    for (int i = 0; i < 100000 && !*req; i++) {
        ck_assert_int_eq(r2_net_isend(tx, out + off, len, 1, tx_mr, req), R2_OK);
        duo_run(&d, 500);
    }
    ck_assert_ptr_nonnull(*req);
}

static void wait_done(struct r2_req *req)
{
    int sizes[8];
    int done;

    ck_assert_int_eq(duo_wait(&d, req, LIMIT, &done, sizes), R2_OK);
    ck_assert_int_eq(done, 1);
}

/* As two programs would: an end sees what became of its path when it tests. */
static void wait_both(struct r2_req *r, struct r2_req *s)
{
    uint64_t end = duo_now(&d) + LIMIT;
    int r_done = 0, s_done = 0;
    int sizes[8];

    while (!(r_done && s_done)) {
        ck_assert_uint_lt(duo_now(&d), end);
        if (!r_done) {
            ck_assert_int_eq(r2_net_test(r, &r_done, sizes), R2_OK);
        }
        if (!s_done) {
            ck_assert_int_eq(r2_net_test(s, &s_done, sizes), R2_OK);
        }
        duo_run(&d, 500);
    }
}

static void transfer(size_t off, size_t len)
{
    struct r2_req *r = post_recv(off, len), *s = NULL;

    post_send(off, len, &s);
    wait_both(r, s);
    ck_assert_mem_eq(in + off, out + off, len);
}

static struct r2_req *flush_one(size_t off, int len)
{
    struct r2_req *req = NULL;
    void *data = in + off;

    ck_assert_int_eq(r2_net_iflush(rx, 1, &data, &len, &rx_mr, &req), R2_OK);
    return req;
}

static struct ib_lane *lane(int i)
{
    return &rx->flush.lane->lane[i];
}

static int lane_state(int i)
{
    return atomic_load(&lane(i)->state);
}

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

START_TEST(a_nic_that_died_is_replaced)
{
    struct r2_req *req;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    duo_fault(&d, "h1:n1 down");
    while (rx->fo.path[1].state != FO_FENCED) {
        duo_run(&d, 10000);
    }
    req = flush_one(0, MB);
    ck_assert_uint_eq(rx->flush.lane->op[req->seq].lost, 1);
    wait_done(req);
    ck_assert_uint_ge(duo_now(&d), rx->conn.path[1].closed_at + PCIE_MS * DUO_MS);
    ck_assert_uint_lt(duo_now(&d), rx->conn.path[1].closed_at + (PCIE_MS + 1) * DUO_MS);
    ck_assert_uint_eq(rx->flush.lane->reads, 2);
    ck_assert_uint_eq(rx->flush.lane->replaced, 1);
    /* long after the fence its writes have landed: no waiting any more */
    duo_run(&d, 30 * DUO_MS);
    rx->rx->msg[0].from = 3;
    req = flush_one(0, MB);
    {
        uint64_t from = duo_now(&d);

        wait_done(req);
        ck_assert_uint_lt(duo_now(&d) - from, DUO_MS);
    }
    finish();
}
END_TEST

/* The NIC takes the read and never answers. Nobody has noticed anything yet. */
START_TEST(a_nic_that_hangs_during_the_flush)
{
    struct r2_req *req;
    uint64_t from;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    duo_fault(&d, "h1:n1 hang");
    from = duo_now(&d);
    req = flush_one(0, MB);
    wait_done(req);
    ck_assert_uint_ge(duo_now(&d) - from, 10 * FENCE_MS * DUO_MS);
    ck_assert_uint_lt(duo_now(&d) - from, 12 * FENCE_MS * DUO_MS);
    ck_assert_uint_eq(rx->flush.lane->replaced, 1);
    duo_fault(&d, "h1:n1 unhang");
    duo_run(&d, 100 * DUO_MS);
    finish();
}
END_TEST

static void lane_fails(int i)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    ck_assert_int_eq(d.end[1].inst->v.modify_qp(lane(i)->qp, &attr, IBV_QP_STATE), 0);
}

START_TEST(a_queue_pair_that_fails_during_the_flush)
{
    struct r2_req *req, *second;
    uint64_t from;

    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    from = duo_now(&d);
    req = flush_one(0, MB);
    second = flush_one(0, MB);
    lane_fails(1);
    wait_done(req);
    ck_assert_uint_ge(duo_now(&d) - from, PCIE_MS * DUO_MS);
    ck_assert_uint_lt(duo_now(&d) - from, (PCIE_MS + 1) * DUO_MS);
    wait_done(second);
    ck_assert_uint_eq(rx->conn.up, 3); /* no path pays for it */
    /* the lane was built again meanwhile and serves */
    ck_assert_int_eq(lane_state(1), IB_LANE_READY);
    ck_assert_uint_eq(rx->flush.lane->replaced, 2);
    from = duo_now(&d);
    wait_done(flush_one(0, MB));
    ck_assert_uint_lt(duo_now(&d) - from, DUO_MS);
    ck_assert_uint_eq(rx->flush.lane->replaced, 2);
    ck_assert_uint_eq(rx->flush.lane->rebuilt, 1);
    finish();
}
END_TEST

START_TEST(the_only_nic_mends_its_lane)
{
    struct r2_req *req;

    create(1, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    req = flush_one(0, MB);
    lane_fails(0);
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->rebuilt, 1);
    finish();
}
END_TEST

START_TEST(every_error_of_a_nic_in_turn)
{
    static const char *const fault[] = {"h1:n1 qp-error", "h1:n1 fatal", "h1:n1 remove",
                                        "h1:n1 blackhole"};
    struct r2_req *req;

    create(3, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    req = flush_one(0, MB);
    duo_fault(&d, fault[_i]);
    wait_done(req);
    transfer(MB, MB); /* and the connection goes on */
    wait_done(flush_one(MB, MB));
    finish();
}
END_TEST

START_TEST(two_nics_lost_during_one_flush)
{
    struct r2_req *req;

    create(3, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    req = flush_one(0, MB);
    lane_fails(0);
    duo_fault(&d, "h1:n1 fatal");
    wait_done(req);
    ck_assert_uint_eq(rx->flush.lane->op[req->seq].used, 0);
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

/* --- NICs without a lane --- */

static struct ibv_cq *(*true_create_cq)(struct ibv_context *ctx, int cqe, void *context,
                                        struct ibv_comp_channel *ch, int vector);
static unsigned lane_refused; /* bit per NIC */

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *context,
                                struct ibv_comp_channel *ch, int vector)
{
    const struct ib_nics *nics = &d.end[1].inst->nics;

    for (int i = 0; i < nics->count; i++) {
        if (nics->nic[i].ctx == ctx && (lane_refused >> i & 1) && cqe == IB_LANE_DEPTH + 1) {
            errno = ENOMEM;
            return NULL;
        }
    }
    return true_create_cq(ctx, cqe, context, ch, vector);
}

static void refuse_lanes(unsigned nics)
{
    lane_refused = nics;
    true_create_cq = d.end[1].inst->v.create_cq;
    d.end[1].inst->v.create_cq = create_cq;
}

START_TEST(a_nic_without_lane_carries_no_gpu_memory)
{
    struct ib_mr *host_mr;

    create(2, "auto");
    refuse_lanes(2);
    open_conn(IB_PTR_CUDA);
    ck_assert_uint_eq(rx->flush.lane->lacks, 2);
    transfer(0, MB);
    ck_assert_uint_eq(rx->conn.path[1].count.bytes, 0);
    wait_done(flush_one(0, MB));
    ck_assert_uint_eq(rx->flush.lane->reads, 1);
    /* host memory goes over both */
    ck_assert_int_eq(r2_net_reg(rx, in, BUF_LEN, IB_PTR_HOST, 0, -1, &host_mr), R2_OK);
    r2_net_dereg(rx, rx_mr);
    rx_mr = host_mr;
    transfer(MB, MB);
    ck_assert_uint_gt(rx->conn.path[1].count.bytes, 0);
    finish();
}
END_TEST

START_TEST(no_lane_at_all)
{
    struct ib_mr *mr;

    create(2, "auto");
    refuse_lanes(3);
    open_conn(IB_PTR_HOST);
    ck_assert_int_eq(r2_net_reg(rx, in, BUF_LEN, IB_PTR_CUDA, 0, -1, &mr), R2_ERR_SYSTEM);
    ck_assert_ptr_null(mr);
    transfer(0, MB);
    ck_assert_ptr_null(flush_one(0, MB));
    finish();
}
END_TEST

START_TEST(close_with_a_flush_outstanding)
{
    create(2, "auto");
    open_conn(IB_PTR_CUDA);
    transfer(0, MB);
    ck_assert_ptr_nonnull(flush_one(0, MB));
    lane_fails(1);
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
    tcase_add_test(t, groups_and_what_is_empty);
    tcase_add_test(t, an_unknown_address_is_read_through_all);
    tcase_add_test(t, a_nic_that_died_is_replaced);
    tcase_add_test(t, a_nic_that_hangs_during_the_flush);
    tcase_add_test(t, a_queue_pair_that_fails_during_the_flush);
    tcase_add_test(t, the_only_nic_mends_its_lane);
    tcase_add_loop_test(t, every_error_of_a_nic_in_turn, 0, 4);
    tcase_add_test(t, two_nics_lost_during_one_flush);
    tcase_add_test(t, as_many_as_receives);
    tcase_add_test(t, a_buffer_that_is_not_registered_there);
    tcase_add_test(t, a_fence_holds_open_gpu_receives);
    tcase_add_loop_test(t, an_abort_waits_for_what_a_fence_holds, 0, 2);
    tcase_add_loop_test(t, a_fence_holds_no_host_receive, 0, 2);
    tcase_add_test(t, a_fence_of_an_idle_path_holds_none);
    tcase_add_test(t, a_nic_without_lane_carries_no_gpu_memory);
    tcase_add_test(t, no_lane_at_all);
    tcase_add_test(t, close_with_a_flush_outstanding);
    tcase_add_test(t, a_visitor_delays_the_reads);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
