/*
 * Packets that take ways of their own: plain writes of one queue pair are placed in any order,
 * and what is told of them stays true.
 */
#include "tests/unit/test_fabric_pair.h"

#define WRITES 32
#define LATE   (20 * PAIR_US)

static struct pair_cfg reordering(void)
{
    return (struct pair_cfg){.rate = 10000000000ull, .opts = {.nic = {.reorder_ns = LATE}}};
}

/*
 * The same word, written with growing values: some older one comes last. Nothing is acknowledged
 * before it is placed.
 */
START_TEST(older_write_lands_on_a_newer_one)
{
    struct pair_cfg c = reordering();
    struct pair p;
    uint64_t *src, *word, back = 0;

    pair_open(&p, &c);
    src = (uint64_t *)p.s[0].buf;
    word = (uint64_t *)p.s[1].buf;
    for (int round = 0; round < 50; round++) {
        struct ibv_wc wc;

        *word = 0;
        for (uint64_t i = 0; i < WRITES; i++) {
            src[i] = i + 1;
            ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 100 + i, (uint32_t)(8 * i),
                                       4096 + (uint32_t)(8 * i), 8, 0),
                             0);
            ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, (uint32_t)(8 * i), 0, 8,
                                       i + 1 == WRITES ? IBV_SEND_SIGNALED : 0),
                             0);
        }
        while (pair_poll(&p, 0, &wc) == 0) {
            ck_assert_int_ne(fab_inproc_step(p.f), 0);
        }
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
        ck_assert_uint_ne(*word, 0);
        for (uint64_t i = 0; i < WRITES; i++) {
            ck_assert_uint_eq(((uint64_t *)(p.s[1].buf + 4096))[i], i + 1);
        }
        back += *word != WRITES;
        pair_run(&p);
        memset(p.s[1].buf, 0, 8192);
    }
    ck_assert_uint_ge(back, 25);
    ck_assert_uint_gt(pair_cnt(&p, 1)->overtaken, 0);
    ck_assert_uint_eq(pair_cnt(&p, 0)->timeouts, 0);
    pair_close(&p);
}
END_TEST

/*
 * The bytes are there when what tells of them is: a write with immediate, a send, a read, the end
 * of the queue pair.
 */
START_TEST(what_tells_of_writes_comes_behind_them)
{
    struct pair_cfg c = reordering();
    struct pair p;
    struct ibv_wc wc;

    c.opts.nic.seg_bytes = 256;
    pair_open(&p, &c);
    for (uint32_t round = 0; round < 40; round++) {
        static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
                                                IBV_WR_RDMA_READ};
        int reads = round % 3 == 2;

        pair_fill(p.s[0].buf, 8192, round);
        memset(p.s[1].buf, 0, 8192);
        if (!reads) {
            ck_assert_int_eq(pair_recv(&p, 1, 9, 65536, 64), 0);
        }
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8192, 0), 0);
        ck_assert_int_eq(
            pair_post(&p, 0, op[round % 3], 2, reads ? 65536 : 0, 0, 64, IBV_SEND_SIGNALED), 0);
        while (pair_poll(&p, !reads, &wc) == 0) {
            ck_assert_int_ne(fab_inproc_step(p.f), 0);
        }
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
        ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf, 8192), 0);
        ck_assert(!reads || memcmp(p.s[0].buf + 65536, p.s[1].buf, 64) == 0);
        pair_run(&p);
        if (!reads) {
            pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
        }
    }
    ck_assert_uint_gt(pair_cnt(&p, 1)->overtaken, 0);
    pair_close(&p);
}
END_TEST

/* A flush comes out when nothing of the queue pair lands any more; a destroyed one's writes still
 * land, and end. */
START_TEST(writes_put_aside_at_the_end)
{
    struct pair_cfg c = reordering();
    struct pair p;
    struct ibv_wc wc;
    uint32_t changed = 0;

    for (int destroy = 0; destroy < 2; destroy++) {
        pair_open(&p, &c);
        ck_assert_int_eq(pair_recv(&p, 1, 9, 65536, 64), 0);
        for (uint32_t i = 0; i < WRITES; i++) {
            ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 64 * i, 64, 0), 0);
        }
        pair_run_for(&p, 3 * PAIR_US);
        if (destroy) {
            ck_assert_int_eq(p.v.destroy_qp(p.s[1].qp), 0);
            p.s[1].qp = NULL;
        } else {
            ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, IBV_QPS_ERR), 0);
            while (pair_poll(&p, 1, &wc) == 0) {
                ck_assert_int_ne(fab_inproc_step(p.f), 0);
            }
            ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
            memset(p.s[1].buf, 0xaa, PAIR_BUF);
        }
        pair_run(&p);
        for (uint32_t i = 0; !destroy && i < PAIR_BUF; i++) {
            changed += p.s[1].buf[i] != 0xaa;
        }
        ck_assert_uint_eq(changed, 0);
        pair_close(&p);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric reorder");
    TCase *t = tcase_create("reorder");

    tcase_add_test(t, older_write_lands_on_a_newer_one);
    tcase_add_test(t, what_tells_of_writes_comes_behind_them);
    tcase_add_test(t, writes_put_aside_at_the_end);
    suite_add_tcase(s, t);
    return pair_main(s);
}
