#include "r2_hist.h"

unsigned r2_hist_bucket(uint64_t ns)
{
    unsigned log2;

    if (ns < 1ull << R2_HIST_FROM) {
        return 0;
    }
    if (ns >= 1ull << R2_HIST_TO) {
        return R2_HIST_BUCKETS - 1;
    }
    log2 = 63u - (unsigned)__builtin_clzll(ns);
    return 1 + (log2 - R2_HIST_FROM) * R2_HIST_EACH +
           (unsigned)((ns >> (log2 - 2)) % R2_HIST_EACH); /* the two bits behind the first one */
}

uint64_t r2_hist_begin(unsigned i)
{
    unsigned step = i - 1;

    if (i == 0) {
        return 0;
    }
    if (i >= R2_HIST_BUCKETS) {
        return UINT64_MAX;
    }
    return (uint64_t)(R2_HIST_EACH + step % R2_HIST_EACH)
           << (R2_HIST_FROM - 2 + step / R2_HIST_EACH);
}
_Static_assert(R2_HIST_EACH == 4, "two bits");

void r2_hist_note(struct r2_hist_live *h, uint64_t ns)
{
    atomic_fetch_add_explicit(&h->n[r2_hist_bucket(ns)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

void r2_hist_read(const struct r2_hist_live *h, struct r2_hist *out)
{
    for (unsigned i = 0; i < R2_HIST_BUCKETS; i++) {
        out->n[i] = atomic_load_explicit(&h->n[i], memory_order_relaxed);
    }
    out->sum_ns = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

void r2_hist_add(struct r2_hist *to, const struct r2_hist *from)
{
    for (unsigned i = 0; i < R2_HIST_BUCKETS; i++) {
        to->n[i] = add(to->n[i], from->n[i]);
    }
    to->sum_ns = add(to->sum_ns, from->sum_ns);
}

uint64_t r2_hist_count(const struct r2_hist *h)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < R2_HIST_BUCKETS; i++) {
        n = add(n, h->n[i]);
    }
    return n;
}

uint64_t r2_hist_quantile(const struct r2_hist *h, unsigned permille)
{
    uint64_t all = r2_hist_count(h), below = 0, rank;

    /* rounded up: of one time each quantile is that time */
    rank = all / 1000 * permille + (all % 1000 * permille + 999) / 1000;
    rank = rank ? rank : all > 0;
    for (unsigned i = 0; i < R2_HIST_BUCKETS - 1; i++) {
        uint64_t from = r2_hist_begin(i), width = r2_hist_begin(i + 1) - from;

        if (h->n[i] >= rank - below) {
            return all ? from + (uint64_t)((double)width * (double)(rank - below) /
                                           ((double)h->n[i] + 1))
                       : 0;
        }
        below += h->n[i];
    }
    return r2_hist_begin(R2_HIST_BUCKETS - 1);
}
