/* Counts device calls: the data path through the tables of the open contexts, the rest through the
 * verbs table. */
#include "tests/bench/bench.h"

#include <stddef.h>
#include <string.h>

struct watched {
    struct ibv_context *ctx;
    struct ibv_context_ops ops; /* as they were */
    int host, nic;
};

struct bench_counts bench_counts[BENCH_HOSTS];
static struct watched watched[BENCH_HOSTS * IB_MAX_NICS];
static int nwatched;
static struct ib_verbs verbs_were;
static struct duo *watched_duo;

static struct watched *watched_find(const struct ibv_context *ctx)
{
    for (int i = 0; i < nwatched; i++) {
        if (watched[i].ctx == ctx) {
            return &watched[i];
        }
    }
    bench_die("a device that nobody watches");
}

static uint64_t length_sum(const struct ibv_send_wr *wr)
{
    uint64_t len = 0;

    for (int i = 0; i < wr->num_sge; i++) {
        len += wr->sg_list[i].length;
    }
    return len;
}

static int send_count(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct watched *w = watched_find(qp->context);
    struct bench_counts *c = &bench_counts[w->host];

    c->send_calls++;
    for (const struct ibv_send_wr *x = wr; x; x = x->next) {
        uint64_t len = length_sum(x);

        c->signaled += (x->send_flags & IBV_SEND_SIGNALED) != 0;
        if (x->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            c->data_wrs++;
            c->data_at[w->nic] = duo_now(watched_duo);
        } else if (x->opcode == IBV_WR_RDMA_WRITE && len == sizeof(uint64_t)) {
            c->ack_wrs++;
        } else if (x->opcode == IBV_WR_RDMA_WRITE && len > 0 && len % sizeof(struct ib_cts) == 0) {
            c->cts_wrs++;
            c->cts_entries += len / sizeof(struct ib_cts);
        } else {
            c->other_wrs++;
        }
    }
    return w->ops.post_send(qp, wr, bad);
}

static int recv_count(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct watched *w = watched_find(qp->context);

    bench_counts[w->host].recv_calls++;
    for (const struct ibv_recv_wr *x = wr; x; x = x->next) {
        bench_counts[w->host].recv_wrs++;
    }
    return w->ops.post_recv(qp, wr, bad);
}

static int poll_count(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    struct watched *w = watched_find(cq->context);
    int n = w->ops.poll_cq(cq, max, wc);

    bench_counts[w->host].polls++;
    bench_counts[w->host].cqes += n > 0 ? (uint64_t)n : 0;
    return n;
}

static struct ibv_cq *cq_count(struct ibv_context *ctx, int cqe, void *user,
                               struct ibv_comp_channel *ch, int vector)
{
    struct bench_counts *c = &bench_counts[watched_find(ctx)->host];

    c->cq_made++;
    c->cq_entries += (uint64_t)cqe;
    return verbs_were.create_cq(ctx, cqe, user, ch, vector);
}

static struct ibv_qp *qp_count(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct bench_counts *c = &bench_counts[watched_find(pd->context)->host];

    c->qp_made++;
    c->qp_send_wrs += attr->cap.max_send_wr;
    c->qp_recv_wrs += attr->cap.max_recv_wr;
    return verbs_were.create_qp(pd, attr);
}

static struct ibv_mr *mr_count(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    struct bench_counts *c = &bench_counts[watched_find(pd->context)->host];

    c->mr_made++;
    c->mr_bytes += len;
    return verbs_were.reg_mr(pd, addr, len, access);
}

static void context_watch(struct ibv_context *ctx, int host, int nic)
{
    struct watched *w = &watched[nwatched++];

    *w = (struct watched){.ctx = ctx, .ops = ctx->ops, .host = host, .nic = nic};
    ctx->ops.post_send = send_count;
    ctx->ops.post_recv = recv_count;
    ctx->ops.poll_cq = poll_count;
}

void bench_watch_start(struct duo *d)
{
    nwatched = 0;
    watched_duo = d;
    verbs_were = d->end[0].inst->v;
    for (int h = 0; h < BENCH_HOSTS; h++) {
        struct r2_inst *inst = d->end[h].inst;

        for (int i = 0; i < inst->nics.device_count; i++) {
            context_watch(inst->nics.device_ctx[i], h, i);
        }
        inst->v.create_cq = cq_count;
        inst->v.create_qp = qp_count;
        inst->v.reg_mr = mr_count;
    }
    bench_counts_clear();
}

void bench_counts_clear(void)
{
    memset(bench_counts, 0, sizeof(bench_counts));
}
