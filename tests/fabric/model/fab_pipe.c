/* The ordered tail of each half of a queue pair. */
#include "fab_pipe.h"

#include "fab_qp.h"

#include <stdlib.h>
#include <string.h>

#define WQE_OF(it) ((struct fab_wqe *)((char *)(it)-offsetof(struct fab_wqe, item)))

static void run(struct fab_pipe *p);

static void timer_fire(struct fab_timer *t)
{
    run(t->owner);
}

struct fab_pipe *fab_pipe_new(struct fab_qp *qp, bool sender)
{
    struct fab_pipe *p = calloc(1, sizeof *p);

    if (!p) {
        return NULL;
    }
    p->nic = qp->nic;
    p->ctx = qp->ctx;
    p->pd = qp->pd;
    p->qp = qp;
    p->qpn = qp->qpn;
    p->sender = sender;
    p->timer.fire = timer_fire;
    p->timer.owner = p;
    p->flush.kind = FAB_ITEM_FLUSH;
    return p;
}

static void pkt_free(struct fab_pipe *p, struct fab_pkt *pkt)
{
    p->nic->eng->ops->pkt_free(p->nic->eng, pkt);
}

/* What was overtaken goes back to the front. */
static void late_join(struct fab_pipe *p)
{
    struct fab_item *it;

    while ((it = p->late) != NULL) {
        p->late = it->next;
        it->next = p->head;
        p->head = it;
        if (!p->tail) {
            p->tail = it;
        }
    }
}

void fab_pipe_free(struct fab_pipe *p)
{
    struct fab_item *it, *next;

    if (!p) {
        return;
    }
    p->nic->eng->ops->timer_cancel(p->nic->eng, &p->timer);
    late_join(p);
    for (it = p->head; it; it = next) {
        next = it->next;
        if (it->kind == FAB_ITEM_PKT) {
            pkt_free(p, PKT_OF(it));
        }
    }
    free(p);
}

bool fab_pkt_scatter(struct fab_pkt *pkt, const struct ibv_sge *sge, uint32_t nsge, uint64_t off)
{
    uint64_t left = pkt->h.len;

    pkt->npieces = 0;
    for (uint32_t i = 0; i < nsge && left; i++) {
        uint64_t n = sge[i].length;

        if (off >= n) {
            off -= n;
            continue;
        }
        n -= off;
        if (n > left) {
            n = left;
        }
        pkt->piece[pkt->npieces++] =
            (struct fab_piece){.addr = sge[i].addr + off, .key = sge[i].lkey, .len = (uint32_t)n};
        left -= n;
        off = 0;
    }
    return left == 0;
}

void fab_pkt_regions(const struct fab_nic *nic, struct fab_pkt *pkt)
{
    for (uint32_t i = 0; i < pkt->npieces; i++) {
        pkt->piece[i].serial = fab_mr_serial(nic, pkt->piece[i].key);
    }
}

/* Writes the bytes of @pkt to memory. False if a region that was there at acceptance is gone; its
 * bytes are dropped. */
static bool dma(struct fab_pipe *p, struct fab_pkt *pkt)
{
    struct fab_nic *nic = p->nic;
    int access = pkt->h.op == FAB_OP_WRITE ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
    const uint8_t *src = pkt->data;
    bool ok = true;

    for (uint32_t i = 0; i < pkt->npieces; i++) {
        const struct fab_piece *pc = &pkt->piece[i];
        void *dst = pc->serial == fab_mr_serial(nic, pc->key)
                        ? fab_mr_find(nic, p->pd, pc->key, pc->addr, pc->len, access)
                        : NULL;

        if (dst == NULL && p->ctx->dead && nic->cfg.dead_dma_blind) {
            dst = (void *)(uintptr_t)pc->addr; /* on PCIe: nobody looks a region up any more */
        }
        if (dst) {
            if (nic->eng->ops->memory_write) {
                nic->eng->ops->memory_write(nic->eng, nic, p->qpn, dst, pc->len);
            }
            fab_memory_copy(nic->eng, dst, src, pc->len);
            nic->cnt.dma_writes++;
            nic->cnt.dma_bytes += pc->len;
        } else {
            nic->cnt.dma_dropped++;
            ok = false;
        }
        src += pc->len;
    }
    return ok;
}

/* A region vanished under accepted data: no good completion may follow, and the queue pair ends. */
static void dma_failed(struct fab_pipe *p, struct fab_pkt *pkt)
{
    struct fab_qp *qp = p->qp;

    p->failed |= !p->sender;
    if (pkt->recv && pkt->recv_status == IBV_WC_SUCCESS) {
        pkt->recv_status = pkt->h.op == FAB_OP_SEND ? IBV_WC_LOC_PROT_ERR : IBV_WC_WR_FLUSH_ERR;
    }
    if (!qp || qp->state == IBV_QPS_ERR) {
        return;
    }
    if (p->sender && pkt->read->index >= qp->sq_done) {
        fab_qp_req_fail(qp, IBV_WC_LOC_PROT_ERR);
    } else if (p->sender) {
        pkt->read->status = IBV_WC_LOC_PROT_ERR;
        fab_qp_error(qp);
    } else {
        fab_qp_fatal(qp, IBV_EVENT_QP_ACCESS_ERR);
    }
}

/* Accepted behind data that failed: a responder executes in order, and stops there. */
static void not_executed(struct fab_pipe *p, struct fab_pkt *pkt)
{
    p->nic->cnt.dma_dropped += pkt->npieces != 0;
    pkt->npieces = 0;
    pkt->recv_status = IBV_WC_WR_FLUSH_ERR;
}

/* An accepted packet: its bytes, then its completion. True if the completion comes later, with the
 * same item. */
static bool run_pkt(struct fab_pipe *p, struct fab_pkt *pkt)
{
    struct fab_engine *eng = p->nic->eng;
    uint64_t delay;

    if (p->ctx->dead && fab_now(eng) > p->ctx->dead_at + p->nic->cfg.dead_dma_ns) {
        p->nic->cnt.dma_lost += pkt->npieces != 0;
        pkt->npieces = 0;
    }
    if (pkt->h.op == FAB_OP_READ) {
        if (p->qp && !p->ctx->dead) {
            fab_qp_resp_read(p->qp, pkt);
        } else {
            pkt_free(p, pkt);
        }
        return false;
    }
    if (p->failed) {
        not_executed(p, pkt);
    } else if (pkt->npieces && !dma(p, pkt)) {
        dma_failed(p, pkt);
    }
    if (!p->qp || !pkt->recv || p->ctx->dead) {
        pkt_free(p, pkt);
        return false;
    }
    delay = eng->ops->cqe_delay(eng, p->nic);
    pkt->item.kind = FAB_ITEM_RECV_CQE;
    pkt->item.due = fab_now(eng) + delay;
    return true;
}

/* Runs an item that was taken off the front. True if it goes back there, to come again at its new
 * time. */
static bool run_item(struct fab_pipe *p, struct fab_item *it)
{
    struct fab_pkt *pkt = PKT_OF(it);

    switch (it->kind) {
    case FAB_ITEM_PKT:
        return run_pkt(p, pkt);
    case FAB_ITEM_RECV_CQE:
        if (p->qp && !p->ctx->dead) {
            fab_qp_recv_cqe(p->qp, pkt->recv, pkt->recv_status, pkt->recv_len, &pkt->h);
        }
        pkt_free(p, pkt);
        return false;
    case FAB_ITEM_SEND_CQE:
        if (!p->ctx->dead) {
            fab_qp_send_cqe(p->qp, WQE_OF(it), WQE_OF(it)->status);
        }
        return false;
    case FAB_ITEM_FLUSH:
        p->flush_queued = false;
        if (p->ctx->dead) {
            return false;
        }
        if (p->sender) {
            fab_qp_flush_sends(p->qp);
        } else {
            fab_qp_flush_recvs(p->qp);
        }
        return false;
    }
    return false;
}

static void unlink_orphan(struct fab_pipe *p)
{
    struct fab_pipe **pp = &p->nic->orphans;

    while (*pp != p) {
        pp = &(*pp)->next;
    }
    *pp = p->next;
}

/* A segment of a write that no completion of ours follows: others may overtake it. */
static bool is_plain(const struct fab_pipe *p, struct fab_item *it)
{
    return !p->sender && it->kind == FAB_ITEM_PKT && PKT_OF(it)->h.op == FAB_OP_WRITE &&
           !PKT_OF(it)->recv;
}

/* Whether @it is put aside for some time, so that what is behind it may overtake it. */
static bool put_aside(struct fab_pipe *p, struct fab_item *it, uint64_t now)
{
    struct fab_nic *nic = p->nic;

    if (!nic->cfg.reorder_ns || !is_plain(p, it)) {
        return false;
    }
    if (!fab_rng_chance(&nic->reorder_rng, 500000)) {
        nic->cnt.overtaken += p->late != NULL;
        return false;
    }
    it->due = now + 1 + fab_rng_upto(&nic->reorder_rng, nic->cfg.reorder_ns);
    it->next = p->late;
    p->late = it;
    return true;
}

/*
 * Places what was put aside and is due. Returns when the next one of the others is, UINT64_MAX
 * without any.
 */
static uint64_t run_late(struct fab_pipe *p, uint64_t now)
{
    struct fab_item **at = &p->late, *it;
    uint64_t next = UINT64_MAX;
    bool had = p->late != NULL;

    while ((it = *at) != NULL) {
        if (it->due > now) {
            next = it->due < next ? it->due : next;
            at = &it->next;
            continue;
        }
        *at = it->next;
        p->nic->cnt.overtaken += *at != NULL;
        run_item(p, it); /* has no completion: it does not come again */
        p->busy--;
    }
    if (had && !p->late && p->qp) {
        fab_nic_tx_add(p->nic, p->qp); /* the acknowledgement that waited */
    }
    return next;
}

static void run(struct fab_pipe *p)
{
    struct fab_engine *eng = p->nic->eng;
    uint64_t now = fab_now(eng);
    uint64_t late;
    struct fab_item *it;

    if (p->running) {
        return;
    }
    if (p->nic->hung) {
        p->parked = true;
        return;
    }
    p->running = true;
    late = run_late(p, now);
    while ((it = p->head) != NULL && it->due <= now && (!p->late || is_plain(p, it))) {
        p->head = it->next;
        if (!p->head) {
            p->tail = NULL;
        }
        if (put_aside(p, it, now)) {
            late = it->due < late ? it->due : late;
            continue;
        }
        if (!run_item(p, it)) {
            p->busy--;
            continue;
        }
        it->next = p->head;
        p->head = it;
        if (!p->tail) {
            p->tail = it;
        }
    }
    p->running = false;
    if (p->head && (!p->late || is_plain(p, p->head)) && p->head->due < late) {
        late = p->head->due;
    }
    if (late != UINT64_MAX) {
        eng->ops->timer_set(eng, &p->timer, late);
    } else if (!p->qp) {
        unlink_orphan(p);
        free(p);
    }
}

void fab_pipe_put(struct fab_pipe *p, struct fab_item *item, uint64_t delay)
{
    struct fab_engine *eng = p->nic->eng;
    uint64_t now = fab_now(eng);

    item->next = NULL;
    item->due = now + delay;
    p->busy++;
    if (p->tail) {
        p->tail->next = item;
    } else {
        p->head = item;
    }
    p->tail = item;
    if (p->head != item || p->running) {
        return;
    }
    if (p->late && !is_plain(p, item)) {
        return; /* the timer of what it waits for is set */
    }
    if (item->due <= now) {
        run(p);
    } else if (!p->timer.slot || item->due < p->timer.when) {
        eng->ops->timer_set(eng, &p->timer, item->due);
    }
}

void fab_pipe_flush(struct fab_pipe *p)
{
    if (p->flush_queued || p->nic->provider == FAB_PROVIDER_MANA) {
        return;
    }
    p->flush_queued = true;
    fab_pipe_put(p, &p->flush, p->nic->eng->ops->cqe_delay(p->nic->eng, p->nic));
}

/* Keeps only the packets that still have bytes to write. */
static void keep_dma(struct fab_pipe *p)
{
    struct fab_item *it, *next;

    late_join(p);
    it = p->head;
    p->head = p->tail = NULL;
    p->busy = 0;
    p->flush_queued = false;
    for (; it; it = next) {
        next = it->next;
        if (it->kind != FAB_ITEM_PKT && it->kind != FAB_ITEM_RECV_CQE) {
            continue;
        }
        if (PKT_OF(it)->recv && p->qp->srq) {
            fab_rq_release(&p->qp->srq->rq, PKT_OF(it)->recv);
        }
        PKT_OF(it)->recv = NULL;
        if (it->kind == FAB_ITEM_RECV_CQE || PKT_OF(it)->h.op == FAB_OP_READ ||
            PKT_OF(it)->npieces == 0) {
            pkt_free(p, PKT_OF(it));
            continue;
        }
        it->next = NULL;
        if (p->tail) {
            p->tail->next = it;
        } else {
            p->head = it;
        }
        p->tail = it;
        p->busy++;
    }
}

void fab_pipe_orphan(struct fab_pipe *p)
{
    struct fab_engine *eng = p->nic->eng;

    keep_dma(p);
    p->qp = NULL;
    if (!p->head) {
        eng->ops->timer_cancel(eng, &p->timer);
        free(p);
        return;
    }
    p->next = p->nic->orphans;
    p->nic->orphans = p;
    if (!p->parked) {
        eng->ops->timer_set(eng, &p->timer, p->head->due);
    }
}

static void items_shift(struct fab_item *it, uint64_t since, uint64_t ns)
{
    for (; it; it = it->next) {
        it->due += it->due > since ? ns : 0;
    }
}

void fab_pipe_shift(struct fab_pipe *p, uint64_t since, uint64_t ns)
{
    items_shift(p->head, since, ns);
    items_shift(p->late, since, ns);
}

void fab_pipe_unpark(struct fab_pipe *p)
{
    if (!p->parked) {
        return;
    }
    p->parked = false;
    run(p);
}
