/*
 * How many operations r2_perf runs at once where a duration bounds it. Engine and bootstrap are the
 * test's: it says how long an operation takes each rank, and what the other one says.
 */
#include <check.h>
#include <string.h>

#include "tests/support/times.h"
#include "tools/r2_perf/algo.c"
#include "tools/r2_perf/measure.c"
#include "tools/r2_perf/type.c"
#include "tools/r2_perf/util.c"
#include "tools/r2_perf/verify.c"

#include "tests/unit/suite.h"

#define BATCHES 4

static struct opts opts;
static struct measure measure;
static uint64_t own_ns, other_ns;     /* an operation */
static int batches[BATCHES + 1], ran; /* operations of each that was timed */
static bool over;

int engine_run(struct engine *e, struct engine_batch *b)
{
    b->start_ns = util_now_ns();
    b->end_ns = b->start_ns + (uint64_t)b->n * own_ns;
    ck_assert_int_le(ran, BATCHES + 1);
    if (ran++ > 0) { /* the first is not timed */
        batches[ran - 2] = b->n;
    }
    return 0;
}

/* The other rank's word, and rank 0's end behind so many batches; then the other one's share. */
int boot_allgather(struct boot *b, void *all, size_t each)
{
    struct measure_word *words = all;

    memset((char *)all + (measure.rank == 0 ? each : 0), 0, each);
    if (!over) {
        ck_assert_uint_eq(each, sizeof(*words));
        words[!measure.rank].each_ns = ran > 1 ? other_ns : words[measure.rank].each_ns;
        words[0].on = ran <= BATCHES;
        over = !words[0].on;
    }
    return 0;
}

void trace_op_add(struct trace *t, uint64_t from_ns, uint64_t to_ns, bool in_place, int64_t wrong)
{
}

static void begin(void)
{
    char error[256];

    memset(&measure, 0, sizeof(measure));
    memset(batches, 0, sizeof(batches));
    ran = 0;
    over = false;
    opts = (struct opts){.op = ALGO_BROADCAST,
                         .max_bytes = 4096,
                         .agg = 1,
                         .duration_ns = 100 * S,
                         .batch_bytes = 64 << 20};
    measure.o = &opts;
    measure.nranks = 2;
    ck_assert_msg(measure_open(&measure, error, sizeof(error)) == 0, "%s", error);
}

static void end(void)
{
    measure_close(&measure);
}

static void run(int rank)
{
    struct measure_case c = {.type = TYPE_FLOAT, .bytes = 4096};
    struct report_cell cell;
    int iters;

    measure.rank = rank;
    ck_assert_int_eq(measure_run(&measure, &c, &cell, &iters), 0);
    ck_assert_int_eq(ran, BATCHES + 1);
}

/* A batch is 50 ms of the slower rank, and the same number at both. */
START_TEST(the_slower_rank_decides_how_many)
{
    own_ns = _i ? 5 * MS : 1000;
    other_ns = _i ? 1000 : 5 * MS;
    run(_i);
    ck_assert_int_eq(batches[0], 1); /* how long one takes is not known yet */
    for (int i = 1; i < BATCHES; i++) {
        ck_assert_int_eq(batches[i], 9);
    }
}
END_TEST

START_TEST(at_most_what_the_buffers_hold)
{
    own_ns = other_ns = 1;
    run(0);
    ck_assert_int_eq(batches[1], MEASURE_BATCH_MAX);
}
END_TEST

START_TEST(an_iteration_is_never_cut)
{
    opts.agg = 4;
    own_ns = other_ns = 7 * MS;
    run(0);
    ck_assert_int_eq(batches[0], 4);
    ck_assert_int_eq(batches[1], 4);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, the_slower_rank_decides_how_many, 0, 2);
    tcase_add_test(t, at_most_what_the_buffers_hold);
    tcase_add_test(t, an_iteration_is_never_cut);
}

int main(void)
{
    return suite_run("perf_measure", 60, begin, end, add);
}
