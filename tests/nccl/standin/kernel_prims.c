/* A kernel's use of its connections, from the steps that the last kernel left to those that it
 * leaves itself. */
#include "tests/nccl/standin/kernel.h"

/* Steps of Simple are whole chunks: a kernel that begins in the middle of one skips the rest. */
static uint64_t step_begin(const struct prims *p, const struct conn_info *c)
{
    uint64_t unit = (uint64_t)(p->slices * p->slice_steps);

    return p->proto == PROTO_SIMPLE ? (c->step + unit - 1) / unit * unit : c->step;
}

static void recv_begin(struct prims *p, struct conn_info *c, bool net_reg)
{
    struct end *e = &p->recv[p->recvs++];

    e->c = c;
    e->step = step_begin(p, c);
    if (p->proto != PROTO_SIMPLE) {
        return;
    }
    e->registered = net_reg && (c->flags & FLAG_DIRECT_NIC);
    __atomic_store_n(c->head, e->step, __ATOMIC_RELEASE); /* credits of steps that were skipped */
    if (e->registered) {
        c->fifo[e->step % STEPS].size = 0;
    }
    e->seen = __atomic_load_n(c->tail, __ATOMIC_ACQUIRE);
}

static void send_begin(struct prims *p, struct conn_info *c, bool net_reg)
{
    struct end *e = &p->send[p->sends++];

    e->c = c;
    e->step = step_begin(p, c);
    e->registered = p->proto == PROTO_SIMPLE && net_reg && (c->flags & FLAG_DIRECT_NIC);
    e->seen = __atomic_load_n(c->head, __ATOMIC_ACQUIRE);
}

void prims_begin(struct prims *p, struct block *b, const struct prims_plan *plan)
{
    const struct kernel_function *f = plan->f;
    bool bytes = f->func == FUNC_ALLGATHER || f->func == FUNC_BROADCAST || f->func == FUNC_SENDRECV;

    memset(p, 0, sizeof(*p));
    p->b = b;
    p->proto = f->proto;
    p->op = f->op;
    p->type = f->type;
    p->elt = bytes ? 1 : kernel_type_size[f->type];
    p->slices = plan->slices;
    p->slice_steps = plan->slice_steps;
    p->arg = plan->arg;
    p->in = plan->in;
    p->out = plan->out;
    p->p2p = f->func == FUNC_SENDRECV;
    p->step_elts = (size_t)b->comm->buff_sizes[PROTO_SIMPLE] / STEPS / p->elt;
    while (p->recvs < plan->recv_most && plan->recv_peers[p->recvs] >= 0) {
        recv_begin(p, &b->channel->peers[plan->recv_peers[p->recvs]]->recv[plan->conn],
                   plan->net_reg);
    }
    while (p->sends < plan->send_most && plan->send_peers[p->sends] >= 0) {
        send_begin(p, &b->channel->peers[plan->send_peers[p->sends]]->send[plan->conn],
                   plan->net_reg);
    }
}

void prims_end(struct prims *p)
{
    for (int i = 0; i < p->recvs; i++) {
        p->recv[i].c->step = p->recv[i].step;
    }
    for (int i = 0; i < p->sends; i++) {
        struct end *e = &p->send[i];
        uint64_t last = e->step - (uint64_t)p->slice_steps;
        unsigned spins = 0;

        e->c->step = e->step;
        /* what the NIC reads is the user's again when this returns */
        while (e->registered &&
               __atomic_load_n(&e->c->fifo[last % STEPS].size, __ATOMIC_ACQUIRE) != -1) {
            if (!block_waits(p->b, &spins)) {
                break;
            }
        }
    }
}

void prims_op(struct prims *p, int what, ssize_t in_at, ssize_t out_at, ssize_t n)
{
    if (p->proto == PROTO_SIMPLE) {
        prims_simple(p, what, in_at, out_at, n);
    } else if (p->proto == PROTO_LL) {
        prims_ll(p, what, in_at, out_at, n);
    } else {
        prims_ll128(p, what, in_at, out_at, n);
    }
}
