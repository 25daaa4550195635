/* Device model: each operation, what it writes, what it completes, in which order. */
#include "tests/unit/test_fabric_pair.h"

#include <poll.h>

START_TEST(write_with_imm)
{
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, NULL);
    pair_fill(p.s[0].buf, 100000, 1);
    ck_assert_int_eq(pair_recv(&p, 1, 77, 0, 0), 0);
    ck_assert_int_eq(
        pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 4096, 100000, IBV_SEND_SIGNALED), 0);
    pair_expect_none(&p, 1);
    pair_run(&p);
    wc = pair_expect(&p, 1, 77, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    ck_assert_uint_eq(wc.byte_len, 100000);
    ck_assert_uint_eq(be32toh(wc.imm_data), 0x1005);
    ck_assert_uint_eq(wc.wc_flags, IBV_WC_WITH_IMM);
    ck_assert_uint_eq(wc.qp_num, p.s[1].qp->qp_num);
    wc = pair_expect(&p, 0, 5, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_WRITE);
    ck_assert_uint_eq(wc.qp_num, p.s[0].qp->qp_num);
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf + 4096, 100000), 0);
    ck_assert_uint_eq(p.s[1].buf[4095], 0);
    ck_assert_uint_eq(p.s[1].buf[4096 + 100000], 0);
    pair_close(&p);
}
END_TEST

/* A list is taken whole, or up to the one that *bad names: what stands before it is under way. */
START_TEST(lists_and_a_driver_that_cuts_them)
{
    struct pair p;
    struct ibv_sge sge;
    struct ibv_send_wr wr[2], *bad = NULL;

    pair_open(&p, NULL);
    fab_inproc_nic(p.f, 0, 0)->list_cut = 2;
    for (int i = 1; i <= 4; i++) {
        sge = (struct ibv_sge){.addr = (uintptr_t)p.s[0].buf, .length = 8, .lkey = p.s[0].mr->lkey};
        for (int k = 0; k < 2; k++) {
            wr[k] = (struct ibv_send_wr){
                .wr_id = (uint64_t)(10 * i + k),
                .next = k ? NULL : &wr[1],
                .sg_list = &sge,
                .num_sge = 1,
                .opcode = IBV_WR_RDMA_WRITE,
                .send_flags = IBV_SEND_SIGNALED,
                .wr.rdma = {(uintptr_t)p.s[1].buf + (uintptr_t)(8 * (2 * i + k)), p.s[1].mr->rkey}};
        }
        memset(p.s[0].buf, 0x55, 8);
        ck_assert_int_eq(ibv_post_send(p.s[0].qp, wr, &bad), i % 2 ? 0 : ENOMEM);
        ck_assert(i % 2 || bad == &wr[1]);
        pair_run(&p);
        pair_expect(&p, 0, (uint64_t)(10 * i), IBV_WC_SUCCESS);
        if (i % 2) {
            pair_expect(&p, 0, (uint64_t)(10 * i + 1), IBV_WC_SUCCESS);
        }
        pair_expect_none(&p, 0);
        ck_assert_uint_eq(p.s[1].buf[16 * i], 0x55);
        ck_assert_uint_eq(p.s[1].buf[16 * i + 8], i % 2 ? 0x55 : 0);
    }
    ck_assert_uint_eq(fab_inproc_nic(p.f, 0, 0)->cnt.lists, 4);
    ck_assert_uint_eq(fab_inproc_nic(p.f, 0, 0)->cnt.lists_cut, 2);
    pair_close(&p);
}
END_TEST

/* Sizes around the segment, also nothing at all. */
static const uint32_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 500001};

START_TEST(send_sizes)
{
    uint32_t len = sizes[_i];
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, NULL);
    pair_fill(p.s[0].buf, len, 2);
    ck_assert_int_eq(pair_recv(&p, 1, 1, 64, 600000), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 2, 0, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 8, 0, 0, len, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND_WITH_IMM, 9, 0, 0, 0, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    wc = pair_expect(&p, 1, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
    ck_assert_uint_eq(wc.byte_len, len);
    ck_assert_uint_eq(wc.wc_flags, 0);
    wc = pair_expect(&p, 1, 2, IBV_WC_SUCCESS);
    ck_assert_uint_eq(wc.byte_len, 0);
    ck_assert_uint_eq(be32toh(wc.imm_data), 0x1009);
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf + 64, len), 0);
    ck_assert_uint_eq(p.s[1].buf[64 + len], 0);
    ck_assert_int_eq(pair_expect(&p, 0, 8, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
    pair_expect(&p, 0, 9, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

START_TEST(read_sizes)
{
    uint32_t len = sizes[_i];
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, NULL);
    pair_fill(p.s[1].buf + 10, len, 3);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_READ, 4, 5, 10, len, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    wc = pair_expect(&p, 0, 4, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RDMA_READ);
    ck_assert_uint_eq(wc.byte_len, len);
    ck_assert_int_eq(memcmp(p.s[0].buf + 5, p.s[1].buf + 10, len), 0);
    ck_assert_uint_eq(p.s[0].buf[5 + len], 0);
    pair_expect_none(&p, 1);
    pair_close(&p);
}
END_TEST

/* A read sees the writes before it, also while these are still on their way to memory. */
START_TEST(read_after_write)
{
    struct pair_cfg c = {.opts = {.dma_ns = 50 * PAIR_US}};
    struct pair p;

    for (uint64_t seed = 0; seed < 20; seed++) {
        c.seed = seed;
        pair_open(&p, &c);
        pair_fill(p.s[0].buf, 20000, 4 + (uint32_t)seed);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 20000, 0), 0);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_READ, 2, 50000, 0, 20000, IBV_SEND_SIGNALED),
                         0);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 3, 100000, 0, 20000,
                                   IBV_SEND_SIGNALED | IBV_SEND_FENCE),
                         0);
        pair_run(&p);
        pair_expect(&p, 0, 2, IBV_WC_SUCCESS);
        ck_assert_int_eq(memcmp(p.s[0].buf, p.s[0].buf + 50000, 20000), 0);
        pair_expect(&p, 0, 3, IBV_WC_SUCCESS);
        ck_assert_uint_eq(p.s[1].buf[1], 0);
        pair_close(&p);
    }
}
END_TEST

/* More reads than may be outstanding wait for their turn; the fenced write takes what a read
 * brought. */
START_TEST(reads_queue_and_fence)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fill(p.s[1].buf, 200000, 5);
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert_int_eq(
            pair_post(&p, 0, IBV_WR_RDMA_READ, i, i * 10000, i * 10000, 10000, IBV_SEND_SIGNALED),
            0);
    }
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 20, 0, 300000, 200000,
                               IBV_SEND_SIGNALED | IBV_SEND_FENCE),
                     0);
    pair_run(&p);
    for (uint32_t i = 0; i < 21; i++) {
        pair_expect(&p, 0, i, IBV_WC_SUCCESS);
    }
    ck_assert_int_eq(memcmp(p.s[1].buf + 300000, p.s[1].buf, 200000), 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->inv_naks, 0);
    pair_close(&p);
}
END_TEST

START_TEST(inline_is_copied_at_post)
{
    struct ibv_send_wr wr = {.wr_id = 1,
                             .num_sge = 2,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_INLINE},
                       *bad;
    struct ibv_sge sge[2];
    char a[5] = "head", b[6] = " tail"; /* not registered */
    struct pair p;

    pair_open(&p, NULL);
    sge[0] = (struct ibv_sge){.addr = (uintptr_t)a, .length = 4};
    sge[1] = (struct ibv_sge){.addr = (uintptr_t)b, .length = 6};
    wr.sg_list = sge;
    wr.wr.rdma.remote_addr = (uintptr_t)p.s[1].buf;
    wr.wr.rdma.rkey = p.s[1].mr->rkey;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    memset(a, 'x', 4);
    memset(b, 'x', 5);
    pair_run(&p);
    ck_assert_str_eq((char *)p.s[1].buf, "head tail");
    sge[0].length = 129; /* one more than max_inline_data */
    wr.num_sge = 1;
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), EINVAL);
    ck_assert_ptr_eq(bad, &wr);
    pair_close(&p);
}
END_TEST

START_TEST(scatter_gather)
{
    struct ibv_sge from[3], to[4];
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = from, .num_sge = 3, .opcode = IBV_WR_SEND},
                       *bad;
    struct ibv_recv_wr rr = {.wr_id = 2, .sg_list = to, .num_sge = 4}, *rbad;
    uint8_t flat[12003];
    struct pair p;

    pair_open(&p, NULL);
    pair_fill(p.s[0].buf, 100000, 6);
    from[0] = (struct ibv_sge){(uintptr_t)p.s[0].buf, 5000, p.s[0].mr->lkey};
    from[1] = (struct ibv_sge){(uintptr_t)p.s[0].buf + 20000, 3, p.s[0].mr->lkey};
    from[2] = (struct ibv_sge){(uintptr_t)p.s[0].buf + 30000, 7000, p.s[0].mr->lkey};
    memcpy(flat, p.s[0].buf, 5000);
    memcpy(flat + 5000, p.s[0].buf + 20000, 3);
    memcpy(flat + 5003, p.s[0].buf + 30000, 7000);
    to[0] = (struct ibv_sge){(uintptr_t)p.s[1].buf, 1, p.s[1].mr->lkey};
    to[1] = (struct ibv_sge){(uintptr_t)p.s[1].buf + 100, 0, p.s[1].mr->lkey};
    to[2] = (struct ibv_sge){(uintptr_t)p.s[1].buf + 200, 9000, p.s[1].mr->lkey};
    to[3] = (struct ibv_sge){(uintptr_t)p.s[1].buf + 50000, 9000, p.s[1].mr->lkey};
    ck_assert_int_eq(ibv_post_recv(p.s[1].qp, &rr, &rbad), 0);
    ck_assert_int_eq(ibv_post_send(p.s[0].qp, &wr, &bad), 0);
    pair_run(&p);
    ck_assert_uint_eq(pair_expect(&p, 1, 2, IBV_WC_SUCCESS).byte_len, 12003);
    ck_assert_int_eq(p.s[1].buf[0], flat[0]);
    ck_assert_int_eq(memcmp(p.s[1].buf + 200, flat + 1, 9000), 0);
    ck_assert_int_eq(memcmp(p.s[1].buf + 50000, flat + 9001, 3002), 0);
    ck_assert_uint_eq(p.s[1].buf[53002], 0);
    pair_close(&p);
}
END_TEST

/* Unsignaled sends complete silently and their slots come back only with a later signaled
 * completion that was polled.
 */
START_TEST(slots_come_back_with_signaled)
{
    struct pair_cfg c = {.wr = 8};
    struct pair p;

    pair_open(&p, &c);
    for (uint32_t i = 0; i < 7; i++) {
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 0, 64, 0), 0);
    }
    pair_run(&p);
    pair_expect_none(&p, 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 7, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 8, 0, 0, 64, 0), ENOMEM);
    pair_run(&p);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 8, 0, 0, 64, 0), ENOMEM);
    pair_expect(&p, 0, 7, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i, 0, 0, 64, 0), 0);
    }
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 8, 0, 0, 64, 0), ENOMEM);
    pair_close(&p);
}
END_TEST

START_TEST(receive_slots_come_back_with_polling)
{
    struct pair_cfg c = {.wr = 2};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_recv(&p, 1, 1, 0, 64), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 2, 0, 64), 0);
    ck_assert_int_eq(pair_recv(&p, 1, 3, 0, 64), ENOMEM);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 64, 0), 0);
    pair_run(&p);
    ck_assert_int_eq(pair_recv(&p, 1, 3, 0, 64), ENOMEM);
    pair_expect(&p, 1, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(pair_recv(&p, 1, 3, 0, 64), 0);
    pair_close(&p);
}
END_TEST

START_TEST(all_signaled)
{
    struct pair_cfg c = {.sig_all = 1};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 64, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/* Both directions at once, all operations mixed, with every delay the engine has: everything
 * completes, in order. */
START_TEST(both_ways_in_order)
{
    static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                             IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
                                             IBV_WR_RDMA_READ};
    struct pair_cfg c = {
        .seed = (uint64_t)_i,
        .rate = _i & 1 ? 1000000000 : 0,
        .opts = {.jitter_ns = 20 * PAIR_US, .dma_ns = 30 * PAIR_US, .cqe_ns = 10 * PAIR_US}};
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, &c);
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < 30; i++) {
            ck_assert_int_eq(pair_recv(&p, side, 1000 + i, 500000, 60000), 0);
        }
        for (uint32_t i = 0; i < 50; i++) {
            ck_assert_int_eq(
                pair_post(&p, side, ops[i % 5], i, 0, 0, i * 1000 % 50000, IBV_SEND_SIGNALED), 0);
        }
    }
    pair_run(&p);
    for (int side = 0; side < 2; side++) {
        uint64_t sends = 0, recvs = 0;

        while (pair_poll(&p, side, &wc) == 1) {
            ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
            ck_assert_uint_eq(wc.wr_id, wc.wr_id >= 1000 ? 1000 + recvs++ : sends++);
        }
        ck_assert_uint_eq(sends, 50);
        ck_assert_uint_eq(recvs, 20);
        ck_assert_uint_eq(pair_cnt(&p, side)->rx_duplicate, 0);
        ck_assert_uint_eq(pair_cnt(&p, side)->rx_out_of_sequence, 0);
    }
    pair_close(&p);
}
END_TEST

START_TEST(undefined_fields_are_poisoned)
{
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, NULL);
    ck_assert_int_eq(pair_recv(&p, 1, 1, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 2, 0, 0, 64, 0), 0);
    pair_run(&p);
    wc = pair_expect(&p, 1, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(wc.imm_data, 0xa5a5a5a5);
    ck_assert_int_eq(pair_recv(&p, 1, 3, 0, 64), 0);
    ck_assert_int_eq(pair_to_state(&p, p.s[1].qp, IBV_QPS_ERR), 0);
    pair_run(&p);
    wc = pair_expect(&p, 1, 3, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(wc.byte_len, 0xa5a5a5a5);
    ck_assert_uint_eq((uint32_t)wc.opcode, 0xa5a5a5a5);
    ck_assert_uint_eq(wc.qp_num, p.s[1].qp->qp_num);
    ck_assert_uint_ne(wc.vendor_err, 0);
    pair_close(&p);
}
END_TEST

static int readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, 0);
}

START_TEST(completion_events)
{
    struct pair p;
    struct ibv_cq *cq;
    void *context;

    pair_open(&p, NULL);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pair_recv(&p, 1, (uint64_t)i, 0, 64), 0);
    }
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    ck_assert_int_eq(readable(p.s[1].ch->fd), 0); /* not armed */
    ck_assert_int_eq(p.v.get_cq_event(p.s[1].ch, &cq, &context), -1);
    ck_assert_int_eq(ibv_req_notify_cq(p.s[1].cq, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    ck_assert_int_eq(readable(p.s[1].ch->fd), 1);
    ck_assert_int_eq(p.v.get_cq_event(p.s[1].ch, &cq, &context), 0);
    ck_assert_ptr_eq(cq, p.s[1].cq);
    ck_assert_ptr_eq(context, &p.s[1]);
    ck_assert_int_eq(readable(p.s[1].ch->fd), 0); /* one event per arming */
    ck_assert_int_eq(p.v.destroy_cq(p.s[1].cq), EBUSY);
    p.v.ack_cq_events(cq, 1);
    ck_assert_int_eq(ibv_req_notify_cq(p.s[1].cq, 1), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    ck_assert_int_eq(readable(p.s[1].ch->fd), 0); /* waits for a solicited one */
    ck_assert_int_eq(pair_recv(&p, 1, 9, 0, 64), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, 1, 0, 0, 8, IBV_SEND_SOLICITED), 0);
    pair_run(&p);
    ck_assert_int_eq(readable(p.s[1].ch->fd), 1);
    pair_close(&p); /* with the event still queued */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_ops");
    TCase *t = tcase_create("ops");

    tcase_add_test(t, write_with_imm);
    tcase_add_loop_test(t, send_sizes, 0, 7);
    tcase_add_loop_test(t, read_sizes, 0, 7);
    tcase_add_test(t, read_after_write);
    tcase_add_test(t, reads_queue_and_fence);
    tcase_add_test(t, inline_is_copied_at_post);
    tcase_add_test(t, scatter_gather);
    tcase_add_test(t, slots_come_back_with_signaled);
    tcase_add_test(t, receive_slots_come_back_with_polling);
    tcase_add_test(t, all_signaled);
    tcase_add_loop_test(t, both_ways_in_order, 0, 8);
    tcase_add_test(t, undefined_fields_are_poisoned);
    tcase_add_test(t, completion_events);
    tcase_add_test(t, lists_and_a_driver_that_cuts_them);
    suite_add_tcase(s, t);
    return pair_main(s);
}
