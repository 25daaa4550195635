/* The traffic: writes with immediate in a window, receives posted again, completions. */
#include "tests/lab/verbs_watch.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Work request ids: which queue, which slot. */
#define RECV_BIT (1ull << 63)

int vw_recv_post(struct vw *w, uint32_t slot)
{
    struct ibv_recv_wr wr = {.wr_id = RECV_BIT | slot}, *bad;
    int rc = ibv_post_recv(w->qp, &wr, &bad);

    if (rc) {
        return rc;
    }
    w->recv.posted++;
    return 0;
}

void vw_send_fill(struct vw *w)
{
    while (!w->send_over && !w->o.recv_only &&
           w->send.posted - w->send.ok - w->send.failed < w->o.depth) {
        uint64_t slot = w->send.posted % w->o.depth;
        struct ibv_sge sge = {
            .addr = (uintptr_t)w->buf + slot * w->o.size, .length = w->o.size, .lkey = w->mr->lkey};
        struct ibv_send_wr wr = {.wr_id = slot,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .imm_data = htonl((uint32_t)w->send.posted)},
                           *bad;
        int rc;

        wr.wr.rdma.remote_addr = w->peer.addr + slot * w->o.size;
        wr.wr.rdma.rkey = w->peer.rkey;
        rc = ibv_post_send(w->qp, &wr, &bad);
        if (rc) {
            vw_note(w, VW_CALL, "post_send %s", vw_errno_name(rc));
            w->send_over = true;
            return;
        }
        w->send.posted++;
    }
}

static void succeeded(struct vw *w, struct vw_flow *f, const char *name, uint64_t now)
{
    uint64_t gap = now - f->last_ok;

    /* A pause counts when it ended after the fault: one that the fault made began before it. */
    if (w->marks && gap > f->gap_ns) {
        f->gap_ns = gap;
        f->gap_at = f->last_ok;
    }
    if (f->stopped) {
        f->stopped = false;
        vw_note(w, VW_PROGRESS, "%s resumed", name);
    }
    f->last_ok = now;
    f->ok++;
}

static void recv_take(struct vw *w, const struct ibv_wc *wc, uint64_t now)
{
    uint32_t imm = ntohl(wc->imm_data);
    int rc;

    if (wc->status) {
        w->recv.failed++;
        w->recv_over = true;
        vw_note(w, VW_WC, "recv %s", vw_status_name(wc->status));
        return;
    }
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || !(wc->wc_flags & IBV_WC_WITH_IMM) ||
        wc->byte_len != w->peer.size) {
        vw_note(w, VW_SEQ, "recv of opcode %d, flags %u, %u bytes", wc->opcode, wc->wc_flags,
                wc->byte_len);
    } else if (imm != w->next_imm) {
        vw_note(w, VW_SEQ, imm - w->next_imm < 1u << 31 ? "message lost" : "message twice");
    }
    w->next_imm = imm + 1;
    succeeded(w, &w->recv, "recv", now);
    rc = w->recv_over ? 0 : vw_recv_post(w, (uint32_t)wc->wr_id);
    if (rc) {
        vw_note(w, VW_CALL, "post_recv %s", vw_errno_name(rc));
        w->recv_over = true;
    }
}

static void send_take(struct vw *w, const struct ibv_wc *wc, uint64_t now)
{
    if (!wc->status) {
        succeeded(w, &w->send, "send", now);
        return;
    }
    w->send.failed++;
    w->send_over = true;
    vw_note(w, VW_WC, "send %s", vw_status_name(wc->status));
}

void vw_poll(struct vw *w)
{
    struct ibv_wc wc[16];
    int n;

    while ((n = ibv_poll_cq(w->cq, 16, wc)) > 0) {
        uint64_t now = vw_now();

        for (int i = 0; i < n; i++) {
            if (wc[i].wr_id & RECV_BIT) {
                recv_take(w, &wc[i], now);
            } else {
                send_take(w, &wc[i], now);
            }
        }
        if (!w->o.pace_ns) {
            vw_send_fill(w);
        }
    }
    if (n < 0) {
        vw_note(w, VW_CALL, "poll_cq %d", n);
    }
}

/* A stop is dated from the last success; that it is one shows only later. */
static void flow_check(struct vw *w, struct vw_flow *f, const char *name, bool wanted, uint64_t now)
{
    char what[VW_NAME_MAX];

    if (!w->marks || !wanted || f->stopped || now - f->last_ok < w->o.stall_ns) {
        return;
    }
    f->stopped = true;
    snprintf(what, sizeof what, "%s stopped", name);
    vw_note_at(w, VW_PROGRESS, f->last_ok, what);
}

void vw_stall_check(struct vw *w, uint64_t now)
{
    flow_check(w, &w->send, "send", w->send.posted > w->send.ok + w->send.failed, now);
    flow_check(w, &w->recv, "recv", w->recv.ok > 0 && !w->recv_over, now);
}
