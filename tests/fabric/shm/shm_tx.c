/* Sending: from the model into the receiver's ring, with the instant of arrival. */
#include "tests/fabric/shm/shm_engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shm_pkt *shm_pkt_new(struct shm_engine *e)
{
    struct shm_pkt *p = e->free;

    if (p == NULL) {
        return calloc(1, sizeof(*p));
    }
    e->free = p->next;
    e->free_len--;
    p->rec = NULL;
    return p;
}

void shm_pkt_put(struct shm_engine *e, struct shm_pkt *p)
{
    p->next = e->free;
    e->free = p;
    e->free_len++;
}

void shm_pkts_trim(struct shm_engine *e)
{
    while (e->free_len > SHM_PKTS_KEPT) {
        struct shm_pkt *p = e->free;

        e->free = p->next;
        e->free_len--;
        free(p);
    }
}

static void deadline_set(struct shm_nic *n, uint64_t when)
{
    if (when < n->tx_deadline) {
        n->tx_deadline = when;
    }
}

/* How far ahead the port of @dst works. By the rate that it was made with: a fault that lowers it
 * makes packets longer, not what is held for it. */
static uint64_t receiver_ahead(const struct shm_engine *e, const struct shm_nic *n,
                               const struct fab_addr *dst)
{
    uint64_t rate = e->map.seg->head.desc.nic[dst->host][dst->nic].rate;
    uint64_t held = SEG_PORT_AHEAD_PKTS * fab_link_ns(rate, n->nic.cfg.seg_bytes);

    return held > SEG_PORT_AHEAD_NS ? held : SEG_PORT_AHEAD_NS;
}

/* The receiver's port takes no more now: the sender waits, as behind a switch that pauses it. */
static bool receiver_busy(struct shm_engine *e, struct shm_nic *n, const struct fab_addr *dst)
{
    struct seg_nic *d = seg_nic_at(e->map.seg, dst->host, dst->nic);

    if (d == n->seg || atomic_load_explicit(&d->link.rate, memory_order_relaxed) == 0) {
        return false;
    }
    uint64_t again = seg_port_ask(&d->rx, e->map.slot, e->now, receiver_ahead(e, n, dst));
    if (again == 0) {
        return false;
    }
    n->rx_waits[dst->host] |= (uint16_t)(1u << dst->nic);
    n->waiting = true;
    deadline_set(n, again);
    return true;
}

/* No room: the bell rings when there is. A dead receiver never makes any, so now and then it is
 * looked at. */
static bool receiver_lost(struct shm_engine *e, struct shm_nic *n, int slot)
{
    if (e->now >= e->bury_at[slot]) {
        e->bury_at[slot] = e->now + SHM_BURY_NS;
        if (seg_slot_bury(&e->map, slot)) {
            return true;
        }
    }
    deadline_set(n, e->bury_at[slot]);
    return false;
}

struct fab_pkt *shm_pkt_alloc(struct fab_engine *base, struct fab_nic *nic,
                              const struct fab_addr *dst, uint32_t dst_qpn, uint32_t len)
{
    struct shm_engine *e = shm_engine_of(base);
    struct shm_nic *n = shm_nic_of(nic);
    int slot = seg_qpn_slot(dst_qpn);

    if (e->orphan || !e->attached || receiver_busy(e, n, dst)) {
        return NULL;
    }
    struct seg_rec *rec = seg_ring_reserve(&e->map, slot, (uint32_t)sizeof(struct fab_hdr) + len);
    if (rec == NULL && errno == EAGAIN && !receiver_lost(e, n, slot)) {
        seg_port_yield(&seg_nic_at(e->map.seg, dst->host, dst->nic)->rx, e->map.slot);
        return NULL;
    }
    if (rec == NULL && errno == ENOSPC && !e->told_full) {
        e->told_full = true;
        fprintf(stderr, "softfab: no memory for packets below %s: they are lost\n", e->map.dir);
    }
    struct shm_pkt *p = shm_pkt_new(e);
    if (p == NULL) {
        return NULL;
    }
    p->rec = rec;
    p->dst_slot = slot;
    p->pkt.data = rec != NULL ? rec->body + sizeof(struct fab_hdr) : e->scratch;
    return &p->pkt;
}

/* When the packet arrives. Both ports are occupied, each at its own rate; 0: at once. */
static uint64_t arrival(struct shm_engine *e, struct shm_nic *n, const struct fab_hdr *h)
{
    struct seg_nic *d = seg_nic_at(e->map.seg, h->dst.host, h->dst.nic);
    const struct fab_link *l = &n->nic.link;
    const struct fab_desc *desc = &e->map.seg->head.desc;
    uint64_t rx_rate = atomic_load_explicit(&d->link.rate, memory_order_relaxed);
    bool loop = fab_hdr_loops(h);
    uint64_t lat = (n->nic.cfg.latency_ns + desc->nic[h->dst.host][h->dst.nic].latency_ns) / 2 +
                   fab_link_delay(l, h);

    if (loop || (l->rate == 0 && rx_rate == 0)) {
        return lat == 0 ? 0 : seg_now() + lat;
    }
    int slot = e->map.slot;
    uint64_t now = seg_now(), floor = now, end = now;
    if (rx_rate != 0) {
        floor = end = seg_port_floor(&d->rx, slot, now);
    }
    if (l->rate != 0) {
        uint64_t dur = fab_link_ns(l->rate, h->len),
                 credit = seg_port_floor(&n->seg->tx, slot, now);
        end = seg_port_take(&n->seg->tx, slot, credit < floor ? credit : floor, dur);
        floor = end - dur;
    }
    if (rx_rate != 0) {
        uint64_t rx_end = seg_port_take(&d->rx, slot, floor, fab_link_ns(rx_rate, h->len));
        end = rx_end > end ? rx_end : end;
    }
    return end + lat;
}

static void record_publish(struct shm_engine *e, int slot, struct seg_rec *rec, uint64_t due)
{
    const struct fab_hdr *h = (const struct fab_hdr *)rec->body;
    struct seg_nic *d = seg_nic_at(e->map.seg, h->dst.host, h->dst.nic);
    bool rated =
        !fab_hdr_loops(h) && atomic_load_explicit(&d->link.rate, memory_order_relaxed) != 0;

    rec->due = due;
    seg_ring_publish(&e->map, slot, rec);
    if (slot == e->map.slot) {
        /* No bell: the end of this turn sets the time at which this process looks again. */
        e->waiting |= 1ull << slot;
        e->ring_deadline = due < e->ring_deadline ? due : e->ring_deadline;
        return;
    }
    if (due != 0) {
        seg_bell_ring(e->map.seg, slot, rated ? due + SHM_MODERATE_NS : due);
    } else if (rec->len >= SHM_BULK) {
        seg_bell_ring(e->map.seg, slot, 0);
    } else {
        e->ring_mask |= 1ull << slot;
    }
}

void shm_bells_run(struct shm_engine *e)
{
    for (uint64_t m = e->ring_mask; m != 0; m &= m - 1) {
        seg_bell_ring(e->map.seg, __builtin_ctzll(m), 0);
    }
    e->ring_mask = 0;
}

static void record_repeat(struct shm_engine *e, struct shm_nic *n, int slot,
                          const struct seg_rec *first)
{
    uint32_t body = first->len - (uint32_t)sizeof(*first);
    struct seg_rec *again = seg_ring_reserve(&e->map, slot, body);

    if (again == NULL) {
        return;
    }
    /* The first record may be consumed by now, but only this process writes the ring: its bytes are
     * still there. */
    memcpy(again->body, first->body, body);
    n->nic.cnt.dups_made++;
    record_publish(e, slot, again, first->due);
}

/* What lies between the ports does to a packet that both let through at *@due. False: it is lost.
 */
static bool spine_pass(struct shm_engine *e, const struct fab_hdr *h, uint64_t *due)
{
    int k;

    if (e->map.seg->head.desc.spines <= 1 || fab_hdr_loops(h)) {
        return true;
    }
    k = seg_spine_choose(e->map.seg, h);
    return k >= 0 &&
           seg_spine_pass(e->map.seg, fab_hdr_rail(h), k, h->len, fab_rng_next(&e->rng), due);
}

void shm_pkt_send(struct fab_engine *base, struct fab_nic *nic, struct fab_qp *qp,
                  struct fab_pkt *pkt)
{
    struct shm_engine *e = shm_engine_of(base);
    struct shm_nic *n = shm_nic_of(nic);
    struct shm_pkt *p = (struct shm_pkt *)pkt;
    struct fab_hdr *h = &pkt->h;
    enum fab_fate fate =
        fab_link_tx(&nic->link, h, fab_link_random(&nic->link) ? fab_rng_next(&e->rng) : 0);
    uint64_t due = arrival(e, n, h);

    atomic_fetch_add_explicit(&n->seg->count.tx_packets, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n->seg->count.tx_bytes, h->len, memory_order_relaxed);
    if (fate == FAB_DROP || p->rec == NULL) {
        nic->cnt.acks_lost += fate == FAB_DROP && fab_hdr_response(h) && nic->link.ack_lost;
        nic->cnt.tx_dropped++;
        atomic_fetch_add_explicit(&n->seg->count.drops, 1, memory_order_relaxed);
        shm_pkt_put(e, p);
        return;
    }
    if (!spine_pass(e, h, &due)) {
        shm_pkt_put(e, p);
        return;
    }
    /* A delay that ends lets nothing overtake: the same path stays in order. */
    if (due < qp->eng_last) {
        due = qp->eng_last;
    }
    qp->eng_last = due;
    memcpy(p->rec->body, h, sizeof(*h));
    record_publish(e, p->dst_slot, p->rec, due);
    if (fate == FAB_TWICE) {
        record_repeat(e, n, p->dst_slot, p->rec);
    }
    shm_pkt_put(e, p);
}

/* Whether the rate lets the link take more now. */
static bool link_free(struct shm_engine *e, struct shm_nic *n)
{
    if (n->nic.link.rate == 0) {
        return true;
    }
    uint64_t again = seg_port_ask(&n->seg->tx, e->map.slot, e->now, SEG_PORT_AHEAD_NS);
    if (again != 0) {
        n->waiting = true;
        deadline_set(n, again);
    }
    return again == 0;
}

/* Nothing is left to send: no port is waited for. */
static void claims_drop(struct shm_engine *e, struct shm_nic *n)
{
    seg_port_leave(&n->seg->tx, e->map.slot);
    for (int h = 0; h < e->map.seg->head.desc.hosts; h++) {
        for (uint32_t m = n->rx_waits[h]; m != 0; m &= m - 1) {
            seg_port_leave(&seg_nic_at(e->map.seg, h, __builtin_ctz(m))->rx, e->map.slot);
        }
        n->rx_waits[h] = 0;
    }
    n->waiting = false;
}

static void nic_tx(struct shm_engine *e, struct shm_nic *n)
{
    n->tx_deadline = UINT64_MAX;
    for (int i = 0; fab_nic_tx_pending(&n->nic); i++) {
        if (i == SHM_TX_BATCH) {
            n->tx_deadline = 0;
            return;
        }
        bool wire = link_free(e, n);
        if (!fab_nic_tx_next(&n->nic, wire)) {
            if (wire) {
                /* What is left waits for something else than this port. */
                seg_port_leave(&n->seg->tx, e->map.slot);
            }
            return;
        }
    }
    if (n->waiting) {
        claims_drop(e, n);
    }
}

/*
 * A receiver's port knows processes, not their NICs: of several that wait for one, who is looked at
 * first gets the room that there is. So the first one is drawn, and the direction: a fixed order
 * lets the last one wait for as long as the others have something to send.
 */
void shm_tx_run(struct shm_engine *e)
{
    int nics = e->map.seg->head.desc.nics, first = 0, step = 1;

    if (nics > 1) {
        uint64_t drawn = fab_rng_next(&e->rng);
        first = (int)((drawn >> 1) % (uint64_t)nics);
        step = drawn & 1 ? 1 : nics - 1;
    }
    for (int k = 0; k < nics; k++) {
        struct shm_nic *n = &e->nic[(first + k * step) % nics];
        if (fab_nic_tx_pending(&n->nic) || n->waiting) {
            nic_tx(e, n);
        }
    }
}
