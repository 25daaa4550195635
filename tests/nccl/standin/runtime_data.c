/*
 * The data kernels of nccl-tests: input of a rank, what all ranks' input gives, and the comparison
 * of every element. Which kernel it is, of which type and operation, is in its mangled name.
 * nccl-tests leaves to them which values there are; here they are such that a result is exact in
 * whatever order it is formed: integers wrap, and sums of floats stay below the mantissa. A value
 * depends on seed, index and rank; a wrong one passes once in as many as the type, or its mantissa
 * divided by the ranks, has values. Types: integers, float, double. Operations: sum, minimum,
 * maximum, and none (one rank's data). Another kernel is not here, which its launch says.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/standin/gpu.h"

enum { KERNEL_INPUT, KERNEL_EXPECTED, KERNEL_COMPARE, KERNEL_COMPARE_INLINE, KERNELS };
enum { RED_NIL, RED_SUM, RED_MIN, RED_MAX, REDS };

struct kernel {
    int kind, red;
    char type; /* as names are mangled */
    size_t bytes;
};

static const char *const reds[REDS] = {"NS_9ReduceNilE", "NS_9ReduceSumE", "NS_9ReduceMinE",
                                       "NS_9ReduceMaxE"};

static size_t type_bytes(char type)
{
    switch (type) {
    case 'a':
    case 'h':
        return 1;
    case 't':
        return 2;
    case 'i':
    case 'j':
    case 'f':
        return 4;
    case 'l':
    case 'm':
    case 'd':
        return 8;
    default:
        return 0;
    }
}

static bool kernel_parse(const char *name, struct kernel *k)
{
    static const char *const kinds[KERNELS] = {"13prepareInput2I", "16prepareExpected2I",
                                               "14verifyPreparedI", "13verifyInline2I"};

    for (int kind = 0; kind < KERNELS; kind++) {
        const char *at = strstr(name, kinds[kind]);

        if (at == NULL) {
            continue;
        }
        at += strlen(kinds[kind]);
        *k = (struct kernel){kind, RED_NIL, *at, type_bytes(*at)};
        at += 1 + (kind == KERNEL_COMPARE_INLINE); /* its second type is the first one's bits */
        for (int red = 0; kind != KERNEL_COMPARE && red <= REDS; red++) {
            if (red == REDS) {
                return false;
            }
            if (strncmp(at, reds[red], strlen(reds[red])) == 0) {
                k->red = red;
                break;
            }
        }
        return k->bytes != 0 && (k->type != 't' || kind == KERNEL_COMPARE);
    }
    return false;
}

static bool data_has(const char *name)
{
    struct kernel k;

    return kernel_parse(name, &k);
}

static int data_sizes(const char *name, size_t *sizes)
{
    /* elements, count, operation, ranks, rank, seed, first index; results, expected, count,
     * tolerance, wrong; ... */
    static const struct {
        int n;
        size_t bytes[8];
    } args[KERNELS] = {{7, {8, 8, 1, 4, 4, 8, 8}},
                       {6, {8, 8, 1, 4, 8, 8}},
                       {5, {8, 8, 8, 4, 8}},
                       {8, {8, 8, 1, 4, 8, 8, 4, 8}}};
    struct kernel k;

    if (!kernel_parse(name, &k)) {
        gpu_die("%s is no data kernel", name);
    }
    memcpy(sizes, args[k.kind].bytes, sizeof(args[k.kind].bytes));
    return args[k.kind].n;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* One rank's input, as a number that every type has. */
static int64_t number_of(const struct kernel *k, int ranks, int rank, uint64_t seed, int64_t index)
{
    uint64_t x = mix(mix(mix(seed + 0x9e3779b97f4a7c15u) + (uint64_t)index) + (uint64_t)rank);
    int64_t most = (k->type == 'f' ? 1ll << 23 : 1ll << 52) / ranks;

    switch (k->type) {
    case 'a':
        return (int8_t)x;
    case 'h':
        return (uint8_t)x;
    case 'i':
        return (int32_t)x;
    case 'j':
        return (uint32_t)x;
    case 'l':
    case 'm':
        return (int64_t)x;
    default:
        return (int64_t)(x % (uint64_t)(2 * most)) - most;
    }
}

static bool is_less(const struct kernel *k, int64_t a, int64_t b)
{
    return k->type == 'm' ? (uint64_t)a < (uint64_t)b : a < b;
}

static int64_t result_of(const struct kernel *k, int ranks, uint64_t seed, int64_t index)
{
    int64_t r = number_of(k, ranks, 0, seed, index);

    for (int i = 1; i < ranks && k->red != RED_NIL; i++) {
        int64_t x = number_of(k, ranks, i, seed, index);

        if (k->red == RED_SUM) {
            r = (int64_t)((uint64_t)r + (uint64_t)x);
        } else if (is_less(k, x, r) == (k->red == RED_MIN)) {
            r = x;
        }
    }
    return r;
}

static void number_write(const struct kernel *k, void *to, int64_t x)
{
    float f = (float)x;
    double d = (double)x;

    memcpy(to, k->type == 'f' ? (void *)&f : k->type == 'd' ? (void *)&d : (void *)&x, k->bytes);
}

static uint64_t bits_of(const void *p, size_t bytes)
{
    uint64_t x = 0;

    memcpy(&x, p, bytes);
    return x;
}

static bool is_apart(uint64_t a, uint64_t b, unsigned tolerance)
{
    return (a < b ? b - a : a - b) > tolerance;
}

static void generate(const struct kernel *k, void **a)
{
    char *to = *(char **)a[0];
    int64_t n = *(int64_t *)a[1], first;
    int ranks = *(int *)a[3], rank = k->kind == KERNEL_INPUT ? *(int *)a[4] : 0;
    uint64_t seed;

    a += k->kind == KERNEL_INPUT; /* which has the rank in between */
    seed = *(uint64_t *)a[4];
    first = *(int64_t *)a[5];
    for (int64_t i = 0; i < n; i++) {
        number_write(k, to + (size_t)i * k->bytes,
                     k->kind == KERNEL_INPUT ? number_of(k, ranks, rank, seed, first + i)
                                             : result_of(k, ranks, seed, first + i));
    }
}

static void compare(const struct kernel *k, void **a)
{
    const char *results = *(char **)a[0], *expected = *(char **)a[1];
    int64_t n = *(int64_t *)a[2], wrong = 0;
    unsigned tolerance = *(unsigned *)a[3];

    for (int64_t i = 0; i < n; i++) {
        size_t at = (size_t)i * k->bytes;

        wrong +=
            is_apart(bits_of(results + at, k->bytes), bits_of(expected + at, k->bytes), tolerance);
    }
    __atomic_fetch_add(*(int64_t **)a[4], wrong, __ATOMIC_RELAXED);
}

static void compare_inline(const struct kernel *k, void **a)
{
    const char *results = *(char **)a[0];
    int64_t n = *(int64_t *)a[1], first = *(int64_t *)a[5], wrong = 0;
    int ranks = *(int *)a[3];
    uint64_t seed = *(uint64_t *)a[4];
    unsigned tolerance = *(unsigned *)a[6];

    for (int64_t i = 0; i < n; i++) {
        char expected[8];

        number_write(k, expected, result_of(k, ranks, seed, first + i));
        wrong += is_apart(bits_of(results + (size_t)i * k->bytes, k->bytes),
                          bits_of(expected, k->bytes), tolerance);
    }
    __atomic_fetch_add(*(int64_t **)a[7], wrong, __ATOMIC_RELAXED);
}

static void data_run(const char *name, unsigned blocks, void **args)
{
    struct kernel k;

    (void)blocks;
    kernel_parse(name, &k);
    if (k.kind == KERNEL_COMPARE) {
        compare(&k, args);
    } else if (k.kind == KERNEL_COMPARE_INLINE) {
        compare_inline(&k, args);
    } else {
        generate(&k, args);
    }
}

__attribute__((constructor)) static void data_add(void)
{
    static struct gpu_code code = {data_has, NULL, data_sizes, data_run, NULL};

    gpu_code_add(&code);
}
