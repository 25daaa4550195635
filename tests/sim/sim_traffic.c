/*
 * Traffic as NCCL's proxy makes it: at most a window of requests posted, the oldest one tested, a
 * NULL request asked for again with the same arguments, buffers given out again as soon as their
 * request is done, no call at all between two operations.
 */
#include "sim.h"

#include <string.h>

/* Mostly small, now and then near the largest; 0 and odd sizes among them. */
static uint32_t size_draw(const struct sim_params *p, struct fab_rng *r)
{
    uint64_t top = p->max_size;

    if (sim_pct(r, p->big_pct)) {
        return (uint32_t)sim_pick(r, top / 2, top);
    }
    switch (fab_rng_next(r) % 8) {
    case 0:
        return 0;
    case 1:
    case 2:
    case 3:
        return (uint32_t)fab_rng_upto(r, top < 256 ? top : 256);
    case 4:
    case 5:
        return (uint32_t)fab_rng_upto(r, top < 4096 ? top : 4096);
    default:
        return (uint32_t)fab_rng_upto(r, top < 16384 ? top : 16384);
    }
}

static void msg_draw(struct sim_conn *c, struct sim_msg *m, int index, int n, struct fab_rng *r)
{
    const struct sim_params *p = &c->sim->p;

    memset(m, 0, sizeof(*m));
    m->index = (uint8_t)index;
    m->n = (uint8_t)n;
    m->size = size_draw(p, r);
    switch (fab_rng_next(r) % 8) {
    case 0: /* truncation */
        m->cap = (uint32_t)fab_rng_upto(r, m->size);
        break;
    case 1:
    case 2:
        m->cap = m->size;
        break;
    default:
        m->cap = (uint32_t)sim_pick(r, m->size, p->max_size);
        break;
    }
    /* Tags repeat now and then within a group: equal ones are matched in order. */
    m->tag = sim_pct(r, 15) ? 7 : 100 + index * 3;
    m->send_skew = (uint8_t)fab_rng_upto(r, 63);
    m->recv_skew = (uint8_t)fab_rng_upto(r, 63);
}

/* Any order within a group, except that sends of one tag keep theirs. */
static void order_draw(struct sim_conn *c, uint32_t first, uint32_t n, struct fab_rng *r)
{
    for (uint32_t i = 0; i < n; i++) {
        c->send_order[first + i] = (uint16_t)(first + i);
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(fab_rng_next(r) % i);
        uint16_t x = c->send_order[first + i - 1];
        c->send_order[first + i - 1] = c->send_order[first + j];
        c->send_order[first + j] = x;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            uint16_t *a = &c->send_order[first + i], *b = &c->send_order[first + j];
            if (*a > *b && c->msg[*a].tag == c->msg[*b].tag) {
                uint16_t x = *a;
                *a = *b;
                *b = x;
            }
        }
    }
}

void sim_traffic_draw(struct sim_conn *c, struct fab_rng *r)
{
    const struct sim_params *p = &c->sim->p;
    int groups = sim_pct(r, 50) ? p->max_group : 1;

    c->nslots = (int)sim_pick(r, (uint64_t)(groups > 1 ? groups : 1),
                              (uint64_t)(p->max_slots > groups ? p->max_slots : groups));
    /* All sends of a group are posted before any of them is done: the window must hold a group.
     * Sends are single, so there may be as many as the receives of 32 groups. */
    c->r.window = (unsigned)sim_pick(r, 1, 32);
    c->s.window = (unsigned)sim_pick(r, (uint64_t)groups, 32 * (uint64_t)groups);
    c->nmsgs = 0;
    c->ops = (int)sim_pick(r, 1, (uint64_t)p->ops);
    for (int op = 0; op < c->ops; op++) {
        int until = p->msgs * (op + 1) / c->ops;
        while (c->nmsgs < until) {
            int n = groups > 1 ? (int)sim_pick(r, 1, (uint64_t)groups) : 1, first = c->nmsgs;
            if (first + n > SIM_MAX_MSGS) {
                break;
            }
            for (int i = 0; i < n; i++) {
                msg_draw(c, &c->msg[c->nmsgs++], i, n, r);
            }
            order_draw(c, (uint32_t)first, (uint32_t)n, r);
        }
        c->op_end[op] = (uint32_t)c->nmsgs;
    }
}

static void request_push(struct sim_end *e, struct r2_req *req, uint32_t first, uint32_t n)
{
    e->fifo[e->tail++ % SIM_MAX_SLOTS] = (struct sim_pending){req, first, n};
}

/* A sender that computes between its bursts keeps the traffic going for as long as faults come. */
static void pace(struct sim_end *e)
{
    const struct sim_params *p = &e->conn->sim->p;

    if (p->pace_ns == 0 || --e->burst >= 0) {
        return;
    }
    e->burst = (int)fab_rng_upto(&e->rng, 15);
    e->post_at = fab_inproc_now(e->conn->sim->f) + fab_rng_upto(&e->rng, p->pace_ns);
}

/* Posts one send; 1 when it was taken. */
static int send_post(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    uint32_t msg = c->send_order[e->next], slot = e->next % (uint32_t)c->nslots;
    struct sim_msg *m = &c->msg[msg];
    uint8_t *at = c->send_base + (size_t)c->stride * slot + m->send_skew;
    struct r2_req *req = NULL;
    enum r2_status st;

    if (!c->send_free[slot]) {
        return 0;
    }
    if (!e->filled) {
        sim_fill(c, msg, at, m->size);
        e->filled = 1;
    }
    st = r2_net_isend(e->comm, at, m->size, m->tag, e->mr[msg & 1], &req);
    if (st != R2_OK) {
        sim_end_fail(e, "isend", st);
        return 0;
    }
    if (!req) {
        return 0;
    }
    c->send_free[slot] = 0;
    e->filled = 0;
    request_push(e, req, e->next++, 1);
    pace(e);
    return 1;
}

static int recv_post(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    uint32_t first = e->next, n = c->msg[first].n;
    void *data[R2_NET_MAX_RECVS];
    size_t sizes[R2_NET_MAX_RECVS];
    int tags[R2_NET_MAX_RECVS];
    struct ib_mr *mrs[R2_NET_MAX_RECVS];
    struct r2_req *req = NULL;
    enum r2_status st;

    for (uint32_t i = 0; i < n; i++) {
        struct sim_msg *m = &c->msg[first + i];
        if (c->slot[(first + i) % (uint32_t)c->nslots].state != SIM_SLOT_FREE) {
            return 0;
        }
        data[i] = sim_slot_addr(c, first + i);
        sizes[i] = m->cap;
        tags[i] = m->tag;
        mrs[i] = e->mr[i & 1];
    }
    /* Ours from the call on: the first bytes may land before it returns. */
    for (uint32_t i = 0; i < n; i++) {
        c->slot[(first + i) % (uint32_t)c->nslots] = (struct sim_slot){SIM_SLOT_POSTED, first + i};
    }
    st = r2_net_irecv(e->comm, (int)n, data, sizes, tags, mrs, &req);
    if (st != R2_OK) {
        sim_end_fail(e, "irecv", st);
        return 0;
    }
    if (!req) {
        for (uint32_t i = 0; i < n; i++) {
            c->slot[(first + i) % (uint32_t)c->nslots].state = SIM_SLOT_FREE;
        }
        return 0;
    }
    e->next += n;
    request_push(e, req, first, n);
    return 1;
}

/* @sizes: as test gave them, or NULL where they were not asked for. */
static void done_one(struct sim_end *e, const struct sim_pending *q, const int *sizes)
{
    struct sim_conn *c = e->conn;
    struct sim *s = c->sim;

    for (uint32_t i = 0; i < q->n; i++) {
        uint32_t msg = e->sender ? c->send_order[q->first] : q->first + i;
        if (e->sender) {
            uint32_t slot = q->first % (uint32_t)c->nslots;
            sim_oracle_send_done(c, msg, sizes ? (size_t)sizes[0] : sim_size_due(&c->msg[msg]));
            memset(c->send_base + (size_t)c->stride * slot, 0xdb, c->msg[msg].size + 64u);
            c->send_free[slot] = 1;
        } else {
            sim_oracle_recv_done(c, msg, sizes ? (size_t)sizes[i] : sim_size_due(&c->msg[msg]));
        }
        e->done++;
        s->st.messages++;
        sim_trace(s, "conn %d %c: message %u done, %u bytes", c->index, e->sender ? 'S' : 'R', msg,
                  sim_size_due(&c->msg[msg]));
        s->done_total++;
        sim_faults_progress(s);
    }
}

/* A flush of the buffers just received, as NCCL does for GPU memory: its own request, tested until
 * done. */
static void flush_start(struct sim_end *e, const struct sim_pending *q, const int *sizes)
{
    struct sim_conn *c = e->conn;
    void *data[R2_NET_MAX_RECVS];
    int len[R2_NET_MAX_RECVS];
    struct ib_mr *mrs[R2_NET_MAX_RECVS];
    enum r2_status st;

    for (uint32_t i = 0; i < q->n; i++) {
        data[i] = sim_slot_addr(c, q->first + i);
        len[i] = sizes[i];
        mrs[i] = e->mr[i & 1];
    }
    e->flush = NULL;
    st = r2_net_iflush(e->comm, (int)q->n, data, len, mrs, &e->flush);
    if (st != R2_OK) {
        sim_end_fail(e, "iflush", st);
    }
}

/* 1 when something was done. */
static int oldest_test(struct sim_end *e)
{
    struct sim_pending *q = &e->fifo[e->head % SIM_MAX_SLOTS];
    int sizes[R2_NET_MAX_RECVS];
    int done = 0, blind = sim_pct(&e->rng, 5);
    enum r2_status st;

    if (e->flush) {
        st = r2_net_test(e->flush, &done, NULL);
        if (st != R2_OK) {
            sim_end_fail(e, "test of a flush", st);
        }
        if (done) {
            e->flush = NULL;
        }
        return done;
    }
    if (e->head == e->tail) {
        return 0;
    }
    memset(sizes, 0xff, sizeof(sizes));
    st = r2_net_test(q->req, &done, blind ? NULL : sizes);
    if (st != R2_OK) {
        sim_end_fail(e, "test", st);
        return 0;
    }
    if (!done) {
        return 0;
    }
    e->head++;
    done_one(e, q, blind ? NULL : sizes);
    if (!blind && !e->sender && e->state == SIM_END_RUN && !e->conn->sim->failed &&
        sim_pct(&e->rng, e->conn->sim->p.flush_pct)) {
        flush_start(e, q, sizes);
    }
    return 1;
}

/* The end of an operation: silence, or the end of the connection. */
static void op_over(struct sim_end *e, uint64_t now)
{
    struct sim *s = e->conn->sim;

    e->op++;
    if (e->op < e->conn->ops) {
        e->state = SIM_END_IDLE;
        e->idle_until = now + fab_rng_upto(&e->rng, s->p.idle_ns);
    } else {
        e->state = SIM_END_CLOSING;
        e->idle_until =
            sim_pct(&e->rng, s->p.close_now_pct) ? now : now + fab_rng_upto(&e->rng, s->p.close_ns);
        e->idle_until = e->idle_until > s->p.hold_ns ? e->idle_until : s->p.hold_ns;
    }
    if (e->state == SIM_END_CLOSING && e->idle_until == now) {
        sim_end_leave(e);
    } else {
        sim_end_schedule(e, e->idle_until);
    }
}

static void progress_note(struct sim_end *e, uint64_t now, int progress)
{
    struct sim *s = e->conn->sim;

    if (!progress) {
        e->empty++;
        return;
    }
    if (now - e->progress_at > s->st.longest_stall_ns) {
        s->st.longest_stall_ns = now - e->progress_at;
    }
    e->progress_at = now;
    e->empty = 0;
}

void sim_traffic_turn(struct sim_end *e)
{
    struct sim_conn *c = e->conn;
    struct sim *s = c->sim;
    uint64_t now = fab_inproc_now(s->f), pause;
    int progress = 0, rounds = 1 + (int)(fab_rng_next(&e->rng) % 4);

    if (e->state == SIM_END_IDLE) {
        e->state = SIM_END_RUN;
        e->progress_at = now;
    }
    for (int i = 0; i < rounds && e->state == SIM_END_RUN && !s->failed; i++) {
        if (e->next < c->op_end[e->op] && e->tail - e->head < e->window && now >= e->post_at) {
            progress |= e->sender ? send_post(e) : recv_post(e);
        }
        if (e->state == SIM_END_RUN) {
            progress |= oldest_test(e);
        }
    }
    if (e->state != SIM_END_RUN || s->failed) {
        return;
    }
    progress_note(e, now, progress);
    if (e->done == c->op_end[e->op] && !e->flush) {
        op_over(e, now);
        return;
    }
    /* Real proxies spin; here the turns thin out while nothing happens, so that a stall costs
     * little real time. */
    pause = e->empty < 64 ? 0 : e->empty < 256 ? 5 * SIM_US : 40 * SIM_US;
    sim_end_schedule(e, now + 200 + sim_delay_draw(&s->p.app, &e->rng) + pause);
}
