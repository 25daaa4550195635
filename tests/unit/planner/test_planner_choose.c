/* Times by NCCL's constants, and what is chosen by size and loss. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "planner/planner_bound.h"
#include "planner/planner_choose.h"
#include "tests/unit/suite.h"

#define NODES 64
#define RATE  369e3 /* 369 GB/s, in bytes per microsecond */

static double b[NODES], work[2 * NODES];
static int seat[NODES], bad;
static struct planner_facts f;
static struct planner_plan plan;

static void begin(int nodes, int gpus, uint64_t bytes)
{
    for (int i = 0; i < NODES; i++) {
        b[i] = 1;
    }
    f = (struct planner_facts){.net = {nodes, gpus, RATE}, .bytes = bytes, .b = b};
}

static void choose(void)
{
    ck_assert_int_eq(planner_choose(&f, &plan, seat, work, &bad), 0);
}

START_TEST(latencies_are_those_of_the_tuner)
{
    struct planner_net two = {2, 8, RATE}, sixteen = {16, 8, RATE};

    ck_assert_double_eq_tol(planner_cost_ring_latency(&two, 0), 131.6, 1e-9);
    ck_assert_double_eq_tol(planner_cost_ring_latency(&two, 1 << 20), 184.24, 1e-9);
    ck_assert_double_eq_tol(planner_cost_ring_latency(&sixteen, 1 << 20), 1666.0, 1);
    ck_assert_double_eq_tol(planner_cost_tree_latency(&two), 92.4, 1e-9);
    ck_assert_double_eq_tol(planner_cost_tree_latency(&sixteen), 176.4, 1e-9);
    ck_assert_double_eq(planner_cost_tree_efficiency(1ull << 30), 0.92);
    ck_assert_double_eq_tol(planner_cost_tree_efficiency(1ull << 18), 0.92 * 0.5, 1e-12);
    ck_assert_double_eq_tol(planner_cost_tree_efficiency(1), 0.92, 1e-12);
}
END_TEST

/* NCCL's tree is ahead of its ring up to 2.9 GB for 16 nodes of 8. */
START_TEST(healthy_ring_overtakes_the_tree_at_3_gb)
{
    uint64_t size = 1ull << 30;

    for (;; size += 1 << 20) {
        begin(16, 8, size);
        choose();
        if (plan.use == PLANNER_RING) {
            break;
        }
        ck_assert_int_ne(plan.use, PLANNER_SEATS); /* no better than the tree as it is */
    }
    ck_assert_double_eq_tol((double)size / 1e9, 2.9, 0.05);
}
END_TEST

/* Large messages, per cent of the healthy flat ring, one degraded node of g = 8. Two nodes: an
 * exchange. */
START_TEST(table_of_large_messages)
{
    static const int nodes[4] = {2, 4, 16, 64};
    static const struct {
        int lost;
        double balance, r2[4], leaf[4], light[4], bound[4];
    } row[] = {
        {1,
         87.5,
         {164, 93.6, 93.7, 93.7},
         {164, 96.9, 99.2, 99.8},
         {164, 96.9, 99.2, 99.8},
         {164, 125, 105, 101}},
        {2,
         75.0,
         {141, 87.2, 87.4, 87.5},
         {141, 93.8, 98.4, 99.6},
         {141, 96.9, 99.2, 99.8},
         {141, 121, 104, 101}},
        {4,
         50.0,
         {93.8, 74.5, 74.8, 75.0},
         {93.8, 87.5, 96.9, 99.2},
         {93.8, 96.9, 99.2, 99.8},
         {93.8, 96.9, 99.2, 99.8}},
    };

    for (int r = 0; r < 3; r++) {
        for (int k = 0; k < 4; k++) {
            double healthy;

            begin(nodes[k], 8, 1ull << 34);
            b[1] = 1 - row[r].lost / 8.0;
            choose();
            healthy = 100 * plan.healthy[PLANNER_RING].load;
            ck_assert_double_eq_tol(healthy / plan.row[PLANNER_RING].load, row[r].balance, 0.1);
            ck_assert_double_eq_tol(healthy / plan.row[PLANNER_R2].load, row[r].r2[k], 0.6);
            ck_assert_double_eq_tol(healthy / plan.row[PLANNER_ATTACH].load, row[r].leaf[k], 0.6);
            ck_assert_double_eq_tol(healthy / plan.row[PLANNER_SEATS].load, row[r].light[k], 0.6);
            ck_assert_double_eq_tol(healthy / plan.bound, row[r].bound[k], 1);
            ck_assert_double_eq_tol(plan.row[PLANNER_STARS].load, plan.bound, 1e-12);
        }
    }
}
END_TEST

START_TEST(four_nodes_at_one_eighth)
{
    begin(16, 8, 1ull << 34);
    b[1] = b[2] = b[3] = b[4] = 0.875;
    choose();
    double healthy = 100 * plan.healthy[PLANNER_RING].load;

    ck_assert_double_eq_tol(healthy / plan.row[PLANNER_RING].load, 87.5, 0.1);
    ck_assert_double_eq_tol(healthy / plan.row[PLANNER_SEATS].load, 86.8, 0.1);
    ck_assert_double_eq_tol(healthy / plan.row[PLANNER_RECURSION].load, 90.0, 0.1);
    ck_assert_double_eq_tol(healthy / plan.row[PLANNER_LEAVES].load, 96.9, 0.1);
    ck_assert_int_eq(plan.use, PLANNER_RING);
}
END_TEST

START_TEST(choice_is_a_light_seat_while_there_are_enough)
{
    begin(8, 8, 256 << 20);
    b[5] = 0.5;
    choose();
    ck_assert_int_eq(plan.use, PLANNER_SEATS);
    ck_assert(seat[0] == 5 || seat[7] == 5);
    ck_assert_double_eq(plan.row[PLANNER_SEATS].load, plan.healthy[PLANNER_TREE].load);
    ck_assert_double_eq(plan.row[PLANNER_TREE].load, 4);
    b[2] = 0.5;
    choose();
    ck_assert_int_eq(plan.use, PLANNER_SEATS);
    ck_assert_int_eq(seat[0] + seat[7], 7);
    /* Two nodes: the tree is an exchange, whoever sits where. */
    begin(2, 8, 1ull << 34);
    b[1] = 0.75;
    choose();
    ck_assert_int_eq(plan.use, PLANNER_TREE);
    ck_assert_double_eq_tol(plan.row[PLANNER_TREE].load, 1 / 0.75, 1e-12);
}
END_TEST

START_TEST(present_order_counts)
{
    int order[8] = {5, 0, 1, 2, 3, 4, 6, 7};

    begin(8, 8, 256 << 20);
    b[5] = 0.5;
    f.order = order;
    choose();
    ck_assert_double_eq(plan.row[PLANNER_TREE].load, 2);
    ck_assert_int_eq(plan.use, PLANNER_TREE);
    ck_assert_mem_eq(seat, order, sizeof(order));
}
END_TEST

START_TEST(no_strategy_is_below_the_bound_and_the_fastest_is)
{
    begin(16, 8, 1 << 30);
    for (int lost = 1; lost < 8; lost++) {
        b[9] = 1 - lost / 8.0;
        choose();
        for (int s = 0; s < PLANNER_STRATEGIES; s++) {
            ck_assert_ptr_nonnull(planner_choose_name(s));
            ck_assert_double_ge(plan.row[s].load, plan.bound - 1e-12);
            ck_assert_double_ge(plan.row[s].us, plan.row[plan.fastest].us);
            ck_assert(!plan.row[s].is_nccls || plan.row[s].us >= plan.row[plan.use].us);
        }
        ck_assert_int_eq(plan.row[plan.use].is_nccls, 1);
        ck_assert_double_gt(plan.paper_share, lost / 8.0);
    }
    ck_assert_ptr_null(planner_choose_name(PLANNER_STRATEGIES));
    b[2] = 0.5;
    choose();
    ck_assert_double_eq(plan.paper_share, 0); /* the paper has no form for two */
}
END_TEST

START_TEST(more_shares_than_levels_leave_the_recursion_out)
{
    begin(NODES, 8, 1 << 30);
    for (int i = 0; i < NODES; i++) {
        b[i] = (i + 1) / (double)NODES;
    }
    choose();
    ck_assert_double_eq(plan.row[PLANNER_LEAVES].load, 0);
    ck_assert_int_ne(plan.fastest, PLANNER_LEAVES);
    ck_assert_int_ne(plan.fastest, PLANNER_RECURSION);
}
END_TEST

static void refused(int node)
{
    ck_assert_int_eq(planner_choose(&f, &plan, seat, work, &bad), -1);
    ck_assert_int_eq(bad, node);
}

START_TEST(nonsense_is_refused)
{
    static const double wrong[] = {0, -1, 1.0000001, NAN, INFINITY};

    for (int i = 0; i < 5; i++) {
        begin(8, 8, 1 << 20);
        b[6] = wrong[i];
        refused(6);
    }
    begin(1, 8, 1 << 20);
    refused(-1);
    begin(PLANNER_NODES + 1, 8, 1 << 20);
    refused(-1);
    begin(-5, 8, 1 << 20);
    refused(-1);
    begin(8, 0, 1 << 20);
    refused(-1);
    begin(8, 8, 1 << 20);
    f.net.rate = NAN;
    refused(-1);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, latencies_are_those_of_the_tuner);
    tcase_add_test(t, healthy_ring_overtakes_the_tree_at_3_gb);
    tcase_add_test(t, table_of_large_messages);
    tcase_add_test(t, four_nodes_at_one_eighth);
    tcase_add_test(t, choice_is_a_light_seat_while_there_are_enough);
    tcase_add_test(t, present_order_counts);
    tcase_add_test(t, no_strategy_is_below_the_bound_and_the_fastest_is);
    tcase_add_test(t, more_shares_than_levels_leave_the_recursion_out);
    tcase_add_test(t, nonsense_is_refused);
}

int main(void)
{
    return suite_run("planner_choose", 60, NULL, NULL, tests_add);
}
