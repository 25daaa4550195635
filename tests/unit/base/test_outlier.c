/* Outliers: logarithms and roots against libm's, bounds of sets, and how often chance exceeds them.
 */
#include <math.h>
#include <stdlib.h>

#include "plugin/base/r2_outlier.h"
#include "tests/unit/suite.h"

#define SETS 1000
#define MOST 4096

static uint64_t seed;
static double x[MOST], away[MOST];

static void begin(void)
{
    seed = 1;
}

/* From 0 to 1. */
static double draw(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(seed >> 33) + 0.5) / 2147483648.0;
}

static double normal(void)
{
    return sqrt(-2 * log(draw())) * cos(2 * acos(-1) * draw());
}

START_TEST(logarithms_are_those_of_libm)
{
    static const double edge[] = {1,
                                  0x1p-1022,
                                  0x1.fffffffffffffp1023,
                                  1.4142135623730951,
                                  1.4142135623730954,
                                  0x1.fffffffffffffp-1,
                                  0x1.0000000000001p0};

    ck_assert(r2_outlier_ln(1) == 0);
    for (size_t i = 0; i < sizeof(edge) / sizeof(edge[0]); i++) {
        ck_assert_double_le(fabs(r2_outlier_ln(edge[i]) - log(edge[i])), 1e-12);
    }
    for (int i = 0; i < 100000; i++) {
        double v = exp(100 * (draw() - 0.5)), w = v * 1.0001;

        ck_assert_double_le(fabs(r2_outlier_ln(v) - log(v)), 1e-13);
        ck_assert_double_lt(r2_outlier_ln(v), r2_outlier_ln(w));
    }
}
END_TEST

START_TEST(roots_are_those_of_libm)
{
    ck_assert(r2_outlier_root(1) == 1);
    for (int i = 0; i < 100000; i++) {
        double v = pow(1e9, draw());

        ck_assert_double_le(fabs(r2_outlier_root(v) / sqrt(v) - 1), 1e-15);
    }
}
END_TEST

START_TEST(the_middle_of_an_even_number_is_the_lower_one)
{
    double none[1], one[] = {7}, two[] = {9, 3}, three[] = {9, -3, 5}, four[] = {8, 2, 6, 4};

    ck_assert(r2_outlier_median(none, 0) == 0);
    ck_assert(r2_outlier_median(one, 1) == 7);
    ck_assert(r2_outlier_median(two, 2) == 3);
    ck_assert(r2_outlier_median(three, 3) == 5);
    ck_assert(r2_outlier_median(four, 4) == 4);
    ck_assert(four[0] == 2 && four[3] == 8);
}
END_TEST

/* A factor is out however alike the figures are; of few it is a larger one. */
START_TEST(what_is_alike_has_the_ratio_for_its_bound)
{
    static const struct {
        int n;
        double ratio;
    } row[] = {{0, 2}, {1, 2}, {31, 2}, {32, 1.5}, {MOST, 1.5}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct r2_outlier b;

        for (int k = 0; k < row[i].n; k++) {
            away[k] = 1e-6;
        }
        b = r2_outlier_bounds(away, row[i].n);
        ck_assert_double_le(fabs(b.of_set - log(row[i].ratio)), 1e-12);
        ck_assert_double_le(fabs(b.of_one - log(row[i].ratio)), 1e-12);
    }
}
END_TEST

/* 20 % of noise: the bound is no ratio any more. Of few figures it is more MADs than of many, of
 * one figure among many more than of their middle. */
START_TEST(what_differs_has_so_many_mads)
{
    static const struct {
        int n;
        double of_set, of_one; /* MADs */
    } row[] = {{4, 11.10, 12.63}, {16, 8.55, 10.34}, {100, 7.02, 9.12}, {4096, 6.16, 9.01}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct r2_outlier b;

        for (int k = 0; k < row[i].n; k++) {
            away[k] = 0.2;
        }
        b = r2_outlier_bounds(away, row[i].n);
        ck_assert_double_le(fabs(b.of_set / 0.2 - row[i].of_set), 0.01);
        ck_assert_double_le(fabs(b.of_one / 0.2 - row[i].of_one), 0.01);
    }
}
END_TEST

/* Whether a figure of @x is out beside the others. */
static int has_outlier(int n)
{
    double most = 0, usual;

    for (int i = 0; i < n; i++) {
        away[i] = x[i];
    }
    usual = r2_outlier_median(away, n);
    for (int i = 0; i < n; i++) {
        double l = r2_outlier_ln(x[i] / usual);

        away[i] = fabs(l);
        most = l > most ? l : most;
    }
    return most > r2_outlier_bounds(away, n).of_one;
}

/* Of sets that differ by noise alone none has an outlier; what takes five times as long is one. */
START_TEST(noise_is_no_outlier_and_five_times_is)
{
    static const int size[] = {4, 8, 16, 31, 32, 64, 512};
    int n = size[_i], found = 0;

    for (int k = 0; k < SETS; k++) {
        for (int i = 0; i < n; i++) {
            x[i] = 1e6 * (k % 2 ? 0.8 + 0.4 * draw() : exp(0.1 * normal()));
        }
        ck_assert_msg(!has_outlier(n), "set %d of %d figures", k, n);
        x[k % n] = 5e6;
        found += has_outlier(n);
    }
    ck_assert_int_ge(found, n < 16 ? SETS / 2 : SETS * 9 / 10);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, logarithms_are_those_of_libm);
    tcase_add_test(t, roots_are_those_of_libm);
    tcase_add_test(t, the_middle_of_an_even_number_is_the_lower_one);
    tcase_add_test(t, what_is_alike_has_the_ratio_for_its_bound);
    tcase_add_test(t, what_differs_has_so_many_mads);
    tcase_add_loop_test(t, noise_is_no_outlier_and_five_times_is, 0, 7);
}

int main(void)
{
    return suite_run("outlier", 60, begin, NULL, add);
}
