/* Posting: parts on paths, and what could not be posted at once (P1, P2, P22). A new message that
 * is one part is posted in ib_send.c. */
#include <arpa/inet.h>

#include "base/r2_rules.h"
#include "ib_record.h"
#include "ib_send_int.h"

/* Whether @m can go over path @p at all: it is up, the buffer is registered at R's end, and at
 * ours, or goes by way of memory that is. */
static inline __attribute__((always_inline)) int path_eligible(struct ib_send *tx,
                                                               const struct ib_smsg *m, int p)
{
    const struct ib_conn *l = tx->conn;

    return ib_conn_up(l, p) && m->rkey[p] != 0 &&
           (__builtin_expect(ib_mr_lkey(m->mr, l->path[p].nic) != 0, 1) ||
            ib_send_bounce_takes(tx, m, p));
}

uint32_t ib_send_eligible(struct ib_send *tx, const struct ib_smsg *m)
{
    uint32_t mask = 0;

    for (int p = 0; p < tx->conn->npaths; p++) {
        if (path_eligible(tx, m, p)) {
            mask |= 1u << p;
        }
    }
    return mask;
}

/* A part above the threshold of adaptive routing. It is live even when the call fails: the NIC may
 * have its data (P32). */
static __attribute__((noinline)) int post_pair(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                               struct ib_path *p)
{
    const struct ib_part *part = &m->part[k];
    struct ibv_sge sge = {.addr = (uintptr_t)m->data + part->off,
                          .length = part->len,
                          .lkey = ib_mr_lkey(m->mr, p->nic)};
    struct ibv_send_wr wr = {
        .wr_id = ib_wr_id(IB_WR_RECORD, k, m->seq),
        .sg_list = &sge,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = m->raddr + part->off, .rkey = m->rkey[p->index]}};
    int rc = ib_record_post(p, &wr, ib_imm_pack(m->seq, k, m->nparts, IB_IMM_RECORD, p->inc));

    if (rc == 0 || r2_rule(R2_RULE_PAIR_LIVE)) {
        ib_send_part_posted(tx, m, k, p, 2);
        IB_RLX_ADD(p->sq.bulk, 1);
    }
    if (rc != 0) {
        ib_conn_call_fault(tx->conn, p->index, rc);
        return -1;
    }
    return 0;
}

/* Posts part @k on path @p as one work request. 0, or -1 when the call failed and the path is down
 * now. What is the same in all of them stands in tx->wr. */
static inline __attribute__((always_inline)) int
post_one(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p, uint32_t lkey)
{
    const struct ib_part *part = &m->part[k];
    struct ibv_send_wr *wr = &tx->wr, *bad;
    int rc;

    tx->sge.addr = (uintptr_t)m->data + part->off;
    tx->sge.length = part->len;
    tx->sge.lkey = lkey;
    wr->wr_id = ib_wr_id(IB_WR_DATA, k, m->seq);
    wr->num_sge = part->len != 0;
    wr->imm_data = htonl(ib_imm_pack(m->seq, k, m->nparts, IB_IMM_DATA, p->inc));
    wr->wr.rdma.remote_addr = m->raddr + part->off;
    wr->wr.rdma.rkey = m->rkey[p->index];
    rc = ibv_post_send(p->qp, wr, &bad);
    if (__builtin_expect(rc != 0, 0)) {
        ib_conn_call_fault(tx->conn, p->index, ib_verbs_err(rc));
        return -1;
    }
    ib_send_part_posted(tx, m, k, p, 1);
    return 0;
}

static __attribute__((noinline)) int post_plain(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                                struct ib_path *p)
{
    return post_one(tx, m, k, p, ib_mr_lkey(m->mr, p->nic));
}

/* What is more than one plain work request. 0; 1: no room now; -1: the path is down now. */
static __attribute__((noinline)) int post_other(struct ib_send *tx, struct ib_smsg *m, unsigned k,
                                                struct ib_path *p)
{
    if (ib_send_bounce_takes(tx, m, p->index)) {
        return ib_send_bounce_begin(tx, m, k, p);
    }
    return m->part[k].len - 1 >= p->part.pair_min ? post_pair(tx, m, k, p)
                                                  : post_plain(tx, m, k, p);
}

/* Whether a part of @len bytes is one plain work request on @p. An empty part fails the comparison,
 * too, so that the others are spared the one for it. */
static inline int is_plain(const struct ib_path *p, uint32_t len)
{
    return __builtin_expect(len - 1 < p->part.one_max, 1) || len == 0;
}

/* Posts part @k on path @p; as post_other(). */
static int post_part(struct ib_send *tx, struct ib_smsg *m, unsigned k, struct ib_path *p)
{
    return is_plain(p, m->part[k].len) ? post_plain(tx, m, k, p) : post_other(tx, m, k, p);
}

/* The path for a part whose planned path cannot take it: the least loaded of the plan with room, of
 * all only where the plan's cannot. */
static struct ib_path *other_path(struct ib_send *tx, const struct ib_smsg *m, uint32_t eligible)
{
    struct ib_path *best = NULL;
    uint32_t planned = 0;

    for (int i = 0; i < tx->plan.n; i++) {
        planned |= 1u << tx->plan.path[i];
    }
    if (eligible & planned) {
        eligible &=
            planned; /* the primary alone while it is up, the first backup without balance */
    }

    for (int p = 0; p < tx->conn->npaths; p++) {
        struct ib_path *path = &tx->conn->path[p];

        if ((eligible & (1u << p)) && ib_send_room(tx, path, m->seq) &&
            (!best || path->parts_out < best->parts_out)) {
            best = path;
        }
    }
    return best;
}

int ib_send_post_message(struct ib_send *tx, struct ib_smsg *m)
{
    while (m->unposted) {
        unsigned k = (unsigned)__builtin_ctz(m->unposted);
        struct ib_path *p = &tx->conn->path[m->part[k].path];

        if (__builtin_expect(!path_eligible(tx, m, p->index), 0)) {
            uint32_t eligible = ib_send_eligible(tx, m);

            tx->starved |= eligible == 0;
            p = other_path(tx, m, eligible);
        } else if (!ib_send_room(tx, p, m->seq)) {
            p = NULL; /* its room comes back; the choice by weight stands */
        }
        if (p == NULL) {
            return 1;
        }
        if (post_part(tx, m, k, p) > 0) {
            return 1;
        }
    }
    return 0;
}

void ib_send_post_pending(struct ib_send *tx)
{
    if (tx->posting_stopped) {
        return;
    }
    tx->starved = 0;
    tx->pending &= (uint8_t)~IB_SEND_UNPOSTED;
    for (uint64_t seq = tx->sack; seq < tx->sposted; seq++) {
        struct ib_smsg *m = IB_SEND_SLOT(tx, seq);

        if (m->busy && m->seq == seq && m->unposted && ib_send_post_message(tx, m)) {
            tx->pending |= IB_SEND_UNPOSTED;
        }
    }
    if (!tx->starved) {
        IB_RLX_SET(tx->starved_since, 0);
    } else if (tx->starved_since == 0) {
        IB_RLX_SET(tx->starved_since, ib_conn_now(tx->conn));
        ib_conn_stir(tx->conn);
    }
}
