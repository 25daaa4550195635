/*
 * Two TCP devices in this process and pairs of queue pairs over them: for test_tcpdev*.c.
 */
#ifndef TCPDEV_RIG_H
#define TCPDEV_RIG_H

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ib_transport/tcp/tcpdev.h"
#include "plugin/base/r2_time.h"

#define RIG_DEPTH  64
#define RIG_CQES   512
#define RIG_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct rig_end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    union ibv_gid gid, second;
    uint16_t lid;
    uint32_t psn;
};

static struct ib_verbs v;
static struct rig_end rig[2];
static struct in6_addr rig_addr6; /* not ::: both listen there */
static unsigned rig_scope;

static inline uint64_t rig_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

static inline void rig_open(uint64_t rate)
{
    struct ibv_device **list;
    char why[128];
    int n;

    memset(&v, 0, sizeof(v));
    for (int i = 0; i < 2; i++) {
        struct tcpdev_params p = {.addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .addr6 = rig_addr6,
                                  .scope = rig_scope,
                                  .rate = rate};

        for (size_t k = 0; k < sizeof(p.secret); k++) {
            p.secret[k] = (uint8_t)(17 * i + 3 * k + 1);
        }
        ck_assert_int_eq(tcpdev_add(&v, &p, why, sizeof(why)), 0);
    }
    list = v.get_device_list(&n);
    ck_assert_int_eq(n, 2);
    for (int i = 0; i < 2; i++) {
        struct ibv_port_attr port;

        rig[i].ctx = v.open_device(list[i]);
        rig[i].pd = v.alloc_pd(rig[i].ctx);
        ck_assert_int_eq(v.query_gid(rig[i].ctx, 1, 0, &rig[i].gid), 0);
        ck_assert_int_eq(v.query_port(rig[i].ctx, 1, &port), 0);
        if (port.gid_tbl_len > 1) {
            ck_assert_int_eq(v.query_gid(rig[i].ctx, 1, 1, &rig[i].second), 0);
        }
        rig[i].lid = port.lid;
        rig[i].psn = 0xfffff0u + (uint32_t)i;
    }
    v.free_device_list(list);
}

static inline void rig_qp(int i, int timeout)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = RIG_DEPTH,
                                            .max_recv_wr = RIG_DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .qp_access_flags = RIG_ACCESS};

    init.send_cq = init.recv_cq = rig[i].cq = v.create_cq(rig[i].ctx, RIG_CQES, NULL, NULL, 0);
    ck_assert_ptr_nonnull(rig[i].cq);
    rig[i].qp = v.create_qp(rig[i].pd, &init);
    ck_assert_ptr_nonnull(rig[i].qp);
    ck_assert_int_eq(v.modify_qp(rig[i].qp, &a, IBV_QP_STATE), 0);
}

/* End @i to RTS; @lid: where the other one listens. */
static inline void rig_connect(int i, uint16_t lid, int timeout)
{
    const struct rig_end *far = &rig[!i];
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .dest_qp_num = far->qp->qp_num,
                            .rq_psn = far->psn,
                            .ah_attr = {.is_global = 1, .dlid = lid}};

    a.ah_attr.grh.dgid = far->gid;
    a.alt_ah_attr.grh.dgid = far->second;
    ck_assert_int_eq(v.modify_qp(rig[i].qp, &a, IBV_QP_STATE), 0);
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = (uint8_t)timeout, .retry_cnt = 1, .sq_psn = rig[i].psn};
    ck_assert_int_eq(v.modify_qp(rig[i].qp, &a, IBV_QP_STATE), 0);
}

/* Both devices, a pair of queue pairs, connected. */
static inline void rig_pair(uint64_t rate)
{
    rig_open(rate);
    rig_qp(0, 20);
    rig_qp(1, 20);
    rig_connect(0, rig[1].lid, 20);
    rig_connect(1, rig[0].lid, 20);
}

static inline void rig_qp_end(int i)
{
    if (rig[i].qp) {
        ck_assert_int_eq(v.destroy_qp(rig[i].qp), 0);
        ck_assert_int_eq(v.destroy_cq(rig[i].cq), 0);
        rig[i].qp = NULL;
    }
}

static inline void rig_close(void)
{
    for (int i = 0; i < 2; i++) {
        rig_qp_end(i);
        v.dealloc_pd(rig[i].pd);
        v.close_device(rig[i].ctx);
    }
    memset(rig, 0, sizeof(rig));
}

static inline void rig_error(int i)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

    ck_assert_int_eq(v.modify_qp(rig[i].qp, &a, IBV_QP_STATE), 0);
}

static inline int rig_post(int i, enum ibv_wr_opcode op, uint64_t id, const void *from,
                           uint32_t len, uint32_t lkey, const void *to, uint32_t rkey,
                           unsigned flags)
{
    struct ibv_sge sge = {.addr = (uintptr_t)from, .length = len, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = len ? 1 : 0,
                             .opcode = op,
                             .send_flags = flags,
                             .imm_data = (uint32_t)id,
                             .wr.rdma = {.remote_addr = (uintptr_t)to, .rkey = rkey}},
                       *bad;

    return ibv_post_send(rig[i].qp, &wr, &bad);
}

static inline int rig_recv(int i, uint64_t id, void *to, uint32_t len, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)to, .length = len, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0}, *bad;

    return ibv_post_recv(rig[i].qp, &wr, &bad);
}

/* The next completion of end @i; a bound against hangs. */
static inline struct ibv_wc rig_wait(int i)
{
    uint64_t end = rig_now() + 50000000000ull;
    struct ibv_wc wc;

    while (ibv_poll_cq(rig[i].cq, 1, &wc) == 0) {
        ck_assert_msg(rig_now() < end, "no completion");
        usleep(20);
    }
    return wc;
}

static inline void rig_fill(uint8_t *b, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++) {
        b[i] = (uint8_t)(seed + i * 2654435761u + (i >> 8));
    }
}

#endif
