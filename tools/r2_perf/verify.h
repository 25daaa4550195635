/*
 * Input data and the check of results. Every value depends on the rank, the index and the
 * operation's serial number, so old data of an earlier operation does not pass. Before an operation
 * the receive buffer holds the complement of what is expected: an element that nobody wrote is
 * always found.
 *
 * Values repeat after VERIFY_PERIOD elements, a prime, so that data moved by any usual chunk or
 * slice does not fit; the check of one operation is then a run of memcmp over a table. Thread: one
 * at a time per struct; nothing blocks.
 */
#ifndef R2_PERF_VERIFY_H
#define R2_PERF_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/r2_perf/algo.h"
#include "tools/r2_perf/type.h"

#define VERIFY_PERIOD 8171

/* One operation as its data sees it. */
struct verify_case {
    enum algo_op op;
    enum type_id type;
    enum type_redop redop;
    int rank, nranks, root;
    bool in_place;
    uint64_t serial; /* equal on all ranks, never used twice in a run */
    struct algo_counts counts;
};

struct verify;

/* Working memory (tables for all ranks); caller closes. */
struct verify *verify_open(int nranks);
void verify_close(struct verify *v);

/* Poison @recv, then write the inputs of this rank to @send, which may overlap it in place. */
void verify_data_fill(struct verify *v, const struct verify_case *c, void *send, void *recv);
/* Elements of the result that are wrong; 0 also where the operation leaves the result undefined. */
uint64_t verify_data_check(struct verify *v, const struct verify_case *c, const void *recv);

#endif
