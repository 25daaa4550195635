/*
 * Which of several figures is out of the ordinary (docs/diagnosis.md, "Who is slow, seen from all
 * hosts"): figures that grow by factors, as times do, compared by their logarithms with a middle
 * one. Pure; needs no libm; any thread; nothing blocks.
 */
#ifndef R2_OUTLIER_H
#define R2_OUTLIER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define R2_OUTLIER_RATIO     1.5 /* of the usual: out is what is above it ... */
#define R2_OUTLIER_RATIO_FEW 2.0 /* ... where there are fewer than R2_OUTLIER_FEW figures ... */
#define R2_OUTLIER_FEW       32
#define R2_OUTLIER_MADS      6   /* ... and is further from it than so many MADs, of logarithms */
#define R2_OUTLIER_CHANCE    1e4 /* one figure is so by chance in one of so many sets */
#define R2_OUTLIER_LN2       0.693147180559945309417232121458

/* Natural logarithms of what figures are of the usual. */
struct r2_outlier {
    double of_set; /* the middle one of several is out above this ... */
    double of_one; /* ... a single one above this */
};

/* The natural logarithm of @x, which is finite, positive and normal; right to 1e-13. */
static inline double r2_outlier_ln(double x)
{
    uint64_t bits;
    double m, t, t2, sum = 0;
    int e;

    memcpy(&bits, &x, sizeof(bits));
    e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull; /* 1 to 2 */
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m /= 2;
        e++;
    }
    t = (m - 1) / (m + 1); /* ln m = 2 (t + t^3 / 3 + ...); |t| < 0.172 */
    t2 = t * t;
    for (int k = 19; k > 0; k -= 2) {
        sum = sum * t2 + 1.0 / k;
    }
    return e * R2_OUTLIER_LN2 + 2 * t * sum;
}

/* The root of @x, from 1 to 1e9, by Newton's steps from above. */
static inline double r2_outlier_root(double x)
{
    double r = x;

    for (int i = 0; i < 64; i++) {
        double next = (r + x / r) / 2;

        if (next >= r) {
            break;
        }
        r = next;
    }
    return r;
}

static inline int r2_outlier_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Sorts @x. The middle one, of an even number the lower one: what is out lies above. 0 of none. */
static inline double r2_outlier_median(double *x, int n)
{
    if (n <= 0) {
        return 0;
    }
    qsort(x, (size_t)n, sizeof(x[0]), r2_outlier_compare);
    return x[(n - 1) / 2];
}

/*
 * What is out beside @n figures, of which @away has how far the logarithms are from the middle, in
 * either direction; @away is sorted. A MAD of few figures may be small by chance, so their bounds
 * are wider; of many figures one is far away by chance.
 */
static inline struct r2_outlier r2_outlier_bounds(double *away, int n)
{
    double count = n > 0 ? n : 1, few = 1 + 1.7 / r2_outlier_root(count),
           z = 1.4826 * /* from a MAD to the deviation of a normal distribution */
               r2_outlier_root(2 * r2_outlier_ln(R2_OUTLIER_CHANCE * count)),
           ratio = r2_outlier_ln(n < R2_OUTLIER_FEW ? R2_OUTLIER_RATIO_FEW : R2_OUTLIER_RATIO),
           mad = r2_outlier_median(away, n), of_set = R2_OUTLIER_MADS * few * mad,
           of_one = (z > R2_OUTLIER_MADS ? z : R2_OUTLIER_MADS) * few * mad;

    return (struct r2_outlier){.of_set = of_set > ratio ? of_set : ratio,
                               .of_one = of_one > ratio ? of_one : ratio};
}

#endif
