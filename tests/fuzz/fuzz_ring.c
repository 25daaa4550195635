/*
 * S against the receiver's NICs: CTS entries and ack words that a hostile R writes into the rings,
 * at any moment and to any value, and ledgers of closed incarnations, while S sends, completes,
 * loses paths and gets them back.
 */
#include "fuzz_nic.h"

#include <arpa/inet.h>

#include "ib_transport/ib_send.h"
#include "base/r2_log.h"

struct run {
    struct fuzz_in in;
    struct fuzz_nic *f;
    struct ib_send *tx;
    uint32_t size[R2_LEDGER_WINDOW]; /* what NCCL asked to send, by slot */
    uint64_t data[R2_LEDGER_WINDOW]; /* from where */
    uint8_t index;                   /* next member of the group that is being written */
    uint8_t n;
};

static struct run *now_running;

/* The record of a part goes into the peer's ring of records, one slot after the other, and says
 * what the part is. */
static void record_check(struct fuzz_nic *f, int p, const struct ibv_send_wr *wr,
                         const struct ib_smsg *m)
{
    unsigned k = ib_wr_part(wr->wr_id), slot = (f->conn.path[p].nrecords - 1) % IB_RECORDS;
    const struct ib_record *r = (const void *)(uintptr_t)wr->sg_list[0].addr;

    FUZZ_CHECK(wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && wr->send_flags & IBV_SEND_SIGNALED &&
               wr->next == NULL);
    FUZZ_CHECK(wr->sg_list[0].length == sizeof(*r) && r == &f->ring[p].copies.at[slot] &&
               wr->sg_list[0].lkey == f->key[p].lkey);
    FUZZ_CHECK(wr->wr.rdma.remote_addr == f->conn.path[p].mem.peer_ring + slot * sizeof(*r) &&
               wr->wr.rdma.rkey == 7);
    FUZZ_CHECK(r->bytes == m->part[k].len && r->imm == ntohl(wr->imm_data) &&
               ib_imm_unpack(r->imm).kind == IB_IMM_RECORD);
    FUZZ_CHECK(ib_imm_unpack(r->imm).seq == (uint16_t)m->seq && ib_imm_unpack(r->imm).k == k);
}

/* S reads its buffer only inside of what NCCL gave for this message, and writes only inside of what
 * the CTS named. */
static void on_post(struct fuzz_nic *f, int p, const struct ibv_send_wr *wr)
{
    struct run *r = now_running;
    uint64_t seq = ib_wr_value(wr->wr_id);
    unsigned slot = (unsigned)(seq % R2_LEDGER_WINDOW);
    const struct ib_smsg *m = &r->tx->msg[slot];
    const struct ib_cts *cts = &r->tx->cts[slot];
    uint64_t off = wr->wr.rdma.remote_addr - cts->addr,
             len = wr->num_sge ? wr->sg_list[0].length : 0;
    int pair = ib_wr_kind(wr->wr_id) == IB_WR_BULK;

    FUZZ_CHECK(m->busy && m->seq == seq && cts->seq == seq);
    if (ib_wr_kind(wr->wr_id) == IB_WR_RECORD) {
        record_check(f, p, wr, m);
        return;
    }
    FUZZ_CHECK(pair || ib_wr_kind(wr->wr_id) == IB_WR_DATA);
    FUZZ_CHECK(pair == (len > f->one_max) && (wr->next != NULL) == pair &&
               !pair == !!(wr->send_flags & IBV_SEND_SIGNALED));
    FUZZ_CHECK(off + len >= off && off + len <= cts->size && off + len <= r->size[slot]);
    FUZZ_CHECK(wr->wr.rdma.rkey == cts->rkey[p] && wr->wr.rdma.rkey != 0);
    FUZZ_CHECK(len == 0 || (wr->sg_list[0].addr == r->data[slot] + off &&
                            wr->sg_list[0].lkey == f->key[p].lkey));
    FUZZ_CHECK(ib_conn_up(&f->conn, p));
}

static void on_down(struct fuzz_nic *f, int p)
{
    ib_send_replan(f->half);
}

static void message_check(const struct run *r, const struct ib_smsg *m)
{
    uint32_t all = (1u << m->nparts) - 1, sum = 0;
    unsigned out = 0;

    FUZZ_CHECK(m->nparts >= 1 && m->nparts <= R2_MAX_PARTS && m->seq < r->tx->sposted);
    FUZZ_CHECK((m->unposted & ~all) == 0 && (m->ledger & ~all) == 0 && (m->arrived & ~all) == 0);
    for (unsigned k = 0; k < m->nparts; k++) {
        FUZZ_CHECK(m->part[k].path < FUZZ_PATHS && m->part[k].off == sum);
        sum += m->part[k].len;
        out += m->part[k].wr_out;
    }
    FUZZ_CHECK(sum == m->size && out == m->wrs_out);
}

static void check(const struct run *r)
{
    const struct ib_send *tx = r->tx;

    FUZZ_CHECK(tx->sack <= tx->unmatched && tx->group <= tx->unmatched &&
               tx->unmatched <= tx->group + 8);
    FUZZ_CHECK(tx->group <= tx->cts_seen && tx->cts_seen - tx->group <= R2_LEDGER_WINDOW &&
               tx->sposted <= tx->cts_seen);
    FUZZ_CHECK(tx->ring_hot->index < FUZZ_PATHS && tx->plan.n <= FUZZ_PATHS);
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        if (tx->msg[i].busy) {
            message_check(r, &tx->msg[i]);
        }
    }
    for (int p = 0; p < FUZZ_PATHS; p++) {
        const struct ib_path *path = &r->f->conn.path[p];

        FUZZ_CHECK(path->sq.used <= path->cap.sq_depth + path->ar &&
                   path->parts_out <= r->f->cfg.rq_depth);
    }
}

/* An entry as R writes it, but for what the input changes. */
static void write_cts(struct run *r)
{
    struct fuzz_in *in = &r->in;
    int p = (int)fuzz_pick(in, FUZZ_PATHS);
    unsigned how = fuzz_u8(in);
    struct ib_cts e = {
        .seq = r->tx->cts_seen + (how & 1 ? fuzz_pick(in, 4) : 0), .addr = 0x100000, .size = 4096};

    if (r->index >= r->n) {
        r->index = 0;
        r->n = (uint8_t)(1 + (how >> 1) % 8);
    }
    e.n = r->n;
    e.index = r->index++;
    e.tag = fuzz_pick(in, 4);
    e.acked = (uint32_t)r->tx->sack + fuzz_pick(in, 4);
    for (int i = 0; i < IB_MAX_PATHS; i++) {
        e.rkey[i] = how & 16 && i == p ? 0 : 7 + (uint32_t)i;
    }
    if (how & 32) {
        e.addr = fuzz_number(in);
    }
    if (how & 64) {
        e.size = (uint32_t)fuzz_number(in);
    }
    if (how & 128) {
        fuzz_edit(in, (uint8_t *)&e, sizeof(e)); /* of a peer that lies: the check fits */
    }
    e.check = ib_cts_check(&e);
    r->f->ring[p].ring.entry[e.seq % R2_LEDGER_WINDOW] = e;
}

static void scribble(struct run *r)
{
    fuzz_edit(&r->in, (uint8_t *)&r->f->ring[fuzz_pick(&r->in, FUZZ_PATHS)].ring,
              sizeof(struct ib_ring));
}

static void isend(struct run *r)
{
    uint32_t size = (uint32_t)(fuzz_number(&r->in) % (FUZZ_MEM + 1)), tag = fuzz_pick(&r->in, 4);
    size_t at = fuzz_get(&r->in, 2) % (FUZZ_MEM - size + 1);
    struct ib_smsg *m;
    uint8_t busy[R2_LEDGER_WINDOW];

    if (r->f->broken) {
        return; /* the connection has ended */
    }
    /* the post is checked against the request while it is made */
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        busy[i] = r->tx->msg[i].busy;
        if (!busy[i]) {
            r->size[i] = size;
            r->data[i] = (uintptr_t)r->f->mem + at;
        }
    }
    m = ib_send_start(r->tx, r->f->mem + at, size, tag, &r->f->mr);
    FUZZ_CHECK(m == NULL || (m->busy && !busy[m->seq % R2_LEDGER_WINDOW] && m->size <= size));
}

static void complete(struct run *r)
{
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    unsigned how = fuzz_u8(&r->in);

    for (unsigned i = 0; i <= (how & 31); i++) {
        fuzz_nic_complete(r->f, p, how & 128 ? (enum ibv_wc_status)(how >> 5 & 3) : IBV_WC_SUCCESS);
    }
}

/* Masks as a FENCED or BYE brings them. */
static void ledger(struct run *r)
{
    uint16_t mask[R2_LEDGER_WINDOW];
    uint64_t base = fuzz_u8(&r->in) & 1 ? fuzz_number(&r->in) : r->tx->sack;
    unsigned n = fuzz_pick(&r->in, R2_LEDGER_WINDOW + 1);

    for (unsigned i = 0; i < n; i++) {
        mask[i] = (uint16_t)(i < 8 ? fuzz_get(&r->in, 2) : 0x5a5a);
    }
    ib_send_ledger(r->tx, base, mask, n);
}

/* Both ends have fenced the incarnation, and R's word about it is here. */
static void path_end(struct run *r)
{
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    struct ib_path *path = &r->f->conn.path[p];
    struct ib_fault_info info = {.fault = IB_FAULT_PEER};
    unsigned how = fuzz_u8(&r->in);

    r->f->conn.sink.path_fault(r->f, p, &info);
    if (!path->open) {
        return;
    }
    if (how & 1) {
        fuzz_nic_flush(r->f, p);
    }
    ib_send_drain(r->tx, p);
    path->open = 0;
    ib_send_incarnation_closed(r->tx, p, path->inc, !(how & 1));
    ib_send_acked(r->tx, how & 2 ? fuzz_number(&r->in) : r->tx->sack + fuzz_pick(&r->in, 4));
    ledger(r);
    ib_send_unpost(r->tx, p, path->inc);
    if (how & 4) {
        ib_send_soft_over(r->tx, p);
    }
    ib_send_progress(r->tx);
    if (ib_send_live_parts(r->tx, p, path->inc) == 0 && path->sq.used == 0 && how & 8) {
        fuzz_nic_path_begin(r->f, p, 1);
        ib_send_replan(r->tx);
    }
}

static void test_all(struct run *r)
{
    ib_send_progress(r->tx);
    for (unsigned i = 0; i < R2_LEDGER_WINDOW; i++) {
        if (r->tx->msg[i].busy && ib_send_done(r->tx, &r->tx->msg[i])) {
            ib_send_retire(&r->tx->msg[i]);
        }
    }
}

static void ack_word(struct run *r)
{
    unsigned how = fuzz_u8(&r->in);
    uint64_t v = how & 1 ? fuzz_number(&r->in) : r->tx->sack + (how >> 1);

    r->f->ring[how % FUZZ_PATHS].ring.ack[how % IB_ACKS] = v;
    r->f->cut = how >> 5; /* the drivers' mood changes, too */
}

static void look(struct run *r)
{
    uint64_t seq = 0;
    int p = (int)fuzz_pick(&r->in, FUZZ_PATHS);
    uint16_t mask = ib_send_oldest_live(r->tx, p, r->f->conn.path[p].inc, &seq);

    FUZZ_CHECK(mask == 0 || (seq >= r->tx->sack && seq < r->tx->sposted));
    (void)ib_send_uses(r->tx, &r->f->mr);
    (void)ib_send_idle(r->tx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct run *) = {
        write_cts, isend,    write_cts, isend,  write_cts, isend,    test_all, complete,
        ack_word,  scribble, path_end,  ledger, look,      test_all, complete, write_cts};
    struct run r = {.in = {data, data + size}};
    unsigned how = fuzz_u8(&r.in);

    now_running = &r;
    r2_log_level_set(R2_LOG_WARN);
    r.f = fuzz_nic_create(1, how & 8 ? how & 0xf0u : UINT32_MAX);
    r.f->on_post = on_post;
    r.f->on_down = on_down;
    r.f->cfg.spread = how & 1;
    r.f->cfg.balance = !(how & 2);
    r.f->cfg.ack = how & 4 ? R2_ACK_CQE : R2_ACK_E2E;
    r.tx = malloc(sizeof(*r.tx));
    FUZZ_CHECK(r.tx != NULL);
    r.f->half = r.tx;
    ib_send_init(r.tx, &r.f->conn);
    while (fuzz_more(&r.in)) {
        ops[fuzz_pick(&r.in, sizeof(ops) / sizeof(ops[0]))](&r);
        check(&r);
    }
    free(r.tx);
    free(r.f);
    return 0;
}
