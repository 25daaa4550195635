/* Weights of a host's connections: against what NICs then carry, on the cases that failures make,
 * and with numbers that make no sense. */
#include "tests/unit/balance_plan_rig.h"

START_TEST(lost_nics_of_a_process_alone)
{
    for (uint32_t nics = 2; nics <= 8; nics += nics == 2 ? 2 : 4) {
        for (uint32_t lost = 1; lost < nics; lost++) {
            uint32_t left = ((1u << nics) - 1) & ~((1u << lost) - 1);
            double load[BALANCE_PLAN_NICS] = {0};

            begin(nics);
            for (uint32_t i = 0; i < 2 * nics; i++) {
                uint32_t home = i % nics;

                conn_add(i / nics, home < lost ? left : 1u << home, 1000);
            }
            plan();
            loads_add(load);
            ck_assert_msg(over_ideal(load, left) < 1 / 0.97, "%u of %u lost: %f over the ideal",
                          lost, nics, over_ideal(load, left));
        }
    }
}
END_TEST

/* Each process divides for itself, from what the others say. */
START_TEST(processes_that_share_nics)
{
    static const uint64_t wants[][4] = {
        {1000, 1000, 1000, 1000}, {1000, 500, 250, 2000}, {0, 0, 0, 0}, {1, 1, 1, 1}};

    for (unsigned w = 0; w < sizeof(wants) / sizeof(wants[0]); w++) {
        for (unsigned each = 0; each < 2;
             each++) { /* a process has its own NIC, or connections on every NIC */
            double load[BALANCE_PLAN_NICS] = {0}, mine[BALANCE_PLAN_NICS] = {0};

            for (int p = 0; p < 4; p++) {
                begin(4);
                for (int q = 0; q < 4; q++) {
                    for (uint32_t home = each ? 0 : (uint32_t)q;
                         home < (each ? 4 : (uint32_t)q + 1); home++) {
                        uint32_t nics = home == 0 ? 0xe : 1u << home;

                        if (p == q) {
                            conn_add(7, nics, wants[w][q]);
                        } else {
                            other_add(nics, 1, wants[w][q]);
                        }
                    }
                }
                plan();
                for (uint32_t c = 0; c < f.conns; c++) {
                    demand[c] = wants[w][p] ? wants[w][p] : 1;
                }
                memset(mine, 0, sizeof(mine));
                loads_add(mine);
                for (int i = 0; i < 4; i++) {
                    load[i] += mine[i];
                }
            }
            if (each == 0 && w == 1) {
                continue; /* one connection alone wants more than the mean */
            }
            ck_assert(load[0] == 0);
            ck_assert_msg(over_ideal(load, 0xe) < 1.1, "case %u %u: %f over the mean", w, each,
                          over_ideal(load, 0xe));
        }
    }
}
END_TEST

/* Room that others leave is used, and what they need stays theirs. */
START_TEST(a_nic_that_others_fill_gets_less)
{
    begin(3);
    conn_add(1, 6, 1000);
    other_add(2, 4, 3000);
    plan();
    ck_assert_msg(weight[0][0] < BALANCE_ONE / 50, "%u", weight[0][0]);
    f.others = 0;
    plan();
    ck_assert_uint_eq(weight[0][0], BALANCE_ONE / 2);
}
END_TEST

/* Who wants more counts for more, of this process and of others. */
START_TEST(demand_counts)
{
    for (int others = 0; others < 2; others++) {
        begin(3);
        conn_add(1, 6, 3000);
        if (others) {
            other_add(2, 1, 1000);
        } else {
            conn_add(1, 2, 1000);
        }
        plan();
        ck_assert_msg(abs((int)weight[0][0] - (int)BALANCE_ONE / 3) < (int)BALANCE_ONE / 30, "%u",
                      weight[0][0]);
        demand[0] = 0; /* nothing lately, which is next to nothing: what is left is its own */
        plan();
        ck_assert_msg(weight[0][1] > BALANCE_ONE * 9 / 10, "%u", weight[0][1]);
    }
}
END_TEST

/* What a flow gets by these weights when each path carries @rate at most. */
static double got(const uint32_t *w, const double *rate, uint32_t n)
{
    double least = 1e30;

    for (uint32_t i = 0; i < n; i++) {
        if (w[i] && rate[i] * BALANCE_ONE / w[i] < least) {
            least = rate[i] * BALANCE_ONE / w[i];
        }
    }
    return least;
}

START_TEST(unequal_nics)
{
    uint32_t seed = 3;

    for (int round = 0; round < 500; round++) {
        uint32_t n = 2 + round % 7;
        double rate[8], sum = 0, best = 0;
        struct balance_conn *c;

        begin(n);
        c = conn_add(1, (1u << n) - 1, 77);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t *limit[] = {&f.port[i], &c->pair[i].port_there, &c->pair[i].reach_there,
                                 &c->pair[i].mbps_measured};

            seed = seed * 1664525 + 1013904223;
            f.port[i] = 400000;
            *limit[(seed >> 8) % 4] = 10000 + (seed >> 10) % 390000;
            rate[i] = 400000;
            for (int k = 0; k < 4; k++) {
                rate[i] = *limit[k] && *limit[k] < rate[i] ? *limit[k] : rate[i];
            }
            sum += rate[i];
            best = rate[i] > best ? rate[i] : best;
        }
        plan();
        ck_assert_msg(got(weight[0], rate, n) >= 0.95 * sum, "round %d: %f of %f", round,
                      got(weight[0], rate, n), sum);
        ck_assert(got(weight[0], rate, n) >= best);
        balance_plan_own(&f, c, weight[0]);
        ck_assert_msg(got(weight[0], rate, n) >= 0.95 * sum, "own: round %d: %f of %f", round,
                      got(weight[0], rate, n), sum);
    }
}
END_TEST

/* A GPU reaches its own switch's NIC in full and 58 % of one behind the host bridge. */
START_TEST(bridge_between)
{
    struct balance_conn *c;

    begin(3);
    for (int i = 0; i < 3; i++) {
        f.port[i] = 400000;
    }
    link_mbps[0] = 400000 * BALANCE_BRIDGE_PERCENT / 100;
    f.links = 1;
    c = conn_add(1, 6, 1000);
    c->pair[1].ways = 1;
    c->pair[1].way[0] = 0;
    plan();
    ck_assert_msg(abs((int)weight[0][0] - (int)(BALANCE_ONE * 100 / 158)) < 700, "%u",
                  weight[0][0]);
    balance_plan_own(&f, c, weight[0]);
    ck_assert_int_lt(abs((int)weight[0][0] - (int)(BALANCE_ONE * 100 / 158)), 3);
}
END_TEST

/* Two NICs behind one link have it together. */
START_TEST(shared_link)
{
    struct balance_conn *c;

    begin(4);
    link_mbps[5] = MBPS;
    f.links = 6;
    c = conn_add(1, 0xe, 1000);
    for (int i = 1; i < 3; i++) {
        c->pair[i].ways = 2;
        c->pair[i].way[0] = 5;
        c->pair[i].way[1] = 5; /* once all the same */
    }
    plan();
    ck_assert_msg(weight[0][0] > BALANCE_ONE * 48 / 100 && weight[0][0] < BALANCE_ONE * 52 / 100,
                  "%u", weight[0][0]);
}
END_TEST

/* The other end's NIC is shared by the connections to that host, and by nobody else. */
START_TEST(remote_ports)
{
    double load = 0;

    begin(3);
    for (int i = 0; i < 4; i++) {
        struct balance_conn *c = conn_add(i < 3 ? 1 : 2, i == 0 || i == 3 ? 6 : 2, 1000);

        for (uint32_t k = 0; k < c->n; k++) {
            c->pair[k].port_there = MBPS;
        }
        f.port[1] = f.port[2] = 4 * MBPS;
    }
    plan();
    ck_assert_msg(weight[0][0] < BALANCE_ONE / 20, "%u",
                  weight[0][0]); /* two others are bound to it there */
    load = weight[3][0];
    ck_assert(load > BALANCE_ONE * 0.2); /* to host 2 nobody else goes */
}
END_TEST

START_TEST(nothing_left)
{
    begin(2);
    conn_add(1, 0, 1000);
    plan();
    conn_add(1, 2, 1000);
    plan();
    ck_assert_uint_eq(weight[1][0], BALANCE_ONE);
    f.port[1] = 0; /* unknown, all of them: alike */
    f.port[0] = 0;
    conn_add(1, 3, 1000);
    plan();
    ck_assert_uint_eq(weight[1][0], BALANCE_ONE);
    ck_assert(weight[2][0] > weight[2][1]); /* the other one is bound to NIC 1 */
}
END_TEST

START_TEST(equal_connections_are_one)
{
    begin(8);
    for (int i = 0; i < 300; i++) {
        conn_add((uint32_t)i % 3, 0xfe, 10);
    }
    plan();
    for (int i = 3; i < 300; i++) {
        ck_assert(memcmp(weight[i], weight[i % 3], sizeof(weight[0])) == 0);
    }
}
END_TEST

/* More different connections than are divided together: the rest by themselves. */
START_TEST(too_many_kinds)
{
    begin(8);
    for (uint32_t i = 0; i < CONNS; i++) {
        conn_add(i, 0xfe, 10);
    }
    plan();
    for (int i = 0; i < 7; i++) {
        ck_assert_int_lt(abs((int)weight[CONNS - 1][i] - (int)BALANCE_ONE / 7), 2);
        ck_assert_int_lt(abs((int)weight[0][i] - (int)BALANCE_ONE / 7), (int)BALANCE_ONE / 50);
    }
}
END_TEST

START_TEST(numbers_that_cannot_be)
{
    struct balance_conn *c;
    uint32_t own[BALANCE_PLAN_PATHS];

    begin(4);
    c = conn_add(UINT32_MAX, 0xf, UINT64_MAX);
    c->pair[0].port_there = c->pair[0].reach_there = c->pair[0].mbps_measured = UINT32_MAX;
    c->pair[1].nic = 200;
    c->pair[1].there = 255;
    c->pair[1].port_there = 5;
    c->pair[2].ways = 255;
    for (int i = 0; i < BALANCE_PLAN_WAYS; i++) {
        c->pair[2].way[i] = 60000;
    }
    conn_add(2, 0xf, UINT64_MAX);
    conn_add(3, 1, 1)->n = 77;
    other_add(UINT32_MAX, UINT32_MAX, UINT64_MAX);
    other_add(0xfffffff0, 5, 5);
    other_add(3, 0, 5);
    f.port[2] = BALANCE_MBPS_MAX + 1;
    f.port[3] = UINT32_MAX;
    plan();
    balance_plan_own(&f, c, own);
    ck_assert_uint_eq(own[0] + own[1] + own[2] + own[3], BALANCE_ONE);

    begin(
        4); /* one that says next to nothing of itself gets next to nothing, and only of its own */
    c = conn_add(1, 3, 10);
    c->pair[0].port_there = 1;
    c->pair[1].port_there = BALANCE_MBPS_MAX;
    conn_add(2, 3, 10);
    plan();
    ck_assert_uint_lt(weight[0][0], 10);
    ck_assert_uint_gt(weight[1][0], BALANCE_ONE / 2);

    f.nics = 33;
    ck_assert_uint_eq(balance_plan_size(&f), 0);
    ck_assert_int_eq(balance_plan(&f, own, weight), -1);
    f.nics = 0;
    ck_assert_uint_eq(balance_plan_size(&f), 0);
    f.nics = 1;
    f.links = BALANCE_PLAN_LINKS + 1;
    ck_assert_uint_eq(balance_plan_size(&f), 0);
}
END_TEST

static uint32_t seed;

static uint32_t drawn(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % (n ? n : 1);
}

/* Random facts: the division stands, is the same each time, and no weight is on what has more asked
 * of it than on its like. */
START_TEST(anything)
{
    static uint32_t first[CONNS][BALANCE_PLAN_PATHS];
    uint32_t n, others;

    seed = (uint32_t)_i * 2654435761u + 1;
    n = 1 + drawn(200);
    others = drawn(40);

    begin(1 + drawn(BALANCE_PLAN_NICS));
    f.links = drawn(64);
    for (uint32_t i = 0; i < f.links; i++) {
        link_mbps[i] = drawn(3) ? drawn(500000) : 0;
    }
    for (uint32_t i = 0; i < f.nics; i++) {
        f.port[i] = drawn(5) ? 1 + drawn(500000) : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct balance_conn *c = conn_add(drawn(4), 0, drawn(2) ? drawn(1000) : 0);

        c->n = drawn(BALANCE_PLAN_PATHS + 1);
        for (uint32_t k = 0; k < c->n; k++) {
            struct balance_pair *p = &c->pair[k];

            p->nic = (uint8_t)(drawn(f.nics));
            p->there = (uint8_t)(drawn(40));
            p->ways = (uint8_t)(drawn(BALANCE_PLAN_WAYS + 1));
            for (int w = 0; w < p->ways; w++) {
                p->way[w] = (uint16_t)(drawn(70));
            }
            p->port_there = drawn(2) ? drawn(500000) : 0;
            p->reach_there = drawn(2) ? drawn(500000) : 0;
            p->mbps_measured = drawn(4) ? 0 : drawn(500000);
            p->nic_measured = drawn(2) ? 0 : drawn(500000);
        }
    }
    for (uint32_t i = 0; i < others; i++) {
        uint32_t nics = drawn(1u << 24) << 8 ^ drawn(1u << 24), conns = drawn(10);

        other_add(nics, conns, drawn(5000));
    }
    plan();
    memcpy(first, weight, sizeof(first));
    plan();
    ck_assert(memcmp(first, weight, sizeof(first)) == 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, lost_nics_of_a_process_alone);
    tcase_add_test(t, processes_that_share_nics);
    tcase_add_test(t, a_nic_that_others_fill_gets_less);
    tcase_add_test(t, demand_counts);
    tcase_add_test(t, unequal_nics);
    tcase_add_test(t, bridge_between);
    tcase_add_test(t, shared_link);
    tcase_add_test(t, remote_ports);
    tcase_add_test(t, nothing_left);
    tcase_add_test(t, equal_connections_are_one);
    tcase_add_test(t, too_many_kinds);
    tcase_add_test(t, numbers_that_cannot_be);
    tcase_add_loop_test(t, anything, 0, 300);
}

int main(void)
{
    return suite_run("balance_plan", 120, NULL, NULL, add);
}
