/*
 * nccl-tests-patches without nccl-tests: the schedule, the phases and the whole measurement, over
 * operations that take as long and return what a case wants. The names are those of nccl-tests that
 * r2_fault_bench.h uses.
 */
#include "tests/unit/suite.h"

typedef enum { testSuccess, testInternalError } testResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;

#include "nccl-tests-patches/r2_fault.h"

#define TESTCHECK(cmd)                                                                             \
    do {                                                                                           \
        testResult_t r = cmd;                                                                      \
        if (r != testSuccess)                                                                      \
            return r;                                                                              \
    } while (0)

struct threadArgs;
struct testColl {
    testResult_t (*initData)(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op, int root,
                             int rep, int in_place);
    void (*getBw)(size_t count, size_t typesize, double sec, double *algbw, double *busbw,
                  int nranks);
};
struct threadArgs {
    size_t nbytes, sendBytes, expectedBytes;
    int nProcs, nThreads, nGpus, reportErrors;
    struct testColl *collTest;
    int *errors, *bw_count;
    double *bw;
};

static int datacheck = 1, iters = 5, agg_iters = 1, cudaGraphLaunches, is_main_thread = 1;
static const char *marker; /* a file that a fault makes: until then operations take 1 ms, the one
                              after it takes 60 ms */
static int seen, slow_at = -1, wrong_at = -1, ops, seeds[4096], reps;

static size_t wordSize(ncclDataType_t type)
{
    return 4;
}

static void Barrier(struct threadArgs *args)
{
}

#define Allreduce(args, value, how)                                                                \
    ck_assert((args) != NULL && (value) != NULL && ((how) == 3 || (how) == 4))

static testResult_t fake_data_init(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                                   int root, int rep, int in_place)
{
    seeds[reps++ % 4096] = rep;
    args->reportErrors = !in_place;
    return testSuccess;
}

static void fake_rate_get(size_t count, size_t typesize, double sec, double *algbw, double *busbw,
                          int nranks)
{
    *algbw = (double)(count * typesize) / 1e9 / sec;
    *busbw = *algbw * 2;
}

static testResult_t startColl(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                              int root, int in_place, int iter)
{
    int fresh = marker != NULL && !seen && access(marker, F_OK) == 0;
    struct timespec t = {0, fresh ? 60000000 : 1000000};

    seen |= fresh;
    if (fresh) {
        slow_at = ops;
    }
    ops++;
    nanosleep(&t, NULL); /* the operation itself */
    return testSuccess;
}

static testResult_t completeColl(struct threadArgs *args)
{
    return testSuccess;
}

static testResult_t CheckData(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                              int root, int in_place, int64_t *wrong)
{
    *wrong = ops - 1 == wrong_at ? 7 : 0;
    return testSuccess;
}

#define R2_FAULT_OWN_ROW 1
#include "nccl-tests-patches/r2_fault_bench.h"

static double bw;
static int bw_count, errors;
static struct testColl coll = {fake_data_init, fake_rate_get};

static struct threadArgs args_of(size_t bytes)
{
    return (struct threadArgs){bytes, bytes, bytes, 2, 1, 1, 1, &coll, &errors, &bw_count, &bw};
}

static char text[1 << 16];

/* What @print writes. */
static const char *printed(void (*print)(FILE *))
{
    FILE *f = fmemopen(text, sizeof(text), "w");

    ck_assert_ptr_nonnull(f);
    print(f);
    fclose(f);
    return text;
}

START_TEST(a_schedule_is_seconds_and_a_command)
{
    static const char *const bad[] = {"",     "3",     "3:",    ":x",   "x:y",  "-1:x",
                                      "3s:x", "nan:x", "1e9:x", "3 :x", "inf:x"};

    ck_assert_int_eq(r2_fault_on(), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(r2_fault_add(bad[i]) == -1, "'%s'", bad[i]);
    }
    ck_assert_int_eq(r2_fault_on(), 0);
    ck_assert_int_eq(r2_fault_add("1.5:echo a:b"), 0);
    ck_assert_int_eq(r2_fault_on(), 1);
    ck_assert(r2_fault_all.fault[0].at_s == 1.5);
    ck_assert_str_eq(r2_fault_all.fault[0].command, "echo a:b");
    for (int i = 1; i < R2_FAULTS_MAX; i++) {
        ck_assert_int_eq(r2_fault_add("0:true"), 0);
    }
    ck_assert_int_eq(r2_fault_add("0:true"), -1);
    ck_assert_int_eq(r2_fault_after_set("0.25"), 0);
    ck_assert(r2_fault_all.after_s == 0.25);
    ck_assert_int_eq(r2_fault_after_set("0.25x"), -1);
}
END_TEST

/* Who wants to know what comes after the faults gets an iteration that counts as that, however long
 * one takes. */
START_TEST(a_measurement_waits_for_what_comes_after)
{
    double done = r2_fault_now() - 10;

    ck_assert_int_eq(r2_fault_add("0:true"), 0);
    pthread_mutex_init(&r2_fault_all.lock, NULL);
    r2_fault_measurement_start(1000, 0, 1.0);
    r2_fault_all.running = 1;
    r2_fault_all.done = 1;
    r2_fault_all.done_s = done;
    r2_fault_all.after_s = 1;
    r2_fault_iteration_put(done + R2_FAULT_SETTLE_S / 2, 9, 0);
    ck_assert_int_eq(r2_fault_unfinished(), 1);
    r2_fault_all.after_s = 0; /* not asked for */
    ck_assert_int_eq(r2_fault_unfinished(), 0);
    r2_fault_all.after_s = 1;
    r2_fault_iteration_put(done + 9, 0.1, 0);
    ck_assert_int_eq(r2_fault_unfinished(), 0);
    r2_fault_all.done_s = r2_fault_now();
    ck_assert_int_eq(r2_fault_unfinished(), 1);
    r2_fault_all.running = 0;
}
END_TEST

/* Ten iterations of 10 ms and one of 110 ms, faults at 25 ms and 60 ms. */
static struct r2_measurement *made_up(void)
{
    r2_fault_measurement_start(1000, 0, 1.0);
    for (int i = 0; i < 100; i++) {
        r2_fault_iteration_put(i * 0.010 + (i > 5 ? 0.1 : 0), i == 5 ? 0.110 : 0.010, 0);
    }
    ck_assert_uint_eq(r2_fault_all.nm, 1);
    return &r2_fault_all.m[0];
}

START_TEST(phases_follow_the_faults_that_fired)
{
    struct r2_measurement *m = made_up();
    const struct r2_iteration *it;
    struct r2_rates r = r2_rates_of(m);

    ck_assert_double_eq_tol(r.before, 100 / 1.1, 1e-6);
    ck_assert(isnan(r.during) && isnan(r.after));
    ck_assert_int_eq(r2_fault_add("0.025:x"), 0);
    ck_assert_int_eq(r2_fault_add("0.060:y"), 0);
    ck_assert(isnan(r2_stall_of(m, 0, &it)) && it == NULL);
    for (int i = 0; i < 2; i++) {
        r2_fault_all.fault[i].fired = 1;
        r2_fault_all.fault[i].fired_s = r2_fault_all.fault[i].at_s;
        r2_fault_all.fault[i].took_s = 0.001;
    }
    r = r2_rates_of(m);
    ck_assert_double_eq_tol(r.before, 100,
                            1e-6); /* the iterations 0 and 1: the third is under way at 25 ms */
    ck_assert(r2_iteration_phase(&m->it[1]) == R2_BEFORE &&
              r2_iteration_phase(&m->it[2]) == R2_DURING);
    ck_assert(r2_iteration_phase(&m->it[16]) == R2_DURING &&
              r2_iteration_phase(&m->it[17]) == R2_AFTER);
    ck_assert_double_eq_tol(r.after, 100, 1e-6);
    ck_assert_double_eq_tol(r.during, 15 / 0.25, 1e-6);
    ck_assert_double_eq_tol(r2_stall_of(m, 0, &it), 0,
                            1e-9); /* the long one ended after the second */
    ck_assert_double_eq_tol(r2_stall_of(m, 1, &it), 0.1, 1e-9);
    ck_assert_int_eq(it - m->it, 5);
    ck_assert_int_eq(r2_fault_all_done(), 1);
    r2_fault_all.fault[1].status = 1;
    ck_assert_int_eq(r2_fault_all_done(), 0);
}
END_TEST

/* The whole of it: two commands run, in the order of time, in the middle of a measurement that
 * waits for them. */
START_TEST(a_measurement_with_faults)
{
    char dir[] = "/tmp/r2faultXXXXXX", file[64], json[64], late[192], early[192];
    struct threadArgs args = args_of(4096);
    const struct r2_iteration *it;
    const struct r2_measurement *m;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/m", dir);
    snprintf(json, sizeof(json), "%s/json", dir);
    snprintf(late, sizeof(late), "0.8:test -e %s && rm %s", file, file);
    snprintf(early, sizeof(early), "0.5:touch \"%s\"", file);
    marker = file;
    ck_assert_int_eq(r2_fault_add(late), 0);
    ck_assert_int_eq(r2_fault_add(early), 0);
    ck_assert_int_eq(r2_fault_after_set("1"), 0);
    ck_assert_int_eq(r2_fault_json_set(json), 0);
    ck_assert_int_eq(r2_fault_bench(&args, 0, 0, -1, 0), testSuccess);
    ck_assert_int_eq(r2_fault_bench(&args, 0, 0, -1, 1), testSuccess);
    ck_assert_int_eq(r2_fault_report(), 0);
    ck_assert_uint_eq(r2_fault_all.nm, 2);
    m = &r2_fault_all.m[0];
    ck_assert_uint_eq(r2_fault_all.m[1].n,
                      (size_t)iters); /* without faults it is as long as was asked for */
    ck_assert_uint_gt(m->n, 20);
    ck_assert_int_eq(seen, 1);
    /* whichever fault it followed; one operation is not timed */
    ck_assert_int_gt(slow_at, 0);
    ck_assert_double_ge(m->it[slow_at - 1].sec, 0.06);
    ck_assert((isfinite(r2_stall_of(m, 0, &it)) && it->sec >= 0.06) ||
              (isfinite(r2_stall_of(m, 1, &it)) && it->sec >= 0.06));
    ck_assert_int_eq(r2_fault_all.checked,
                     (long long)m->n); /* in place cannot be checked here, says initData */
    ck_assert_int_eq(bw_count, 2);
    for (int i = 1; i < reps - iters; i++) {
        ck_assert_int_eq(seeds[i], seeds[i - 1] + 1);
    }
    ck_assert(isfinite(r2_rates_of(m).before) && isfinite(r2_rates_of(m).during) &&
              isfinite(r2_rates_of(m).after));
    printed(r2_fault_text_print);
    ck_assert_ptr_nonnull(strstr(text, "# r2 fault 1 at "));
    ck_assert_ptr_nonnull(strstr(text, " operations, 0 elements wrong\n"));
    for (const char *p = text; *p; p = strchr(p, '\n') + 1) {
        ck_assert_msg(strncmp(p, "# r2 ", 5) == 0, "%s", p);
    }
    ck_assert(strstr(text, "bandwidth") == NULL && strstr(text, "FAILED") == NULL);
    snprintf(
        text, sizeof(text),
        "jq -e '.r2 | .complete and .wrong == 0 and (.faults | map(.status) == [0, 0]) and "
        "(.faults | map(.stall_ms) | max) > 40 and "
        "(.measurements[0] | (.times_us | length) == %zu and .busbw.after > 0) and .measurements[1].in_place' %s "
        ">/dev/null",
        m->n, json);
    ck_assert_int_eq(system(text), 0);
    unlink(json);
    rmdir(dir);
}
END_TEST

START_TEST(what_went_wrong_is_said)
{
    struct threadArgs args = args_of(4096);

    wrong_at = 2;
    ck_assert_int_eq(r2_fault_add("0:exit 3"), 0);
    ck_assert_int_eq(r2_fault_bench(&args, 0, 0, -1, 0), testSuccess);
    ck_assert_int_eq(r2_fault_report(), -1);
    ck_assert_int_eq(r2_fault_all.wrong, 7);
    printed(r2_fault_text_print);
    ck_assert_ptr_nonnull(strstr(text, "7 elements wrong: FAILED\n"));
    ck_assert_ptr_nonnull(strstr(text, "status 3): exit 3\n"));
    printed(r2_fault_json_print);
    ck_assert_ptr_nonnull(strstr(text, "\"complete\":false"));
}
END_TEST

START_TEST(a_fault_that_was_not_done_is_no_success)
{
    made_up();
    ck_assert_int_eq(r2_fault_add("3600:true"), 0);
    r2_fault_clock_start();
    ck_assert_int_eq(r2_fault_unfinished(), 1);
    ck_assert_int_eq(r2_fault_report(), -1);
    ck_assert_ptr_nonnull(
        strstr(printed(r2_fault_text_print), "# r2 fault 1 at 3600.000 s not fired: true\n"));
}
END_TEST

START_TEST(what_cannot_be_measured_is_refused)
{
    struct threadArgs args = args_of(4096);

    agg_iters = 2;
    ck_assert_int_eq(r2_fault_bench(&args, 0, 0, -1, 0), testInternalError);
    agg_iters = 1;
    cudaGraphLaunches = 1;
    ck_assert_int_eq(r2_fault_bench(&args, 0, 0, -1, 0), testInternalError);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_schedule_is_seconds_and_a_command);
    tcase_add_test(t, phases_follow_the_faults_that_fired);
    tcase_add_test(t, a_measurement_with_faults);
    tcase_add_test(t, what_went_wrong_is_said);
    tcase_add_test(t, a_fault_that_was_not_done_is_no_success);
    tcase_add_test(t, what_cannot_be_measured_is_refused);
    tcase_add_test(t, a_measurement_waits_for_what_comes_after);
}

int main(void)
{
    return suite_run("nccl_fault", 60, NULL, NULL,
                     add); /* each test in a process of its own: the state is the program's */
}
