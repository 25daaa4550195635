/*
 * InfiniBand, and a fabric of two subnets: which packets carry a GRH, and where they go. Every
 * port of the third host has the LID that host 1's has, in the subnet of host 0: what leaves host
 * 0 without a GRH comes there.
 */
#include "tests/unit/failback_rig.h"

#include "plugin/base/r2_log.h"
#include "tests/fabric/model/fab_fault.h"

static struct fab_desc desc;

static void subnets(int s_subnet, int r_subnet, int announced, int grh)
{
    static const uint16_t flid[] = {0, 0xc001, 0xc002};
    char why[160];

    ck_assert_int_eq(fab_desc_init(&desc, 3, 2, 0, RIG_US, why, sizeof(why)), 0);
    for (int n = 0; n < 2; n++) {
        desc.nic[0][n].ib = (struct fab_ib){.lid = (uint16_t)(5 + n), .subnet = (uint16_t)s_subnet};
        desc.nic[1][n].ib = (struct fab_ib){.lid = (uint16_t)(8 + n), .subnet = (uint16_t)r_subnet};
        desc.nic[2][n].ib =
            (struct fab_ib){.lid = (uint16_t)(8 + n), .subnet = (uint16_t)(s_subnet + 7)};
        if (s_subnet != r_subnet) {
            desc.nic[2][n].ib.subnet = (uint16_t)s_subnet;
        }
        for (int h = 0; h < 2; h++) {
            desc.nic[h][n].ib.flid = announced ? flid[desc.nic[h][n].ib.subnet] : 0;
            desc.nic[h][n].ib.grh_required = grh != 0;
        }
    }
}

static uint64_t strays(void)
{
    return fab_inproc_nic(rig->f, 2, 0)->cnt.rx_packets +
           fab_inproc_nic(rig->f, 2, 1)->cnt.rx_packets;
}

static struct ibv_ah_attr ah_of(int side, int p)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    ck_assert_int_eq(
        rig->side[side].inst->v.query_qp(comm(side)->conn.path[p].qp, &attr, IBV_QP_AV, &init), 0);
    return attr.ah_attr;
}

static const struct {
    int s_subnet, r_subnet, announced, grh;
    const char *option;
    int global;
} cases[] = {
    {1, 1, 0, 0, NULL, 0}, {1, 1, 1, 0, NULL, 0},
    {1, 1, 0, 1, NULL, 1}, {1, 1, 0, 0, "NCCL_IB_IS_GLOBAL=1", 1},
    {1, 2, 1, 0, NULL, 1}, {1, 2, 1, 1, NULL, 1},
};

/* Data both ways of a connection, its probes, lanes and a path that returns: all of it arrives,
 * and nothing anywhere else. */
START_TEST(every_queue_pair_reaches_its_peer)
{
    const char *options[] = {"NCCL_R2_SPREAD=on",    "NCCL_R2_CUT_MIN=128",
                             "NCCL_R2_T_RETURN=50",  "NCCL_R2_T_PACKET=100",
                             "NCCL_R2_FLUSH=always", "NCCL_R2_INBAND=on",
                             cases[_i].option,       NULL};

    subnets(cases[_i].s_subnet, cases[_i].r_subnet, cases[_i].announced, cases[_i].grh);
    rig = rig_create_desc(&desc, options);
    join();
    messages(8);
    rig_fault(rig, "h0:n0 blackhole");
    messages(8);
    ck_assert(!is_up(0, 0) && is_up(0, 1));
    rig_fault(rig, "h0:n0 restore");
    wait_up(0, 2);
    messages(8);
    ck_assert_uint_eq(strays(), 0);
    for (int side = 0; side < 2; side++) {
        for (int p = 0; p < 2; p++) {
            struct ibv_ah_attr ah = ah_of(side, p);

            ck_assert_int_eq(ah.is_global, cases[_i].global);
            ck_assert_uint_eq(ah.dlid, cases[_i].s_subnet != cases[_i].r_subnet
                                           ? (side ? 0xc001 : 0xc002)
                                           : (side ? 5 : 8) + p);
        }
    }
    stop();
}
END_TEST

/* No router has announced the other subnet: the packets have a GRH, so that whoever has the LID
 * here does not take them. */
START_TEST(no_way_is_no_way_to_somebody_else)
{
    subnets(1, 2, 0, 0);
    rig = rig_create_desc(&desc, (const char *[]){"NCCL_R2_GIVE_UP=1000", NULL});
    rig_connect(rig, 0, 0);
    ck_assert_int_eq(ah_of(0, 0).is_global, 1);
    ck_assert_uint_eq(strays(), 0);
    r2_log_flush();
    ck_assert_ptr_nonnull(strstr(rig->last_warn[0], "in InfiniBand subnet 0001, its peer in 0002"));
}
END_TEST

/* The GID that names the port where routers have announced its subnet; elsewhere the first one. */
START_TEST(flid_is_where_the_option_says)
{
    static const struct {
        const char *option;
        int announced, index;
    } row[] = {{NULL, 0, 0},
               {NULL, 1, 1},
               {"NCCL_IB_ROUTABLE_FLID_GID_INDEX=0", 1, 0},
               {"NCCL_IB_ROUTABLE_FLID_GID_INDEX=2", 1, 0},
               {"NCCL_IB_ROUTABLE_FLID_GID_INDEX=200", 1, 0}};
    struct ib_addr a;

    subnets(1, 1, row[_i].announced, 0);
    rig = rig_create_desc(&desc, row[_i].option ? (const char *[]){row[_i].option, NULL} : NULL);
    ib_nic_addr_get(&rig->side[0].inst->nics, 0, &a);
    ck_assert_int_eq(a.gid_index, row[_i].index);
    ck_assert_uint_eq(a.gid[4] << 8 | a.gid[5], row[_i].index ? 0xc001 : 0);
    ck_assert_uint_eq(a.gid[6] << 8 | a.gid[7], 1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, every_queue_pair_reaches_its_peer, 0, sizeof(cases) / sizeof(cases[0]));
    tcase_add_loop_test(t, flid_is_where_the_option_says, 0, 5);
    tcase_add_test(t, no_way_is_no_way_to_somebody_else);
}

int main(void)
{
    return suite_run("ib_subnet", 60, NULL, teardown, add);
}
