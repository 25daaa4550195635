/* A NIC that returns with another LID, MTU or GID: the next incarnation is connected with what its
 * port says then, at both ends. The fabric is RoCE, whose devices do not look at LIDs: what
 * ibv_modify_qp is told is looked at here. */
#include "tests/unit/failback_rig.h"

#include <infiniband/verbs.h>

#define MAX_QPS 64

static struct {
    const struct ibv_qp *qp;
    uint16_t dlid;
    enum ibv_mtu mtu;
} told[MAX_QPS]; /* by each INIT -> RTR of the other end */
static unsigned told_count;

static struct {
    uint16_t lid;
    enum ibv_mtu mtu;
} port; /* of the NIC that changes */

static int (*true_query_port)(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr);
static int (*true_modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
static const struct ibv_context *changed;

static int query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr)
{
    int rc = true_query_port(ctx, number, attr);

    if (ctx == changed) {
        attr->lid = port.lid;
        attr->active_mtu = port.mtu;
    }
    return rc;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR && told_count < MAX_QPS) {
        told[told_count].qp = qp;
        told[told_count].dlid = attr->ah_attr.dlid;
        told[told_count++].mtu = attr->path_mtu;
    }
    return true_modify_qp(qp, attr, mask);
}

static void told_for_path_0(int side, uint16_t dlid, enum ibv_mtu mtu)
{
    const struct ibv_qp *qp = comm(side)->conn.path[0].qp;
    int i = (int)told_count - 1;

    while (i >= 0 && told[i].qp != qp) {
        i--;
    }
    ck_assert_int_ge(i, 0);
    ck_assert_uint_eq(told[i].dlid, dlid);
    ck_assert_int_eq(told[i].mtu, mtu);
}

/* The NIC of the sender, of the receiver; its port says so before it is asked, or announces it by
 * another GID as well. */
START_TEST(lid_and_mtu_of_the_port_as_it_returns)
{
    int side = _i & 1;

    told_count = 0;
    create(2, NULL);
    changed = rig->side[side].inst->nics.nic[0].ctx;
    true_query_port = rig->side[side].inst->v.query_port;
    true_modify_qp = rig->side[!side].inst->v.modify_qp;
    rig->side[side].inst->v.query_port = query_port;
    rig->side[!side].inst->v.modify_qp = modify_qp;
    port.lid = 0x55;
    port.mtu = IBV_MTU_2048;
    rig_enter(&rig->side[side]);
    ck_assert_int_eq(ib_nic_refresh(&rig->side[side].inst->nics, 0), 0);
    join();
    messages(2);
    told_for_path_0(!side, 0x55, IBV_MTU_2048);
    rig_fault(rig, side ? "h1:n0 down" : "h0:n0 down");
    begin_message();
    end_message();
    wait_settled(0);
    port.lid = 0x66;
    port.mtu = IBV_MTU_1024;
    if (_i & 2) {
        rig_fault(rig, side ? "h1:n0 gid-change" : "h0:n0 gid-change");
    }
    rig_fault(rig, side ? "h1:n0 up" : "h0:n0 up");
    wait_up(0, 2);
    told_for_path_0(!side, 0x66, IBV_MTU_1024);
    carries(0);
    stop();
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, lid_and_mtu_of_the_port_as_it_returns, 0, 4);
}

int main(void)
{
    return run_suite("fail-back: addresses", add);
}
