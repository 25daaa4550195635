/*
 * Collectives by NCCL: takes the place of r2_perf's engine.c and wire.c. Operations of a batch are
 * queued on one stream, as nccl-tests does; data goes to the GPU before a batch and comes back
 * after it, which is not timed.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/rank/nccl_lib.h"
#include "tools/r2_perf/engine.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

#define POLL_US 100 /* between two looks at the stream: the GPU's threads want the processors */

/* What the wire stands for here: a communicator. */
struct wire_memory {
    ncclComm_t comm;
    CUcontext context;
    CUstream stream;
};

struct engine {
    struct wire *wire;
    struct trace *trace;
    struct boot *boot;
    struct wire_memory *m;
    CUdeviceptr memory; /* of a batch's buffers, in the same order as in the host's */
    size_t memory_bytes;
    void *registered; /* NCCL's handle of that memory with -R, else NULL */
    CUevent *done;    /* of each operation of a batch */
    int room;
};

static int fail(struct boot *boot, const char *what, const char *text)
{
    char *line = util_str_format("%s: %s", what, text);

    boot_fail(boot, PERF_NET, line);
    free(line);
    return -1;
}

static int nccl_check(const struct wire *w, ncclResult_t rc, const char *what)
{
    char text[1024];

    if (rc == ncclSuccess) {
        return 0;
    }
    nccl_lib_error_print(rc, NULL, text, sizeof(text));
    return fail(w->setup.boot, what, text);
}

static int cuda_check(const struct wire *w, CUresult rc, const char *what)
{
    char text[32];

    if (rc == CUDA_SUCCESS) {
        return 0;
    }
    snprintf(text, sizeof(text), "CUDA error %d", (int)rc);
    return fail(w->setup.boot, what, text);
}

#define NCCL(w, call, ...) nccl_check(w, nccl_lib.call(__VA_ARGS__), #call)
#define CUDA(w, call, ...) cuda_check(w, nccl_lib.call(__VA_ARGS__), #call)

/* --- the communicator --- */

static int gpu_take(struct wire *w)
{
    struct wire_memory *m = w->memory;
    CUdevice dev;
    int local = w->setup.local % nccl_lib.gpus;

    return CUDA(w, cuDeviceGet, &dev, local) ||
                   CUDA(w, cuDevicePrimaryCtxRetain, &m->context, dev) ||
                   CUDA(w, cuCtxSetCurrent, m->context) ||
                   CUDA(w, cuStreamCreate, &m->stream, CU_STREAM_NON_BLOCKING)
               ? -1
               : 0;
}

int wire_open(struct wire *w, const struct wire_setup *setup)
{
    ncclUniqueId *ids = util_mem_alloc(BOOT_RANKS_MAX, sizeof(*ids));
    int rc = -1;

    memset(w, 0, sizeof(*w));
    w->setup = *setup;
    w->memory = util_mem_alloc(1, sizeof(*w->memory));
    watch_phase_set("setting up a communicator");
    if (gpu_take(w) == 0 && (setup->rank != 0 || NCCL(w, ncclGetUniqueId, &ids[0]) == 0) &&
        boot_allgather(setup->boot, ids, sizeof(ids[0])) == 0) {
        rc = NCCL(w, ncclCommInitRank, &w->memory->comm, setup->nranks, ids[0], setup->rank);
    }
    watch_phase_set(NULL);
    free(ids);
    return rc;
}

void wire_close(struct wire *w)
{
    struct wire_memory *m = w->memory;

    if (m == NULL) {
        return;
    }
    if (m->comm && boot_failed(w->setup.boot)) {
        nccl_lib.ncclCommAbort(m->comm);
    } else if (m->comm) {
        NCCL(w, ncclCommDestroy, m->comm);
    }
    if (m->stream) {
        nccl_lib.cuStreamDestroy(m->stream);
    }
    free(m);
    w->memory = NULL;
}

/* --- a batch --- */

/* The host's buffers of a batch lie in one piece of memory. */
struct span {
    char *from, *to;
};

static void span_add(struct span *s, char *at, size_t bytes)
{
    if (bytes > 0) {
        s->from = s->from == NULL || at < s->from ? at : s->from;
        s->to = at + bytes > s->to ? at + bytes : s->to;
    }
}

static size_t factor(enum algo_op op, bool receives, int nranks)
{
    bool gathers = op == ALGO_ALL_GATHER || op == ALGO_ALLTOALL || op == ALGO_GATHER,
         scatters = op == ALGO_REDUCE_SCATTER || op == ALGO_ALLTOALL || op == ALGO_SCATTER;

    return (receives ? gathers : scatters) ? (size_t)nranks : 1;
}

static size_t op_bytes(const struct engine *e, const struct engine_op *op, bool receives)
{
    const struct wire_setup *s = &e->wire->setup;

    return op->count * type_id_size(op->type) * factor(s->op, receives, s->nranks);
}

static struct span batch_span(const struct engine *e, const struct engine_batch *b)
{
    struct span s = {NULL, NULL};

    for (int i = 0; i < b->n; i++) {
        span_add(&s, b->ops[i].send, op_bytes(e, &b->ops[i], false));
        span_add(&s, b->ops[i].recv, op_bytes(e, &b->ops[i], true));
    }
    return s;
}

/* The buffers go. After an abort NCCL has forgotten its registration. */
static void memory_drop(struct engine *e)
{
    if (e->registered && e->m->comm) {
        NCCL(e->wire, ncclCommDeregister, e->m->comm, e->registered);
    }
    if (e->memory) {
        nccl_lib.cuMemFree(e->memory);
    }
    e->registered = NULL;
    e->memory = 0;
    e->memory_bytes = 0;
}

static int memory_take(struct engine *e, size_t bytes)
{
    memory_drop(e);
    if (CUDA(e->wire, cuMemAlloc, &e->memory, bytes) != 0) {
        return -1;
    }
    e->memory_bytes = bytes;
    return e->wire->setup.local_register ? NCCL(e->wire, ncclCommRegister, e->m->comm,
                                                (void *)e->memory, bytes, &e->registered)
                                         : 0;
}

static int batch_room(struct engine *e, const struct engine_batch *b, size_t bytes)
{
    if (bytes > e->memory_bytes && memory_take(e, bytes) != 0) {
        return -1;
    }
    if (b->n > e->room) {
        e->done = util_mem_resize(e->done, (size_t)b->n, sizeof(*e->done));
    }
    for (; e->room < b->n; e->room++) {
        if (CUDA(e->wire, cuEventCreate, &e->done[e->room], CU_EVENT_DISABLE_TIMING) != 0) {
            return -1;
        }
    }
    return 0;
}

static ncclRedOp_t redop_of(enum type_redop op)
{
    static const ncclRedOp_t ops[REDOP_COUNT] = {[REDOP_SUM] = ncclSum,
                                                 [REDOP_PROD] = ncclProd,
                                                 [REDOP_MAX] = ncclMax,
                                                 [REDOP_MIN] = ncclMin,
                                                 [REDOP_AVG] = ncclAvg};
    return ops[op];
}

static ncclDataType_t type_of(enum type_id type)
{
    static const ncclDataType_t types[TYPE_COUNT] = {
        [TYPE_INT8] = ncclInt8,        [TYPE_UINT8] = ncclUint8, [TYPE_INT32] = ncclInt32,
        [TYPE_UINT32] = ncclUint32,    [TYPE_INT64] = ncclInt64, [TYPE_UINT64] = ncclUint64,
        [TYPE_HALF] = ncclHalf,        [TYPE_FLOAT] = ncclFloat, [TYPE_DOUBLE] = ncclDouble,
        [TYPE_BFLOAT16] = ncclBfloat16};
    return types[type];
}

/* What the operation moves between this rank and @peer, in one direction. */
static int pair_queue(struct engine *e, const struct engine_op *op, int peer, bool sends, char *at)
{
    struct wire *w = e->wire;
    ncclDataType_t type = type_of(op->type);

    return sends ? NCCL(w, ncclSend, at, op->count, type, peer, e->m->comm, e->m->stream)
                 : NCCL(w, ncclRecv, at, op->count, type, peer, e->m->comm, e->m->stream);
}

/* All sends and receives of a pairwise operation, as one group. */
static int pairs_queue(struct engine *e, const struct engine_op *op, char *send, char *recv)
{
    const struct wire_setup *s = &e->wire->setup;
    size_t step = op->count * type_id_size(op->type);
    bool scatters = s->op == ALGO_ALLTOALL || s->op == ALGO_SCATTER,
         gathers = s->op == ALGO_ALLTOALL || s->op == ALGO_GATHER;

    if (NCCL(e->wire, ncclGroupStart) != 0) {
        return -1;
    }
    for (int i = 0; i < s->nranks; i++) {
        char *out = send + (scatters ? (size_t)i * step : 0),
             *in = recv + (gathers ? (size_t)i * step : 0);

        if ((algo_pair_exists(s->op, s->rank, i, s->nranks, op->root) &&
             pair_queue(e, op, i, true, out) != 0) ||
            (algo_pair_exists(s->op, i, s->rank, s->nranks, op->root) &&
             pair_queue(e, op, i, false, in) != 0)) {
            return -1;
        }
    }
    return NCCL(e->wire, ncclGroupEnd);
}

static int op_queue(struct engine *e, const struct engine_op *op, const struct span *host)
{
    char *send = (char *)e->memory + (op->send - host->from);
    char *recv = (char *)e->memory + (op->recv - host->from);
    ncclDataType_t type = type_of(op->type);
    ncclRedOp_t redop = redop_of(op->redop);
    struct wire *w = e->wire;
    ncclComm_t c = e->m->comm;
    CUstream s = e->m->stream;

    switch (w->setup.op) {
    case ALGO_ALL_REDUCE:
        return NCCL(w, ncclAllReduce, send, recv, op->count, type, redop, c, s);
    case ALGO_ALL_GATHER:
        return NCCL(w, ncclAllGather, send, recv, op->count, type, c, s);
    case ALGO_REDUCE_SCATTER:
        return NCCL(w, ncclReduceScatter, send, recv, op->count, type, redop, c, s);
    case ALGO_BROADCAST:
        return NCCL(w, ncclBroadcast, send, recv, op->count, type, op->root, c, s);
    case ALGO_REDUCE:
        return NCCL(w, ncclReduce, send, recv, op->count, type, redop, op->root, c, s);
    default:
        return pairs_queue(e, op, send, recv);
    }
}

/* NCCL's errors of the background. */
static int async_check(const struct engine *e)
{
    ncclResult_t rc = ncclSuccess;
    char text[1024];

    if (NCCL(e->wire, ncclCommGetAsyncError, e->m->comm, &rc) != 0) {
        return -1;
    }
    if (rc == ncclSuccess || rc == ncclInProgress) {
        return boot_failed(e->boot) ? -1 : 0;
    }
    nccl_lib_error_print(rc, e->m->comm, text, sizeof(text));
    return fail(e->boot, "NCCL ended the communicator", text);
}

/* Until operation @i is complete. */
static int op_wait(struct engine *e, struct engine_batch *b, int i)
{
    CUresult rc;

    while ((rc = nccl_lib.cuEventQuery(e->done[i])) == CUDA_ERROR_NOT_READY) {
        if (async_check(e) != 0) {
            return -1;
        }
        usleep(POLL_US);
    }
    if (cuda_check(e->wire, rc, "cuEventQuery") != 0) {
        return -1;
    }
    b->ops[i].end_ns = util_now_ns();
    watch_progress_note();
    if (b->timed) {
        trace_bytes_add(e->trace, b->ops[i].end_ns, op_bytes(e, &b->ops[i], true));
    }
    return 0;
}

/* One iteration, operations @from to @to: with -m more than one, which is a group, as with
 * nccl-tests. */
static int iteration_queue(struct engine *e, struct engine_batch *b, int from, int to,
                           const struct span *host)
{
    bool group = to - from > 1;

    if (group && NCCL(e->wire, ncclGroupStart) != 0) {
        return -1;
    }
    for (int i = from; i < to; i++) {
        if (op_queue(e, &b->ops[i], host) != 0) {
            return -1;
        }
    }
    if (group && NCCL(e->wire, ncclGroupEnd) != 0) {
        return -1;
    }
    for (int i = from; i < to; i++) {
        if (CUDA(e->wire, cuEventRecord, e->done[i], e->m->stream) != 0) {
            return -1;
        }
    }
    return 0;
}

/* nccl-tests' -z: 0 all in one go; else each iteration is waited for, and for 1 and 3 by all ranks.
 */
static int ops_run(struct engine *e, struct engine_batch *b, const struct span *host)
{
    int queued = 0;

    for (int i = 0; i < b->n; i++) {
        int until = b->blocking == ENGINE_FREE ? b->n : (i / b->agg + 1) * b->agg;

        for (; queued < until; queued += b->agg) {
            if (iteration_queue(e, b, queued, queued + b->agg < b->n ? queued + b->agg : b->n,
                                host) != 0) {
                return -1;
            }
        }
        if (op_wait(e, b, i) != 0) {
            return -1;
        }
        if (i + 1 == until &&
            (b->blocking == ENGINE_BARRIER || b->blocking == ENGINE_BARRIER_UNTIMED)) {
            uint64_t from = util_now_ns();

            if (boot_barrier(e->boot) != 0) {
                return -1;
            }
            b->excluded_ns += b->blocking == ENGINE_BARRIER_UNTIMED ? util_now_ns() - from : 0;
        }
    }
    return 0;
}

static int batch_time(struct engine *e, struct engine_batch *b, const struct span *host)
{
    int rc;

    if (engine_batch_start(b, e->boot, e->trace) != 0) {
        return -1;
    }
    rc = ops_run(e, b, host);
    engine_batch_stop(b, e->trace);
    watch_phase_set(NULL);
    return rc;
}

int engine_run(struct engine *e, struct engine_batch *b)
{
    struct span host = batch_span(e, b);
    size_t bytes = host.from ? (size_t)(host.to - host.from) : 0;

    if (batch_room(e, b, bytes + 16) != 0 ||
        (bytes &&
         CUDA(e->wire, cuMemcpyHtoDAsync, e->memory, host.from, bytes, e->m->stream) != 0) ||
        CUDA(e->wire, cuStreamSynchronize, e->m->stream) != 0 || batch_time(e, b, &host) != 0) {
        return -1;
    }
    return (bytes &&
            CUDA(e->wire, cuMemcpyDtoHAsync, host.from, e->memory, bytes, e->m->stream) != 0) ||
                   CUDA(e->wire, cuStreamSynchronize, e->m->stream) != 0
               ? -1
               : 0;
}

struct engine *engine_open(struct wire *wire, struct trace *trace, uint64_t idle_ns)
{
    struct engine *e = util_mem_alloc(1, sizeof(*e));

    (void)idle_ns; /* the progress thread is NCCL's */
    e->wire = wire;
    e->trace = trace;
    e->boot = wire->setup.boot;
    e->m = wire->memory;
    return e;
}

void engine_close(struct engine *e)
{
    if (e == NULL) {
        return;
    }
    if (boot_failed(e->boot) && e->m->comm) { /* kernels may be at the buffers still */
        nccl_lib.ncclCommAbort(e->m->comm);
        nccl_lib.cuStreamSynchronize(e->m->stream);
        e->m->comm = NULL;
    }
    for (int i = 0; i < e->room; i++) {
        nccl_lib.cuEventDestroy(e->done[i]);
    }
    memory_drop(e);
    free(e->done);
    free(e);
}

uint64_t engine_mismatches_get(const struct engine *e, const char **first)
{
    (void)e;
    *first = "";
    return 0; /* sizes of messages are NCCL's own business */
}

void engine_play(struct engine *e, const struct spread *spread)
{
    (void)e;
    (void)spread;
}

void engine_played_take(struct engine *e, uint64_t *sent, uint64_t *received)
{
    (void)e;
    memset(sent, 0, SPREAD_NICS * sizeof(*sent));
    memset(received, 0, SPREAD_NICS * sizeof(*received));
}

bool engine_can_play(void)
{
    return false;
}

bool engine_can_register(void)
{
    return true;
}
