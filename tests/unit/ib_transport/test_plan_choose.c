/* Several queue pairs over a NIC pair, whole messages: which one takes the next of them. */
#include "tests/unit/suite.h"

#include "ib_transport/r2_plan.h"

#include <stdlib.h>
#include <string.h>

#define SIZE   65536u
#define WINDOW 8
#define NS     10000ull /* of a message on a way that nothing crowds */

/* A connection whose paths carry one message after the other, each at a rate of its own. */
struct world {
    struct r2_plan plan;
    struct r2_plan_load load;
    struct r2_plan_seen seen;
    uint64_t ns[R2_PLAN_PATHS], free_at[R2_PLAN_PATHS]; /* of a message; when the last is through */
    struct {
        int path;
        uint64_t at;
    } out[WINDOW];
    unsigned n_out, carried[R2_PLAN_PATHS];
};

static void world_make(struct world *w, int paths)
{
    memset(w, 0, sizeof(*w));
    w->plan.whole = 1;
    w->plan.n = (uint8_t)paths;
    w->seen.n = paths;
    w->seen.now = 1000000000;
    for (int p = 0; p < paths; p++) {
        w->plan.path[p] = (uint8_t)p;
        w->plan.weight[p] = 1;
        w->ns[p] = NS;
    }
}

/* Until the first of what is under way is through. */
static void world_wait(struct world *w)
{
    unsigned first = 0;

    for (unsigned k = 1; k < w->n_out; k++) {
        first = w->out[k].at < w->out[first].at ? k : first;
    }
    w->seen.now = w->out[first].at;
    w->seen.done[w->out[first].path] += SIZE;
    w->out[first] = w->out[--w->n_out];
}

static int world_post(struct world *w)
{
    uint32_t chosen = r2_plan_choose(&w->plan, &w->load, ~0u, SIZE, &w->seen);
    int p = __builtin_ctz(chosen);

    ck_assert_int_eq(__builtin_popcount(chosen), 1);
    if (w->free_at[p] < w->seen.now) {
        w->free_at[p] = w->seen.now;
    }
    w->free_at[p] += w->ns[p];
    w->seen.posted[p] += SIZE;
    w->out[w->n_out].path = p;
    w->out[w->n_out++].at = w->free_at[p];
    w->carried[p]++;
    return p;
}

/* A window of messages all the time. Returns messages per NS. */
static double world_stream(struct world *w, unsigned messages)
{
    uint64_t from = w->seen.now;

    memset(w->carried, 0, sizeof(w->carried));
    for (unsigned i = 0; i < messages; i++) {
        if (w->n_out == WINDOW) {
            world_wait(w);
        }
        world_post(w);
    }
    return (double)messages * NS / (double)(w->seen.now - from);
}

static void world_rest(struct world *w)
{
    while (w->n_out) {
        world_wait(w);
    }
}

/* Three paths over pair 0, one over pair 5: large messages are cut over the pairs, half and half.
 */
START_TEST(of_each_pair_one)
{
    struct r2_plan plan = {
        .n = 4, .path = {0, 1, 2, 5}, .weight = {1, 1, 1, 1}, .pair = {0, 0, 0, 5}, .whole = 1};
    struct r2_plan_load load = {0};
    struct r2_plan_seen seen = {.n = R2_PLAN_PATHS};
    struct r2_stripe c;
    int of[R2_PLAN_PATHS] = {0};

    for (int i = 0; i < 600; i++) {
        uint32_t chosen = r2_plan_choose(&plan, &load, ~0u, 1 << 20, &seen);

        ck_assert(chosen >> 5 == 1 && __builtin_popcount(chosen & 7) == 1);
        r2_plan_stripe(&plan, chosen, 1 << 20, 65536, 1u << 30, &c);
        ck_assert_int_eq(c.nparts, 2);
        ck_assert_uint_eq(c.len[0], 1 << 19);
        seen.posted[c.path[0]] += 1 << 19;
        seen.posted[c.path[1]] += 1 << 19;
        of[c.path[0]]++;
    }
    for (int p = 0; p < 3; p++) { /* nothing gets through: all are as good */
        ck_assert_msg(of[p] > 100, "path %d has %d", p, of[p]);
    }
    ck_assert_uint_eq(r2_plan_choose(&plan, &load, 2, SIZE, &seen), 2);
    ck_assert_uint_eq(r2_plan_choose(&plan, &load, 33, SIZE, &seen), 33);
    ck_assert_uint_eq(r2_plan_choose(&plan, &load, 32, SIZE, &seen), 32);
    ck_assert_uint_eq(r2_plan_choose(&plan, &load, 8, SIZE, &seen), 0); /* not of the plan */
}
END_TEST

/* Small messages, which are not cut, go to the pairs by weight as without. */
START_TEST(pairs_take_small_messages_by_weight)
{
    struct r2_plan plan = {
        .n = 4, .path = {0, 1, 2, 5}, .weight = {1, 1, 1, 1}, .pair = {0, 0, 0, 5}, .whole = 1};
    struct r2_plan_load load = {0};
    struct r2_plan_seen seen = {.n = R2_PLAN_PATHS};
    struct r2_stripe c;
    int second = 0;

    for (int i = 0; i < 600; i++) {
        uint32_t chosen = r2_plan_choose(&plan, &load, ~0u, 100, &seen);

        r2_plan_stripe(&plan, chosen, 100, 65536, 1u << 30, &c);
        ck_assert_int_eq(c.nparts, 1);
        seen.posted[c.path[0]] += 100;
        second += c.path[0] == 5;
    }
    ck_assert_msg(abs(second - 300) <= 3, "%d of 600", second);
}
END_TEST

/* Three are under way on a path before the next one is taken, where all are alike. */
START_TEST(turns_are_of_three_messages)
{
    static const int path[WINDOW] = {1, 1, 1, 2, 2, 2, 0, 0};
    struct world w;

    world_make(&w, 3);
    for (int i = 0; i < WINDOW; i++) {
        ck_assert_int_eq(world_post(&w), path[i]);
    }
}
END_TEST

/* One message at a time: each goes over the next one. */
START_TEST(single_messages_take_turns)
{
    struct world w;

    world_make(&w, 4);
    for (int i = 1; i <= 100; i++) {
        ck_assert_int_eq(world_post(&w), i % 4);
        world_rest(&w);
    }
}
END_TEST

START_TEST(equal_ways_carry_alike)
{
    struct world w;

    world_make(&w, 4);
    ck_assert_double_gt(world_stream(&w, 4000), 3.8);
    for (int p = 0; p < 4; p++) {
        ck_assert_msg(w.carried[p] > 900 && w.carried[p] < 1100, "path %d: %u", p, w.carried[p]);
    }
}
END_TEST

/* In turn, four paths carry four times what the slowest one does: here one message per NS. */
START_TEST(crowded_way_gets_less)
{
    struct world w;

    world_make(&w, 4);
    w.ns[2] = 4 * NS;
    ck_assert_double_gt(world_stream(&w, 4000), 2.9);
    ck_assert_msg(w.carried[2] < 400, "%u of 4000", w.carried[2]);
}
END_TEST

/* Ten times as slow: rather behind a message on the other one. */
START_TEST(slow_way_is_left_though_it_is_idle)
{
    struct world w;

    world_make(&w, 2);
    w.load.path[0].moved = w.load.path[1].moved = 4 * SIZE;
    w.load.path[0].busy = 40 * NS;
    w.load.path[1].busy = 4 * NS;
    w.seen.posted[1] = SIZE;
    ck_assert_uint_eq(r2_plan_choose(&w.plan, &w.load, ~0u, SIZE, &w.seen), 2);
}
END_TEST

START_TEST(time_counts_from_the_choice_on)
{
    struct world w;
    int p;

    world_make(&w, 2);
    p = world_post(&w);
    w.seen.now += 3 * NS;
    w.seen.posted[p] += SIZE;
    w.seen.done[p] += SIZE;
    r2_plan_choose(&w.plan, &w.load, ~0u, SIZE, &w.seen);
    ck_assert_uint_eq(w.load.path[p].busy, 3 * NS);
    ck_assert_uint_eq(w.load.path[p].moved, SIZE);
    ck_assert_uint_eq(w.load.path[!p].busy, 0);
}
END_TEST

/* Also one that was slow beyond measure. */
START_TEST(way_that_is_free_again_is_found)
{
    struct world w;

    world_make(&w, 4);
    w.ns[1] = 50 * NS;
    world_stream(&w, 2000);
    ck_assert_msg(w.carried[1] < 100, "%u of 2000", w.carried[1]);
    w.ns[1] = NS;
    world_stream(&w, 1000);
    world_stream(&w, 1000);
    ck_assert_msg(w.carried[1] > 200, "%u of 1000", w.carried[1]);
}
END_TEST

/* After an operation nothing is under way until the next one: that slows no path. */
START_TEST(pauses_do_not_count)
{
    struct world w;
    int p;

    world_make(&w, 2);
    world_stream(&w, 200);
    world_rest(&w);
    p = world_post(&w);
    world_post(&w);
    world_rest(&w);
    w.seen.now += 1000000000;
    world_stream(&w, 64);
    ck_assert_msg(w.carried[p] >= 20, "path %d: %u of 64", p, w.carried[p]);
}
END_TEST

/* One stands still, be it for ever: the others carry. */
START_TEST(standstill_takes_no_window)
{
    struct world w;

    world_make(&w, 4);
    world_stream(&w, 400);
    w.ns[0] = 3600ull * 1000000000;
    world_stream(&w, 4000);
    ck_assert_msg(w.carried[0] <= WINDOW / 2, "%u of 4000", w.carried[0]);
}
END_TEST

/* A path that has returned counts its bytes from 0: nothing is known of it, which is not that it is
 * fast. */
START_TEST(returned_path_is_a_new_one)
{
    struct world w;

    world_make(&w, 2);
    world_stream(&w, 400);
    ck_assert_uint_gt(w.load.path[1].out + w.load.path[0].out, 0);
    for (int p = 0; p < 2; p++) {
        w.load.path[p].out = SIZE; /* as it was seen last */
    }
    for (unsigned k = 0; k < w.n_out;) {
        if (w.out[k].path == 1) {
            w.out[k] = w.out[--w.n_out];
        } else {
            k++;
        }
    }
    w.seen.posted[1] = w.seen.done[1] = 0;
    w.free_at[1] = w.seen.now;
    world_stream(&w, 60);
    ck_assert_uint_gt(w.carried[0], 20);
    ck_assert_uint_gt(w.carried[1], 20);
}
END_TEST

/* Both have stood for a day, and the one has 64 times as much under way. */
START_TEST(large_numbers_do_not_run_over)
{
    struct world w;

    world_make(&w, 2);
    for (int p = 0; p < 2; p++) {
        w.load.path[p].busy = 86400ull * 1000000000;
        w.load.path[p].moved = 1;
        w.seen.posted[p] = p ? 1ull << 30 : 1ull << 36;
    }
    ck_assert_uint_eq(r2_plan_choose(&w.plan, &w.load, ~0u, SIZE, &w.seen), 2);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, of_each_pair_one);
    tcase_add_test(t, pairs_take_small_messages_by_weight);
    tcase_add_test(t, turns_are_of_three_messages);
    tcase_add_test(t, single_messages_take_turns);
    tcase_add_test(t, equal_ways_carry_alike);
    tcase_add_test(t, crowded_way_gets_less);
    tcase_add_test(t, slow_way_is_left_though_it_is_idle);
    tcase_add_test(t, time_counts_from_the_choice_on);
    tcase_add_test(t, way_that_is_free_again_is_found);
    tcase_add_test(t, pauses_do_not_count);
    tcase_add_test(t, standstill_takes_no_window);
    tcase_add_test(t, returned_path_is_a_new_one);
    tcase_add_test(t, large_numbers_do_not_run_over);
}

int main(void)
{
    return suite_run("plan_choose", 60, NULL, NULL, add);
}
