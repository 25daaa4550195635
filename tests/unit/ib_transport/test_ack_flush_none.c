/* NCCL_R2_ACK=flush where NICs have no flush lane: memory of the host, which NCCL_R2_FLUSH=always
 * would have read, goes on without. */
#include "tests/unit/race_rig.h"

#include <errno.h>

#include "plugin/ib_transport/ib_ack_flush.h"

static struct ibv_cq *(*true_create_cq)(struct ibv_context *ctx, int cqe, void *arg,
                                        struct ibv_comp_channel *ch, int vector);
static unsigned refused; /* bit per NIC of R: its lane cannot be built */

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *arg,
                                struct ibv_comp_channel *ch, int vector)
{
    const struct ib_nics *nics = &rig->side[1].inst->nics;

    for (int i = 0; i < nics->count; i++) {
        if (cqe == IB_LANE_DEPTH + 1 && (refused >> i & 1) && nics->nic[i].ctx == ctx) {
            errno = ENOMEM;
            return NULL;
        }
    }
    return true_create_cq(ctx, cqe, arg, ch, vector);
}

static void begin_without(unsigned nics, const char *fault)
{
    race_create(2, (const char *[]){"NCCL_R2_FLUSH=always", "NCCL_R2_ACK=flush",
                                    "NCCL_R2_T_RETURN=20", "NCCL_R2_T_PACKET=10", NULL});
    if (fault) {
        rig_fault(rig, fault);
    }
    refused = nics;
    true_create_cq = rig->side[1].inst->v.create_cq;
    rig->side[1].inst->v.create_cq = create_cq;
    rig_connect(rig, 0, 0);
    race_register();
}

static void begin(unsigned nics)
{
    begin_without(nics, NULL);
}

static struct ib_flush *flush(void)
{
    return comm(1)->flush.lane;
}

/* A flush of slot @i, as NCCL does it after each receive when a NIC wants that. */
static struct r2_req *flush_slot(int i)
{
    void *data = in[i];
    int size = 1000;
    struct r2_req *req = NULL;

    rig_enter(&rig->side[1]);
    ck_assert_int_eq(r2_net_iflush(comm(1), 1, &data, &size, &r_mr, &req), R2_OK);
    return req;
}

static void many(int n)
{
    uint64_t from = rig_now(rig);

    for (int i = 0; i < n; i++) {
        recv_post(i, 5000);
    }
    for (int i = 0; i < n; i++) {
        send_post(i);
    }
    finish(n, 10 * RIG_S);
    ck_assert_uint_lt(rig_now(rig) - from, 5 * RIG_MS);
}

START_TEST(no_lane_at_all)
{
    begin(3);
    ck_assert(!flush()->able);
    ck_assert_uint_eq(flush()->lacks, 0);
    many(16);
    ck_assert_ptr_null(flush_slot(0));
    rig_run(rig, 500 * RIG_MS); /* ten T_fence and more */
    ck_assert(is_up(1, 0) && is_up(1, 1));
    ck_assert_uint_eq(comm(1)->fo.switches, 0);
    stop();
}
END_TEST

/* The path beside comes up again with a lane: from then on the one without gets nothing that is to
 * be read, and what it brings late counts. */
START_TEST(a_lane_comes_with_a_returning_path)
{
    begin(3);
    for (int i = 0; i < 4; i++) {
        recv_post(i, 5000);
    }
    rig_run(rig, 100 * RIG_US);
    rig_fault(rig, "h1:n1 down");
    rig_run(rig, 10 * RIG_MS);
    refused = 0;
    rig_fault(rig, "h1:n1 up");
    for (int i = 0; i < 5000 && inc(1, 1) < 2; i++) {
        rig_turn(rig, RIG_MS);
    }
    rig_run(rig, 50 * RIG_MS);
    ck_assert(is_up(1, 1) && flush()->able);
    ck_assert_uint_eq(flush()->lacks, 1);
    for (int i = 0; i < 4; i++) {
        send_post(i); /* as their CTS of then say */
    }
    ck_assert(rig_until(rig, rig_all_done, 5 * RIG_MS));
    finish(4, RIG_MS);
    ck_assert_uint_gt(comm(1)->conn.path[0].count.bytes, 0);
    many(16);
    ck_assert_uint_gt(flush()->reads, 0);
    stop();
}
END_TEST

/* A NIC that was down at the start: S may have keys for it from before it had no lane. */
START_TEST(a_path_returns_with_its_lane)
{
    begin_without(2, "h1:n1 down");
    for (int i = 0; i < 4; i++) {
        recv_post(i, 5000);
    }
    rig_fault(rig, "h1:n1 up");
    rig_run(rig, 500 * RIG_MS);
    ck_assert(is_up(1, 0) && !is_up(1, 1) && inc(1, 1) > 1);
    for (int i = 0; i < 4; i++) {
        send_post(i);
    }
    finish(4, 10 * RIG_S);
    refused = 0;
    for (int i = 0; i < 5000 && !is_up(1, 1); i++) {
        rig_turn(rig, RIG_MS);
    }
    ck_assert(is_up(1, 1));
    ck_assert_uint_eq(flush()->none, 0);
    many(16);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_path_returns_with_its_lane);
    tcase_add_test(t, no_lane_at_all);
    tcase_add_test(t, a_lane_comes_with_a_returning_path);
}

int main(void)
{
    return run_suite("acknowledgement after a flush, without lanes", add);
}
