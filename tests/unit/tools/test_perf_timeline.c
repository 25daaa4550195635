/*
 * What r2_perf makes of traces: which pause is a fault's, what "before", "during" and "after" are
 * means of, whose figure the stall is. Traces, faults and what the plugin said are made here, in
 * times of their own: no clock.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/support/times.h"
#include "tools/r2_perf/timeline.c"
#include "tools/r2_perf/trace.c"

#include "tests/unit/suite.h"

#define T0      (5000 * MS) /* when the clock of the run starts */
#define STEP    (50 * MS)
#define ONE_BUS 1e6 /* bytes of bus bandwidth that a run is worth */

static struct opts_fault specs[2];
static struct fault_event events[2];
static int nevents, nsaid;
static struct log_switch said[2];
static struct trace s;
static struct timeline t;

/* One rank: what it has is what all have. */
int boot_allgather(struct boot *b, void *all, size_t each)
{
    return 0;
}

const struct fault_event *fault_events_get(const struct fault_agent *a, int *n)
{
    *n = nevents;
    return events;
}

int log_switches_get(struct log_switch *out)
{
    memcpy(out, said, sizeof(said));
    return nsaid;
}

void *util_mem_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    ck_assert_ptr_nonnull(p);
    return p;
}

void *util_mem_resize(void *old, size_t n, size_t size)
{
    void *p = realloc(old, n * size);

    ck_assert_ptr_nonnull(p);
    return p;
}

static void start(void)
{
    trace_init(&s, 0, STEP);
    trace_clock_start(&s, T0);
    trace_stretch_start(&s, T0);
}

static void end(void)
{
    timeline_free(&t);
    trace_free(&s);
}

/* @bytes each millisecond from @from_ms to before @to_ms. */
static void flow(uint64_t from_ms, uint64_t to_ms, size_t bytes)
{
    for (uint64_t at = from_ms; at < to_ms; at++) {
        trace_bytes_add(&s, T0 + at * MS, bytes);
    }
}

/* A connection with work made no progress between these. */
static void pause_at(uint64_t from_ms, uint64_t to_ms)
{
    trace_conn_note(&s, T0 + from_ms * MS, T0 + to_ms * MS, 1, 0, true);
}

static void fault(uint64_t at_ms, uint64_t took_ms)
{
    events[nevents] = (struct fault_event){
        .spec = &specs[nevents], .fired = true, .fired_ns = at_ms * MS, .took_ns = took_ms * MS};
    nevents++;
}

static void switch_said(uint64_t began_ms, uint64_t end_ms, uint64_t stall_ms, int over)
{
    said[nsaid++] =
        (struct log_switch){T0 + began_ms * MS, T0 + end_ms * MS, stall_ms * MS, (uint64_t)over};
}

static void gather(uint64_t until_ms)
{
    trace_stretch_stop(&s, T0 + until_ms * MS);
    ck_assert_int_eq(timeline_gather(&t, NULL, 0, 1, &s, ONE_BUS, 0, NULL), 0);
}

static uint64_t ms(uint64_t ns)
{
    return ns / MS;
}

START_TEST(a_pause_long_after_a_fault_is_not_its)
{
    fault(300, 10);
    pause_at(305, 340);   /* the fault's */
    pause_at(1100, 2600); /* the longest, and much later */
    gather(4000);
    ck_assert_int_eq(t.nfaults, 1);
    ck_assert_uint_eq(ms(t.stall.len_ns), 1500);
    ck_assert_uint_eq(ms(t.stall.end_ns), 2600);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 35);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_DRIVER);
    /* "after" does not wait for it either */
    ck_assert_uint_eq(t.after_ns, 310 * MS + TIMELINE_SETTLE_NS);
}
END_TEST

START_TEST(a_pause_that_begins_with_what_was_under_way_is_the_faults)
{
    uint64_t settled = 310 + TIMELINE_SETTLE_NS / MS;

    fault(300, 10);
    pause_at(280, 900); /* began before, ended after */
    gather(4000);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 620);
    ck_assert_uint_eq(ms(t.after_ns), 900);
    end();

    start();
    pause_at(settled, settled + 700); /* the last moment that counts */
    gather(4000);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 700);
    end();

    start();
    pause_at(settled + 1, settled + 701);
    gather(4000);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 0);
    end();

    start();
    pause_at(100, 299); /* over before it */
    gather(4000);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 0);
    ck_assert_uint_eq(ms(t.stall_before.len_ns), 199);
}
END_TEST

START_TEST(each_fault_has_its_own_pause)
{
    fault(300, 10);
    fault(400, 10);
    pause_at(310, 390);
    pause_at(420, 560);
    gather(2000);
    ck_assert_int_eq(t.nfaults, 2);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 80);
    ck_assert_uint_eq(ms(t.faults[1].stall_ns), 140);
}
END_TEST

START_TEST(what_the_plugin_says_counts)
{
    fault(500, 10);
    pause_at(505, 560);
    switch_said(520, 700, 41, 1);
    switch_said(510, 900, 73, 1);
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_PLUGIN);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 73); /* who waited longest */
    ck_assert_uint_eq(ms(t.faults[0].pause.len_ns), 55);
    ck_assert_uint_eq(ms(t.after_ns), 900); /* when the last one had ended */
}
END_TEST

START_TEST(a_switch_that_is_not_over_or_not_the_faults_says_nothing)
{
    fault(500, 10);
    pause_at(505, 560);
    switch_said(490, 700, 41, 1); /* began before the fault */
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_DRIVER);
    ck_assert_uint_eq(ms(t.faults[0].stall_ns), 55);
    end();

    start();
    nsaid = 0;
    pause_at(505, 560);
    switch_said(510, 700, 41, 0); /* somebody still waits: how long is not known */
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_DRIVER);
    end();

    start();
    nsaid = 0;
    switch_said(510 + TIMELINE_DETECT_NS / MS + 1, 20000, 41, 1); /* too late to be its */
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_DRIVER);
}
END_TEST

/* Where a stall of @stall_ms lies that the plugin told of: a path was lost at @lost_ms, after a
 * fault at 500. */
static uint64_t stall_start(uint64_t lost_ms, uint64_t stall_ms)
{
    nsaid = 0;
    switch_said(lost_ms, lost_ms + stall_ms + 100, stall_ms, 1);
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_PLUGIN);
    return ms(timeline_stall_start(&t.faults[0]));
}

START_TEST(a_stall_lies_behind_its_fault_and_around_what_was_lost)
{
    fault(500, 10);
    pause_at(505, 560);
    gather(3000);
    ck_assert_int_eq(t.faults[0].by, TIMELINE_BY_DRIVER);
    ck_assert_uint_eq(ms(timeline_stall_start(&t.faults[0])), 505);
    end();

    start();
    pause_at(505, 560);
    ck_assert_uint_eq(stall_start(510, 50), 505); /* the pause has its place */
    end();

    start();
    pause_at(505, 560);
    ck_assert_uint_eq(stall_start(503, 50), 503); /* the path was lost before that pause */
    end();

    start();
    pause_at(505, 900);
    ck_assert_uint_eq(stall_start(700, 50), 650); /* the pause had begun much earlier */
    end();

    start();
    ck_assert_uint_eq(stall_start(520, 50), 500); /* no pause: not before the fault */
    end();

    start();
    pause_at(400, 560); /* what was under way when the fault came */
    ck_assert_uint_eq(stall_start(520, 50), 500);
}
END_TEST

START_TEST(rates_before_during_and_after)
{
    fault(500, 10);
    flow(0, 500, 4000);
    flow(500, 710, 1000);
    flow(710, 1000, 3000);
    gather(1000);
    ck_assert_uint_eq(t.n, 20);
    /* whole intervals: [0, 500), [500, 750), [750, 1000) */
    ck_assert(fabs(t.before / t.after - 4.0 / 3) < 1e-9);
    ck_assert(fabs(t.during / t.before - (210 * 1.0 + 40 * 3.0) / 250 / 4) < 1e-9);
    /* all of it is what the run is worth, spread as its bytes were */
    ck_assert(fabs(t.before * 500 + t.during * 250 + t.after * 250 - ONE_BUS / MS) < 1e-9);
}
END_TEST

START_TEST(a_time_in_which_nothing_was_measured_has_no_rate)
{
    /* as on a machine that has no time for us: nothing is timed before the fault and behind it */
    trace_stretch_stop(&s, T0 + 1 * MS);
    trace_stretch_start(&s, T0 + 500 * MS);
    fault(500, 10);
    flow(500, 600, 1000);
    gather(600);
    ck_assert_uint_eq(t.n, 12);
    ck_assert(isnan(t.busbw[0]) && isnan(t.busbw[9]) && t.busbw[10] > 0 && t.busbw[11] > 0);
    ck_assert(isnan(t.before) && isnan(t.after));
    ck_assert(fabs(t.during - ONE_BUS / (100 * MS)) < 1e-9);
}
END_TEST

static void clear(void)
{
    nevents = nsaid = 0;
    start();
}

static void add(TCase *c)
{
    tcase_add_test(c, a_pause_long_after_a_fault_is_not_its);
    tcase_add_test(c, a_pause_that_begins_with_what_was_under_way_is_the_faults);
    tcase_add_test(c, each_fault_has_its_own_pause);
    tcase_add_test(c, what_the_plugin_says_counts);
    tcase_add_test(c, a_switch_that_is_not_over_or_not_the_faults_says_nothing);
    tcase_add_test(c, a_stall_lies_behind_its_fault_and_around_what_was_lost);
    tcase_add_test(c, rates_before_during_and_after);
    tcase_add_test(c, a_time_in_which_nothing_was_measured_has_no_rate);
}

int main(void)
{
    return suite_run("perf_timeline", 60, clear, end, add);
}
