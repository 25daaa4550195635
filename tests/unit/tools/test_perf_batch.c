/*
 * How a batch of r2_perf begins: what all ranks do together, and which moment is whose. Barrier,
 * agreement and watch are the test's.
 */
#include <check.h>
#include <string.h>

#include "tests/support/times.h"
#include "tools/r2_perf/engine_batch.c"
#include "tools/r2_perf/trace.c"
#include "tools/r2_perf/util.c"

#include "tests/unit/suite.h"

#define ZERO (7 * S) /* what ranks agree on */

static char order[8]; /* what was done, a letter each */
static char fails;    /* that which does */
static uint64_t told, barrier_ns;
static struct trace trace;

static int do_it(char what)
{
    order[strlen(order)] = what;
    return fails == what ? -1 : 0;
}

int boot_barrier(struct boot *b)
{
    int rc = do_it('b');

    barrier_ns = util_now_ns();
    return rc;
}

int boot_clock_agree(struct boot *b, uint64_t *t0_ns)
{
    *t0_ns = ZERO;
    return do_it('a');
}

void watch_phase_set(const char *phase)
{
    do_it('w');
}

static void on_started(void *arg, uint64_t t0_ns)
{
    told = t0_ns;
}

static void begin(void)
{
    memset(order, 0, sizeof(order));
    fails = 0;
    told = 0;
    trace_init(&trace, 0, 50 * MS);
}

static void end(void)
{
    trace_free(&trace);
}

/* Zero is agreed between two barriers; operations are timed from the second one on. */
START_TEST(the_first_timed_batch_starts_the_clock_of_all)
{
    struct engine_batch b = {.timed = true, .clock_start = true, .started = on_started};

    ck_assert_int_eq(engine_batch_start(&b, NULL, &trace), 0);
    ck_assert_str_eq(order, "babw");
    ck_assert(trace.on);
    ck_assert_uint_eq(trace.t0, ZERO);
    ck_assert_uint_eq(told, ZERO);
    ck_assert_uint_ge(b.start_ns, barrier_ns);
    ck_assert_uint_eq(trace.active_since, b.start_ns);
}
END_TEST

START_TEST(the_others_begin_behind_one_barrier)
{
    struct engine_batch b = {.timed = _i};

    trace_clock_start(&trace, ZERO);
    ck_assert_int_eq(engine_batch_start(&b, NULL, &trace), 0);
    ck_assert_str_eq(order, "bw");
    ck_assert_uint_eq(trace.t0, ZERO);
    ck_assert_uint_eq(trace.active_since, _i ? b.start_ns : 0);
}
END_TEST

START_TEST(a_run_that_has_failed_begins_none)
{
    struct engine_batch b = {.timed = true, .clock_start = true, .started = on_started};

    fails = "ba"[_i];
    ck_assert_int_eq(engine_batch_start(&b, NULL, &trace), -1);
    ck_assert_str_eq(order, _i ? "ba" : "b");
    ck_assert(!trace.on);
    ck_assert_uint_eq(told, 0);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_first_timed_batch_starts_the_clock_of_all);
    tcase_add_loop_test(t, the_others_begin_behind_one_barrier, 0, 2);
    tcase_add_loop_test(t, a_run_that_has_failed_begins_none, 0, 2);
}

int main(void)
{
    return suite_run("perf_batch", 60, begin, end, add);
}
