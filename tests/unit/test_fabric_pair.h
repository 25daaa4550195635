/* Two hosts of the in-process fabric with one connected queue pair between them: what the tests of
 * the device model start from. */
#ifndef TEST_FABRIC_PAIR_H
#define TEST_FABRIC_PAIR_H

#include "plugin/base/r2_time.h"
#include "tests/fabric/inproc/fab_inproc.h"
#include "tests/fabric/verbs/fab_ibv.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PAIR_BUF (1u << 20)
#define PAIR_US  R2_NS_PER_US
#define PAIR_MS  R2_NS_PER_MS
#define PAIR_ALL_ACCESS                                                                            \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

struct side {
    struct ibv_context *ctx;
    struct ibv_comp_channel *ch;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    union ibv_gid gid;
};

/* Zero: the value in brackets. */
struct pair_cfg {
    uint64_t seed;
    uint64_t rate, latency; /* [unlimited, 1 us] */
    struct fab_inproc_opts opts;
    int cqe;                 /* [256] */
    uint32_t wr;             /* [64] */
    uint32_t sge;            /* [4] */
    int timeout, retry, rnr; /* [14, 3, 7]; -1: zero */
    int min_rnr;             /* [12] */
    int rd_atom;             /* [4] */
    int sig_all;
    int srq; /* entries of a shared receive queue at both sides */
    int hosts, nics;
    int spines; /* [1] */
    int leaf;   /* hosts below a leaf switch [each has its own] */
    enum fab_hash hash;
    uint32_t label;      /* of queue pairs that go to RTR from now on */
    uint16_t dlid;       /* ... and their LID, without a GRH */
    uint8_t bits;        /* ... and which of their own port's */
    struct fab_ib ib[2]; /* of the first NIC of each side's host */
    int no_connect;
};

struct pair {
    struct fab_inproc *f;
    struct ib_verbs v;
    struct pair_cfg c;
    struct side s[2];
};

static inline int or_default(int v, int dflt)
{
    return v == 0 ? dflt : v < 0 ? 0 : v;
}

static inline struct ibv_context *pair_open_dev(struct pair *p, int host, int nic)
{
    struct ibv_device **list;
    struct ibv_context *ctx = NULL;
    int n;

    fab_inproc_set_host(p->f, host);
    list = p->v.get_device_list(&n);
    ck_assert_ptr_nonnull(list);
    if (nic < n) {
        ctx = p->v.open_device(list[nic]);
    }
    p->v.free_device_list(list);
    return ctx;
}

static inline struct ibv_qp *pair_new_qp(struct pair *p, struct side *s)
{
    uint32_t wr = p->c.wr ? p->c.wr : 64, sge = p->c.sge ? p->c.sge : 4;
    struct ibv_qp_init_attr init = {.send_cq = s->cq,
                                    .recv_cq = s->cq,
                                    .srq = s->srq,
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = p->c.sig_all,
                                    .cap = {.max_send_wr = wr,
                                            .max_recv_wr = wr,
                                            .max_send_sge = sge,
                                            .max_recv_sge = sge,
                                            .max_inline_data = 128}};

    return p->v.create_qp(s->pd, &init);
}

static inline void pair_open_side(struct pair *p, int i)
{
    struct side *s = &p->s[i];

    s->ctx = pair_open_dev(p, i, 0);
    ck_assert_ptr_nonnull(s->ctx);
    s->ch = p->v.create_comp_channel(s->ctx);
    s->pd = p->v.alloc_pd(s->ctx);
    s->cq = p->v.create_cq(s->ctx, p->c.cqe ? p->c.cqe : 256, s, s->ch, 0);
    if (p->c.srq) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = (uint32_t)p->c.srq, .max_sge = 4}};

        s->srq = fab_ibv_create_srq(s->pd, &init);
        ck_assert_ptr_nonnull(s->srq);
    }
    s->buf = calloc(1, PAIR_BUF);
    s->mr = p->v.reg_mr(s->pd, s->buf, PAIR_BUF, PAIR_ALL_ACCESS);
    ck_assert_ptr_nonnull(s->mr);
    s->qp = pair_new_qp(p, s);
    ck_assert_ptr_nonnull(s->qp);
    ck_assert_int_eq(p->v.query_gid(s->ctx, 1, 3, &s->gid), 0);
}

static inline int pair_to_init(struct pair *p, struct ibv_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

    return p->v.modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static inline int pair_to_rtr(struct pair *p, struct ibv_qp *qp, const union ibv_gid *gid,
                              uint32_t qpn, uint32_t psn)
{
    int rd = or_default(p->c.rd_atom, 4);
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = qpn,
        .rq_psn = psn,
        .max_dest_rd_atomic = (uint8_t)rd,
        .min_rnr_timer = (uint8_t)or_default(p->c.min_rnr, 12),
        .ah_attr = {
            .is_global = p->c.dlid == 0,
            .port_num = 1,
            .dlid = p->c.dlid,
            .src_path_bits = p->c.bits,
            .grh = {.dgid = *gid, .sgid_index = 3, .hop_limit = 64, .flow_label = p->c.label}}};

    return p->v.modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static inline int pair_to_rts(struct pair *p, struct ibv_qp *qp, uint32_t psn)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .timeout = (uint8_t)or_default(p->c.timeout, 14),
                            .retry_cnt = (uint8_t)or_default(p->c.retry, 3),
                            .rnr_retry = (uint8_t)or_default(p->c.rnr, 7),
                            .sq_psn = psn,
                            .max_rd_atomic = (uint8_t)or_default(p->c.rd_atom, 4)};

    return p->v.modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline int pair_to_state(struct pair *p, struct ibv_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr a = {.qp_state = state};

    return p->v.modify_qp(qp, &a, IBV_QP_STATE);
}

/* Both ends to RTS, from RESET; numbers start just below the wrap of 24 bits. */
static inline void pair_connect_qps(struct pair *p, struct ibv_qp *a, struct ibv_qp *b,
                                    uint32_t psn)
{
    ck_assert_int_eq(pair_to_init(p, a), 0);
    ck_assert_int_eq(pair_to_init(p, b), 0);
    ck_assert_int_eq(pair_to_rtr(p, a, &p->s[1].gid, b->qp_num, psn), 0);
    ck_assert_int_eq(pair_to_rtr(p, b, &p->s[0].gid, a->qp_num, psn), 0);
    ck_assert_int_eq(pair_to_rts(p, a, psn), 0);
    ck_assert_int_eq(pair_to_rts(p, b, psn), 0);
}

static inline void pair_open(struct pair *p, const struct pair_cfg *cfg)
{
    struct fab_desc d;
    char err[128];

    memset(p, 0, sizeof *p);
    if (cfg) {
        p->c = *cfg;
    }
    ck_assert_int_eq(fab_desc_init(&d, p->c.hosts ? p->c.hosts : 2, p->c.nics ? p->c.nics : 2,
                                   p->c.rate, p->c.latency ? p->c.latency : PAIR_US, err,
                                   sizeof err),
                     0);
    d.spines = p->c.spines;
    d.leaf = p->c.leaf;
    d.hash = p->c.hash;
    d.nic[0][0].ib = p->c.ib[0];
    d.nic[1][0].ib = p->c.ib[1];
    p->f = fab_inproc_create(&d, p->c.seed, &p->c.opts);
    ck_assert_ptr_nonnull(p->f);
    fab_inproc_verbs(p->f, 0, &p->v);
    pair_open_side(p, 0);
    pair_open_side(p, 1);
    if (!p->c.no_connect) {
        pair_connect_qps(p, p->s[0].qp, p->s[1].qp, 0xfffff0);
    }
}

static inline void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        struct side *s = &p->s[i];

        if (s->qp) {
            ck_assert_int_eq(p->v.destroy_qp(s->qp), 0);
        }
        if (s->srq) {
            ck_assert_int_eq(fab_ibv_destroy_srq(s->srq), 0);
        }
        if (s->mr) {
            ck_assert_int_eq(p->v.dereg_mr(s->mr), 0);
        }
        if (s->cq) {
            ck_assert_int_eq(p->v.destroy_cq(s->cq), 0);
        }
        if (s->pd) {
            ck_assert_int_eq(p->v.dealloc_pd(s->pd), 0);
        }
        if (s->ch) {
            ck_assert_int_eq(p->v.destroy_comp_channel(s->ch), 0);
        }
        if (s->ctx) {
            ck_assert_int_eq(p->v.close_device(s->ctx), 0);
        }
        free(s->buf);
    }
    fab_inproc_destroy(p->f);
}

static inline void pair_fault(struct pair *p, const char *text)
{
    char err[200];

    ck_assert_msg(fab_inproc_fault(p->f, text, err, sizeof err) == 0, "%s", err);
}

static inline void pair_run(struct pair *p)
{
    int n = 0;

    while (fab_inproc_step(p->f)) {
        if (++n == 20000000) {
            ck_abort_msg("the fabric never comes to rest");
        }
    }
}

static inline void pair_run_for(struct pair *p, uint64_t ns)
{
    fab_inproc_run_until(p->f, fab_inproc_now(p->f) + ns);
}

/* One send work request from offset @from of side @i's buffer, to offset @to of the other side's.
 */
static inline int pair_post(struct pair *p, int i, enum ibv_wr_opcode op, uint64_t id,
                            uint32_t from, uint32_t to, uint32_t len, unsigned int flags)
{
    struct side *s = &p->s[i], *o = &p->s[!i];
    struct ibv_sge sge = {.addr = (uintptr_t)s->buf + from, .length = len, .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = flags,
                             .imm_data = htobe32(0x1000 + (uint32_t)id)},
                       *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)o->buf + to;
    wr.wr.rdma.rkey = o->mr->rkey;
    return ibv_post_send(s->qp, &wr, &bad);
}

static inline int pair_recv(struct pair *p, int i, uint64_t id, uint32_t at, uint32_t len)
{
    struct side *s = &p->s[i];
    struct ibv_sge sge = {.addr = (uintptr_t)s->buf + at, .length = len, .lkey = s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
}

static inline int pair_poll(struct pair *p, int i, struct ibv_wc *wc)
{
    return ibv_poll_cq(p->s[i].cq, 1, wc);
}

/* The next completion of side @i is there, with this id and status. */
static inline struct ibv_wc pair_expect(struct pair *p, int i, uint64_t id,
                                        enum ibv_wc_status status)
{
    struct ibv_wc wc;

    ck_assert_int_eq(pair_poll(p, i, &wc), 1);
    ck_assert_uint_eq(wc.wr_id, id);
    ck_assert_str_eq(fab_ibv_wc_status_str(wc.status), fab_ibv_wc_status_str(status));
    return wc;
}

static inline void pair_expect_none(struct pair *p, int i)
{
    struct ibv_wc wc;

    ck_assert_int_eq(pair_poll(p, i, &wc), 0);
}

static inline void pair_expect_event(struct pair *p, int i, enum ibv_event_type type)
{
    struct ibv_async_event ev;

    ck_assert_int_eq(p->v.get_async_event(p->s[i].ctx, &ev), 0);
    ck_assert_str_eq(fab_ibv_event_type_str(ev.event_type), fab_ibv_event_type_str(type));
    p->v.ack_async_event(&ev);
}

static inline void pair_expect_no_event(struct pair *p, int i)
{
    struct ibv_async_event ev;

    ck_assert_int_eq(p->v.get_async_event(p->s[i].ctx, &ev), -1);
}

static inline struct fab_counters *pair_cnt(struct pair *p, int host)
{
    return &fab_inproc_nic(p->f, host, 0)->cnt;
}

static inline void pair_fill(uint8_t *b, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++) {
        b[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
    }
}

static inline int pair_main(Suite *s)
{
    SRunner *r = srunner_create(s);
    int failed;

    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

static inline enum ibv_port_state pair_port_state(struct pair *p, int i)
{
    struct ibv_port_attr a;

    ck_assert_int_eq(p->v.query_port(p->s[i].ctx, 1, &a), 0);
    return a.state;
}

#endif
