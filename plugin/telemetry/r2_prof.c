#include "r2_prof.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/r2_inst.h"

/* Release when it is set, with its argument before it; acquire when a connection is made. */
static _Atomic(r2_prof_fn) listener;
static _Atomic(void *) listener_arg;

void r2_prof_set(r2_prof_fn fn, void *arg)
{
    atomic_store_explicit(&listener_arg, arg, memory_order_relaxed);
    atomic_store_explicit(&listener, fn, memory_order_release);
}

struct r2_prof *r2_prof_new(const struct r2_config *cfg)
{
    r2_prof_fn fn =
        cfg->profiler_events ? atomic_load_explicit(&listener, memory_order_acquire) : NULL;
    struct r2_prof *prof = fn ? calloc(1, sizeof(*prof)) : NULL;

    if (prof) {
        prof->fn = fn;
        prof->arg = atomic_load_explicit(&listener_arg, memory_order_relaxed);
    }
    return prof;
}

/* --- what has changed --- */

/* Each event is begun once and ended once: a check of a request makes no more than 2 *
 * R2_PROF_EVENTS calls. */
static void event_begin(struct r2_prof *prof, struct r2_prof_req *r, void *parent,
                        struct r2_prof_event what, struct r2_prof_desc desc)
{
    struct r2_prof_event *e = &r->ev[r->n++];

    *e = what;
    e->open = 1;
    prof->call[prof->calls++] = (struct r2_prof_call){.event = e, .parent = parent, .desc = desc};
}

static void event_end(struct r2_prof *prof, struct r2_prof_event *e)
{
    e->open = 0;
    prof->call[prof->calls++] = (struct r2_prof_call){.event = e};
}

static bool is_of(const struct r2_prof_event *e, const struct ib_smsg *m, unsigned k)
{
    return e->part == k && e->path == m->part[k].path && e->inc == m->part[k].inc;
}

static bool is_known(const struct r2_prof_req *r, const struct ib_smsg *m, unsigned k)
{
    for (unsigned i = 0; i < r->n; i++) {
        if (is_of(&r->ev[i], m, k)) {
            return 1;
        }
    }
    return 0;
}

static uint32_t qp_of(const struct ib_path *p, uint32_t inc)
{
    return p->inc == inc && p->open && p->qp ? p->qp->qp_num : 0;
}

/* What was posted and accounted for between two checks was an event, too. */
void r2_prof_send(struct r2_prof *prof, struct r2_prof_req *r, const struct ib_smsg *m,
                  const struct ib_conn *l, int over)
{
    for (unsigned k = 0; k < m->nparts; k++) {
        const struct ib_part *part = &m->part[k];

        if (!(m->unposted >> k & 1) && r->n < R2_PROF_EVENTS && !is_known(r, m, k)) {
            const struct ib_path *p = &l->path[part->path];

            event_begin(
                prof, r, r->parent[0],
                (struct r2_prof_event){.inc = part->inc, .part = (uint8_t)k, .path = part->path},
                (struct r2_prof_desc){.device = p->nic,
                                      .wr_id = ib_wr_id(IB_WR_DATA, k, m->seq),
                                      .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                      .qp = qp_of(p, part->inc),
                                      .bytes = part->len});
        }
    }
    for (unsigned i = 0; i < r->n; i++) {
        struct r2_prof_event *e = &r->ev[i];

        if (e->open && (over || !is_of(e, m, e->part) || !m->part[e->part].wr_out)) {
            event_end(prof, e);
        }
    }
}

/* Which parts come over which path is not known before they have: one event for each buffer, from
 * the call to the end. */
static void recv_poll(struct r2_prof *prof, struct r2_prof_req *r, const struct r2_req *req,
                      int over)
{
    const struct r2_comm *c = req->comm;
    const struct ib_path *p = &c->conn.path[c->conn.up ? __builtin_ctz(c->conn.up) : 0];

    for (unsigned i = 0, begun = r->n; begun == 0 && i < req->n; i++) {
        const struct ib_rmsg *m = &c->rx->msg[(req->seq + i) % R2_LEDGER_WINDOW];

        if (r->parent[i]) {
            event_begin(prof, r, r->parent[i],
                        (struct r2_prof_event){.part = (uint8_t)i, .path = p->index, .inc = p->inc},
                        (struct r2_prof_desc){.device = p->nic,
                                              .wr_id = ib_wr_id(IB_WR_RECV, 0, req->seq + i),
                                              .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                              .qp = qp_of(p, p->inc),
                                              .bytes = m->size});
        }
    }
    for (unsigned i = 0; over && i < r->n; i++) {
        if (r->ev[i].open) {
            event_end(prof, &r->ev[i]);
        }
    }
}
_Static_assert(R2_NET_MAX_RECVS <= R2_PROF_EVENTS, "an event for each buffer of a group");

/* --- around it --- */

static uint64_t *word_of(struct r2_prof *prof, unsigned slot)
{
    return &prof->wanted[slot / 64];
}

static uint64_t bit_of(unsigned slot)
{
    return 1ull << slot % 64;
}

static void poll(struct r2_comm *c, unsigned slot, int over)
{
    struct r2_prof_req *r = &c->prof->req[slot];

    if (c->is_send) {
        r2_prof_send(c->prof, r, &c->tx->msg[slot], &c->conn, over);
    } else {
        recv_poll(c->prof, r, &c->req[slot], over);
    }
}

void r2_prof_poll(struct r2_req *req, int over)
{
    struct r2_comm *c = req->comm;
    struct r2_prof *prof = c->prof;
    unsigned own = (unsigned)(req->seq % R2_LEDGER_WINDOW);

    if (over && req->kind != R2_REQ_FLUSH &&
        (*word_of(prof, own) & bit_of(own))) { /* at once: its parent is not valid any more */
        poll(c, own, 1);
        *word_of(prof, own) &= ~bit_of(own);
    }
    for (unsigned i = 0; i < R2_LEDGER_WINDOW / 64; i++) {
        for (uint64_t m = prof->wanted[i]; m && prof->calls + 2 * R2_PROF_EVENTS <= R2_PROF_CALLS;
             m &= m - 1) {
            poll(c, i * 64 + (unsigned)__builtin_ctzll(m), 0);
        }
    }
}

void r2_prof_begin(struct r2_req *req, void *const *parent)
{
    struct r2_comm *c = req->comm;
    struct r2_prof_req *r;
    int wanted = 0;

    if (!r2_prof_listens(c)) {
        return;
    }
    r = &c->prof->req[req->seq % R2_LEDGER_WINDOW];
    memset(r, 0, sizeof(*r));
    for (int i = 0; parent && i < req->n; i++) {
        r->parent[i] = parent[i];
        wanted |= parent[i] != NULL;
    }
    if (!wanted) {
        return;
    }
    *word_of(c->prof, (unsigned)(r - c->prof->req)) |= bit_of((unsigned)(r - c->prof->req));
    if (r2_gate_enter(&c->gate)) {
        r2_prof_poll(req, 0);
        r2_gate_leave(&c->gate);
        r2_prof_notify(c->prof, 0);
    }
}

/* NCCL tests none of the others after an error. */
static void end_all(struct r2_prof *prof)
{
    for (unsigned slot = 0; slot < R2_LEDGER_WINDOW; slot++) {
        for (unsigned i = 0; (*word_of(prof, slot) & bit_of(slot)) && i < prof->req[slot].n; i++) {
            struct r2_prof_event *e = &prof->req[slot].ev[i];

            if (e->open && e->event) {
                prof->fn(prof->arg, &e->event, NULL, NULL);
            }
            e->open = 0;
        }
    }
    memset(prof->wanted, 0, sizeof(prof->wanted));
}

void r2_prof_notify(struct r2_prof *prof, int failed)
{
    for (unsigned i = 0; i < prof->calls; i++) {
        const struct r2_prof_call *call = &prof->call[i];

        if (call->parent) {
            prof->fn(prof->arg, &call->event->event, call->parent, &call->desc);
        } else if (call->event->event) {
            prof->fn(prof->arg, &call->event->event, NULL, NULL);
        }
    }
    prof->calls = 0;
    if (failed) {
        end_all(prof);
    }
}
