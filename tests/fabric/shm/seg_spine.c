/* Spines in the segment: their faults, their queues, their counters. */
#include "tests/fabric/shm/seg.h"

#define GET(word)    atomic_load_explicit(&(word), memory_order_relaxed)
#define PUT(word, v) atomic_store_explicit(&(word), v, memory_order_relaxed)
#define ADD(word, n) atomic_fetch_add_explicit(&(word), n, memory_order_relaxed)

void seg_rail_read(struct seg_rail *s, struct fab_rail *r)
{
    r->down = GET(s->down);
    r->blackhole = GET(s->blackhole);
    for (int k = 0; k < FAB_MAX_SPINES; k++) {
        r->loss_ppm[k] = GET(s->loss_ppm[k]);
        r->rate[k] = GET(s->rate[k]);
    }
}

void seg_rails_fault(struct seg *seg, const struct fab_fault *f)
{
    const struct fab_desc *d = &seg->head.desc;
    struct fab_rail r;

    for (int i = 0; fab_spines(d) > 1 && i < d->nics; i++) {
        struct seg_rail *s = &seg->rail[i];

        if (f->nic >= 0 && f->nic != i) {
            continue;
        }
        seg_rail_read(s, &r);
        fab_rail_fault(&r, fab_spines(d), f);
        for (int k = 0; k < FAB_MAX_SPINES; k++) {
            PUT(s->loss_ppm[k], r.loss_ppm[k]);
            PUT(s->rate[k], r.rate[k]);
        }
        PUT(s->blackhole, r.blackhole);
        PUT(s->down, r.down);
    }
}

void seg_spine_count_read(struct seg_spine *s, struct fab_spine_count *c)
{
    *c = (struct fab_spine_count){.packets = GET(s->packets),
                                  .bytes = GET(s->bytes),
                                  .dropped = GET(s->dropped),
                                  .queued = GET(s->queued),
                                  .moved = GET(s->moved)};
}

int seg_spine_choose(struct seg *seg, const struct fab_hdr *h)
{
    const struct fab_desc *d = &seg->head.desc;
    struct seg_rail *r = &seg->rail[fab_hdr_rail(h)];
    uint64_t hash = fab_spine_hash(h, d->hash);
    int home = fab_spine_home(hash, fab_spines(d));
    int k = fab_spine_pick(hash, fab_spines(d), GET(r->down));

    if (k != home) {
        ADD(r->spine[home].moved, 1);
    }
    if (k >= 0) {
        ADD(r->spine[k].packets, 1);
        ADD(r->spine[k].bytes, h->len);
    }
    return k;
}

/* The queue is a clock, as a port is (seg_port.h), but everybody may be late in it. */
static bool queue_take(struct seg_spine *s, uint64_t dur, uint64_t *when)
{
    uint64_t old = GET(s->free_at), from;

    do {
        from = old > *when ? old : *when;
        if (from > *when + FAB_SPINE_QUEUE_NS) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&s->free_at, &old, from + dur,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (from > *when) {
        ADD(s->queued, 1);
    }
    *when = from + dur;
    return true;
}

bool seg_spine_pass(struct seg *seg, int rail, int k, uint32_t len, uint64_t rnd, uint64_t *when)
{
    struct seg_rail *r = &seg->rail[rail];
    uint64_t rate = GET(r->rate[k]);
    bool lost = fab_spine_drops(GET(r->blackhole) >> k & 1, GET(r->loss_ppm[k]), rnd);

    if (!lost && rate != 0) {
        *when = *when != 0 ? *when : seg_now();
        lost = !queue_take(&r->spine[k], fab_link_ns(rate, len), when);
    }
    if (lost) {
        ADD(r->spine[k].dropped, 1);
    }
    return !lost;
}
