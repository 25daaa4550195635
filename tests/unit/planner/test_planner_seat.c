/* Seats of the double binary tree: its shape, what each carries, and who should sit where, against
 * all orders. */
#include <check.h>
#include <stdbool.h>
#include <string.h>

#include "planner/planner_seat.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"

#define NODES 300

static double load[NODES];

/* One root with one child, at most two children for the others, no cycle. */
static void tree_check(int tree, int n)
{
    int children[NODES] = {0}, roots = 0, root = 0;

    for (int i = 0; i < n; i++) {
        int p = planner_seat_parent(tree, i, n), at = i, steps = 0;

        while (at >= 0 && steps <= n) {
            at = planner_seat_parent(tree, at, n);
            steps++;
        }
        if (at >= 0 || p >= n || p == i) {
            ck_abort_msg("position %d of %d does not lead to the root", i, n);
        }
        root = p < 0 ? i : root;
        roots += p < 0;
        if (p >= 0) {
            children[p]++;
        }
    }
    ck_assert_int_eq(roots, 1);
    ck_assert_int_eq(children[root], 1);
    for (int i = 0; i < n; i++) {
        if (children[i] > 2) {
            ck_abort_msg("position %d of %d has %d children", i, n, children[i]);
        }
    }
}

START_TEST(ends_of_the_order_are_light)
{
    for (int n = 2; n <= NODES; n++) {
        double sum = 0;

        tree_check(0, n);
        tree_check(1, n);
        planner_seat_loads(n, load);
        for (int i = 0; i < n; i++) {
            double want = 2;

            sum += load[i];
            if (n % 2 == 0 || n == 2) {
                want = i == 0 || i == n - 1 ? 1 : 2;
            } else if (i == 1) {
                want = 1;
            } else if (i == 0 || i == n - 1) {
                want = 1.5;
            }
            if (load[i] != want) {
                ck_abort_msg("position %d of %d carries %g D", i, n, load[i]);
            }
        }
        ck_assert_double_eq(sum, 2.0 * (n - 1));
    }
}
END_TEST

/* n = 8, by hand: 0 - 4; 4 - 2, 6; 2 - 1, 3; 6 - 5, 7, and the mirror of it. */
START_TEST(shape_of_eight)
{
    static const int first[8] = {-1, 2, 4, 2, 0, 6, 4, 6};

    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(planner_seat_parent(0, i, 8), first[i]);
        ck_assert_int_eq(planner_seat_parent(1, 7 - i, 8), first[i] < 0 ? -1 : 7 - first[i]);
    }
    ck_assert_int_eq(planner_seat_parent(1, 1, 5), -1);
}
END_TEST

static double best_by_force(const double *b, int n, int *order, int from)
{
    double best = planner_seat_time(b, n, order, load);

    for (int i = from; i < n; i++) {
        int swap = order[from];
        double t;

        order[from] = order[i];
        order[i] = swap;
        t = from + 1 < n ? best_by_force(b, n, order, from + 1)
                         : planner_seat_time(b, n, order, load);
        best = t < best ? t : best;
        order[i] = order[from];
        order[from] = swap;
    }
    return best;
}

START_TEST(seats_are_as_good_as_any_order)
{
    uint64_t seed = 11;
    int moved = 0, kept = 0;

    for (int round = 0; round < plan_rounds(300); round++) {
        int n = 2 + (int)plan_random(&seed, 6), order[8], seat[8], seen = 0;
        double b[8], t;

        for (int i = 0; i < n; i++) {
            b[i] = plan_random(&seed, 2) ? 1 : (1 + plan_random(&seed, 8)) / 8.0;
            order[i] = i;
        }
        for (int i = n - 1; i > 0; i--) {
            int k = (int)plan_random(&seed, (uint32_t)i + 1), swap = order[i];

            order[i] = order[k];
            order[k] = swap;
        }
        planner_seat_loads(n, load);
        t = planner_seat_assign(b, n, order, load, seat);
        for (int i = 0; i < n; i++) {
            seen |= 1 << seat[i];
        }
        ck_assert_int_eq(seen, (1 << n) - 1);
        ck_assert_double_eq(t, planner_seat_time(b, n, seat, load));
        if (memcmp(seat, order, (size_t)n * sizeof(int)) == 0) {
            kept++;
        } else {
            moved++;
            ck_assert_double_lt(t, planner_seat_time(b, n, order, load));
        }
        ck_assert_double_eq(t, best_by_force(b, n, order, 0));
    }
    ck_assert_int_gt(moved, 50);
    ck_assert_int_gt(kept, 50);
}
END_TEST

START_TEST(healthy_nodes_keep_their_order)
{
    double b[64];
    int order[64], seat[64], last = -1;

    for (int i = 0; i < 64; i++) {
        b[i] = i == 3 ? 0.875 : i == 17 ? 0.75 : 1;
        order[i] = i;
    }
    planner_seat_loads(64, load);
    ck_assert_double_eq(planner_seat_assign(b, 64, order, load, seat), 2);
    ck_assert_int_eq(seat[0], 17);
    ck_assert_int_eq(seat[63], 3);
    for (int i = 1; i < 63; i++) {
        ck_assert_int_gt(seat[i], last);
        last = seat[i];
    }
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, ends_of_the_order_are_light);
    tcase_add_test(t, shape_of_eight);
    tcase_add_test(t, seats_are_as_good_as_any_order);
    tcase_add_test(t, healthy_nodes_keep_their_order);
}

int main(void)
{
    return suite_run("planner_seat", plan_limit_s(), NULL, NULL, tests_add);
}
