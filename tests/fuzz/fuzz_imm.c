/*
 * R against the sender's NICs: immediates and byte counts of any value, on any path, at any moment,
 * while R posts receives, loses paths and gets them back. And the ledger by itself, beside a second
 * one that is written down from the protocol's words (P5-P9).
 */
#include "fuzz_nic.h"

#include <arpa/inet.h>

#include "ib_transport/ib_recv.h"
#include "base/r2_log.h"

/* --- the ledger alone --- */

#define SEQS 4096

struct model {
    uint64_t rdone, rpost;
    struct {
        uint64_t capacity, bytes;
        unsigned nparts, mask;
    } seq[SEQS];
};

static int model_complete(const struct model *m, uint64_t s)
{
    return m->seq[s].nparts && m->seq[s].mask == (1u << m->seq[s].nparts) - 1;
}

static enum r2_ledger_result model_add(struct model *m, uint16_t low, unsigned k, unsigned nparts,
                                       uint64_t bytes)
{
    uint64_t s = m->rdone;

    while (s < m->rpost && (uint16_t)s != low) {
        s++;
    }
    if (s == m->rpost) {
        return R2_LEDGER_WINDOW_ERR;
    }
    if (nparts < 1 || nparts > R2_MAX_PARTS || k >= nparts ||
        (m->seq[s].nparts && m->seq[s].nparts != nparts)) {
        return R2_LEDGER_PART_ERR;
    }
    if (m->seq[s].mask & (1u << k)) {
        return R2_LEDGER_DUPLICATE;
    }
    if (bytes > m->seq[s].capacity || m->seq[s].bytes > m->seq[s].capacity - bytes) {
        return R2_LEDGER_SIZE_ERR;
    }
    m->seq[s].nparts = nparts;
    m->seq[s].mask |= 1u << k;
    m->seq[s].bytes += bytes;
    return model_complete(m, s) ? R2_LEDGER_COMPLETE : R2_LEDGER_NEW;
}

static void ledger_compare(const struct r2_ledger *l, const struct model *m)
{
    uint16_t mask[R2_LEDGER_WINDOW];
    uint64_t acked = m->rdone, base;
    unsigned n;

    while (acked < m->rpost && model_complete(m, acked)) {
        acked++;
    }
    FUZZ_CHECK(l->rdone == m->rdone && l->rpost == m->rpost && l->acked == acked);
    n = r2_ledger_snapshot(l, &base, mask, R2_LEDGER_WINDOW);
    FUZZ_CHECK(base == acked && n == m->rpost - acked);
    for (unsigned i = 0; i < n; i++) {
        FUZZ_CHECK(mask[i] == m->seq[acked + i].mask);
    }
}

static void ledger_step(struct fuzz_in *in, struct r2_ledger *l, struct model *m)
{
    unsigned op = fuzz_u8(in), k, nparts;
    uint64_t bytes;
    uint16_t low;

    if (op < 64 && r2_ledger_room(l, 1) && m->rpost < SEQS) {
        uint64_t capacity = fuzz_number(in);

        FUZZ_CHECK(r2_ledger_post(l, capacity) == m->rpost);
        m->seq[m->rpost++].capacity = capacity;
    } else if (op < 96) {
        for (k = op & 7; k-- && m->rdone < m->rpost && model_complete(m, m->rdone); m->rdone++) {
            r2_ledger_retire(l, 1);
        }
    } else {
        low = (uint16_t)(op & 1 ? fuzz_get(in, 2) : m->rdone + fuzz_u8(in));
        nparts = op & 2 ? fuzz_u8(in) : 1 + (op >> 2) % 3;
        k = fuzz_u8(in) % (op & 2 ? 256 : nparts);
        bytes = op & 32 ? fuzz_number(in) : fuzz_u8(in);
        FUZZ_CHECK(r2_ledger_add(l, low, k, nparts, bytes) == model_add(m, low, k, nparts, bytes));
    }
}

static void ledger_run(struct fuzz_in *in)
{
    struct r2_ledger *l = malloc(sizeof(*l));
    struct model *m = calloc(1, sizeof(*m));

    FUZZ_CHECK(l != NULL && m != NULL);
    r2_ledger_init(l);
    while (fuzz_more(in)) {
        ledger_step(in, l, m);
        ledger_compare(l, m);
    }
    free(l);
    free(m);
}

/* --- the half --- */

struct run {
    struct fuzz_in in;
    struct fuzz_nic *f;
    struct ib_recv *rx;
    struct {
        uint64_t first;
        int n;
    } group[R2_LEDGER_WINDOW]; /* requests of NCCL's, oldest first */
    unsigned groups;
};

/* Control writes stay inside of the peer's ring and come from our own. */
static void on_post(struct fuzz_nic *f, int p, const struct ibv_send_wr *wr)
{
    uint64_t off = wr->wr.rdma.remote_addr - f->conn.path[p].mem.peer_ring, from;

    FUZZ_CHECK(ib_wr_kind(wr->wr_id) == IB_WR_CTL && wr->num_sge == 1 && wr->wr.rdma.rkey == 7);
    FUZZ_CHECK(off < sizeof(struct ib_ring) &&
               wr->sg_list[0].length <= sizeof(struct ib_ring) - off);
    from = wr->sg_list[0].addr - (uintptr_t)f->conn.ctl_src;
    FUZZ_CHECK(from < sizeof(struct ib_ctl_src) &&
               wr->sg_list[0].length <= sizeof(struct ib_ctl_src) - from);
    if (f->conn.path[p].ar && off >= offsetof(struct ib_ring, ack)) {
        FUZZ_CHECK(from == (uintptr_t)f->conn.ctl_src->ack[p] - (uintptr_t)f->conn.ctl_src + off -
                               offsetof(struct ib_ring, ack));
    } else {
        FUZZ_CHECK(from == off);
    }
    FUZZ_CHECK(ib_conn_up(&f->conn, p));
}

static void on_down(struct fuzz_nic *f, int p)
{
    ib_recv_path_down(f->half, p);
}

static void check(const struct run *r)
{
    const struct r2_ledger *g = &r->rx->ledger;

    FUZZ_CHECK(g->rdone <= g->acked && g->acked <= g->rpost &&
               g->rpost - g->rdone <= R2_LEDGER_WINDOW);
    FUZZ_CHECK(r->rx->ctl_path == IB_MAX_PATHS || ib_conn_up(&r->f->conn, r->rx->ctl_path));
    for (uint64_t s = g->rdone; s < g->rpost; s++) {
        const struct r2_ledger_entry *e = &g->entry[s % R2_LEDGER_WINDOW];

        FUZZ_CHECK(e->bytes <= e->capacity && e->nparts <= R2_MAX_PARTS);
        FUZZ_CHECK(e->nparts ? e->mask && !(e->mask >> e->nparts) : !e->mask);
    }
    for (int p = 0; p < FUZZ_PATHS; p++) {
        FUZZ_CHECK(r->f->conn.path[p].sq.used <= r->f->conn.path[p].cap.sq_depth);
    }
}

static void irecv(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    int n = 1 + (int)(how & 7), tags[8] = {0};
    struct ib_mr *mrs[8];
    size_t sizes[8];
    void *data[8];
    uint64_t first;

    for (int i = 0; i < n; i++) {
        mrs[i] = &r->f->mr;
        sizes[i] = how & 8 ? (size_t)(fuzz_number(&r->in) & 0x3fffffff) : 256;
        data[i] = r->f->mem;
    }
    first = ib_recv_start(r->rx, n, data, sizes, tags, mrs);
    if (first == UINT64_MAX) {
        return;
    }
    FUZZ_CHECK(r->groups < R2_LEDGER_WINDOW);
    r->group[r->groups].first = first;
    r->group[r->groups++].n = n;
}

/* What the write with the immediate brings along. Returns its length. */
static uint32_t record_write(struct run *r, int p, uint32_t imm, uint32_t bytes)
{
    unsigned how = fuzz_u8(&r->in);
    struct ib_record *at =
        &r->f->records[p].at[(r->f->conn.path[p].nrecords + (how & 1)) % IB_RECORDS];

    if (how & 2) {
        return bytes;
    }
    *at = (struct ib_record){.imm = how & 4 ? (uint32_t)fuzz_get(&r->in, 4) : imm, .bytes = bytes};
    return how & 8 ? fuzz_u8(&r->in) : sizeof(*at);
}

/* One part comes in; what the protocol forbids takes the path down, and nothing else changes. */
static void arrive(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    const struct ib_path *path = &r->f->conn.path[p];
    uint64_t bad = r->rx->count.bad_arrivals,
             seq = r->rx->ledger.acked + (how & 1 ? fuzz_u8(&r->in) : 0);
    unsigned nparts = how & 2 ? fuzz_u8(&r->in) : 1, k = how & 2 ? fuzz_u8(&r->in) : 0;
    uint32_t inc = how & 4 ? fuzz_u8(&r->in) : path->inc,
             bytes = how & 8 ? (uint32_t)fuzz_number(&r->in) : 8;
    uint32_t imm =
        how & 16 ? (uint32_t)fuzz_get(&r->in, 4) : ib_imm_pack(seq, k, nparts, how >> 5 & 1, inc);
    int was_up = ib_conn_up(&r->f->conn, p);

    if (path->mem.records && ib_imm_unpack(imm).kind == IB_IMM_RECORD) {
        bytes = record_write(r, p, imm, bytes);
    }

    if (!fuzz_nic_arrive(r->f, p, htonl(imm), bytes,
                         how & 64 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM)) {
        return;
    }
    if (how & 128) {
        ib_recv_progress(r->rx);
        return;
    }
    ib_recv_drain(r->rx, p);
    FUZZ_CHECK(r->rx->count.bad_arrivals == bad || !was_up || !ib_conn_up(&r->f->conn, p));
}

static void test_all(struct run *r)
{
    int sizes[8];

    ib_recv_progress(r->rx);
    while (r->groups && ib_recv_done(r->rx, r->group[0].first, r->group[0].n, sizes)) {
        for (int i = 0; i < r->group[0].n; i++) {
            FUZZ_CHECK((uint32_t)sizes[i] <=
                       r->rx->msg[(r->group[0].first + (unsigned)i) % R2_LEDGER_WINDOW].size);
        }
        ib_recv_retire(r->rx, r->group[0].n);
        r->groups--;
        memmove(r->group, r->group + 1, r->groups * sizeof(r->group[0]));
    }
}

static void complete(struct run *r)
{
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    unsigned how = fuzz_u8(&r->in);

    for (unsigned i = 0; i <= (how & 31); i++) {
        fuzz_nic_complete(r->f, p, how & 128 ? (enum ibv_wc_status)(how >> 5 & 3) : IBV_WC_SUCCESS);
    }
}

static void confirm(struct run *r)
{
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);

    r->f->now += fuzz_number(&r->in) & 0xffffffff;
    if (ib_conn_up(&r->f->conn, p)) {
        ib_recv_confirm(r->rx, p);
    }
    ib_recv_progress(r->rx);
}

/* An incarnation ends, by a hard or a soft fence, and the next one begins where the input says so.
 */
static void path_end(struct run *r)
{
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    struct ib_path *path = &r->f->conn.path[p];
    struct ib_fault_info info = {.fault = IB_FAULT_PEER};
    unsigned how = fuzz_u8(&r->in);
    struct r2_parts live = {.base = r->rx->ledger.rdone + (how >> 6), .n = 2, .mask = {1}}, had;

    live.mask[1] = (uint16_t)(how >> 4);
    r->f->conn.sink.path_fault(r->f, p, &info);
    if (path->open) {
        if (how & 1) {
            fuzz_nic_flush(r->f, p);
        }
        ib_recv_drain(r->rx, p);
        if (how & 32) { /* S has said what may still come; what does not is denied */
            ib_recv_live(r->rx, p, &live);
            arrive(r);
        }
        path->open = 0;
        if (!(how & 1)) {
            ib_recv_quarantine(r->rx, p);
        }
        had.n = (uint16_t)r2_ledger_snapshot(&r->rx->ledger, &had.base, had.mask, R2_LEDGER_WINDOW);
        ib_recv_live_over(r->rx, p);
        if (!(how & 32)) {
            ib_recv_quarantine_only(r->rx, p, &live, &had);
        }
    }
    if (how & 2) { /* what comes late is a ghost */
        arrive(r);
    }
    if (how & 4) {
        ib_recv_quarantine_peer_stopped(r->rx, p);
    }
    if (how & 8) {
        ib_recv_quarantine_end(r->rx, p);
    }
    if (how & 16) {
        fuzz_nic_path_begin(r->f, p, 0);
        ib_recv_replan(r->rx);
    }
    ib_recv_progress(r->rx);
}

static void refuse(struct run *r)
{
    r->f->refuse = fuzz_u8(&r->in) & ((1u << FUZZ_PATHS) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct run *) = {
        irecv, arrive,   arrive,  test_all, arrive, irecv,  complete, arrive,
        irecv, path_end, confirm, arrive,   refuse, arrive, test_all, arrive};
    struct run r = {.in = {data, data + size}};
    struct ib_ctl_src *ctl_src;

    unsigned how = fuzz_u8(&r.in);

    r2_log_level_set(R2_LOG_WARN);
    if (how & 1) {
        ledger_run(&r.in);
        return 0;
    }
    r.f = fuzz_nic_create(0, how & 2 ? 0 : UINT32_MAX);
    r.f->on_post = on_post;
    r.f->on_down = on_down;
    r.rx = malloc(sizeof(*r.rx));
    ctl_src = calloc(1, sizeof(*ctl_src));
    FUZZ_CHECK(r.rx != NULL && ctl_src != NULL);
    r.f->half = r.rx;
    ib_recv_init(r.rx, &r.f->conn, ctl_src);
    while (fuzz_more(&r.in)) {
        ops[fuzz_pick(&r.in, sizeof(ops) / sizeof(ops[0]))](&r);
        check(&r);
    }
    free(ctl_src);
    free(r.rx);
    free(r.f);
    return 0;
}
