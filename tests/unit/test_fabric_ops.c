/* Device model: each operation, what it writes, what it completes. */
#include "test_fabric_pair.h"

START_TEST(write_with_imm)
{
    struct pair p;
    struct ibv_wc wc;

    pair_open(&p, NULL);
    pair_fill(p.s[0].buf, 100000, 1);
    ck_assert_int_eq(pair_recv(&p, 1, 77, 0, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 4096, 100000, IBV_SEND_SIGNALED), 0);
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
    ck_assert_int_eq(memcmp(p.s[0].buf, p.s[1].buf + 4096, 100000), 0);
    ck_assert_uint_eq(p.s[1].buf[4095], 0);
    ck_assert_uint_eq(p.s[1].buf[4096 + 100000], 0);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_ops");
    TCase *t = tcase_create("ops");

    tcase_add_test(t, write_with_imm);
    suite_add_tcase(s, t);
    return pair_main(s);
}
