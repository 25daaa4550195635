#include "fuzz_nic.h"

#include <errno.h>

static struct fuzz_nic
    *the; /* what the callbacks of verbs, which have no argument of ours, belong to */

static int path_of(const struct ibv_qp *qp)
{
    return (int)(qp - the->qp);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int p = path_of(qp);
    unsigned max = the->conn.path[p].cap.sq_depth + 1u + the->conn.path[p].ar;

    if (the->refuse & (1u << p)) {
        *bad = wr;
        return EIO;
    }
    for (; wr; wr = wr->next) {
        unsigned n = the->sq[p].n++;

        FUZZ_CHECK(wr->num_sge <= 1 && n < max);
        the->on_post(the, p, wr);
        the->sq[p].id[n] = wr->wr_id;
        the->sq[p].quiet[n] = !(wr->send_flags & IBV_SEND_SIGNALED);
        if (wr->next && the->cut & (1u << p)) {
            *bad = wr->next;
            return ENOMEM;
        }
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int p = path_of(qp);

    if (the->refuse & (1u << p)) {
        *bad = wr;
        return EIO;
    }
    for (; wr; wr = wr->next) {
        the->rq[p]++;
    }
    FUZZ_CHECK(the->rq[p] <= the->conn.path[p].cap.rq_depth + IB_RECV_BATCH + 1);
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    int p = (int)(cq - the->cq), n = (int)the->done[p].n < max ? (int)the->done[p].n : max;

    memcpy(wc, the->done[p].wc, (size_t)n * sizeof(*wc));
    the->done[p].n -= (unsigned)n;
    memmove(the->done[p].wc, the->done[p].wc + n, the->done[p].n * sizeof(*wc));
    return n;
}

static uint64_t now_ns(void *arg)
{
    return ((struct fuzz_nic *)arg)->now;
}

static void path_fault(void *arg, int p, const struct ib_fault_info *info)
{
    struct fuzz_nic *f = arg;

    FUZZ_CHECK(p >= 0 && p < FUZZ_PATHS && info->fault > IB_FAULT_NONE &&
               info->fault < IB_FAULT_COUNT);
    f->faults++;
    if (!ib_conn_up(&f->conn, p)) {
        return;
    }
    f->conn.up &= ~(1u << p);
    f->on_down(f, p);
}

static void peer_broken(void *arg, const char *what)
{
    ((struct fuzz_nic *)arg)->broken = 1;
}

void fuzz_nic_path_begin(struct fuzz_nic *f, int p, int sender)
{
    struct ib_path *path = &f->conn.path[p];
    uint32_t inc = path->inc + 1;

    f->sq[p].n = f->rq[p] = f->done[p].n = 0;
    f->refuse &= ~(1u << p);
    f->cut &= ~(1u << p);
    memset(&f->ring[p], 0, sizeof(f->ring[p]));
    memset(&f->records[p], 0, sizeof(f->records[p]));
    *path = (struct ib_path){
        .index = (uint8_t)p,
        .nic = (uint8_t)p,
        .peer_nic = (uint8_t)p,
        .inc = inc,
        .qp = &f->qp[p],
        .cq = &f->cq[p],
        .ar = f->one_max != UINT32_MAX,
        .part.one_max = f->one_max,
        .mem.records = !sender && f->one_max != UINT32_MAX ? &f->records[p] : NULL,
        .ack.room = f->one_max != UINT32_MAX ? 0 : 128,
        .cap.sq_depth = sender ? (uint32_t)f->cfg.rq_depth << (f->one_max != UINT32_MAX) : 128,
        .cap.rq_depth = sender ? 0 : (uint32_t)f->cfg.rq_depth,
        .cap.max_inline = 64,
        .mem.ring = sender ? &f->ring[p].ring : NULL,
        .mem.ring_mr = &f->key[p],
        .mem.peer_ring = 0x10000000ull * (unsigned)(p + 1),
        .mem.peer_ring_key = 7,
        .ack.rotate = f->one_max != UINT32_MAX};
    ib_path_open(path);
    if (!sender) {
        FUZZ_CHECK(ib_path_fill_rq(&f->conn, path) == 0);
    }
    f->conn.up |= 1u << p;
}

struct fuzz_nic *fuzz_nic_create(int sender, uint32_t one_max)
{
    struct fuzz_nic *f = calloc(1, sizeof(*f));

    FUZZ_CHECK(f != NULL);
    the = f;
    f->now = 1;
    f->one_max = one_max;
    r2_config_defaults(&f->cfg);
    f->cfg.rq_depth = 32;
    f->cfg.stripe_min = 128;
    f->ctx.ops.post_send = post_send;
    f->ctx.ops.post_recv = post_recv;
    f->ctx.ops.poll_cq = poll_cq;
    f->nics.count = FUZZ_PATHS;
    f->nics.cfg = &f->cfg;
    f->mr.addr = (uintptr_t)f->mem;
    f->mr.len = sizeof(f->mem);
    f->mr.type = IB_PTR_HOST;
    f->conn.nics = &f->nics;
    f->conn.cfg = &f->cfg;
    f->conn.rq_depth = (uint32_t)f->cfg.rq_depth;
    f->conn.now_ns = now_ns;
    f->conn.now_arg = f;
    f->conn.npaths = FUZZ_PATHS;
    f->conn.sink = (struct ib_sink){.arg = f, .path_fault = path_fault, .peer_broken = peer_broken};
    for (int p = 0; p < FUZZ_PATHS; p++) {
        f->nics.nic[p].index = p;
        f->nics.nic[p].max_msg_sz = 1u << 30;
        f->qp[p].context = f->cq[p].context = &f->ctx;
        f->key[p].lkey = f->key[p].rkey = 100 + (uint32_t)p;
        atomic_init(&f->mr.mr[p], &f->key[p]);
        fuzz_nic_path_begin(f, p, sender);
    }
    return f;
}

static void put_wc(struct fuzz_nic *f, int p, const struct ibv_wc *wc)
{
    FUZZ_CHECK(f->done[p].n < FUZZ_POSTS);
    f->done[p].wc[f->done[p].n++] = *wc;
}

int fuzz_nic_complete(struct fuzz_nic *f, int p, enum ibv_wc_status status)
{
    struct ibv_wc wc = {.wr_id = f->sq[p].id[0], .status = status, .qp_num = (uint32_t)p};
    int quiet = f->sq[p].quiet[0];

    if (f->sq[p].n == 0) {
        return 0;
    }
    f->sq[p].n--;
    memmove(f->sq[p].id, f->sq[p].id + 1, f->sq[p].n * sizeof(f->sq[p].id[0]));
    memmove(f->sq[p].quiet, f->sq[p].quiet + 1, f->sq[p].n);
    if (!quiet || status != IBV_WC_SUCCESS) {
        put_wc(f, p, &wc);
    }
    return 1;
}

int fuzz_nic_arrive(struct fuzz_nic *f, int p, uint32_t imm_be, uint32_t bytes,
                    enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = {.wr_id = ib_wr_id(IB_WR_RECV, 0, 0),
                        .opcode = opcode,
                        .byte_len = bytes,
                        .imm_data = imm_be,
                        .wc_flags = IBV_WC_WITH_IMM,
                        .qp_num = (uint32_t)p};

    if (f->rq[p] == 0) {
        return 0;
    }
    f->rq[p]--;
    put_wc(f, p, &wc);
    return 1;
}

void fuzz_nic_flush(struct fuzz_nic *f, int p)
{
    struct ibv_wc mark = {.status = IBV_WC_WR_FLUSH_ERR};

    while (fuzz_nic_complete(f, p, IBV_WC_WR_FLUSH_ERR)) {
    }
    f->rq[p] = 0;
    mark.wr_id = ib_wr_id(IB_WR_MARK_RECV, 0, 0);
    put_wc(f, p, &mark);
    mark.wr_id = ib_wr_id(IB_WR_MARK_SEND, 0, 0);
    put_wc(f, p, &mark);
}
