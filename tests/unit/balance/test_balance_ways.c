/* What a topology says of the ways from what a NIC's connections serve to the other NICs. */
#include "tests/unit/suite.h"
#include "tests/unit/topo_rig.h"

#include <stdio.h>
#include <string.h>

#include "plugin/balance/r2_balance_int.h"

static int fn(unsigned bus, unsigned dev, int parent, int root, uint32_t class, uint16_t vendor)
{
    return fn_on(bus, dev, parent, root, class, vendor, 0);
}

static void nic(const char *name, unsigned bus, int parent, int root)
{
    nic_on(name, bus, parent, root, 0);
}

/* A switch with a GPU, m0 and m1; m2 at the same root complex, m4 at another one; m3 is not in the
 * tree. Used are m0 to m3. */
static void machine(struct ib_nics *nics)
{
    char why[300];
    int root, port, up;

    topo_clear(&t);
    topo_numa_add(&t, 0, 0);
    root = topo_root_add(&t, 0, 0x10);
    port = fn(0x10, 1, -1, root, 0x060400, 0x1000);
    up = fn(0x11, 0, port, root, 0x060400, 0x1000);
    ck_assert_int_ge(topo_gpu_add(&t, fn(0x13, 0, fn(0x12, 0, up, root, 0x060400, 0x1000), root,
                                         0x030200, 0x10de)),
                     0);
    nic("m0", 0x14, fn(0x12, 1, up, root, 0x060400, 0x1000), root);
    nic("m1", 0x15, fn(0x12, 2, up, root, 0x060400, 0x1000), root);
    nic("m2", 0x19, fn(0x10, 2, -1, root, 0x060400, 0x1000), root);
    root = topo_root_add(&t, 0, 0x40);
    nic("m4", 0x41, fn(0x40, 1, -1, root, 0x060400, 0x1000), root);
    ck_assert_msg(topo_finish(&t, why, sizeof(why)) == 0, "%s", why);
    memset(nics, 0, sizeof(*nics));
    nics->count = 4;
    for (int i = 0; i < 4; i++) {
        snprintf(nics->nic[i].dev_name, sizeof(nics->nic[i].dev_name), "m%d", i);
        nics->nic[i].port = 1;
        nics->nic[i].speed_mbps = 200000;
    }
}

START_TEST(ways_of_a_topology)
{
    static struct ib_nics nics;
    static struct r2_ways w;
    static struct r2_way bounced[IB_MAX_NICS][IB_MAX_NICS];

    machine(&nics);
    r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_uint_eq(w.port[0], 400000);
    ck_assert_uint_eq(w.port[3], 200000);
    ck_assert_uint_eq(w.way[0][1].reach, topo_link_mbps(320, 16));
    ck_assert_uint_eq(w.way[0][2].reach, 400000 * BALANCE_BRIDGE_PERCENT / 100);
    ck_assert_uint_eq(w.way[0][0].preference, w.way[0][1].preference);
    ck_assert_uint_eq(w.way[1][2].reach, w.way[0][2].reach); /* m1 is as good for the GPU as m0 */
    ck_assert_uint_gt(w.way[0][1].preference, w.way[0][2].preference);
    ck_assert_uint_eq(w.way[0][3].preference, 1);
    ck_assert_uint_eq(w.way[0][3].n, 0);
    ck_assert_uint_eq(w.way[3][0].n, 0); /* from what is not in the tree nothing is known */
    ck_assert_uint_eq(w.way[3][0].reach, 0);
    /* m2 is no GPU's first choice: its connections are of memory, which needs no peer-to-peer */
    ck_assert_uint_gt(w.way[2][0].reach, w.way[0][2].reach);
    /* the GPU's own link is one for all of its ways */
    ck_assert_uint_ge(w.way[0][0].n, 1);
    for (int i = 0; i < w.way[0][2].n; i++) {
        ck_assert_uint_lt(w.way[0][2].link[i], w.links);
    }
    r2_ways_make(&w, &nics, NULL, R2_VIA_GPU, bounced);
    ck_assert_int_eq(memcmp(w.way, w.bounced, sizeof(w.way)), 0);
    ck_assert_uint_eq(w.links, 0);
    ck_assert_uint_eq(w.port[0], 200000);
    ck_assert_uint_eq(w.way[1][2].preference, 1);
}
END_TEST

/* The ways are those that a process finds that starts while it is up. */
START_TEST(ways_with_a_port_that_is_down)
{
    static const uint32_t said[] = {0, 2500, 800000};
    static struct ib_nics nics;
    static struct r2_ways want, w;

    machine(&nics);
    for (int i = 0; i < t.nics; i++) {
        t.nic[i].state = TOPO_STATE_ACTIVE;
        t.nic[i].rate_mbps = 100000; /* PCI is faster, verbs has counted otherwise */
    }
    t.nic[r2_ways_place(&t, &(struct ib_nic){.dev_name = "m4", .port = 1})].rate_mbps =
        10000; /* not one of ours */
    r2_ways_make(&want, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_uint_eq(want.way[0][2].reach, 100000 * BALANCE_BRIDGE_PERCENT / 100);
    ck_assert_uint_gt(want.way[0][1].preference, want.way[0][2].preference);
    for (int i = 0; i < 9; i++) {
        struct topo_nic *down = &t.nic[r2_ways_place(&t, &nics.nic[i / 3])], up = *down;

        down->state = TOPO_STATE_DOWN;
        down->rate_mbps = said[i % 3];
        r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
        ck_assert_msg(memcmp(&w, &want, sizeof(w)) == 0, "m%d down: port %u, from m0 to m2 %u",
                      i / 3, w.port[i / 3], w.way[0][2].reach);
        *down = up;
    }
    for (int i = 0; i < t.nics; i++) {
        t.nic[i].state = TOPO_STATE_DOWN;
    }
    r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_uint_eq(w.port[0], 200000); /* nobody tells the topology: then verbs */
}
END_TEST

/* m0 and m1 are nearer to the GPU than m2 and m4, but not ours (NCCL_IB_HCA, storage): whom else
 * would it use? */
START_TEST(ways_beside_nics_that_are_not_used)
{
    static struct ib_nics nics;
    static struct r2_ways w;

    machine(&nics);
    nics.count = 2;
    nics.nic[0] = nics.nic[2];
    snprintf(nics.nic[1].dev_name, sizeof(nics.nic[1].dev_name), "m4");
    r2_ways_make(&w, &nics, &t, R2_VIA_NONE, NULL);
    ck_assert_uint_eq(w.way[0][0].reach, 400000 * BALANCE_BRIDGE_PERCENT / 100);
    ck_assert_uint_eq(w.way[0][1].reach, 400000 * BALANCE_BRIDGE_PERCENT / 100);
    ck_assert_uint_eq(w.way[0][0].preference, 2);
    ck_assert_uint_eq(w.way[0][1].preference, 1);
}
END_TEST

static void add(TCase *t_case)
{
    tcase_add_test(t_case, ways_of_a_topology);
    tcase_add_test(t_case, ways_with_a_port_that_is_down);
    tcase_add_test(t_case, ways_beside_nics_that_are_not_used);
}

int main(void)
{
    return suite_run("balance_ways", 30, NULL, NULL, add);
}
