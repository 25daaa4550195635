/* Rings: one producer slot, one consumer slot, records that never wrap. */
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define REC_ALIGN 16u

static uint32_t rec_size(uint32_t body_len)
{
    return (uint32_t)((sizeof(struct seg_rec) + body_len + REC_ALIGN - 1) & ~(REC_ALIGN - 1));
}

/* The file is sparse: memory is reserved before the first touch, so that a full /dev/shm is an
 * error here and not a SIGBUS. */
static int ring_memory_reserve(struct seg_map *m, int dst)
{
    off_t off = (off_t)((uint8_t *)&m->seg->ring[m->slot][dst] - (uint8_t *)m->seg);

    if (m->reserved & (1ull << dst)) {
        return 0;
    }
    int rc = posix_fallocate(m->seg_fd, off, (off_t)sizeof(struct seg_ring));
    if (rc != 0) {
        errno = rc == EINTR ? EAGAIN : ENOSPC;
        if (rc == EINTR) {
            seg_bell_wake(
                m->seg,
                m->slot); /* who gets EAGAIN waits for a bell, and no consumer owes one here */
        }
        return -1;
    }
    m->reserved |= 1ull << dst;
    return 0;
}

/* Bytes from @idx to the end of the ring. */
static uint32_t ring_to_end(uint64_t idx)
{
    return SEG_RING_DATA - (uint32_t)(idx % SEG_RING_DATA);
}

static struct seg_rec *ring_at(struct seg_map *m, int src, int dst, uint64_t idx)
{
    return (struct seg_rec *)&m->seg->ring[src][dst].data[idx % SEG_RING_DATA];
}

/*
 * Declares hunger, then looks again. Consumer: moves tail, then reads starved (both seq_cst).
 * Producer: sets starved, then reads tail (both seq_cst). One of the two sees the other, so a
 * producer never sleeps beside an empty ring.
 */
static bool ring_room_recheck(struct seg_map *m, int dst, uint64_t head, uint32_t need)
{
    atomic_fetch_or_explicit(&m->seg->slot[m->slot].starved, 1ull << dst, memory_order_seq_cst);
    uint64_t tail = atomic_load_explicit(&m->seg->index[m->slot][dst].tail, memory_order_seq_cst);
    return head - tail + need <= SEG_RING_DATA;
}

struct seg_rec *seg_ring_reserve(struct seg_map *m, int dst, uint32_t body_len)
{
    struct seg_index *ix = &m->seg->index[m->slot][dst];
    uint32_t incarn = atomic_load_explicit(&m->seg->slot[dst].incarnation, memory_order_acquire);
    uint32_t size = rec_size(body_len), need = size;

    if (!(incarn & 1)) {
        errno = ECONNREFUSED;
        return NULL;
    }
    if (body_len > SEG_REC_MAX || size > SEG_REC_MAX) {
        errno = EMSGSIZE;
        return NULL;
    }
    if (ring_memory_reserve(m, dst) != 0) {
        return NULL;
    }
    uint64_t head = atomic_load_explicit(&ix->head, memory_order_relaxed);
    uint32_t to_end = ring_to_end(head);
    if (to_end < size) {
        need += to_end;
    }
    uint64_t tail = atomic_load_explicit(&ix->tail, memory_order_acquire);
    if (head - tail + need > SEG_RING_DATA && !ring_room_recheck(m, dst, head, need)) {
        errno = EAGAIN;
        return NULL;
    }
    if (to_end < size) {
        /* 16-byte granularity: there is always room for the mark. It is published together with the
         * record behind it.
         */
        ring_at(m, m->slot, dst, head)->len = 0;
        head += to_end;
    }
    struct seg_rec *rec = ring_at(m, m->slot, dst, head);
    rec->len = (uint32_t)sizeof(*rec) + body_len;
    rec->dst_incarn = incarn;
    rec->due = 0;
    return rec;
}

void seg_ring_publish(struct seg_map *m, int dst, struct seg_rec *rec)
{
    struct seg_index *ix = &m->seg->index[m->slot][dst];
    _Atomic uint64_t *pending = &m->seg->slot[dst].pending;
    uint64_t head = atomic_load_explicit(&ix->head, memory_order_relaxed), self = 1ull << m->slot;

    if (ring_at(m, m->slot, dst, head) != rec) {
        head += ring_to_end(head);
    }
    head += rec_size(rec->len - (uint32_t)sizeof(*rec));
    /*
     * Producer: head, then looks at pending. Consumer: clears its bit in pending, then looks at
     * head (all four seq_cst). A bit that is seen set here is cleared later, and the consumer then
     * sees this head.
     */
    atomic_store_explicit(&ix->head, head, memory_order_seq_cst);
    if (!(atomic_load_explicit(pending, memory_order_seq_cst) & self)) {
        atomic_fetch_or_explicit(pending, self, memory_order_seq_cst);
    }
}

/* Frees up to @tail and tells a starved producer. See ring_room_recheck for the order. */
static void ring_tail_set(struct seg_map *m, int src, uint64_t tail)
{
    struct seg_slot *p = &m->seg->slot[src];
    uint64_t self = 1ull << m->slot;

    atomic_store_explicit(&m->seg->index[src][m->slot].tail, tail, memory_order_seq_cst);
    if (atomic_load_explicit(&p->starved, memory_order_seq_cst) & self) {
        atomic_fetch_and_explicit(&p->starved, ~self, memory_order_seq_cst);
        seg_bell_ring(m->seg, src, 0);
    }
}

struct seg_rec *seg_ring_peek(struct seg_map *m, int src)
{
    struct seg_index *ix = &m->seg->index[src][m->slot];
    uint32_t self = atomic_load_explicit(&m->seg->slot[m->slot].incarnation, memory_order_relaxed);

    for (;;) {
        uint64_t tail = atomic_load_explicit(&ix->tail, memory_order_relaxed);
        /* Pairs with the store of head in seg_ring_publish: the record's bytes come with it. */
        if (atomic_load_explicit(&ix->head, memory_order_seq_cst) == tail) {
            return NULL;
        }
        struct seg_rec *rec = ring_at(m, src, m->slot, tail);
        if (rec->len == 0) {
            ring_tail_set(m, src, tail + ring_to_end(tail));
        } else if (rec->dst_incarn != self) {
            seg_ring_pop(m, src, rec);
        } else {
            return rec;
        }
    }
}

void seg_ring_pop(struct seg_map *m, int src, struct seg_rec *rec)
{
    uint64_t tail = atomic_load_explicit(&m->seg->index[src][m->slot].tail, memory_order_relaxed);

    ring_tail_set(m, src, tail + rec_size(rec->len - (uint32_t)sizeof(*rec)));
}

bool seg_ring_empty(const struct seg_map *m, int src)
{
    const struct seg_index *ix = &m->seg->index[src][m->slot];

    return atomic_load_explicit(&ix->head, memory_order_seq_cst) ==
           atomic_load_explicit(&ix->tail, memory_order_relaxed);
}
