/*
 * What a trace of r2_perf is made from: operations and samples that are more than there is room
 * for, and the file, which is there whole or not at all.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/times.h"
#include "tools/r2_perf/outfile.c"
#include "tools/r2_perf/stats.c"
#include "tools/r2_perf/trace.c"
#include "tools/r2_perf/util.c"

#include "tests/unit/suite.h"

#define T0 (5000 * MS)

static struct trace s;
static struct stats_told told;
static char dir[64];

/* --- operations --- */

/* Each of 2 ms, with 1 ms between batches of three. */
static void ops(uint64_t n)
{
    uint64_t at = T0;

    for (uint64_t i = 0; i < n; i++) {
        at += i && i % 3 == 0 ? MS : 0;
        trace_op_add(&s, at, at + 2 * MS, i % 2 == 1, i == 7 ? 5 : 0);
        at += 2 * MS;
    }
}

/* They follow each other without overlap, and are all there; returns how many there are in the
 * list. */
static size_t all_of(uint64_t n)
{
    uint64_t next = 0, end = 0, busy = 0;
    int64_t wrong = 0;

    for (size_t i = 0; i < s.ops.n; i++) {
        const struct trace_op *op = &s.ops.list[i];

        ck_assert_uint_eq(op->first, next);
        ck_assert_uint_ge(op->start_ns, end);
        ck_assert_uint_ge(op->end_ns - op->start_ns, op->busy_ns);
        next += op->n;
        end = op->end_ns;
        busy += op->busy_ns;
        wrong += op->wrong;
    }
    ck_assert_uint_eq(next, n);
    ck_assert_uint_eq(s.ops.count, n);
    ck_assert_uint_eq(busy, n * 2 * MS);
    ck_assert_int_eq(wrong, 5);
    return s.ops.n;
}

START_TEST(each_operation_is_told_where_there_is_room)
{
    ops(TRACE_OPS_MAX);
    ck_assert_uint_eq(all_of(TRACE_OPS_MAX), TRACE_OPS_MAX);
    ck_assert_uint_eq(s.ops.per, 1);
    ck_assert_uint_eq(s.ops.list[0].start_ns, 0);
    ck_assert_uint_eq(s.ops.list[3].start_ns, 7 * MS);
    ck_assert_uint_eq(s.ops.list[1].placements, TRACE_IN);
}
END_TEST

START_TEST(neighbours_are_told_as_one_where_there_is_none)
{
    uint64_t n = 5 * TRACE_OPS_MAX + 3;

    ops(n);
    ck_assert_uint_le(all_of(n), TRACE_OPS_MAX);
    ck_assert_uint_eq(s.ops.per, 8);
    ck_assert_uint_eq(s.ops.list[0].n, 8);
    ck_assert_uint_eq(s.ops.list[0].busy_ns, 16 * MS);
    ck_assert_uint_eq(s.ops.list[0].end_ns, 18 * MS); /* two times between batches */
    ck_assert_uint_eq(s.ops.list[0].placements, TRACE_IN | TRACE_OUT);
    ck_assert_uint_eq(s.ops.list[s.ops.n - 1].n, n % 8);
}
END_TEST

START_TEST(an_operation_that_is_not_checked_is_not_right)
{
    trace_op_add(&s, T0, T0 + MS, false, -1);
    ck_assert_int_eq(s.ops.list[0].wrong, -1);
    /* a clock that begins later than it: not before it, and not back in time */
    trace_op_add(&s, T0 - 2 * MS, T0 - MS, false, 0);
    ck_assert_uint_eq(s.ops.list[1].start_ns, 0);
    ck_assert_uint_eq(s.ops.list[1].busy_ns, 0);
}
END_TEST

/* --- samples --- */

static void sample(int64_t at, uint64_t sent)
{
    struct stats_row row = {.at_ns = at, .sent = {sent}};

    stats_row_add(&told, &row);
}

START_TEST(samples_are_bounded_and_lose_no_bytes)
{
    for (uint64_t i = 0; i < 3 * STATS_ROWS_MAX; i++) {
        sample((int64_t)(i * 100 * MS), i * 1000);
        ck_assert_uint_le(told.nrows, STATS_ROWS_MAX);
        ck_assert_uint_eq(told.row[told.nrows - 1].sent[0], i * 1000);
    }
    ck_assert_uint_gt(told.halved, 0);
    ck_assert_int_eq(told.row[0].at_ns, 0);
    for (uint32_t i = 1; i < told.nrows; i++) {
        ck_assert_int_gt(told.row[i].at_ns, told.row[i - 1].at_ns);
    }
}
END_TEST

START_TEST(a_sample_of_the_same_moment_is_none)
{
    sample(100 * MS, 1);
    sample(100 * MS, 2);
    sample(99 * MS, 3);
    ck_assert_uint_eq(told.nrows, 1);
}
END_TEST

/* --- the file --- */

static const char *in_dir(const char *name)
{
    static char path[2][128];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static void file_make(const char *name, const char *text)
{
    FILE *f = fopen(in_dir(name), "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void is_text(const char *name, const char *want)
{
    char text[64] = "";
    FILE *f = fopen(in_dir(name), "r");

    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    ck_assert_str_eq(text, want);
}

/* Nothing but these is left. */
static void are_files(int n)
{
    char *command = util_str_format("test $(ls -A %s | wc -l) = %d", dir, n);

    ck_assert_int_eq(system(command), 0);
    free(command);
}

START_TEST(a_file_is_there_once_it_is_whole)
{
    struct outfile o;

    file_make("a", "old");
    ck_assert_int_eq(symlink("a", in_dir("link")), 0);
    ck_assert_int_eq(outfile_check(in_dir("link")), 0);
    are_files(2);
    ck_assert_int_eq(outfile_open(&o, in_dir("link")), 0);
    fputs("new", o.f);
    is_text("a", "old");
    ck_assert_int_eq(outfile_close(&o), 0);
    is_text("a", "new");
    is_text("link", "new");
    are_files(2);
}
END_TEST

START_TEST(what_cannot_be_written_is_refused)
{
    ck_assert_int_eq(outfile_check(in_dir("none/a")), -1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(outfile_check(dir), -1);
    ck_assert_int_eq(errno, EISDIR);
    ck_assert_int_eq(outfile_check("/dev/null"), -1); /* is not to be replaced */
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_int_eq(mkfifo(in_dir("fifo"), 0600), 0);
    ck_assert_int_eq(outfile_check(in_dir("fifo")), -1);
    are_files(1);
}
END_TEST

START_TEST(a_write_that_fails_leaves_what_was_there)
{
    struct outfile o;
    int full;

    file_make("a", "old");
    ck_assert_int_eq(outfile_open(&o, in_dir("a")), 0);
    full = open("/dev/full", O_WRONLY);
    ck_assert_int_ge(full, 0);
    ck_assert_int_ge(dup2(full, fileno(o.f)), 0);
    close(full);
    fputs("new", o.f);
    ck_assert_int_eq(outfile_close(&o), -1);
    ck_assert_int_eq(errno, ENOSPC);
    is_text("a", "old");
    are_files(1);
}
END_TEST

static void clear(void)
{
    trace_init(&s, 0, 50 * MS);
    trace_clock_start(&s, T0);
    memset(&told, 0, sizeof(told));
    snprintf(dir, sizeof(dir), "/tmp/perf_trace.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void end(void)
{
    char *command = util_str_format("rm -rf %s", dir);

    ck_assert_int_eq(system(command), 0);
    free(command);
    trace_free(&s);
}

static void add(TCase *c)
{
    tcase_add_test(c, each_operation_is_told_where_there_is_room);
    tcase_add_test(c, neighbours_are_told_as_one_where_there_is_none);
    tcase_add_test(c, an_operation_that_is_not_checked_is_not_right);
    tcase_add_test(c, samples_are_bounded_and_lose_no_bytes);
    tcase_add_test(c, a_sample_of_the_same_moment_is_none);
    tcase_add_test(c, a_file_is_there_once_it_is_whole);
    tcase_add_test(c, what_cannot_be_written_is_refused);
    tcase_add_test(c, a_write_that_fails_leaves_what_was_there);
}

int main(void)
{
    return suite_run("perf_trace", 60, clear, end, add);
}
