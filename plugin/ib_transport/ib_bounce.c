#include "ib_bounce.h"

#include <stddef.h>
#include <string.h>

#include "base/r2_log.h"

#define ENTRY(st, n) (&(st)->entry[(n) % IB_BOUNCE_ENTRIES])

static const char *const names[IB_BOUNCE_STATES] = {"free", "copying", "ready", "posted", "over"};

/* The only writer of the state. Row: from. */
static void entry_move(struct ib_bounce_entry *e, enum ib_bounce_state to)
{
    static const unsigned char legal[IB_BOUNCE_STATES][IB_BOUNCE_STATES] = {
        [IB_BOUNCE_FREE] = {[IB_BOUNCE_COPYING] = 1},
        [IB_BOUNCE_COPYING] = {[IB_BOUNCE_READY] = 1, [IB_BOUNCE_OVER] = 1},
        [IB_BOUNCE_READY] = {[IB_BOUNCE_POSTED] = 1, [IB_BOUNCE_OVER] = 1},
        [IB_BOUNCE_POSTED] = {[IB_BOUNCE_OVER] = 1},
        [IB_BOUNCE_OVER] = {[IB_BOUNCE_FREE] = 1},
    };

    if (!legal[e->state][to]) {
        R2_WARN("bounced part %u of message %llu cannot go from %s to %s", e->k,
                (unsigned long long)e->seq, names[e->state], names[to]);
        return;
    }
    e->state = (uint8_t)to;
}

static void release(struct ib_bounce *st)
{
    while (st->first != st->last) {
        struct ib_bounce_entry *e = ENTRY(st, st->first);

        if (e->state != IB_BOUNCE_OVER || e->reads) {
            return;
        }
        entry_move(e, IB_BOUNCE_FREE);
        st->tail = e->end;
        st->first++;
    }
}

void ib_bounce_init(struct ib_bounce *st, uint32_t size)
{
    size = size < IB_BOUNCE_MOST ? size : IB_BOUNCE_MOST;
    memset(st, 0, sizeof(*st));
    st->size = size - size % IB_BOUNCE_ALIGN;
}

struct ib_bounce_entry *ib_bounce_begin(struct ib_bounce *st, uint64_t seq, unsigned k,
                                        uint32_t len)
{
    struct ib_bounce_entry *e = ENTRY(st, st->last);
    uint32_t off, need;
    uint64_t at;

    if (st->stopped || len == 0 || len > st->size || st->last - st->first == IB_BOUNCE_ENTRIES) {
        return NULL;
    }
    need = len + (IB_BOUNCE_ALIGN - len % IB_BOUNCE_ALIGN) % IB_BOUNCE_ALIGN;
    if (ib_bounce_idle(st)) {
        st->head = st->tail = 0; /* what is as large as the ring has room, too */
    }
    at = st->head;
    off = (uint32_t)(at % st->size);
    if (off + need > st->size) { /* its bytes are not cut at the end */
        at += st->size - off;
        off = 0;
    }
    if (at + need - st->tail > st->size) {
        return NULL;
    }
    entry_move(e, IB_BOUNCE_COPYING);
    e->seq = seq;
    e->k = (uint8_t)k;
    e->off = off;
    e->len = len;
    e->end = st->head = at + need;
    e->reads = 1;
    st->reading++;
    st->last++;
    return e;
}

void ib_bounce_copied(struct ib_bounce *st, struct ib_bounce_entry *e)
{
    e->reads = 0;
    st->reading--;
    if (e->state == IB_BOUNCE_COPYING) {
        entry_move(e, IB_BOUNCE_READY);
    }
    release(st);
}

struct ib_bounce_entry *ib_bounce_next(struct ib_bounce *st)
{
    struct ib_bounce_entry *e = ENTRY(st, st->post);

    return !st->stopped && st->post != st->last && e->state == IB_BOUNCE_READY ? e : NULL;
}

void ib_bounce_posted(struct ib_bounce *st, struct ib_bounce_entry *e)
{
    entry_move(e, IB_BOUNCE_POSTED);
    st->post++;
}

int ib_bounce_sent(struct ib_bounce *st)
{
    for (uint32_t n = st->first; n != st->post; n++) {
        if (ENTRY(st, n)->state == IB_BOUNCE_POSTED) {
            entry_move(ENTRY(st, n), IB_BOUNCE_OVER);
            release(st);
            return 0;
        }
    }
    return -1;
}

void ib_bounce_stop(struct ib_bounce *st)
{
    st->stopped = 1;
    for (; st->post != st->last; st->post++) {
        entry_move(ENTRY(st, st->post), IB_BOUNCE_OVER);
    }
    release(st);
}

void ib_bounce_closed(struct ib_bounce *st)
{
    ib_bounce_stop(st);
    while (ib_bounce_sent(st) == 0) {
    }
}

int ib_bounce_idle(const struct ib_bounce *st)
{
    return st->first == st->last;
}

struct ib_bounce_entry *ib_bounce_reading(struct ib_bounce *st)
{
    for (uint32_t n = st->first; st->reading && n != st->last; n++) {
        if (ENTRY(st, n)->reads) {
            return ENTRY(st, n);
        }
    }
    return NULL;
}
