/* Timers: a binary heap. */
#include "tests/fabric/shm/shm_engine.h"

#include <stdio.h>
#include <stdlib.h>

static bool before(const struct fab_timer *a, const struct fab_timer *b)
{
    return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void place(struct shm_engine *e, uint32_t i, struct fab_timer *t)
{
    e->heap[i] = t;
    t->slot = i + 1;
}

static void sift(struct shm_engine *e, uint32_t i, struct fab_timer *t)
{
    while (i > 0 && before(t, e->heap[(i - 1) / 2])) {
        place(e, i, e->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c + 1 < e->heap_len && before(e->heap[c + 1], e->heap[c])) {
            c++;
        }
        if (c >= e->heap_len || !before(e->heap[c], t)) {
            break;
        }
        place(e, i, e->heap[c]);
        i = c;
    }
    place(e, i, t);
}

void shm_timer_cancel(struct fab_engine *base, struct fab_timer *t)
{
    struct shm_engine *e = shm_engine_of(base);

    if (t->slot == 0) {
        return;
    }
    uint32_t i = t->slot - 1;
    struct fab_timer *last = e->heap[--e->heap_len];
    t->slot = 0;
    if (last != t) {
        sift(e, i, last);
    }
}

void shm_timer_set(struct fab_engine *base, struct fab_timer *t, uint64_t when)
{
    struct shm_engine *e = shm_engine_of(base);

    t->when = when;
    t->order = e->timer_order++;
    if (t->slot != 0) {
        sift(e, t->slot - 1, t);
        return;
    }
    if (e->heap_len == e->heap_cap) {
        uint32_t cap = e->heap_cap == 0 ? 64 : 2 * e->heap_cap;
        struct fab_timer **h = realloc(e->heap, cap * sizeof(*h));
        if (h == NULL) {
            /* A transport without its timers would hang in silence. */
            fprintf(stderr, "softfab: out of memory for timers\n");
            abort();
        }
        e->heap = h;
        e->heap_cap = cap;
    }
    sift(e, e->heap_len++, t);
}

void shm_timers_run(struct shm_engine *e)
{
    /* A timer set while these fire comes after them in order: the count bounds the turn. */
    uint64_t limit = e->timer_order;

    while (e->heap_len > 0 && e->heap[0]->when <= e->now && e->heap[0]->order < limit) {
        struct fab_timer *t = e->heap[0];
        shm_timer_cancel(&e->base, t);
        fab_timer_fire(t);
    }
}
