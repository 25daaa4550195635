/* The band of transfer times: what is a window, what leaves the band, what is announced, and that
 * jitter is not. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/telemetry/r2_band.h"
#include "tests/support/times.h"
#include "tests/unit/suite.h"

static struct r2_band b;
static uint64_t now;
static unsigned said[R2_BAND_CHANGES];

static void setup(void)
{
    memset(&b, 0, sizeof(b));
    memset(said, 0, sizeof(said));
    now = 1000 * S;
    srand48(1);
}

static void teardown(void)
{
}

static enum r2_band_change turn(int mute)
{
    enum r2_band_change c = r2_band_turn(&b, now, mute);

    said[c]++;
    return c;
}

/* @seconds of @per transfers each, of @ns, less or more by up to @jitter percent. The last that was
 * announced. */
static enum r2_band_change run(unsigned seconds, unsigned per, uint64_t ns, unsigned jitter)
{
    enum r2_band_change last = R2_BAND_NONE;

    for (unsigned s = 0; s < seconds; s++) {
        for (unsigned i = 0; i < per; i++) {
            enum r2_band_change c;
            double by = 1 + (2 * drand48() - 1) * jitter / 100;

            r2_band_note(&b, (uint64_t)((double)ns * by), now);
            now += S / per;
            c = turn(0);
            last = c ? c : last;
        }
    }
    return last;
}

static unsigned all_said(void)
{
    unsigned n = 0;

    for (int c = R2_BAND_NONE + 1; c < R2_BAND_CHANGES; c++) {
        n += said[c];
    }
    return n;
}

START_TEST(quantiles_of_a_window)
{
    for (unsigned i = 1; i <= 100; i++) {
        r2_band_note(&b, (100 - i + 1) * MS, now);
    }
    ck_assert_int_eq(turn(0), R2_BAND_NONE);
    ck_assert_uint_eq(b.last.at, 0); /* not a second old */
    now += S;
    turn(0);
    ck_assert_uint_eq(b.last.p50, 50 * MS);
    ck_assert_uint_eq(b.last.p99, 99 * MS);
    ck_assert_uint_eq(b.last.n, 100);
    ck_assert_uint_eq(b.last.at, now);
    ck_assert_uint_eq(b.times, 100);
}
END_TEST

/* Of more than it keeps, the last ones. */
START_TEST(a_full_window_has_the_last_ones)
{
    for (unsigned i = 0; i < R2_BAND_KEEP; i++) {
        r2_band_note(&b, 90 * MS, now);
    }
    for (unsigned i = 0; i < R2_BAND_KEEP; i++) {
        r2_band_note(&b, 5 * MS, now);
    }
    now += S;
    turn(0);
    ck_assert_uint_eq(b.last.p99, 5 * MS);
    ck_assert_uint_eq(b.last.n, R2_BAND_KEEP);
    ck_assert_uint_eq(b.times, 2 * R2_BAND_KEEP);
}
END_TEST

START_TEST(few_times_make_a_window_later)
{
    for (unsigned i = 0; i < R2_BAND_FEW; i++) {
        r2_band_note(&b, 7 * MS, now);
    }
    now += 9 * S;
    turn(0);
    ck_assert_uint_eq(b.last.at, 0);
    now += S;
    turn(0);
    ck_assert_uint_eq(b.last.p50, 7 * MS);
    setup();
    for (unsigned i = 0; i + 1 < R2_BAND_FEW; i++) {
        r2_band_note(&b, 7 * MS, now);
    }
    now += 100 * S;
    turn(0);
    ck_assert_uint_eq(b.last.at, 0);
}
END_TEST

/* 1,000 s each. */
START_TEST(jitter_is_no_change)
{
    static const uint64_t ns[] = {20 * US, 800 * US, 5 * MS, 20 * MS, 300 * MS};
    static const unsigned per[] = {2, 16, 100};

    for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
        for (size_t k = 0; k < sizeof(per) / sizeof(per[0]); k++) {
            setup();
            srand48((long)(i + 10 * k));
            run(1000, per[k], ns[i], 20);
            ck_assert_uint_eq(all_said(), 0);
            ck_assert_uint_eq(b.state, R2_BAND_INSIDE);
        }
    }
}
END_TEST

START_TEST(a_delay_leaves_the_band_and_comes_back)
{
    uint64_t low, high;

    run(20, 50, 40 * US, 20);
    r2_band_bounds(&b, &low, &high);
    ck_assert_uint_eq(low, 0);
    ck_assert_uint_ge(high, R2_BAND_SLACK);
    ck_assert_uint_le(high, R2_BAND_SLACK + 60 * US);
    ck_assert_int_eq(run(5, 50, 10 * MS, 20), R2_BAND_SLOWER);
    ck_assert_uint_eq(b.state, R2_BAND_ABOVE);
    run(60, 50, 10 * MS, 20);
    ck_assert_uint_eq(all_said(), 1); /* and not again */
    ck_assert_int_eq(run(5, 50, 40 * US, 20), R2_BAND_BACK);
    ck_assert_uint_eq(all_said(), 2);
}
END_TEST

START_TEST(shorter_is_a_change_too)
{
    run(20, 50, 30 * MS, 20);
    ck_assert_int_eq(run(5, 50, 10 * MS, 20), R2_BAND_FASTER);
    ck_assert_uint_eq(b.state, R2_BAND_BELOW);
    run(40, 50, 10 * MS, 20);
    ck_assert_int_eq(run(5, 50, 30 * MS, 20), R2_BAND_BACK);
    ck_assert_uint_eq(all_said(), 2);
}
END_TEST

/* Two windows that are late, then one that is not: a burst. */
START_TEST(a_burst_is_no_change)
{
    run(20, 50, 10 * MS, 0);
    for (int i = 0; i < 20; i++) {
        run(2, 50, 100 * MS, 0);
        run(1, 50, 10 * MS, 0);
    }
    ck_assert_uint_eq(all_said(), 0);
}
END_TEST

/* What is at the bound of the band leaves it once, and is back only well inside. */
START_TEST(at_the_bound_it_does_not_go_to_and_fro)
{
    run(20, 50, 10 * MS, 0);
    run(40, 50, 16 * MS, 0);
    ck_assert_uint_eq(all_said(), 1);
    run(100, 50, 14 * MS, 0); /* inside, and not half way back */
    ck_assert_uint_eq(all_said(), 1);
    ck_assert_uint_eq(b.state, R2_BAND_ABOVE);
    ck_assert_int_eq(run(5, 50, 12 * MS, 0), R2_BAND_BACK);
}
END_TEST

/* To and fro every ten seconds: an announcement each half minute at the most. */
START_TEST(announcements_keep_their_distance)
{
    run(20, 50, 1 * MS, 0);
    for (int i = 0; i < 60; i++) {
        run(10, 50, i % 2 ? 1 * MS : 20 * MS, 0);
    }
    ck_assert_uint_ge(all_said(), 2);
    ck_assert_uint_le(all_said(), 1 + 600 * S / R2_BAND_PAUSE);
}
END_TEST

START_TEST(what_is_muted_stays_due)
{
    run(20, 50, 1 * MS, 0);
    for (int i = 0; i < 250; i++) {
        r2_band_note(&b, 20 * MS, now);
        now += S / 50;
        ck_assert_int_eq(turn(1), R2_BAND_NONE);
    }
    ck_assert_uint_eq(b.state, R2_BAND_ABOVE);
    ck_assert_int_eq(turn(0), R2_BAND_SLOWER);
    /* what is over before it could be said is not said */
    setup();
    run(20, 50, 1 * MS, 0);
    for (int i = 0; i < 500; i++) {
        r2_band_note(&b, i < 250 ? 20 * MS : 1 * MS, now);
        now += S / 50;
        turn(1);
    }
    ck_assert_int_eq(turn(0), R2_BAND_NONE);
}
END_TEST

START_TEST(that_it_is_usual_now_may_be_muted_too)
{
    run(20, 50, 1 * MS, 0);
    ck_assert_int_eq(run(5, 50, 20 * MS, 0), R2_BAND_SLOWER);
    for (uint64_t end = now + R2_BAND_STAYS + 10 * S; now < end; now += S / 20) {
        r2_band_note(&b, 20 * MS, now);
        ck_assert_int_eq(turn(1), R2_BAND_NONE);
    }
    ck_assert_uint_eq(b.state, R2_BAND_ABOVE);
    ck_assert_int_eq(turn(0), R2_BAND_USUAL);
    ck_assert_uint_eq(b.state, R2_BAND_LEARNS);
}
END_TEST

/* After ten minutes that is the usual, and a return to what was is a change. */
START_TEST(what_stays_becomes_usual)
{
    uint64_t low, high;

    run(20, 50, 1 * MS, 0);
    ck_assert_int_eq(run(700, 50, 20 * MS, 20), R2_BAND_USUAL);
    ck_assert_uint_eq(all_said(), 2);
    r2_band_bounds(&b, &low, &high);
    ck_assert_uint_lt(low, 20 * MS);
    ck_assert_uint_gt(low, 12 * MS);
    ck_assert_uint_gt(high, 20 * MS);
    ck_assert_int_eq(run(10, 50, 1 * MS, 0), R2_BAND_FASTER);
}
END_TEST

START_TEST(sizes_and_names)
{
    ck_assert_int_eq(r2_band_size(0), R2_BAND_16K);
    ck_assert_int_eq(r2_band_size(16384), R2_BAND_16K);
    ck_assert_int_eq(r2_band_size(16385), R2_BAND_128K);
    ck_assert_int_eq(r2_band_size(131072), R2_BAND_128K);
    ck_assert_int_eq(r2_band_size(131073), R2_BAND_1M);
    ck_assert_int_eq(r2_band_size(1048576), R2_BAND_1M);
    ck_assert_int_eq(r2_band_size(1048577), R2_BAND_MORE);
    ck_assert_int_eq(r2_band_size(UINT64_MAX), R2_BAND_MORE);
    for (unsigned i = 0; i < R2_BAND_SIZES; i++) {
        ck_assert_str_ne(r2_band_size_name(i), "?");
    }
    for (unsigned i = 0; i < R2_BAND_STATES; i++) {
        ck_assert_str_ne(r2_band_state_name(i), "?");
    }
    for (unsigned i = 0; i < R2_BAND_CHANGES; i++) {
        ck_assert_str_ne(r2_band_change_name(i), "?");
    }
    ck_assert_str_eq(r2_band_size_name(R2_BAND_SIZES), "?");
    ck_assert_str_eq(r2_band_state_name(R2_BAND_STATES), "?");
    ck_assert_str_eq(r2_band_change_name(R2_BAND_CHANGES), "?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, quantiles_of_a_window);
    tcase_add_test(t, a_full_window_has_the_last_ones);
    tcase_add_test(t, few_times_make_a_window_later);
    tcase_add_test(t, jitter_is_no_change);
    tcase_add_test(t, a_delay_leaves_the_band_and_comes_back);
    tcase_add_test(t, shorter_is_a_change_too);
    tcase_add_test(t, a_burst_is_no_change);
    tcase_add_test(t, at_the_bound_it_does_not_go_to_and_fro);
    tcase_add_test(t, announcements_keep_their_distance);
    tcase_add_test(t, what_is_muted_stays_due);
    tcase_add_test(t, that_it_is_usual_now_may_be_muted_too);
    tcase_add_test(t, what_stays_becomes_usual);
    tcase_add_test(t, sizes_and_names);
}

int main(void)
{
    return suite_run("band", 60, setup, teardown, add);
}
