/*
 * The measurement of nccl-tests-patches over this program's operations: what r2_fault_bench.h wants
 * of nccl-tests is here, by its names.
 */
#include "tests/gpu/gpu_bench.h"

#include <sched.h>

#include "tests/gpu/gpu_meet.h"
#include "tests/gpu/gpu_ops.h"

#include "nccl-tests-patches/r2_fault.h"

typedef enum {
    testSuccess = 0,
    testInternalError = 1,
    testCudaError = 2,
    testNcclError = 3,
    testNumResults = 7,
} testResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;

#define TESTCHECK(cmd)                                                                             \
    do {                                                                                           \
        testResult_t result = cmd;                                                                 \
        if (result != testSuccess)                                                                 \
            return result;                                                                         \
    } while (0)

struct threadArgs;
struct testColl {
    testResult_t (*initData)(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op, int root,
                             int rep, int in_place);
    void (*getBw)(size_t count, size_t typesize, double sec, double *algbw, double *busbw,
                  int nranks);
};
struct threadArgs {
    struct gpu_job job;
    int meet_fd, rep;
    size_t nbytes, sendBytes, expectedBytes;
    int nProcs, nThreads, nGpus, reportErrors;
    struct testColl *collTest;
    double *bw;
    int *bw_count;
};

static int datacheck = 1, agg_iters = 1, cudaGraphLaunches, iters, is_main_thread, lost;
static const struct gpu_op *bench_op;

static size_t wordSize(ncclDataType_t type)
{
    return sizeof(float);
}

static void meet_real(struct threadArgs *args, double *value)
{
    struct gpu_meet m = {.kind = GPU_MEET_MAX_REAL, .real = *value};

    lost |= gpu_meet_all(args->meet_fd, &m) != 0;
    *value = m.real;
}

/* nccl-tests' codes: 3 the largest, 4 the sum. Where a rank was lost, the largest is what this rank
 * says: it goes on to the next check. */
static void meet_whole(struct threadArgs *args, long long *value, int how)
{
    struct gpu_meet m = {.kind = how == 4 ? GPU_MEET_SUM : GPU_MEET_MAX, .whole = *value};

    lost |= gpu_meet_all(args->meet_fd, &m) != 0;
    *value = m.whole;
}

#define Allreduce(args, value, how)                                                                \
    _Generic((value),                                                                              \
        double *: meet_real(args, (void *)(value)),                                                \
        long long *: meet_whole(args, (void *)(value), how))

static void Barrier(struct threadArgs *args)
{
    long long none = 0;

    meet_whole(args, &none, 3);
}

static testResult_t bench_fill(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                               int root, int rep, int in_place)
{
    args->rep = rep;
    args->reportErrors = 1;
    return gpu_job_fill(&args->job, rep) == 0 ? testSuccess : testCudaError;
}

static void bench_rate_get(size_t count, size_t typesize, double sec, double *algbw, double *busbw,
                           int nranks)
{
    double factor = bench_op->bus * (bench_op->bus_is_ring ? (double)(nranks - 1) / nranks : 1);

    *algbw = (double)(count * typesize) / 1e9 / sec;
    *busbw = *algbw * factor;
}

static testResult_t nccl_fail(const char *what, int rc)
{
    fprintf(stderr, "gpu_coll: %s: NCCL error %d, %s\n", what, rc, gpu_nccl.get_error_string(rc));
    return testNcclError;
}

static testResult_t startColl(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                              int root, int in_place, int iter)
{
    int rc;

    if (lost) {
        return testInternalError;
    }
    rc = args->job.op->start(&args->job);
    return rc ? nccl_fail(args->job.op->name, rc) : testSuccess;
}

/* NCCL's threads need the processors, too. */
static testResult_t completeColl(struct threadArgs *args)
{
    for (;;) {
        int async = 0, cuda = gpu_cuda.stream_query(args->job.stream);

        if (cuda == 0) {
            return testSuccess;
        }
        if (cuda != GPU_CUDA_NOT_READY) {
            gpu_cuda_fail("the stream", cuda);
            return testCudaError;
        }
        gpu_nccl.comm_get_async_error(args->job.comm, &async);
        if (async != 0) {
            return nccl_fail("communicator", async);
        }
        sched_yield();
    }
}

static testResult_t CheckData(struct threadArgs *args, ncclDataType_t type, ncclRedOp_t op,
                              int root, int in_place, int64_t *wrong)
{
    *wrong = gpu_job_check(&args->job, args->rep);
    return *wrong < 0 ? testCudaError : testSuccess;
}

#define R2_FAULT_OWN_ROW 1
#include "nccl-tests-patches/r2_fault_bench.h"

int gpu_bench_fault_add(const char *text)
{
    return r2_fault_add(text);
}

int gpu_bench_after_set(const char *text)
{
    return r2_fault_after_set(text);
}

int gpu_bench_json_set(const char *text)
{
    return r2_fault_json_set(text);
}

static testResult_t bench_gpu_open(const struct gpu_bench_opts *o, struct gpu_job *job)
{
    int device, rc = gpu_cuda.init(0);
    size_t bytes, larger;
    uint64_t send, recv;
    void *ctx;

    rc = rc ? rc : gpu_cuda.device_get(&device, o->device);
    rc = rc ? rc : gpu_cuda.primary_ctx_retain(&ctx, device);
    rc = rc ? rc : gpu_cuda.ctx_set_current(ctx);
    rc = rc ? rc : gpu_cuda.stream_create(&job->stream, GPU_CUDA_STREAM_NON_BLOCKING);
    larger = gpu_op_sent(job) > gpu_op_received(job) ? gpu_op_sent(job) : gpu_op_received(job);
    bytes = larger * sizeof(float) + GPU_GUARD_BYTES;
    rc = rc ? rc : gpu_cuda.mem_alloc(&send, bytes);
    rc = rc ? rc : gpu_cuda.mem_alloc(&recv, bytes);
    if (rc != 0) {
        gpu_cuda_fail("opening the GPU", rc);
        return testCudaError;
    }
    job->send = (void *)(uintptr_t)send;
    job->recv = (void *)(uintptr_t)recv;
    job->host = malloc(bytes);
    return job->host ? testSuccess : testInternalError;
}

static testResult_t bench_comm_open(const struct gpu_bench_opts *o, struct gpu_job *job)
{
    struct gpu_meet m = {.kind = GPU_MEET_ID};
    int rc = o->rank == 0 ? gpu_nccl.get_unique_id(&m.id) : 0;

    if (rc != 0) {
        return nccl_fail("ncclGetUniqueId", rc);
    }
    if (gpu_meet_all(o->meet_fd, &m) != 0) {
        return testInternalError;
    }
    rc = gpu_nccl.comm_init_rank(&job->comm, o->nranks, m.id, o->rank);
    return rc ? nccl_fail("ncclCommInitRank", rc) : testSuccess;
}

static void bench_head_print(const struct gpu_bench_opts *o, const struct threadArgs *args)
{
    int nccl = 0, driver = 0, device = 0;
    char name[256] = "?";

    gpu_nccl.get_version(&nccl);
    gpu_cuda.driver_get_version(&driver);
    gpu_cuda.device_get(&device, o->device);
    gpu_cuda.device_get_name(name, sizeof(name), device);
    printf("# gpu_coll %s, %d ranks on GPU %d (%s), NCCL %d, CUDA driver %d\n", o->op, o->nranks,
           o->device, name, nccl, driver);
    printf("%12zu  %12zu  %8s  %6s  %6i", args->nbytes, args->nbytes / sizeof(float), "float",
           "sum", -1);
}

static testResult_t bench_measure(const struct gpu_bench_opts *o, struct threadArgs *args)
{
    TESTCHECK(bench_gpu_open(o, &args->job));
    TESTCHECK(bench_comm_open(o, &args->job));
    if (is_main_thread) {
        bench_head_print(o, args);
    }
    TESTCHECK(r2_fault_bench(args, GPU_NCCL_FLOAT32, GPU_NCCL_SUM, -1, 0));
    return lost ? testInternalError : testSuccess;
}

int gpu_bench_run(const struct gpu_bench_opts *o)
{
    static struct testColl coll = {bench_fill, bench_rate_get};
    double bw = 0;
    int bw_count = 0, rc;
    struct threadArgs args = {.meet_fd = o->meet_fd,
                              .nProcs = o->nranks,
                              .nThreads = 1,
                              .nGpus = 1,
                              .collTest = &coll,
                              .bw = &bw,
                              .bw_count = &bw_count};
    struct gpu_job *job = &args.job;

    bench_op = gpu_op_find(o->op);
    job->op = bench_op;
    job->rank = o->rank;
    job->nranks = o->nranks;
    job->share = o->bytes / sizeof(float);
    if (bench_op->blocks_sent == 2 || bench_op->blocks_received == 2) {
        job->share /= (size_t)o->nranks;
    }
    args.sendBytes = gpu_op_sent(job) * sizeof(float);
    args.expectedBytes = gpu_op_received(job) * sizeof(float);
    args.nbytes = args.sendBytes > args.expectedBytes ? args.sendBytes : args.expectedBytes;
    iters = o->iters;
    is_main_thread = o->rank == 0;
    rc = bench_measure(o, &args);
    if (is_main_thread) {
        int done;

        putchar('\n');
        done = r2_fault_report() == 0;
        if (rc == testSuccess) {
            rc = r2_fault_all.wrong ? testNumResults : done ? testSuccess : testInternalError;
        }
    }
    if (rc == testSuccess && gpu_nccl.comm_destroy(job->comm) != 0) {
        rc = testNcclError;
    }
    free(job->host);
    return rc;
}
