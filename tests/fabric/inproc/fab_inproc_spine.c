/* Spines: which one a packet takes, its queue, its faults, its counters. */
#include "fab_inproc_priv.h"

#include <stdlib.h>

int fab_inproc_spine_init(struct fab_inproc *f)
{
    if (fab_spines(&f->desc) == 1) {
        return 0;
    }
    f->rails = calloc((size_t)f->desc.nics, sizeof *f->rails);
    return f->rails ? 0 : -1;
}

/* A turn on the link whose queue is empty at *@free_at. */
static bool queue_pass(uint64_t *free_at, uint64_t rate, uint32_t len, struct fab_spine_count *c,
                       uint64_t *when)
{
    uint64_t from = *free_at > *when ? *free_at : *when;

    if (from > *when + FAB_SPINE_QUEUE_NS) {
        c->dropped++;
        return false;
    }
    c->queued += from > *when;
    *when = *free_at = from + fab_link_ns(rate, len);
    return true;
}

bool fab_inproc_spine_pass(struct fab_inproc *f, const struct fab_hdr *h, uint64_t *when)
{
    struct rail *r = &f->rails[fab_hdr_rail(h)];
    int n = fab_spines(&f->desc), leaf = f->desc.leaf;
    uint64_t hash = fab_spine_hash(h, f->desc.hash);
    int home = fab_spine_home(hash, n), k = fab_spine_pick(hash, n, r->state.down);
    struct fab_spine_count *c;

    r->cnt[home].moved += k != home;
    if (k < 0) {
        return false;
    }
    c = &r->cnt[k];
    c->packets++;
    c->bytes += h->len;
    if (fab_spine_drops(r->state.blackhole >> k & 1, r->state.loss_ppm[k],
                        r->state.loss_ppm[k] ? fab_rng_next(&f->rng) : 0)) {
        c->dropped++;
        return false;
    }
    if (!r->state.rate[k]) {
        return true;
    }
    return queue_pass(&r->free_at[k][0][leaf ? h->src.host / leaf : 0], r->state.rate[k], h->len, c,
                      when) &&
           (!leaf ||
            queue_pass(&r->free_at[k][1][h->dst.host / leaf], r->state.rate[k], h->len, c, when));
}

void fab_inproc_spine_fault(struct fab_inproc *f, const struct fab_fault *fault)
{
    for (int i = 0; f->rails && i < f->desc.nics; i++) {
        if (fault->nic < 0 || fault->nic == i) {
            fab_rail_fault(&f->rails[i].state, fab_spines(&f->desc), fault);
        }
    }
    if (fault->at == FAB_AT_SPINE) {
        fab_inproc_mix(f, (uint64_t)fault->kind << 32 ^ fault->value);
        fab_inproc_mix(f, (uint64_t)(fault->spine + 1) << 8 ^ (uint64_t)(fault->nic + 1));
    }
}

const struct fab_spine_count *fab_inproc_spine(struct fab_inproc *f, int rail, int spine)
{
    return f->rails && rail >= 0 && rail < f->desc.nics && spine >= 0 &&
                   spine < fab_spines(&f->desc)
               ? &f->rails[rail].cnt[spine]
               : NULL;
}

int fab_inproc_way(struct fab_inproc *f, const struct fab_qp *qp)
{
    struct fab_hdr h = {.src = qp->self,
                        .dst = qp->peer,
                        .dst_qpn = qp->dest_qpn,
                        .sport = qp->sport,
                        .dlid = qp->dlid};

    if (!f->rails || fab_hdr_loops(&h) || fab_hdr_leaf(&f->desc, &h) ||
        qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT) {
        return -1;
    }
    return fab_spine_pick(fab_spine_hash(&h, f->desc.hash), fab_spines(&f->desc),
                          f->rails[fab_hdr_rail(&h)].state.down);
}
