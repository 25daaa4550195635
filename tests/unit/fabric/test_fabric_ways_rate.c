/* Spines that have a rate: who shares it, what is dropped, and which links of leaf switches there
 * are. */
#include "tests/unit/fabric_ways_rig.h"

#include <stdio.h>

/* Who goes over the spine shares its rate; the others do not hear of it. */
START_TEST(rate_is_shared)
{
    struct pair_cfg c = {.spines = 4, .timeout = 20};
    struct flows w;
    enum ibv_wc_status status[FLOWS];
    uint64_t from, took, bytes;
    char text[40];
    int k;

    flows_open(&w, &c);
    k = w.way[0];
    ck_assert_int_gt(flows_on(&w, k), 1);
    snprintf(text, sizeof text, "spine %d rate 10MB/s", k);
    pair_fault(&w.p, text);
    for (uint32_t i = 0; i < FLOWS; i++) {
        if (w.way[i] != k) {
            ck_assert_int_eq(post_on(&w.p, w.qp[i][0], 0, IBV_WR_RDMA_WRITE, i, 64 * 4096), 0);
        }
    }
    from = fab_inproc_now(w.p.f);
    pair_run(&w.p);
    ck_assert_uint_lt(fab_inproc_now(w.p.f) - from, PAIR_MS);
    for (int i = flows_on(&w, k); i < FLOWS; i++) {
        struct ibv_wc wc;

        ck_assert_int_eq(pair_poll(&w.p, 0, &wc), 1);
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    }
    ck_assert_uint_eq(TOTAL(&w.p, queued), 0);
    from = fab_inproc_now(w.p.f);
    flows_write(&w, 64 * 4096, status);
    took = fab_inproc_now(w.p.f) - from;
    bytes = spine(&w.p, k)->bytes;
    ck_assert_uint_eq(bytes, 64u * 4096u * (unsigned)flows_on(&w, k));
    /* Headers and acknowledgements take their part of it. */
    ck_assert_uint_gt(took, bytes * 100);
    ck_assert_uint_lt(took, bytes * 100 * 11 / 10);
    ck_assert_uint_gt(spine(&w.p, k)->queued, 0);
    ck_assert_uint_eq(TOTAL(&w.p, queued), spine(&w.p, k)->queued);
    ck_assert_uint_eq(TOTAL(&w.p, dropped), 0);
    flows_close(&w);
}
END_TEST

/* The queue of a spine has an end, and a queue pair goes on behind what was dropped there. */
START_TEST(rate_drops_what_does_not_fit)
{
    struct pair_cfg c = {.spines = 2, .timeout = 18, .retry = 7};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "spine * rate 400kB/s");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 128 * 4096, IBV_SEND_SIGNALED),
                     0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_gt(TOTAL(&p, dropped), 0);
    pair_close(&p);
}
END_TEST

/* Both hosts write 64 packets at once over spines of 10 MB/s; how long that takes. */
static uint64_t both_write(int leaf)
{
    struct pair_cfg c = {.spines = 2, .timeout = 20, .leaf = leaf};
    struct pair p;
    uint64_t took;

    pair_open(&p, &c);
    pair_fault(&p, "spine * rate 10MB/s");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_post(&p, i, IBV_WR_RDMA_WRITE, 1, 0, 0, 64 * 4096, IBV_SEND_SIGNALED),
                         0);
    }
    took = fab_inproc_now(p.f);
    pair_run(&p);
    took = fab_inproc_now(p.f) - took;
    for (int i = 0; i < 2; i++) {
        pair_expect(&p, i, 1, IBV_WC_SUCCESS);
    }
    ck_assert_uint_eq(TOTAL(&p, bytes), leaf > 1 ? 0 : 2u * 64 * 4096);
    pair_close(&p);
    return took;
}

/* Each link between a leaf switch and a spine has the rate, in each direction; what stays below one
 * leaf switch meets none, whatever becomes of spines. */
START_TEST(links_of_leaf_switches)
{
    uint64_t one_way = 64 * 4096 * 100ull; /* ns */
    struct pair_cfg c = {.spines = 2, .leaf = 2};
    struct pair p;

    ck_assert_uint_gt(both_write(0), 2 * one_way);
    ck_assert_uint_gt(both_write(1), one_way);
    ck_assert_uint_lt(both_write(1), one_way * 12 / 10);
    ck_assert_uint_lt(both_write(2), one_way / 10);
    pair_open(&p, &c);
    ck_assert_int_eq(way(&p, p.s[0].qp), -1);
    pair_fault(&p, "spine * blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 4096, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_ways_rate");
    TCase *t = tcase_create("rate");

    tcase_add_test(t, rate_is_shared);
    tcase_add_test(t, rate_drops_what_does_not_fit);
    tcase_add_test(t, links_of_leaf_switches);
    suite_add_tcase(s, t);
    return pair_main(s);
}
