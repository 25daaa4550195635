/*
 * Which function a batch of work names. NCCL's host has a table from rows, all combinations in one
 * order, to the numbers that it gives its kernels; several rows may have the same number.
 */
#include <stdlib.h>

#include "tests/nccl/standin/kernel.h"

static struct kernel_function *functions; /* by number */
static unsigned functions_len;
static pthread_once_t functions_once = PTHREAD_ONCE_INIT;

struct rows {
    const int *id; /* of a row; negative: not built */
    int len, at;
};

static void row_add(struct rows *r, int func, int op, int type, int algo, int proto)
{
    if (r->at < r->len && r->id[r->at] >= 0 && functions[r->id[r->at]].func < 0) {
        functions[r->id[r->at]] = (struct kernel_function){func, op, type, algo, proto};
    }
    r->at++;
}

/* Every protocol of every algorithm in @algos. */
static void rows_add(struct rows *r, int func, int op, int type, const int *algos, int n)
{
    for (int i = 0; i < n; i++) {
        for (int proto = 0; proto < PROTOS; proto++) {
            row_add(r, func, op, type, algos[i], proto);
        }
    }
}

/* The same for every operation and type. */
static void rows_reduce_add(struct rows *r, int func, const int *algos, int n)
{
    for (int op = 0; op < OPS; op++) {
        for (int type = 0; type < TYPES; type++) {
            rows_add(r, func, op, type, algos, n);
        }
    }
}

static void functions_read(void)
{
    static const int ring[] = {ALGO_RING};
    static const int all[] = {ALGO_TREE,          ALGO_RING, ALGO_COLLNET_DIRECT,
                              ALGO_COLLNET_CHAIN, ALGO_NVLS, ALGO_NVLS_TREE};
    static const int gather[] = {ALGO_RING, ALGO_COLLNET_DIRECT, ALGO_NVLS, ALGO_PAT};
    const int gathers = NCCL_RELEASE >= 223 ? 4 : 3; /* without PAT */
    size_t bytes = 0;
    struct rows r = {.id = attach_symbol("ncclDevFuncRowToId", &bytes)};

    if (r.id == NULL) {
        gpu_die("libnccl.so.2 has no table of its kernels' functions");
    }
    r.len = (int)(bytes / sizeof(int));
    for (int i = 0; i < r.len; i++) {
        functions_len = r.id[i] >= (int)functions_len ? (unsigned)r.id[i] + 1 : functions_len;
    }
    functions = calloc(functions_len + 1, sizeof(*functions));
    if (functions == NULL) {
        gpu_die("out of memory");
    }
    for (unsigned i = 0; i < functions_len; i++) {
        functions[i].func = -1;
    }
    row_add(&r, FUNC_SENDRECV, OP_SUM, T_I8, ALGO_RING, PROTO_SIMPLE);
    rows_add(&r, FUNC_ALLGATHER, OP_SUM, T_I8, gather, gathers);
    rows_add(&r, FUNC_BROADCAST, OP_SUM, T_I8, ring, 1);
    if (NCCL_RELEASE >= 229) {
        rows_add(&r, FUNC_ALLGATHERV, OP_SUM, T_I8, ring, 1);
    }
    rows_reduce_add(&r, FUNC_ALLREDUCE, all, 6);
    rows_reduce_add(&r, FUNC_REDUCE, ring, 1);
    rows_reduce_add(&r, FUNC_REDUCESCATTER, gather, gathers);
    if (r.at != r.len && r.at + 1 != r.len) { /* the generator may put a sentinel behind them */
        gpu_die("libnccl.so.2 has %d rows of functions, not the %d of release %d: another release?",
                r.len, r.at, NCCL_RELEASE);
    }
}

const struct kernel_function *kernel_function_get(unsigned id)
{
    pthread_once(&functions_once, functions_read);
    if (id >= functions_len || functions[id].func < 0) {
        gpu_die("function %u is not one that libnccl.so.2 names", id);
    }
    return &functions[id];
}
