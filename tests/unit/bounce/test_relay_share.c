/* Weights of paths by way of a bounce buffer: they are of the links that are used, and follow when
 * buffers appear. */
#include "tests/unit/relay_rig.h"

#include "plugin/balance/r2_balance_int.h"
#include "tests/unit/topo_rig.h"

/* A switch at @bus of @node with a GPU and @nics NICs from number @first on. */
static void board(unsigned bus, int node, int first, int nics)
{
    int root = topo_root_add(&t, 0, (uint8_t)bus);
    int port = fn_on(bus, 1, -1, root, 0x060400, 0x1000, node);
    int up = fn_on(bus + 1, 0, port, root, 0x060400, 0x1000, node);

    ck_assert_int_ge(
        topo_gpu_add(&t, fn_on(bus + 8, 0, fn_on(bus + 2, 0, up, root, 0x060400, 0x1000, node),
                               root, 0x030200, 0x10de, node)),
        0);
    for (int i = 0; i < nics; i++) {
        char name[16];

        snprintf(name, sizeof(name), "fab%d", first + i);
        nic_on(name, bus + 9 + (unsigned)i,
               fn_on(bus + 2, 1 + (unsigned)i, up, root, 0x060400, 0x1000, node), root, node);
    }
}

/* Two sockets with a GPU each: fab0 and fab1 beside GPU 0, fab2 beside GPU 1; @nvlink Mb/s between
 * the GPUs. */
static void machine(uint32_t nvlink)
{
    char why[300];

    topo_clear(&t);
    topo_numa_add(&t, 0, 0);
    topo_numa_add(&t, 1, 1);
    board(0x10, 0, 0, 2);
    board(0x40, 1, 2, 1);
    t.nvlink_mbps[0][1] = t.nvlink_mbps[1][0] = nvlink;
    ck_assert_msg(topo_finish(&t, why, sizeof(why)) == 0, "%s", why);
    ck_assert_int_eq(t.gpus, 2);
    t.inter_mbps = 280000;
    rig_rate = 50000000000; /* 400 Gb/s, as the topology's ports */
    engine_next.topo = &t;
}

static int share(int p)
{
    return share_of(comm(0), p);
}

/* Percent for NIC 2, which is reached at @mbps, beside NIC 1, whose PCI link has less than its
 * port. */
static int second(uint32_t mbps)
{
    uint32_t first = topo_link_mbps(320, 16);

    return (int)(100 * mbps / (first + mbps));
}

#define SHARE_IS(p, want)                                                                          \
    ck_assert_msg(abs(share(p) - (want)) <= 1, "path %d has %d %%, not %d", p, share(p), want)

/*
 * NIC 0 is lost. Straight, GPU 0 reaches NIC 2 through host bridges, at 58 % of its port; by way of
 * the host at what the sockets have between them; by way of GPU 1 at what NVLink has, or its PCI
 * link.
 */
#define BRIDGE (400000 * BALANCE_BRIDGE_PERCENT / 100)
static const struct relay_row {
    const char *mode;
    uint32_t nvlink;
    int bounced;
    uint32_t mbps;
    int gpu;
} row[] = {
    {"NCCL_R2_RELAY=off", 3600000, 0, BRIDGE, 0},
    {"NCCL_R2_RELAY=gpu", 0, 0, BRIDGE, 0}, /* no NVLink, no relay */
    {"NCCL_R2_RELAY=gpu", 3600000, 1, 384000, 1},
    {"NCCL_R2_RELAY=gpu", 300000, 1, 300000, 1},
    {"NCCL_R2_RELAY=host", 3600000, 1, 280000, IB_COPY_HOST},
};

START_TEST(weighs_the_links_that_are_used)
{
    const struct relay_row *r = &row[_i];

    machine(r->nvlink);
    relay_start(3, 0, 0, (const char *[]){r->mode, "NCCL_R2_CUT_MIN=128", NULL});
    ck_assert_int_eq(is_bounced(2), r->bounced);
    ck_assert(!is_bounced(0) && !is_bounced(1));
    ck_assert(!r->bounced || engine.last_gpu == r->gpu);
    messages(2, 5000);
    fire("h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARE_IS(2, second(r->mbps));
    SHARE_IS(1, 100 - second(r->mbps));
    messages(8, 60000);
    ck_assert_int_eq(engine.begun > 0, r->bounced);
    stop();
    relay_stop(0);
}
END_TEST

/* The buffer comes when the weights are made already. */
START_TEST(weights_follow_a_registration)
{
    struct ib_mr *late;

    machine(3600000);
    engine_next.hidden = 1;
    relay_start(3, 0, 0, (const char *[]){"NCCL_R2_RELAY=gpu", "NCCL_R2_CUT_MIN=128", NULL});
    ck_assert(!is_bounced(2));
    fire("h0:n0 down");
    rig_run(rig, 20 * RIG_MS);
    SHARE_IS(2, second(BRIDGE));
    engine.hidden = 0;
    late = register_as(IB_PTR_CUDA);
    ck_assert(is_bounced(2));
    rig_run(rig, 20 * RIG_MS);
    SHARE_IS(2, 50);
    messages(2, 60000);
    rig_dereg(rig, 0, late);
    stop();
    relay_stop(0);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_loop_test(c, weighs_the_links_that_are_used, 0, (int)(sizeof(row) / sizeof(row[0])));
    tcase_add_test(c, weights_follow_a_registration);
}

int main(void)
{
    return run_suite("relay: shares", add);
}
