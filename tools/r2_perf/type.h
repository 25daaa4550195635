/*
 * Element types and reduction operations on the CPU. All pure; any thread; nothing blocks.
 */
#ifndef R2_PERF_TYPE_H
#define R2_PERF_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum type_id {
    TYPE_INT8,
    TYPE_UINT8,
    TYPE_INT32,
    TYPE_UINT32,
    TYPE_INT64,
    TYPE_UINT64,
    TYPE_HALF,
    TYPE_FLOAT,
    TYPE_DOUBLE,
    TYPE_BFLOAT16,
    TYPE_COUNT
};

enum type_redop { REDOP_SUM, REDOP_PROD, REDOP_MAX, REDOP_MIN, REDOP_AVG, REDOP_COUNT };

/* Names as nccl-tests prints and reads them. */
const char *type_id_name(enum type_id type);
const char *type_redop_name(enum type_redop op);
/* The type or operation called @name; -1 for "all"; -2 when there is none. */
int type_id_find(const char *name);
int type_redop_find(const char *name);
/* Bytes of one element. */
size_t type_id_size(enum type_id type);

/* dst[i] = a[i] op b[i]; dst may be a or b. AVG adds here and divides in type_vec_finish(). */
void type_vec_reduce(enum type_id type, enum type_redop op, void *dst, const void *a, const void *b,
                     size_t n);
/* What the last reduction of an operation owes over @nranks inputs: the division of AVG, else
 * nothing. */
void type_vec_finish(enum type_id type, enum type_redop op, void *data, size_t n, int nranks);

/*
 * The input value number @hash (any 64-bit value) written to @dst, drawn from a set for which every
 * order of reducing
 * @nranks such values gives the same bits: integers small enough for the mantissa, powers of two
 * for products.
 */
void type_value_make(enum type_id type, enum type_redop op, uint64_t hash, int nranks, void *dst);

#endif
