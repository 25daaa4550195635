/* A connection from listen to close, at both ends; and the clock of each end's calls. */
#include "sim.h"

#include "plugin/core/r2_inst.h"

#include <string.h>

static void end_turn(void *arg)
{
    struct sim_end *e = arg;
    struct sim *s = e->conn->sim;

    e->tick_id = 0;
    if (e->proc->dead || e->state == SIM_END_CLOSED || s->failed) {
        return;
    }
    if (fab_inproc_now(s->f) < e->proc->still_until) {
        sim_end_schedule(e, e->proc->still_until);
        return;
    }
    sim_proc_enter(e->proc);
    if (e->state == SIM_END_RUN || e->state == SIM_END_IDLE) {
        sim_traffic_turn(e);
    } else {
        sim_conn_open_turn(e);
    }
    sim_proc_leave(e->proc);
}

void sim_end_schedule(struct sim_end *e, uint64_t at)
{
    if (e->tick_id) {
        fab_inproc_cancel(e->conn->sim->f, e->tick_id);
    }
    e->tick_id = fab_inproc_at(e->conn->sim->f, at, end_turn, e);
}

int sim_end_finished(const struct sim_end *e)
{
    return e->done == (uint32_t)e->conn->nmsgs;
}

void sim_end_fail(struct sim_end *e, const char *call, enum r2_status st)
{
    struct sim_conn *c = e->conn;
    struct sim *s = c->sim;

    sim_trace(s, "conn %d %c: %s returns %s", c->index, e->sender ? 'S' : 'R', call,
              r2_status_name(st));
    if (!c->may_fail) {
        sim_fail(s, "conn %d: %s at the %s returns %s, though a path is healthy", c->index, call,
                 e->sender ? "sender" : "receiver", r2_status_name(st));
    } else if (st < R2_ERR_COMM) {
        sim_fail(s, "conn %d: %s returns %s, which does not end a connection", c->index, call,
                 r2_status_name(st));
    }
    e->error = st;
    e->state = SIM_END_CLOSING;
    e->idle_until = fab_inproc_now(s->f) + fab_rng_upto(&e->rng, s->p.close_ns);
    sim_end_schedule(e, e->idle_until);
}

static int end_register(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    uint8_t *base = e->sender ? c->send_base : c->recv_base;
    size_t len = (size_t)c->stride * (size_t)c->nslots;

    for (int i = 0; i < 2; i++) {
        enum r2_status st = r2_net_reg(e->comm, base, len,
                                       e->sender && c->sim->p.copy_nics ? IB_PTR_CUDA : IB_PTR_HOST,
                                       0, -1, &e->mr[i]);
        if (st != R2_OK || !e->mr[i]) {
            c->may_fail |= e->sender &&
                           c->sim->p.copy_nics; /* the NICs that would take it may be dead by now */
            sim_end_fail(e, "reg", st);
            return -1;
        }
    }
    return 0;
}

/*
 * Whoever comes next in this process: the same memory, other contents, and, where a device lets
 * go of keys, the same keys. What is still under way for the connection that aborted must neither
 * write it nor send it: the slots are gone for the oracle, and what arrives elsewhere is
 * compared. Memory that a device would not let go of is nobody else's.
 */
static void tenant_register(struct sim_end *e, uint64_t kept)
{
    struct sim_conn *c = e->conn;
    uint8_t *base = e->sender ? c->send_base : c->recv_base;
    size_t len = (size_t)c->stride * (size_t)c->nslots;
    struct ib_mr_stats stats;
    struct ib_mr *mr;
    int type = e->sender && c->sim->p.copy_nics ? IB_PTR_CUDA : IB_PTR_HOST;
    char end = e->sender ? 'S' : 'R';

    ib_mr_cache_stats(e->proc->inst->mem.mrs, &stats);
    if (stats.kept > kept) {
        sim_trace(c->sim, "conn %d %c: its memory stays registered", c->index, end);
        c->kept |= e->sender ? 1 : 2;
        return;
    }
    if (e->sender) {
        memset(base, 0xa5, len);
    }
    mr = ib_mr_get(e->proc->inst->mem.mrs, base, len, type, 0, -1, ~0ull);
    sim_trace(c->sim, "conn %d %c: its memory is registered again, key %#x", c->index, end,
              mr ? ib_mr_rkey(mr, e->dev) : 0);
}

/* NCCL takes the registrations away before it closes, also under requests that are outstanding. */
static void end_deregister(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    struct ib_mr_stats before;

    if (e->tick_id) { /* the thread that would call is in here, perhaps for long */
        fab_inproc_cancel(c->sim->f, e->tick_id);
    }
    e->tick_id = 0;
    e->state = SIM_END_DEREGISTERED;
    ib_mr_cache_stats(e->proc->inst->mem.mrs, &before);
    for (int i = 0; i < 2 && e->comm; i++) {
        enum r2_status st = r2_net_dereg(e->comm, e->mr[i]);
        if (st != R2_OK) {
            sim_fail(c->sim, "conn %d: dereg returns %s", c->index, r2_status_name(st));
        }
        e->mr[i] = NULL;
    }
    if (!sim_end_finished(e) && e->comm) {
        tenant_register(e, before.kept);
    }
    for (int i = 0; i < c->nslots && !e->sender; i++) {
        c->slot[i].state = SIM_SLOT_GONE;
    }
}

void sim_end_close(struct sim_end *e)
{
    struct sim_conn *c = e->conn;

    if (e->state != SIM_END_DEREGISTERED) {
        end_deregister(e);
    }
    if (!e->sender) {
        r2_net_close_listen(c->listen);
        c->listen = NULL;
    }
    sim_trace(c->sim, "conn %d %c: close, %u of %d done", c->index, e->sender ? 'S' : 'R', e->done,
              c->nmsgs);
    r2_net_close(e->comm);
    e->comm = NULL;
    e->state = SIM_END_CLOSED;
}

void sim_end_leave(struct sim_end *e)
{
    struct sim *s = e->conn->sim;

    if (sim_pct(&e->rng, 50)) {
        sim_end_close(e);
        return;
    }
    end_deregister(e);
    e->idle_until = fab_inproc_now(s->f) + fab_rng_upto(&e->rng, s->p.close_ns / 4);
    sim_end_schedule(e, e->idle_until);
}

static void end_open(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    enum r2_status st;

    if (!e->sender && !c->listen) {
        st = r2_net_listen(e->proc->inst, e->dev, c->handle, &c->listen);
        if (st != R2_OK || !c->listen) {
            sim_end_fail(e, "listen", st);
            return;
        }
        c->handle_at = fab_inproc_now(c->sim->f) + sim_pick(&e->rng, 5 * SIM_US, 300 * SIM_US);
        sim_end_schedule(&c->s, c->handle_at);
        return;
    }
    if (e->sender) {
        st = r2_net_connect(e->proc->inst, e->dev, c->handle, &e->comm);
    } else {
        st = r2_net_accept(c->listen, &e->comm);
    }
    if (st != R2_OK) {
        sim_end_fail(e, e->sender ? "connect" : "accept", st);
        return;
    }
    if (!e->comm) {
        /* Nothing tells a listener that the one it waits for will never come: whoever runs the job
         * does. */
        if (!e->sender && (c->s.proc->dead || c->s.error != R2_OK)) {
            sim_end_close(e);
        }
        return;
    }
    e->comm_id = e->comm->id;
    sim_trace(c->sim, "conn %d %c: open", c->index, e->sender ? 'S' : 'R');
    if (!e->sender) {
        r2_net_close_listen(c->listen);
        c->listen = NULL;
    }
    if (end_register(e) == 0) {
        e->state = SIM_END_RUN;
        e->progress_at = fab_inproc_now(c->sim->f);
    }
}

void sim_conn_open_turn(struct sim_end *e)
{
    struct sim *s = e->conn->sim;
    uint64_t now = fab_inproc_now(s->f);

    if (e->state == SIM_END_OPENING) {
        end_open(e);
        if (e->state == SIM_END_CLOSING || e->state == SIM_END_CLOSED) {
            return;
        }
        sim_end_schedule(e, now + 2 * SIM_US + sim_delay_draw(&s->p.app, &e->rng) * 4);
        return;
    }
    if (now >= e->idle_until && e->state == SIM_END_DEREGISTERED) {
        sim_end_close(e);
    } else if (now >= e->idle_until) {
        sim_end_leave(e);
    } else {
        sim_end_schedule(e, e->idle_until);
    }
}

static void end_init(struct sim_end *e, struct sim_conn *c, int sender, int proc, int dev)
{
    struct sim *s = c->sim;

    memset(e, 0, sizeof(*e));
    e->conn = c;
    e->sender = sender;
    e->proc = &s->proc[proc];
    e->dev = dev;
    e->rng.s = fab_rng_next(&s->rng);
    e->error = R2_OK;
    e->progress_at = 0;
}

void sim_conn_init(struct sim_conn *c, struct sim *s, int index)
{
    const struct sim_params *p = &s->p;
    int from = (int)(fab_rng_next(&s->rng) % (unsigned)p->procs), to, dev, dev2;

    to = sim_pct(&s->rng, p->loopback_pct)
             ? from
             : (from + 1 + (int)(fab_rng_next(&s->rng) % (unsigned)(p->procs - 1))) % p->procs;
    if (p->mesh) {
        from = index % p->procs;
        to = (from + 1 + index / p->procs) % p->procs;
    }
    dev = dev2 = (int)(fab_rng_next(&s->rng) % (unsigned)(p->nics - p->last_nic));
    if (sim_pct(&s->rng, p->cross_dev_pct)) {
        dev2 = (int)(fab_rng_next(&s->rng) % (unsigned)(p->nics - p->last_nic));
    }
    if (p->ring) {
        from = index % p->procs;
        to = (from + 1) % p->procs;
        dev = dev2 = index / p->procs % p->nics;
    }
    c->sim = s;
    c->index = index;
    c->listen = NULL;
    c->handle_at = 0;
    memset(c->handle, 0, sizeof(c->handle));
    memset(c->slot, 0, sizeof(c->slot));
    memset(c->send_free, 1, sizeof(c->send_free));
    c->may_fail = c->left = 0;
    c->kept = 0;
    memset(&c->resort, 0, sizeof(c->resort));
    end_init(&c->s, c, 1, from, dev);
    end_init(&c->r, c, 0, to, dev2);
    sim_traffic_draw(c, &s->rng);
    c->stride = (p->max_size + 64 + 127) / 128 * 128;
    c->send_base = sim_arena_region(index, 1);
    c->recv_base = sim_arena_region(index, 0);
    c->setup_at = fab_rng_upto(&s->rng, p->setup_ns);
    c->s.progress_at = c->r.progress_at = c->setup_at;
}

void sim_conn_start(struct sim_conn *c)
{
    sim_trace(c->sim, "conn %d: p%d dev %d -> p%d dev %d, %d messages, %d slots", c->index,
              c->s.proc->index, c->s.dev, c->r.proc->index, c->r.dev, c->nmsgs, c->nslots);
    sim_end_schedule(&c->r, c->setup_at);
}
