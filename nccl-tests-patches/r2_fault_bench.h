/*
 * The measurement with faults, over nccl-tests' own operations. common.cu includes it in front of
 * its BenchTime, which it replaces when an option of r2_fault.h is given.
 *
 * One operation an iteration, new data for each, every result checked. The clock of an iteration
 * runs from the call until the streams are done; all ranks begin together, and the slowest counts.
 * The first measurement goes on until all faults have been done and settled.
 */
#ifndef R2_FAULT_BENCH_H
#define R2_FAULT_BENCH_H

/* nccl-tests' codes of Allreduce */
#define R2_BENCH_MAX 3
#define R2_BENCH_SUM 4

/* @wrong: elements of all ranks; -1: not checked. */
static testResult_t r2_fault_bench_once(struct threadArgs *args, ncclDataType_t type,
                                        ncclRedOp_t op, int root, int in_place, int n,
                                        double *start, double *sec, long long *wrong)
{
    int64_t mine = 0;
    long long all;

    if (datacheck) {
        TESTCHECK(args->collTest->initData(args, type, op, root, n + 1, in_place));
    }
    Barrier(args);
    *start = r2_fault_now();
    TESTCHECK(startColl(args, type, op, root, in_place, 0));
    TESTCHECK(completeColl(args));
    *sec = r2_fault_now() - *start;
    if (datacheck) {
        TESTCHECK(CheckData(args, type, op, root, in_place, &mine));
    }
    all = mine;
    Allreduce(args, sec, R2_BENCH_MAX);
    Allreduce(args, &all, R2_BENCH_SUM);
    /* initData says by reportErrors whether the operation can be checked: some cannot in place. */
    *wrong = datacheck && args->reportErrors ? all : -1;
    return testSuccess;
}

static void r2_fault_bench_row(struct threadArgs *args, double sec, double algbw, double busbw,
                               long long wrong, int in_place)
{
#ifdef R2_FAULT_OWN_ROW
    char t[32];

    if (!is_main_thread) {
        return;
    }
    snprintf(t, sizeof(t), sec >= 0.01 ? "%7.0f" : sec >= 1e-4 ? "%7.1f" : "%7.2f", sec * 1e6);
    printf("  %7s  %6.2f  %6.2f  ", t, algbw, busbw);
    if (args->reportErrors) {
        printf("%5g", (double)wrong);
    } else {
        printf("%5s", "N/A");
    }
#else
    writeBenchmarkLineBody(sec * 1e6, algbw, busbw, args->reportErrors, wrong, report_cputime,
                           report_timestamps, in_place == 0);
#endif
}

static testResult_t r2_fault_bench(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                                   int root, int in_place)
{
    const size_t count = args->nbytes / wordSize(type);
    const int nranks = args->nProcs * args->nThreads * args->nGpus;
    double algbw, busbw, sum = 0;
    long long wrong = 0, more;
    int n = 0;

    if (agg_iters > 1 || cudaGraphLaunches >= 1) {
        fprintf(stderr, "--fault and --fault_json measure single operations: not with -m or -G\n");
        return testInternalError;
    }
    /* The first operation sets up connections. */
    TESTCHECK(startColl(args, type, op, root, in_place, 0));
    TESTCHECK(completeColl(args));
    if (is_main_thread) {
        args->collTest->getBw(count, wordSize(type), 1.0, &algbw, &busbw, nranks);
        r2_fault_measurement_start(args->sendBytes > args->expectedBytes ? args->sendBytes
                                                                         : args->expectedBytes,
                                   in_place, busbw);
        r2_fault_clock_start();
    }
    do {
        double start, sec;
        long long bad;

        TESTCHECK(r2_fault_bench_once(args, type, op, root, in_place, n, &start, &sec, &bad));
        if (is_main_thread) {
            r2_fault_iteration_put(start, sec, bad);
        }
        wrong += bad > 0 ? bad : 0;
        sum += sec;
        more = ++n < iters || (is_main_thread && r2_fault_unfinished());
        Allreduce(args, &more, R2_BENCH_MAX);
    } while (more);
    args->collTest->getBw(count, wordSize(type), sum / n, &algbw, &busbw, nranks);
    r2_fault_bench_row(args, sum / n, algbw, busbw, wrong, in_place);
    args->bw[0] += busbw;
    args->bw_count[0]++;
    return testSuccess;
}

#endif
