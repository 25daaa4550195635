#include "tests/gpu/gpu_ops.h"

#include <stdint.h>
#include <string.h>

#include "tests/gpu/gpu_api.h"

#define F32 GPU_NCCL_FLOAT32

static float element_of(int rank, size_t i, int rep)
{
    uint32_t x =
        (uint32_t)i * 2654435761u ^ (uint32_t)rank * 40503u * 65536u ^ (uint32_t)rep * 2246822519u;

    return (float)(x >> 22); /* 0 to 1023 */
}

static float element_sum(const struct gpu_job *j, size_t i, int rep)
{
    float sum = 0;

    for (int r = 0; r < j->nranks; r++) {
        sum += element_of(r, i, rep);
    }
    return sum;
}

static int all_reduce_start(const struct gpu_job *j)
{
    return gpu_nccl.all_reduce(j->send, j->recv, j->share, F32, GPU_NCCL_SUM, j->comm, j->stream);
}

static int all_gather_start(const struct gpu_job *j)
{
    return gpu_nccl.all_gather(j->send, j->recv, j->share, F32, j->comm, j->stream);
}

static float all_gather_expect(const struct gpu_job *j, size_t i, int rep)
{
    return element_of((int)(i / j->share), i % j->share, rep);
}

static int reduce_scatter_start(const struct gpu_job *j)
{
    return gpu_nccl.reduce_scatter(j->send, j->recv, j->share, F32, GPU_NCCL_SUM, j->comm,
                                   j->stream);
}

static float reduce_scatter_expect(const struct gpu_job *j, size_t i, int rep)
{
    return element_sum(j, (size_t)j->rank * j->share + i, rep);
}

static int broadcast_start(const struct gpu_job *j)
{
    return gpu_nccl.broadcast(j->send, j->recv, j->share, F32, 0, j->comm, j->stream);
}

static float broadcast_expect(const struct gpu_job *j, size_t i, int rep)
{
    return element_of(0, i, rep);
}

static int sendrecv_start(const struct gpu_job *j)
{
    int rc = gpu_nccl.group_start();

    rc = rc ? rc
            : gpu_nccl.send(j->send, j->share, F32, (j->rank + 1) % j->nranks, j->comm, j->stream);
    rc = rc ? rc
            : gpu_nccl.recv(j->recv, j->share, F32, (j->rank + j->nranks - 1) % j->nranks, j->comm,
                            j->stream);
    return rc ? rc : gpu_nccl.group_end();
}

static float sendrecv_expect(const struct gpu_job *j, size_t i, int rep)
{
    return element_of((j->rank + j->nranks - 1) % j->nranks, i, rep);
}

static int alltoall_start(const struct gpu_job *j)
{
    int rc = gpu_nccl.group_start();

    for (int r = 0; r < j->nranks && rc == 0; r++) {
        size_t at = (size_t)r * j->share;

        rc = gpu_nccl.send((float *)j->send + at, j->share, F32, r, j->comm, j->stream);
        rc = rc ? rc : gpu_nccl.recv((float *)j->recv + at, j->share, F32, r, j->comm, j->stream);
    }
    return rc ? rc : gpu_nccl.group_end();
}

static float alltoall_expect(const struct gpu_job *j, size_t i, int rep)
{
    return element_of((int)(i / j->share), (size_t)j->rank * j->share + i % j->share, rep);
}

static const struct gpu_op ops[] = {
    {"all_reduce", 1, 1, 2, 1, all_reduce_start, element_sum},
    {"all_gather", 1, 2, 1, 1, all_gather_start, all_gather_expect},
    {"reduce_scatter", 2, 1, 1, 1, reduce_scatter_start, reduce_scatter_expect},
    {"broadcast", 1, 1, 1, 0, broadcast_start, broadcast_expect},
    {"sendrecv", 1, 1, 1, 0, sendrecv_start, sendrecv_expect},
    {"alltoall", 2, 2, 1, 1, alltoall_start, alltoall_expect},
};

const struct gpu_op *gpu_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

const char *gpu_op_names(void)
{
    return "all_reduce, all_gather, reduce_scatter, broadcast, sendrecv, alltoall";
}

static size_t blocks_of(int blocks, const struct gpu_job *j)
{
    return blocks == 2 ? j->share * (size_t)j->nranks : j->share;
}

size_t gpu_op_sent(const struct gpu_job *j)
{
    return blocks_of(j->op->blocks_sent, j);
}

size_t gpu_op_received(const struct gpu_job *j)
{
    return blocks_of(j->op->blocks_received, j);
}

int gpu_job_fill(const struct gpu_job *j, int rep)
{
    size_t n = gpu_op_sent(j), received = gpu_op_received(j) * sizeof(float);
    int rc;

    for (size_t i = 0; i < n; i++) {
        j->host[i] = element_of(j->rank, i, rep);
    }
    rc = gpu_cuda.memcpy_to((uint64_t)(uintptr_t)j->send, j->host, n * sizeof(float));
    if (rc == 0) {
        rc = gpu_cuda.memset_d8((uint64_t)(uintptr_t)j->recv, GPU_POISON,
                                received + GPU_GUARD_BYTES);
    }
    if (rc == 0) {
        rc = gpu_cuda.ctx_synchronize(); /* the stream of the operation does not wait for the
                                            default one */
    }
    return rc ? gpu_cuda_fail("filling the buffers", rc) : 0;
}

long long gpu_job_check(const struct gpu_job *j, int rep)
{
    size_t n = gpu_op_received(j);
    const unsigned char *guard = (const unsigned char *)(j->host + n);
    long long wrong = 0;
    int rc = gpu_cuda.memcpy_from(j->host, (uint64_t)(uintptr_t)j->recv,
                                  n * sizeof(float) + GPU_GUARD_BYTES);

    if (rc != 0) {
        return gpu_cuda_fail("reading the result", rc);
    }
    for (size_t i = 0; i < n; i++) {
        wrong += !(j->host[i] == j->op->expect(j, i, rep));
    }
    for (int i = 0; i < GPU_GUARD_BYTES; i++) {
        if (guard[i] != GPU_POISON) {
            wrong++;
            break;
        }
    }
    return wrong;
}
