/* Links between GPUs and from a GPU to its host, and routes from a GPU to a NIC: directly, or by
 * way of another GPU. */
#include <stdio.h>

#include "tests/unit/suite.h"
#include "tests/unit/topo_machine.h"
#include "topo/topo_route.h"

START_TEST(links_of_gpus)
{
    static const char *const bad[] = {"nvlink 0000:13:00.0 0000:17:00.0\n",
                                      "nvlink a b 1\n",
                                      "c2c * 0\n",
                                      "c2c * 99999999999\n",
                                      "c2c * 5x\n",
                                      "cable * * 1\n",
                                      "nvlink * * 1 1 1\n",
                                      "c2c 0000:13:00.0x 4\n"};

    ck_assert(t.unknown == 0);
    t.unknown = TOPO_NO_NVLINK;
    ck_assert_int_eq(
        topo_links_apply(
            &t,
            "# all\n nvlink * * 100\n\nnvlink 0000:17:00.0 0000:13:00.0 50 # less\r\nc2c 0000:83:00.0 7\nc2c 0009:01:00.0 8",
            why, sizeof(why)),
        0);
    ck_assert_uint_eq(t.nvlink_mbps[0][1], 50);
    ck_assert_uint_eq(t.nvlink_mbps[1][0], 50);
    ck_assert_uint_eq(t.nvlink_mbps[0][2], 100);
    ck_assert_uint_eq(t.nvlink_mbps[0][0], 0);
    ck_assert_uint_eq(t.gpu[2].c2c_mbps * 10 + t.gpu[0].c2c_mbps, 70);
    ck_assert_uint_eq(t.unknown, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[200];

        snprintf(text, sizeof(text), "nvlink * * 9\n%s", bad[i]);
        ck_assert_msg(topo_links_apply(&t, text, why, sizeof(why)) == -1, "%s", text);
        ck_assert_ptr_nonnull(strstr(why, "line 2"));
        ck_assert_uint_eq(t.nvlink_mbps[0][2], 100);
    }
}
END_TEST

static void route_check(int g, const char *name, uint32_t need, bool relay_ok,
                        const struct topo_load *load, enum topo_route_kind kind, int relay,
                        uint32_t mbps)
{
    struct topo_route r;

    topo_route_choose(&t, load, g, nic_at(name), need, relay_ok, &r);
    ck_assert_msg(r.kind == kind && r.relay == relay && r.mbps == mbps, "GPU%d to %s: %d by %d, %u",
                  g, name, r.kind, r.relay, r.mbps);
}

START_TEST(routes)
{
    static struct topo_load load;
    struct topo_route r;

    ck_assert_int_eq(topo_links_apply(&t, "nvlink * * 300000\n", why, sizeof(why)), 0);
    topo_load_begin(&t, &load);
    /* on its own node there is enough */
    route_check(0, "n19", 384000, true, &load, TOPO_ROUTE_DIRECT, -1, 384000);
    route_check(0, "n14a", 200000, true, &load, TOPO_ROUTE_DIRECT, -1, 200000);
    /* between sockets NVLink has more */
    route_check(0, "n84", 100, true, &load, TOPO_ROUTE_RELAY, 2, 300000);
    route_check(0, "n84", 100, false, &load, TOPO_ROUTE_DIRECT, -1, 176000);
    /* the relay must be next to the NIC: nobody is next to n41 */
    route_check(2, "n41", 100000, true, &load, TOPO_ROUTE_DIRECT, -1, 100000);
    /* 192 of a slower link is all this GPU has itself; the relay's way is limited by the port */
    route_check(1, "n14a", 200000, true, &load, TOPO_ROUTE_RELAY, 0, 200000);
    route_check(1, "n14a", 192000, true, &load, TOPO_ROUTE_DIRECT, -1, 192000);
    /* NVLink in use leaves the sockets */
    topo_route_choose(&t, &load, 0, nic_at("n84"), 0, true, &r);
    topo_load_take(&load, &r, 200000);
    route_check(0, "n84", 100, true, &load, TOPO_ROUTE_DIRECT, -1, 176000);
    /* the other direction of the sockets' link is another resource */
    topo_route_choose(&t, &load, 0, nic_at("n84"), 0, false, &r);
    topo_load_take(&load, &r, 150000);
    route_check(0, "n84", 100, false, &load, TOPO_ROUTE_DIRECT, -1, 26000);
    route_check(2, "n19", 100, false, &load, TOPO_ROUTE_DIRECT, -1, 176000);
    topo_route_choose(&t, &load, 0, 99, 0, true, &r);
    ck_assert_int_eq(r.kind, TOPO_ROUTE_NONE);
}
END_TEST

/* What the port says would be less than any way to it. */
START_TEST(route_to_a_port_that_is_down)
{
    static struct topo_load load;

    ck_assert_int_eq(topo_links_apply(&t, "nvlink * * 300000\n", why, sizeof(why)), 0);
    rates_set(400000);
    t.nic[nic_at("n84")].state = TOPO_STATE_DOWN;
    t.nic[nic_at("n84")].rate_mbps = 2500;
    topo_load_begin(&t, &load);
    route_check(0, "n84", 100, true, &load, TOPO_ROUTE_RELAY, 2, 300000);
    route_check(0, "n84", 100, false, &load, TOPO_ROUTE_DIRECT, -1, 176000);
}
END_TEST

START_TEST(coherent_link)
{
    const struct topo_path *p;

    ck_assert_int_eq(topo_links_apply(&t, "c2c 0000:83:00.0 3600000\n", why, sizeof(why)), 0);
    p = path_to(TOPO_END_GPU, 2, "n84"); /* a common switch is nearer all the same */
    ck_assert_int_eq(p->class, TOPO_PIX);
    ck_assert_int_eq(topo_links_apply(&t, "c2c 0000:13:00.0 3600000\n", why, sizeof(why)), 0);
    p = path_to(TOPO_END_GPU, 0, "n41");
    ck_assert_int_eq(p->class, TOPO_P2C);
    ck_assert(goes_over(p, "C2C of GPU0") && !goes_over(p, "PCI 0000:10:01.0") &&
              p->mbps == 384000);
    p = path_to(TOPO_END_GPU, 0, "n84");
    ck_assert(p->class == TOPO_SYS && goes_over(p, "sockets 0-1"));
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, links_of_gpus);
    tcase_add_test(c, routes);
    tcase_add_test(c, route_to_a_port_that_is_down);
    tcase_add_test(c, coherent_link);
}

int main(void)
{
    return suite_run("topo_route", 60, machine, NULL, add);
}
