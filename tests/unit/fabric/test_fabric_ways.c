/* Ways: the port of a queue pair, the spine that its packets take, what faults of spines do to
 * traffic; their rates are in test_fabric_ways_rate.c. */
#include "tests/unit/fabric_ways_rig.h"

#include <errno.h>
#include <stdio.h>

/* Requests of one end with its port, what the other end says to them with its own. */
START_TEST(each_end_has_its_own_port)
{
    struct pair_cfg c = {.spines = 8};
    struct ibv_qp *qp[2];
    uint32_t b = 1;
    struct pair p;

    pair_open(&p, &c);
    do {
        connect(&p, qp, 1, ++b);
        if (way(&p, qp[0]) == way(&p, qp[1])) {
            disconnect(&p, qp);
        }
    } while (way(&p, qp[0]) == way(&p, qp[1]));
    ck_assert_uint_eq(fab_ibv_qp(qp[0])->sport, 0xC001);
    ck_assert_uint_eq(fab_ibv_qp(qp[1])->sport, 0xC000 | b);
    ck_assert_int_eq(post_on(&p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 8 * 4096), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(spine(&p, way(&p, qp[0]))->bytes, 8 * 4096);
    ck_assert_uint_eq(spine(&p, way(&p, qp[1]))->bytes, 0);
    ck_assert_uint_gt(spine(&p, way(&p, qp[1]))->packets, 0);
    ck_assert_int_eq(post_on(&p, qp[0], 0, IBV_WR_RDMA_READ, 2, 3 * 4096), 0);
    pair_run(&p);
    pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
    ck_assert_uint_eq(spine(&p, way(&p, qp[0]))->packets, 9);
    ck_assert_uint_eq(spine(&p, way(&p, qp[1]))->bytes, 3 * 4096);
    ck_assert_uint_eq(TOTAL(&p, dropped) + TOTAL(&p, queued) + TOTAL(&p, moved), 0);
    disconnect(&p, qp);
    pair_close(&p);
}
END_TEST

/* What is hashed there is lost, and nothing else; nobody is told but by the retries. */
START_TEST(blackhole_swallows_its_own)
{
    struct pair_cfg c = {.spines = 4, .timeout = 8, .retry = 2};
    enum ibv_wc_status status[FLOWS];
    struct flows w;
    char text[40];
    int k;

    flows_open(&w, &c);
    k = w.way[0];
    ck_assert_int_lt(flows_on(&w, k), FLOWS);
    snprintf(text, sizeof text, "spine %d blackhole", k);
    pair_fault(&w.p, text);
    flows_write(&w, 4096, status);
    for (int i = 0; i < FLOWS; i++) {
        ck_assert_int_eq(status[i], w.way[i] == k ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
        ck_assert_int_eq(way(&w.p, w.qp[i][0]), w.way[i]);
    }
    ck_assert_uint_eq(spine(&w.p, k)->dropped, 3 * (unsigned)flows_on(&w, k));
    ck_assert_uint_eq(spine(&w.p, k)->packets, spine(&w.p, k)->dropped);
    ck_assert_uint_eq(TOTAL(&w.p, dropped), spine(&w.p, k)->dropped);
    pair_expect_no_event(&w.p, 0);
    flows_close(&w);
}
END_TEST

/* The queue pair tries again until the way is back; another label is another way. */
START_TEST(blackhole_ends)
{
    struct pair_cfg c = {.spines = 4, .timeout = 10, .retry = 7};
    struct ibv_qp *bad[2], *good[2];
    uint32_t label = 1;
    struct pair p;
    char text[40];

    pair_open(&p, &c);
    connect(&p, bad, label, label);
    snprintf(text, sizeof text, "rail 0 spine %d blackhole", way(&p, bad[0]));
    pair_fault(&p, text);
    memset(p.s[0].buf, 7, 64);
    ck_assert_int_eq(post_on(&p, bad[0], 0, IBV_WR_RDMA_WRITE, 1, 64), 0);
    pair_run_for(&p, 10 * PAIR_MS);
    pair_expect_none(&p, 0);
    ck_assert_uint_gt(spine(&p, way(&p, bad[0]))->dropped, 1);
    connect(&p, good, label + 1, label + 1);
    while (way(&p, good[0]) == way(&p, bad[0])) {
        disconnect(&p, good);
        label++;
        connect(&p, good, label + 1, label + 1);
    }
    ck_assert_int_eq(post_on(&p, good[0], 0, IBV_WR_RDMA_WRITE, 2, 64), 0);
    pair_run_for(&p, PAIR_MS);
    pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
    snprintf(text, sizeof text, "rail 0 spine %d up", way(&p, bad[0]));
    pair_fault(&p, text);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(p.s[1].buf[63], 7);
    disconnect(&p, bad);
    disconnect(&p, good);
    pair_close(&p);
}
END_TEST

/* Flows of a spine that is down are spread over the others; the rest stays; they come back. */
START_TEST(down_moves_its_own)
{
    struct pair_cfg c = {.spines = 4};
    enum ibv_wc_status status[FLOWS];
    struct flows w;
    uint64_t before;
    char text[40];
    int k;

    flows_open(&w, &c);
    k = w.way[0];
    snprintf(text, sizeof text, "spine %d down", k);
    pair_fault(&w.p, text);
    flows_write(&w, 4096, status);
    for (int i = 0; i < FLOWS; i++) {
        ck_assert_int_eq(status[i], IBV_WC_SUCCESS);
        if (w.way[i] == k) {
            ck_assert_int_ne(way(&w.p, w.qp[i][0]), k);
            ck_assert_int_eq(way(&w.p, w.qp[i][1]), way(&w.p, w.qp[i][0]));
        } else {
            ck_assert_int_eq(way(&w.p, w.qp[i][0]), w.way[i]);
        }
    }
    ck_assert_uint_eq(spine(&w.p, k)->packets, 0);
    before = spine(&w.p, k)->moved;
    ck_assert_uint_eq(before, 2 * (unsigned)flows_on(&w, k)); /* data and its acknowledgement */
    ck_assert_uint_eq(TOTAL(&w.p, moved), before);
    snprintf(text, sizeof text, "spine %d up", k);
    pair_fault(&w.p, text);
    flows_write(&w, 4096, status);
    ck_assert_uint_eq(spine(&w.p, k)->moved, before);
    ck_assert_uint_eq(spine(&w.p, k)->bytes, 4096u * (unsigned)flows_on(&w, k));
    pair_fault(&w.p, "spine * down");
    ck_assert_int_eq(way(&w.p, w.qp[0][0]), -1);
    flows_write(&w, 64, status);
    for (int i = 0; i < FLOWS; i++) {
        ck_assert_int_eq(status[i], IBV_WC_RETRY_EXC_ERR);
    }
    flows_close(&w);
}
END_TEST

START_TEST(loss)
{
    struct pair_cfg c = {.spines = 4, .timeout = 8, .retry = 7, .seed = 3};
    enum ibv_wc_status status[FLOWS];
    struct flows w;
    char text[40];
    int k;

    flows_open(&w, &c);
    k = w.way[0];
    snprintf(text, sizeof text, "spine %d loss 10%%", k);
    pair_fault(&w.p, text);
    pair_fill(w.p.s[0].buf, 64 * 4096, 1);
    flows_write(&w, 64 * 4096, status);
    for (int i = 0; i < FLOWS; i++) {
        ck_assert_int_eq(status[i], IBV_WC_SUCCESS);
    }
    ck_assert_int_eq(memcmp(w.p.s[0].buf, w.p.s[1].buf, 64 * 4096), 0);
    ck_assert_uint_gt(spine(&w.p, k)->dropped, spine(&w.p, k)->packets / 20);
    ck_assert_uint_lt(spine(&w.p, k)->dropped, spine(&w.p, k)->packets / 5);
    ck_assert_uint_eq(TOTAL(&w.p, dropped), spine(&w.p, k)->dropped);
    flows_close(&w);
}
END_TEST

/* With the number of the destination in the hash, queue pairs of one port have ways of their own,
 * and so have the two directions. */
START_TEST(hash_of_queue_pairs)
{
    struct pair_cfg c = {.spines = 8, .hash = _i ? FAB_HASH_QP : FAB_HASH_PORTS};
    struct ibv_qp *qp[FLOWS][2], *odd;
    uint64_t hit = 0;
    int asymmetric = 0;
    struct pair p;

    pair_open(&p, &c);
    odd = pair_new_qp(&p, &p.s[0]); /* numbers at both ends are no longer the same */
    for (int i = 0; i < FLOWS; i++) {
        connect(&p, qp[i], 42, 42);
        ck_assert_uint_ne(qp[i][0]->qp_num, qp[i][1]->qp_num);
        hit |= 1u << way(&p, qp[i][0]);
        asymmetric += way(&p, qp[i][0]) != way(&p, qp[i][1]);
    }
    ck_assert_int_eq(__builtin_popcountll(hit) > 1, _i);
    ck_assert_int_eq(asymmetric > 0, _i);
    for (int i = 0; i < FLOWS; i++) {
        disconnect(&p, qp[i]);
    }
    ck_assert_int_eq(p.v.destroy_qp(odd), 0);
    pair_close(&p);
}
END_TEST

/* A driver that does not look at the label: the numbers of the queue pairs make the port. */
START_TEST(label_ignored)
{
    struct pair_cfg c = {.spines = 8};
    struct ibv_qp *qp[2];
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 provider mlx4");
    connect(&p, qp, 42, 42);
    ck_assert_uint_eq(fab_ibv_qp(qp[0])->sport, fab_udp_sport(0, qp[0]->qp_num, qp[1]->qp_num));
    ck_assert_uint_eq(fab_ibv_qp(qp[1])->sport, 0xC02A);
    ck_assert_int_eq(pair_to_state(&p, qp[0], IBV_QPS_ERR), 0);
    ck_assert_int_eq(post_on(&p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 8), 0); /* else as mlx5 */
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_WR_FLUSH_ERR);
    disconnect(&p, qp);
    pair_fault(&p, "h0:n0 provider plain");
    connect(&p, qp, 42, 42);
    ck_assert_uint_eq(fab_ibv_qp(qp[0])->sport, 0xC02A);
    disconnect(&p, qp);
    connect(&p, qp, 0, 0);
    ck_assert_uint_eq(fab_ibv_qp(qp[0])->sport, fab_ibv_qp(qp[1])->sport);
    disconnect(&p, qp);
    pair_close(&p);
}
END_TEST

/* A run of some packets: the digest, and that spines of a fabric of one cannot be broken. */
static uint64_t run_digest(int spines, uint32_t label)
{
    struct pair_cfg c = {.spines = spines, .seed = 9, .rate = 100000000, .opts = {.dma_ns = 500}};
    struct ibv_qp *qp[2];
    struct pair p;
    char err[200];
    uint64_t digest;

    c.opts.jitter_ns = 3000;
    pair_open(&p, &c);
    connect(&p, qp, label, label);
    ck_assert_int_eq(post_on(&p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 100000), 0);
    ck_assert_int_eq(post_on(&p, qp[1], 1, IBV_WR_RDMA_READ, 2, 100000), 0);
    pair_run(&p);
    digest = fab_inproc_digest(p.f);
    if (spines <= 1) {
        ck_assert_int_eq(fab_inproc_fault(p.f, "spine 0 blackhole", err, sizeof err), -1);
        ck_assert_ptr_nonnull(strstr(err, "spine 0"));
        ck_assert_ptr_null(fab_inproc_spine(p.f, 0, 0));
        ck_assert_int_eq(way(&p, qp[0]), -1);
    } else {
        ck_assert_int_ge(way(&p, qp[0]), 0);
    }
    disconnect(&p, qp);
    pair_close(&p);
    return digest;
}

START_TEST(healthy_spines_change_nothing)
{
    uint64_t one = run_digest(0, 0);

    ck_assert_uint_eq(run_digest(1, 0), one);
    ck_assert_uint_eq(run_digest(1, 77), one);
    ck_assert_uint_eq(run_digest(64, 77), one);
}
END_TEST

/* A port that talks to itself meets no spine. */
START_TEST(loops_stay_inside)
{
    struct pair_cfg c = {.spines = 2};
    struct ibv_qp *qp[2];
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "spine * blackhole");
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_nonnull(qp[i] = pair_new_qp(&p, &p.s[0]));
        ck_assert_int_eq(pair_to_init(&p, qp[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_to_rtr(&p, qp[i], &p.s[0].gid, qp[!i]->qp_num, 5), 0);
        ck_assert_int_eq(pair_to_rts(&p, qp[i], 5), 0);
    }
    ck_assert_int_eq(way(&p, qp[0]), -1);
    ck_assert_int_eq(post_on(&p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(TOTAL(&p, packets), 0);
    disconnect(&p, qp);
    pair_close(&p);
}
END_TEST

/* Whether a write of the pair's own queue pair goes through. */
static bool passes(struct pair *p)
{
    struct ibv_qp *qp[2];
    struct ibv_wc wc;

    connect(p, qp, 1, 1);
    ck_assert_int_eq(post_on(p, qp[0], 0, IBV_WR_RDMA_WRITE, 1, 8), 0);
    pair_run(p);
    ck_assert_int_eq(pair_poll(p, 0, &wc), 1);
    disconnect(p, qp);
    return wc.status == IBV_WC_SUCCESS;
}

START_TEST(rails_and_restore)
{
    struct pair_cfg c = {.spines = 2, .timeout = 8, .retry = 1};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "rail 1 spine * blackhole");
    ck_assert(passes(&p));
    pair_fault(&p, "rail 0 spine * blackhole");
    ck_assert(!passes(&p));
    pair_fault(&p, "*:n1 restore");
    pair_fault(&p, "h0:n0 restore");
    pair_fault(&p, "h1:n0 restore");
    ck_assert(!passes(&p));
    pair_fault(&p, "*:n0 restore");
    ck_assert(passes(&p));
    pair_fault(&p, "spine * loss 100%");
    ck_assert(!passes(&p));
    pair_fault(&p, "*:* restore");
    ck_assert(passes(&p));
    pair_fault(&p, "rail * spine * loss 100%");
    pair_fault(&p, "spine * up");
    ck_assert(!passes(&p));
    pair_fault(&p, "spine * restore");
    ck_assert(passes(&p));
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_ways");
    TCase *t = tcase_create("ways");

    tcase_add_test(t, each_end_has_its_own_port);
    tcase_add_test(t, blackhole_swallows_its_own);
    tcase_add_test(t, blackhole_ends);
    tcase_add_test(t, down_moves_its_own);
    tcase_add_test(t, loss);
    tcase_add_loop_test(t, hash_of_queue_pairs, 0, 2);
    tcase_add_test(t, label_ignored);
    tcase_add_test(t, healthy_spines_change_nothing);
    tcase_add_test(t, loops_stay_inside);
    tcase_add_test(t, rails_and_restore);
    suite_add_tcase(s, t);
    return pair_main(s);
}
