/*
 * What each fault of the fabric does to a program, seen from a small verbs program with a peer on another host.
 *
 *   softfab exec --host 0 -- softfab_probe [CHECK...]      all checks without names
 *
 * The program is on host 0; for each check it starts a peer on host 1, connects one queue pair over NIC 0 and applies faults to the
 * fabric itself, so that it can measure from the instant of the fault. One line per check: "ok NAME (what was seen)" or
 * "FAIL NAME: why". Exit status: 0 if none failed.
 */
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUF_SIZE (8u << 20)
#define MS       1000000ull

struct info {
    uint32_t qpn, rkey;
    uint64_t addr;
    union ibv_gid gid;
};

struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buf;
    struct info self, peer;
    uint64_t posted, done;
};

static struct seg_map map; /* the fabric, to break it */
static struct end me;
static pid_t peer_pid;
static int peer_sock;
static uint8_t qp_timeout;  /* of the queue pairs made next: 4.096 us x 2^qp_timeout */
static char saw[256]; /* what the check has seen, for its line */

static char reason[512];

/* Every step of a check returns false through this. */
static bool because(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool because(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    return false;
}

/* ---- one end ---------------------------------------------------------------------------------------------------------------- */

static struct ibv_context *device_open(const char *name)
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

static bool end_open(struct end *e)
{
    *e = (struct end){.ctx = device_open("fab0")};
    if (e->ctx == NULL) {
        return because("open fab0: %s", strerror(errno));
    }
    e->pd = ibv_alloc_pd(e->ctx);
    e->cq = ibv_create_cq(e->ctx, 1024, NULL, NULL, 0);
    e->buf = aligned_alloc(4096, BUF_SIZE);
    if (e->pd == NULL || e->cq == NULL || e->buf == NULL) {
        return because("pd, cq or buffer: %s", strerror(errno));
    }
    memset(e->buf, 0, BUF_SIZE);
    e->mr = ibv_reg_mr(e->pd, e->buf, BUF_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    struct ibv_qp_init_attr init = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 512, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    e->qp = ibv_create_qp(e->pd, &init);
    if (e->mr == NULL || e->qp == NULL) {
        return because("mr or qp: %s", strerror(errno));
    }
    e->self = (struct info){.qpn = e->qp->qp_num, .rkey = e->mr->rkey, .addr = (uint64_t)(uintptr_t)e->buf};
    int rc = ibv_query_gid(e->ctx, 1, 3, &e->self.gid);
    return rc == 0 ? true : because("query_gid: %d", rc);
}

static bool end_connect(struct end *e)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int rc = ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    if (rc != 0) {
        return because("modify to INIT: %s", strerror(rc));
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = e->peer.qpn};
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
    a.ah_attr.grh = (struct ibv_global_route){.dgid = e->peer.gid, .sgid_index = 3, .hop_limit = 64};
    rc = ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc != 0) {
        return because("modify to RTR: %s", strerror(rc));
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = qp_timeout, .retry_cnt = 2, .rnr_retry = 7, .max_rd_atomic = 4};
    rc = ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                      IBV_QP_MAX_QP_RD_ATOMIC);
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

static void end_close(struct end *e)
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

/* ---- the peer ------------------------------------------------------------------------------------------------------------------ */

/* Connects, says so, and answers each byte on @sock with the first word of its buffer; it never calls verbs meanwhile. */
static void peer_main(int sock)
{
    struct end e;
    char c = 'r';

    setenv(SEG_ENV_HOST, "1", 1);
    if (!end_open(&e) || !end_exchange(&e, sock)) {
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
    end_close(&e);
    _exit(0);
}

static bool peer_start(void)
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
    if (!end_exchange(&me, peer_sock)) {
        return false;
    }
    return read(peer_sock, &c, 1) == 1 ? true : because("the peer did not connect");
}

static uint64_t peer_word(void)
{
    uint64_t v = 0;

    if (write(peer_sock, "?", 1) != 1 || recv(peer_sock, &v, sizeof(v), MSG_WAITALL) != (ssize_t)sizeof(v)) {
        return UINT64_MAX;
    }
    return v;
}

static void peer_stop(int sig)
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

/* ---- steps of checks ------------------------------------------------------------------------------------------------------------ */

static bool fault(const char *text)
{
    struct fab_fault f;

    if (fab_fault_parse(text, &f, reason, sizeof(reason)) != 0) {
        return false;
    }
    return seg_fault_apply(&map, &f, reason, sizeof(reason)) == 0;
}

/* Writes @value into the peer's first word, as the head of @len bytes. */
static bool post(uint64_t value, uint32_t len)
{
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)me.buf, .length = len, .lkey = me.mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = ++me.posted, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};

    memcpy(me.buf, &value, sizeof(value));
    wr.wr.rdma.remote_addr = me.peer.addr;
    wr.wr.rdma.rkey = me.peer.rkey;
    int rc = ibv_post_send(me.qp, &wr, &bad);
    return rc == 0 ? true : because("post_send: %s", strerror(rc));
}

/* The next completion within @limit: its status, or -1: none came, -2: the device is gone. */
static int completion(uint64_t limit)
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

static bool expect_completion(int status, uint64_t limit)
{
    int got = completion(limit);

    if (got == status) {
        return true;
    }
    if (status == -1) {
        return because("a completion with status %d, expected none", got);
    }
    return got < 0 ? because("no completion within %llu ms, expected status %d", (unsigned long long)(limit / MS), status)
                   : because("completion with status %d (%s), expected %d", got,
                             ibv_wc_status_str((enum ibv_wc_status)got), status);
}

static bool write_ok(uint64_t value)
{
    if (!post(value, 8) || !expect_completion(IBV_WC_SUCCESS, 2000 * MS)) {
        return false;
    }
    return peer_word() == value ? true : because("the peer has another word than the one that was written");
}

/* Waits for an asynchronous event of @type; the time since @since in microseconds through *us_p. */
static bool expect_event(enum ibv_event_type type, uint64_t since, unsigned *us_p)
{
    struct ibv_async_event ev;

    for (;;) {
        struct pollfd p = {.fd = me.ctx->async_fd, .events = POLLIN};
        if (poll(&p, 1, 2000) != 1) {
            return because("no event %s within 2 s", ibv_event_type_str(type));
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
            return because("event %s, expected %s", ibv_event_type_str(ev.event_type), ibv_event_type_str(type));
        }
    }
}

static bool expect_no_event(void)
{
    struct pollfd p = {.fd = me.ctx->async_fd, .events = POLLIN};

    return poll(&p, 1, 0) == 0 ? true : because("an asynchronous event, expected none");
}

static bool expect_port(enum ibv_port_state state)
{
    struct ibv_port_attr a;
    int rc = ibv_query_port(me.ctx, 1, &a);

    if (rc != 0) {
        return because("query_port: %s", strerror(rc));
    }
    return a.state == state ? true : because("port is %s", ibv_port_state_str(a.state));
}

/* ---- checks: each starts with a connected queue pair that has carried one word ---------------------------------------------------- */

static bool check_down_up(void)
{
    unsigned down_us, up_us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 down") || !expect_event(IBV_EVENT_PORT_ERR, t, &down_us) || !expect_port(IBV_PORT_DOWN) ||
        !post(2, 8)) {
        return false;
    }
    t = seg_now();
    if (!fault("h0:n0 up") || !expect_event(IBV_EVENT_PORT_ACTIVE, t, &up_us) || !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    snprintf(saw, sizeof(saw), "PORT_ERR after %u us, PORT_ACTIVE after %u us", down_us, up_us);
    /* Shorter than the retries last: the write goes through. */
    return expect_completion(IBV_WC_SUCCESS, 1000 * MS) && write_ok(3);
}

static bool check_down_event_time(void)
{
    unsigned best = UINT32_MAX, us;

    /* The best of some: what the fabric needs when the machine has a core for it. */
    for (int i = 0; i < 20; i++) {
        uint64_t t = seg_now();
        if (!fault("h0:n0 down") || !expect_event(IBV_EVENT_PORT_ERR, t, &us)) {
            return false;
        }
        best = us < best ? us : best;
        if (!fault("h0:n0 up") || !expect_event(IBV_EVENT_PORT_ACTIVE, t, &us)) {
            return false;
        }
    }
    snprintf(saw, sizeof(saw), "best of 20: %u us", best);
    return best <= 200 ? true : because("best of 20 is %u us, expected at most 200", best);
}

static bool dead_path(const char *text)
{
    uint64_t t = seg_now();

    if (!fault(text) || !post(2, 8) || !post(3, 8) || !expect_completion(IBV_WC_RETRY_EXC_ERR, 1000 * MS)) {
        return false;
    }
    unsigned ms = (unsigned)((seg_now() - t) / MS);
    snprintf(saw, sizeof(saw), "RETRY_EXC after %u ms, then flushed", ms);
    if (!expect_completion(IBV_WC_WR_FLUSH_ERR, 100 * MS) || !expect_no_event() || !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    return ms >= 8 ? true : because("the error came after %u ms, before the retries were over", ms);
}

static bool check_blackhole(void)
{
    return dead_path("h0:n0 blackhole") && (peer_word() == 1 || because("a word passed a black hole"));
}

static bool check_blackhole_tx(void)
{
    return dead_path("h0:n0 blackhole-tx") && (peer_word() == 1 || because("a word passed a black hole"));
}

static bool check_blackhole_rx(void)
{
    return dead_path("h0:n0 blackhole-rx") && (peer_word() == 3 || because("requests were lost, expected answers only"));
}

static bool check_ack_lost(void)
{
    return dead_path("h1:n0 ack-lost") && (peer_word() == 3 || because("the data did not arrive"));
}

static bool check_far_down(void)
{
    return dead_path("h1:n0 down");
}

static uint64_t drops(int host)
{
    return atomic_load(&seg_nic_at(map.seg, host, 0)->count.drops);
}

static bool stream(uint32_t n, uint32_t len)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!post(100 + i, len) || !expect_completion(IBV_WC_SUCCESS, 2000 * MS)) {
            return false;
        }
    }
    return peer_word() == 99 + n ? true : because("the peer has another word than the last one");
}

static bool lossy(const char *text)
{
    uint64_t before = drops(0);

    if (!fault(text) || !stream(300, 64)) {
        return false;
    }
    uint64_t lost = drops(0) - before;
    snprintf(saw, sizeof(saw), "300 writes, %llu packets lost", (unsigned long long)lost);
    return lost > 0 ? true : because("nothing was lost");
}

static bool check_loss(void)
{
    return lossy("h0:n0 loss 5%");
}

static bool check_corrupt(void)
{
    return lossy("h0:n0 corrupt 5%");
}

static bool check_dup(void)
{
    uint64_t before = atomic_load(&seg_nic_at(map.seg, 1, 0)->count.rx_packets);

    if (!fault("h0:n0 dup 50%") || !stream(300, 64)) {
        return false;
    }
    uint64_t got = atomic_load(&seg_nic_at(map.seg, 1, 0)->count.rx_packets) - before;
    snprintf(saw, sizeof(saw), "300 writes, %llu packets arrived", (unsigned long long)got);
    return got > 350 ? true : because("only %llu packets arrived", (unsigned long long)got);
}

static bool check_delay(void)
{
    if (!fault("h0:n0 delay 3ms")) {
        return false;
    }
    uint64_t t = seg_now();
    if (!write_ok(2)) {
        return false;
    }
    unsigned us = (unsigned)((seg_now() - t) / 1000);
    snprintf(saw, sizeof(saw), "a write took %u us", us);
    return us >= 3000 ? true : because("a write took %u us", us);
}

static bool check_late_data(void)
{
    /* Longer than the retries: the sender gives up, the data lands after that. */
    if (!fault("h0:n0 delay 100ms") || !post(77, 8) || !expect_completion(IBV_WC_RETRY_EXC_ERR, 1000 * MS)) {
        return false;
    }
    if (peer_word() != 1) {
        return because("the data was there before its time");
    }
    for (uint64_t end = seg_now() + 1000 * MS; seg_now() < end;) {
        if (peer_word() == 77) {
            snprintf(saw, sizeof(saw), "landed after the sender's error");
            return true;
        }
    }
    return because("the late data never landed");
}

static bool check_rate(void)
{
    const uint32_t len = 2u << 20;

    if (!fault("h0:n0 rate 20MB/s") || !post(2, len)) {
        return false;
    }
    uint64_t t = seg_now();
    if (!expect_completion(IBV_WC_SUCCESS, 5000 * MS) || !post(3, len) || !expect_completion(IBV_WC_SUCCESS, 5000 * MS)) {
        return false;
    }
    double rate = 2.0 * len / ((double)(seg_now() - t) * 1e-3);
    snprintf(saw, sizeof(saw), "%.2f MB/s", rate);
    return rate > 19 && rate < 21 ? true : because("4 MiB at 20 MB/s went with %.2f MB/s", rate);
}

static bool check_hang(void)
{
    if (!fault("h0:n0 hang") || !post(2, 8) || !expect_completion(-1, 100 * MS) || !expect_no_event() ||
        !expect_port(IBV_PORT_ACTIVE)) {
        return false;
    }
    return fault("h0:n0 unhang") && expect_completion(IBV_WC_SUCCESS, 1000 * MS) && peer_word() == 2;
}

static bool check_fatal(void)
{
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 fatal") || !expect_event(IBV_EVENT_DEVICE_FATAL, t, &us)) {
        return false;
    }
    snprintf(saw, sizeof(saw), "DEVICE_FATAL after %u us", us);
    if (post(2, 8)) {
        return because("post_send succeeded on a dead device");
    }
    if (device_open("fab0") != NULL) {
        return because("a dead device could be opened");
    }
    end_close(&me);
    peer_stop(0);
    return fault("h0:n0 restore") && end_open(&me) && peer_start() && write_ok(9);
}

static bool check_remove(void)
{
    struct ibv_port_attr a;
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 remove") || !expect_event(IBV_EVENT_DEVICE_FATAL, t, &us)) {
        return false;
    }
    int rc = ibv_query_port(me.ctx, 1, &a);
    if (rc != ENODEV) {
        return because("query_port gave %d, expected ENODEV", rc);
    }
    if (device_open("fab0") != NULL || errno != ENODEV) {
        return because("a removed device is in the list");
    }
    end_close(&me);
    peer_stop(0);
    return fault("h0:n0 restore") && end_open(&me) && peer_start() && write_ok(9);
}

static bool check_qp_error(void)
{
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 hang") || !post(2, 8) || !fault("h0:n0 unhang") || !fault("h0:n0 qp-error") ||
        !expect_event(IBV_EVENT_QP_FATAL, t, &us)) {
        return false;
    }
    int first = completion(1000 * MS);
    if (first != IBV_WC_WR_FLUSH_ERR && first != IBV_WC_SUCCESS) {
        return because("completion with status %d", first);
    }
    snprintf(saw, sizeof(saw), "QP_FATAL after %u us", us);
    return post(3, 8) && expect_completion(IBV_WC_WR_FLUSH_ERR, 1000 * MS);
}

static bool check_mr_fail(void)
{
    if (!fault("h0:n0 mr-fail 2")) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        errno = 0;
        struct ibv_mr *mr = ibv_reg_mr(me.pd, me.buf, 4096, 0);
        if ((mr != NULL) != (i == 2) || (mr == NULL && errno != ENOMEM)) {
            return because("registration %d: %s", i, mr != NULL ? "succeeded" : strerror(errno));
        }
        if (mr != NULL) {
            ibv_dereg_mr(mr);
        }
    }
    return write_ok(2);
}

static bool check_gid_change(void)
{
    union ibv_gid gid;
    unsigned us;
    uint64_t t = seg_now();

    if (!fault("h0:n0 gid-change") || !expect_event(IBV_EVENT_GID_CHANGE, t, &us) ||
        ibv_query_gid(me.ctx, 1, 3, &gid) != 0) {
        return false;
    }
    if (memcmp(&gid, &me.self.gid, sizeof(gid)) == 0) {
        return because("the GID is the same");
    }
    return post(2, 8) && expect_completion(IBV_WC_RETRY_EXC_ERR, 1000 * MS);
}

static bool check_peer_killed(void)
{
    uint64_t t;

    for (uint32_t i = 0; i < 100; i++) {
        if (!post(i, 1u << 16)) {
            return false;
        }
    }
    kill(peer_pid, SIGKILL);
    t = seg_now();
    int status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS && me.done < me.posted) {
        status = completion(3000 * MS);
    }
    if (status == -1) {
        return because("no completion within 3 s after the peer was killed");
    }
    snprintf(saw, sizeof(saw), "%llu of 100 writes done, then %s after %llu ms", (unsigned long long)me.done,
             ibv_wc_status_str((enum ibv_wc_status)status), (unsigned long long)((seg_now() - t) / MS));
    peer_stop(SIGKILL);
    end_close(&me);
    /* The next peer takes the dead one's slot. */
    return end_open(&me) && peer_start() && stream(200, 4096);
}

static bool check_many_peers_killed(void)
{
    for (int i = 0; i < 15; i++) {
        for (uint32_t k = 0; k < 20; k++) {
            if (!post(k, 1u << 16)) {
                return false;
            }
        }
        kill(peer_pid, SIGKILL);
        peer_stop(SIGKILL);
        end_close(&me);
        if (!end_open(&me) || !peer_start()) {
            return false;
        }
    }
    return stream(100, 1u << 16);
}

/* Time-out code 10 is 4.2 ms, with 2 retries an error comes after about 13 ms; a slow link needs more than its queue takes. */
static const struct check {
    const char *name;
    bool (*run)(void);
    uint8_t qp_timeout; /* 0: 10 */
} checks[] = {
    {"down-up", check_down_up},
    {"down-event-time", check_down_event_time},
    {"far-down", check_far_down},
    {"blackhole", check_blackhole},
    {"blackhole-tx", check_blackhole_tx},
    {"blackhole-rx", check_blackhole_rx},
    {"ack-lost", check_ack_lost},
    {"loss", check_loss},
    {"corrupt", check_corrupt},
    {"dup", check_dup},
    {"delay", check_delay},
    {"late-data", check_late_data},
    {"rate", check_rate, 16},
    {"hang", check_hang},
    {"fatal", check_fatal},
    {"remove", check_remove},
    {"qp-error", check_qp_error},
    {"mr-fail", check_mr_fail},
    {"gid-change", check_gid_change},
    {"peer-killed", check_peer_killed},
    {"many-peers-killed", check_many_peers_killed},
};

static bool check_run(const struct check *c)
{
    saw[0] = reason[0] = '\0';
    qp_timeout = c->qp_timeout != 0 ? c->qp_timeout : 10;
    bool ok = fault("*:* restore") && end_open(&me) && peer_start() && write_ok(1) && c->run();
    fault("*:* restore");
    peer_stop(SIGKILL);
    end_close(&me);
    if (ok) {
        printf("ok %s%s%s%s\n", c->name, *saw != '\0' ? " (" : "", saw, *saw != '\0' ? ")" : "");
    } else {
        printf("FAIL %s: %s\n", c->name, *reason != '\0' ? reason : "the step before the last");
    }
    fflush(stdout);
    return ok;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return true;
        }
    }
    return argc == 1;
}

int main(int argc, char **argv)
{
    const char *dir = getenv(SEG_ENV_DIR);
    char why[512];
    int run = 0, failed = 0;

    if (dir == NULL || seg_file_open(&map, dir, why, sizeof(why)) != 0) {
        fprintf(stderr, "softfab_probe: %s\n", dir == NULL ? "not below softfab exec" : why);
        return 2;
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (wanted(checks[i].name, argc, argv)) {
            failed += !check_run(&checks[i]);
            run++;
        }
    }
    if (run == 0) {
        fprintf(stderr, "softfab_probe: no check of that name\n");
        return 2;
    }
    return failed != 0;
}
