/*
 * The wire: links with rate and faults, packets under way, late copies.
 *
 * A packet takes its time on the sending link, travels over a spine, then waits for its turn on the
 * receiving link. Packets of one queue pair never overtake each other (qp->eng_last); late copies
 * do.
 */
#include "fab_inproc_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fab_inproc *of(struct fab_engine *e)
{
    return (struct fab_inproc *)e;
}

static void deliver(struct fab_timer *t);

static uint64_t now(struct fab_engine *e)
{
    return of(e)->now;
}

static void timer_set(struct fab_engine *e, struct fab_timer *t, uint64_t when)
{
    struct fab_inproc *f = of(e);

    if (heap_set(&f->heap, t, when < f->now ? f->now : when)) {
        abort(); /* a lost event would be a wrong result */
    }
}

static void timer_cancel(struct fab_engine *e, struct fab_timer *t)
{
    heap_cancel(&of(e)->heap, t);
}

static struct box *box_get(struct fab_inproc *f, uint32_t len)
{
    struct box **list = len <= SMALL_PKT ? &f->small : &f->large;
    uint32_t room = len <= SMALL_PKT ? SMALL_PKT : f->nics[0].n.cfg.seg_bytes;
    struct box *b = *list;

    if (b) {
        *list = b->next;
        return b;
    }
    b = malloc(sizeof *b + room);
    if (!b) {
        return NULL;
    }
    memset(b, 0, sizeof *b);
    b->room = room;
    b->p.data = b->data;
    b->t.fire = deliver;
    b->t.owner = b;
    b->all = f->boxes;
    f->boxes = b;
    return b;
}

static void box_put(struct fab_inproc *f, struct box *b)
{
    struct box **list = b->room <= SMALL_PKT ? &f->small : &f->large;

    b->next = *list;
    *list = b;
}

static struct fab_pkt *pkt_alloc(struct fab_engine *e, struct fab_nic *nic,
                                 const struct fab_addr *dst, uint32_t dst_qpn, uint32_t len)
{
    struct box *b = box_get(of(e), len);

    return b ? &b->p : NULL;
}

static void pkt_free(struct fab_engine *e, struct fab_pkt *pkt)
{
    box_put(of(e), (struct box *)pkt);
}

/* ---- leaving ---- */

static void launch(struct fab_inproc *f, struct box *b, uint64_t arrival)
{
    b->to = fab_inproc_nic_box(f, b->p.h.dst.host, b->p.h.dst.nic);
    b->queued = false;
    timer_set(&f->eng, &b->t, arrival);
}

static void launch_copy(struct fab_inproc *f, const struct box *b, uint8_t flag, uint64_t arrival)
{
    struct box *c = box_get(f, b->p.h.len);

    if (!c) {
        return;
    }
    c->p.h = b->p.h;
    c->p.h.flags |= flag;
    memcpy(c->data, b->data, b->p.h.len);
    launch(f, c, arrival);
}

static uint64_t latency(struct fab_inproc *f, const struct fab_hdr *h)
{
    return (f->desc.nic[h->src.host][h->src.nic].latency_ns +
            f->desc.nic[h->dst.host][h->dst.nic].latency_ns) /
           2;
}

static void pkt_send(struct fab_engine *e, struct fab_nic *n, struct fab_qp *qp,
                     struct fab_pkt *pkt)
{
    struct fab_inproc *f = of(e);
    struct nic *nic = (struct nic *)n;
    struct box *b = (struct box *)pkt;
    const struct fab_link *l = &n->link;
    bool loop = fab_hdr_loops(&pkt->h);
    enum fab_fate fate = fab_link_tx(l, &pkt->h, fab_link_random(l) ? fab_rng_next(&f->rng) : 0);
    uint64_t arrival = f->now;

    if (!loop) {
        nic->tx_free =
            (nic->tx_free > f->now ? nic->tx_free : f->now) + fab_link_ns(l->rate, pkt->h.len);
        arrival = nic->tx_free + fab_link_delay(l, &pkt->h);
    }
    arrival += latency(f, &pkt->h) + fab_rng_upto(&f->rng, f->opts.jitter_ns);
    /* A packet that is lost may still have been copied by the fabric; one that never left the NIC
     * may not. */
    if (!l->down && !loop && fab_rng_chance(&f->rng, f->opts.ghost_ppm)) {
        n->cnt.ghosts_made++;
        launch_copy(f, b, FAB_F_GHOST, arrival + fab_rng_upto(&f->rng, f->opts.ghost_ns));
    }
    if (fate == FAB_DROP) {
        n->cnt.tx_dropped++;
        n->cnt.acks_lost +=
            fab_hdr_response(&pkt->h) && l->ack_lost && !l->down && !l->blackhole_tx;
        box_put(f, b);
        return;
    }
    if (f->rails && !loop && !fab_hdr_leaf(&f->desc, &pkt->h) &&
        !fab_inproc_spine_pass(f, &pkt->h, &arrival)) {
        box_put(f, b);
        return;
    }
    if (arrival < qp->eng_last) {
        arrival = qp->eng_last;
    }
    qp->eng_last = arrival;
    if (fate == FAB_TWICE) {
        n->cnt.dups_made++;
    }
    launch(f, b, arrival);
    if (fate == FAB_TWICE) {
        launch_copy(f, b, 0, arrival);
    }
}

static void pump(struct fab_timer *t)
{
    struct nic *nic = t->owner;
    struct fab_inproc *f = nic->f;

    nic->pumping = true;
    while (fab_nic_tx_next(&nic->n, nic->tx_free <= f->now))
        ;
    nic->pumping = false;
    if (nic->tx_free > f->now && fab_nic_tx_pending(&nic->n)) {
        timer_set(&f->eng, &nic->pump, nic->tx_free);
    }
}

static void tx_kick(struct fab_engine *e, struct fab_nic *n)
{
    struct nic *nic = (struct nic *)n;

    if (nic->pumping) {
        return;
    }
    if (n->tx_loops && (!nic->pump.slot || nic->pump.when > of(e)->now)) {
        timer_set(e, &nic->pump, of(e)->now);
    } else if (!nic->pump.slot) {
        timer_set(e, &nic->pump, nic->tx_free);
    }
}

/* ---- arriving ---- */

static void deliver(struct fab_timer *t)
{
    struct box *b = t->owner;
    struct nic *nic = b->to;
    struct fab_inproc *f = nic->f;
    const struct fab_link *l = &nic->n.link;

    if (!b->queued && !fab_hdr_loops(&b->p.h)) {
        /* The turn on the receiving link is taken in order of arrival, also when the rate has just
         * changed. */
        uint64_t turn =
            (nic->rx_free > f->now ? nic->rx_free : f->now) + fab_link_ns(l->rate, b->p.h.len);

        nic->rx_free = turn;
        b->queued = true;
        if (turn > f->now) {
            timer_set(&f->eng, t, turn);
            return;
        }
    }
    fab_inproc_mix(f, (uint64_t)b->p.h.dst_qpn << 40 ^ (uint64_t)b->p.h.psn << 8 ^
                          (uint64_t)b->p.h.op << 4 ^ b->p.h.flags);
    if (fab_link_rx(l, &b->p.h, fab_link_random(l) ? fab_rng_next(&f->rng) : 0) == FAB_DROP) {
        nic->n.cnt.rx_dropped++;
        box_put(f, b);
        return;
    }
    fab_nic_rx(&nic->n, &b->p);
}

/* ---- the rest of the engine's side ---- */

static uint64_t dma_delay(struct fab_engine *e, struct fab_nic *nic, uint32_t len)
{
    return fab_rng_upto(&of(e)->rng, of(e)->opts.dma_ns);
}

static uint64_t cqe_delay(struct fab_engine *e, struct fab_nic *nic)
{
    return fab_rng_upto(&of(e)->rng, of(e)->opts.cqe_ns);
}

static void memory_write(struct fab_engine *e, struct fab_nic *nic, uint32_t qpn, void *addr,
                         uint32_t len)
{
    const struct fab_inproc_opts *o = &of(e)->opts;

    if (o->on_memory_write) {
        o->on_memory_write(o->arg, nic->host, nic->nic, qpn, addr, len);
    }
}

static bool port_dead(const struct fab_nic *nic)
{
    return nic->link.down || nic->gone || nic->hung;
}

/* Whether nothing gets from @a to @b and back. */
static bool path_dead(const struct fab_nic *a, const struct fab_nic *b)
{
    const struct fab_link *la = &a->link, *lb = &b->link;

    if (port_dead(a) || port_dead(b)) {
        return true;
    }
    return a != b &&
           (la->blackhole_tx || la->blackhole_rx || lb->blackhole_tx || lb->blackhole_rx ||
            (la->cut[b->host] >> b->nic & 1) || (lb->cut[a->host] >> a->nic & 1));
}

static int resolve(struct fab_engine *e, struct fab_nic *nic, const struct ibv_ah_attr *ah,
                   struct fab_addr *dst)
{
    struct fab_inproc *f = of(e);
    int rc = fab_desc_route(&f->desc, nic->host, nic->nic, ah, dst);

    if (rc == 0 && nic->cfg.ib.lid && !ah->is_global && dst->epoch != UINT32_MAX) {
        dst->epoch = fab_inproc_nic(f, dst->host, dst->nic)->gid_epoch; /* a LID names no GID */
    }
    if (rc || !f->opts.rtr_needs_path) {
        return rc;
    }
    return path_dead(nic, fab_inproc_nic(f, dst->host, dst->nic)) ? ETIMEDOUT : 0;
}

static uint32_t qpn_alloc(struct fab_engine *e, struct fab_nic *n)
{
    struct nic *nic = (struct nic *)n;

    for (uint32_t w = nic->qpn_hint; w < FAB_MAX_QP / 64; w++) {
        if (~nic->qpn_used[w]) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~nic->qpn_used[w]);

            nic->qpn_used[w] |= 1ull << bit;
            nic->qpn_hint = w;
            return FIRST_QPN + w * 64 + bit;
        }
    }
    return 0;
}

static void qpn_free(struct fab_engine *e, struct fab_nic *n, uint32_t qpn)
{
    struct nic *nic = (struct nic *)n;
    uint32_t i = qpn - FIRST_QPN;

    nic->qpn_used[i / 64] &= ~(1ull << (i % 64));
    if (i / 64 < nic->qpn_hint) {
        nic->qpn_hint = i / 64;
    }
}

static void no_lock(struct fab_engine *e)
{
}

static int control(struct fab_engine *e, struct fab_nic *nic, enum fab_call call)
{
    struct fab_inproc *f = of(e);

    if (call != FAB_CALL_MODIFY_QP || !nic->hung || !f->opts.hang_modify_ns) {
        return 0;
    }
    fab_inproc_skip(f, f->opts.hang_modify_ns);
    return fab_rng_chance(&f->rng, f->opts.hang_modify_fails_ppm) ? ETIMEDOUT : 0;
}

static bool memory_has(struct fab_engine *e, const void *addr, size_t len)
{
    const struct fab_inproc_opts *o = &of(e)->opts;
    uintptr_t a = (uintptr_t)addr, from = (uintptr_t)o->gpu_mem;

    return len > 0 && o->gpu_len > 0 && a < from + o->gpu_len && a + len > from;
}

static void channel(struct fab_engine *e, struct fab_nic *nic)
{
    struct fab_inproc *f = (struct fab_inproc *)e;

    if (f->on_channel) {
        f->on_channel(f->channel_arg, nic->host);
    }
}

const struct fab_engine_ops fab_inproc_ops = {
    .now = now,
    .timer_set = timer_set,
    .timer_cancel = timer_cancel,
    .pkt_alloc = pkt_alloc,
    .pkt_send = pkt_send,
    .pkt_free = pkt_free,
    .tx_kick = tx_kick,
    .dma_delay = dma_delay,
    .cqe_delay = cqe_delay,
    .memory_write = memory_write,
    .resolve = resolve,
    .qpn_alloc = qpn_alloc,
    .qpn_free = qpn_free,
    .lock = no_lock,
    .unlock = no_lock,
    .control = control,
    .memory_has = memory_has,
    .channel = channel,
};

void fab_inproc_net_init(struct nic *nic)
{
    nic->pump.fire = pump;
    nic->pump.owner = nic;
}

void fab_inproc_net_fini(struct fab_inproc *f)
{
    struct box *b;

    while ((b = f->boxes) != NULL) {
        f->boxes = b->all;
        free(b);
    }
}
