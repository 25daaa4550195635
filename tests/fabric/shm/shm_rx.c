/* Receiving: from the rings into the model, each packet not before it arrives. */
#include "tests/fabric/shm/shm_engine.h"

#include <stdlib.h>
#include <string.h>

void shm_pkt_free(struct fab_engine *base, struct fab_pkt *pkt)
{
    struct shm_engine *e = shm_engine_of(base);
    struct shm_pkt *p = (struct shm_pkt *)pkt;

    free(p->copy);
    p->copy = NULL;
    p->live = false;
    shm_pkt_put(e, p);
}

static void drop(struct shm_nic *n)
{
    n->nic.cnt.rx_dropped++;
    atomic_fetch_add_explicit(&n->seg->count.drops, 1, memory_order_relaxed);
}

/* Whether the packet's addresses are those that its ends have now. */
static bool addresses_valid(struct shm_engine *e, const struct fab_hdr *h)
{
    const struct fab_desc *d = &e->map.seg->head.desc;

    if (h->dst.host != e->host || h->dst.nic >= d->nics || h->src.host >= d->hosts ||
        h->src.nic >= d->nics) {
        return false;
    }
    uint32_t src_epoch = atomic_load_explicit(
        &seg_nic_at(e->map.seg, h->src.host, h->src.nic)->epoch, memory_order_relaxed);
    return h->src.epoch == src_epoch && h->dst.epoch == e->nic[h->dst.nic].nic.gid_epoch;
}

/* @h with its payload behind it; valid during this call only. */
static void deliver(struct shm_engine *e, const struct fab_hdr *h, uint32_t bytes)
{
    struct shm_nic *n = &e->nic[h->dst.nic < FAB_MAX_NICS ? h->dst.nic : 0];
    const struct fab_link *l = &n->nic.link;

    if (bytes < sizeof(*h) || bytes - sizeof(*h) < h->len || !addresses_valid(e, h)) {
        drop(&e->nic[0]);
        return;
    }
    if (fab_link_rx(l, h, fab_link_random(l) ? fab_rng_next(&e->rng) : 0) == FAB_DROP) {
        drop(n);
        return;
    }
    struct shm_pkt *p = shm_pkt_new(e);
    if (p == NULL) {
        drop(n);
        return;
    }
    atomic_fetch_add_explicit(&n->seg->count.rx_packets, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n->seg->count.rx_bytes, h->len, memory_order_relaxed);
    p->pkt.h = *h;
    p->pkt.data = (uint8_t *)(h + 1);
    p->live = true;
    fab_nic_rx(&n->nic, &p->pkt);
    if (p->live && h->len != 0) {
        /* Kept by the model: its payload leaves the ring. */
        p->copy = malloc(h->len);
        if (p->copy == NULL) {
            abort();
        }
        memcpy(p->copy, p->pkt.data, h->len);
        p->pkt.data = p->copy;
    }
}

static bool held_before(const struct shm_held *a, const struct shm_held *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static struct shm_held held_take(struct shm_engine *e)
{
    struct shm_held top = e->held[0], last = e->held[--e->held_len];
    uint32_t i = 0;

    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c + 1 < e->held_len && held_before(&e->held[c + 1], &e->held[c])) {
            c++;
        }
        if (c >= e->held_len || !held_before(&e->held[c], &last)) {
            break;
        }
        e->held[i] = e->held[c];
        i = c;
    }
    e->held[i] = last;
    return top;
}

/* Moves a record out of its ring. False: no memory, it stays. */
static bool held_add(struct shm_engine *e, const struct seg_rec *rec)
{
    uint32_t bytes = rec->len - (uint32_t)sizeof(*rec), i = e->held_len;
    struct shm_held h = {.due = rec->due, .order = e->held_order};

    if (e->held_len == e->held_cap) {
        uint32_t cap = e->held_cap == 0 ? 64 : 2 * e->held_cap;
        struct shm_held *a = realloc(e->held, cap * sizeof(*a));
        if (a == NULL) {
            return false;
        }
        e->held = a;
        e->held_cap = cap;
    }
    h.hdr = malloc(bytes);
    if (h.hdr == NULL) {
        return false;
    }
    memcpy(h.hdr, rec->body, bytes);
    e->held_order++;
    e->held_len++;
    for (; i > 0 && held_before(&h, &e->held[(i - 1) / 2]); i = (i - 1) / 2) {
        e->held[i] = e->held[(i - 1) / 2];
    }
    e->held[i] = h;
    return true;
}

static void held_run(struct shm_engine *e, uint64_t until)
{
    while (e->held_len > 0 && e->held[0].due <= until) {
        struct shm_held h = held_take(e);
        deliver(e, h.hdr, (uint32_t)sizeof(*h.hdr) + h.hdr->len);
        free(h.hdr);
    }
}

/* When the thread looks at a record that is due soon. */
static uint64_t poll_at(struct shm_engine *e, const struct seg_rec *rec)
{
    const struct fab_hdr *h = (const struct fab_hdr *)rec->body;
    bool rated =
        !fab_hdr_loops(h) && h->dst.nic < FAB_MAX_NICS && e->nic[h->dst.nic].nic.link.rate != 0;

    return rec->due + (rated ? SHM_MODERATE_NS : 0);
}

/* Takes what the ring from @src has; what is due soon stays in it and behind it all else from
 * there. */
static void ring_run(struct shm_engine *e, int src)
{
    struct seg_rec *rec;

    for (int i = 0; (rec = seg_ring_peek(&e->map, src)) != NULL; i++) {
        if (i == SHM_RX_BATCH) {
            e->waiting |= 1ull << src;
            e->ring_deadline = 0;
            return;
        }
        if (rec->due > e->now && (rec->due - e->now <= SHM_HOLD_NS || !held_add(e, rec))) {
            e->waiting |= 1ull << src;
            uint64_t when = poll_at(e, rec);
            e->ring_deadline = when < e->ring_deadline ? when : e->ring_deadline;
            return;
        }
        if (rec->due <= e->now) {
            deliver(e, (const struct fab_hdr *)rec->body, rec->len - (uint32_t)sizeof(*rec));
        }
        seg_ring_pop(&e->map, src, rec);
    }
}

void shm_rx_run(struct shm_engine *e)
{
    struct seg_slot *self = &e->map.seg->slot[e->map.slot];
    uint64_t bits = e->waiting;

    /* Cleared before the rings are looked at: see seg_ring_publish. */
    if (atomic_load_explicit(&self->pending, memory_order_seq_cst) != 0) {
        bits |= atomic_exchange_explicit(&self->pending, 0, memory_order_seq_cst);
    }
    e->waiting = 0;
    e->moved = bits != 0;
    e->ring_deadline = UINT64_MAX;
    /* What was moved out is older than what its ring still has. */
    held_run(e, e->now);
    while (bits != 0) {
        int src = __builtin_ctzll(bits);
        bits &= bits - 1;
        ring_run(e, src);
    }
}
