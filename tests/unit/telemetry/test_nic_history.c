/* The history of NICs: what is one failure, what a flap, from when on a NIC is to be drained; and
 * that its text is taken back as it was written, or not at all. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/base/r2_fnv.h"
#include "plugin/telemetry/r2_nic_history.h"
#include "tests/unit/suite.h"

#define HOUR 3600ull
#define DAY  (24 * HOUR)

static struct r2_nic_history h, again;
static struct r2_nic_judged j;
static char text[R2_NIC_HISTORY_TEXT];
static uint64_t now;

static void setup(void)
{
    memset(&h, 0, sizeof(h));
    now = 480000 * HOUR + 600;
}

static void teardown(void)
{
}

static void failed(uint64_t guid, uint64_t at, uint32_t job)
{
    r2_nic_history_note(&h, &(struct r2_nic_note){.fact = R2_NIC_FAILED,
                                                  .guid = guid,
                                                  .port = 1,
                                                  .name = "mlx5_0",
                                                  .at = at,
                                                  .job = job});
}

static void slow(uint64_t at, const char *peer)
{
    struct r2_nic_note n = {.fact = R2_NIC_SLOW, .guid = 1, .port = 1, .name = "mlx5_0", .at = at};

    snprintf(n.peer, sizeof(n.peer), "%s", peer);
    r2_nic_history_note(&h, &n);
}

static enum r2_nic_verdict judged(void)
{
    r2_nic_history_judge(&h.nic[0], now, &j);
    return j.verdict;
}

/* Eight processes of a job see one failure, within a second or so. */
START_TEST(one_failure_that_many_see_is_one)
{
    for (int i = 0; i < 8; i++) {
        failed(1, now + (uint64_t)(i % 3), 7);
    }
    ck_assert_uint_eq(h.nics, 1);
    ck_assert_int_eq(judged(), R2_NIC_WATCH);
    ck_assert_uint_eq(j.failures, 1);
    ck_assert_uint_eq(j.flaps, 0);
    ck_assert_uint_eq(j.jobs, 1);
    ck_assert_str_eq(j.why, "");
}
END_TEST

START_TEST(soon_again_is_a_flap_later_a_failure)
{
    failed(1, now, 7);
    failed(1, now + R2_NIC_HISTORY_SAME + 1, 7);
    failed(1, now + R2_NIC_HISTORY_SAME + 1 + R2_NIC_HISTORY_FLAP, 7);
    failed(1, now + R2_NIC_HISTORY_SAME + 2 + 2 * R2_NIC_HISTORY_FLAP, 7);
    judged();
    ck_assert_uint_eq(j.failures, 2);
    ck_assert_uint_eq(j.flaps, 2);
    ck_assert_uint_eq(j.failed_hours, 1);
}
END_TEST

START_TEST(nics_are_told_apart)
{
    failed(1, now, 7);
    failed(2, now, 7);
    r2_nic_history_note(&h,
                        &(struct r2_nic_note){.guid = 1, .port = 2, .name = "b c\x01", .at = now});
    ck_assert_uint_eq(h.nics, 3);
    ck_assert_str_eq(h.nic[2].name, "b_c_");
}
END_TEST

START_TEST(three_jobs_are_a_drain)
{
    failed(1, now - 100, 1);
    failed(1, now - 90, 1);
    failed(1, now - 50, 2);
    ck_assert_int_eq(judged(), R2_NIC_WATCH);
    failed(1, now, 3);
    ck_assert_int_eq(judged(), R2_NIC_DRAIN);
    ck_assert_str_eq(j.why, "failed in 3 jobs in 7 days");
}
END_TEST

START_TEST(three_hours_are_a_drain)
{
    failed(1, now - 5 * HOUR, 1);
    failed(1, now - 3 * HOUR, 1);
    ck_assert_int_eq(judged(), R2_NIC_WATCH);
    failed(1, now, 1);
    ck_assert_int_eq(judged(), R2_NIC_DRAIN);
    ck_assert_str_eq(j.why, "failed in 3 hours in 7 days");
}
END_TEST

START_TEST(ten_flaps_are_a_drain)
{
    for (unsigned i = 0; i < R2_NIC_DRAIN_FLAPS; i++) {
        failed(1, now - 1000 + 10 * i, 1);
    }
    ck_assert_int_eq(judged(), R2_NIC_WATCH); /* the first is none */
    failed(1, now - 1000 + 10 * R2_NIC_DRAIN_FLAPS, 1);
    ck_assert_int_eq(judged(), R2_NIC_DRAIN);
    ck_assert_str_eq(j.why, "flapped 10 times in 24 hours");
    now += DAY;
    ck_assert_int_eq(judged(), R2_NIC_WATCH); /* of yesterday */
}
END_TEST

/* To one peer it may be the peer's. */
START_TEST(slow_to_several_peers_is_a_drain)
{
    for (unsigned i = 0; i < 40; i++) {
        slow(now - i * HOUR, "h1");
    }
    ck_assert_int_eq(judged(), R2_NIC_WATCH);
    ck_assert_uint_eq(j.slow_hours, 0);
    for (unsigned i = 0; i < R2_NIC_DRAIN_SLOW; i++) {
        ck_assert_int_eq(judged(), R2_NIC_WATCH);
        slow(now - i * HOUR, "h2");
    }
    ck_assert_int_eq(judged(), R2_NIC_DRAIN);
    ck_assert_str_eq(j.why, "slow in 6 hours in 7 days");
}
END_TEST

START_TEST(what_is_old_or_of_the_future_does_not_count)
{
    for (uint32_t job = 0; job < 5; job++) {
        failed(1, now - 7 * DAY - job * HOUR, job);
        failed(1, now + 2 * HOUR + job * HOUR, 10 + job);
    }
    ck_assert_int_eq(judged(), R2_NIC_GOOD);
    ck_assert_uint_eq(j.failures, 0);
    ck_assert_uint_eq(j.jobs, 0);
}
END_TEST

/* What was said while the clock was ahead does not make each report a failure of its own. */
START_TEST(a_clock_that_is_set_back)
{
    failed(1, now + 30 * DAY, 1);
    for (int i = 0; i < 8; i++) {
        failed(1, now + (uint64_t)(i % 3), 2);
    }
    failed(1, now + 30, 2);
    judged();
    ck_assert_uint_eq(j.failures, 1);
    ck_assert_uint_eq(j.flaps, 1);
    ck_assert_uint_eq(h.nic[0].failed_at, now + 30);
}
END_TEST

/* More of everything than there is room for. */
START_TEST(its_size_is_bounded)
{
    size_t n;

    for (unsigned nic = 0; nic < 3 * R2_NIC_HISTORY_NICS; nic++) {
        for (unsigned i = 0; i < 2 * R2_NIC_HISTORY_HOURS; i++) {
            failed(UINT64_MAX - nic, (nic + i) * HOUR + 99999999ull * HOUR / 100, 0xfffffff0u - i);
        }
    }
    ck_assert_uint_eq(h.nics, R2_NIC_HISTORY_NICS);
    for (unsigned i = 0; i < h.nics; i++) { /* the last ones stay */
        const struct r2_nic_past *p = &h.nic[i];

        ck_assert_uint_eq(p->hours, R2_NIC_HISTORY_HOURS);
        ck_assert_uint_eq(p->jobs, R2_NIC_HISTORY_JOBS);
        ck_assert_uint_ge(UINT64_MAX - p->guid, 2 * R2_NIC_HISTORY_NICS);
        for (unsigned k = 1; k < p->hours; k++) {
            ck_assert_uint_eq(p->hour[k].hour, p->hour[k - 1].hour + 1);
        }
        for (unsigned k = 0; k < p->hours; k++) {
            struct r2_nic_hour *e = &h.nic[i].hour[k];

            e->failures = e->flaps = 999999999;
            e->slow_to = UINT32_MAX;
        }
    }
    n = r2_nic_history_print(&h, text, sizeof(text));
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(r2_nic_history_parse(text, n, &again), 0);
    ck_assert_int_eq(memcmp(&h, &again, sizeof(h)), 0);
    ck_assert_uint_eq(r2_nic_history_print(&h, text, n), 0); /* not a byte less */
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The service thread reads it: a full one costs some checksums of its text, not one for each line
 * (some 900). */
START_TEST(a_full_one_is_read_in_one_go)
{
    double read = 1e9, sum = 1e9;
    volatile uint32_t hash;
    size_t n;

    for (unsigned nic = 0; nic < R2_NIC_HISTORY_NICS; nic++) {
        for (unsigned i = 0; i < R2_NIC_HISTORY_HOURS; i++) {
            failed(nic + 1, now + i * HOUR, i);
        }
    }
    n = r2_nic_history_print(&h, text, sizeof(text));
    for (int i = 0; i < 5; i++) {
        double from = cpu_seconds(), to;

        ck_assert_int_eq(r2_nic_history_parse(text, n, &again), 0);
        to = cpu_seconds();
        read = to - from < read ? to - from : read;
        hash = r2_fnv_add(R2_FNV_BASIS, text, n);
        from = cpu_seconds();
        sum = from - to < sum ? from - to : sum;
    }
    (void)hash;
    ck_assert_msg(read < 100 * sum, "%.3f ms, a checksum takes %.3f ms", 1e3 * read, 1e3 * sum);
}
END_TEST

/* An hour in the past goes where it belongs. */
START_TEST(hours_are_in_order)
{
    static const unsigned at[] = {5, 2, 9, 3, 2, 7};

    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        failed(1, now + at[i] * HOUR, 1);
    }
    ck_assert_uint_eq(h.nic[0].hours, 5);
    for (unsigned k = 1; k < 5; k++) {
        ck_assert_uint_gt(h.nic[0].hour[k].hour, h.nic[0].hour[k - 1].hour);
    }
}
END_TEST

START_TEST(two_users_see_the_same_failure)
{
    failed(1, now, 1);
    slow(now, "h1");
    memcpy(&again, &h, sizeof(h));
    memset(&h, 0, sizeof(h));
    failed(1, now + 1, 2);
    failed(1, now - HOUR, 2);
    slow(now, "h2");
    failed(9, now, 2);
    r2_nic_history_merge(&h, &again);
    ck_assert_uint_eq(h.nics, 2);
    judged();
    ck_assert_uint_eq(j.failures, 2);
    ck_assert_uint_eq(j.jobs, 2);
    ck_assert_uint_eq(j.slow_hours, 1);
}
END_TEST

/* Cut short anywhere, or with any byte changed, it is refused, and nothing of it is used. */
START_TEST(what_is_damaged_is_refused)
{
    size_t n;

    failed(1, now, 1);
    slow(now, "h1");
    failed(2, now, 0xabcdef);
    n = r2_nic_history_print(&h, text, sizeof(text));
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(r2_nic_history_parse(text, n, &again), 0);
    ck_assert_int_eq(memcmp(&h, &again, sizeof(h)), 0);
    for (size_t cut = 1; cut < n; cut++) {
        ck_assert_msg(r2_nic_history_parse(text, cut, &again) > 0, "%zu", cut);
        ck_assert_uint_eq(again.nics, 0);
    }
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            text[at] = (char)(text[at] ^ 1 << bit);
            ck_assert_msg(r2_nic_history_parse(text, n, &again) > 0, "%zu", at);
            ck_assert_uint_eq(again.nics, 0);
            text[at] = (char)(text[at] ^ 1 << bit);
        }
    }
    memcpy(text + n, "x\n", 2);
    ck_assert_int_gt(r2_nic_history_parse(text, n + 2, &again), 0);
    ck_assert_int_eq(r2_nic_history_parse(text, 0, &again), 0); /* of nothing, nothing */
    ck_assert_uint_eq(again.nics, 0);
    ck_assert_str_eq(r2_nic_verdict_name(R2_NIC_DRAIN), "drain");
    ck_assert_str_eq(r2_nic_verdict_name(R2_NIC_VERDICTS), "?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, one_failure_that_many_see_is_one);
    tcase_add_test(t, soon_again_is_a_flap_later_a_failure);
    tcase_add_test(t, nics_are_told_apart);
    tcase_add_test(t, three_jobs_are_a_drain);
    tcase_add_test(t, three_hours_are_a_drain);
    tcase_add_test(t, ten_flaps_are_a_drain);
    tcase_add_test(t, slow_to_several_peers_is_a_drain);
    tcase_add_test(t, what_is_old_or_of_the_future_does_not_count);
    tcase_add_test(t, a_clock_that_is_set_back);
    tcase_add_test(t, its_size_is_bounded);
    tcase_add_test(t, a_full_one_is_read_in_one_go);
    tcase_add_test(t, hours_are_in_order);
    tcase_add_test(t, two_users_see_the_same_failure);
    tcase_add_test(t, what_is_damaged_is_refused);
}

int main(void)
{
    return suite_run("nic_history", 60, setup, teardown, add);
}
