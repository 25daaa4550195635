/*
 * The receiver's ledger: which parts of which seq have arrived, and what is complete (protocol
 * sections 2 and 3, P5-P9). Pure: no clock, no I/O. Guarded by the connection's gate.
 */
#ifndef R2_LEDGER_H
#define R2_LEDGER_H

#include <stdint.h>

#define R2_LEDGER_WINDOW                                                                           \
    256 /* rpost - rdone never exceeds it (P8): 8 low bits of seq are a slot                       \
         */
#define R2_MAX_PARTS 16

struct r2_ledger_entry {
    uint64_t bytes;    /* sum over the parts that arrived */
    uint64_t capacity; /* of the receive buffer */
    uint16_t mask;     /* parts that arrived */
    uint16_t seen;     /* parts that arrived and do not count yet (P34) */
    uint8_t nparts;    /* 0 until the first part arrived */
};

struct r2_ledger {
    uint64_t rdone; /* all below were reported done */
    uint64_t rpost; /* next seq to post */
    uint64_t acked; /* all below are complete */
    struct r2_ledger_entry entry[R2_LEDGER_WINDOW];
};

enum r2_ledger_result {
    R2_LEDGER_NEW,        /* the part was added; the seq is not complete */
    R2_LEDGER_COMPLETE,   /* the part was added and completes its seq */
    R2_LEDGER_DUPLICATE,  /* the part was there already (P7) */
    R2_LEDGER_WINDOW_ERR, /* seq outside [rdone, rpost), or already complete (P9) */
    R2_LEDGER_PART_ERR,   /* k >= nparts, or nparts unlike the first part's (P9) */
    R2_LEDGER_SIZE_ERR,   /* bytes beyond the capacity (P9) */
    R2_LEDGER_RECORD_ERR, /* never from here: the size record is not that of the part (P33) */
    R2_LEDGER_DENIED, /* never from here: S has announced that this incarnation does not bring it
                       * (P35)
                       */
};
const char *r2_ledger_result_name(enum r2_ledger_result r);

/* No receive is open; the next seq is 0. */
void r2_ledger_init(struct r2_ledger *l);

/* Room for @n more receives? */
static inline int r2_ledger_room(const struct r2_ledger *l, int n)
{
    return l->rpost - l->rdone + (uint64_t)n <= R2_LEDGER_WINDOW;
}

/* Opens the next seq; the caller has checked the room. Returns it. */
static inline uint64_t r2_ledger_post(struct r2_ledger *l, uint64_t capacity)
{
    uint64_t seq = l->rpost++;
    struct r2_ledger_entry *e = &l->entry[seq % R2_LEDGER_WINDOW];

    e->bytes = 0;
    e->capacity = capacity;
    e->mask = 0;
    e->seen = 0;
    e->nparts = 0;
    return seq;
}

/* The one seq in [rdone, rpost) with these low 16 bits, or UINT64_MAX (P8). */
static inline uint64_t r2_ledger_seq(const struct r2_ledger *l, uint16_t low)
{
    uint64_t seq = l->rdone + (uint16_t)(low - (uint16_t)l->rdone);

    return seq < l->rpost ? seq : UINT64_MAX;
}

/* Whether all parts of @seq have arrived. */
static inline int r2_ledger_complete(const struct r2_ledger *l, uint64_t seq)
{
    const struct r2_ledger_entry *e = &l->entry[seq % R2_LEDGER_WINDOW];
    return e->nparts != 0 && e->mask == (uint16_t)((1u << e->nparts) - 1);
}

/* @seq has become complete. acked stands at the lowest seq that is not, so that another one moves
 * nothing. */
static inline void r2_ledger_advance(struct r2_ledger *l, uint64_t seq)
{
    if (seq == l->acked) {
        do {
            seq++;
        } while (seq < l->rpost && r2_ledger_complete(l, seq));
        l->acked = seq;
    }
}

/*
 * r2_ledger_add() of part 0 of 1 in the usual case: 1. Else 0, and nothing has changed:
 * r2_ledger_add() adds it or returns why not. As long as nparts is 0 no part of the seq has
 * arrived, or waits, so that neither mask is read.
 */
static inline int r2_ledger_add_whole(struct r2_ledger *l, uint16_t low, uint32_t bytes)
{
    uint64_t seq = l->rdone + (uint16_t)(low - (uint16_t)l->rdone);
    struct r2_ledger_entry *e = &l->entry[low % R2_LEDGER_WINDOW];

    if (__builtin_expect(seq >= l->rpost || e->nparts != 0 || bytes > e->capacity, 0)) {
        return 0;
    }
    e->nparts = 1;
    e->mask = 1;
    e->bytes = bytes;
    r2_ledger_advance(l, seq);
    return 1;
}

/* Adds part @k of @nparts of the seq with low bits @low. Nothing changes unless the result is NEW
 * or COMPLETE. */
static inline enum r2_ledger_result r2_ledger_add(struct r2_ledger *l, uint16_t low, unsigned k,
                                                  unsigned nparts, uint64_t bytes)
{
    uint64_t seq = r2_ledger_seq(l, low);
    struct r2_ledger_entry *e;

    if (seq == UINT64_MAX) {
        return R2_LEDGER_WINDOW_ERR;
    }
    e = &l->entry[seq % R2_LEDGER_WINDOW];
    if (nparts == 0 || nparts > R2_MAX_PARTS || k >= nparts ||
        (e->nparts != 0 && e->nparts != nparts)) {
        return R2_LEDGER_PART_ERR;
    }
    if (e->mask & (1u << k)) {
        return R2_LEDGER_DUPLICATE;
    }
    if (bytes > e->capacity - e->bytes) {
        return R2_LEDGER_SIZE_ERR;
    }
    e->nparts = (uint8_t)nparts;
    e->mask |= (uint16_t)(1u << k);
    e->bytes += bytes;
    if (!r2_ledger_complete(l, seq)) {
        return R2_LEDGER_NEW;
    }
    r2_ledger_advance(l, seq);
    return R2_LEDGER_COMPLETE;
}

/*
 * Part @k of @nparts is seen: it will be added later, or unseen. NEW, or why it cannot be; the
 * bytes are checked when it is added. No other copy of it is taken meanwhile.
 */
enum r2_ledger_result r2_ledger_see(struct r2_ledger *l, uint16_t low, unsigned k, unsigned nparts);
void r2_ledger_unsee(struct r2_ledger *l, uint64_t seq, unsigned k);

/* Reports the oldest @n seqs done; the caller has checked that they are complete. */
static inline void r2_ledger_retire(struct r2_ledger *l, unsigned n)
{
    l->rdone += n;
}

/* Parts of some seqs: of n seqs from base on. */
struct r2_parts {
    uint64_t base;
    uint16_t n; /* at most R2_LEDGER_WINDOW */
    uint16_t mask[R2_LEDGER_WINDOW];
};

static inline unsigned r2_parts_of(const struct r2_parts *s, uint64_t seq)
{
    return seq - s->base < s->n ? s->mask[seq - s->base] : 0;
}

/* Masks of all open seqs, [acked, rpost): writes at most @max, returns how many. Masks of complete
 * seqs above acked are given too. */
unsigned r2_ledger_snapshot(const struct r2_ledger *l, uint64_t *base, uint16_t *mask,
                            unsigned max);

#endif
