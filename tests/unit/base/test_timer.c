/* Deadlines against a plain array. */
#include <string.h>

#include "plugin/base/r2_timer.h"
#include "tests/unit/suite.h"

#define N 200

static struct r2_timers heap;
static struct r2_timer timer[N];
static uint64_t at[N]; /* UINT64_MAX: not set */

static void begin(void)
{
    memset(&heap, 0, sizeof(heap));
    memset(timer, 0, sizeof(timer));
    for (int i = 0; i < N; i++) {
        at[i] = UINT64_MAX;
    }
}

static void set(unsigned i, uint64_t when)
{
    r2_timer_set(&heap, &timer[i], when);
    at[i] = when;
}

static uint64_t earliest(void)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < N; i++) {
        least = at[i] < least ? at[i] : least;
    }
    return least;
}

/* How many are due by @now; each of them is the earliest when it is taken. */
static int take_due(uint64_t now)
{
    struct r2_timer *t;
    int n = 0;

    while ((t = r2_timers_take(&heap, now)) != NULL) {
        long i = t - timer;

        ck_assert(i >= 0 && i < N && !t->is_set);
        ck_assert_uint_eq(at[i], earliest());
        ck_assert_uint_le(at[i], now);
        at[i] = UINT64_MAX;
        n++;
    }
    ck_assert(earliest() > now);
    return n;
}

START_TEST(none_is_set)
{
    begin();
    ck_assert_uint_eq(r2_timers_next(&heap), UINT64_MAX);
    ck_assert_ptr_null(r2_timers_take(&heap, UINT64_MAX - 1));
    set(0, UINT64_MAX);
    ck_assert_uint_eq(r2_timers_next(&heap), UINT64_MAX);
}
END_TEST

START_TEST(one_that_is_set_twice_is_taken_once)
{
    begin();
    set(3, 10);
    set(3, 30);
    set(3, 30);
    set(4, 20);
    ck_assert_uint_eq(r2_timers_next(&heap), 20);
    ck_assert_int_eq(take_due(15), 0);
    ck_assert_int_eq(take_due(30), 2);
    ck_assert_uint_eq(r2_timers_next(&heap), UINT64_MAX);
}
END_TEST

START_TEST(one_that_is_taken_back_is_not_due)
{
    begin();
    for (unsigned i = 0; i < 9; i++) {
        set(i, 9 - i);
    }
    ck_assert_ptr_nonnull(r2_timers_take(&heap, 1)); /* the others are children of children now */
    at[8] = UINT64_MAX;
    for (unsigned i = 0; i < 8; i += 2) {
        set(i, UINT64_MAX);
    }
    ck_assert_int_eq(take_due(9), 4);
}
END_TEST

/* Everything at once, in random order, many times; and every step agrees with the array. */
START_TEST(as_an_array_does_it)
{
    uint64_t seed = (uint64_t)_i + 1, now = 0, taken = 0, back = 0;

    begin();
    for (int k = 0; k < 20000; k++) {
        unsigned i;

        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        i = (unsigned)(seed >> 33) % N;
        switch (seed >> 60) {
        case 0:
            now += (seed >> 40) % 50;
            taken += (uint64_t)take_due(now);
            break;
        case 1:
            back += timer[i].is_set;
            set(i, UINT64_MAX);
            break;
        default:
            set(i, now + (seed >> 45) % 400);
            break;
        }
        ck_assert_uint_eq(r2_timers_next(&heap), earliest());
    }
    ck_assert_uint_gt(taken, 1000);
    ck_assert_uint_gt(back, 300);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(timer[i].is_set, at[i] != UINT64_MAX);
    }
    take_due(UINT64_MAX - 1);
    ck_assert_ptr_null(heap.root);
}
END_TEST

/* A walk for each would take minutes. */
START_TEST(many_are_taken_in_order)
{
    static struct r2_timer many[100000];
    uint64_t last = 0;
    struct r2_timer *t;
    size_t n = 0;

    begin();
    memset(many, 0, sizeof(many));
    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        r2_timer_set(&heap, &many[i], 1 + i * 7919 % 100003);
    }
    while ((t = r2_timers_take(&heap, UINT64_MAX - 1)) != NULL) {
        ck_assert_uint_ge(t->at, last);
        last = t->at;
        n++;
    }
    ck_assert_uint_eq(n, sizeof(many) / sizeof(many[0]));
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, none_is_set);
    tcase_add_test(t, one_that_is_set_twice_is_taken_once);
    tcase_add_test(t, one_that_is_taken_back_is_not_due);
    tcase_add_loop_test(t, as_an_array_does_it, 0, 20);
    tcase_add_test(t, many_are_taken_in_order);
}

int main(void)
{
    return suite_run("timer", 60, NULL, NULL, add);
}
