/* Histograms of times: bounds of buckets, and quantiles against the sorted times themselves. */
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_hist.h"
#include "tests/unit/suite.h"

#define LAST (R2_HIST_BUCKETS - 1)

static struct r2_hist_live live;
static struct r2_hist hist;

static void begin(void)
{
    memset(&live, 0, sizeof(live));
    memset(&hist, 0, sizeof(hist));
}

START_TEST(buckets_follow_each_other)
{
    ck_assert_uint_eq(r2_hist_begin(0), 0);
    ck_assert_uint_eq(r2_hist_begin(1), 1024);
    ck_assert_uint_eq(r2_hist_begin(LAST), 1ull << 37);
    ck_assert_uint_eq(r2_hist_begin(R2_HIST_BUCKETS), UINT64_MAX);
    for (unsigned i = 1; i < LAST; i++) {
        uint64_t from = r2_hist_begin(i), to = r2_hist_begin(i + 1);

        ck_assert_uint_lt(from, to);
        ck_assert_uint_le(to - from, from / 4);
    }
}
END_TEST

START_TEST(a_time_is_between_the_bounds_of_its_bucket)
{
    static const uint64_t edge[] = {0, 1, 1023, 1024, 1279, 1280, (1ull << 37) - 1, 1ull << 37};
    static const unsigned at[] = {0, 0, 0, 1, 1, 2, LAST - 1, LAST};

    for (size_t i = 0; i < sizeof(edge) / sizeof(edge[0]); i++) {
        ck_assert_uint_eq(r2_hist_bucket(edge[i]), at[i]);
    }
    ck_assert_uint_eq(r2_hist_bucket(UINT64_MAX), LAST);
    for (unsigned i = 1; i < R2_HIST_BUCKETS; i++) {
        ck_assert_uint_eq(r2_hist_bucket(r2_hist_begin(i)), i);
        ck_assert_uint_eq(r2_hist_bucket(r2_hist_begin(i) - 1), i - 1);
    }
}
END_TEST

START_TEST(what_is_noted_is_read)
{
    begin();
    r2_hist_note(&live, 5000);
    r2_hist_note(&live, 5000);
    r2_hist_note(&live, 1ull << 40);
    r2_hist_read(&live, &hist);
    ck_assert_uint_eq(hist.n[r2_hist_bucket(5000)], 2);
    ck_assert_uint_eq(hist.n[LAST], 1);
    ck_assert_uint_eq(r2_hist_count(&hist), 3);
    ck_assert_uint_eq(hist.sum_ns, 10000 + (1ull << 40));
}
END_TEST

START_TEST(of_none_there_is_no_quantile)
{
    begin();
    ck_assert_uint_eq(r2_hist_count(&hist), 0);
    ck_assert_uint_eq(r2_hist_quantile(&hist, 0), 0);
    ck_assert_uint_eq(r2_hist_quantile(&hist, 500), 0);
    ck_assert_uint_eq(r2_hist_quantile(&hist, 1000), 0);
}
END_TEST

START_TEST(what_is_too_short_or_too_long)
{
    begin();
    hist.n[0] = 1;
    ck_assert_uint_lt(r2_hist_quantile(&hist, 999), 1024);
    hist.n[LAST] = 1;
    ck_assert_uint_lt(r2_hist_quantile(&hist, 500), 1024);
    ck_assert_uint_eq(r2_hist_quantile(&hist, 501), 1ull << 37);
}
END_TEST

START_TEST(sums_stay_at_the_largest_value)
{
    struct r2_hist more;

    begin();
    hist.n[3] = hist.sum_ns = UINT64_MAX - 1;
    hist.n[4] = 7;
    more = hist;
    r2_hist_add(&more, &hist);
    ck_assert_uint_eq(more.n[3], UINT64_MAX);
    ck_assert_uint_eq(more.n[4], 14);
    ck_assert_uint_eq(more.sum_ns, UINT64_MAX);
    ck_assert_uint_eq(r2_hist_count(&more), UINT64_MAX);
    ck_assert_uint_eq(r2_hist_bucket(r2_hist_quantile(&more, 500)), 3);
    ck_assert_uint_le(r2_hist_quantile(&more, 1000), r2_hist_begin(5));
}
END_TEST

static int time_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Times over all orders of magnitude, in any number: the quantile is in the bucket of the time that
 * has the rank. */
START_TEST(quantiles_are_those_of_the_sorted_times)
{
    static const unsigned permille[] = {0, 1, 250, 500, 900, 990, 999, 1000};
    static uint64_t time[3000];
    size_t n = (size_t)(_i < 10 ? _i + 1 : 300 * (_i - 9));

    begin();
    srandom((unsigned)_i + 1);
    for (size_t i = 0; i < n; i++) {
        time[i] = ((uint64_t)random() << 10 | 1) >> (random() % 38);
        r2_hist_note(&live, time[i]);
    }
    qsort(time, n, sizeof(time[0]), time_compare);
    r2_hist_read(&live, &hist);
    for (size_t k = 0; k < sizeof(permille) / sizeof(permille[0]); k++) {
        size_t rank = (n * permille[k] + 999) / 1000;
        uint64_t is = time[rank ? rank - 1 : 0], q = r2_hist_quantile(&hist, permille[k]);

        ck_assert_msg(r2_hist_bucket(q) == r2_hist_bucket(is), "%u of %zu times: %llu, it is %llu",
                      permille[k], n, (unsigned long long)q, (unsigned long long)is);
        ck_assert_uint_ge(q, k ? r2_hist_quantile(&hist, permille[k - 1]) : 0);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, buckets_follow_each_other);
    tcase_add_test(t, a_time_is_between_the_bounds_of_its_bucket);
    tcase_add_test(t, what_is_noted_is_read);
    tcase_add_test(t, of_none_there_is_no_quantile);
    tcase_add_test(t, what_is_too_short_or_too_long);
    tcase_add_test(t, sums_stay_at_the_largest_value);
    tcase_add_loop_test(t, quantiles_are_those_of_the_sorted_times, 0, 20);
}

int main(void)
{
    return suite_run("hist", 60, NULL, NULL, add);
}
