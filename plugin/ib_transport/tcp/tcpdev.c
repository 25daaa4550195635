/* The TCP device as verbs know it: list, context, port; and the table that leads to it. */
#include "tcpdev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/r2_time.h"
#include "tcpdev_int.h"

#define DEVICES_MAX 8
#define BACKLOG     1024
#define SPEED_LEAST 1000 /* Mb/s, of an interface that does not say */

/* Written before the table is used; the product has one device. */
static struct ib_verbs real;
static struct tcpdev *devices[DEVICES_MAX];
static int device_count;

struct tcpdev *tcpdev_get(int i)
{
    return i < device_count ? devices[i] : NULL;
}

bool tcpdev_has(const struct ibv_context *ctx)
{
    return ctx->ops.poll_cq == tcpdev_poll_cq;
}

uint64_t tcpdev_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

/* splitmix64 (Steele, Lea, Flood 2014), from a random seed. Lock held. */
uint64_t tcpdev_random(struct tcpdev *d)
{
    uint64_t z = d->seed += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void tcpdev_wake(struct tcpdev *d)
{
    uint64_t one = 1;

    if (atomic_exchange_explicit(&d->asleep, false, memory_order_relaxed)) {
        (void)!write(d->wake_fd, &one, sizeof(one));
    }
}

/* --- the list --- */

/* What a caller gets is a list of pointers; in front of it stands the one that it was made of. */
struct list {
    struct ibv_device **of;
    struct ibv_device *item[];
};

static struct ibv_device **list_get(int *num)
{
    int n = 0, err;
    struct ibv_device **of = real.get_device_list ? real.get_device_list(&n) : NULL;
    struct list *l;

    err = errno;
    if (of == NULL && real.get_device_list && err != ENOSYS) {
        errno = err;
        return NULL;
    }
    n = of ? n : 0; /* a kernel without RDMA has this device alone */
    l = calloc(1, sizeof(*l) + ((size_t)n + DEVICES_MAX + 1) * sizeof(l->item[0]));
    if (l == NULL) {
        if (of) {
            real.free_device_list(of);
        }
        errno = ENOMEM;
        return NULL;
    }
    l->of = of;
    for (int i = 0; i < n; i++) {
        l->item[i] = of[i];
    }
    for (int i = 0; i < device_count; i++) {
        l->item[n++] = &devices[i]->device;
    }
    if (num) {
        *num = n;
    }
    return l->item;
}

static void list_free(struct ibv_device **item)
{
    struct list *l = (struct list *)((char *)item - offsetof(struct list, item));

    if (l->of) {
        real.free_device_list(l->of);
    }
    free(l);
}

static struct tcpdev *device_of(const struct ibv_device *dev)
{
    for (int i = 0; i < device_count; i++) {
        if (&devices[i]->device == dev) {
            return devices[i];
        }
    }
    return NULL;
}

static const char *name_get(struct ibv_device *dev)
{
    return device_of(dev) ? dev->name : real.get_device_name(dev);
}

static uint64_t guid_get(struct ibv_device *dev)
{
    const struct tcpdev *d = device_of(dev);

    return d ? tcpdev_addr_guid(&d->params, d->port) : real.get_device_guid(dev);
}

static struct ibv_context *open_it(struct ibv_device *dev)
{
    struct tcpdev *d = device_of(dev);

    return d ? &d->ctx : real.open_device(dev);
}

static int close_it(struct ibv_context *ctx)
{
    if (!tcpdev_has(ctx)) {
        return real.close_device(ctx);
    }
    tcpdev_engine_stop(tcpdev_of(ctx));
    return 0;
}

/* --- what it is --- */

static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    if (!tcpdev_has(ctx)) {
        return real.query_device(ctx, attr);
    }
    memset(attr, 0, sizeof(*attr));
    snprintf(attr->fw_ver, sizeof(attr->fw_ver), "tcp");
    attr->max_qp = TCPDEV_MAX_QP;
    attr->max_qp_wr = TCPDEV_MAX_WR;
    attr->max_sge = 1;
    attr->max_cq = TCPDEV_MAX_QP;
    attr->max_cqe = TCPDEV_MAX_CQE;
    attr->max_mr = TCPDEV_MAX_MR;
    attr->max_mr_size = UINT64_MAX;
    attr->max_pd = 1 << 16;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
    attr->phys_port_cnt = 1;
    return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    if (!tcpdev_has(ctx)) {
        return real.query_port(ctx, port, attr);
    }
    memset(attr, 0, sizeof(*attr));
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = tcpdev_addr_gids(&tcpdev_of(ctx)->params);
    attr->pkey_tbl_len = 1;
    attr->max_msg_sz = 1u << 30;
    attr->lid = tcpdev_of(ctx)->port;
    attr->active_speed = attr->active_width = 1;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

static int query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
    if (!tcpdev_has(ctx)) {
        return real.query_gid(ctx, port, index, gid);
    }
    if (index < 0 || index >= tcpdev_addr_gids(&tcpdev_of(ctx)->params)) {
        return EINVAL;
    }
    tcpdev_addr_gid(&tcpdev_of(ctx)->params, index, gid->raw);
    return 0;
}

static int query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    if (!tcpdev_has(ctx)) {
        return real.query_gid_ex ? real.query_gid_ex(ctx, port, index, entry, flags, entry_size)
                                 : EOPNOTSUPP;
    }
    if (index != 0) {
        return EINVAL;
    }
    memset(entry, 0, sizeof(*entry));
    tcpdev_addr_gid(&tcpdev_of(ctx)->params, 0, entry->gid.raw);
    entry->port_num = port;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    return 0;
}

static int last_resort(struct ibv_context *ctx)
{
    if (!tcpdev_has(ctx)) {
        return real.last_resort ? real.last_resort(ctx) : 0;
    }
    return tcpdev_of(ctx)->params.speed_mbps > 0 ? tcpdev_of(ctx)->params.speed_mbps : SPEED_LEAST;
}

static int is_removed(struct ibv_context *ctx)
{
    return tcpdev_has(ctx) ? 0 : real.is_removed(ctx);
}

/* --- calls that it answers, or hands on --- */

static int get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
    if (!tcpdev_has(ctx)) {
        return real.get_async_event(ctx, ev);
    }
    errno = EAGAIN; /* it has none */
    return -1;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
    struct ibv_pd *pd;

    if (!tcpdev_has(ctx)) {
        return real.alloc_pd(ctx);
    }
    pd = calloc(1, sizeof(*pd));
    if (pd == NULL) {
        errno = ENOMEM;
    } else {
        pd->context = ctx;
    }
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    if (!tcpdev_has(pd->context)) {
        return real.dealloc_pd(pd);
    }
    free(pd);
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return tcpdev_has(pd->context) ? tcpdev_reg_mr(pd, addr, len, access)
                                   : real.reg_mr(pd, addr, len, access);
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned int access)
{
    if (!tcpdev_has(pd->context)) {
        return real.reg_mr_iova2(pd, addr, len, iova, access);
    }
    if (iova != (uintptr_t)addr) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return tcpdev_reg_mr(pd, addr, len, (int)access);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access)
{
    if (!tcpdev_has(pd->context) && real.reg_dmabuf_mr) {
        return real.reg_dmabuf_mr(pd, offset, len, iova, fd, access);
    }
    errno = EOPNOTSUPP;
    return NULL;
}

static int dereg_mr(struct ibv_mr *mr)
{
    return tcpdev_has(mr->context) ? tcpdev_dereg_mr(mr) : real.dereg_mr(mr);
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *ctx)
{
    if (!tcpdev_has(ctx)) {
        return real.create_comp_channel(ctx);
    }
    errno = EOPNOTSUPP; /* no thread waits for its completions */
    return NULL;
}

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *ch, int vector)
{
    return tcpdev_has(ctx) ? tcpdev_create_cq(ctx, cqe, cq_context, ch, vector)
                           : real.create_cq(ctx, cqe, cq_context, ch, vector);
}

static int destroy_cq(struct ibv_cq *cq)
{
    return tcpdev_has(cq->context) ? tcpdev_destroy_cq(cq) : real.destroy_cq(cq);
}

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    if (!tcpdev_has(pd->context)) {
        return real.create_srq(pd, attr);
    }
    errno = EOPNOTSUPP;
    return NULL;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    return tcpdev_has(pd->context) ? tcpdev_create_qp(pd, attr) : real.create_qp(pd, attr);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    return tcpdev_has(qp->context) ? tcpdev_modify_qp(qp, attr, mask)
                                   : real.modify_qp(qp, attr, mask);
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    return tcpdev_has(qp->context) ? tcpdev_query_qp(qp, attr, mask, init)
                                   : real.query_qp(qp, attr, mask, init);
}

static int destroy_qp(struct ibv_qp *qp)
{
    return tcpdev_has(qp->context) ? tcpdev_destroy_qp(qp) : real.destroy_qp(qp);
}

static int query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return !tcpdev_has(qp->context) && real.query_ece ? real.query_ece(qp, ece) : EOPNOTSUPP;
}

static int set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
    return !tcpdev_has(qp->context) && real.set_ece ? real.set_ece(qp, ece) : EOPNOTSUPP;
}

static int no_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    *bad = wr;
    return EOPNOTSUPP;
}

static int no_notify(struct ibv_cq *cq, int solicited_only)
{
    return EOPNOTSUPP;
}

/* --- the table --- */

/* Calls that an old library lacks, or that only models have, are lacking here, too. */
static void table_fill(struct ib_verbs *v)
{
    v->get_device_list = list_get;
    v->free_device_list = list_free;
    v->get_device_name = name_get;
    v->get_device_guid = guid_get;
    v->open_device = open_it;
    v->close_device = close_it;
    v->query_device = query_device;
    v->query_port = query_port;
    v->query_gid = query_gid;
    v->query_gid_ex = query_gid_ex;
    v->get_async_event = get_async_event;
    v->alloc_pd = alloc_pd;
    v->dealloc_pd = dealloc_pd;
    v->reg_mr = reg_mr;
    v->reg_mr_iova2 = v->reg_mr_iova2 ? reg_mr_iova2 : NULL;
    v->reg_dmabuf_mr = v->reg_dmabuf_mr ? reg_dmabuf_mr : NULL;
    v->dereg_mr = dereg_mr;
    v->create_comp_channel = create_comp_channel;
    v->create_cq = create_cq;
    v->destroy_cq = destroy_cq;
    v->create_srq = create_srq;
    v->create_qp = create_qp;
    v->modify_qp = modify_qp;
    v->query_qp = query_qp;
    v->destroy_qp = destroy_qp;
    v->query_ece = query_ece;
    v->set_ece = set_ece;
    v->is_removed = v->is_removed ? is_removed : NULL;
    v->last_resort = last_resort;
}

/* --- the device --- */

static int sockets_open(struct tcpdev *d)
{
    struct epoll_event e = {.events = EPOLLIN};
    union tcpdev_at a;
    socklen_t len = sizeof(a);

    tcpdev_addr_ours(&d->params, &a);
    d->listen_fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->ctx.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->listen_fd < 0 || d->epoll_fd < 0 || d->wake_fd < 0 || d->ctx.async_fd < 0 ||
        bind(d->listen_fd, &a.any, tcpdev_at_len(&a)) != 0 || listen(d->listen_fd, BACKLOG) != 0 ||
        getsockname(d->listen_fd, &a.any, &len) != 0) {
        return errno;
    }
    d->port = tcpdev_at_port(&a);
    e.data.ptr = &d->listen_fd;
    if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->listen_fd, &e) != 0) {
        return errno;
    }
    e.data.ptr = &d->wake_fd;
    return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->wake_fd, &e) == 0 ? 0 : errno;
}

static void sockets_close(struct tcpdev *d)
{
    const int fds[] = {d->listen_fd, d->epoll_fd, d->wake_fd, d->ctx.async_fd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static void describe(struct tcpdev *d, int number)
{
    d->device.node_type = IBV_NODE_CA;
    d->device.transport_type = IBV_TRANSPORT_IB;
    snprintf(d->device.name, sizeof(d->device.name), "tcp%d", number);
    snprintf(d->device.dev_name, sizeof(d->device.dev_name), "tcp%d", number);
    /* there is no such directory: it has no place in the PCI tree, and no interface is its own */
    snprintf(d->device.ibdev_path, sizeof(d->device.ibdev_path), "/sys/class/infiniband/tcp%d",
             number);
    d->ctx.device = &d->device;
    d->ctx.cmd_fd = -1;
    d->ctx.num_comp_vectors = 1;
    d->ctx.ops.poll_cq = tcpdev_poll_cq;
    d->ctx.ops.req_notify_cq = no_notify;
    d->ctx.ops.post_send = tcpdev_post_send;
    d->ctx.ops.post_recv = tcpdev_post_recv;
    d->ctx.ops.post_srq_recv = no_post_srq_recv;
}

/*
 * A child has no thread of a device, and perhaps its lock taken for ever: it has no device, keeps
 * no socket that peers could dial, and begins anew if it wants one.
 */
static void fork_child(void)
{
    for (int i = 0; i < device_count; i++) {
        close(devices[i]->listen_fd);
    }
    device_count = 0;
}

static void fork_register(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

int tcpdev_add(struct ib_verbs *v, const struct tcpdev_params *params, char *why, size_t why_len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tcpdev *d = device_count < DEVICES_MAX ? calloc(1, sizeof(*d)) : NULL;
    int rc;

    if (d == NULL) {
        snprintf(why, why_len, "out of memory");
        return ENOMEM;
    }
    d->params = *params;
    pthread_mutex_init(&d->lock, NULL);
    tcpdev_gpu_setup(d);
    tcpdev_out_setup(d);
    d->seed = (uint64_t)params->secret[0] << 56 ^ tcpdev_now() ^ (uint64_t)getpid() << 32;
    memcpy(&d->last_qpn, params->secret + 4, 3);
    d->last_qpn &= 0xffffff;
    rc = sockets_open(d);
    if (rc != 0) {
        snprintf(why, why_len, "no TCP socket listens: %s", strerror(rc));
        sockets_close(d);
        free(d);
        return rc;
    }
    pthread_once(&once, fork_register);
    describe(d, device_count);
    if (v->last_resort != last_resort) {
        real = *v;
        table_fill(v);
    }
    devices[device_count++] = d;
    return 0;
}

void tcpdev_forget(struct tcpdev *d)
{
    for (int i = 0; i < device_count; i++) {
        if (devices[i] == d) {
            devices[i] = devices[--device_count];
        }
    }
    sockets_close(d);
    pthread_mutex_destroy(&d->lock);
    tcpdev_gpu_end(d);
    tcpdev_out_end(d);
    free(d->mrs);
    free(d);
}
