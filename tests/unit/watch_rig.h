/* What the suites of the watchdog share: one connection on the two-instance rig, messages over it,
 * what its state says, and drivers that do what no fault of the fabric does. One thread, virtual
 * time. */
#ifndef WATCH_RIG_H
#define WATCH_RIG_H

#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/r2_notify.h"
#include "plugin/probe/health/r2_pair.h"
#include "tests/fabric/model/fab_fault.h"

#define BIG 65536

/* NCCL's defaults: RC says nothing for half a minute. Holds, which no test here is about, are
 * short. */
#define QUIET_RC "NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7", "NCCL_R2_T_PACKET=100"

static struct rig *rig;
/* Of whole pages: what is registered is, and what checks addresses knows no byte in front. */
static _Alignas(4096) uint8_t out[32][BIG], in[32][BIG];
static struct ib_mr *s_mr, *r_mr;

static inline void teardown(void)
{
    rig_destroy(rig);
    rig = NULL;
}

/* Both ends tell @test as well what is announced, behind the modules. */
static inline void subscribe(const struct r2_subscriber *test)
{
    static const struct r2_subscriber *list[2][16];

    for (int s = 0; s < 2; s++) {
        int n = 0;

        for (const struct r2_subscriber *const *t = rig->side[s].inst->above.subscribers; *t; t++) {
            ck_assert_int_lt(n, 14);
            list[s][n++] = *t;
        }
        list[s][n++] = test;
        list[s][n] = NULL;
        rig->side[s].inst->above.subscribers = list[s];
    }
}

/* A connection, and the buffers of both ends. */
static inline void connect_ends(void)
{
    rig_connect(rig, 0, 0);
    memset(in, 0, sizeof(in));
    s_mr = rig_reg(rig, 0, out, sizeof(out));
    r_mr = rig_reg(rig, 1, in, sizeof(in));
}

static inline void start(int nics, const char *const *options)
{
    rig = rig_create(nics, 0, options);
    connect_ends();
}

static inline void stop(void)
{
    ck_assert_int_eq(rig->side[0].status, R2_OK);
    ck_assert_int_eq(rig->side[1].status, R2_OK);
    rig_dereg(rig, 0, s_mr);
    rig_dereg(rig, 1, r_mr);
}

/* Message @i, of at most BIG bytes, or of more over the buffers that follow. */
static inline void recv_post(int i, size_t size)
{
    uint64_t from = rig_now(rig);

    memset(in[i], 0, size);
    while (rig_irecv1(rig, in[i], size, 0, r_mr) < 0) { /* no path is up, for a moment */
        ck_assert_uint_lt(rig_now(rig) - from, RIG_S);
        rig_run(rig, 100 * RIG_US);
    }
}

static inline void send_post(int i, size_t size)
{
    memset(out[i], 1 + (i * 37 + (int)(rig_now(rig) / 1000)) % 250, size);
    rig_send_wait(rig, out[i], size, 0, s_mr);
}

/* All requests done within @limit, the first @n messages right. Returns how long that took. */
static inline uint64_t finish(int n, size_t size, uint64_t limit)
{
    uint64_t from = rig_now(rig);

    ck_assert_msg(rig_until(rig, rig_all_done, limit), "not done in %llu ms",
                  (unsigned long long)(limit / RIG_MS));
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(memcmp(in[i], out[i], size), 0);
    }
    return rig_now(rig) - from;
}

static inline void messages(int n, size_t size)
{
    for (int i = 0; i < n; i++) {
        recv_post(0, size);
        send_post(0, size);
        finish(1, size, 10 * RIG_S);
    }
}

/* --- state --- */

static inline struct r2_pair *pair_of(int side, int nic)
{
    struct r2_comm *c = rig->side[side].comm;

    return r2_pair_find(c->inst, c->peer, nic, nic);
}

/* Every pair that a path of the connection uses has answered, and none is being asked. */
static inline int probes_stand(struct rig *r)
{
    for (int s = 0; s < 2; s++) {
        struct r2_comm *c = r->side[s].comm;

        for (int p = 0; p < c->conn.npaths; p++) {
            struct r2_pair *pair = pair_of(s, c->conn.path[p].nic);

            if (ib_conn_up(&c->conn, p) && (pair == NULL || !r2_pair_ready(pair) ||
                                            r2_pair_is_probing(pair) || pair->probe.last_ok == 0)) {
                return 0;
            }
        }
    }
    return 1;
}

static inline void wait_probes(void)
{
    ck_assert_msg(rig_until(rig, probes_stand, RIG_S), "no probe queue pairs after 1 s");
}

static inline enum ib_fault fault_at(int side, int p)
{
    return rig->side[side].comm->fo.path[p].why.fault;
}

static inline int path_is_down(struct rig *r, int p)
{
    return !ib_conn_up(&r->side[0].comm->conn, p) && !ib_conn_up(&r->side[1].comm->conn, p);
}

static inline int path_0_is_down(struct rig *r)
{
    return path_is_down(r, 0);
}

/* Path @p went down at both ends, and one of them says that it was @fault. */
static inline void found_as(int p, enum ib_fault fault)
{
    ck_assert_msg(path_is_down(rig, p), "path %d is up", p);
    ck_assert_msg(fault_at(0, p) == fault || fault_at(1, p) == fault,
                  "found as %s and %s, not as %s", ib_fault_name(fault_at(0, p)),
                  ib_fault_name(fault_at(1, p)), ib_fault_name(fault));
}

static inline void nothing_moved(void)
{
    for (int s = 0; s < 2; s++) {
        ck_assert_msg(rig->side[s].comm->fo.switches == 0, "side %d gave a path up: %s", s,
                      rig->side[s].comm->fo.last_fault);
    }
}

/* Enough of them that the watchdog knows how fast the path is. */
static inline void rate_known(void)
{
    for (int k = 0; k < 3; k++) {
        messages(250, BIG);
        rig_run(rig, 20 * RIG_MS);
    }
}

/* No NIC pair was given up: at most a queue pair lost its last packet, or its completions came late
 * (test_watch_tail.c), or left a silent way. */
static inline void no_pair_moved(void)
{
    for (int s = 0; s < 2; s++) {
        const struct fo_conn *fc = &rig->side[s].comm->fo;

        ck_assert_msg(fc->switches == 0 || strstr(fc->last_fault, "last packet") ||
                          strstr(fc->last_fault, "silent way") ||
                          strstr(fc->last_fault, "announced by peer"),
                      "side %d gave a path up: %s", s, fc->last_fault);
    }
}

/* A fault; rig_fault sees to it that it fired. */
static inline void fire(const char *text)
{
    rig_fault(rig, text);
    if (getenv("RIG_VERBOSE")) {
        printf("%12.3f us fault %s\n", (double)rig_now(rig) / 1e3, text);
    }
}

/* --- drivers --- */

static struct {
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    const struct ibv_qp
        *stuck; /* takes work requests and does nothing about them until it is in ERR */
    const struct ibv_cq *hidden; /* what arrived, and was acknowledged, never comes out of it */
    const struct ibv_cq *held;   /* nothing comes out of it until this is NULL again */
    const struct ibv_cq *late;   /* the same, for another one */
    unsigned fired;
} driver;

static inline int post_send_stuck(struct ibv_qp *qp, struct ibv_send_wr *wr,
                                  struct ibv_send_wr **bad)
{
    if (qp == driver.stuck && qp->state != IBV_QPS_ERR) {
        driver.fired++;
        return 0;
    }
    return driver.post_send(qp, wr, bad);
}

static inline int poll_cq_hidden(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    int got = cq == driver.held || cq == driver.late ? 0 : driver.poll_cq(cq, n, wc), kept = 0;

    for (int i = 0; i < got; i++) {
        if (cq == driver.hidden && wc[i].status == IBV_WC_SUCCESS &&
            wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            driver.fired++;
        } else {
            wc[kept++] = wc[i];
        }
    }
    return kept;
}

/* The device under path @p of @side gets this driver; returns the path. */
static inline struct ib_path *driver_hook(int side, int p)
{
    struct ib_path *path = &rig->side[side].comm->conn.path[p];
    struct ibv_context_ops *ops = &rig->side[side].inst->nics.nic[path->nic].ctx->ops;

    driver.stuck = NULL;
    driver.hidden = driver.held = NULL;
    driver.fired = 0;
    if (ops->post_send != post_send_stuck) {
        driver.post_send = ops->post_send;
        driver.poll_cq = ops->poll_cq;
        ops->post_send = post_send_stuck;
        ops->poll_cq = poll_cq_hidden;
    }
    return path;
}

/*
 * A message whose completion, or arrival, @side sees @ns late: it is suspected, and there is
 * nothing wrong. Its receive has been posted for long, so that R has nothing out.
 */
static inline void message_held_up(int side, uint64_t ns)
{
    recv_post(0, 100);
    rig_run(rig, 150 * RIG_MS);
    driver.held = driver_hook(side, 0)->cq;
    send_post(0, 100);
    rig_run(rig, ns);
    driver.held = NULL;
    finish(1, 100, RIG_S);
}

/* The queue pairs of a probe break, and nothing else. */
static inline void probe_break(int side, int nic)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    rig_enter(&rig->side[side]);
    for (int i = 0; i < PROBE_QP_LANES; i++) {
        struct ibv_qp *qp = pair_of(side, nic)->qp.lane[i].qp;

        if (qp) {
            ck_assert_int_eq(rig->side[side].inst->v.modify_qp(qp, &attr, IBV_QP_STATE), 0);
        }
    }
}

/* A process that does not run: neither NCCL's thread nor ours. What its NIC does it does. */
static inline struct r2_inst *process_stop(int side)
{
    struct r2_inst *inst = rig->side[side].inst;

    rig->side[side].asleep = 1;
    rig->side[side].inst = NULL;
    return inst;
}

static inline void process_go(int side, struct r2_inst *inst)
{
    rig->side[side].inst = inst;
    rig->side[side].asleep = 0;
    rig_kick(&rig->side[side]);
}

static inline void show_late(void *arg)
{
    driver.late = NULL;
}

/* A filter: what driver.late holds back is shown 3 ms after the first question from this end.
 * Counts the questions. */
static inline int flush_is_slow(struct rig *r, int from, int type, union fo_body *body)
{
    if (type == FO_MSG_PROBE && from == 0 && (body->probe.flags & FO_PROBE_REQUEST) &&
        r->filter_count++ == 0) {
        fab_inproc_at(r->f, rig_now(r) + 3 * RIG_MS, show_late, NULL);
    }
    return 1;
}

#endif
