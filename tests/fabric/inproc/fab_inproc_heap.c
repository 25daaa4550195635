/* Binary heap of timers. */
#include "fab_inproc_priv.h"

#include <stdlib.h>

static bool before(const struct fab_timer *a, const struct fab_timer *b)
{
    return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void place(struct heap *h, uint32_t i, struct fab_timer *t)
{
    h->v[i] = t;
    t->slot = i;
}

static void up(struct heap *h, uint32_t i, struct fab_timer *t)
{
    while (i > 1 && before(t, h->v[i / 2])) {
        place(h, i, h->v[i / 2]);
        i /= 2;
    }
    place(h, i, t);
}

static void down(struct heap *h, uint32_t i, struct fab_timer *t)
{
    for (;;) {
        uint32_t c = 2 * i;

        if (c > h->n) {
            break;
        }
        if (c < h->n && before(h->v[c + 1], h->v[c])) {
            c++;
        }
        if (!before(h->v[c], t)) {
            break;
        }
        place(h, i, h->v[c]);
        i = c;
    }
    place(h, i, t);
}

static void move(struct heap *h, uint32_t i, struct fab_timer *t)
{
    if (i > 1 && before(t, h->v[i / 2])) {
        up(h, i, t);
    } else {
        down(h, i, t);
    }
}

int heap_set(struct heap *h, struct fab_timer *t, uint64_t when)
{
    t->when = when;
    t->order = ++h->order;
    if (t->slot) {
        move(h, t->slot, t);
        return 0;
    }
    if (h->n + 1 >= h->cap) {
        uint32_t cap = h->cap ? h->cap * 2 : 256;
        struct fab_timer **v = realloc(h->v, cap * sizeof *v);

        if (!v) {
            return -1;
        }
        h->v = v;
        h->cap = cap;
    }
    up(h, ++h->n, t);
    return 0;
}

void heap_cancel(struct heap *h, struct fab_timer *t)
{
    uint32_t i = t->slot;
    struct fab_timer *last;

    if (!i) {
        return;
    }
    t->slot = 0;
    last = h->v[h->n--];
    if (last != t) {
        move(h, i, last);
    }
}

struct fab_timer *heap_pop(struct heap *h)
{
    struct fab_timer *t;

    if (!h->n) {
        return NULL;
    }
    t = h->v[1];
    heap_cancel(h, t);
    return t;
}
