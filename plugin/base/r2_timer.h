/*
 * Deadlines, earliest first: a pairing heap of members that lie in their owners, so that nothing is
 * allocated and nothing can fail. Pure. One thread at a time.
 */
#ifndef R2_TIMER_H
#define R2_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: not set. */
struct r2_timer {
    uint64_t at;
    bool is_set;
    struct r2_timer *child, *next; /* the first child; the next sibling */
    struct r2_timer *prev;         /* the sibling before, of a first child its parent */
};

/* All zero: none. */
struct r2_timers {
    struct r2_timer *root;
};

/* Sets @t to @at, whatever it was set to before; UINT64_MAX: to none. */
void r2_timer_set(struct r2_timers *h, struct r2_timer *t, uint64_t at);

/* Takes the earliest one out if it is due by @now. NULL: none is. */
struct r2_timer *r2_timers_take(struct r2_timers *h, uint64_t now);

/* When the earliest is due; UINT64_MAX: none is set. */
static inline uint64_t r2_timers_next(const struct r2_timers *h)
{
    return h->root ? h->root->at : UINT64_MAX;
}

#endif
