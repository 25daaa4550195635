/* Faults of the fabric: their text, and what each does to running traffic. */
#include "tests/unit/test_fabric_pair.h"

#include <math.h>

START_TEST(parse_good)
{
    static const struct {
        const char *text;
        int host, nic;
        enum fab_fault_kind kind;
        uint64_t value;
    } good[] = {
        {"h0:n1 down", 0, 1, FAB_FAULT_DOWN, 0},
        {"  h31:n15   up ", 31, 15, FAB_FAULT_UP, 0},
        {"*:n2 blackhole-tx", -1, 2, FAB_FAULT_BLACKHOLE_TX, 0},
        {"h1:* loss 1%", 1, -1, FAB_FAULT_LOSS, 10000},
        {"h1:n0 corrupt 0.1%", 1, 0, FAB_FAULT_CORRUPT, 1000},
        {"h1:n0 delay 5ms", 1, 0, FAB_FAULT_DELAY, 5000000},
        {"h1:n0 rate 20MB/s", 1, 0, FAB_FAULT_RATE, 20000000},
        {"h1:n0 rate 10Gb/s", 1, 0, FAB_FAULT_RATE, 1250000000},
        {"h1:n0 rate unlimited", 1, 0, FAB_FAULT_RATE, 0},
        {"h1:n0 mr-fail", 1, 0, FAB_FAULT_MR_FAIL, UINT32_MAX},
        {"h1:n0 mr-fail 3", 1, 0, FAB_FAULT_MR_FAIL, 3},
        {"*:* clear", -1, -1, FAB_FAULT_RESTORE, 0},
        {"h0:n0 retry7-forever", 0, 0, FAB_FAULT_RETRY7_FOREVER, 0},
        {"*:* provider plain", -1, -1, FAB_FAULT_PROVIDER, FAB_PROVIDER_PLAIN},
        {"h0:n0 provider bnxt", 0, 0, FAB_FAULT_PROVIDER, FAB_PROVIDER_BNXT},
        {"h0:n1 cut h2:n3", 0, 1, FAB_FAULT_CUT, 3ull << 16 | 4},
        {"h0:n1 cut-tx h2:*", 0, 1, FAB_FAULT_CUT_TX, 3ull << 16},
        {"*:n1 cut *:n1", -1, 1, FAB_FAULT_CUT, 2},
        {"*:* heal *:*", -1, -1, FAB_FAULT_HEAL, 0},
        {"h0:n1 delay-to h2:n3", 0, 1, FAB_FAULT_DELAY_TO, 3ull << 16 | 4},
    };
    struct fab_fault f;
    char err[200];

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(fab_fault_parse(good[i].text, &f, err, sizeof err) == 0, "%s", err);
        ck_assert_int_eq(f.host, good[i].host);
        ck_assert_int_eq(f.nic, good[i].nic);
        ck_assert_int_eq(f.kind, good[i].kind);
        ck_assert_uint_eq(f.value, good[i].value);
    }
    for (int k = 0; k < FAB_FAULT_KINDS; k++) {
        ck_assert_str_ne(fab_fault_name(k), "unknown");
    }
}
END_TEST

START_TEST(parse_bad)
{
    static const char *const bad[][2] = {
        {"", "want a place"},          {"h0:n1", "want a place"},    {"h0n1 down", "h0n1"},
        {"h32:n0 down", "h32:n0"},     {"h0:n16 down", "h0:n16"},    {"h0:n1x down", "h0:n1x"},
        {"h-1:n0 down", "h-1:n0"},     {"h0:n1 dwn", "dwn"},         {"h0:n1 loss", "loss"},
        {"h0:n1 loss 5", "'5'"},       {"h0:n1 loss 101%", "101%"},  {"h0:n1 delay 5", "'5'"},
        {"h0:n1 rate fast", "'fast'"}, {"h0:n1 down now", "'now'"},  {"h0:n1 loss 1% x", "'x'"},
        {"h0:n1 mr-fail 0", "'0'"},    {"h0:n1 delay -1ms", "-1ms"}, {"h0:n1 loss nan%", "'nan%'"},
        {"h0:n1 cut", "'cut'"},        {"h0:n1 cut n2", "'n2'"},     {"h0:n1 cut h0:n1", "itself"},
        {"h0:n1 heal h32:n1", "h32"},
    };
    struct fab_fault f;
    char err[200];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(fab_fault_parse(bad[i][0], &f, err, sizeof err) == -1, "taken: %s",
                      bad[i][0]);
        ck_assert_msg(strstr(err, bad[i][1]) != NULL, "'%s' does not name '%s'", err, bad[i][1]);
    }
}
END_TEST

START_TEST(down_and_up)
{
    struct pair_cfg c = {.timeout = 8, .retry = 2};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_port_state(&p, 1), IBV_PORT_ACTIVE);
    pair_fault(&p, "h1:n0 down");
    pair_fault(&p, "h1:n0 down"); /* no second event */
    ck_assert_int_eq(pair_port_state(&p, 1), IBV_PORT_DOWN);
    ck_assert_int_eq(pair_port_state(&p, 0), IBV_PORT_ACTIVE);
    pair_expect_event(&p, 1, IBV_EVENT_PORT_ERR);
    pair_expect_no_event(&p, 1);
    pair_expect_no_event(&p, 0);
    ck_assert_int_eq(fab_ibv_qp(p.s[1].qp)->state, IBV_QPS_RTS);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    pair_expect(&p, 1, 1, IBV_WC_RETRY_EXC_ERR);
    pair_fault(&p, "h1:n0 blackhole");
    pair_fault(&p, "h1:n0 up");
    pair_expect_event(&p, 1, IBV_EVENT_PORT_ACTIVE);
    ck_assert_int_eq(pair_port_state(&p, 1), IBV_PORT_ACTIVE);
    ck_assert_uint_eq(fab_inproc_nic(p.f, 1, 0)->link.blackhole_rx, 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->faults[FAB_FAULT_DOWN], 2);
    pair_close(&p);
}
END_TEST

/* One way only: data goes through and the answers do not, or the other way round. */
START_TEST(one_way_blackholes)
{
    struct pair_cfg c = {.timeout = 8, .retry = 2};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, _i ? "h1:n0 blackhole-rx" : "h1:n0 blackhole-tx");
    memset(p.s[0].buf, 1, 8);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_eq(p.s[1].buf[0], _i ? 0 : 1);
    pair_expect_no_event(&p, 0);
    pair_expect_no_event(&p, 1);
    pair_close(&p);
}
END_TEST

START_TEST(delay)
{
    struct pair_cfg c = {.timeout = 20};
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 delay 5ms");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    ck_assert_uint_eq(fab_inproc_now(p.f), 5 * PAIR_MS + 2 * PAIR_US);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/* Moves 64 KiB messages for a while, 8 outstanding; bytes per second. */
static double measure(struct pair *p, int qps, struct ibv_qp **from, uint64_t ns)
{
    uint64_t start = fab_inproc_now(p->f), bytes = 0;
    struct ibv_sge sge = {
        .addr = (uintptr_t)p->s[0].buf, .length = 65536, .lkey = p->s[0].mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct ibv_wc wc;

    wr.wr.rdma.remote_addr = (uintptr_t)p->s[1].buf;
    wr.wr.rdma.rkey = p->s[1].mr->rkey;
    for (int q = 0; q < qps; q++) {
        wr.wr_id = (uint64_t)q;
        for (int i = 0; i < 8; i++) {
            ck_assert_int_eq(ibv_post_send(from[q], &wr, &bad), 0);
        }
    }
    while (fab_inproc_now(p->f) - start < ns && fab_inproc_step(p->f)) {
        while (pair_poll(p, 0, &wc) == 1) {
            ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
            bytes += 65536;
            wr.wr_id = wc.wr_id;
            ck_assert_int_eq(ibv_post_send(from[wc.wr_id], &wr, &bad), 0);
        }
    }
    ns = fab_inproc_now(p->f) - start;
    pair_run(p);
    while (pair_poll(p, 0, &wc) == 1) {
        ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    }
    return (double)bytes * 1e9 / (double)ns;
}

START_TEST(rated_link_is_accurate)
{
    static const double rates[] = {20e6, 100e6, 1e9, 12.5e9};
    struct pair_cfg c = {.timeout = 18,
                         .rate = (uint64_t)rates[_i],
                         .latency = 10 * PAIR_US,
                         .opts = {.nic = {.window = 256}}};
    uint64_t ns = (uint64_t)(3e8 / rates[_i] * 1e9 / 8);
    struct ibv_qp *from[4], *to[4];
    struct pair p;
    double one, four;

    pair_open(&p, &c);
    one = measure(&p, 1, &p.s[0].qp, ns);
    ck_assert_msg(fabs(one / rates[_i] - 1) < .05, "%.0f of %.0f B/s", one, rates[_i]);
    for (int i = 0; i < 4; i++) {
        from[i] = pair_new_qp(&p, &p.s[0]);
        to[i] = pair_new_qp(&p, &p.s[1]);
        pair_connect_qps(&p, from[i], to[i], 1);
    }
    four = measure(&p, 4, from, ns);
    ck_assert_msg(fabs(four / rates[_i] - 1) < .05, "%.0f of %.0f B/s over four", four, rates[_i]);
    pair_fault(&p, "h1:n0 rate 10MB/s"); /* the receiving side limits as well */
    one = measure(&p, 4, from, 9000 * PAIR_MS);
    ck_assert_msg(fabs(one / 10e6 - 1) < .05, "%.0f of 10 MB/s", one);
    for (int i = 0; i < 4; i++) {
        p.v.destroy_qp(from[i]);
        p.v.destroy_qp(to[i]);
    }
    pair_close(&p);
}
END_TEST

static void expect_dead(struct pair *p)
{
    struct ibv_port_attr a;
    struct ibv_device_attr d;
    struct ibv_wc wc;

    ck_assert_int_eq(pair_post(p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), EIO);
    ck_assert_int_eq(pair_recv(p, 0, 1, 0, 8), EIO);
    ck_assert_int_lt(pair_poll(p, 0, &wc), 0);
    ck_assert_int_eq(p->v.query_port(p->s[0].ctx, 1, &a), EIO);
    ck_assert_int_eq(p->v.query_device(p->s[0].ctx, &d), EIO);
    ck_assert_int_eq(pair_to_state(p, p->s[0].qp, IBV_QPS_ERR), EIO);
    ck_assert_ptr_null(p->v.reg_mr(p->s[0].pd, p->s[0].buf, 8, 0));
    ck_assert_int_eq(errno, EIO);
    ck_assert_int_eq(ibv_req_notify_cq(p->s[0].cq, 0), EIO);
}

/* The device dies with work in flight: nothing is flushed, every call fails, teardown does not; new
 * contexts only after restore. */
START_TEST(fatal_and_remove)
{
    struct pair_cfg c = {
        .timeout = 8, .retry = 1, .opts = {.remove_event_ppm = _i == 1 ? 1000000 : 0}};
    struct ibv_context *ctx;
    struct ibv_device **list;
    struct pair p;
    int n;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_recv(&p, 0, 2, 0, 8), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_fault(&p, _i ? "h0:n0 remove" : "h0:n0 fatal");
    if (_i != 2) {
        pair_expect_event(&p, 0, IBV_EVENT_DEVICE_FATAL);
    }
    pair_expect_no_event(&p, 0);
    pair_run(&p);
    expect_dead(&p);
    ck_assert_int_eq(p.v.is_removed(p.s[0].ctx), _i != 0); /* no call tells, sysfs does */
    ck_assert_ptr_null(pair_open_dev(&p, 0, _i ? 1 : 0));  /* a removed device is not listed */
    fab_inproc_set_host(p.f, 0);
    list = p.v.get_device_list(&n);
    ck_assert_int_eq(n, _i ? 1 : 2);
    p.v.free_device_list(list);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 1, 1, IBV_WC_RETRY_EXC_ERR);
    pair_fault(&p, "h0:n0 restore");
    expect_dead(&p);
    ctx = pair_open_dev(&p, 0, 0);
    ck_assert_ptr_nonnull(ctx);
    ck_assert_int_eq(p.v.close_device(ctx), 0);
    pair_close(&p);
}
END_TEST

/* The kernel destroys what was made on the device before it leaves sysfs; until then its DMA may go
 * on. */
START_TEST(removed_in_the_end)
{
    struct pair_cfg c = {.opts = {.nic = {.removing_ns = 5 * PAIR_MS, .dead_dma_ns = PAIR_MS},
                                  .dma_ns = 2 * PAIR_MS}};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    fab_inproc_run_until(p.f, fab_inproc_now(p.f) + PAIR_MS / 10); /* accepted, not in memory yet */
    pair_fault(&p, "h0:n0 remove");
    expect_dead(&p);
    ck_assert_int_eq(p.v.is_removed(p.s[0].ctx), 0);
    fab_inproc_run_until(p.f, fab_inproc_now(p.f) + 5 * PAIR_MS - 1);
    ck_assert_int_eq(p.v.is_removed(p.s[0].ctx), 0);
    ck_assert_uint_eq(pair_cnt(&p, 0)->dma_writes, 1);
    fab_inproc_run_until(p.f, fab_inproc_now(p.f) + 1);
    ck_assert_int_eq(p.v.is_removed(p.s[0].ctx), 1);
    pair_close(&p);
}
END_TEST

/* What mlx5 makes of a command that its firmware refuses: the call fails, and nothing else does. */
START_TEST(calls_fail_for_a_while)
{
    struct ibv_port_attr a;
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 call-error 2");
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &a), EIO);
    ck_assert_ptr_null(p.v.reg_mr(p.s[0].pd, p.s[0].buf, 8, 0));
    ck_assert_int_eq(errno, EIO);
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &a), 0);
    ck_assert_uint_eq(pair_cnt(&p, 0)->calls_failed, 2);
    pair_fault(&p, "h0:n0 call-error");
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), EIO);
    ck_assert_ptr_null(p.v.create_cq(p.s[0].ctx, 8, NULL, NULL, 0));
    ck_assert_int_eq(errno, EIO);
    ck_assert_int_eq(p.v.is_removed(p.s[0].ctx), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_post(&p, 1, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_expect(&p, 1, 1, IBV_WC_SUCCESS);
    pair_fault(&p, "h0:n0 restore");
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &a), 0);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), 0);
    ck_assert_uint_eq(pair_cnt(&p, 0)->calls_failed, 4);
    pair_close(&p);
}
END_TEST

static _Alignas(4096) uint8_t gpu_mem[4096];

/* What mlx5 says behind ACS: registered, answers without bytes, a local protection error where it
 * gathers, and where it is the peer's, an operation error. */
START_TEST(gpu_memory_out_of_reach)
{
    struct pair_cfg c = {.opts = {.gpu_mem = gpu_mem, .gpu_len = sizeof(gpu_mem)}};
    int at = _i & 1,
        access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr, *host;
    struct pair p;

    pair_open(&p, &c);
    pair_fault(&p, "h0:n0 gpu-dma-fail");
    host = p.s[0].mr;
    mr = p.v.reg_mr(p.s[0].pd, gpu_mem, sizeof(gpu_mem), access);
    ck_assert_ptr_nonnull(mr);
    p.s[0].mr = mr;
    free(p.s[0].buf);
    p.s[0].buf = gpu_mem;
    ck_assert_int_eq(pair_post(&p, at, IBV_WR_RDMA_WRITE, 1, 0, 0, 0, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, at, 1, IBV_WC_SUCCESS);
    ck_assert_int_eq(pair_post(&p, at, _i & 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 2, 0, 0, 8,
                               IBV_SEND_SIGNALED),
                     0);
    pair_run(&p);
    pair_expect(&p, at, 2, at == 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR);
    ck_assert_uint_ge(pair_cnt(&p, 0)->gpu_failed, 1);
    ck_assert_int_eq(p.v.dereg_mr(mr), 0);
    p.s[0].mr = host;
    p.s[0].buf = NULL;
    pair_close(&p);
}
END_TEST

/* As NICs do whose data path is memory of the program: who only posts and polls never hears of it.
 */
START_TEST(silent_death)
{
    struct ibv_port_attr port;
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 silent-death");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 2, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_fault(&p, _i ? "h0:n0 remove" : "h0:n0 fatal");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 3, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    ck_assert_int_eq(pair_recv(&p, 0, 4, 0, 8), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS); /* what was complete is in memory */
    pair_expect_none(&p, 0);
    ck_assert_int_eq(ibv_req_notify_cq(p.s[0].cq, 0), 0);
    ck_assert_int_eq(p.v.query_port(p.s[0].ctx, 1, &port), EIO);
    ck_assert_int_eq(pair_to_state(&p, p.s[0].qp, IBV_QPS_ERR), EIO);
    pair_fault(&p, "h0:n0 restore");
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 5, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect_none(&p, 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->dma_writes, 1);
    pair_close(&p);
}
END_TEST

/* The NIC dies between acknowledgement and DMA: the sender holds a good completion for data that
 * nobody has. */
START_TEST(acknowledged_then_lost)
{
    struct pair_cfg c = {.opts = {.dma_ns = 1000 * PAIR_US}};
    struct pair p;

    pair_open(&p, &c);
    memset(p.s[0].buf, 1, 8);
    ck_assert_int_eq(pair_recv(&p, 1, 2, 0, 0), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 8, IBV_SEND_SIGNALED),
                     0);
    pair_run_for(&p, 3 * PAIR_US);
    pair_fault(&p, "h1:n0 fatal");
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    ck_assert_uint_eq(p.s[1].buf[0], 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->dma_lost, 1);
    pair_close(&p);
}
END_TEST

/* With a DMA tail the same data still lands after the device died. */
START_TEST(dead_device_may_still_write)
{
    struct pair_cfg c = {.opts = {.dma_ns = 1000 * PAIR_US, .nic = {.dead_dma_ns = 20 * PAIR_MS}}};
    struct pair p;

    pair_open(&p, &c);
    memset(p.s[0].buf, 1, 8);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run_for(&p, 3 * PAIR_US);
    pair_fault(&p, "h1:n0 fatal");
    ck_assert_uint_eq(p.s[1].buf[0], 0);
    pair_run(&p);
    ck_assert_uint_eq(p.s[1].buf[0], 1);
    pair_close(&p);
}
END_TEST

START_TEST(qp_error)
{
    struct pair p;

    pair_open(&p, NULL);
    ck_assert_int_eq(pair_recv(&p, 0, 2, 0, 8), 0);
    pair_fault(&p, "h0:n0 qp-error");
    pair_run(&p);
    pair_expect_event(&p, 0, IBV_EVENT_QP_FATAL);
    pair_expect(&p, 0, 2, IBV_WC_WR_FLUSH_ERR);
    ck_assert_int_eq(fab_ibv_qp(p.s[0].qp)->state, IBV_QPS_ERR);
    ck_assert_int_eq(fab_ibv_qp(p.s[1].qp)->state, IBV_QPS_RTS);
    pair_close(&p);
}
END_TEST

/* After an address change the old connection is dead in both directions and a new one to the new
 * address works. */
START_TEST(gid_change)
{
    struct pair_cfg c = {.timeout = 8, .retry = 1};
    union ibv_gid old, now;
    struct pair p;

    pair_open(&p, &c);
    old = p.s[1].gid;
    pair_fault(&p, "h1:n0 gid-change");
    pair_expect_event(&p, 1, IBV_EVENT_GID_CHANGE);
    ck_assert_int_eq(p.v.query_gid(p.s[1].ctx, 1, 3, &now), 0);
    ck_assert_int_ne(memcmp(&old, &now, 16), 0);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_RETRY_EXC_ERR);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_wrong_source, 0);
    p.s[1].gid = now;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pair_to_state(&p, p.s[i].qp, IBV_QPS_RESET), 0);
    }
    pair_connect_qps(&p, p.s[0].qp, p.s[1].qp, 9);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
    pair_run(&p);
    pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
    pair_close(&p);
}
END_TEST

/*
 * Late copies of a dead incarnation: a connection is closed while copies of its packets are in the
 * fabric and opened again with packet numbers @psn. The same numbers let the old bytes land, others
 * do not.
 */
static uint64_t ghosts_landed(uint32_t psn)
{
    struct pair_cfg c = {.opts = {.ghost_ppm = 1000000, .ghost_ns = 50 * PAIR_MS}};
    uint64_t landed = 0;
    struct pair p;

    for (uint64_t seed = 0; seed < 20; seed++) {
        c.seed = seed;
        pair_open(&p, &c);
        memset(p.s[0].buf, 1, 8);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, IBV_SEND_SIGNALED), 0);
        pair_run_for(&p, 10 * PAIR_US);
        pair_expect(&p, 0, 1, IBV_WC_SUCCESS);
        ck_assert_uint_eq(p.s[1].buf[0], 1);
        p.s[1].buf[0] = 2; /* the memory has another use now */
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(pair_to_state(&p, p.s[i].qp, IBV_QPS_RESET), 0);
        }
        pair_connect_qps(&p, p.s[0].qp, p.s[1].qp, psn);
        pair_run(&p);
        ck_assert_uint_gt(pair_cnt(&p, 1)->rx_ghosts, 0);
        ck_assert_uint_eq(pair_cnt(&p, 1)->ghosts_landed, p.s[1].buf[0] == 1);
        landed += p.s[1].buf[0] == 1;
        pair_close(&p);
    }
    return landed;
}

START_TEST(ghosts)
{
    ck_assert_uint_eq(ghosts_landed(0xfffff0), 20);
    ck_assert_uint_eq(ghosts_landed(0x123456), 0);
}
END_TEST

START_TEST(ghost_of_a_destroyed_connection_finds_nobody)
{
    struct pair_cfg c = {.opts = {.ghost_ppm = 1000000, .ghost_ns = 50 * PAIR_MS}};
    struct ibv_qp *fresh;
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_post(&p, 0, IBV_WR_RDMA_WRITE, 1, 0, 0, 60000, 0), 0);
    pair_run_for(&p, 30 * PAIR_US);
    p.s[1].buf[0] = 2;
    ck_assert_int_eq(p.v.destroy_qp(p.s[1].qp), 0);
    fresh = pair_new_qp(&p, &p.s[1]); /* has the old number, but is connected to nobody */
    p.s[1].qp = fresh;
    pair_run(&p);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_ghosts, 0);
    ck_assert_uint_gt(pair_cnt(&p, 1)->rx_wrong_state, 0);
    ck_assert_uint_eq(pair_cnt(&p, 1)->ghosts_landed, 0);
    ck_assert_uint_eq(p.s[1].buf[0], 2);
    pair_close(&p);
}
END_TEST

START_TEST(duplication)
{
    struct pair p;

    pair_open(&p, NULL);
    pair_fault(&p, "h0:n0 dup 100%");
    for (uint32_t i = 0; i < 10; i++) {
        ck_assert_int_eq(pair_recv(&p, 1, i, 0, 64), 0);
        ck_assert_int_eq(pair_post(&p, 0, IBV_WR_SEND, i, 0, 0, 64, IBV_SEND_SIGNALED), 0);
    }
    pair_run(&p);
    ck_assert_uint_eq(pair_cnt(&p, 0)->dups_made, 10);
    ck_assert_uint_eq(pair_cnt(&p, 1)->rx_duplicate, 10);
    ck_assert_uint_eq(pair_cnt(&p, 1)->dma_writes, 10);
    for (uint32_t i = 0; i < 10; i++) {
        pair_expect(&p, 0, i, IBV_WC_SUCCESS);
        pair_expect(&p, 1, i, IBV_WC_SUCCESS);
    }
    pair_expect_none(&p, 1);
    pair_close(&p);
}
END_TEST

START_TEST(unreachable_at_setup)
{
    struct pair_cfg c = {.no_connect = 1, .opts = {.rtr_needs_path = true}};
    struct pair p;

    pair_open(&p, &c);
    ck_assert_int_eq(pair_to_init(&p, p.s[0].qp), 0);
    pair_fault(&p, "h1:n0 down");
    ck_assert_int_eq(pair_to_rtr(&p, p.s[0].qp, &p.s[1].gid, 1, 0), ETIMEDOUT);
    pair_fault(&p, "h1:n0 up");
    ck_assert_int_eq(pair_to_rtr(&p, p.s[0].qp, &p.s[1].gid, 1, 0), 0);
    pair_close(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fabric_fault");
    TCase *t = tcase_create("fault");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, parse_good);
    tcase_add_test(t, parse_bad);
    tcase_add_test(t, down_and_up);
    tcase_add_loop_test(t, one_way_blackholes, 0, 2);
    tcase_add_test(t, delay);
    tcase_add_loop_test(t, rated_link_is_accurate, 0, 4);
    tcase_add_loop_test(t, fatal_and_remove, 0, 3);
    tcase_add_test(t, removed_in_the_end);
    tcase_add_test(t, calls_fail_for_a_while);
    tcase_add_loop_test(t, gpu_memory_out_of_reach, 0, 4);
    tcase_add_loop_test(t, silent_death, 0, 2);
    tcase_add_test(t, acknowledged_then_lost);
    tcase_add_test(t, dead_device_may_still_write);
    tcase_add_test(t, qp_error);
    tcase_add_test(t, gid_change);
    tcase_add_test(t, ghosts);
    tcase_add_test(t, ghost_of_a_destroyed_connection_finds_nobody);
    tcase_add_test(t, duplication);
    tcase_add_test(t, unreachable_at_setup);
    suite_add_tcase(s, t);
    return pair_main(s);
}
