/* Rings and trees: which part of a collective a channel has, and the chunks that it passes on. */
#include "tests/nccl/standin/kernel.h"

/* A channel's part of a collective, in elements. */
struct part {
    size_t count, at, len, chunk;
};

static size_t elt_of(const struct kernel_function *f)
{
    return f->func == FUNC_ALLGATHER || f->func == FUNC_BROADCAST ? 1 : kernel_type_size[f->type];
}

/* The first and the last channel have parts of their own size, those between equal ones. */
static struct part part_of(const struct block *b, const struct kernel_function *f,
                           const struct work_coll *w)
{
    static const size_t grain[PROTOS] = {16, 32 * 8 / 16 * 15 * 8, 512};
    size_t per = grain[f->proto] / elt_of(f), channel = (size_t)b->channel_id;
    size_t mid = w->channel_hi == w->channel_lo ? 0 : (size_t)(w->channel_hi - w->channel_lo) - 1;
    struct part p = {.count = w->count_lo + w->count_mid * mid + w->count_hi};

    if (channel == w->channel_lo) {
        p.len = w->count_lo;
        p.chunk = w->grains_lo * per;
    } else if (channel == w->channel_hi) {
        p.at = w->count_lo + mid * w->count_mid;
        p.len = w->count_hi;
        p.chunk = w->grains_hi * per;
    } else {
        p.at = w->count_lo + (channel - w->channel_lo - 1) * w->count_mid;
        p.len = w->count_mid;
        p.chunk = w->grains_mid * per;
    }
    return p;
}

/* Whether the NICs carry it between the users' buffers. */
static bool is_net_registered(const struct work_coll *w)
{
#if NCCL_RELEASE >= 224
    return w->net_reg_used;
#else
    (void)w;
    return false;
#endif
}

static bool one_rank_per_node(const struct work_coll *w)
{
#if NCCL_RELEASE >= 224
    return w->one_rpn;
#else
    (void)w;
    return false;
#endif
}

/* From the ring's previous rank to the next one. */
static struct prims_plan ring_plan(const struct block *b, const struct kernel_function *f,
                                   const struct work_coll *w, int slices, bool net_reg)
{
    return (struct prims_plan){.f = f,
                               .slices = slices,
                               .slice_steps = slices,
                               .recv_peers = &b->channel->ring.prev,
                               .recv_most = 1,
                               .send_peers = &b->channel->ring.next,
                               .send_most = 1,
                               .in = w->sendbuff,
                               .out = w->recvbuff,
                               .arg = w->op_arg,
                               .net_reg = net_reg};
}

/* One loop of a ring all-reduce: a chunk of each rank goes around, first reduced, then copied. */
struct loop {
    struct prims p;
    ssize_t ranks, at, left, chunk;
};

static void loop_step(struct loop *l, int what, ssize_t rank)
{
    ssize_t offset = (rank >= l->ranks ? rank - l->ranks : rank) * l->chunk;
    ssize_t left = l->left - offset;

    prims_op(&l->p, what, l->at + offset, l->at + offset, l->chunk < left ? l->chunk : left);
}

static void ring_allreduce(struct block *b, const struct kernel_function *f,
                           const struct work_coll *w)
{
    struct prims_plan plan = ring_plan(b, f, w, 2, is_net_registered(w));
    struct part part = part_of(b, f, w);
    ssize_t n = b->comm->ranks, ix = b->channel->ring.index, unit = 16 / (ssize_t)elt_of(f);
    ssize_t whole = n * (ssize_t)part.chunk;
    struct loop l = {.ranks = n};

    prims_begin(&l.p, b, &plan);
    for (ssize_t at = 0; at < (ssize_t)part.len; at += whole) {
        l.at = (ssize_t)part.at + at;
        l.left = (ssize_t)part.len - at;
        l.chunk = (ssize_t)part.chunk;
        if (l.left < whole) {
            l.chunk = ((l.left + n - 1) / n + unit - 1) / unit * unit;
        }
        loop_step(&l, PRIM_SEND | PRIM_IN, ix + n - 1);
        for (ssize_t j = 2; j < n; j++) {
            loop_step(&l, PRIM_RECV | PRIM_SEND | PRIM_IN, ix + n - j);
        }
        loop_step(&l, PRIM_RECV | PRIM_SEND | PRIM_IN | PRIM_OUT | PRIM_POST, ix);
        for (ssize_t j = 1; j < n - 1; j++) {
            loop_step(&l, PRIM_RECV | PRIM_SEND | PRIM_OUT, ix + n - j);
        }
        loop_step(&l, PRIM_RECV | PRIM_OUT, ix + 1);
    }
    prims_end(&l.p);
}

static void ring_allgather(struct block *b, const struct kernel_function *f,
                           const struct work_coll *w)
{
    const int *ranks = b->channel->ring.user_ranks;
    struct part part = part_of(b, f, w);
    bool offload = f->proto == PROTO_SIMPLE && one_rank_per_node(w) && is_net_registered(w);
    struct prims_plan plan = ring_plan(b, f, w, offload ? 1 : 2, is_net_registered(w));
    char *own = w->recvbuff + (size_t)ranks[0] * part.count;
    struct prims p;

    prims_begin(&p, b, &plan);
    if (offload) { /* the NICs carry it from buffer to buffer */
        part.chunk = 1u << 30;
        if (w->sendbuff != own) {
            memcpy(own + part.at, w->sendbuff + part.at, part.len);
        }
    }
    for (size_t at = 0; at < part.len; at += part.chunk) {
        ssize_t k = (ssize_t)size_min(part.chunk, part.len - at), data = (ssize_t)(part.at + at);
        ssize_t to = data + ranks[0] * (ssize_t)part.count;
        bool there = w->sendbuff + data == w->recvbuff + to || offload;

        prims_op(&p, there ? PRIM_SEND | PRIM_IN : PRIM_SEND | PRIM_IN | PRIM_OUT, data, to, k);
        for (int j = 1; j < b->comm->ranks - 1; j++) {
            to = data + ranks[b->comm->ranks - j] * (ssize_t)part.count;
            prims_op(&p, PRIM_RECV | PRIM_SEND | PRIM_OUT, to, to, k);
        }
        to = data + ranks[1] * (ssize_t)part.count;
        prims_op(&p, PRIM_RECV | PRIM_OUT, to, to, k);
    }
    prims_end(&p);
}

static void ring_reducescatter(struct block *b, const struct kernel_function *f,
                               const struct work_coll *w)
{
    const int *ranks = b->channel->ring.user_ranks;
    int n = b->comm->ranks;
    struct prims_plan plan = ring_plan(b, f, w, 2, false);
    struct part part = part_of(b, f, w);
    ssize_t count = (ssize_t)part.count;
    struct prims p;

    prims_begin(&p, b, &plan);
    for (size_t at = 0; at < part.len; at += part.chunk) {
        ssize_t k = (ssize_t)size_min(part.chunk, part.len - at), data = (ssize_t)(part.at + at);

        prims_op(&p, PRIM_SEND | PRIM_IN, data + ranks[n - 1] * count, 0, k);
        for (int j = 2; j < n; j++) {
            prims_op(&p, PRIM_RECV | PRIM_SEND | PRIM_IN, data + ranks[n - j] * count, 0, k);
        }
        prims_op(&p, PRIM_RECV | PRIM_IN | PRIM_OUT | PRIM_POST, data + ranks[0] * count, data, k);
    }
    prims_end(&p);
}

/* The same for each chunk. */
static void chunks_run(struct prims *p, const struct part *part, int what)
{
    for (size_t at = 0; at < part->len; at += part->chunk) {
        ssize_t k = (ssize_t)size_min(part->chunk, part->len - at), o = (ssize_t)(part->at + at);

        prims_op(p, what, o, o, k);
    }
}

static void ring_broadcast(struct block *b, const struct kernel_function *f,
                           const struct work_coll *w)
{
    const int *ranks = b->channel->ring.user_ranks;
    bool root = ranks[0] == (int)w->root, last = ranks[1] == (int)w->root;
    bool offload = one_rank_per_node(w) && is_net_registered(w);
    struct prims_plan plan = ring_plan(b, f, w, 1, is_net_registered(w));
    struct part part = part_of(b, f, w);
    int what = last ? PRIM_RECV | PRIM_OUT : PRIM_RECV | PRIM_SEND | PRIM_OUT;
    struct prims p;

    if (root) {
        what = w->sendbuff == w->recvbuff || offload ? PRIM_SEND | PRIM_IN
                                                     : PRIM_SEND | PRIM_IN | PRIM_OUT;
    }
    prims_begin(&p, b, &plan);
    chunks_run(&p, &part, what);
    if (offload && root && w->sendbuff != w->recvbuff) {
        memcpy(w->recvbuff + part.at, w->sendbuff + part.at, part.len);
    }
    prims_end(&p);
}

static void ring_reduce(struct block *b, const struct kernel_function *f, const struct work_coll *w)
{
    bool first = b->channel->ring.user_ranks[b->comm->ranks - 1] == (int)w->root;
    struct prims_plan plan = ring_plan(b, f, w, 1, false);
    struct part part = part_of(b, f, w);
    int what = PRIM_RECV | PRIM_SEND | PRIM_IN;
    struct prims p;

    if (first) {
        what = PRIM_SEND | PRIM_IN;
    } else if (b->comm->rank == (int)w->root) {
        what = PRIM_RECV | PRIM_IN | PRIM_OUT | PRIM_POST;
    }
    prims_begin(&p, b, &plan);
    chunks_run(&p, &part, what);
    prims_end(&p);
}

/* The two directions of a tree run side by side, or a leaf would stop after as many chunks as it
 * has credits for. */
struct half {
    struct block *b;
    const struct kernel_function *f;
    const struct work_coll *w;
};

static void half_run(const struct half *h, bool up)
{
    const struct dev_tree *t = &h->b->channel->tree;
    bool leaf = t->down[0] == -1;
    struct prims_plan plan = {.f = h->f,
                              .slices = 1,
                              .slice_steps = 1,
                              .in = h->w->sendbuff,
                              .out = h->w->recvbuff,
                              .arg = h->w->op_arg,
                              .recv_peers = up ? t->down : &t->up,
                              .recv_most = up ? TREE_ARITY : 1,
                              .send_peers = up ? &t->up : t->down,
                              .send_most = up ? 1 : TREE_ARITY};
    struct part part = part_of(h->b, h->f, h->w);
    struct prims p;

    prims_begin(&p, h->b, &plan);
    chunks_run(&p, &part,
               up ? (leaf ? 0 : PRIM_RECV) | PRIM_SEND | PRIM_IN
                  : PRIM_RECV | (leaf ? 0 : PRIM_SEND) | PRIM_OUT);
    prims_end(&p);
}

static void *half_up(void *arg)
{
    half_run(arg, true);
    return NULL;
}

static void tree_allreduce(struct block *b, const struct kernel_function *f,
                           const struct work_coll *w)
{
    const struct dev_tree *t = &b->channel->tree;
    struct half h = {b, f, w};
    pthread_t up;

    if (t->up == -1) { /* the root turns around what arrives */
        struct prims_plan plan = {.f = f,
                                  .slices = 1,
                                  .slice_steps = 1,
                                  .in = w->sendbuff,
                                  .out = w->recvbuff,
                                  .arg = w->op_arg,
                                  .recv_peers = t->down,
                                  .recv_most = 2,
                                  .send_peers = t->down,
                                  .send_most = 2};
        struct part part = part_of(b, f, w);
        struct prims p;

        prims_begin(&p, b, &plan);
        chunks_run(&p, &part, PRIM_RECV | PRIM_SEND | PRIM_IN | PRIM_OUT | PRIM_POST);
        prims_end(&p);
        return;
    }
    block_thread_start(&up, half_up, &h);
    half_run(&h, false);
    pthread_join(up, NULL);
}

void kernel_collective_run(struct block *b, const struct kernel_function *f, struct work_coll *w)
{
    static void (*const ring[])(struct block *, const struct kernel_function *,
                                const struct work_coll *) = {
        [FUNC_BROADCAST] = ring_broadcast, [FUNC_REDUCE] = ring_reduce,
        [FUNC_ALLGATHER] = ring_allgather, [FUNC_REDUCESCATTER] = ring_reducescatter,
        [FUNC_ALLREDUCE] = ring_allreduce,
    };

    if (w->reg_used) {
        gpu_die("buffers registered for other GPUs of this host are not for this stand-in: "
                "NCCL_LOCAL_REGISTER=0");
    }
    if (w->op_arg_is_ptr) {
        uint64_t v = 0;

        memcpy(&v, (void *)w->op_arg, kernel_type_size[f->type]);
        w->op_arg = v;
    }
    if (f->algo == ALGO_TREE && f->func == FUNC_ALLREDUCE) {
        tree_allreduce(b, f, w);
    } else if (f->algo == ALGO_RING && f->func <= FUNC_ALLREDUCE) {
        ring[f->func](b, f, w);
    } else {
        gpu_die("algorithm %d of collective %d is not for this stand-in: NCCL_ALGO=Ring,Tree",
                f->algo, f->func);
    }
}
