/* Exact fractions, to compare the planner's doubles with; and numbers from a seed. */
#ifndef PLAN_RATIONAL_H
#define PLAN_RATIONAL_H

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

struct rational {
    __int128 p, q; /* in lowest terms, q > 0 */
};

static inline __int128 rational_gcd(__int128 a, __int128 b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    while (b != 0) {
        __int128 r = a % b;

        a = b;
        b = r;
    }
    return a;
}

static inline __int128 rational_times(__int128 a, __int128 b)
{
    __int128 c;

    if (__builtin_mul_overflow(a, b, &c)) {
        ck_abort_msg("a fraction is too large for this test");
    }
    return c;
}

static inline struct rational rational(__int128 p, __int128 q)
{
    __int128 g = rational_gcd(p, q);

    if (q == 0) {
        ck_abort_msg("division by 0");
    }
    g = q < 0 ? -g : g;
    return (struct rational){p / g, q / g};
}

static inline struct rational rational_add(struct rational a, struct rational b)
{
    __int128 g = rational_gcd(a.q, b.q), p = rational_times(a.p, b.q / g);

    if (__builtin_add_overflow(p, rational_times(b.p, a.q / g), &p)) {
        ck_abort_msg("a fraction is too large for this test");
    }
    return rational(p, rational_times(a.q / g, b.q));
}

static inline struct rational rational_mul(struct rational a, struct rational b)
{
    struct rational c = rational(a.p, b.q), d = rational(b.p, a.q);

    return rational(rational_times(c.p, d.p), rational_times(c.q, d.q));
}

static inline struct rational rational_div(struct rational a, struct rational b)
{
    return rational_mul(a, rational(b.q, b.p));
}

static inline struct rational rational_sub(struct rational a, struct rational b)
{
    return rational_add(a, (struct rational){-b.p, b.q});
}

static inline int rational_cmp(struct rational a, struct rational b)
{
    struct rational d = rational_sub(a, b);

    return d.p < 0 ? -1 : d.p > 0;
}

static inline struct rational rational_max(struct rational a, struct rational b)
{
    return rational_cmp(a, b) < 0 ? b : a;
}

static inline double rational_real(struct rational a)
{
    return (double)((long double)a.p / (long double)a.q);
}

/* ck_assert writes a mark each time it passes: too slow for millions. */
static inline void same(double is, struct rational want, const char *what)
{
    double w = rational_real(want);

    if (!(fabs(is - w) <= 1e-12 * (fabs(w) + 1))) {
        ck_abort_msg("%s is %.17g, not %.17g", what, is, w);
    }
}

static inline uint32_t plan_random(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}

/* Rounds of random cases, many more with DEEP in the environment; and the bound against hangs that
 * goes with them. */
static inline int plan_rounds(int rounds)
{
    return getenv("DEEP") ? 100 * rounds : rounds;
}

static inline int plan_limit_s(void)
{
    return getenv("DEEP") ? 7200 : 60;
}

#endif
