/* What the lab's switch decides about a frame: impairments, spines, pace; no process. */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lab/lab_impair.h"
#include "tests/lab/lab_roce.h"
#include "tests/lab/lab_spine.h"
#include "tests/lab/lab_util.h"
#include "tests/unit/suite.h"

static const char *parse(struct lab_impair im[LAB_DIRS], const char *text)
{
    static char copy[128];
    char *word[8], *save = NULL, *w;
    int n = 0;

    snprintf(copy, sizeof(copy), "%s", text);
    for (w = strtok_r(copy, " ", &save); w != NULL && n < 8; w = strtok_r(NULL, " ", &save)) {
        word[n++] = w;
    }
    return lab_impair_parse(word, n, im);
}

static const struct {
    const char *text, *state;
} good[] = {
    {"cut", "out cut, in cut"},
    {"cut both", "out cut, in cut"},
    {"cut in", "in cut"},
    {"cut out", "out cut"},
    {"loss 1", "out loss 1%, in loss 1%"},
    {"loss 0.1 in", "in loss 0.1%"},
    {"dup 5 out", "out dup 5%"},
    {"corrupt 100 out", "out corrupt 100%"},
    {"delay 2.5 in", "in delay 2.5ms"},
    {"rate 20", "out rate 20Mbit, in rate 20Mbit"},
    {"rate 0", "healthy"},
    {"heal", "healthy"},
};

START_TEST(what_is_parsed_is_printed)
{
    struct lab_impair im[LAB_DIRS] = {0};
    char state[256];

    ck_assert_ptr_null(parse(im, good[_i].text));
    lab_impair_print(im, state, sizeof(state));
    ck_assert_str_eq(state, good[_i].state);
}
END_TEST

static const char *const bad[] = {"",          "cut 1",    "cut up",  "cut in out", "loss",
                                  "loss x",    "loss 101", "loss -1", "loss nan",   "rate 1M",
                                  "delay 1 2", "heal in",  "burn"};

START_TEST(what_is_wrong_is_refused_and_changes_nothing)
{
    struct lab_impair im[LAB_DIRS] = {{.cut = true}, {.loss = 0.5}}, before[LAB_DIRS];

    memcpy(before, im, sizeof(im));
    ck_assert_ptr_nonnull(parse(im, bad[_i]));
    ck_assert_mem_eq(im, before, sizeof(im));
}
END_TEST

START_TEST(impairments_add_up_and_heal_ends_all)
{
    struct lab_impair im[LAB_DIRS] = {0};
    char state[256];

    ck_assert_ptr_null(parse(im, "cut in"));
    ck_assert_ptr_null(parse(im, "loss 2"));
    ck_assert_ptr_null(parse(im, "rate 10 out"));
    lab_impair_print(im, state, sizeof(state));
    ck_assert_str_eq(state, "out loss 2% rate 10Mbit, in cut loss 2%");
    ck_assert_ptr_null(parse(im, "heal"));
    lab_impair_print(im, state, sizeof(state));
    ck_assert_str_eq(state, "healthy");
}
END_TEST

START_TEST(decisions_are_as_frequent_as_asked_and_repeatable)
{
    const struct lab_impair im = {.loss = 0.1, .dup = 0.2, .corrupt = 0.3, .delay_ns = 7};
    uint64_t rng = 42, again = 42;
    int n = 100000, loss = 0, dup = 0, corrupt = 0, i;

    for (i = 0; i < n; i++) {
        struct lab_verdict v = lab_impair_decide(&im, &rng), w = lab_impair_decide(&im, &again);
        ck_assert(v.what == w.what && v.twice == w.twice && v.corrupt == w.corrupt);
        ck_assert_uint_eq(v.delay_ns, 7);
        loss += v.what == LAB_DROP_LOSS;
        dup += v.twice;
        corrupt += v.corrupt;
    }
    ck_assert_int_lt(abs(loss - n / 10), n / 100);
    ck_assert_int_lt(abs(dup - n * 9 / 10 / 5), n / 100);
    ck_assert_int_lt(abs(corrupt - n * 9 / 10 * 3 / 10), n / 100);
}
END_TEST

/* The same in both directions, others for other ports and other NICs, each as often. */
START_TEST(spines_are_chosen_by_the_source_port)
{
    int seen[LAB_SPINES] = {0}, differ = 0, n = 4096;
    uint8_t f[ROCE_LEN], back[ROCE_LEN], other[ROCE_LEN];

    for (int i = 0; i < n; i++) {
        unsigned sport = 0xc000 + (unsigned)i;
        int k;

        roce_make(f, 1, 2, sport);
        roce_make(back, 2, 1, sport);
        roce_make(other, 1, 3, sport);
        k = lab_spine_of(f, sizeof(f));
        ck_assert(k >= 0 && k < LAB_SPINES);
        ck_assert_int_eq(lab_spine_of(back, sizeof(back)), k);
        differ += lab_spine_of(other, sizeof(other)) != k;
        seen[k]++;
    }
    for (int k = 0; k < LAB_SPINES; k++) {
        ck_assert_int_lt(abs(seen[k] - n / LAB_SPINES), n / LAB_SPINES / 4);
    }
    ck_assert_int_gt(differ, n / 2);
}
END_TEST

START_TEST(what_is_no_roce_meets_no_spine)
{
    static const struct {
        size_t at;
        uint8_t byte;
    } wrong[] = {{12, 0x86}, {13, 6}, {14, 0x65}, {14, 0x44}, {14, 0x4f}, {23, 6}, {37, 53}};
    uint8_t f[ROCE_LEN];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        roce_make(f, 1, 2, 0xc001);
        f[wrong[i].at] = wrong[i].byte;
        ck_assert_int_eq(lab_spine_of(f, sizeof(f)), -1);
    }
    roce_make(f, 1, 2, 0xc001);
    for (size_t len = 0; len < 42; len++) {
        ck_assert_int_eq(lab_spine_of(f, len), -1);
    }
    ck_assert_int_ge(lab_spine_of(f, 42), 0);
}
END_TEST

START_TEST(corruption_is_one_bit_behind_the_headers)
{
    uint8_t frame[200], clean[200] = {0};
    uint64_t rng = 7;
    int round, bits;
    size_t i, at = 0;

    for (round = 0; round < 1000; round++) {
        memset(frame, 0, sizeof(frame));
        lab_frame_corrupt(frame, sizeof(frame), &rng);
        for (bits = 0, i = 0; i < sizeof(frame); i++) {
            bits += __builtin_popcount((unsigned)(frame[i] ^ clean[i]));
            at = frame[i] != 0 ? i : at;
        }
        ck_assert_int_eq(bits, 1);
        ck_assert_uint_ge(at, 54);
    }
}
END_TEST

START_TEST(pace_makes_up_for_a_late_waker)
{
    struct lab_pace p = {0};
    uint64_t now = 5 * LAB_NS_PER_S, start = now;
    int i;

    /* 1000 frames of 2500 bytes at 20 Mbit/s take 1 s, though each is started up to 0.5 ms late. */
    for (i = 0; i < 1000; i++) {
        if (!lab_pace_ready(&p, now)) {
            now = p.free_at + (uint64_t)(i % 6) * 100000;
        }
        lab_pace_take(&p, now, 2500, 20000000);
    }
    ck_assert_uint_ge(p.free_at - start, LAB_NS_PER_S - LAB_NS_PER_MS);
    ck_assert_uint_le(p.free_at - start, LAB_NS_PER_S + LAB_NS_PER_MS);
    /* Idle time is not saved up. */
    now += LAB_NS_PER_S;
    lab_pace_take(&p, now, 2500, 20000000);
    ck_assert_uint_eq(p.free_at, now + LAB_NS_PER_MS);
}
END_TEST
static void add(TCase *t)
{
    tcase_add_loop_test(t, what_is_parsed_is_printed, 0, sizeof(good) / sizeof(good[0]));
    tcase_add_loop_test(t, what_is_wrong_is_refused_and_changes_nothing, 0,
                        sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(t, impairments_add_up_and_heal_ends_all);
    tcase_add_test(t, decisions_are_as_frequent_as_asked_and_repeatable);
    tcase_add_test(t, spines_are_chosen_by_the_source_port);
    tcase_add_test(t, what_is_no_roce_meets_no_spine);
    tcase_add_test(t, corruption_is_one_bit_behind_the_headers);
    tcase_add_test(t, pace_makes_up_for_a_late_waker);
}

int main(void)
{
    return suite_run("lab_impair", 60, NULL, NULL, add);
}
