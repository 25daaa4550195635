/*
 * Histograms of times. Four buckets to each doubling from 1.024 us (2^10 ns) to 137 s (2^37 ns), so
 * that a bucket is at most a quarter wider than where it begins; one for what is shorter, one for
 * what is longer. Pure; no function blocks.
 */
#ifndef R2_HIST_H
#define R2_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define R2_HIST_FROM    10 /* log2 of ns, where the first doubling begins */
#define R2_HIST_TO      37 /* ... where the last one ends */
#define R2_HIST_EACH    4  /* buckets of a doubling */
#define R2_HIST_BUCKETS (1 + (R2_HIST_TO - R2_HIST_FROM) * R2_HIST_EACH + 1)

/* Sends are counted apart by their size: what a NIC at 100 Gb/s has on the wire in 1.3 us, so that
 * all else makes their time, and what is larger. */
enum r2_send_size { R2_SEND_SMALL, R2_SEND_LARGE, R2_SEND_SIZES };
#define R2_SEND_SMALL_MAX 16384 /* bytes */

struct r2_hist {
    uint64_t n[R2_HIST_BUCKETS];
    uint64_t sum_ns;
};

/*
 * The same while it is counted. Any thread writes and reads; all accesses are relaxed, and order
 * nothing: counts and sum may be of different moments, each count for itself is right.
 */
struct r2_hist_live {
    _Atomic uint64_t n[R2_HIST_BUCKETS];
    _Atomic uint64_t sum_ns;
};

/* The bucket of a time. */
unsigned r2_hist_bucket(uint64_t ns);
/* The shortest time of bucket @i, ns; of R2_HIST_BUCKETS and above: UINT64_MAX. */
uint64_t r2_hist_begin(unsigned i);
void r2_hist_note(struct r2_hist_live *h, uint64_t ns);
void r2_hist_read(const struct r2_hist_live *h, struct r2_hist *out);
/* Adds @from to @to. What does not fit into a count leaves it at its largest value. */
void r2_hist_add(struct r2_hist *to, const struct r2_hist *from);
/* How many times were noted; UINT64_MAX: more than that. */
uint64_t r2_hist_count(const struct r2_hist *h);
/*
 * The time that @permille of 1000 do not exceed, ns: inside of the bucket of the time that has this
 * rank, as far in as the rank is among those of the bucket. 0 of an empty one; of what is longer
 * than all buckets the end of the last one.
 */
uint64_t r2_hist_quantile(const struct r2_hist *h, unsigned permille);

#endif
