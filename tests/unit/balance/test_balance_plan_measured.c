/* Weights where rates were measured: slow NICs and slow pairs of NICs, which go on being measured
 * and carry what they can. */
#include "tests/unit/balance_plan_rig.h"

/* A slow NIC that nobody needs, since the others have room, goes on being measured; one that is
 * very slow holds nobody up by that. */
START_TEST(a_slow_nic_keeps_some_work)
{
    struct balance_conn *c;

    begin(3);
    c = conn_add(1, 6, 1000);
    c->pair[0].mbps_measured = f.port[1] / 4;
    other_add(2, 40, 400000); /* fills the slow one */
    plan();
    ck_assert_uint_eq(weight[0][0], BALANCE_PLAN_KEEP);
    ck_assert_uint_eq(weight[0][0] + weight[0][1], BALANCE_ONE);
    c->pair[0].mbps_measured = f.port[1] / 1000;
    plan();
    ck_assert_msg(weight[0][0] > 0 && weight[0][0] < BALANCE_ONE / 900, "%u", weight[0][0]);
    c->pair[0].mbps_measured = 0; /* not slow: it is left to who needs it */
    plan();
    ck_assert_msg(weight[0][0] < BALANCE_PLAN_KEEP / 2, "%u", weight[0][0]);
}
END_TEST

static void paths_are(struct balance_conn *c, int a, int b, int d)
{
    const int nic[] = {a, b, d};

    for (c->n = 0; c->n < 3; c->n++) {
        c->pair[c->n].nic = c->pair[c->n].there = (uint8_t)nic[c->n];
    }
}

static void measured_is(uint32_t nic, uint32_t mbps, uint32_t nic_mbps)
{
    for (uint32_t c = 0; c < f.conns; c++) {
        for (uint32_t i = 0; i < conn[c].n; i++) {
            if (conn[c].pair[i].nic == nic) {
                conn[c].pair[i].mbps_measured = mbps;
                conn[c].pair[i].nic_measured = nic_mbps;
            }
        }
    }
}

/* A rate that was measured is that of the NIC pair, not of each kind of connection over it: those
 * that have it first and those that have it last share it. */
START_TEST(a_measured_pair_is_one_for_all_kinds)
{
    double load[BALANCE_PLAN_NICS] = {0};

    begin(4); /* NIC 2 is dead, NIC 1 slow */
    paths_are(conn_add(1, 0, 1000), 1, 3, 0);
    paths_are(conn_add(1, 0, 1000), 3, 0, 1);
    measured_is(1, MBPS / 5, 0);
    plan();
    loads_add(load);
    f.port[1] = MBPS / 5;
    ck_assert_msg(over_ideal(load, 0xb) < 1 / 0.97, "%f over the ideal", over_ideal(load, 0xb));
}
END_TEST

/* Of what two processes of that host measured the larger counts, whoever comes first. */
START_TEST(a_pair_measured_twice)
{
    for (int turn = 0; turn < 2; turn++) {
        begin(2);
        conn_add(1, 3, 1000);
        conn_add(1, 3, 1000);
        conn[turn].pair[0].mbps_measured = MBPS / 2;
        conn[!turn].pair[0].mbps_measured = MBPS / 10;
        plan();
        ck_assert_msg(weight[0][0] > BALANCE_ONE / 3 - 1500 &&
                          weight[0][0] < BALANCE_ONE / 3 + 1500,
                      "turn %d: %u", turn, weight[0][0]);
    }
}
END_TEST

/* A NIC at a fifth of its rate that sends to many hosts: its pairs together are held to what it
 * carries, whatever each was taken for. */
START_TEST(a_slow_nic_to_many_hosts)
{
    static const uint32_t pair_mbps[] = {MBPS / 5, MBPS / 32};

    for (uint32_t hosts = 1; hosts <= 64; hosts *= 2) {
        for (int k = 0; k < 2; k++) {
            double load[BALANCE_PLAN_NICS] = {0};

            begin(4);
            for (uint32_t h = 0; h < hosts; h++) {
                for (uint32_t n = 0; n < 4; n++) {
                    conn_add(h, n == 1 ? 0xf : 1u << n, 1000); /* its own use all NICs now */
                }
            }
            measured_is(1, pair_mbps[k], MBPS / 5);
            plan();
            loads_add(load);
            f.port[1] = hosts * pair_mbps[k] < MBPS / 5 ? hosts * pair_mbps[k] : MBPS / 5;
            ck_assert_msg(over_ideal(load, 0xf) < 1 / 0.97,
                          "%u hosts, pairs at %u: %f over the ideal", hosts, pair_mbps[k],
                          over_ideal(load, 0xf));
        }
    }
}
END_TEST

/* Its NIC is slow to one host alone: what goes to others over it is not held. */
START_TEST(a_slow_pair_of_a_good_nic)
{
    double load[BALANCE_PLAN_NICS] = {0};

    begin(2);
    conn_add(1, 3, 1000)->pair[0].mbps_measured = MBPS / 20;
    conn[0].pair[0].nic_measured = MBPS;
    conn_add(2, 3, 1000);
    plan();
    loads_add(load);
    ck_assert_msg(over_ideal(load, 3) < 1 / 0.97, "%f over the ideal", over_ideal(load, 3));
    ck_assert_uint_lt(weight[0][0], BALANCE_ONE / 8);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_slow_nic_keeps_some_work);
    tcase_add_test(t, a_measured_pair_is_one_for_all_kinds);
    tcase_add_test(t, a_pair_measured_twice);
    tcase_add_test(t, a_slow_nic_to_many_hosts);
    tcase_add_test(t, a_slow_pair_of_a_good_nic);
}

int main(void)
{
    return suite_run("balance_plan_measured", 120, NULL, NULL, add);
}
