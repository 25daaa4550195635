/*
 * Communicators and collectives whose every element is known. An element's value has the
 * communicator, the collective, the rank and the place in it, so that what an older communicator
 * left behind is never right by chance; none of the values is the poison.
 */
#include "tests/nccl/rank/nccl_life.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUARD   4096
#define POISON  0xa5
#define LOOK_US 200

struct life_calls life_calls;

void life_calls_find(void)
{
    *(void **)&life_calls.finalize = dlsym(RTLD_DEFAULT, "ncclCommFinalize");
    *(void **)&life_calls.shrink = dlsym(RTLD_DEFAULT, "ncclCommShrink");
    *(void **)&life_calls.revoke = dlsym(RTLD_DEFAULT, "ncclCommRevoke");
    *(void **)&life_calls.mem_alloc = dlsym(RTLD_DEFAULT, "ncclMemAlloc");
    *(void **)&life_calls.mem_free = dlsym(RTLD_DEFAULT, "ncclMemFree");
}

const char *life_said(struct life *l, ncclResult_t rc, ncclComm_t comm)
{
    nccl_lib_error_print(rc, comm, l->said, sizeof(l->said));
    return l->said;
}

/* --- memory --- */

void life_buf_make(struct life *l, struct life_buf *b, size_t bytes, bool by_nccl)
{
    *b = (struct life_buf){.bytes = bytes, .by_nccl = by_nccl};
    if (by_nccl) {
        void *at = NULL;
        ncclResult_t rc = life_calls.mem_alloc(&at, bytes + 2 * GUARD);

        LIFE_WANT(l, rc == ncclSuccess, "ncclMemAlloc: %s", life_said(l, rc, NULL));
        b->at = (CUdeviceptr)at;
    } else {
        LIFE_CUDA(l, cuMemAlloc, &b->at, bytes + 2 * GUARD);
    }
    life_buf_poison(l, b);
}

void life_buf_free(struct life *l, struct life_buf *b)
{
    if (b->at && b->by_nccl) {
        ncclResult_t rc = life_calls.mem_free((void *)b->at);

        LIFE_WANT(l, rc == ncclSuccess, "ncclMemFree: %s", life_said(l, rc, NULL));
    } else if (b->at) {
        LIFE_CUDA(l, cuMemFree, b->at);
    }
    b->at = 0;
}

/* Copies of the default stream's: complete on return. */
static void buf_put(struct life *l, const struct life_buf *b, const void *host)
{
    LIFE_CUDA(l, cuMemcpyHtoDAsync, b->at, host, b->bytes + 2 * GUARD, NULL);
    LIFE_CUDA(l, cuStreamSynchronize, NULL);
}

static uint8_t *buf_get(struct life *l, const struct life_buf *b)
{
    uint8_t *host = util_mem_alloc(b->bytes + 2 * GUARD, 1);

    LIFE_CUDA(l, cuMemcpyDtoHAsync, host, b->at, b->bytes + 2 * GUARD, NULL);
    LIFE_CUDA(l, cuStreamSynchronize, NULL);
    return host;
}

void life_buf_poison(struct life *l, const struct life_buf *b)
{
    uint8_t *host = util_mem_alloc(b->bytes + 2 * GUARD, 1);

    memset(host, POISON, b->bytes + 2 * GUARD);
    buf_put(l, b, host);
    free(host);
}

static void poison_check(struct life *l, const uint8_t *at, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != POISON) {
            life_fail(l, PERF_RESULT, "%s: byte %zu of %zu has been written to, 0x%02x", what, i, n,
                      at[i]);
        }
    }
}

void life_buf_poisoned_check(struct life *l, const struct life_buf *b, const char *what)
{
    uint8_t *host = buf_get(l, b);

    poison_check(l, host, b->bytes + 2 * GUARD, what);
    free(host);
}

void life_buf_register(struct life *l, struct life_comm *c, struct life_buf *b)
{
    LIFE_NCCL(l, ncclCommRegister, c->nccl, (char *)b->at + GUARD, b->bytes, &b->handle);
}

void life_buf_deregister(struct life *l, struct life_comm *c, struct life_buf *b)
{
    LIFE_NCCL(l, ncclCommDeregister, c->nccl, b->handle);
    b->handle = NULL;
}

/* --- communicators --- */

void life_comm_take(struct life *l, struct life_comm *c, ncclComm_t nccl, int rank, int n,
                    size_t bytes)
{
    *c = (struct life_comm){.nccl = nccl, .rank = rank, .n = n, .serial = ++l->comms};
    LIFE_CUDA(l, cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING);
    LIFE_CUDA(l, cuEventCreate, &c->done, CU_EVENT_DISABLE_TIMING);
    if (bytes) {
        life_buf_make(l, &c->send, bytes, false);
        life_buf_make(l, &c->recv, bytes, false);
    }
}

ncclResult_t life_comm_try(struct life *l, struct life_comm *c)
{
    int rank = 0, n = 0;
    ncclComm_t nccl = NULL;
    ncclUniqueId id;
    ncclResult_t rc;

    for (int r = 0; r < l->ranks; r++) {
        bool lives = !atomic_load(&l->board->place[r].gone);

        rank += lives && r < l->rank;
        n += lives;
    }
    life_barrier(l);
    if (rank == 0) {
        LIFE_NCCL(l, ncclGetUniqueId, &l->board->id);
    }
    life_barrier(l);
    id = l->board->id;
    life_phase(l, "ncclCommInitRank");
    rc = nccl_lib.ncclCommInitRank(&nccl, n, id, rank);
    life_phase(l, NULL);
    if (rc != ncclSuccess) {
        life_said(l, rc, NULL);
    }
    life_comm_take(l, c, nccl, rank, n, 0);
    return rc;
}

void life_comm_make(struct life *l, struct life_comm *c, size_t bytes)
{
    ncclResult_t rc = life_comm_try(l, c);

    LIFE_WANT(l, rc == ncclSuccess, "ncclCommInitRank: %s", l->said);
    if (bytes) {
        life_buf_make(l, &c->send, bytes, false);
        life_buf_make(l, &c->recv, bytes, false);
    }
}

double life_abort(struct life *l, struct life_comm *c)
{
    uint64_t from = util_now_ns();

    LIFE_NCCL(l, ncclCommAbort, c->nccl);
    c->nccl = NULL;
    life_phase(l, "the kernel of an aborted communicator");
    LIFE_CUDA(l, cuStreamSynchronize, c->stream);
    life_phase(l, NULL);
    return (double)(util_now_ns() - from) / 1e6;
}

void life_destroy(struct life *l, struct life_comm *c)
{
    LIFE_NCCL(l, ncclCommDestroy, c->nccl);
    c->nccl = NULL;
}

void life_comm_free(struct life *l, struct life_comm *c)
{
    life_buf_free(l, &c->send);
    life_buf_free(l, &c->recv);
    LIFE_CUDA(l, cuEventDestroy, c->done);
    LIFE_CUDA(l, cuStreamDestroy, c->stream);
}

/* --- collectives --- */

static int32_t value(const struct life_comm *c, int rank, size_t i)
{
    uint64_t name = ((uint64_t)c->serial << 32) ^ ((uint64_t)c->iteration << 8) ^ (uint64_t)rank;

    return (int32_t)(util_hash64(name * 0x9e3779b97f4a7c15ull ^ i) & 0xfffff);
}

/* The value of element @i of what this rank receives. */
static int32_t expected(const struct life_comm *c, size_t i)
{
    int32_t sum = 0;

    switch (c->op) {
    case LIFE_ALL_GATHER:
        return value(c, (int)(i / c->count), i % c->count);
    case LIFE_SENDRECV:
        return value(c, (c->rank + c->n - 1) % c->n, i);
    default:
        for (int r = 0; r < c->n; r++) {
            sum += value(c, r, i);
        }
        return sum;
    }
}

static size_t received(const struct life_comm *c)
{
    return c->count * (c->op == LIFE_ALL_GATHER ? (size_t)c->n : 1);
}

static void data_put(struct life *l, const struct life_comm *c)
{
    uint8_t *host = util_mem_alloc(c->send.bytes + 2 * GUARD, 1);
    int32_t *at = (int32_t *)(host + GUARD);

    memset(host, POISON, c->send.bytes + 2 * GUARD);
    for (size_t i = 0; i < c->count; i++) {
        at[i] = value(c, c->rank, i);
    }
    buf_put(l, &c->send, host);
    free(host);
    life_buf_poison(l, &c->recv);
}

/* Another collective, whose data is in place. */
static void data_begin(struct life *l, struct life_comm *c, enum life_op op, size_t count)
{
    c->op = op;
    c->count = count;
    c->iteration++;
    LIFE_WANT(l, received(c) * 4 <= c->recv.bytes && count * 4 <= c->send.bytes,
              "the collective is larger than its buffers");
    data_put(l, c);
}

static ncclResult_t queue(struct life *l, struct life_comm *c, enum life_op op, size_t count)
{
    void *send = (char *)c->send.at + GUARD, *recv = (char *)c->recv.at + GUARD;
    ncclResult_t rc;

    life_phase(l, "queueing a collective");
    if (op == LIFE_ALL_REDUCE) {
        rc = nccl_lib.ncclAllReduce(send, recv, count, ncclInt32, ncclSum, c->nccl, c->stream);
    } else if (op == LIFE_ALL_GATHER) {
        rc = nccl_lib.ncclAllGather(send, recv, count, ncclInt32, c->nccl, c->stream);
    } else {
        LIFE_NCCL(l, ncclGroupStart);
        LIFE_NCCL(l, ncclSend, send, count, ncclInt32, (c->rank + 1) % c->n, c->nccl, c->stream);
        LIFE_NCCL(l, ncclRecv, recv, count, ncclInt32, (c->rank + c->n - 1) % c->n, c->nccl,
                  c->stream);
        life_phase(l, "queueing a collective");
        rc = nccl_lib.ncclGroupEnd();
    }
    life_phase(l, NULL);
    if (rc != ncclSuccess) {
        life_said(l, rc, c->nccl);
    }
    return rc;
}

ncclResult_t life_start(struct life *l, struct life_comm *c, enum life_op op, size_t count)
{
    ncclResult_t rc;

    data_begin(l, c, op, count);
    rc = queue(l, c, op, count);
    if (rc == ncclSuccess) {
        LIFE_CUDA(l, cuEventRecord, c->done, c->stream);
    }
    return rc;
}

void life_capture(struct life *l, struct life_comm *c, enum life_op op, size_t count,
                  struct life_graph *g)
{
    ncclResult_t rc;
    CUgraph graph;

    *g = (struct life_graph){NULL, op, count};
    LIFE_CUDA(l, cuStreamBeginCapture, c->stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    rc = queue(l, c, op, count);
    LIFE_WANT(l, rc == ncclSuccess, "a collective that is captured: %s", l->said);
    LIFE_CUDA(l, cuStreamEndCapture, c->stream, &graph);
    LIFE_CUDA(l, cuGraphInstantiate, &g->exec, graph, 0);
    LIFE_CUDA(l, cuGraphDestroy, graph);
}

void life_graph_free(struct life *l, struct life_graph *g)
{
    LIFE_CUDA(l, cuGraphExecDestroy, g->exec);
    g->exec = NULL;
}

bool life_is_busy(struct life *l, struct life_comm *c)
{
    CUresult rc = nccl_lib.cuEventQuery(c->done);

    LIFE_WANT(l, rc == CUDA_SUCCESS || rc == CUDA_ERROR_NOT_READY, "cuEventQuery: CUDA error %d",
              (int)rc);
    return rc == CUDA_ERROR_NOT_READY;
}

ncclResult_t life_wait(struct life *l, struct life_comm *c)
{
    ncclResult_t rc = ncclSuccess;

    life_phase(l, "a collective");
    while (life_is_busy(l, c)) {
        LIFE_WANT(l, nccl_lib.ncclCommGetAsyncError(c->nccl, &rc) == ncclSuccess,
                  "ncclCommGetAsyncError failed");
        if (rc != ncclSuccess && rc != ncclInProgress) {
            life_said(l, rc, c->nccl);
            break;
        }
        rc = ncclSuccess;
        life_look(l);
        usleep(LOOK_US);
    }
    life_phase(l, NULL);
    return rc;
}

void life_check(struct life *l, struct life_comm *c)
{
    uint8_t *host = buf_get(l, &c->recv);
    const int32_t *at = (const int32_t *)(host + GUARD);
    size_t n = received(c);

    for (size_t i = 0; i < n; i++) {
        if (at[i] != expected(c, i)) {
            life_fail(l, PERF_RESULT,
                      "communicator %d, collective %d: element %zu of %zu is 0x%x, not 0x%x",
                      c->serial, c->iteration, i, n, (unsigned)at[i], (unsigned)expected(c, i));
        }
    }
    poison_check(l, host, GUARD, "memory before the receive buffer");
    poison_check(l, host + GUARD + n * 4, c->recv.bytes - n * 4 + GUARD,
                 "memory behind what was received");
    free(host);
    host = buf_get(l, &c->send);
    at = (const int32_t *)(host + GUARD);
    for (size_t i = 0; i < c->count; i++) {
        if (at[i] != value(c, c->rank, i)) {
            life_fail(l, PERF_RESULT, "element %zu of the send buffer has been written to", i);
        }
    }
    poison_check(l, host, GUARD, "memory before the send buffer");
    poison_check(l, host + GUARD + c->count * 4, c->send.bytes - c->count * 4 + GUARD,
                 "memory behind what was sent");
    free(host);
}

static void finish(struct life *l, struct life_comm *c, ncclResult_t rc)
{
    rc = rc == ncclSuccess ? life_wait(l, c) : rc;
    LIFE_WANT(l, rc == ncclSuccess, "communicator %d, collective %d: %s", c->serial, c->iteration,
              l->said);
    life_check(l, c);
}

void life_run(struct life *l, struct life_comm *c, enum life_op op, size_t count)
{
    finish(l, c, life_start(l, c, op, count));
}

void life_replay(struct life *l, struct life_comm *c, const struct life_graph *g)
{
    data_begin(l, c, g->op, g->count);
    LIFE_CUDA(l, cuGraphLaunch, g->exec, c->stream);
    LIFE_CUDA(l, cuEventRecord, c->done, c->stream);
    finish(l, c, ncclSuccess);
}
