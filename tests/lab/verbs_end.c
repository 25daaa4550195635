/* The end of a queue pair that something happened to: what a program that fences and closes it
 * would meet. */
#include "tests/lab/verbs_watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#define MARKER      (1ull << 62)
#define RECV_MARKER (MARKER | 1ull << 63)
#define DRAIN_NS    (1000 * VW_NSEC_MS)

struct drain {
    uint64_t start;
    uint32_t send_flushed, recv_flushed, other;
    double send_ms, recv_ms; /* when the markers came out; negative: they did not */
};

static double since_ms(uint64_t start)
{
    return (double)(vw_now() - start) / (double)VW_NSEC_MS;
}

static void drain_take(struct drain *d, const struct ibv_wc *wc)
{
    bool recv = wc->wr_id >> 63;

    if (wc->wr_id & MARKER) {
        *(recv ? &d->recv_ms : &d->send_ms) = since_ms(d->start);
    } else if (wc->status != IBV_WC_WR_FLUSH_ERR) {
        d->other++;
    } else {
        (*(recv ? &d->recv_flushed : &d->send_flushed))++;
    }
}

/* Until both markers are out, or a limit: what is posted in ERR is not flushed everywhere. */
static void drain(struct vw *w, struct drain *d)
{
    uint64_t until = vw_now() + DRAIN_NS;

    while ((d->send_ms < 0 || d->recv_ms < 0) && vw_now() < until) {
        struct ibv_wc wc[16];
        int n = ibv_poll_cq(w->cq, 16, wc);

        for (int i = 0; i < n; i++) {
            drain_take(d, &wc[i]);
        }
        if (n <= 0) {
            poll(NULL, 0,
                 1); /* whether a completion channel still works is not what is asked here */
        }
    }
}

static int markers_post(struct vw *w)
{
    struct ibv_send_wr s = {.wr_id = MARKER,
                            .opcode = IBV_WR_RDMA_WRITE,
                            .send_flags = IBV_SEND_SIGNALED},
                       *sbad;
    struct ibv_recv_wr r = {.wr_id = RECV_MARKER}, *rbad;
    int rc = ibv_post_send(w->qp, &s, &sbad), rc2 = ibv_post_recv(w->qp, &r, &rbad);

    return rc ? rc : rc2;
}

static const char *result(int rc)
{
    return rc ? vw_errno_name(rc < 0 ? errno : rc) : "ok";
}

static void objects_destroy(struct vw *w)
{
    double qp_ms, ctx_ms;
    int qp, mr, cq, ctx;
    uint64_t start;

    vw_guard("destroy_qp");
    start = vw_now();
    qp = ibv_destroy_qp(w->qp);
    qp_ms = since_ms(start);
    vw_guard("dereg_mr");
    mr = ibv_dereg_mr(w->mr);
    vw_guard("destroy_cq");
    cq = ibv_destroy_cq(w->cq);
    ibv_dealloc_pd(w->pd);
    ibv_destroy_comp_channel(w->chan);
    vw_guard("close_device");
    start = vw_now();
    ctx = ibv_close_device(w->ctx);
    ctx_ms = since_ms(start);
    vw_guard(NULL);
    printf(
        "{\"end\": \"destroy\", \"qp\": \"%s\", \"qp_ms\": %.3f, \"mr\": \"%s\", \"cq\": \"%s\", \"device\": \"%s\", "
        "\"device_ms\": %.3f}\n",
        result(qp), qp_ms, result(mr), result(cq), result(ctx), ctx_ms);
}

void vw_end(struct vw *w)
{
    uint64_t out = w->send.posted - w->send.ok - w->send.failed;
    uint64_t recv_out = w->recv.posted - w->recv.ok - w->recv.failed;
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR}, a;
    struct drain d = {.send_ms = -1, .recv_ms = -1};
    struct ibv_qp_init_attr init;
    const char *again = "";
    int query, modify, post;
    double modify_ms;

    vw_guard("query_qp");
    query = ibv_query_qp(w->qp, &a, IBV_QP_STATE, &init);
    printf(
        "{\"end\": \"state\", \"query_qp\": \"%s\", \"state\": \"%s\", \"send_outstanding\": %llu, "
        "\"recv_outstanding\": %llu}\n",
        result(query), query ? "?" : vw_state_name((int)a.qp_state), (unsigned long long)out,
        (unsigned long long)recv_out);
    fflush(stdout);
    vw_guard("modify_qp to ERR");
    d.start = vw_now();
    modify = ibv_modify_qp(w->qp, &err, IBV_QP_STATE);
    modify_ms = since_ms(d.start);
    vw_guard("markers");
    post = markers_post(w);
    drain(w, &d);
    if (d.send_ms < 0 || d.recv_ms < 0) {
        vw_guard("modify_qp to ERR again");
        again = result(ibv_modify_qp(w->qp, &err, IBV_QP_STATE));
        drain(w, &d);
    }
    vw_guard(NULL);
    printf(
        "{\"end\": \"fence\", \"again\": \"%s\", \"modify_qp\": \"%s\", \"modify_ms\": %.3f, \"post\": \"%s\", "
        "\"send_marker_ms\": %.3f, "
        "\"recv_marker_ms\": %.3f, \"send_flushed\": %u, \"recv_flushed\": %u, \"not_flush\": %u}\n",
        again, result(modify), modify_ms, result(post), d.send_ms, d.recv_ms, d.send_flushed,
        d.recv_flushed, d.other);
    fflush(stdout);
    objects_destroy(w);
}
