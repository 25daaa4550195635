#include "r2_timer.h"

/* Both are roots; either may be NULL. The one that is due later becomes the other's first child. */
static struct r2_timer *meld(struct r2_timer *a, struct r2_timer *b)
{
    if (a == NULL || b == NULL) {
        return a ? a : b;
    }
    if (b->at < a->at) {
        struct r2_timer *t = a;

        a = b;
        b = t;
    }
    b->next = a->child;
    b->prev = a;
    if (a->child) {
        a->child->prev = b;
    }
    a->child = b;
    return a;
}

static struct r2_timer *cut_root(struct r2_timer *t)
{
    t->next = t->prev = NULL;
    return t;
}

/* Siblings from @first on as one heap: in pairs from left to right, then the pairs from right to
 * left, which is what keeps taking the earliest at O(log n), amortised (Fredman and others, 1986).
 */
static struct r2_timer *meld_all(struct r2_timer *first)
{
    struct r2_timer *pairs = NULL, *all = NULL;

    while (first) {
        struct r2_timer *a = first, *b = first->next, *pair;

        first = b ? b->next : NULL;
        pair = meld(cut_root(a), b ? cut_root(b) : NULL);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct r2_timer *pair = pairs;

        pairs = pair->next;
        all = meld(all, cut_root(pair));
    }
    return all;
}

static void take_out(struct r2_timers *h, struct r2_timer *t)
{
    struct r2_timer *below = meld_all(t->child);

    if (t == h->root) {
        h->root = below;
    } else {
        if (t->prev->child == t) {
            t->prev->child = t->next;
        } else {
            t->prev->next = t->next;
        }
        if (t->next) {
            t->next->prev = t->prev;
        }
        h->root = meld(h->root, below);
    }
    t->child = t->next = t->prev = NULL;
    t->is_set = false;
}

void r2_timer_set(struct r2_timers *h, struct r2_timer *t, uint64_t at)
{
    if (t->is_set && t->at == at) {
        return;
    }
    if (t->is_set) {
        take_out(h, t);
    }
    t->at = at;
    if (at != UINT64_MAX) {
        t->is_set = true;
        h->root = meld(h->root, t);
    }
}

struct r2_timer *r2_timers_take(struct r2_timers *h, uint64_t now)
{
    struct r2_timer *t = h->root;

    if (t == NULL || t->at > now) {
        return NULL;
    }
    take_out(h, t);
    return t;
}
