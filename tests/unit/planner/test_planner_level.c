/* Levels of bandwidth: their loads, and the best shares against all corners of the linear program
 * in exact fractions. */
#include <check.h>
#include <stdbool.h>
#include <string.h>

#include "planner/planner_bound.h"
#include "planner/planner_level.h"
#include "tests/unit/plan_rational.h"
#include "tests/unit/suite.h"

#define NODES 64

static struct planner_level level[PLANNER_LEVELS];

static int levels_of(const int *eighths, int n)
{
    double b[NODES];

    for (int i = 0; i < n; i++) {
        b[i] = eighths[i] / 8.0;
    }
    return planner_level_find(b, n, level);
}

/* What a node with @of eighths carries per byte of the ring of those with at least @k, over its
 * share: from the text of docs/collectives.md, for each node by itself. */
static struct rational exact_cell(const int *eighths, int n, int g, enum planner_scheme scheme,
                                  int of, int k)
{
    int members = 0, outside = 0;
    struct rational load;

    for (int i = 0; i < n; i++) {
        members += eighths[i] >= k;
        outside += eighths[i] < k;
    }
    load = members > 1 ? rational(2 * (members * g - 1), members * g) : rational(0, 1);
    load = rational_add(load,
                        scheme == PLANNER_LEAF ? rational(outside, members) : rational(outside, 1));
    return rational_div(of < k ? rational(1, 1) : load, rational(of, 8));
}

#define SYSTEM 6

/* Gauss in fractions: false when it has no single solution. */
static bool solve(struct rational m[SYSTEM][SYSTEM + 1], int n)
{
    for (int c = 0; c < n; c++) {
        int r = c;

        while (r < n && m[r][c].p == 0) {
            r++;
        }
        if (r == n) {
            return false;
        }
        for (int j = 0; j <= n; j++) {
            struct rational swap = m[c][j];

            m[c][j] = m[r][j];
            m[r][j] = swap;
        }
        for (int i = 0; i < n; i++) {
            struct rational f = rational_div(m[i][c], m[c][c]);

            for (int j = c; i != c && j <= n; j++) {
                m[i][j] = rational_sub(m[i][j], rational_mul(f, m[c][j]));
            }
        }
    }
    for (int i = 0; i < n; i++) {
        m[i][n] = rational_div(m[i][n], m[i][i]);
    }
    return true;
}

/* The least T over all corners: of the 2L limits (row j is full, Y_k is 0) L hold with equality. */
static struct rational exact_best(struct rational cell[SYSTEM][SYSTEM], int levels)
{
    struct rational best = rational(1000000, 1);
    int corners = 0;

    for (unsigned active = 0; active < 1u << (2 * levels); active++) {
        struct rational m[SYSTEM][SYSTEM + 1];
        bool holds;
        int r = 0;

        if (__builtin_popcount(active) != levels) {
            continue;
        }
        memset(m, 0, sizeof(m));
        for (int i = 0; i < SYSTEM; i++) {
            for (int j = 0; j <= SYSTEM; j++) {
                m[i][j] = rational(0, 1);
            }
        }
        for (int i = 0; i < 2 * levels; i++) {
            for (int k = 0; (active & 1u << i) && k < levels; k++) {
                m[r][k] = i < levels ? cell[i][k] : rational(k == i - levels, 1);
            }
            if (active & 1u << i) {
                m[r++][levels] = rational(i < levels ? -1 : 0, 1);
            }
        }
        for (int k = 0; k < levels; k++) {
            m[r][k] = rational(1, 1);
        }
        m[r][levels + 1] = rational(1, 1);
        holds = solve(m, levels + 1);
        for (int k = 0; holds && k < levels; k++) {
            holds = m[k][levels + 1].p >= 0;
        }
        for (int i = 0; holds && i < levels; i++) {
            struct rational load = rational(0, 1);

            for (int k = 0; k < levels; k++) {
                load = rational_add(load, rational_mul(cell[i][k], m[k][levels + 1]));
            }
            holds = rational_cmp(load, m[levels][levels + 1]) <= 0;
        }
        if (holds) {
            corners++;
            best = rational_cmp(m[levels][levels + 1], best) < 0 ? m[levels][levels + 1] : best;
        }
    }
    ck_assert_int_gt(corners, 0);
    return best;
}

START_TEST(best_shares_are_the_best_corner)
{
    uint64_t seed = 7;
    int deep = 0;

    for (int round = 0; round < plan_rounds(160); round++) {
        int n = 2 + (int)plan_random(&seed, 12), eighths[NODES], levels;
        enum planner_scheme scheme = plan_random(&seed, 2);
        struct rational cell[SYSTEM][SYSTEM];
        double t, sum = 0;

        for (int i = 0; i < n; i++) {
            static const int some[] = {8, 8, 7, 4, 2};

            eighths[i] = some[plan_random(&seed, 5)];
        }
        levels = levels_of(eighths, n);
        deep += levels == 4;
        for (int i = 0; i < levels; i++) {
            for (int k = 0; k < levels; k++) {
                cell[i][k] =
                    exact_cell(eighths, n, 1, scheme, (int)(level[i].b * 8), (int)(level[k].b * 8));
            }
        }
        t = planner_level_best(level, levels, 1, scheme);
        same(t, exact_best(cell, levels), "best time");
        for (int k = 0; k < levels; k++) {
            ck_assert_msg(level[k].share >= 0, "a share below 0");
            sum += level[k].share;
        }
        same(sum, rational(1, 1), "sum of shares");
    }
    ck_assert_int_gt(deep, 15);
}
END_TEST

/* With many levels no brute force: not slower than any of many other shares, nor than a bound. */
START_TEST(best_shares_of_many_levels_beat_others)
{
    uint64_t seed = 3;
    double b[NODES];

    for (int round = 0; round < plan_rounds(40); round++) {
        struct planner_level other[PLANNER_LEVELS];
        enum planner_scheme scheme = round % 2;
        int levels;
        double t;

        for (int i = 0; i < NODES; i++) {
            b[i] = (1 + plan_random(&seed, PLANNER_LEVELS)) / (double)PLANNER_LEVELS;
        }
        levels = planner_level_find(b, NODES, level);
        ck_assert_int_gt(levels, 15);
        t = planner_level_best(level, levels, 8, scheme);
        ck_assert_double_ge(t, planner_bound(b, NODES) - 1e-9);
        ck_assert_double_le(t, planner_bound_ring(NODES, 8) / planner_bound_least(b, NODES) + 1e-9);
        memcpy(other, level, sizeof(other));
        for (int k = 0; k < 2000; k++) {
            int from = (int)plan_random(&seed, (uint32_t)levels);
            double some = other[from].share * plan_random(&seed, 100) / 100;

            other[from].share -= some;
            other[plan_random(&seed, (uint32_t)levels)].share += some;
            if (planner_level_time(other, levels, 8, scheme) < t - 1e-9) {
                ck_abort_msg("other shares are faster");
            }
        }
    }
}
END_TEST

/* The table of the analysis: eight nodes, one rank each. */
START_TEST(table_of_eight_nodes)
{
    static const struct {
        int eighths[8];
        double ring, paper, leaf, best_paper, best_leaf, bound;
    } row[] = {
        {{7, 8, 8, 8, 8, 8, 8, 8}, 2, 1.893, 1.893, 1.882, 1.778, 1.778},
        {{4, 8, 8, 8, 8, 8, 8, 8}, 3.5, 2.75, 2.75, 2.435, 2, 2},
        {{4, 6, 7, 8, 8, 8, 8, 8}, 3.5, 2.75, 2.75, 2.61, 2, 2},
        {{6, 6, 6, 6, 8, 8, 8, 8}, 2.333, 2.688, 2.083, 2.211, 2, 2},
        {{1, 2, 4, 6, 8, 8, 8, 8}, 14, 8.75, 8.75, 8, 8, 8},
    };

    for (int i = 0; i < 5; i++) {
        int levels = levels_of(row[i].eighths, 8);
        double b[8];

        for (int k = 0; k < 8; k++) {
            b[k] = row[i].eighths[k] / 8.0;
        }
        ck_assert_double_eq_tol(planner_bound_ring(8, 1) / b[0], row[i].ring, 0.0006);
        ck_assert_double_eq_tol(planner_level_proportional(level, levels, 1, PLANNER_BROADCAST),
                                row[i].paper, 0.0006);
        ck_assert_double_eq_tol(planner_level_proportional(level, levels, 1, PLANNER_LEAF),
                                row[i].leaf, 0.0006);
        ck_assert_double_eq_tol(planner_level_best(level, levels, 1, PLANNER_BROADCAST),
                                row[i].best_paper, 0.0006);
        ck_assert_double_eq_tol(planner_level_best(level, levels, 1, PLANNER_LEAF),
                                row[i].best_leaf, 0.0006);
        ck_assert_double_eq_tol(planner_bound(b, 8), row[i].bound, 0.0006);
    }
}
END_TEST

/* R2CCL-AllReduce, pipelined, for many nodes: Y = 2X/(2-X), T = 4/(2-X). */
START_TEST(one_level_keeps_half_of_what_was_lost)
{
    for (int lost = 1; lost <= 5; lost++) {
        static double b[PLANNER_NODES];
        double x = lost / 8.0;
        int levels;

        for (int i = 0; i < PLANNER_NODES; i++) {
            b[i] = i == 100 ? 1 - x : 1;
        }
        levels = planner_level_isolate(b, PLANNER_NODES, level);
        ck_assert_int_eq(levels, 2);
        ck_assert_double_eq_tol(planner_level_best(level, levels, 1, PLANNER_BROADCAST),
                                4 / (2 - x), 0.002);
        ck_assert_double_eq_tol(level[1].share, 2 * x / (2 - x), 0.002);
    }
}
END_TEST

START_TEST(levels_are_found_and_counted)
{
    double b[NODES];

    for (int i = 0; i < NODES; i++) {
        b[i] = (i % 4 + 1) / 4.0;
    }
    ck_assert_int_eq(planner_level_find(b, NODES, level), 4);
    ck_assert_double_eq(level[0].b, 0.25);
    ck_assert_int_eq(level[0].nodes, 16);
    ck_assert_int_eq(level[0].members, 64);
    ck_assert_int_eq(level[3].members, 16);
    for (int i = 0; i < NODES; i++) {
        b[i] = (i + 1) / 64.0;
    }
    ck_assert_int_eq(planner_level_find(b, PLANNER_LEVELS, level), PLANNER_LEVELS);
    ck_assert_int_eq(planner_level_find(b, PLANNER_LEVELS + 1, level), -1);
    ck_assert_int_eq(planner_level_isolate((double[]){1, 0.75, 0.5}, 3, level), 2);
    ck_assert_double_eq(level[0].b, 0.5);
    ck_assert_double_eq(level[1].b, 0.75);
}
END_TEST

static void tests_add(TCase *t)
{
    tcase_add_test(t, best_shares_are_the_best_corner);
    tcase_add_test(t, best_shares_of_many_levels_beat_others);
    tcase_add_test(t, table_of_eight_nodes);
    tcase_add_test(t, one_level_keeps_half_of_what_was_lost);
    tcase_add_test(t, levels_are_found_and_counted);
}

int main(void)
{
    return suite_run("planner_level", plan_limit_s(), NULL, NULL, tests_add);
}
