/* Device, queue pair, and the exchange that connects it. */
#include "tests/lab/verbs_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what, int errnum)
{
    fprintf(stderr, "verbs_watch: %s: %s\n", what, strerror(errnum));
    return -1;
}

/* ---- device ---- */

static int device_open(struct vw *w)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    if (!list) {
        return fail("no list of devices", errno);
    }
    for (int i = 0; list[i] && !w->ctx; i++) {
        if (!w->o.dev || strcmp(ibv_get_device_name(list[i]), w->o.dev) == 0) {
            w->ctx = ibv_open_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    return w->ctx ? 0 : fail(w->o.dev ? w->o.dev : "no device", errno ? errno : ENODEV);
}

static uint32_t mtu_bytes(enum ibv_mtu m)
{
    return 128u << m;
}

static int port_read(struct vw *w)
{
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    struct ibv_port_attr a;
    int rc = ibv_query_port(w->ctx, (uint8_t)w->o.ib_port, &a), found = -1;

    if (rc) {
        return fail("query_port", rc < 0 ? errno : rc);
    }
    if (a.state != IBV_PORT_ACTIVE) {
        fprintf(stderr, "verbs_watch: port %d is %s\n", w->o.ib_port, ibv_port_state_str(a.state));
        return -1;
    }
    if (!w->o.mtu || (uint32_t)w->o.mtu > mtu_bytes(a.active_mtu)) {
        w->o.mtu = (int)mtu_bytes(a.active_mtu);
    }
    /* RoCE v2 follows v1 in the table: the last of an address is the one to use. */
    for (int i = 0; w->o.gid_index < 0 && i < a.gid_tbl_len; i++) {
        if (ibv_query_gid(w->ctx, (uint8_t)w->o.ib_port, i, &w->gid) == 0 &&
            memcmp(w->gid.raw, v4, sizeof v4) == 0) {
            found = i;
        }
    }
    if (w->o.gid_index < 0) {
        w->o.gid_index = found;
    }
    if (w->o.gid_index < 0 ||
        ibv_query_gid(w->ctx, (uint8_t)w->o.ib_port, w->o.gid_index, &w->gid)) {
        return fail("no GID of an IPv4 address; give --gid", ENOENT);
    }
    return 0;
}

int vw_open(struct vw *w)
{
    size_t bytes = 2 * (size_t)w->o.depth * w->o.size;
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = w->o.depth + 1,
                                            .max_recv_wr = 2 * w->o.depth + 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};

    if (device_open(w) || port_read(w)) {
        return -1;
    }
    if (posix_memalign((void **)&w->buf, 4096, bytes)) {
        return fail("memory", ENOMEM);
    }
    memset(w->buf, 0x5a, bytes);
    w->chan = ibv_create_comp_channel(w->ctx);
    w->pd = ibv_alloc_pd(w->ctx);
    if (!w->chan || !w->pd) {
        return fail("completion channel or protection domain", errno);
    }
    w->cq = ibv_create_cq(w->ctx, (int)(4 * w->o.depth + 8), NULL, w->chan, 0);
    w->mr = ibv_reg_mr(w->pd, w->buf, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!w->cq || !w->mr) {
        return fail("completion queue or memory region", errno);
    }
    init.send_cq = init.recv_cq = w->cq;
    w->qp = ibv_create_qp(w->pd, &init);
    if (!w->qp) {
        return fail("queue pair", errno);
    }
    if (fcntl(w->chan->fd, F_SETFL, fcntl(w->chan->fd, F_GETFL) | O_NONBLOCK) ||
        ibv_req_notify_cq(w->cq, 0)) {
        return fail("completion channel", errno);
    }
    return 0;
}

/* ---- TCP ---- */

/* "ADDR:PORT" */
static struct addrinfo *resolve(const char *where, bool passive)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0},
                    *ai = NULL;
    const char *colon = strrchr(where, ':');
    char host[128];
    int rc;

    if (!colon ||
        snprintf(host, sizeof host, "%.*s", (int)(colon - where), where) >= (int)sizeof host) {
        fprintf(stderr, "verbs_watch: '%s' is not ADDRESS:PORT\n", where);
        return NULL;
    }
    rc = getaddrinfo(host, colon + 1, &hints, &ai);
    if (rc) {
        fprintf(stderr, "verbs_watch: %s: %s\n", where, gai_strerror(rc));
    }
    return rc ? NULL : ai;
}

static int tcp_accept(struct addrinfo *ai, uint64_t limit_ns)
{
    int one = 1, fd = -1, s = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pollfd p = {.fd = s, .events = POLLIN};

    if (s < 0) {
        return -1;
    }
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, ai->ai_addr, ai->ai_addrlen) == 0 && listen(s, 1) == 0 &&
        poll(&p, 1, (int)(limit_ns / VW_NSEC_MS)) == 1) {
        fd = accept4(s, NULL, NULL, SOCK_CLOEXEC);
    }
    close(s);
    return fd;
}

/* Nothing tells that the other end has begun to listen, in another machine maybe: it is asked
 * again. */
static int tcp_connect(struct addrinfo *ai, uint64_t limit_ns)
{
    uint64_t until = vw_now() + limit_ns;

    for (;;) {
        int s = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), why;

        if (s < 0) {
            return -1;
        }
        if (connect(s, ai->ai_addr, ai->ai_addrlen) == 0) {
            return s;
        }
        why = errno;
        close(s);
        errno = why;
        if (why != ECONNREFUSED || vw_now() > until) {
            return -1;
        }
        poll(NULL, 0, 50);
    }
}

static int tcp_open(struct vw *w)
{
    const char *where = w->o.listen_at ? w->o.listen_at : w->o.connect_to;
    struct addrinfo *ai = resolve(where, w->o.listen_at != NULL);
    struct timeval tv = {.tv_sec = (time_t)(w->o.limit_ns / 1000000000)};
    int one = 1;

    if (!ai) {
        return -1;
    }
    w->tcp = w->o.listen_at ? tcp_accept(ai, w->o.limit_ns) : tcp_connect(ai, w->o.limit_ns);
    freeaddrinfo(ai);
    if (w->tcp < 0) {
        return fail(where, errno);
    }
    setsockopt(w->tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(w->tcp, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    return 0;
}

void vw_tell(struct vw *w, const char *line)
{
    if (w->tcp >= 0 && send(w->tcp, line, strlen(line), MSG_NOSIGNAL) < 0) {
        close(w->tcp);
        w->tcp = -1;
    }
}

/* One line of the exchange; what follows it is not taken. */
static int line_read(struct vw *w, char *line, size_t len)
{
    size_t n = 0;

    while (n + 1 < len && recv(w->tcp, line + n, 1, 0) == 1) {
        if (line[n++] == '\n') {
            line[n - 1] = '\0';
            return 0;
        }
    }
    return fail("the peer closed the connection, or says nothing", errno);
}

static int exchange(struct vw *w, uint32_t psn)
{
    uint64_t raw[2];
    char line[256];

    memcpy(raw, w->gid.raw, 16);
    snprintf(line, sizeof line, "v1 %x %x %x %x %x %x %" PRIx64 " %" PRIx64 " %" PRIx64 "\n",
             w->qp->qp_num, psn, w->mr->rkey, (unsigned int)w->o.mtu, w->o.size, w->o.depth,
             (uint64_t)(uintptr_t)w->buf + (uint64_t)w->o.depth * w->o.size, raw[0], raw[1]);
    vw_tell(w, line);
    if (line_read(w, line, sizeof line)) {
        return -1;
    }
    if (sscanf(line, "v1 %x %x %x %x %x %x %" SCNx64 " %" SCNx64 " %" SCNx64, &w->peer.qpn,
               &w->peer.psn, &w->peer.rkey, &w->peer.mtu, &w->peer.size, &w->peer.depth,
               &w->peer.addr, &raw[0], &raw[1]) != 9 ||
        w->peer.size != w->o.size || w->peer.depth != w->o.depth) {
        fprintf(stderr,
                "verbs_watch: the peer sent '%s': another version, or other --size or --depth\n",
                line);
        return -1;
    }
    memcpy(w->peer.gid.raw, raw, 16);
    return 0;
}

/* ---- queue pair ---- */

static int to_rts(struct vw *w, uint32_t psn)
{
    uint32_t mtu = (uint32_t)w->o.mtu < w->peer.mtu ? (uint32_t)w->o.mtu : w->peer.mtu;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .port_num = (uint8_t)w->o.ib_port,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int rc = ibv_modify_qp(w->qp, &a,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    if (rc) {
        return fail("to INIT", rc);
    }
    for (uint32_t i = 0; i < 2 * w->o.depth; i++) {
        rc = vw_recv_post(w, i);
        if (rc) {
            return fail("post_recv", rc);
        }
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                             .path_mtu = IBV_MTU_256,
                             .dest_qp_num = w->peer.qpn,
                             .rq_psn = w->peer.psn,
                             .min_rnr_timer = 12,
                             .ah_attr = {.is_global = 1,
                                         .port_num = (uint8_t)w->o.ib_port,
                                         .grh = {.dgid = w->peer.gid,
                                                 .sgid_index = (uint8_t)w->o.gid_index,
                                                 .hop_limit = 64,
                                                 .flow_label = (uint32_t)w->o.label}}};
    while (a.path_mtu < IBV_MTU_4096 && mtu_bytes(a.path_mtu + 1) <= mtu) {
        a.path_mtu++;
    }
    rc = ibv_modify_qp(w->qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (rc) {
        return fail("to RTR", rc);
    }
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = (uint8_t)w->o.timeout,
                             .retry_cnt = (uint8_t)w->o.retry,
                             .rnr_retry = (uint8_t)w->o.rnr,
                             .sq_psn = psn};
    rc = ibv_modify_qp(w->qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc ? fail("to RTS", rc) : 0;
}

int vw_connect(struct vw *w)
{
    uint32_t psn = (uint32_t)(vw_now() >> 10) & 0xffffff;
    char line[16];

    if (tcp_open(w) || exchange(w, psn) || to_rts(w, psn)) {
        return -1;
    }
    /* Neither end sends before both can receive. */
    vw_tell(w, "ready\n");
    if (line_read(w, line, sizeof line)) {
        return -1;
    }
    return fcntl(w->tcp, F_SETFL, fcntl(w->tcp, F_GETFL) | O_NONBLOCK) ? fail("fcntl", errno) : 0;
}
