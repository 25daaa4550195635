/* What the suites of ways through the fabric share: queue pairs with labels beside the pair's own,
 * and what the spines count. */
#ifndef TEST_FABRIC_WAYS_RIG_H
#define TEST_FABRIC_WAYS_RIG_H

#include "tests/unit/test_fabric_pair.h"

#define FLOWS 16

/* Queue pairs between the two hosts beside the pair's own, each with a label. */
struct flows {
    struct pair p;
    struct ibv_qp *qp[FLOWS][2];
    int way[FLOWS]; /* of requests of side 0, when it was made */
};

static inline int way(struct pair *p, struct ibv_qp *qp)
{
    return fab_inproc_way(p->f, fab_ibv_qp(qp));
}

static inline const struct fab_spine_count *spine(struct pair *p, int k)
{
    const struct fab_spine_count *c = fab_inproc_spine(p->f, 0, k);

    ck_assert_ptr_nonnull(c);
    return c;
}

static inline uint64_t total(struct pair *p, size_t field)
{
    uint64_t n = 0;

    for (int k = 0; k < p->c.spines; k++) {
        n += *(const uint64_t *)((const char *)spine(p, k) + field);
    }
    return n;
}
#define TOTAL(p, field) total(p, offsetof(struct fab_spine_count, field))

/* Two queue pairs with labels @a and @b, connected. */
static inline void connect(struct pair *p, struct ibv_qp *qp[2], uint32_t a, uint32_t b)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_nonnull(qp[i] = pair_new_qp(p, &p->s[i]));
        ck_assert_int_eq(pair_to_init(p, qp[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        p->c.label = i ? b : a;
        ck_assert_int_eq(pair_to_rtr(p, qp[i], &p->s[!i].gid, qp[!i]->qp_num, 5), 0);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_to_rts(p, qp[i], 5), 0);
    }
}

static inline void disconnect(struct pair *p, struct ibv_qp *qp[2])
{
    ck_assert_int_eq(p->v.destroy_qp(qp[0]), 0);
    ck_assert_int_eq(p->v.destroy_qp(qp[1]), 0);
}

static inline void flows_open(struct flows *w, const struct pair_cfg *c)
{
    pair_open(&w->p, c);
    for (uint32_t i = 0; i < FLOWS; i++) {
        connect(&w->p, w->qp[i], i + 1, i + 1);
        w->way[i] = way(&w->p, w->qp[i][0]);
        ck_assert_int_eq(way(&w->p, w->qp[i][1]), w->way[i]);
    }
}

static inline void flows_close(struct flows *w)
{
    for (int i = 0; i < FLOWS; i++) {
        disconnect(&w->p, w->qp[i]);
    }
    pair_close(&w->p);
}

/* Posts on another queue pair of side @i than its own. */
static inline int post_on(struct pair *p, struct ibv_qp *qp, int i, enum ibv_wr_opcode op,
                          uint64_t id, uint32_t len)
{
    struct ibv_qp *own = p->s[i].qp;
    int rc;

    p->s[i].qp = qp;
    rc = pair_post(p, i, op, id, 0, 0, len, IBV_SEND_SIGNALED);
    p->s[i].qp = own;
    return rc;
}

/* A write of @len bytes on every flow; what each came to. */
static inline void flows_write(struct flows *w, uint32_t len, enum ibv_wc_status status[FLOWS])
{
    struct ibv_wc wc;

    for (uint32_t i = 0; i < FLOWS; i++) {
        ck_assert_int_eq(post_on(&w->p, w->qp[i][0], 0, IBV_WR_RDMA_WRITE, i, len), 0);
    }
    pair_run(&w->p);
    for (int n = 0; n < FLOWS; n++) {
        ck_assert_int_eq(pair_poll(&w->p, 0, &wc), 1);
        ck_assert_uint_lt(wc.wr_id, FLOWS);
        status[wc.wr_id] = wc.status;
    }
}

static inline int flows_on(const struct flows *w, int k)
{
    int n = 0;

    for (int i = 0; i < FLOWS; i++) {
        n += w->way[i] == k;
    }
    return n;
}

#endif
