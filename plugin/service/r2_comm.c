/* The network API over connections: requests, close. */
#include <stdbool.h>

#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "probe/diagnosis/r2_verdict.h"
#include "r2_close.h"
#include "r2_conn.h"
#include "r2_reg.h"
#include "r2_setup.h"
#include "telemetry/r2_latency.h"
#include "telemetry/r2_prof.h"

__attribute__((noinline, cold)) enum r2_status r2_comm_report_error(struct r2_comm *c)
{
    char found[R2_VERDICT_FOUND];

    r2_verdict_found(c, found);
    R2_WARN("%s: %s%s%s", c->label, c->fo.why, found[0] ? ". Found: " : "", found);
    r2_log_flush();
    return c->fo.error;
}

/* --- requests --- */

static struct r2_req *make_req(struct r2_comm *c, enum r2_req_kind kind, uint64_t seq, int n)
{
    struct r2_req *r = &c->req[seq % R2_LEDGER_WINDOW];

    r->comm = c;
    r->kind = kind;
    r->seq = seq;
    r->n = (uint8_t)n;
    return r;
}

/* The gate held: an error, or the receiver has closed its end. Leaves the gate. */
static __attribute__((noinline, cold)) enum r2_status send_ended(struct r2_comm *c)
{
    if (c->fo.error == R2_OK) {
        fo_fail_peer(&c->fo, c->fo.bye.at, "the receiver has closed its end");
    }
    r2_gate_leave(&c->gate);
    return r2_comm_report_error(c);
}

enum r2_status r2_net_isend(struct r2_comm *c, void *data, size_t size, int tag, struct ib_mr *mr,
                            struct r2_req **req)
{
    struct ib_smsg *m;

    *req = NULL;
    if (__builtin_expect(size > R2_NET_MAX_SIZE || mr == NULL, 0)) {
        R2_WARN("%s: isend of %zu bytes%s", c->label, size, mr ? "" : " without a registration");
        r2_log_flush();
        return R2_ERR_ARG;
    }
    if (!r2_gate_enter(&c->gate)) {
        return R2_OK;
    }
    if (__builtin_expect((unsigned)c->fo.error | (unsigned)c->fo.bye.peer, 0)) {
        return send_ended(c);
    }
    m = ib_send_start(c->tx, data, (uint32_t)size, (uint32_t)tag, mr);
    if (m) {
        *req = make_req(c, R2_REQ_SEND, m->seq, 1);
        (*req)->sent = m;
        if (__builtin_expect(--c->timed.left == 0, 0)) {
            r2_latency_begin(c, *req, m);
        }
    }
    r2_gate_leave(&c->gate);
    return R2_OK;
}
_Static_assert(R2_OK == 0 && FO_BYE_NONE == 0, "one comparison for both");

/* The gate held: leaves it. @n is a constant where it is 1, as mostly. */
static inline __attribute__((always_inline)) enum r2_status
recv_begin(struct r2_comm *c, int n, void **data, const size_t *sizes, const int *tags,
           struct ib_mr **mrs, struct r2_req **req)
{
    uint64_t first;

    if (__builtin_expect(c->fo.error != R2_OK, 0)) {
        r2_gate_leave(&c->gate);
        return r2_comm_report_error(c);
    }
    first = ib_recv_start(c->rx, n, data, sizes, tags, mrs);
    if (first != UINT64_MAX) {
        *req = make_req(c, R2_REQ_RECV, first, n);
    } else {
        ib_recv_progress(c->rx);
    }
    if (__builtin_expect(c->fo.bye.peer != FO_BYE_NONE, 0)) {
        fo_check_bye(&c->fo, *req == NULL);
    }
    r2_gate_leave(&c->gate);
    return R2_OK;
}

/* A group, a bad argument, or the gate was not open. */
static __attribute__((noinline)) enum r2_status recv_apart(struct r2_comm *c, int n, void **data,
                                                           const size_t *sizes, const int *tags,
                                                           struct ib_mr **mrs, struct r2_req **req)
{
    if (__builtin_expect(n < 1 || n > R2_NET_MAX_RECVS, 0)) {
        R2_WARN("%s: irecv of %d buffers, 1 to %d are possible", c->label, n, R2_NET_MAX_RECVS);
        r2_log_flush();
        return R2_ERR_ARG;
    }
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(sizes[i] > R2_NET_MAX_SIZE || mrs[i] == NULL, 0)) {
            R2_WARN("%s: irecv of %zu bytes%s", c->label, sizes[i],
                    mrs[i] ? "" : " without a registration");
            r2_log_flush();
            return R2_ERR_ARG;
        }
    }
    if (!r2_gate_enter(&c->gate)) {
        return R2_OK;
    }
    return recv_begin(c, n, data, sizes, tags, mrs, req);
}

enum r2_status r2_net_irecv(struct r2_comm *c, int n, void **data, const size_t *sizes,
                            const int *tags, struct ib_mr **mrs, struct r2_req **req)
{
    *req = NULL;
    if (__builtin_expect(n != 1 || sizes[0] > R2_NET_MAX_SIZE || mrs[0] == NULL ||
                             !r2_gate_enter_loose(&c->gate),
                         0)) {
        return recv_apart(c, n, data, sizes, tags, mrs, req);
    }
    return recv_begin(c, 1, data, sizes, tags, mrs, req);
}

static int flush_needed(const struct r2_comm *c, int n, const int *sizes, struct ib_mr *const *mrs)
{
    const struct ib_flush *f = c->flush.lane;
    bool always = f && f->always && f->able;

    if (c->inst->cfg.gdr_flush_disable && !always) {
        return 0;
    }
    for (int i = 0; i < n; i++) {
        if (sizes[i] > 0 && mrs[i] && (mrs[i]->type != IB_PTR_HOST || always)) {
            return 1;
        }
    }
    return 0;
}

/* Host memory is coherent with the NIC's writes once the completion is seen: nothing to flush. NULL
 * means flushed to NCCL, so that "come again" is not possible here: where a visitor is inside, the
 * reads are posted by the first test. */
enum r2_status r2_net_iflush(struct r2_comm *c, int n, void **data, const int *sizes,
                             struct ib_mr **mrs, struct r2_req **req)
{
    enum r2_status status = R2_ERR_ARG;
    const char *why = NULL;
    int op = -1;

    *req = NULL;
    if (!flush_needed(c, n, sizes, mrs)) {
        return R2_OK;
    }
    if (n > R2_NET_MAX_RECVS) {
        why = "more buffers than a receive can have";
    } else if (c->flush.lane == NULL || !c->flush.lane->able) {
        status = R2_ERR_SYSTEM;
        why = "no NIC of this connection can";
    } else if ((op = ib_flush_take(c->flush.lane, n, data, sizes, mrs)) < 0) {
        why = "more flushes outstanding than receives are possible";
    }
    if (why) {
        R2_WARN("%s: flush of %d buffers: %s", c->label, n, why);
        r2_log_flush();
        return status;
    }
    if (r2_gate_enter(&c->gate)) {
        ib_flush_begin(c->flush.lane, c->rx, op);
        r2_gate_leave(&c->gate);
    }
    *req = &c->flush.req[op];
    **req = (struct r2_req){.comm = c, .kind = R2_REQ_FLUSH, .n = (uint8_t)n, .seq = (uint64_t)op};
    return R2_OK;
}

/* A step of @req, the gate held: whether it is done. */
static inline __attribute__((always_inline)) int test_send(struct r2_comm *c,
                                                           const struct r2_req *req, int *sizes)
{
    return ib_send_test(c->tx, req->sent, sizes);
}

static inline __attribute__((always_inline)) int test_recv(struct r2_comm *c,
                                                           const struct r2_req *req, int *sizes)
{
    if (__builtin_expect(ib_recv_test(c->rx, req->seq, req->n, sizes), 1)) {
        return 1;
    }
    if (__builtin_expect(c->fo.bye.peer != FO_BYE_NONE, 0)) {
        fo_check_bye(&c->fo, 0);
    }
    return 0;
}

static __attribute__((noinline)) int test_flush(struct r2_comm *c, const struct r2_req *req)
{
    int r;

    ib_recv_progress(c->rx);
    r = ib_flush_test(c->flush.lane, c->rx, (int)req->seq);
    if (r < 0) {
        fo_fail(&c->fo, R2_ERR_COMM, "%s", c->flush.lane->why);
    }
    return r > 0;
}

static __attribute__((noinline)) int test_timed(struct r2_comm *c, const struct r2_req *req,
                                                int *sizes)
{
    int done = test_send(c, req, sizes);

    r2_latency_poll(c, req->sent, done);
    return done;
}

static __attribute__((noinline)) int test_step(struct r2_comm *c, const struct r2_req *req,
                                               int *sizes)
{
    switch (req->kind) {
    case R2_REQ_SEND:
        return test_send(c, req, sizes);
    case R2_REQ_RECV:
        return test_recv(c, req, sizes);
    case R2_REQ_SEND_TIMED:
        return test_timed(c, req, sizes);
    default:
        return test_flush(c, req);
    }
}

/* What is rare: a flush, a send that is timed; with a profiler, which is notified. */
static __attribute__((noinline)) enum r2_status rare_test(struct r2_comm *c, struct r2_req *req,
                                                          int *done, int *sizes)
{
    int failed;

    *done = test_step(c, req, sizes);
    failed = !*done && c->fo.error != R2_OK;
    if (c->prof == NULL) {
        r2_gate_leave(&c->gate);
        return failed ? r2_comm_report_error(c) : R2_OK;
    }
    r2_prof_poll(req, *done);
    r2_gate_leave(&c->gate);
    r2_prof_notify(c->prof, failed);
    return failed ? r2_comm_report_error(c) : R2_OK;
}

/* The gate was not open: apart, so that the usual way saves no registers for this one. */
static __attribute__((noinline)) enum r2_status strict_test(struct r2_comm *c, struct r2_req *req,
                                                            int *done, int *sizes)
{
    return r2_gate_enter_strict(&c->gate) ? rare_test(c, req, done, sizes) : R2_OK;
}

enum r2_status r2_net_test(struct r2_req *req, int *done, int *sizes)
{
    struct r2_comm *c = req->comm;
    int is_done;

    *done = 0;
    if (!r2_gate_enter_loose(&c->gate)) {
        return strict_test(c, req, done, sizes);
    }
    if (__builtin_expect(c->prof != NULL || req->kind > R2_REQ_RECV, 0)) {
        return rare_test(c, req, done, sizes);
    }
    is_done = req->kind == R2_REQ_SEND ? test_send(c, req, sizes) : test_recv(c, req, sizes);
    if (is_done) {
        *done = 1;
    } else if (__builtin_expect(c->fo.error != R2_OK, 0)) {
        r2_gate_leave(&c->gate);
        return r2_comm_report_error(c);
    }
    r2_gate_leave(&c->gate);
    return R2_OK;
}

/* --- close --- */

/* Gate held. */
static void close_begin(struct r2_comm *c)
{
    int outstanding =
        c->is_send ? !ib_send_idle(c->tx) : c->rx->ledger.rdone != c->rx->ledger.rpost;
    c->end->abort |= outstanding || (c->is_send && c->fo.error != R2_OK);
    c->fo.closing = 1;
    if (c->end->abort) {
        fo_stop_posting(&c->fo);
    }
    if (outstanding) {
        fo_abort(&c->fo); /* handles that are left may be released at any moment (P27) */
    }
    r2_reg_leave(c);
    r2_close_log_flush(c);
    c->end->closed_at = r2_now(c->inst);
    c->repeat.at = 0;
    c->repeat.interval = (uint64_t)c->inst->cfg.t_repeat_ms * 1000000;
    r2_close_move(c, R2_CLOSE_BYE);
    r2_comm_kick(c); /* inside: outside, the service thread may have freed it by now */
}

void r2_net_close(struct r2_comm *c)
{
    if (c == NULL) {
        return;
    }
    r2_gate_visit(&c->gate);
    close_begin(c);
    r2_gate_unvisit(&c->gate);
}

uint64_t r2_net_step_attempt(struct r2_comm *c, uint64_t now)
{
    int setup = atomic_load_explicit(&c->state.setup, memory_order_relaxed);
    uint64_t limit = c->start->over_at + R2_MS(c->inst->cfg.t_connect_ms);
    bool left;

    if (!c->is_send || setup < R2_SETUP_DONE || c->start->over_at == 0) {
        return UINT64_MAX;
    }
    if (now < limit) {
        return limit;
    }
    c->start->over_at = 0; /* once */
    pthread_mutex_lock(&c->inst->lock);
    left = !c->start->given;
    c->start->given = 1; /* from here on connect does not find it */
    pthread_mutex_unlock(&c->inst->lock);
    if (!left) {
        return UINT64_MAX;
    }
    R2_INFO("%s: NCCL polls it no more: closed", c->label);
    if (setup == R2_SETUP_DONE) {
        close_begin(c);
    } else {
        r2_close_move(c, R2_CLOSE_DESTROY);
        r2_comm_kick(c);
    }
    return UINT64_MAX;
}
