/* The stand-in's arithmetic on NCCL's types, beside one that is written another way. */
#include <math.h>

#include "tests/nccl/unit/kernel_rig.h"

#define PAIRS 4000

static uint64_t seed;

/* Also zeroes, ones and extremes, for random numbers seldom are. */
static uint64_t draw(void)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     ~0ull,
                                     0x8080808080808080ull,
                                     0x7f7f7f7f7f7f7f7full,
                                     0x8000000080008080ull,
                                     0x7fffffff7fff7f7full,
                                     0x8000000000000000ull};

    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    if (seed >> 60 == 0) {
        return edges[seed >> 32 & 7];
    }
    return seed ^ seed >> 29;
}

static const struct {
    int type, bits;
    bool is_signed;
} ints[] = {{T_I8, 8, true},    {T_U8, 8, false},  {T_I32, 32, true},
            {T_U32, 32, false}, {T_I64, 64, true}, {T_U64, 64, false}};
#define INTS ((int)(sizeof(ints) / sizeof(ints[0])))

static uint64_t cut(uint64_t v, int bits)
{
    return bits == 64 ? v : v & ((1ull << bits) - 1);
}

static int64_t extend(uint64_t v, int bits)
{
    return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

START_TEST(integers_are_combined_in_their_width)
{
    int type = ints[_i].type, bits = ints[_i].bits;
    uint64_t all = cut(~0ull, bits), flip = ints[_i].is_signed ? 1ull << (bits - 1) : 0;

    for (int i = 0; i < PAIRS; i++) {
        uint64_t a = cut(draw(), bits), b = cut(draw(), bits), sum = a, product = a, least = a,
                 most = a;
        bool less = ints[_i].is_signed ? extend(a, bits) < extend(b, bits) : a < b;

        kernel_combine(OP_SUM, type, 0, &sum, &b, 1);
        kernel_combine(OP_PROD, type, 0, &product, &b, 1);
        /* as NCCL's host gives minimum and maximum: which bits are turned before comparing */
        kernel_combine(OP_MINMAX, type, flip, &least, &b, 1);
        kernel_combine(OP_MINMAX, type, all ^ flip, &most, &b, 1);
        ck_assert_uint_eq(sum, cut(a + b, bits));
        ck_assert_uint_eq(product, cut(a * b, bits));
        ck_assert_uint_eq(least, less ? a : b);
        ck_assert_uint_eq(most, less ? b : a);
    }
}
END_TEST

START_TEST(integers_are_scaled_and_divided)
{
    int type = ints[_i].type, bits = ints[_i].bits;

    for (int i = 0; i < PAIRS; i++) {
        uint64_t a = cut(draw(), bits), by = 1 + draw() % 100, scaled = a, divided = a;
        uint64_t quotient = ints[_i].is_signed ? (uint64_t)(extend(a, bits) / (int64_t)by) : a / by;

        kernel_pre_op(OP_PREMULSUM, type, by, &scaled, 1);
        kernel_post_op(OP_SUMPOSTDIV, type, by << 1 | (ints[_i].is_signed ? 1 : 0), &divided, 1);
        ck_assert_uint_eq(scaled, cut(a * by, bits));
        ck_assert_uint_eq(divided, cut(quotient, bits));
        kernel_pre_op(OP_SUM, type, by, &a, 1); /* no other operation scales or divides */
        kernel_post_op(OP_PREMULSUM, type, by, &a, 1);
        ck_assert_uint_eq(cut(a, bits), a);
    }
}
END_TEST

/* A binary format by its numbers of bits, in double, which holds exact sums and products of two. */
struct format {
    int type, mantissa, least; /* least: exponent of the smallest normal number */
    double most;
};
static const struct format formats[] = {{T_F16, 10, -14, 65504.0}, {T_BF16, 7, -126, 0x1.fep127}};

static double value(const struct format *f, uint16_t bits)
{
    int e = (bits & 0x7fff) >> f->mantissa, m = bits & ((1 << f->mantissa) - 1);
    double v = e ? ldexp((1 << f->mantissa) + m, e - 1 + f->least - f->mantissa)
                 : ldexp(m, f->least - f->mantissa);

    return bits & 0x8000 ? -v : v;
}

static bool is_finite(const struct format *f, uint16_t bits)
{
    return (bits & 0x7fff) >> f->mantissa != 0x7fff >> f->mantissa;
}

/* To the nearest, ties to even; above the largest by half a step: infinite. */
static double rounded(const struct format *f, double v)
{
    double unit, r;

    if (v == 0) {
        return v;
    }
    unit = ldexp(1, (ilogb(v) < f->least ? f->least : ilogb(v)) - f->mantissa);
    r = nearbyint(v / unit) * unit;
    return fabs(r) > f->most ? copysign(INFINITY, v) : r;
}

static double combined(const struct format *f, int op, uint64_t arg, uint16_t a, uint16_t b)
{
    kernel_combine(op, f->type, arg, &a, &b, 1);
    if (!is_finite(f, a)) {
        ck_assert_msg((a & ((1 << f->mantissa) - 1)) == 0, "not a number, of two finite ones");
        return a & 0x8000 ? -INFINITY : INFINITY;
    }
    return value(f, a);
}

START_TEST(short_floats_round_once)
{
    const struct format *f = &formats[_i];
    int checked = 0;

    while (checked < PAIRS) {
        uint16_t a = (uint16_t)draw(), b = (uint16_t)draw();
        double x, y, scaled;
        uint16_t s = a;

        if (!is_finite(f, a) || !is_finite(f, b)) {
            continue;
        }
        x = value(f, a);
        y = value(f, b);
        ck_assert_double_eq(combined(f, OP_SUM, 0, a, b), rounded(f, x + y));
        ck_assert_double_eq(combined(f, OP_MINMAX, 0, a, b), x < y ? x : y);
        ck_assert_double_eq(combined(f, OP_MINMAX, 1, a, b), x > y ? x : y);
        /* a product of two bfloat16 below float's normal numbers is rounded there first */
        if (f->type == T_F16 || fabs(x * y) >= 0x1p-126 || x * y == 0) {
            ck_assert_double_eq(combined(f, OP_PROD, 0, a, b), rounded(f, x * y));
            kernel_pre_op(OP_PREMULSUM, f->type, b, &s, 1);
            scaled = is_finite(f, s) ? value(f, s) : copysign(INFINITY, x * y);
            ck_assert_double_eq(scaled, rounded(f, x * y));
        }
        checked++;
    }
}
END_TEST

/* By adding nothing. Every pattern comes back, but for what is not a number. */
START_TEST(short_floats_keep_every_value)
{
    const struct format *f = &formats[_i];

    for (uint32_t i = 0; i <= 0xffff; i++) {
        uint16_t a = (uint16_t)i, zero = 0x8000;
        bool nan = !is_finite(f, a) && (a & ((1 << f->mantissa) - 1)) != 0;

        kernel_combine(OP_SUM, f->type, 0, &a, &zero, 1);
        if (nan) {
            ck_assert_msg(!is_finite(f, a) && (a & ((1 << f->mantissa) - 1)) != 0, "%x", i);
        } else {
            ck_assert_uint_eq(a, i);
        }
    }
}
END_TEST

START_TEST(floats_and_doubles)
{
    for (int i = 0; i < PAIRS; i++) {
        double a = (double)(int64_t)draw() / 3, b = (double)(int64_t)draw() / 7;
        float p = (float)a, q = (float)b, f[4] = {p, p, p, p};
        double d[4] = {a, a, a, a};
        uint64_t scale = 0;

        kernel_combine(OP_SUM, T_F32, 0, &f[0], &q, 1);
        kernel_combine(OP_PROD, T_F32, 0, &f[1], &q, 1);
        kernel_combine(OP_MINMAX, T_F32, 0, &f[2], &q, 1);
        kernel_combine(OP_MINMAX, T_F32, 1, &f[3], &q, 1);
        ck_assert_float_eq(f[0], p + q);
        ck_assert_float_eq(f[1], p * q);
        ck_assert_float_eq(f[2], fminf(p, q));
        ck_assert_float_eq(f[3], fmaxf(p, q));
        kernel_combine(OP_SUM, T_F64, 0, &d[0], &b, 1);
        kernel_combine(OP_PROD, T_F64, 0, &d[1], &b, 1);
        kernel_combine(OP_MINMAX, T_F64, 0, &d[2], &b, 1);
        kernel_combine(OP_MINMAX, T_F64, 1, &d[3], &b, 1);
        ck_assert_double_eq(d[0], a + b);
        ck_assert_double_eq(d[1], a * b);
        ck_assert_double_eq(d[2], fmin(a, b));
        ck_assert_double_eq(d[3], fmax(a, b));
        memcpy(&scale, &q, sizeof(q));
        kernel_pre_op(OP_PREMULSUM, T_F32, scale, &p, 1);
        ck_assert_float_eq(p, (float)a * q);
    }
}
END_TEST

START_TEST(a_type_without_arithmetic_is_named)
{
    uint8_t a = 1, b = 2;

    kernel_combine(OP_SUM, T_F8E4M3, 0, &a, &b, 1);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, integers_are_combined_in_their_width, 0, INTS);
    tcase_add_loop_test(t, integers_are_scaled_and_divided, 0, INTS);
    tcase_add_loop_test(t, short_floats_round_once, 0, 2);
    tcase_add_loop_test(t, short_floats_keep_every_value, 0, 2);
    tcase_add_test(t, floats_and_doubles);
    tcase_add_exit_test(t, a_type_without_arithmetic_is_named, RIG_DIED);
}

int main(void)
{
    return suite_run("stand-in: types", 300, NULL, NULL, add);
}
