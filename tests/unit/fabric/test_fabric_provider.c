/* NICs whose library keeps its own account of queue pairs in ERR (fab_fault.h, `provider`). */
#include "tests/unit/test_fabric_pair.h"

#include <errno.h>
#include <stdio.h>

#define LINGER (2 * PAIR_MS)

/* Receive 1, which an arrival will take, and 2, at host 1, and send 3 there, which waits for a peer
 * that does not answer. */
static void begin(struct pair *p, const char *kind)
{
    struct pair_cfg c = {.timeout = 22, .opts = {.nic = {.linger_ns = LINGER}}};
    char text[40];

    pair_open(p, &c);
    snprintf(text, sizeof text, "h1:n0 provider %s", kind);
    pair_fault(p, text);
    ck_assert_int_eq(pair_recv(p, 1, 1, 0, 64), 0);
    ck_assert_int_eq(pair_recv(p, 1, 2, 64, 64), 0);
    pair_fault(p, "h0:n0 blackhole-rx");
    ck_assert_int_eq(pair_post(p, 1, IBV_WR_RDMA_WRITE, 3, 0, 512, 64, 0), 0);
    pair_run_for(p, 100 * PAIR_US);
    memset(p->s[0].buf, 'x', 64);
}

static int to_err(struct pair *p, int i)
{
    return pair_to_state(p, p->s[i].qp, IBV_QPS_ERR);
}

/* What was under way to host 1 when it was moved to ERR: written, in the receive that its library
 * has flushed. */
static void arrives(struct pair *p, int flushed)
{
    pair_run_for(p, 100 * PAIR_US);
    ck_assert_int_eq(p->s[1].buf[1024], 'x');
    if (flushed) {
        pair_expect(p, 1, 1, IBV_WC_SUCCESS);
    }
    ck_assert_uint_eq(pair_cnt(p, 1)->lingered, 1);
}

START_TEST(plain_takes_what_is_posted)
{
    struct pair p;

    begin(&p, "plain");
    ck_assert_int_eq(to_err(&p, 1), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 4, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), 0);
    pair_run_for(&p, 100 * PAIR_US);
    pair_expect(&p, 1, 3, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_ne(pair_expect(&p, 1, 1, IBV_WC_WR_FLUSH_ERR).vendor_err, 0);
    pair_expect(&p, 1, 2, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 1, 4, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 1, 5, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 1)->posts_refused + pair_cnt(&p, 1)->flushes_made_up, 0);
    pair_close(&p);
}
END_TEST

START_TEST(send_refused)
{
    struct pair p;

    begin(&p, "send-refused");
    ck_assert_int_eq(to_err(&p, 1), 0);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), EINVAL);
    ck_assert_int_eq(pair_recv(&p, 1, 4, 0, 64), 0);
    pair_run_for(&p, 100 * PAIR_US);
    pair_expect(&p, 1, 3, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 1, 1, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 1, 2, IBV_WC_WR_FLUSH_ERR);
    pair_expect(&p, 1, 4, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 1)->posts_refused, 1);
    pair_close(&p);
}
END_TEST

/* Flushed in the call, with a packet on its way; what the program had in the code's field is left
 * there, or is 0. */
START_TEST(flushes_made_up)
{
    const char *kind = _i ? "ionic" : "bnxt";
    struct ibv_wc wc[8];
    struct pair p;

    begin(&p, kind);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 9, 0, 1024, 64, 0), 0);
    pair_run_for(&p, 100); /* it has left, and takes 1 us */
    ck_assert_int_eq(to_err(&p, 1), 0);
    memset(wc, 0x77, sizeof wc);
    ck_assert_int_eq(ibv_poll_cq(p.s[1].cq, 8, wc), 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(wc[i].status, IBV_WC_WR_FLUSH_ERR);
        ck_assert_uint_eq(wc[i].wr_id, i == 0 ? 3 : (unsigned)i);
        ck_assert_uint_eq(wc[i].vendor_err, _i ? 0 : 0x77777777);
    }
    ck_assert_int_ne(p.s[1].buf[1024], 'x');
    ck_assert_int_eq(pair_recv(&p, 1, 4, 0, 64), _i ? 0 : EINVAL);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), _i ? 0 : EINVAL);
    if (_i) {
        pair_expect(&p, 1, 4, IBV_WC_WR_FLUSH_ERR);
        pair_expect(&p, 1, 5, IBV_WC_WR_FLUSH_ERR);
    }
    arrives(&p, 1);
    ck_assert_uint_eq(pair_cnt(&p, 1)->late_arrivals, 1);
    ck_assert_uint_eq(pair_cnt(&p, 1)->flushes_made_up, 3u + 2u * (unsigned)_i);
    pair_close(&p);
}
END_TEST

START_TEST(takes_nothing_behind_the_linger)
{
    struct pair p;

    begin(&p, "bnxt");
    ck_assert_int_eq(to_err(&p, 1), 0);
    pair_run_for(&p, LINGER);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 9, 0, 1024, 64, 0), 0);
    pair_run_for(&p, 100 * PAIR_US);
    ck_assert_int_ne(p.s[1].buf[1024], 'x');
    ck_assert_uint_eq(pair_cnt(&p, 1)->lingered, 0);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_wrong_state, 0);
    pair_close(&p);
}
END_TEST

START_TEST(nothing_flushed)
{
    struct pair p;

    begin(&p, "mana");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 9, 0, 1024, 64, 0), 0);
    pair_run_for(&p, 100);
    ck_assert_int_eq(to_err(&p, 1), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 4, 0, 64), EINVAL);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), EINVAL);
    pair_expect_none(&p, 1);
    arrives(&p, 1);
    pair_run_for(&p, 10 * PAIR_MS);
    pair_expect_none(&p, 1);
    pair_close(&p);
}
END_TEST

/* An inline write of 8 bytes by @lkey, whose source changes behind the post. */
static void inline_write(struct pair *p, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)p->s[0].buf, .length = 8, .lkey = lkey};
    struct ibv_send_wr *bad,
        wr = {.wr_id = 7,
              .sg_list = &sge,
              .num_sge = 1,
              .opcode = IBV_WR_RDMA_WRITE,
              .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
              .wr.rdma = {.remote_addr = (uintptr_t)p->s[1].buf, .rkey = p->s[1].mr->rkey}};

    memset(p->s[0].buf, 'a', 8);
    ck_assert_int_eq(ibv_post_send(p->s[0].qp, &wr, &bad), 0);
    memset(p->s[0].buf, 'b', 8);
    pair_run_for(p, 100 * PAIR_US);
}

/* Others take inline data at the post, whatever the key; mana's library grants it and passes the
 * element on. */
START_TEST(inline_data_and_its_key)
{
    bool mana = _i & 1, keyed = _i & 2;
    struct pair_cfg c = {0};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, mana ? "h0:n0 provider mana" : "h0:n0 provider plain");
    inline_write(&p, keyed ? p.s[0].mr->lkey : 0);
    pair_expect(&p, 0, 7, mana && !keyed ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
    ck_assert_int_eq(p.s[1].buf[0], !mana ? 'a' : keyed ? 'b' : 0);
    pair_close(&p);
}
END_TEST

START_TEST(a_hung_one_answers_no_command)
{
    struct pair p;

    begin(&p, "ionic");
    pair_fault(&p, "h1:n0 hang");
    ck_assert_int_eq(to_err(&p, 1), ETIMEDOUT);
    pair_expect_none(&p, 1);
    pair_fault(&p, "h1:n0 unhang");
    ck_assert_int_eq(to_err(&p, 1), 0);
    pair_expect(&p, 1, 3, IBV_WC_WR_FLUSH_ERR);
    pair_close(&p);
}
END_TEST

/* It is how the device is, not what happened to it. */
START_TEST(outlives_restore)
{
    struct pair p;

    begin(&p, "send-refused");
    pair_fault(&p, "h1:n0 restore");
    ck_assert_int_eq(to_err(&p, 1), 0);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), EINVAL);
    pair_fault(&p, "h1:n0 provider plain");
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 5, 0, 0, 64, 0), 0);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_provider");
    TCase *t = tcase_create("provider");

    tcase_add_test(t, plain_takes_what_is_posted);
    tcase_add_test(t, send_refused);
    tcase_add_loop_test(t, flushes_made_up, 0, 2);
    tcase_add_test(t, takes_nothing_behind_the_linger);
    tcase_add_test(t, nothing_flushed);
    tcase_add_loop_test(t, inline_data_and_its_key, 0, 4);
    tcase_add_test(t, a_hung_one_answers_no_command);
    tcase_add_test(t, outlives_restore);
    suite_add_tcase(s, t);
    return pair_main(s);
}
