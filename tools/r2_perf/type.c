#include "tools/r2_perf/type.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} type_table[TYPE_COUNT] = {
    [TYPE_INT8] = {"int8", 1},         [TYPE_UINT8] = {"uint8", 1}, [TYPE_INT32] = {"int32", 4},
    [TYPE_UINT32] = {"uint32", 4},     [TYPE_INT64] = {"int64", 8}, [TYPE_UINT64] = {"uint64", 8},
    [TYPE_HALF] = {"half", 2},         [TYPE_FLOAT] = {"float", 4}, [TYPE_DOUBLE] = {"double", 8},
    [TYPE_BFLOAT16] = {"bfloat16", 2},
};

static const char *const redop_table[REDOP_COUNT] = {"sum", "prod", "max", "min", "avg"};

const char *type_id_name(enum type_id type)
{
    return type_table[type].name;
}

const char *type_redop_name(enum type_redop op)
{
    return redop_table[op];
}

size_t type_id_size(enum type_id type)
{
    return type_table[type].size;
}

int type_id_find(const char *name)
{
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (!strcmp(name, type_table[i].name)) {
            return i;
        }
    }
    return strcmp(name, "all") ? -2 : -1;
}

int type_redop_find(const char *name)
{
    for (int i = 0; i < REDOP_COUNT; i++) {
        if (!strcmp(name, redop_table[i])) {
            return i;
        }
    }
    return strcmp(name, "all") ? -2 : -1;
}

/* bfloat16 is the upper half of a float; to nearest even. NaN does not occur in this driver's data.
 */
static float type_bf16_load(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t type_bf16_store(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* IEEE binary16 by shifting the exponent with a multiplication, which also gets subnormals right.
 */
static float type_half_load(uint16_t v)
{
    uint32_t bits = ((uint32_t)(v & 0x7fff) << 13);
    float f, scale = 0x1p112f;
    memcpy(&f, &bits, sizeof(f));
    f *= scale;
    return v & 0x8000 ? -f : f;
}

static uint16_t type_half_store(float f)
{
    uint32_t sign = 0, bits;
    float scale = 0x1p-112f;
    if (__builtin_signbit(f)) {
        sign = 0x8000;
        f = -f;
    }
    if (f >= 65520.0f) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (f < 0x1p-14f) {
        /* subnormal: units of 2^-24, rounded to nearest even by the addition */
        float magic = f + 0.5f;
        memcpy(&bits, &magic, sizeof(bits));
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    f *= scale;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(sign | ((bits + 0xfff + ((bits >> 13) & 1)) >> 13));
}

#define TYPE_SAME(x)   (x)
#define TYPE_ADD(x, y) ((x) + (y))
#define TYPE_MUL(x, y) ((x) * (y))
#define TYPE_MAX(x, y) ((x) > (y) ? (x) : (y))
#define TYPE_MIN(x, y) ((x) < (y) ? (x) : (y))

/* One loop; @T is how elements lie in memory, @C the type that is computed in. */
#define TYPE_LOOP(name, T, C, LOAD, STORE, OP)                                                     \
    static void name(void *dst, const void *a, const void *b, size_t n)                            \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *p = a, *q = b;                                                                    \
        for (size_t i = 0; i < n; i++) {                                                           \
            C x = (C)LOAD(p[i]), y = (C)LOAD(q[i]);                                                \
            d[i] = (T)STORE((C)OP(x, y));                                                          \
        }                                                                                          \
    }

/* Sums and products of integers are computed unsigned, where wrapping is defined and independent of
 * order. */
#define TYPE_LOOPS(id, T, C, U, LOAD, STORE)                                                       \
    TYPE_LOOP(red_##id##_sum, T, U, LOAD, STORE, TYPE_ADD)                                         \
    TYPE_LOOP(red_##id##_prod, T, U, LOAD, STORE, TYPE_MUL)                                        \
    TYPE_LOOP(red_##id##_max, T, C, LOAD, STORE, TYPE_MAX)                                         \
    TYPE_LOOP(red_##id##_min, T, C, LOAD, STORE, TYPE_MIN)                                         \
    static void div_##id(void *data, size_t n, int nranks)                                         \
    {                                                                                              \
        T *d = data;                                                                               \
        for (size_t i = 0; i < n; i++) {                                                           \
            d[i] = (T)STORE((C)((C)LOAD(d[i]) / (C)nranks));                                       \
        }                                                                                          \
    }

TYPE_LOOPS(int8, int8_t, int8_t, uint8_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(uint8, uint8_t, uint8_t, uint8_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(int32, int32_t, int32_t, uint32_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(uint32, uint32_t, uint32_t, uint32_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(int64, int64_t, int64_t, uint64_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(uint64, uint64_t, uint64_t, uint64_t, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(half, uint16_t, float, float, type_half_load, type_half_store)
TYPE_LOOPS(float, float, float, float, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(double, double, double, double, TYPE_SAME, TYPE_SAME)
TYPE_LOOPS(bf16, uint16_t, float, float, type_bf16_load, type_bf16_store)

typedef void (*type_reduce_t)(void *dst, const void *a, const void *b, size_t n);
typedef void (*type_divide_t)(void *data, size_t n, int nranks);

/* clang-format off */
#define TYPE_ROW(id) {red_##id##_sum, red_##id##_prod, red_##id##_max, red_##id##_min, red_##id##_sum}
static const type_reduce_t reduce_table[TYPE_COUNT][REDOP_COUNT] = {
    [TYPE_INT8] = TYPE_ROW(int8),   [TYPE_UINT8] = TYPE_ROW(uint8),   [TYPE_INT32] = TYPE_ROW(int32),
    [TYPE_UINT32] = TYPE_ROW(uint32), [TYPE_INT64] = TYPE_ROW(int64), [TYPE_UINT64] = TYPE_ROW(uint64),
    [TYPE_HALF] = TYPE_ROW(half),   [TYPE_FLOAT] = TYPE_ROW(float),   [TYPE_DOUBLE] = TYPE_ROW(double),
    [TYPE_BFLOAT16] = TYPE_ROW(bf16),
};
static const type_divide_t divide_table[TYPE_COUNT] = {
    [TYPE_INT8] = div_int8,   [TYPE_UINT8] = div_uint8,   [TYPE_INT32] = div_int32, [TYPE_UINT32] = div_uint32,
    [TYPE_INT64] = div_int64, [TYPE_UINT64] = div_uint64, [TYPE_HALF] = div_half,   [TYPE_FLOAT] = div_float,
    [TYPE_DOUBLE] = div_double, [TYPE_BFLOAT16] = div_bf16,
};
/* clang-format on */

void type_vec_reduce(enum type_id type, enum type_redop op, void *dst, const void *a, const void *b,
                     size_t n)
{
    reduce_table[type][op](dst, a, b, n);
}

void type_vec_finish(enum type_id type, enum type_redop op, void *data, size_t n, int nranks)
{
    if (op == REDOP_AVG) {
        divide_table[type](data, n, nranks);
    }
}

/* Whole numbers up to this are exact in the type. */
static double type_exact_limit(enum type_id type)
{
    switch (type) {
    case TYPE_BFLOAT16:
        return 256;
    case TYPE_HALF:
        return 2048;
    case TYPE_FLOAT:
        return 16777216;
    default:
        return 0x1p40;
    }
}

static double type_float_value(enum type_id type, enum type_redop op, uint64_t hash, int nranks)
{
    if (op == REDOP_PROD) {
        /* +-1/2, +-1, +-2: exact while the exponent holds, which for half is 14 ranks */
        static const double factors[6] = {1, -1, 2, -2, 0.5, -0.5};
        int choices = type == TYPE_HALF && nranks > 14 ? 2 : 6;
        return factors[hash % (uint64_t)choices];
    }
    int terms = op == REDOP_SUM || op == REDOP_AVG ? nranks : 1;
    uint64_t range = (uint64_t)(type_exact_limit(type) / terms);
    return (double)(hash % range) - (double)(range / 2);
}

void type_value_make(enum type_id type, enum type_redop op, uint64_t hash, int nranks, void *dst)
{
    uint64_t whole =
        op == REDOP_PROD ? hash | 1 : hash; /* even factors would soon leave nothing but zeros */
    double real;
    float f;
    uint16_t h;
    switch (type) {
    case TYPE_HALF:
    case TYPE_BFLOAT16:
        f = (float)type_float_value(type, op, hash, nranks);
        h = type == TYPE_HALF ? type_half_store(f) : type_bf16_store(f);
        memcpy(dst, &h, sizeof(h));
        break;
    case TYPE_FLOAT:
        f = (float)type_float_value(type, op, hash, nranks);
        memcpy(dst, &f, sizeof(f));
        break;
    case TYPE_DOUBLE:
        real = type_float_value(type, op, hash, nranks);
        memcpy(dst, &real, sizeof(real));
        break;
    default:
        memcpy(dst, &whole, type_table[type].size); /* little endian: the low bytes */
    }
}
