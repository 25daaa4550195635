/* InfiniBand: a port with several LIDs, the way that each leads over, and what a queue pair takes.
 */
#include "tests/unit/fabric_ways_rig.h"
#include "tests/unit/suite.h"

#include <stdio.h>

#define LIDS 8

static const struct pair_cfg cfg = {.spines = 8,
                                    .timeout = 8,
                                    .retry = 2,
                                    .no_connect = 1,
                                    .ib = {{.lid = 0x10, .lmc = 3}, {.lid = 0x28, .lmc = 3}}};

struct lids {
    uint16_t to[2]; /* the LID that each end sends to, and which of its own it sends from */
    uint8_t from[2];
};

static void connect_lids(struct pair *p, struct ibv_qp *qp[2], const struct lids *l)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_nonnull(qp[i] = pair_new_qp(p, &p->s[i]));
        ck_assert_int_eq(pair_to_init(p, qp[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        p->c.dlid = l->to[i];
        p->c.bits = l->from[i];
        ck_assert_int_eq(pair_to_rtr(p, qp[i], &p->s[!i].gid, qp[!i]->qp_num, 5), 0);
        ck_assert_int_eq(pair_to_rts(p, qp[i], 5), 0);
    }
}

/* What becomes of a write over queue pairs with these LIDs. */
static enum ibv_wc_status write_by(struct pair *p, const struct lids *l)
{
    struct ibv_qp *qp[2];
    struct ibv_wc wc;

    connect_lids(p, qp, l);
    ck_assert_int_eq(post_on(p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 8192), 0);
    pair_run(p);
    ck_assert_int_eq(pair_poll(p, 0, &wc), 1);
    disconnect(p, qp);
    return wc.status;
}

START_TEST(a_port_has_as_many_as_it_says)
{
    struct ibv_port_attr a;
    struct pair p;

    pair_open(&p, &cfg);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(p.v.query_port(p.s[i].ctx, 1, &a), 0);
        ck_assert_int_eq(a.link_layer, IBV_LINK_LAYER_INFINIBAND);
        ck_assert_uint_eq(a.lid, cfg.ib[i].lid);
        ck_assert_uint_eq(a.lmc, 3);
    }
    for (uint16_t k = 0; k < LIDS; k++) {
        struct lids l = {.to = {0x28 + k, 0x10 + k}, .from = {(uint8_t)k, (uint8_t)k}};

        ck_assert_int_eq(write_by(&p, &l), IBV_WC_SUCCESS);
        l = (struct lids){.to = {0x28 + 7, 0x10 + k}, .from = {(uint8_t)k, 7}};
        ck_assert_int_eq(write_by(&p, &l), IBV_WC_SUCCESS); /* not the same at both ends */
        l.from[0] |= 8;                                     /* a bit that is none of the path's */
        ck_assert_int_eq(write_by(&p, &l), IBV_WC_SUCCESS);
    }
    pair_close(&p);
}
END_TEST

/* The switches look at the destination alone; a label is nothing to them, nor is the sender. */
START_TEST(each_lid_has_a_way)
{
    uint64_t hit[2] = {0};
    struct ibv_qp *qp[2];
    struct pair p;
    int differ = 0;

    pair_open(&p, &cfg);
    for (uint16_t k = 0; k < LIDS; k++) {
        struct lids l = {.to = {0x28 + k, 0x10 + k}, .from = {(uint8_t)k, (uint8_t)k}};
        int there, back;

        connect_lids(&p, qp, &l);
        there = way(&p, qp[0]);
        back = way(&p, qp[1]);
        disconnect(&p, qp);
        differ += there != back;
        hit[0] |= 1ull << there;
        hit[1] |= 1ull << back;
        p.c.label = k + 1;
        l.to[1] = 0x10;
        l.from[0] = 0;
        connect_lids(&p, qp, &l);
        ck_assert_int_eq(way(&p, qp[0]), there);
        disconnect(&p, qp);
    }
    ck_assert_int_ge(__builtin_popcountll(hit[0]), 4);
    ck_assert_int_ge(__builtin_popcountll(hit[1]), 4);
    ck_assert_int_gt(differ, 0);
    pair_close(&p);
}
END_TEST

/* A queue pair takes nothing that comes by other LIDs than its own address vector has, from either
 * end. */
START_TEST(another_lid_of_the_port_is_dropped)
{
    static const struct lids row[] = {
        {.to = {0x28 + 1, 0x10}, .from = {0, 0}}, /* not the one that the peer sends from */
        {.to = {0x28, 0x10 + 1}, .from = {0, 0}}, /* it answers to another one than sends */
        {.to = {0x28 + 8, 0x10}, .from = {0, 0}}, /* nobody's */
        {.to = {0x28 - 1, 0x10}, .from = {0, 0}},
    };
    static const struct lids right = {.to = {0x28, 0x10}, .from = {0, 0}};
    struct pair p;

    pair_open(&p, &cfg);
    ck_assert_int_eq(write_by(&p, &row[_i]), IBV_WC_RETRY_EXC_ERR);
    ck_assert_int_eq(write_by(&p, &right), IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

START_TEST(a_silent_spine_takes_the_lids_that_lead_over_it)
{
    static const struct lids base = {.to = {0x28, 0x10}, .from = {0, 0}};
    int there[LIDS], back[LIDS], lost = 0;
    struct ibv_qp *qp[2];
    struct pair p;
    char text[40];

    pair_open(&p, &cfg);
    for (uint16_t k = 0; k < LIDS; k++) {
        struct lids l = {.to = {0x28 + k, 0x10 + k}, .from = {(uint8_t)k, (uint8_t)k}};

        connect_lids(&p, qp, &l);
        there[k] = way(&p, qp[0]);
        back[k] = way(&p, qp[1]);
        disconnect(&p, qp);
    }
    ck_assert_int_eq(write_by(&p, &base), IBV_WC_SUCCESS);
    snprintf(text, sizeof text, "spine %d blackhole", there[0]);
    pair_fault(&p, text);
    for (uint16_t k = 0; k < LIDS; k++) {
        struct lids l = {.to = {0x28 + k, 0x10 + k}, .from = {(uint8_t)k, (uint8_t)k}};
        int silent = there[k] == there[0] || back[k] == there[0];

        lost += silent;
        ck_assert_int_eq(write_by(&p, &l), silent ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
    }
    ck_assert_int_lt(lost, LIDS);
    ck_assert_uint_gt(spine(&p, there[0])->dropped, 0);
    pair_close(&p);
}
END_TEST

/* One LID: one way to it, whatever the label. */
START_TEST(one_lid_has_one_way)
{
    struct pair_cfg c = cfg;
    uint64_t hit = 0;
    struct pair p;

    c.ib[0].lmc = c.ib[1].lmc = 0;
    pair_open(&p, &c);
    for (uint32_t label = 0; label < 8; label++) {
        struct lids l = {.to = {0x28, 0x10}, .from = {0, 3}};
        struct ibv_qp *qp[2];

        p.c.label = label;
        connect_lids(&p, qp, &l);
        hit |= 1ull << way(&p, qp[0]);
        disconnect(&p, qp);
        ck_assert_int_eq(write_by(&p, &l), IBV_WC_SUCCESS); /* it has no path bits */
    }
    ck_assert_int_eq(__builtin_popcountll(hit), 1);
    pair_close(&p);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_port_has_as_many_as_it_says);
    tcase_add_test(t, each_lid_has_a_way);
    tcase_add_loop_test(t, another_lid_of_the_port_is_dropped, 0, 4);
    tcase_add_test(t, a_silent_spine_takes_the_lids_that_lead_over_it);
    tcase_add_test(t, one_lid_has_one_way);
}

int main(void)
{
    return suite_run("fabric_lids", 60, NULL, NULL, add);
}
