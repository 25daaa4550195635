/* Ways between two ports: flow labels of RoCE, LIDs of InfiniBand. */
#include <check.h>
#include <string.h>

#include "plugin/ib_transport/ib_way_port.h"
#include "tests/unit/suite.h"

#define IB  IBV_LINK_LAYER_INFINIBAND
#define ETH IBV_LINK_LAYER_ETHERNET

static const struct ib_addr
    a = {.link_layer = IB, .lid = 0x40, .lmc = 2, .gid = {[7] = 1, [15] = 1}},
    b = {.link_layer = IB, .lid = 0x80, .lmc = 2, .gid = {[7] = 1, [15] = 2}};
static const struct ib_addr roce[2] = {
    {.link_layer = ETH, .gid = {[10] = 0xff, 0xff, 10, 0, 0, 1}},
    {.link_layer = ETH, .gid = {[10] = 0xff, 0xff, 10, 0, 0, 2}}};

static const struct {
    uint8_t lmc, peer_lmc;
    unsigned wanted, ways, most;
} counts[] = {
    {0, 0, 8, 1, 1}, {1, 1, 8, 2, 2},    {2, 2, 8, 4, 4},        {3, 3, 8, 8, 8},
    {4, 4, 8, 8, 8}, {7, 7, 16, 16, 16}, {2, 2, 3, 3, 3},        {7, 7, 1, 1, 1},
    {0, 3, 8, 8, 1}, {3, 0, 8, 8, 8},    {255, 255, 16, 16, 16}, /* no port has that */
};

START_TEST(how_many)
{
    struct ib_addr x = a, y = b;
    struct ib_ways w = {.n = counts[_i].wanted};

    x.lmc = counts[_i].lmc;
    y.lmc = counts[_i].peer_lmc;
    ck_assert_uint_eq(ib_port_ways(&w, &x, &y), counts[_i].ways);
    ck_assert_uint_eq(ib_port_ways(&w, &y, &x), counts[_i].ways);
    ck_assert_uint_eq(ib_port_ways_most(&w, &x), counts[_i].most);
}
END_TEST

/* Each way has a LID at either end, and those that follow each other differ; what a packet is sent
 * to is what its receiver sends from. */
START_TEST(lids_in_turn)
{
    struct ibv_ah_attr there, back;
    struct ib_addr one = b;

    one.lmc = 0;
    for (unsigned way = 0; way <= IB_WAYS_MAX; way++) {
        unsigned k = way ? (way - 1) % 4 : 0;

        memset(&there, 0, sizeof(there));
        memset(&back, 0, sizeof(back));
        ib_port_way_take(NULL, way, &a, &b, &there);
        ib_port_way_take(NULL, way, &b, &a, &back);
        ck_assert_uint_eq(there.dlid, 0x80 + k);
        ck_assert_uint_eq(there.src_path_bits, k);
        ck_assert_uint_eq(back.dlid, 0x40 + k);
        ck_assert_uint_eq(back.src_path_bits, k);
        ck_assert_uint_eq(there.grh.flow_label, 0);
        ck_assert_uint_eq(ib_port_way_lid(way, &a, &b), back.dlid);
        ck_assert_uint_eq(ib_port_way_label(NULL, way, &a, &b), way);
        ck_assert_uint_eq(ib_port_way_label(NULL, way, &b, &a), way);
        ck_assert_uint_eq(ib_port_way_fold(NULL, way, &a, &b), way);
        ib_port_way_take(NULL, way, &a, &one, &there);
        ib_port_way_take(NULL, way, &one, &a, &back);
        ck_assert_uint_eq(there.dlid, 0x80);
        ck_assert_uint_eq(there.src_path_bits, k);
        ck_assert_uint_eq(back.dlid, 0x40 + k);
        ck_assert_uint_eq(back.src_path_bits, 0);
    }
}
END_TEST

/* Where routers or nobody gives LIDs, the address vector stays as it is. */
START_TEST(no_lids_no_ways)
{
    struct ib_addr far = b, bare = b;
    const struct ib_addr *peer = _i ? &bare : &far;
    struct ibv_ah_attr ah = {.dlid = 0xc001};

    far.gid[7] = 2;
    bare.lid = 0;
    ck_assert_uint_eq(ib_port_ways(NULL, &a, peer), 1);
    ck_assert_uint_eq(ib_port_ways(NULL, peer, &a), 1);
    for (unsigned way = 0; way <= IB_WAYS_MAX; way++) {
        ib_port_way_take(NULL, way, &a, peer, &ah);
        ck_assert_uint_eq(ah.dlid, 0xc001);
        ck_assert_uint_eq(ah.src_path_bits, 0);
        ck_assert_uint_eq(ib_port_way_fold(NULL, way, &a, peer), 0);
        ck_assert_uint_eq(ib_port_way_label(NULL, way, &a, peer), 0);
        ck_assert_uint_eq(ib_port_way_lid(way, &a, peer), a.lid);
    }
}
END_TEST

START_TEST(roce_has_labels)
{
    struct ibv_ah_attr ah = {.dlid = 7};

    ck_assert_uint_eq(ib_port_ways(NULL, &roce[0], &roce[1]), IB_WAYS_DEFAULT);
    ck_assert_uint_eq(ib_port_ways_most(NULL, &roce[0]), IB_WAYS_DEFAULT);
    for (unsigned way = 0; way <= IB_WAYS_MAX; way++) {
        uint32_t label = ib_way_label(NULL, way, roce[0].gid, roce[1].gid);

        ib_port_way_take(NULL, way, &roce[0], &roce[1], &ah);
        ck_assert_uint_eq(ah.grh.flow_label, label);
        ck_assert_uint_eq(ib_port_way_label(NULL, way, &roce[1], &roce[0]), label);
        ck_assert_uint_eq(ib_port_way_fold(NULL, way, &roce[0], &roce[1]), way);
        ck_assert_uint_eq(ah.dlid, 7);
        ck_assert_uint_eq(ah.src_path_bits, 0);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, how_many, 0, sizeof(counts) / sizeof(counts[0]));
    tcase_add_test(t, lids_in_turn);
    tcase_add_loop_test(t, no_lids_no_ways, 0, 2);
    tcase_add_test(t, roce_has_labels);
}

int main(void)
{
    return suite_run("way_port", 60, NULL, NULL, add);
}
