/* The network API over instances and connections: listen, connect, accept, requests, close. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_fnv.h"
#include "base/r2_log.h"
#include "core/r2_inst.h"
#include "core/r2_registry.h"
#include "ib_transport/ib_rc.h"
#include "probe/diagnosis/r2_verdict.h"
#include "probe/probe_line.h"
#include "r2_close.h"
#include "r2_conn.h"
#include "r2_reg.h"
#include "r2_setup.h"
#include "telemetry/r2_latency.h"
#include "telemetry/r2_prof.h"

#define HANDLE_MAGIC 0x3272636eu /* "ncr2" */
#define HANDLE_VERSION                                                                             \
    FO_PROTO_VERSION /* who has made the handle speaks that version: told before anything is       \
                        dialled */

/* What travels through NCCL's bootstrap; at most 128 bytes. Little endian. The last word is ours on
 * the connecting side. */
struct r2_handle {
    uint32_t magic;
    uint16_t version, size;
    struct r2_oob_name name;
    uint32_t listen;
    uint16_t dev, reserved;
    uint32_t check; /* FNV-1a over the bytes before it */
    uint32_t token; /* 0, or the connection that connect() has begun for this handle */
};
_Static_assert(sizeof(struct r2_handle) <= R2_NET_HANDLE_SIZE, "handle");
_Static_assert(sizeof(struct r2_oob_name) == 56, "name in the handle");

static uint32_t handle_check(const struct r2_handle *h)
{
    return r2_fnv_add(R2_FNV_BASIS, h, offsetof(struct r2_handle, check));
}

/* --- devices --- */

int r2_net_devices(struct r2_inst *inst)
{
    return inst->nics.count;
}

static int16_t user_number(int n)
{
    return n >= 0 && n <= INT16_MAX ? (int16_t)n : -1;
}

enum r2_status r2_net_props(struct r2_inst *inst, int dev, struct r2_net_props *out)
{
    const struct ib_nic *nic;

    if (dev < 0 || dev >= inst->nics.count) {
        R2_WARN("no device %d, there are %d", dev, inst->nics.count);
        return R2_ERR_ARG;
    }
    nic = &inst->nics.nic[dev];
    *out = (struct r2_net_props){.name = nic->name,
                                 .pci_path = nic->pci_path,
                                 .guid = nic->guid,
                                 .ptr_support = nic->ptr_support,
                                 .speed_mbps = nic->speed_mbps,
                                 .port = nic->port,
                                 .max_comms = 65536,
                                 .force_flush = inst->cfg.flush == R2_FLUSH_ALWAYS,
                                 .rail = user_number(nic->hca_rail),
                                 .plane = user_number(nic->hca_plane)};
    return R2_OK;
}

/* --- listen, connect, accept --- */

enum r2_status r2_net_listen(struct r2_inst *inst, int dev, void *handle, struct r2_listen **out)
{
    struct r2_handle h = {.magic = HANDLE_MAGIC, .version = HANDLE_VERSION, .size = sizeof(h)};
    struct r2_listen *l;

    *out = NULL;
    if (inst->cfg.error[0]) {
        char line[PROBE_LINE_SIZE];

        probe_line_full(line, &(struct probe_line){.code = PROBE_CODE_C01,
                                                   .host = inst->self.host,
                                                   .job = inst->self.job,
                                                   .how = "option",
                                                   .fate = PROBE_FATE_ENDS});
        R2_WARN("%s", line);
        R2_WARN("%s", inst->cfg.error); /* last: frameworks show that one */
        r2_log_flush();
        return R2_ERR_CONFIG;
    }
    if (dev < 0 || dev >= inst->nics.count) {
        R2_WARN("listen on device %d, there are %d", dev, inst->nics.count);
        r2_log_flush();
        return R2_ERR_ARG;
    }
    l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return R2_ERR_SYSTEM;
    }
    l->inst = inst;
    l->dev = dev;
    r2_listen_enter(l);
    inst->oob->ops->name_get(inst->oob, &h.name);
    h.listen = l->id;
    h.dev = (uint16_t)dev;
    h.check = handle_check(&h);
    memset(handle, 0, R2_NET_HANDLE_SIZE);
    memcpy(handle, &h, sizeof(h));
    *out = l;
    return R2_OK;
}

static bool handle_is_ours(const struct r2_handle *h)
{
    return h->magic == HANDLE_MAGIC && h->version == HANDLE_VERSION && h->size == sizeof(*h) &&
           h->check == handle_check(h);
}

static void handle_refuse(const struct r2_handle *h)
{
    if (h->magic == HANDLE_MAGIC &&
        h->version != HANDLE_VERSION) { /* which has the same place in every version */
        R2_WARN(
            "the peer's nccl-net-r2 speaks version %u, this process version %d: all processes of a job need the same plugin",
            h->version, HANDLE_VERSION);
    } else {
        R2_WARN(
            "connect with a handle that is not of this plugin (magic %08x, version %u), or was damaged",
            h->magic, h->version);
    }
}

/* Whether device @dev can have the class that the communicator asks for; not asked where the
 * environment has a say. */
static enum r2_status check_class(struct r2_inst *inst, int dev, int class)
{
    struct ib_addr at;
    int ib, max;

    ib_nic_addr_get(&inst->nics, dev, &at);
    ib = at.link_layer == IBV_LINK_LAYER_INFINIBAND;
    max = ib ? IB_SL_MAX : UINT8_MAX;
    if (class == R2_NET_NO_CLASS || (ib ? inst->cfg.ib_sl : inst->cfg.ib_tc) >= 0 ||
        (class >= 0 && class <= max)) {
        return R2_OK;
    }
    R2_WARN(
        "trafficClass %d of the communicator cannot be obeyed: expected 0 to %d, a %s of NIC %s",
        class, max, ib ? "service level" : "traffic class", inst->nics.nic[dev].name);
    return R2_ERR_CONFIG;
}

static enum r2_status connect_begin(struct r2_inst *inst, int dev, int class, struct r2_handle *h)
{
    struct r2_comm *c;
    enum r2_status status;

    if (!handle_is_ours(h)) {
        handle_refuse(h);
        return R2_ERR_ARG;
    }
    if (dev < 0 || dev >= inst->nics.count) {
        R2_WARN("connect from device %d, there are %d", dev, inst->nics.count);
        return R2_ERR_ARG;
    }
    status = check_class(inst, dev, class);
    if (status != R2_OK) {
        return status;
    }
    c = r2_comm_alloc(inst, 1, dev);
    if (c == NULL) {
        return R2_ERR_SYSTEM;
    }
    c->conn.traffic_class = class >= 0 && class <= UINT8_MAX ? (uint8_t) class : 0;
    c->start->peer_name = h->name;
    c->start->listen_id = h->listen;
    c->start->since = r2_now(inst);
    c->repeat.interval = (uint64_t)inst->cfg.t_repeat_ms * 1000000;
    h->token = c->id;
    r2_comm_kick(c);
    return R2_OK;
}

/* The connection has ended: the reason is made the last WARN again, for the text that frameworks
 * show. */
static __attribute__((noinline, cold)) enum r2_status report_error(struct r2_comm *c)
{
    char found[R2_VERDICT_FOUND];

    r2_verdict_found(c, found);
    R2_WARN("%s: %s%s%s", c->label, c->fo.why, found[0] ? ". Found: " : "", found);
    r2_log_flush();
    return c->fo.error;
}

/*
 * The attempt that @h names, and how far its set-up is. Not one that was handed out already, which
 * may be closed, and freed at any moment. One whose set-up is over is handed out with that, and
 * stays; another one may be looked at under the lock alone.
 */
static struct r2_comm *attempt_take(struct r2_inst *inst, int dev, const struct r2_handle *h,
                                    int *setup)
{
    struct r2_comm *c;

    pthread_mutex_lock(&inst->lock);
    for (c = inst->comms.bucket[h->token % R2_COMM_BUCKETS]; c && c->id != h->token;
         c = c->list.hash_next) {
    }
    if (c && (!c->is_send || c->start->given || c->start->listen_id != h->listen || c->dev != dev ||
              memcmp(&c->start->peer_name, &h->name, sizeof(h->name)) != 0)) {
        c = NULL;
    }
    if (c) {
        *setup =
            atomic_load_explicit(&c->state.setup, memory_order_acquire); /* pairs with setup_move */
        c->start->given = *setup >= R2_SETUP_DONE;
    }
    pthread_mutex_unlock(&inst->lock);
    return c;
}

enum r2_status r2_net_connect_class(struct r2_inst *inst, int dev, int class, void *handle,
                                    struct r2_comm **out)
{
    struct r2_handle h;
    struct r2_comm *c;
    enum r2_status status = R2_OK;
    int setup = R2_SETUP_NEW;

    *out = NULL;
    memcpy(&h, handle, sizeof(h));
    if (h.token == 0) {
        status = connect_begin(inst, dev, class, &h);
        memcpy(handle, &h, sizeof(h));
        if (status != R2_OK) {
            r2_log_flush();
        }
        return status;
    }
    c = handle_is_ours(&h) ? attempt_take(inst, dev, &h, &setup) : NULL;
    if (c == NULL) {
        R2_WARN("connect with a handle of another attempt");
        r2_log_flush();
        return R2_ERR_ARG;
    }
    switch (setup) {
    case R2_SETUP_DONE:
        *out = c;
        return R2_OK;
    case R2_SETUP_FAILED:
        status = c->fo.error;
        if (c->fo.cause.code != PROBE_CODE_NONE) {
            report_error(c); /* also what was found */
        }
        r2_gate_visit(&c->gate); /* keeps the comm until the last word about it is said */
        r2_close_move(c, R2_CLOSE_DESTROY);
        r2_comm_kick(c);
        r2_gate_unvisit(&c->gate);
        r2_log_flush();
        return status;
    default:
        return R2_OK;
    }
}

enum r2_status r2_net_connect(struct r2_inst *inst, int dev, void *handle, struct r2_comm **out)
{
    return r2_net_connect_class(inst, dev, R2_NET_NO_CLASS, handle, out);
}

enum r2_status r2_net_accept(struct r2_listen *l, struct r2_comm **out)
{
    struct r2_inst *inst = l->inst;
    int failed;

    pthread_mutex_lock(&inst->lock);
    *out = l->ready_head;
    if (*out) {
        l->ready_head = (*out)->list.accept_next;
        if (l->ready_head == NULL) {
            l->ready_tail = NULL;
        }
    }
    failed = *out == NULL && l->error[0] != 0; /* written once, under the lock */
    pthread_mutex_unlock(&inst->lock);
    if (failed) {
        R2_WARN("accept on device %d: %s", l->dev, l->error);
        r2_log_flush();
        return R2_ERR_COMM;
    }
    return R2_OK;
}

void r2_net_close_listen(struct r2_listen *l)
{
    struct r2_comm *c, *next;

    if (l == NULL) {
        return;
    }
    r2_listen_unlink(l);
    for (c = l->ready_head; c; c = next) {
        next = c->list.accept_next;
        r2_net_close(c);
    }
    free(l);
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
    if (__builtin_expect(c->fo.error != R2_OK, 0)) {
        r2_gate_leave(&c->gate);
        return report_error(c);
    }
    if (__builtin_expect(c->fo.bye.peer != FO_BYE_NONE, 0)) {
        fo_fail_peer(&c->fo, c->fo.bye.at, "the receiver has closed its end");
        r2_gate_leave(&c->gate);
        return report_error(c);
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

enum r2_status r2_net_irecv(struct r2_comm *c, int n, void **data, const size_t *sizes,
                            const int *tags, struct ib_mr **mrs, struct r2_req **req)
{
    uint64_t first;

    *req = NULL;
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
    if (__builtin_expect(c->fo.error != R2_OK, 0)) {
        r2_gate_leave(&c->gate);
        return report_error(c);
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

static int flush_needed(const struct r2_comm *c, int n, const int *sizes, struct ib_mr *const *mrs)
{
    for (int i = 0; i < n; i++) {
        if (sizes[i] > 0 && mrs[i] &&
            (mrs[i]->type != IB_PTR_HOST ||
             (c->flush.lane && c->flush.lane->always && c->flush.lane->able))) {
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
    struct ib_smsg *m = req->sent;

    ib_send_progress(c->tx);
    if (!ib_send_done(c->tx, m)) {
        return 0;
    }
    if (sizes) {
        sizes[0] = (int)m->size;
    }
    ib_send_retire(m);
    return 1;
}

static inline __attribute__((always_inline)) int test_recv(struct r2_comm *c,
                                                           const struct r2_req *req, int *sizes)
{
    ib_recv_progress(c->rx);
    if (req->seq != c->rx->ledger.rdone || !ib_recv_done(c->rx, req->seq, req->n, sizes)) {
        if (__builtin_expect(c->fo.bye.peer != FO_BYE_NONE, 0)) {
            fo_check_bye(&c->fo, 0);
        }
        return 0;
    }
    ib_recv_retire(c->rx, req->n);
    return 1;
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

    r2_latency_look(c, req->sent, done);
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

/* Out of the gate: what the step came to. */
static inline __attribute__((always_inline)) enum r2_status test_end(struct r2_comm *c, int is_done,
                                                                     int *done)
{
    if (is_done) {
        *done = 1;
    } else if (__builtin_expect(c->fo.error != R2_OK, 0)) {
        r2_gate_leave(&c->gate);
        return report_error(c);
    }
    r2_gate_leave(&c->gate);
    return R2_OK;
}

/* One for each direction, so that each saves the registers that it needs. */
static __attribute__((noinline)) enum r2_status
send_test(struct r2_comm *c, const struct r2_req *req, int *done, int *sizes)
{
    return test_end(c, test_send(c, req, sizes), done);
}

static __attribute__((noinline)) enum r2_status
recv_test(struct r2_comm *c, const struct r2_req *req, int *done, int *sizes)
{
    return test_end(c, test_recv(c, req, sizes), done);
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
        return failed ? report_error(c) : R2_OK;
    }
    r2_prof_poll(req, *done);
    r2_gate_leave(&c->gate);
    r2_prof_notify(c->prof, failed);
    return failed ? report_error(c) : R2_OK;
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

    *done = 0;
    if (!r2_gate_enter_loose(&c->gate)) {
        return strict_test(c, req, done, sizes);
    }
    if (__builtin_expect(c->prof != NULL || req->kind > R2_REQ_RECV, 0)) {
        return rare_test(c, req, done, sizes);
    }
    return req->kind == R2_REQ_SEND ? send_test(c, req, done, sizes)
                                    : recv_test(c, req, done, sizes);
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
        fo_quiet(&c->fo);
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
    R2_INFO("%s: NCCL has not asked after it any more: closed", c->label);
    if (setup == R2_SETUP_DONE) {
        close_begin(c);
    } else {
        r2_close_move(c, R2_CLOSE_DESTROY);
        r2_comm_kick(c);
    }
    return UINT64_MAX;
}
