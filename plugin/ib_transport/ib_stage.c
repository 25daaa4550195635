#include "ib_stage.h"

#include <stddef.h>
#include <string.h>

#include "base/r2_log.h"

#define ENTRY(st, n) (&(st)->entry[(n) % IB_STAGE_ENTRIES])

static const char *const names[IB_STAGE_STATES] = {"free", "copying", "ready", "posted", "over"};

/* The only writer of the state. Row: from. */
static void entry_move(struct ib_stage_entry *e, enum ib_stage_state to)
{
    static const unsigned char legal[IB_STAGE_STATES][IB_STAGE_STATES] = {
        [IB_STAGE_FREE] = {[IB_STAGE_COPYING] = 1},
        [IB_STAGE_COPYING] = {[IB_STAGE_READY] = 1, [IB_STAGE_OVER] = 1},
        [IB_STAGE_READY] = {[IB_STAGE_POSTED] = 1, [IB_STAGE_OVER] = 1},
        [IB_STAGE_POSTED] = {[IB_STAGE_OVER] = 1},
        [IB_STAGE_OVER] = {[IB_STAGE_FREE] = 1},
    };

    if (!legal[e->state][to]) {
        R2_WARN("staged part %u of message %llu cannot go from %s to %s", e->k,
                (unsigned long long)e->seq, names[e->state], names[to]);
        return;
    }
    e->state = (uint8_t)to;
}

static void release(struct ib_stage *st)
{
    while (st->first != st->last) {
        struct ib_stage_entry *e = ENTRY(st, st->first);

        if (e->state != IB_STAGE_OVER || e->reads) {
            return;
        }
        entry_move(e, IB_STAGE_FREE);
        st->tail = e->end;
        st->first++;
    }
}

void ib_stage_init(struct ib_stage *st, uint32_t size)
{
    size = size < IB_STAGE_MOST ? size : IB_STAGE_MOST;
    memset(st, 0, sizeof(*st));
    st->size = size - size % IB_STAGE_ALIGN;
}

struct ib_stage_entry *ib_stage_begin(struct ib_stage *st, uint64_t seq, unsigned k, uint32_t len)
{
    struct ib_stage_entry *e = ENTRY(st, st->last);
    uint32_t off, need;
    uint64_t at;

    if (st->stopped || len == 0 || len > st->size || st->last - st->first == IB_STAGE_ENTRIES) {
        return NULL;
    }
    need = len + (IB_STAGE_ALIGN - len % IB_STAGE_ALIGN) % IB_STAGE_ALIGN;
    if (ib_stage_idle(st)) {
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
    entry_move(e, IB_STAGE_COPYING);
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

void ib_stage_copied(struct ib_stage *st, struct ib_stage_entry *e)
{
    e->reads = 0;
    st->reading--;
    if (e->state == IB_STAGE_COPYING) {
        entry_move(e, IB_STAGE_READY);
    }
    release(st);
}

struct ib_stage_entry *ib_stage_next(struct ib_stage *st)
{
    struct ib_stage_entry *e = ENTRY(st, st->post);

    return !st->stopped && st->post != st->last && e->state == IB_STAGE_READY ? e : NULL;
}

void ib_stage_posted(struct ib_stage *st, struct ib_stage_entry *e)
{
    entry_move(e, IB_STAGE_POSTED);
    st->post++;
}

int ib_stage_sent(struct ib_stage *st)
{
    for (uint32_t n = st->first; n != st->post; n++) {
        if (ENTRY(st, n)->state == IB_STAGE_POSTED) {
            entry_move(ENTRY(st, n), IB_STAGE_OVER);
            release(st);
            return 0;
        }
    }
    return -1;
}

void ib_stage_stop(struct ib_stage *st)
{
    st->stopped = 1;
    for (; st->post != st->last; st->post++) {
        entry_move(ENTRY(st, st->post), IB_STAGE_OVER);
    }
    release(st);
}

void ib_stage_closed(struct ib_stage *st)
{
    ib_stage_stop(st);
    while (ib_stage_sent(st) == 0) {
    }
}

int ib_stage_idle(const struct ib_stage *st)
{
    return st->first == st->last;
}

struct ib_stage_entry *ib_stage_reading(struct ib_stage *st)
{
    for (uint32_t n = st->first; st->reading && n != st->last; n++) {
        if (ENTRY(st, n)->reads) {
            return ENTRY(st, n);
        }
    }
    return NULL;
}
