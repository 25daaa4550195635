/* Ends, peers and steps. */
#include "tests/e2e/softfab_probe.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct seg_map probe_map;
struct end me, second;
pid_t peer_pid;
uint8_t qp_timeout, qp_retries;
char saw[256], reason[512];
static int peer_sock;

bool because(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    return false;
}

/* --- one end --- */

struct ibv_context *device_open(const char *name)
{
    struct ibv_context *ctx = NULL;
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    errno = ENODEV;
    for (int i = 0; list != NULL && i < n; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            ctx = ibv_open_device(list[i]);
        }
    }
    int saved = errno;
    if (list != NULL) {
        ibv_free_device_list(list);
    }
    errno = saved;
    return ctx;
}

bool end_open(struct end *e, const char *nic)
{
    *e = (struct end){.ctx = device_open(nic)};
    if (e->ctx == NULL) {
        return because("open %s: %s", nic, strerror(errno));
    }
    e->pd = ibv_alloc_pd(e->ctx);
    e->cq = ibv_create_cq(e->ctx, 1024, NULL, NULL, 0);
    e->buf = aligned_alloc(4096, BUF_SIZE);
    if (e->pd == NULL || e->cq == NULL || e->buf == NULL) {
        return because("pd, cq or buffer: %s", strerror(errno));
    }
    memset(e->buf, 0, BUF_SIZE);
    e->mr = ibv_reg_mr(e->pd, e->buf, BUF_SIZE,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct ibv_qp_init_attr init = {
        .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){
        .max_send_wr = 512, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    e->qp = ibv_create_qp(e->pd, &init);
    if (e->mr == NULL || e->qp == NULL) {
        return because("mr or qp: %s", strerror(errno));
    }
    e->self = (struct info){
        .qpn = e->qp->qp_num, .rkey = e->mr->rkey, .addr = (uint64_t)(uintptr_t)e->buf};
    int rc = ibv_query_gid(e->ctx, 1, 3, &e->self.gid);
    return rc == 0 ? true : because("query_gid: %d", rc);
}

static bool end_connect(struct end *e)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int rc = ibv_modify_qp(e->qp, &a,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    if (rc != 0) {
        return because("modify to INIT: %s", strerror(rc));
    }
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = e->peer.qpn};
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
    a.ah_attr.grh =
        (struct ibv_global_route){.dgid = e->peer.gid, .sgid_index = 3, .hop_limit = 64};
    rc = ibv_modify_qp(e->qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc != 0) {
        return because("modify to RTR: %s", strerror(rc));
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = qp_timeout,
                             .retry_cnt = qp_retries,
                             .rnr_retry = 7,
                             .max_rd_atomic = 4};
    rc = ibv_modify_qp(e->qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc == 0 ? true : because("modify to RTS: %s", strerror(rc));
}

static bool end_exchange(struct end *e, int sock)
{
    if (write(sock, &e->self, sizeof(e->self)) != (ssize_t)sizeof(e->self) ||
        recv(sock, &e->peer, sizeof(e->peer), MSG_WAITALL) != (ssize_t)sizeof(e->peer)) {
        return because("the peer ended early");
    }
    return end_connect(e);
}

void end_close(struct end *e)
{
    if (e->qp != NULL) {
        ibv_destroy_qp(e->qp);
    }
    if (e->mr != NULL) {
        ibv_dereg_mr(e->mr);
    }
    if (e->cq != NULL) {
        ibv_destroy_cq(e->cq);
    }
    if (e->pd != NULL) {
        ibv_dealloc_pd(e->pd);
    }
    if (e->ctx != NULL) {
        ibv_close_device(e->ctx);
    }
    free(e->buf);
    *e = (struct end){0};
}

/* --- the peer --- */

/* Connects, says so, and answers each byte on @sock with the first word of its buffer; it never
 * calls verbs meanwhile.
 */
static void peer_main(int sock)
{
    struct end e, e2 = {0};
    char c = 'r';

    setenv(SEG_ENV_HOST, "1", 1);
    if (!end_open(&e, "fab0") || !end_exchange(&e, sock) ||
        (second.ctx != NULL && (!end_open(&e2, "fab0") || !end_exchange(&e2, sock)))) {
        fprintf(stderr, "peer: %s\n", reason);
        _exit(1);
    }
    if (write(sock, &c, 1) != 1) {
        _exit(1);
    }
    while (read(sock, &c, 1) == 1) {
        uint64_t v = atomic_load((_Atomic uint64_t *)(void *)e.buf);
        if (write(sock, &v, sizeof(v)) != (ssize_t)sizeof(v)) {
            break;
        }
    }
    end_close(&e2);
    end_close(&e);
    _exit(0);
}

bool peer_start(void)
{
    int s[2];
    char c;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) != 0) {
        return because("socketpair: %s", strerror(errno));
    }
    peer_pid = fork();
    if (peer_pid == 0) {
        close(s[0]);
        peer_main(s[1]);
    }
    close(s[1]);
    peer_sock = s[0];
    if (!end_exchange(&me, peer_sock) ||
        (second.ctx != NULL && !end_exchange(&second, peer_sock))) {
        return false;
    }
    return read(peer_sock, &c, 1) == 1 ? true : because("the peer did not connect");
}

bool loop_start(void)
{
    me.peer = me.self;
    me.peer.addr += BUF_SIZE / 2;
    return end_connect(&me);
}

uint64_t peer_word(void)
{
    uint64_t v = 0;

    if (me.peer.qpn == me.self.qpn) {
        return atomic_load((_Atomic uint64_t *)(void *)(me.buf + BUF_SIZE / 2));
    }
    if (write(peer_sock, "?", 1) != 1 ||
        recv(peer_sock, &v, sizeof(v), MSG_WAITALL) != (ssize_t)sizeof(v)) {
        return UINT64_MAX;
    }
    return v;
}

void peer_stop(int sig)
{
    if (peer_pid > 0) {
        close(peer_sock);
        if (sig != 0) {
            kill(peer_pid, sig);
        }
        waitpid(peer_pid, NULL, 0);
        peer_pid = 0;
    }
}

/* --- steps of checks --- */

bool fault(const char *text)
{
    struct fab_fault f;

    if (fab_fault_parse(text, &f, reason, sizeof(reason)) != 0) {
        return false;
    }
    return seg_fault_apply(&probe_map, &f, reason, sizeof(reason)) == 0;
}

bool end_post(struct end *e, uint64_t value, uint32_t len)
{
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)e->buf, .length = len, .lkey = e->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.wr_id = ++e->posted, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};

    memcpy(e->buf, &value, sizeof(value));
    wr.wr.rdma.remote_addr = e->peer.addr;
    wr.wr.rdma.rkey = e->peer.rkey;
    int rc = ibv_post_send(e->qp, &wr, &bad);
    return rc == 0 ? true : because("post_send: %s", strerror(rc));
}

bool post(uint64_t value, uint32_t len)
{
    return end_post(&me, value, len);
}

/* The next completion within @limit: its status, or -1: none came, -2: the device is gone. */
int completion(uint64_t limit)
{
    uint64_t end = seg_now() + limit;
    struct ibv_wc wc;

    do {
        int n = ibv_poll_cq(me.cq, 1, &wc);
        if (n < 0) {
            return -2;
        }
        if (n > 0) {
            me.done++;
            return (int)wc.status;
        }
        sched_yield();
    } while (seg_now() < end);
    return -1;
}

bool expect_completion(int status, uint64_t limit)
{
    int got = completion(limit);

    if (got == status) {
        return true;
    }
    if (status == -1) {
        return because("a completion with status %d, expected none", got);
    }
    return got < 0 ? because("no completion within %llu ms, expected status %d",
                             (unsigned long long)(limit / MS), status)
                   : because("completion with status %d (%s), expected %d", got,
                             ibv_wc_status_str((enum ibv_wc_status)got), status);
}

bool write_ok(uint64_t value)
{
    if (!post(value, 8) || !expect_completion(IBV_WC_SUCCESS, HANG_LIMIT)) {
        return false;
    }
    return peer_word() == value
               ? true
               : because("the peer has another word than the one that was written");
}

/* Waits for an asynchronous event of @type; the time since @since in microseconds through *us_p. */
bool expect_event(enum ibv_event_type type, uint64_t since, unsigned *us_p)
{
    struct ibv_async_event ev;

    for (;;) {
        struct pollfd p = {.fd = me.ctx->async_fd, .events = POLLIN};
        if (poll(&p, 1, (int)(HANG_LIMIT / MS)) != 1) {
            return because("no event %s", ibv_event_type_str(type));
        }
        *us_p = (unsigned)((seg_now() - since) / 1000);
        if (ibv_get_async_event(me.ctx, &ev) != 0) {
            return because("get_async_event: %s", strerror(errno));
        }
        ibv_ack_async_event(&ev);
        if (ev.event_type == type) {
            return true;
        }
        if (ev.event_type != IBV_EVENT_COMM_EST) {
            return because("event %s, expected %s", ibv_event_type_str(ev.event_type),
                           ibv_event_type_str(type));
        }
    }
}

bool expect_no_event(void)
{
    struct pollfd p = {.fd = me.ctx->async_fd, .events = POLLIN};

    return poll(&p, 1, 0) == 0 ? true : because("an asynchronous event, expected none");
}

bool expect_port(enum ibv_port_state state)
{
    struct ibv_port_attr a;
    int rc = ibv_query_port(me.ctx, 1, &a);

    if (rc != 0) {
        return because("query_port: %s", strerror(rc));
    }
    return a.state == state ? true : because("port is %s", ibv_port_state_str(a.state));
}
