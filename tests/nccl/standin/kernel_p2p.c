/* Sends and receives: the transfers of a batch run side by side, a thread each. */
#include "tests/nccl/standin/kernel.h"

#define PART_ALIGN 4096 /* bytes: parts of a transfer on several channels */

struct transfer {
    struct block *b;
    const struct work_p2p *w;
    bool sends;
    pthread_t thread;
};

/* NCCL's chunk sizes have 3 bits of mantissa and 5 of exponent. */
static uint32_t fp8_get(uint8_t x)
{
    uint32_t e = x >> 3, m = (x & 7u) | (e ? 8u : 0);

    return m << (e ? e - 1 : 0);
}

/* Whether the GPUs of this host would carry it from buffer to buffer. */
static bool is_ipc_registered(const struct transfer *t)
{
#if NCCL_RELEASE >= 223
    return (t->sends ? t->w->send_ipc_reg : t->w->recv_ipc_reg) && t->b->comm->all_nvlink;
#else
    (void)t;
    return false;
#endif
}

static size_t chunk_of(const struct transfer *t)
{
    const struct work_p2p *w = t->w;

    if (t->sends ? w->send_net_reg : w->recv_net_reg) {
        return NCCL_RELEASE >= 224 ? 1u << 30 : SIZE_MAX;
    }
    if (is_ipc_registered(t)) {
        return 1u << 30;
    }
    return fp8_get(t->sends ? w->send_chunk_fp8 : w->recv_chunk_fp8);
}

static void *transfer_run(void *arg)
{
    struct transfer *t = arg;
    const struct work_p2p *w = t->w;
    bool ll = t->sends ? w->send_ll : w->recv_ll;
    struct kernel_function f = {FUNC_SENDRECV, OP_SUM, T_I8, ALGO_RING,
                                ll ? PROTO_LL : PROTO_SIMPLE};
    struct prims_plan plan = {.f = &f, .slices = 1, .slice_steps = 1, .conn = 1};
    size_t bytes = t->sends ? w->send_bytes : w->recv_bytes, chunk = chunk_of(t), at = 0;
    struct prims p;

    if (t->sends) {
        plan.send_peers = &w->send_rank;
        plan.send_most = 1;
        plan.in = w->send_addr;
        plan.net_reg = w->send_net_reg;
    } else {
        plan.recv_peers = &w->recv_rank;
        plan.recv_most = 1;
        plan.out = w->recv_addr;
        plan.net_reg = w->recv_net_reg;
    }
    prims_begin(&p, t->b, &plan);
    do { /* no bytes at all are one step, too */
        size_t n = size_min(chunk, bytes - at);

        prims_op(&p, t->sends ? PRIM_SEND | PRIM_IN : PRIM_RECV | PRIM_OUT, (ssize_t)at,
                 (ssize_t)at, (ssize_t)n);
        at += n;
    } while (at < bytes);
    prims_end(&p);
    return NULL;
}

/* Which part of a transfer this channel has. Before 2.28 the order of channels is that of their
 * bits reversed. */
static int part_of(const struct block *b, const struct work_p2p *w)
{
    int part = (b->channel_id - w->channel_base) & (w->p2p_channels - 1);

#if NCCL_RELEASE < 228
    int reversed = 0;

    for (int bit = 1; bit < w->p2p_channels; bit *= 2) {
        reversed = reversed * 2 + (part & bit ? 1 : 0);
    }
    part = reversed;
#endif
    return part;
}

/* Leaves of a transfer of @*bytes at @*addr what is part @part of @parts. */
static void part_cut(char **addr, size_t *bytes, int part, int parts)
{
    size_t per = size_div_up(size_div_up(*bytes, (size_t)parts), PART_ALIGN) * PART_ALIGN;
    size_t from = size_min((size_t)part * per, *bytes),
           to = size_min((size_t)(part + 1) * per, *bytes);

    *addr += from;
    *bytes = to - from;
}

void kernel_p2p_run(struct block *b, struct work_p2p *works, int n)
{
    struct transfer t[2 * WORKS_BYTES_MAX / sizeof(struct work_p2p)];
    int ts = 0;

    for (int i = 0; i < n; i++) {
        struct work_p2p *w = &works[i];
        int part = part_of(b, w);
        bool to_self = w->send_rank == b->comm->rank;

        if (part < w->recv_channels) {
            part_cut(&w->recv_addr, &w->recv_bytes, part, w->recv_channels);
            if (!to_self) {
                t[ts++] = (struct transfer){b, w, false, 0};
            }
        }
        if (part < w->send_channels) {
            part_cut(&w->send_addr, &w->send_bytes, part, w->send_channels);
            if (!to_self) {
                t[ts++] = (struct transfer){b, w, true, 0};
            } else if (w->send_addr != w->recv_addr) {
                memcpy(w->recv_addr, w->send_addr, w->send_bytes);
            }
        }
    }
    for (int i = 1; i < ts; i++) {
        block_thread_start(&t[i].thread, transfer_run, &t[i]);
    }
    if (ts > 0) {
        transfer_run(&t[0]);
    }
    for (int i = 1; i < ts; i++) {
        pthread_join(t[i].thread, NULL);
    }
}
