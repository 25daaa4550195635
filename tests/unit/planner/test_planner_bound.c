/* Bounds, weighted stars and the paper's closed forms, against exact fractions. */
#include <check.h>

#include "planner/planner_bound.h"
#include "planner/planner_paper.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"

#define NODES 128

static struct rational exact_bound(const int *eighths, int n)
{
    int sum = 0, least = 8;

    for (int i = 0; i < n; i++) {
        sum += eighths[i];
        least = eighths[i] < least ? eighths[i] : least;
    }
    return rational_max(rational(8, least), rational(16 * (n - 1), sum));
}

START_TEST(bound_is_the_larger_of_two_fractions_and_stars_meet_it)
{
    int eighths[NODES], slowest = 0, all = 0;
    double b[NODES], share[NODES];
    uint64_t seed = 1;

    for (int round = 0; round < plan_rounds(4000); round++) {
        int n = 2 + (int)plan_random(&seed, round % 4 ? 14 : NODES - 1);
        struct rational t;
        double sum = 0;

        for (int i = 0; i < n; i++) {
            eighths[i] = plan_random(&seed, 3) ? 8 : 1 + (int)plan_random(&seed, 8);
            b[i] = eighths[i] / 8.0;
        }
        t = exact_bound(eighths, n);
        slowest += rational_cmp(t, rational(8, (int)(planner_bound_least(b, n) * 8))) == 0;
        all += rational_cmp(t, rational(8, (int)(planner_bound_least(b, n) * 8))) > 0;
        same(planner_bound(b, n), t, "bound");
        same(planner_bound_stars(b, n, share), t, "time of the stars");
        for (int i = 0; i < n; i++) {
            ck_assert_msg(share[i] >= 0, "a share below 0");
            ck_assert_msg(planner_bound_star(share[i], n) <= rational_real(t) * b[i] + 1e-12,
                          "a root carries more than it can");
            sum += share[i];
        }
        same(sum, rational(1, 1), "sum of shares");
    }
    ck_assert_int_gt(slowest, 100);
    ck_assert_int_gt(all, 100);
}
END_TEST

/* What goes over each NIC, counted: every node sends its part of each share to the root, and gets
 * the sum back. */
START_TEST(load_of_a_star_is_what_its_transfers_add_up_to)
{
    double b[6] = {0.25, 1, 0.5, 1, 0.75, 1}, share[6];

    planner_bound_stars(b, 6, share);
    for (int i = 0; i < 6; i++) {
        double sent = 0, received = 0;

        for (int root = 0; root < 6; root++) {
            for (int leaf = 0; leaf < 6; leaf++) {
                if (leaf != root) {
                    sent += (leaf == i) * share[root] + (root == i) * share[root];
                    received += (root == i) * share[root] + (leaf == i) * share[root];
                }
            }
        }
        ck_assert_double_eq_tol(sent, planner_bound_star(share[i], 6), 1e-12);
        ck_assert_double_eq_tol(received, sent, 1e-12);
    }
}
END_TEST

START_TEST(ring_carries_what_nccl_counts)
{
    ck_assert_double_eq(planner_bound_ring(1, 8), 0);
    ck_assert_double_eq(planner_bound_ring(2, 1), 1);
    ck_assert_double_eq(planner_bound_ring(2, 8), 1.875);
    ck_assert_double_eq(planner_bound_ring(8, 1), 1.75);
}
END_TEST

/* App. A's times as fractions, for X = x/32. */
static struct rational exact_time(int x, struct rational y, int n, int g)
{
    struct rational one = rational(1, 1), lost = rational(x, 32), left = rational(32 - x, 32);
    struct rational global =
        rational_div(rational_mul(rational(2 * (n * g - 1), n * g), rational_sub(one, y)), left);
    struct rational partial =
        rational_div(rational_mul(rational(2 * ((n - 1) * g - 1), (n - 1) * g), y), lost);

    return rational_add(rational_max(global, partial), rational_div(y, lost));
}

/* In fractions: the time is piecewise linear in Y with one corner, where the stages of the two
 * rings end together. So Y* is that corner or 0, and the corner wins above the threshold. */
START_TEST(paper_share_is_where_both_rings_end_and_the_threshold_where_it_pays)
{
    static const int nodes[] = {2, 3, 8, 16, 128}, gpus[] = {1, 8};
    int pays = 0, costs = 0;

    for (int a = 0; a < 5; a++) {
        for (int c = 0; c < 2; c++) {
            int n = nodes[a], g = gpus[c];

            for (int x = 1; x < 32; x++) {
                struct rational k = rational((__int128)(g * (n - 1) - 1) * n, 1);
                struct rational lost = rational(x, 32);
                struct rational y =
                    rational_add(lost, rational_div(rational_mul(lost, rational(32 - x, 32)),
                                                    rational_add(lost, k)));
                struct rational at = exact_time(x, y, n, g);
                struct rational ring = exact_time(x, rational(0, 1), n, g);
                struct rational least = ring;

                same(planner_paper_share(x / 32.0, n, g), y, "Y*");
                same(planner_paper_time(x / 32.0, planner_paper_share(x / 32.0, n, g), n, g), at,
                     "time at Y*");
                for (int grid = 1; grid <= 200; grid++) {
                    struct rational t = exact_time(x, rational(grid, 200), n, g);

                    least = rational_cmp(t, least) < 0 ? t : least;
                }
                ck_assert_msg(rational_cmp(least, at) >= 0 || rational_cmp(least, ring) == 0,
                              "the grid has less than Y* at x = %d/32", x);
                ck_assert_msg((rational_cmp(at, ring) < 0) ==
                                  (rational_cmp(lost, rational(n * g, 3 * n * g - 2)) > 0),
                              "threshold at x = %d/32, n = %d", x, n);
                pays += rational_cmp(at, ring) < 0;
                costs += rational_cmp(at, ring) > 0;
            }
            same(planner_paper_threshold(n, g), rational(n * g, 3 * n * g - 2), "threshold");
        }
    }
    ck_assert_int_gt(pays, 50);
    ck_assert_int_gt(costs, 50);
}
END_TEST

/* Why nothing is decided by it. */
START_TEST(printed_time_is_below_what_is_possible_when_much_is_lost)
{
    double b[16], x = 6 / 8.0;

    for (int i = 0; i < 16; i++) {
        b[i] = i == 3 ? 1 - x : 1;
    }
    ck_assert_double_eq(planner_bound(b, 16), 4);
    ck_assert_double_eq_tol(planner_paper_time(x, planner_paper_share(x, 16, 8), 16, 8), 2.98,
                            0.005);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, bound_is_the_larger_of_two_fractions_and_stars_meet_it);
    tcase_add_test(t, load_of_a_star_is_what_its_transfers_add_up_to);
    tcase_add_test(t, ring_carries_what_nccl_counts);
    tcase_add_test(t, paper_share_is_where_both_rings_end_and_the_threshold_where_it_pays);
    tcase_add_test(t, printed_time_is_below_what_is_possible_when_much_is_lost);
}

int main(void)
{
    return suite_run("planner_bound", plan_limit_s(), NULL, NULL, tests_add);
}
