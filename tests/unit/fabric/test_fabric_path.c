/* What lies between two ports, and what does not: cuts of single paths and of a switch plane; queue
 * pairs whose packets their own port takes back. */
#include "tests/unit/test_fabric_pair.h"

/* A third queue pair, from host 0 to host @far, for what is not cut. Owned by the test until
 * third_close. */
struct third {
    struct side s;
    struct ibv_qp *here;
};

static void third_open(struct pair *p, struct third *t, int far)
{
    struct side keep = p->s[1];

    memset(&p->s[1], 0, sizeof p->s[1]);
    p->s[1].ctx = pair_open_dev(p, far, 0);
    ck_assert_ptr_nonnull(p->s[1].ctx);
    p->s[1].pd = p->v.alloc_pd(p->s[1].ctx);
    p->s[1].cq = p->v.create_cq(p->s[1].ctx, 16, NULL, NULL, 0);
    p->s[1].buf = calloc(1, PAIR_BUF);
    p->s[1].mr = p->v.reg_mr(p->s[1].pd, p->s[1].buf, PAIR_BUF, PAIR_ALL_ACCESS);
    p->s[1].qp = pair_new_qp(p, &p->s[1]);
    ck_assert_int_eq(p->v.query_gid(p->s[1].ctx, 1, 3, &p->s[1].gid), 0);
    t->here = pair_new_qp(p, &p->s[0]);
    pair_connect_qps(p, t->here, p->s[1].qp, 7);
    t->s = p->s[1];
    p->s[1] = keep;
}

static void third_close(struct pair *p, struct third *t)
{
    ck_assert_int_eq(p->v.destroy_qp(t->here), 0);
    ck_assert_int_eq(p->v.destroy_qp(t->s.qp), 0);
    p->v.dereg_mr(t->s.mr);
    p->v.destroy_cq(t->s.cq);
    p->v.dealloc_pd(t->s.pd);
    p->v.close_device(t->s.ctx);
    free(t->s.buf);
}

/* One write of 8 bytes over @qp of side 0 to @addr; its status, -1 when nothing came out. */
static int write_to(struct pair *p, struct ibv_qp *qp, uint8_t *addr, uint32_t rkey)
{
    struct side *s = &p->s[0];
    struct ibv_sge sge = {.addr = (uintptr_t)s->buf, .length = 8, .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 5,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    memset(s->buf, 0x55, 8);
    memset(addr, 0, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)addr;
    wr.wr.rdma.rkey = rkey;
    ck_assert_int_eq(ibv_post_send(qp, &wr, &bad), 0);
    pair_run(p);
    if (pair_poll(p, 0, &wc) != 1) {
        return -1;
    }
    ck_assert(wc.status != IBV_WC_SUCCESS || addr[7] == 0x55);
    return (int)wc.status;
}

static int to_second(struct pair *p)
{
    return write_to(p, p->s[0].qp, p->s[1].buf, p->s[1].mr->rkey);
}

static void again(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_to_state(p, p->s[i].qp, IBV_QPS_RESET), 0);
    }
    pair_connect_qps(p, p->s[0].qp, p->s[1].qp, 99);
}

static const struct pair_cfg three = {.hosts = 3, .timeout = 8, .retry = 2};

/* Exactly the two ports, both ways, in silence; what ends it. */
START_TEST(cut_is_between_two_ports)
{
    static const char *const ends[] = {"h0:n0 heal h1:n0", "h1:n0 heal h0:n0", "h0:n0 restore",
                                       "h1:n0 restore",    "*:* restore",      "*:* heal *:*"};
    struct third t;
    struct pair p;

    pair_open(&p, &three);
    third_open(&p, &t, 2);
    pair_fault(&p, _i & 1 ? "h1:n0 cut h0:n0" : "h0:n0 cut h1:n0");
    ck_assert_int_eq(to_second(&p), IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_eq(p.s[1].buf[7], 0);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 1, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_int_eq(write_to(&p, t.here, t.s.buf, t.s.mr->rkey), IBV_WC_SUCCESS);
    pair_expect_no_event(&p, 0);
    pair_expect_no_event(&p, 1);
    ck_assert_uint_eq(pair_cnt(&p, 0)->faults[FAB_FAULT_CUT], 1);
    ck_assert_uint_eq(pair_cnt(&p, 1)->faults[FAB_FAULT_CUT], 1);
    ck_assert_uint_eq(fab_inproc_nic(p.f, 2, 0)->cnt.faults[FAB_FAULT_CUT], 0);
    pair_fault(&p, "*:* up"); /* of ports, and this is none */
    again(&p);
    ck_assert_int_eq(to_second(&p), IBV_WC_RETRY_EXC_ERR);
    pair_fault(&p, ends[_i]);
    again(&p);
    ck_assert_int_eq(to_second(&p), IBV_WC_SUCCESS);
    ck_assert_uint_eq(
        fab_inproc_nic(p.f, 0, 0)->link.cut[1] | fab_inproc_nic(p.f, 1, 0)->link.cut[0], 0);
    third_close(&p, &t);
    pair_close(&p);
}
END_TEST

/* Requests get there and their acknowledgements do not, or the other way round. */
START_TEST(cut_tx_is_one_way)
{
    struct pair p;

    pair_open(&p, &three);
    memset(p.s[0].buf, 1, 8);
    pair_fault(&p, _i ? "h0:n0 cut-tx h1:n0" : "h1:n0 cut-tx h0:n0");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_eq(p.s[1].buf[0], _i ? 0 : 1);
    pair_fault(&p, "h1:n0 restore");
    again(&p);
    ck_assert_int_eq(to_second(&p), IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/* The delay of a NIC concerns those ports alone that are named; the acknowledgement comes from the
 * other NIC. */
START_TEST(delay_to)
{
    static const struct {
        const char *to;
        uint64_t late;
    } row[] = {{"h0:n0 delay-to h1:n1", 0}, {"h0:n0 delay-to h1:n0", 5}, {"h0:n0 restore", 0}};
    struct pair_cfg c = {.timeout = 20, .nics = 2};
    struct pair p;
    uint64_t at = 0;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 delay 5ms");
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        pair_fault(&p, row[i].to);
        at = fab_inproc_now(p.f);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, i + 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
        pair_run(&p);
        ck_assert_uint_eq(fab_inproc_now(p.f) - at, row[i].late * PAIR_MS + 2 * PAIR_US);
        pair_expect(&p, 0, i + 1, IBV_WC_SUCCESS);
    }
    pair_close(&p);
}
END_TEST

/* A plane: nobody of the rail reaches anybody, other rails are whole. */
START_TEST(plane)
{
    struct third t;
    struct pair p;

    pair_open(&p, &three);
    third_open(&p, &t, 2);
    pair_fault(&p, "*:n1 cut *:n1");
    ck_assert_int_eq(to_second(&p), IBV_WC_SUCCESS);
    pair_fault(&p, "*:n0 cut *:n0");
    ck_assert_int_eq(to_second(&p), IBV_WC_RETRY_EXC_ERR);
    ck_assert_int_eq(write_to(&p, t.here, t.s.buf, t.s.mr->rkey), IBV_WC_RETRY_EXC_ERR);
    pair_fault(&p, "h0:n0 restore"); /* one port is on another plane now: nobody is cut from it */
    again(&p);
    ck_assert_int_eq(to_second(&p), IBV_WC_SUCCESS);
    ck_assert_uint_eq(fab_inproc_nic(p.f, 1, 0)->link.cut[0] & 1, 0);
    ck_assert_uint_eq(fab_inproc_nic(p.f, 1, 0)->link.cut[2] & 1, 1);
    third_close(&p, &t);
    pair_close(&p);
}
END_TEST

START_TEST(cut_needs_ports_of_the_fabric)
{
    static const char *const bad[] = {"h0:n0 cut h3:n0", "h0:n0 cut h1:n2", "h3:n0 cut h0:n0",
                                      "h0:n0 heal h3:n0"};
    char err[200];
    struct pair p;

    pair_open(&p, &three);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(fab_inproc_fault(p.f, bad[i], err, sizeof err), -1);
    }
    ck_assert_uint_eq(pair_cnt(&p, 0)->faults[FAB_FAULT_CUT], 0);
    pair_close(&p);
}
END_TEST

/* The move to RTR looks for the path where a test asks for that. */
START_TEST(cut_at_setup)
{
    struct pair_cfg c = {.no_connect = 1, .opts = {.rtr_needs_path = true}};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_to_init(&p, p.s[0].qp), 0);
    pair_fault(&p, "h1:n0 cut-tx h0:n0");
    ck_assert_int_eq(pair_to_rtr(&p, p.s[0].qp, &p.s[1].gid, 1, 0), ETIMEDOUT);
    pair_fault(&p, "h0:n0 blackhole");
    ck_assert_int_eq(pair_to_rtr(&p, p.s[0].qp, &p.s[0].gid, p.s[0].qp->qp_num, 0),
                     0); /* to itself */
    pair_close(&p);
}
END_TEST

/* ---- loops ---- */

static struct ibv_qp *loop_far; /* NULL: the loop is one queue pair */

/* One queue pair connected to itself, or (@two) to another one on the same port. */
static struct ibv_qp *loop_open(struct pair *p, int two)
{
    struct ibv_qp *a = pair_new_qp(p, &p->s[0]), *b = two ? pair_new_qp(p, &p->s[0]) : a;

    for (int i = 0; i <= two; i++) {
        struct ibv_qp *qp = i ? b : a;

        ck_assert_int_eq(pair_to_init(p, qp), 0);
        ck_assert_int_eq(pair_to_rtr(p, qp, &p->s[0].gid, i ? a->qp_num : b->qp_num, 44), 0);
        ck_assert_int_eq(pair_to_rts(p, qp, 44), 0);
    }
    loop_far = two ? b : NULL;
    return a;
}

static void loop_close(struct pair *p, struct ibv_qp *a)
{
    ck_assert_int_eq(p->v.destroy_qp(a), 0);
    if (loop_far) {
        ck_assert_int_eq(p->v.destroy_qp(loop_far), 0);
    }
}

static int to_itself(struct pair *p, struct ibv_qp *qp)
{
    return write_to(p, qp, p->s[0].buf + 4096, p->s[0].mr->rkey);
}

/* Faults of the link are not seen inside. */
START_TEST(loop_does_not_see_the_link)
{
    static const char *const faults[] = {
        "h0:n0 blackhole",    "h0:n0 blackhole-tx", "h0:n0 blackhole-rx", "h0:n0 loss 100%",
        "h0:n0 corrupt 100%", "h0:n0 dup 100%",     "h0:n0 delay 10s",    "h0:n0 rate 1B/s",
        "h0:n0 ack-lost",     "h0:n0 cut *:*",      "*:n0 cut *:n0",      "h1:n0 down"};
    struct pair_cfg c = {.timeout = 8, .retry = 2};
    struct ibv_qp *loop;
    struct pair p;

    pair_open(&p, &c);
    loop = loop_open(&p, _i & 1);
    ck_assert_int_eq(to_itself(&p, loop), IBV_WC_SUCCESS);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t t = fab_inproc_now(p.f);

        pair_fault(&p, faults[i]);
        ck_assert_msg(to_itself(&p, loop) == IBV_WC_SUCCESS, "%s", faults[i]);
        ck_assert_msg(fab_inproc_now(p.f) - t < 10 * PAIR_US, "%s: %.3f us", faults[i],
                      (double)(fab_inproc_now(p.f) - t) / 1e3);
        ck_assert_uint_eq(pair_cnt(&p, 0)->dups_made + pair_cnt(&p, 0)->tx_dropped +
                              pair_cnt(&p, 0)->rx_dropped,
                          0);
        pair_fault(&p, "*:* restore");
    }
    loop_close(&p, loop);
    pair_close(&p);
}
END_TEST

/* Those of the port and the device are. */
START_TEST(loop_sees_port_and_device)
{
    static const struct {
        const char *fault;
        int status; /* -1: nothing comes out */
    } row[] = {
        {"h0:n0 down", IBV_WC_RETRY_EXC_ERR},
        {"h0:n0 hang", -1},
        {"h0:n0 send-stuck", -1},
        {"h0:n0 send-error", IBV_WC_LOC_QP_OP_ERR},
        {"h0:n0 unplug", IBV_WC_LOC_QP_OP_ERR},
        {"h0:n0 gid-change", IBV_WC_RETRY_EXC_ERR},
    };
    struct pair_cfg c = {.timeout = 8, .retry = 2};
    struct ibv_qp *loop;
    struct pair p;

    pair_open(&p, &c);
    loop = loop_open(&p, _i & 1);
    ck_assert_int_eq(to_itself(&p, loop), IBV_WC_SUCCESS);
    pair_fault(&p, row[_i / 2].fault);
    ck_assert_int_eq(to_itself(&p, loop), row[_i / 2].status);
    ck_assert_uint_eq(p.s[0].buf[4096 + 7], 0);
    loop_close(&p, loop);
    pair_close(&p);
}
END_TEST

START_TEST(loop_of_a_dead_device)
{
    struct ibv_qp *loop;
    struct pair p;

    pair_open(&p, NULL);
    loop = loop_open(&p, 0);
    pair_fault(&p, "h0:n0 silent-death");
    pair_fault(&p, _i ? "h0:n0 fatal" : "h0:n0 remove");
    ck_assert_int_eq(to_itself(&p, loop), -1);
    loop_close(&p, loop);
    pair_close(&p);
}
END_TEST

/* A link that is busy for long keeps nobody from the inside; the link's own traffic keeps its rate.
 */
START_TEST(loop_passes_a_busy_link)
{
    struct pair_cfg c = {.timeout = 20, .rate = 1000000};
    struct ibv_qp *loop;
    struct pair p;

    pair_open(&p, &c);
    loop = loop_open(&p, 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 100000, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, PAIR_MS); /* of about 100 */
    for (int i = 0; i < 10; i++) {
        struct ibv_sge sge = {.addr = (uintptr_t)p.s[0].buf, .length = 8, .lkey = p.s[0].mr->lkey};
        struct ibv_send_wr wr = {.wr_id = 5,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED};
        struct ibv_send_wr *bad;

        wr.wr.rdma.remote_addr = (uintptr_t)p.s[0].buf + 4096;
        wr.wr.rdma.rkey = p.s[0].mr->rkey;
        ck_assert_int_eq(ibv_post_send(loop, &wr, &bad), 0);
        pair_run_for(&p, 10 * PAIR_US);
        pair_expect(&p, 0, 5, IBV_WC_SUCCESS);
    }
    pair_expect_none(&p, 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_gt(fab_inproc_now(p.f), 100 * PAIR_MS);
    ck_assert_uint_lt(fab_inproc_now(p.f), 110 * PAIR_MS);
    loop_close(&p, loop);
    pair_close(&p);
}
END_TEST

/* Both halves of one queue pair at work, with immediates, many at a time: order and bytes. */
START_TEST(loop_carries_traffic)
{
    struct pair_cfg c = {.opts = {.jitter_ns = 3000, .dma_ns = 500, .cqe_ns = 500},
                         .seed = (uint64_t)_i};
    struct ibv_qp *loop;
    struct pair p;

    pair_open(&p, &c);
    loop = loop_open(&p, 0);
    for (uint32_t i = 0; i < 32; i++) {
        struct ibv_sge sge = {
            .addr = (uintptr_t)p.s[0].buf + i * 8192, .length = 8192, .lkey = p.s[0].mr->lkey};
        struct ibv_recv_wr rwr = {.wr_id = 100 + i}, *rbad;
        struct ibv_send_wr wr = {.wr_id = i,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .imm_data = htobe32(i)};
        struct ibv_send_wr *bad;

        memset(p.s[0].buf + i * 8192, (int)i + 1, 8192);
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = (uintptr_t)p.s[0].buf + PAIR_BUF / 2 + i * 8192;
        wr.wr.rdma.rkey = p.s[0].mr->rkey;
        ck_assert_int_eq(ibv_post_recv(loop, &rwr, &rbad), 0);
        ck_assert_int_eq(ibv_post_send(loop, &wr, &bad), 0);
    }
    pair_run(&p);
    for (uint32_t sends = 0, recvs = 0; sends + recvs < 64;) {
        struct ibv_wc wc;

        ck_assert_int_eq(pair_poll(&p, 0, &wc), 1);
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id >= 100) {
            ck_assert_uint_eq(wc.wr_id, 100 + recvs);
            ck_assert_uint_eq(be32toh(wc.imm_data), recvs++);
        } else {
            ck_assert_uint_eq(wc.wr_id, sends++);
        }
    }
    ck_assert_mem_eq(p.s[0].buf, p.s[0].buf + PAIR_BUF / 2, 32 * 8192);
    loop_close(&p, loop);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_path");
    TCase *t = tcase_create("path");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, cut_is_between_two_ports, 0, 6);
    tcase_add_loop_test(t, cut_tx_is_one_way, 0, 2);
    tcase_add_test(t, delay_to);
    tcase_add_test(t, plane);
    tcase_add_test(t, cut_needs_ports_of_the_fabric);
    tcase_add_test(t, cut_at_setup);
    tcase_add_loop_test(t, loop_does_not_see_the_link, 0, 2);
    tcase_add_loop_test(t, loop_sees_port_and_device, 0, 12);
    tcase_add_loop_test(t, loop_of_a_dead_device, 0, 2);
    tcase_add_test(t, loop_passes_a_busy_link);
    tcase_add_loop_test(t, loop_carries_traffic, 0, 4);
    suite_add_tcase(s, t);
    return pair_main(s);
}
