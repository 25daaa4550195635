/* Arithmetic of NCCL's operations on its types. Pure. */
#include "tests/nccl/standin/kernel.h"

const unsigned char kernel_type_size[TYPES_MAX] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* By hand: not every compiler has _Float16 on every x86-64. */
static float half_get(uint16_t h)
{
    uint32_t e = h >> 10 & 31, m = h & 0x3ff;
    uint32_t u = (uint32_t)(h & 0x8000) << 16 | (e == 31 ? 0xffu : e + 112) << 23 | m << 13;
    float f;

    if (e == 0) { /* zero, or below the normal numbers */
        f = (float)m / (1 << 24);
        return h & 0x8000 ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}

/* To the nearest, ties to even. */
static uint16_t half_put(float f)
{
    uint32_t u, sign;

    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (u >= 0x477ff000) { /* half a step above the largest */
        return (uint16_t)(sign | 0x7c00);
    }
    if (u < 0x38800000) { /* the sum's last bit is a half's smallest number: float rounds */
        f = (sign ? -f : f) + 0.5f;
        memcpy(&u, &f, 4);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    return (uint16_t)(sign | (u + 0xfff + (u >> 13 & 1) - 0x38000000) >> 13);
}

static float bf16_get(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static uint16_t bf16_put(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* acc = x op acc, elementwise */
#define LOOP_INT(T)                                                                                \
    {                                                                                              \
        T *a = acc;                                                                                \
        const T *b = x;                                                                            \
        T mask = (T)arg;                                                                           \
        if (op == OP_PROD)                                                                         \
            for (size_t i = 0; i < n; i++)                                                         \
                a[i] = (T)(a[i] * b[i]);                                                           \
        else if (op == OP_MINMAX)                                                                  \
            for (size_t i = 0; i < n; i++)                                                         \
                a[i] = (T)(((T)(a[i] ^ mask) < (T)(b[i] ^ mask) ? (T)(a[i] ^ mask)                 \
                                                                : (T)(b[i] ^ mask)) ^              \
                           mask);                                                                  \
        else                                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                a[i] = (T)(a[i] + b[i]);                                                           \
        break;                                                                                     \
    }
#define LOOP_REAL(T, F, GET, PUT)                                                                  \
    {                                                                                              \
        T *a = acc;                                                                                \
        const T *b = x;                                                                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            F u = GET(a[i]), v = GET(b[i]);                                                        \
            a[i] = PUT(op == OP_PROD     ? u * v                                                   \
                       : op != OP_MINMAX ? u + v                                                   \
                       : (arg & 1)       ? (u > v ? u : v)                                         \
                       : u < v           ? u                                                       \
                                         : v);                                                               \
        }                                                                                          \
        break;                                                                                     \
    }
#define AS_IS(x) (x)

void kernel_combine(int op, int type, uint64_t arg, void *acc, const void *x, size_t n)
{
    switch (type) {
    case T_I8:
    case T_U8:
        LOOP_INT(uint8_t)
    case T_I32:
    case T_U32:
        LOOP_INT(uint32_t)
    case T_I64:
    case T_U64:
        LOOP_INT(uint64_t)
    case T_F32:
        if (op == OP_SUM || op == OP_PREMULSUM) { /* by far the most frequent */
            float *restrict a = acc;
            const float *restrict b = x;

            for (size_t i = 0; i < n; i++) {
                a[i] += b[i];
            }
            break;
        }
        LOOP_REAL(float, float, AS_IS, AS_IS)
    case T_F64:
        LOOP_REAL(double, double, AS_IS, AS_IS)
    case T_F16:
        LOOP_REAL(uint16_t, float, half_get, half_put)
    case T_BF16:
        LOOP_REAL(uint16_t, float, bf16_get, bf16_put)
    default:
        gpu_die("type %d is not reduced here", type);
    }
}

#define SCALE(T, F, GET, PUT)                                                                      \
    {                                                                                              \
        T *a = acc, s;                                                                             \
        memcpy(&s, &arg, sizeof(s));                                                               \
        F f = GET(s);                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = (T)PUT((F)(GET(a[i]) * f));                                                     \
        break;                                                                                     \
    }

void kernel_pre_op(int op, int type, uint64_t arg, void *acc, size_t n)
{
    if (op != OP_PREMULSUM) {
        return;
    }
    switch (type) {
    case T_I8:
    case T_U8:
        SCALE(uint8_t, uint8_t, AS_IS, AS_IS)
    case T_I32:
    case T_U32:
        SCALE(uint32_t, uint32_t, AS_IS, AS_IS)
    case T_I64:
    case T_U64:
        SCALE(uint64_t, uint64_t, AS_IS, AS_IS)
    case T_F32:
        SCALE(float, float, AS_IS, AS_IS)
    case T_F64:
        SCALE(double, double, AS_IS, AS_IS)
    case T_F16:
        SCALE(uint16_t, float, half_get, half_put)
    case T_BF16:
        SCALE(uint16_t, float, bf16_get, bf16_put)
    default:
        gpu_die("type %d is not scaled here", type);
    }
}

#define DIVIDE(U, S)                                                                               \
    {                                                                                              \
        U *a = acc;                                                                                \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = is_signed ? (U)((S)a[i] / (S)by) : (U)(a[i] / (U)by);                           \
        break;                                                                                     \
    }

void kernel_post_op(int op, int type, uint64_t arg, void *acc, size_t n)
{
    int is_signed = arg & 1;
    int64_t by = (int64_t)(arg >> 1);

    if (op != OP_SUMPOSTDIV) {
        return;
    }
    switch (type) {
    case T_I8:
    case T_U8:
        DIVIDE(uint8_t, int8_t)
    case T_I32:
    case T_U32:
        DIVIDE(uint32_t, int32_t)
    case T_I64:
    case T_U64:
        DIVIDE(uint64_t, int64_t)
    default:
        gpu_die("type %d is not divided here", type);
    }
}
