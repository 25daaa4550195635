/* Device model: time-outs, retries, receiver not ready; all times exact in virtual time. */
#include "tests/unit/test_fabric_pair.h"

/* The time at which the send of side 0 fails, from its post. */
static uint64_t time_to_fail(struct pair *p, enum ibv_wc_status status)
{
    uint64_t start = fab_inproc_now(p->f);
    struct ibv_wc wc;

    while (pair_poll(p, 0, &wc) == 0) {
        ck_assert_msg(fab_inproc_step(p->f), "nothing left to happen, and no completion");
    }
    ck_assert_int_eq(wc.status, status);
    return fab_inproc_now(p->f) - start;
}

static const struct {
    int timeout, retry;
} times[] = {{8, 1}, {14, 3}, {14, 7}, {18, 2}, {20, 6}, {1, 3}, {14, -1}};

START_TEST(retry_time_is_the_formula)
{
    struct pair_cfg c = {.timeout = times[_i].timeout, .retry = times[_i].retry};
    uint64_t retries = c.retry < 0 ? 0 : (uint64_t)c.retry;
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h1:n0 blackhole");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, 0),
                     0); /* unsignaled: fails all the same */
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 64, 0), 0);
    ck_assert_uint_eq(time_to_fail(&p, IBV_WC_RETRY_EXC_ERR),
                      (retries + 1) * (4096ull << c.timeout));
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(p.s[0].qp->state,
                     IBV_QPS_RTS); /* the program's copy; the device knows better: */
    ck_assert_int_eq(fab_ibv_qp(p.s[0].qp)->state, IBV_QPS_ERR);
    ck_assert_uint_eq(pair_cnt(&p, 0)->timeouts, retries + 1);
    ck_assert_uint_eq(pair_cnt(&p, 0)->retry_exceeded, 1);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_dropped, (retries + 1) * 2);
    pair_close(&p);
}
END_TEST

START_TEST(seven_is_for_ever_where_asked)
{
    struct pair_cfg c = {.timeout = 8, .retry = 7, .opts = {.nic = {.retry7_forever = true}}};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h1:n0 blackhole-rx");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 1000 * PAIR_MS);
    pair_expect_none(&p, 0);
    pair_fault(&p, "h1:n0 up");
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

START_TEST(timeout_zero_is_never)
{
    struct pair_cfg c = {.timeout = -1};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 blackhole-tx");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    ck_assert_uint_lt(fab_inproc_now(p.f), PAIR_MS);
    pair_expect_none(&p, 0);
    pair_close(&p);
}
END_TEST

START_TEST(outage_shorter_than_the_retries_heals)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fill(p.s[0].buf, 1000, 9);
    pair_fault(&p, "h0:n0 down");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 1000, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 100 * PAIR_MS);
    pair_fault(&p, "h0:n0 up");
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_lt(2 * (4096ull << 14),
                      fab_inproc_now(p.f)); /* healed at a multiple of the time-out */
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf, 1000), 0);
    pair_expect_event(&p, 0, IBV_EVENT_PORT_ERR);
    pair_expect_event(&p, 0, IBV_EVENT_PORT_ACTIVE);
    pair_expect_no_event(&p, 1);
    pair_close(&p);
}
END_TEST

/* Progress gives back all retries: a transfer that loses its path again and again for less than its
 * retries goes through. */
START_TEST(progress_resets_the_count)
{
    struct pair_cfg c = {.timeout = 8, .retry = 2, .rate = 100000000};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 1000000, IBV_SEND_SIGNALED), 0);
    for (int i = 0; i < 8; i++) {
        pair_run_for(&p, PAIR_MS);
        pair_fault(&p, "h0:n0 blackhole");
        pair_run_for(&p, 2 * PAIR_MS);
        pair_fault(&p, "h0:n0 up");
    }
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_ge(pair_cnt(&p, 0)->timeouts, 8);
    pair_close(&p);
}
END_TEST

START_TEST(rnr_waits_as_long_as_asked)
{
    static const uint64_t wait[] = {10, 1280, 491520, 655360}; /* us */
    static const int code[] = {1, 14, 31, -1};
    struct pair_cfg c = {.min_rnr = code[_i], .rnr = 3, .latency = 1};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 64, 0), 0);
    /* Four tries, three waits; each try goes there and back in 2 ns. */
    ck_assert_uint_eq(time_to_fail(&p, IBV_WC_RNR_RETRY_EXC_ERR), 3 * wait[_i] * 1000 + 4 * 2);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rnr_naks, 4);
    ck_assert_uint_eq(pair_cnt(&p, 0)->rnr_exceeded, 1);
    pair_close(&p);
}
END_TEST

START_TEST(rnr_seven_waits_for_ever)
{
    struct pair_cfg c = {.min_rnr = 12, .rnr = 7}; /* 0.64 ms */
    struct pair p;

    pair_open(&p, &c);
    pair_fill(p.s[0].buf, 30000, 3);
    ck_assert_int_eq(
        pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 30000, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 2, 0, 0, 100, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 500 * PAIR_MS);
    pair_expect_none(&p, 0);
    ck_assert_uint_ge(pair_cnt(&p, 1)->rnr_naks, 500000 / 650);
    ck_assert_uint_eq(pair_cnt(&p, 0)->timeouts, 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->seq_naks, 0); /* what came behind was dropped silently */
    ck_assert_int_eq(pair_recv(&p, 1, 5, 0, 0), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 6, 50000, 100), 0);
    pair_run(&p);
    pair_expect(&p, 1, 5, IBV_WC_SUCCESS);
    pair_expect(&p, 1, 6, IBV_WC_SUCCESS);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf, 30000), 0);
    pair_close(&p);
}
END_TEST

/* Random loss, duplication and late copies: each message arrives once, whole, in order; nothing is
 * executed twice. */
START_TEST(loss_is_hidden)
{
    struct pair_cfg c = {.seed = (uint64_t)_i,
                         .timeout = 10,
                         .retry = 7,
                         .wr = 256,
                         .cqe = 1024,
                         .opts = {.jitter_ns = 5 * PAIR_US,
                                  .dma_ns = 5 * PAIR_US,
                                  .cqe_ns = 3 * PAIR_US,
                                  .ghost_ppm = 20000,
                                  .ghost_ns = 3 * PAIR_MS}};
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, &c);
    pair_fault(&p, "*:n0 loss 2%");
    pair_fault(&p, "*:n0 dup 2%");
    pair_fill(p.s[0].buf, PAIR_BUF, (uint32_t)_i);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t len = i * 37 % 9000;

        ck_assert_int_eq(pair_recv(&p, 1, i, i * 5000, 9000), 0);
        if (i % 7 == 3) {
            ck_assert_int_eq(
                pair_post(&p, 0, IBV_WR_RDMA_READ, i, 900000, 1000000, len, IBV_SEND_SIGNALED), 0);
        } else {
            ck_assert_int_eq(
                pair_post(&p, 0, IBV_WR_SEND_WITH_IMM, i, i * 4000, 0, len, IBV_SEND_SIGNALED), 0);
        }
    }
    pair_run(&p);
    for (uint64_t i = 0, r = 0; i < 200; i++) {
        pair_expect(&p, 0, i, IBV_WC_SUCCESS);
        if (i % 7 == 3) {
            continue;
        }
        wc = pair_expect(&p, 1, r++, IBV_WC_SUCCESS);
        ck_assert_uint_eq(be32toh(wc.imm_data), 0x1000 + i);
        ck_assert_uint_eq(wc.byte_len, i * 37 % 9000);
    }
    pair_expect_none(&p, 0);
    pair_expect_none(&p, 1);
    ck_assert_uint_gt(pair_cnt(&p, 0)->tx_dropped + pair_cnt(&p, 1)->rx_dropped, 0);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_duplicate, 0);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_ghosts, 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->inv_naks, 0);
    pair_close(&p);
}
END_TEST

/* The data is there and its acknowledgement is not: the sender fails, nothing was executed twice.
 */
START_TEST(ack_lost)
{
    struct pair_cfg c = {.timeout = 8, .retry = 2};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h1:n0 ack-lost");
    pair_fill(p.s[0].buf, 1000, 9);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(pair_recv(&p, 1, (uint64_t)i, 0, 0), 0);
    }
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 1000, IBV_SEND_SIGNALED),
                     0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    pair_expect(&p, 1, 0, IBV_WC_SUCCESS);
    pair_expect_none(&p, 1);
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf, 1000), 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_duplicate, 2);
    ck_assert_uint_eq(pair_cnt(&p, 1)->acks_lost, 3);
    ck_assert_uint_eq(pair_cnt(&p, 1)->dma_writes, 1);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 9, 0, 2000, 8, 0),
                     0); /* its own requests do leave */
    pair_run(&p);
    ck_assert_uint_gt(pair_cnt(&p, 0)->rx_wrong_state, 0);
    pair_close(&p);
}
END_TEST

/* A response that is lost shows when a later one arrives: the read is asked for again without
 * waiting for the time-out.
 */
START_TEST(lost_response_is_noticed)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fill(p.s[1].buf, 9000, 1);
    pair_fault(&p, "h1:n0 ack-lost");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_READ, 1, 0, 0, 9000, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 5 * PAIR_US);
    pair_fault(&p, "h1:n0 restore");
    ck_assert_int_eq(pair_post(&p, 0, _i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 2, 20000, 20000, 8,
                               IBV_SEND_SIGNALED),
                     0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf, 9000), 0);
    ck_assert_uint_eq(pair_cnt(&p, 0)->timeouts, 0);
    ck_assert_uint_lt(fab_inproc_now(p.f), 20 * PAIR_US);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_retry");
    TCase *t = tcase_create("retry");

    tcase_add_loop_test(t, retry_time_is_the_formula, 0, 7);
    tcase_add_test(t, seven_is_for_ever_where_asked);
    tcase_add_test(t, timeout_zero_is_never);
    tcase_add_test(t, outage_shorter_than_the_retries_heals);
    tcase_add_test(t, progress_resets_the_count);
    tcase_add_loop_test(t, rnr_waits_as_long_as_asked, 0, 4);
    tcase_add_test(t, rnr_seven_waits_for_ever);
    tcase_add_loop_test(t, loss_is_hidden, 0, 20);
    tcase_add_test(t, ack_lost);
    tcase_add_loop_test(t, lost_response_is_noticed, 0, 2);
    suite_add_tcase(s, t);
    return pair_main(s);
}
