/* The Simple protocol: data by slices in the connection's buffer, counted by tail and head. */
#include "tests/nccl/standin/kernel.h"

struct slice {
    char *src[PEERS_MAX + 1], *dst[PEERS_MAX + 1];
    int srcs, dsts;
    size_t n; /* elements */
};

/* dst = op over src; the first source is the user's own data if @own. A destination may be a
 * source. */
static void slice_reduce(struct prims *p, const struct slice *s, bool own, bool post)
{
    char tile[TILE];
    size_t per = TILE / p->elt;
    bool plain =
        s->srcs == 1 && !(own && p->op == OP_PREMULSUM) && !(post && p->op == OP_SUMPOSTDIV);

    for (int d = 0; plain && d < s->dsts; d++) {
        if (s->dst[d] != s->src[0]) {
            memcpy(s->dst[d], s->src[0], s->n * p->elt);
        }
    }
    for (size_t at = 0; !plain && s->dsts > 0 && at < s->n; at += per) {
        size_t k = size_min(per, s->n - at);

        memcpy(tile, s->src[0] + at * p->elt, k * p->elt);
        if (own) {
            kernel_pre_op(p->op, p->type, p->arg, tile, k);
        }
        for (int i = 1; i < s->srcs; i++) {
            kernel_combine(p->op, p->type, p->arg, tile, s->src[i] + at * p->elt, k);
        }
        if (post) {
            kernel_post_op(p->op, p->type, p->arg, tile, k);
        }
        for (int d = 0; d < s->dsts; d++) {
            memcpy(s->dst[d] + at * p->elt, tile, k * p->elt);
        }
    }
}

/* Where a step of a connection has its data. */
static char *data_at(const struct end *e)
{
    struct conn_fifo *f = e->c->fifo ? &e->c->fifo[e->step % STEPS] : NULL;

    if (f && f->mode == FIFO_OFFSET) {
        return e->c->buffs[PROTO_SIMPLE] + __atomic_load_n(&f->offset, __ATOMIC_RELAXED);
    }
    return e->c->buffs[PROTO_SIMPLE] + e->step % STEPS * (size_t)e->c->step_size;
}

static void slice_receive(struct prims *p, struct slice *s, const char *out, int what)
{
    for (int j = 0; j < p->recvs; j++) {
        struct end *e = &p->recv[j];

        block_wait_step(p->b, e, e->c->tail, 0, e->step + (uint64_t)p->slice_steps);
        if (!e->registered) {
            s->src[s->srcs++] = data_at(e);
        } else if (!p->p2p && (what & PRIM_OUT)) {
            s->src[s->srcs++] = (char *)out; /* it lies where it belongs */
        }
    }
}

static void slice_make_room(struct prims *p, struct slice *s)
{
    for (int j = 0; j < p->sends; j++) {
        struct end *e = &p->send[j];

        block_wait_step(p->b, e, e->c->head, STEPS, e->step + (uint64_t)p->slice_steps);
        if (e->c->fifo) { /* the tail below publishes it to the proxy */
            __atomic_store_n(&e->c->fifo[e->step % STEPS].size, (ssize_t)(s->n * p->elt),
                             __ATOMIC_RELAXED);
        }
        if (!e->registered) {
            s->dst[s->dsts++] = data_at(e);
        }
    }
}

static void slice_post(struct prims *p, int what)
{
    for (int j = 0; (what & PRIM_RECV) && j < p->recvs; j++) {
        struct end *e = &p->recv[j];

        e->step += (uint64_t)p->slice_steps;
        __atomic_store_n(e->c->head, e->step, __ATOMIC_RELEASE);
    }
    for (int j = 0; (what & PRIM_SEND) && j < p->sends; j++) {
        struct end *e = &p->send[j];

        e->step += (uint64_t)p->slice_steps;
        __atomic_store_n(e->c->tail, e->step, __ATOMIC_SEQ_CST);
    }
}

/* Elements of a slice: NCCL's bounds, so that both ends of a connection cut alike. */
static size_t slice_size(const struct prims *p, size_t n)
{
    size_t least = p->p2p ? (size_t)p->b->comm->p2p_chunk_size / 32
                          : p->step_elts * (size_t)p->slice_steps / 32;
    size_t even = size_div_up(n, 16 * (size_t)p->slices) * 16;

    return least > even ? least : even;
}

/* An empty slice waits, tells its size and posts all the same, else the peer hangs. */
void prims_simple(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t nelem)
{
    size_t n = nelem < 0 ? 0 : (size_t)nelem, done = 0, size = slice_size(p, n);

    for (int i = 0; i < p->slices; i++) {
        struct slice s = {.n = size_min(size, n - done)};
        char *out = p->out + ((size_t)out_at + done) * p->elt;

        if (what & PRIM_IN) {
            s.src[s.srcs++] = p->in + ((size_t)in_at + done) * p->elt;
        }
        if (what & PRIM_OUT_SRC) {
            s.src[s.srcs++] = p->out + ((size_t)in_at + done) * p->elt;
        }
        if (what & PRIM_OUT) {
            s.dst[s.dsts++] = out;
        }
        if (what & PRIM_RECV) {
            slice_receive(p, &s, out, what);
        }
        if (what & PRIM_SEND) {
            slice_make_room(p, &s);
        }
        if (s.srcs > 0 && s.n > 0 && !block_is_aborted(p->b)) {
            slice_reduce(p, &s, (what & PRIM_IN) != 0, (what & PRIM_POST) != 0);
        }
        slice_post(p, what);
        done += s.n;
    }
}
