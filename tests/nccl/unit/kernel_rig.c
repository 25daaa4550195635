#include "tests/nccl/unit/kernel_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/nccl/standin/gpu.h"

_Thread_local int gpu_current;

static int *table;
static int table_len;

void gpu_die(const char *format, ...)
{
    va_list v;

    va_start(v, format);
    vfprintf(stderr, format, v);
    va_end(v);
    fputc('\n', stderr);
    fflush(stderr);
    _Exit(RIG_DIED);
}

void gpu_log(const char *format, ...)
{
    (void)format;
}

void *attach_symbol(const char *name, size_t *len)
{
    ck_assert_str_eq(name, "ncclDevFuncRowToId");
    *len = (size_t)table_len * sizeof(*table);
    return table;
}

const char *attach_name(const void *addr)
{
    (void)addr;
    return NULL;
}

static struct gpu_code *code; /* NCCL's kernels add themselves */

void gpu_code_add(struct gpu_code *c)
{
    code = c;
}

void rig_kernel_run(const char *name, unsigned blocks, void *args)
{
    if (!code->has(name)) {
        gpu_die("%s: nobody's kernel", name); /* as gpu_launch() does */
    }
    code->run(name, blocks, &args);
}

/* Algorithms of all-gather and reduce-scatter. */
static int gathers(void)
{
    return NCCL_RELEASE >= 223 ? 4 : 3;
}

int rig_row(int func, int op, int type, int algo, int proto)
{
    int pairs = OPS * TYPES, row = 1, of = op * TYPES + type;

    if (func == FUNC_SENDRECV) {
        return 0;
    }
    if (func == FUNC_ALLGATHER) {
        return row + algo * PROTOS + proto;
    }
    row += gathers() * PROTOS;
    if (func == FUNC_BROADCAST) {
        return row + proto;
    }
    row += NCCL_RELEASE >= 229 ? 2 * PROTOS : PROTOS; /* AllGatherV behind it */
    if (func == FUNC_ALLREDUCE) {
        return row + (of * 6 + algo) * PROTOS + proto;
    }
    row += pairs * 6 * PROTOS;
    if (func == FUNC_REDUCE) {
        return row + of * PROTOS + proto;
    }
    row += pairs * PROTOS;
    return row + (of * gathers() + algo) * PROTOS + proto; /* reduce-scatter */
}

void rig_table_make(int more)
{
    table_len =
        rig_row(FUNC_REDUCESCATTER, OPS - 1, TYPES - 1, gathers() - 1, PROTOS - 1) + 1 + more;
    table = malloc((size_t)table_len * sizeof(*table));
    ck_assert_ptr_nonnull(table);
    for (int i = 0; i < table_len; i++) {
        table[i] = i;
    }
}

void rig_conn_info(struct conn_info *out, struct rig_conn *c, bool fifo)
{
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < PROTOS; i++) {
        out->buffs[i] = c->buffs[i];
    }
    out->head = &c->head;
    out->tail = &c->tail;
    out->step_size = RIG_BUFFER / STEPS;
    out->fifo = fifo ? c->fifo : NULL;
}
