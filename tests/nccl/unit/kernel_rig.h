/*
 * What the tests of the stand-in's kernels (tests/nccl/standin/kernel_*.c) have in the place of
 * NCCL and the rest of the stand-in: a table of functions, and connections that are memory.
 */
#ifndef KERNEL_RIG_H
#define KERNEL_RIG_H

#include <check.h>
#include <stdint.h>

#include "tests/nccl/standin/kernel.h"
#include "tests/unit/suite.h"

/* What gpu_die() ends a test's process with. */
#define RIG_DIED 86

/* The table that the kernels find: number of a row = its index. Rows of this release, and as many
 * more as are wanted (negative: fewer). Before the first kernel_function_get(). */
void rig_table_make(int more);
/* The row of a collective by NCCL's own count. @algo: its place among those of the collective. */
int rig_row(int func, int op, int type, int algo, int proto);

/* What gpu_launch() does with a kernel of NCCL's and its one argument, in the caller's thread. */
void rig_kernel_run(const char *name, unsigned blocks, void *args);

#define RIG_BUFFER (64 << 10) /* of a protocol of a connection */
/* One direction between two ranks: what the receiver owns, and where both ends stand. */
struct rig_conn {
    char buffs[PROTOS][RIG_BUFFER] __attribute__((aligned(128)));
    uint64_t head, tail;
    struct conn_fifo fifo[STEPS];
};
/* @c as seen by an end of it. @fifo: whether a proxy listens. */
void rig_conn_info(struct conn_info *out, struct rig_conn *c, bool fifo);

#endif
