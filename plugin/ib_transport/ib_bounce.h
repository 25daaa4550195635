/*
 * Bounce ring of one incarnation of a path (docs/balance.md): parts whose data a copy engine
 * brings to memory that the NIC reaches better, and that are posted from there. Pure: which bytes
 * are in use, which part is to be posted next, what still reads NCCL's buffers. Copies and work
 * requests are the caller's.
 *
 * All functions are called with the connection's gate held; none blocks, none allocates.
 */
#ifndef IB_BOUNCE_H
#define IB_BOUNCE_H

#include <stdint.h>

#define IB_BOUNCE_ENTRIES 64u        /* parts at a time; a power of two */
#define IB_BOUNCE_ALIGN   256u       /* bytes: where a part begins */
#define IB_BOUNCE_MOST    (1u << 30) /* bytes of a ring */

/*
 * COPYING -> READY -> POSTED -> OVER, or OVER from any of them when the incarnation ends. An entry
 * that is OVER is free once its copy has ended and those before it are free.
 */
enum ib_bounce_state {
    IB_BOUNCE_FREE,
    IB_BOUNCE_COPYING,
    IB_BOUNCE_READY,
    IB_BOUNCE_POSTED,
    IB_BOUNCE_OVER,
    IB_BOUNCE_STATES
};

struct ib_bounce_entry {
    uint64_t seq;  /* of the message */
    uint64_t end;  /* position behind its bytes */
    uint32_t off;  /* bytes from the ring's beginning */
    uint32_t len;  /* bytes */
    uint8_t k;     /* part of the message */
    uint8_t state; /* enum ib_bounce_state */
    uint8_t reads; /* its copy runs: the engine reads the message's buffer and writes here */
};

/* Positions and numbers of entries count on for ever; modulo the ring's size and IB_BOUNCE_ENTRIES
 * they are places. */
struct ib_bounce {
    uint32_t size;       /* bytes, a multiple of IB_BOUNCE_ALIGN */
    uint64_t head, tail; /* positions: behind the newest part's bytes; of the oldest's */
    uint32_t first, post,
        last;         /* entries: the oldest in use, the oldest not posted, one behind the newest */
    uint32_t reading; /* copies that run */
    uint8_t stopped;  /* the incarnation is over: nothing begins, nothing is posted */
    struct ib_bounce_entry entry[IB_BOUNCE_ENTRIES];
};

/* @size: bytes of the ring; rounded down to IB_BOUNCE_ALIGN, at most IB_BOUNCE_MOST. */
void ib_bounce_init(struct ib_bounce *st, uint32_t size);

/* Takes bytes for part @k of message @seq, @len bytes (1 or more). Its entry, with the copy
 * running; NULL when there is no room, or the incarnation is over. */
struct ib_bounce_entry *ib_bounce_begin(struct ib_bounce *st, uint64_t seq, unsigned k,
                                        uint32_t len);

/* Number of @e, below IB_BOUNCE_ENTRIES: no other entry in use has it. */
static inline unsigned ib_bounce_slot(const struct ib_bounce *st, const struct ib_bounce_entry *e)
{
    return (unsigned)(e - st->entry);
}

/* Its copy has ended; once per entry, in any order. */
void ib_bounce_copied(struct ib_bounce *st, struct ib_bounce_entry *e);

/* What is to be posted next: in the order of ib_bounce_begin(), with its copy ended. NULL: nothing
 * yet. */
struct ib_bounce_entry *ib_bounce_next(struct ib_bounce *st);

/* @e, which ib_bounce_next() said, is posted: the NIC may read its bytes until ib_bounce_sent() or
 * ib_bounce_closed(). */
void ib_bounce_posted(struct ib_bounce *st, struct ib_bounce_entry *e);

/* The oldest posted entry's work request is accounted for: a queue pair completes in order. 0, or
 * -1 when none is posted. */
int ib_bounce_sent(struct ib_bounce *st);

/* The path went down: what is not posted never will be. */
void ib_bounce_stop(struct ib_bounce *st);

/* The incarnation's work requests read nothing any more (hard fence, or the quarantine of a soft
 * one is over).
 */
void ib_bounce_closed(struct ib_bounce *st);

/* Nothing reads or writes the ring, and no copy reads a buffer: it can serve the next incarnation
 * (ib_bounce_init), or be freed. */
int ib_bounce_idle(const struct ib_bounce *st);

/* The oldest entry whose copy runs: what the caller asks its engine about. NULL: none. */
struct ib_bounce_entry *ib_bounce_reading(struct ib_bounce *st);

#endif
