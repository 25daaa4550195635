/* Flush of GPU memory (P17) while a NIC or its lane fails, hangs, or has none from the start: what
 * takes its place, and that nothing is lost. */
#include "tests/unit/flush_rig.h"

#include <errno.h>

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

static void add(TCase *t)
{
    tcase_add_test(t, a_nic_that_died_is_replaced);
    tcase_add_test(t, a_nic_that_hangs_during_the_flush);
    tcase_add_test(t, a_queue_pair_that_fails_during_the_flush);
    tcase_add_test(t, the_only_nic_mends_its_lane);
    tcase_add_loop_test(t, every_error_of_a_nic_in_turn, 0, 4);
    tcase_add_test(t, two_nics_lost_during_one_flush);
    tcase_add_test(t, a_nic_without_lane_carries_no_gpu_memory);
    tcase_add_test(t, no_lane_at_all);
    tcase_add_test(t, close_with_a_flush_outstanding);
}

int main(void)
{
    return suite_run("flush_nic", 60, NULL, NULL, add);
}
