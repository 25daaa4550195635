#include "r2_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/r2_host_share.h"
#include "balance/r2_balance.h"
#include "base/r2_pages.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_hang.h"
#include "probe/health/r2_watch.h"
#include "r2_close.h"
#include "r2_peer.h"
#include "r2_reconnect.h"
#include "r2_reg.h"
#include "r2_setup.h"
#include "telemetry/r2_latency.h"
#include "telemetry/r2_prof.h"
#include "telemetry/r2_report.h"

/* A connection, and what the modules keep of it. */
struct conn {
    struct r2_comm comm; /* first */
    struct r2_watch_conn watch;
    struct r2_flow flow;
    struct r2_setup_conn start;
    struct r2_reconnect_conn ret;
    struct r2_close_conn end;
    struct r2_hang_conn hang;
};

struct r2_comm *r2_comm_alloc(struct r2_inst *inst, int is_send, int dev)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    struct r2_comm *c;

    if (conn == NULL) {
        return NULL;
    }
    c = &conn->comm;
    c->watch = &conn->watch;
    c->flow = &conn->flow;
    c->start = &conn->start;
    c->ret = &conn->ret;
    c->end = &conn->end;
    c->hang = &conn->hang;
    c->inst = inst;
    c->is_send = is_send;
    c->dev = dev;
    r2_gate_init(&c->gate);
    c->prof = r2_prof_new(&inst->cfg);
    c->timed.sample = is_send ? r2_latency_new(&inst->cfg) : NULL;
    c->conn.nics = &inst->nics;
    c->conn.cfg = &inst->cfg;
    c->conn.rq_depth = (uint32_t)inst->cfg.rq_depth;
    c->conn.now_ns = inst->env.now_ns;
    c->conn.now_arg = inst->env.arg;
    c->conn.wake = r2_comm_wake;
    c->conn.wake_arg = c;
    r2_comm_enter(c);
    c->conn.conn_id = c->id;
    c->timed.left = r2_latency_first(c->timed.sample, c->id);
    snprintf(c->label, sizeof(c->label), "%s %u", is_send ? "send" : "recv", c->id);
    return c;
}

void r2_comm_free(struct r2_comm *c)
{
    r2_comm_unlink(c);
    r2_host_share_comm_gone(c);
    r2_balance_comm_gone(c);
    r2_report_comm_gone(c);
    if (c->peer) {
        r2_peer_put(c->inst, c->peer);
    }
    r2_reg_leave(c); /* none, unless the instance goes before its connections were closed */
    if (!atomic_load_explicit(&c->conn.ctl_src_kept,
                              memory_order_relaxed)) { /* the workers' jobs are back */
        r2_pages_put(c->start->ctl_src_mem, sizeof(struct ib_ctl_src));
    }
    ib_flush_free(c->flush.lane);
    free(c->flush.req);
    free(c->prof);
    free(c->timed.sample);
    fo_conn_free(&c->fo);
    free(c->tx);
    free(c->rx);
    r2_gate_destroy(&c->gate);
    free(c); /* the whole of struct conn */
}
