/*
 * Opening the NICs of the host: list, filter, sort, describe. The rest of a NIC's incarnation is in
 * ib_device.c.
 */
#include "ib_device.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/r2_log.h"
#include "ib_hca.h"
#include "ib_lag.h"
#include "ib_speed.h"
#include "ib_sysfs.h"

#define DEVICE_TRIES    5
#define DEVICE_PAUSE_NS 20000000

/* A port that passed the filter, before it has its number. */
struct candidate {
    struct ib_nic nic;
    int active;
    int unread; /* the driver has not told of the port yet */
};

struct opening {
    struct ib_nics *nics;
    struct ib_hca_filter filter;
    struct candidate *list;
    int count, room;
};

static struct candidate *candidate_add(struct opening *o)
{
    struct candidate *bigger;

    if (o->count == o->room) {
        bigger = realloc(o->list, ((size_t)o->room + 16) * sizeof(*bigger));
        if (bigger == NULL) {
            return NULL;
        }
        o->list = bigger;
        o->room += 16;
    }
    memset(&o->list[o->count], 0, sizeof(o->list[0]));
    return &o->list[o->count++];
}

/* A call that cannot succeed tells by its errno whether the kernel knows DMA-BUF for this device at
 * all. */
static int dmabuf_works(const struct ib_verbs *v, struct ibv_pd *pd)
{
    struct ibv_mr *mr;

    if (v->reg_dmabuf_mr == NULL) {
        return 0;
    }
    errno = 0;
    mr = v->reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
    if (mr != NULL) {
        v->dereg_mr(mr);
    }
    return mr != NULL || (errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS);
}

/*
 * The driver answers with an error that may pass: refresh_failed() of ib_async.c, and a firmware
 * that was too late. Without the port the numbers of those behind it would be others than in the
 * processes that could read it.
 */
static bool is_passing(int err)
{
    return err == EIO || err == ENXIO || err == ENOLINK || err == ETIMEDOUT || err == EAGAIN ||
           err == EINTR || err == EBUSY;
}

/* 1: the port is one of ours; 0: it is not, or cannot be read for good; -1: out of memory. */
static int port_add(struct opening *o, const struct ib_nic *device, uint8_t port)
{
    const struct ib_verbs *v = o->nics->v;
    struct ibv_port_attr attr = {0};
    struct candidate *c;
    uint32_t lane = 0;
    int rc, rail, entry;

    if (device->last) {
        rail = IB_LAST_RAIL;
    } else if (!ib_hca_match(&o->filter, device->dev_name, port, &rail)) {
        return 0;
    }
    errno = 0;
    rc = ib_verbs_err(v->query_port(device->ctx, port, &attr));
    if (rc != 0 && !is_passing(rc)) {
        R2_INFO("port %u of %s is left out: ibv_query_port: %s", port, device->dev_name,
                strerror(rc));
        return 0;
    }
    if (rc != 0) {
        memset(&attr, 0, sizeof(attr));
    } else if (attr.link_layer != IBV_LINK_LAYER_INFINIBAND &&
               attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
        return 0;
    }
    c = candidate_add(o);
    if (c == NULL) {
        return -1;
    }
    c->nic = *device;
    c->nic.port = port;
    c->nic.pci_path = ib_sysfs_pci_path(device->ctx->device->ibdev_path);
    c->nic.numa_node = ib_sysfs_numa_node(c->nic.pci_path);
    ib_sysfs_netdevs(device->ctx->device->ibdev_path, port, &c->nic.netdev, 0, 1);
    if (rc == 0 && !device->last && v->query_port_speed_ex != NULL) {
        lane = v->query_port_speed_ex(device->ctx, port);
    }
    c->nic.speed_mbps = ib_speed_mbps(lane ? (int)lane : attr.active_speed, attr.active_width);
    c->nic.max_msg_sz = attr.max_msg_sz;
    if (c->nic.last) { /* no lanes of a speed that verbs know */
        c->nic.speed_mbps = v->last_resort(device->ctx);
        c->nic.ptr_support = IB_PTR_HOST;
    }
    c->nic.hca.rail = device->last && attr.gid_tbl_len > 1 ? IB_LAST_RAIL_IP6 : rail;
    entry = device->last ? -1 : ib_hca_rank(&o->filter, device->dev_name, port);
    c->nic.hca.plane = entry >= 0 && !o->filter.exclude ? o->filter.entry[entry].plane : -1;
    c->active = attr.state == IBV_PORT_ACTIVE;
    c->unread = rc != 0;
    if (port == 1) {
        snprintf(c->nic.name, sizeof(c->nic.name), "%s", device->dev_name);
    } else {
        snprintf(c->nic.name, sizeof(c->nic.name), "%.58s:%u", device->dev_name, port);
    }
    return 1;
}

/*
 * 0 or errno. An error that may pass is met by asking again: a device without its limits cannot be
 * used, and without it the NICs behind it would have other numbers than elsewhere.
 */
static int device_query(const struct ib_verbs *v, struct ibv_context *ctx,
                        struct ibv_device_attr *attr)
{
    const struct timespec pause = {.tv_nsec = DEVICE_PAUSE_NS};
    int rc;

    for (int i = 1;; i++) {
        errno = 0;
        rc = ib_verbs_err(v->query_device(ctx, attr));
        if (rc == 0 || !is_passing(rc) || i == DEVICE_TRIES) {
            return rc;
        }
        nanosleep(&pause, NULL);
    }
}

/* Fills what all ports of a device share; NULL, or the name of the call that failed, with errno. */
static const char *device_describe(struct opening *o, struct ib_nic *nic,
                                   struct ibv_device_attr *attr)
{
    const struct ib_verbs *v = o->nics->v;
    int rc, flags = fcntl(nic->ctx->async_fd, F_GETFL);

    if (flags < 0 || fcntl(nic->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return "fcntl(async_fd)";
    }
    rc = device_query(v, nic->ctx, attr);
    if (rc != 0) {
        errno = rc;
        return "ibv_query_device";
    }
    nic->pd = v->alloc_pd(nic->ctx);
    if (nic->pd == NULL) {
        return "ibv_alloc_pd";
    }
    nic->guid = be64toh(v->get_device_guid(nic->ctx->device));
    snprintf(nic->fw, sizeof(nic->fw), "%.31s", attr->fw_ver);
    nic->max_qp_wr = attr->max_qp_wr;
    nic->max_cqe = attr->max_cqe;
    nic->max_sge = attr->max_sge;
    nic->ptr_support =
        IB_PTR_HOST |
        (ib_sysfs_device_has_peer_memory(nic->ctx->device->ibdev_path) ? IB_PTR_CUDA : 0) |
        (dmabuf_works(v, nic->pd) ? IB_PTR_DMABUF : 0);
    return NULL;
}

/* -1: out of memory. A device that does not work is left out, with a line. */
static int device_add(struct opening *o, struct ibv_device *dev)
{
    const struct ib_verbs *v = o->nics->v;
    struct ibv_device_attr attr;
    struct ib_nic nic = {.numa_node = -1};
    const char *fault;
    int ours = 0;

    snprintf(nic.dev_name, sizeof(nic.dev_name), "%s", v->get_device_name(dev));
    if (dev->transport_type == IBV_TRANSPORT_IWARP) {
        /* Its ports call themselves Ethernet, as RoCE's do, but ibv_modify_qp alone brings no queue
         * pair to RTS (siw: EINVAL): iWARP runs on a TCP connection that librdmacm makes. */
        R2_INFO("RDMA device %s is left out: iWARP connects through librdmacm alone", nic.dev_name);
        return 0;
    }
    errno = 0;
    nic.ctx = v->open_device(dev);
    if (nic.ctx == NULL) {
        const char *reason = errno == EPERM || errno == EACCES || errno == ENOENT
                                 ? "not given to this process"
                                 : "not usable";
        R2_INFO("RDMA device %s is left out: %s (ibv_open_device: %s)", nic.dev_name, reason,
                strerror(errno));
        return 0;
    }
    nic.last = v->last_resort != NULL && v->last_resort(nic.ctx) > 0;
    fault = device_describe(o, &nic, &attr);
    if (fault != NULL) {
        R2_INFO("RDMA device %s is left out: %s: %s", nic.dev_name, fault, strerror(errno));
    }
    for (int port = 1; fault == NULL && port <= attr.phys_port_cnt && ours >= 0; port++) {
        int rc = port_add(o, &nic, (uint8_t)port);
        ours = rc < 0 ? -1 : ours + rc;
    }
    if (ours == 0) {
        if (nic.pd != NULL) {
            v->dealloc_pd(nic.pd);
        }
        v->close_device(nic.ctx);
    }
    return ours < 0 ? -1 : 0;
}

/*
 * The numbers must be the same in every process of the host: nothing in here may depend on state,
 * order of discovery or time. Devices without a place in the PCI tree come last, and behind them
 * those of last resort, which NCCL is not shown.
 */
static int candidate_compare(const void *pa, const void *pb)
{
    const struct ib_nic *a = &((const struct candidate *)pa)->nic,
                        *b = &((const struct candidate *)pb)->nic;
    int d = 2 * (a->last - b->last) + (a->pci_path == NULL) - (b->pci_path == NULL);

    if (d == 0 && a->pci_path != NULL) {
        d = strcmp(a->pci_path, b->pci_path);
    }
    if (d == 0) {
        d = strverscmp(a->dev_name, b->dev_name);
    }
    return d != 0 ? d : (int)a->port - (int)b->port;
}

/* Rails from the names, if they tell the NICs apart. */
static int names_give_rails(const struct opening *o)
{
    for (int i = 0; i < o->count; i++) {
        int n = ib_name_trailing_number(o->list[i].nic.dev_name);

        if (o->list[i].nic.last) {
            continue;
        }
        for (int k = 0; k < i; k++) {
            if (ib_name_trailing_number(o->list[k].nic.dev_name) == n) {
                return 0;
            }
        }
        if (n < 0) {
            return 0;
        }
    }
    return 1;
}

/*
 * A port that is down reports a rate of no meaning, and the rate is never asked for again: its
 * sisters are the best guess, the slowest one, so as not to promise too much.
 */
static int speed_guess(const struct opening *o)
{
    int slowest = 0;

    for (int i = 0; i < o->count; i++) {
        int s = o->list[i].active && !o->list[i].nic.last ? o->list[i].nic.speed_mbps : 0;
        if (s > 0 && (slowest == 0 || s < slowest)) {
            slowest = s;
        }
    }
    return slowest;
}

#define MAX_MSG_LEAST (8u << 20) /* rdma_rxe's, the least of any driver (RXE_PORT_MAX_MSG_SZ) */

/* Of a port that was not read, which is not asked again either: what every port can take. */
static uint32_t max_msg_guess(const struct opening *o)
{
    uint32_t least = 0;

    for (int i = 0; i < o->count; i++) {
        uint32_t m = o->list[i].nic.max_msg_sz;

        if (!o->list[i].unread && (least == 0 || m < least)) {
            least = m;
        }
    }
    return least ? least : MAX_MSG_LEAST;
}

/* Number of the RDMA device of @ctx in nics, new or known. */
static int device_number(struct ib_nics *nics, struct ibv_context *ctx)
{
    int d = 0;

    while (d < nics->device_count && nics->device_ctx[d] != ctx) {
        d++;
    }
    nics->device_ctx[d] = ctx;
    if (d == nics->device_count) {
        nics->device_dir[d] = ib_sysfs_device_open(ctx->device->ibdev_path);
        nics->device_count++;
    }
    return d;
}

/* A job begins with less than its host has: one line for all NICs in @down. */
static void say_down(const struct ib_nics *nics, uint32_t down)
{
    char names[256] = "";

    for (uint32_t m = down; m; m &= m - 1) {
        size_t used = strlen(names);

        snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                 nics->nic[__builtin_ctz(m)].name);
    }
    if (down) {
        R2_WARN(
            "down at the start: %s. What is theirs goes over other NICs until they are up; NCCL_IB_HCA leaves out what has no cable",
            names);
    }
}

/* Of an address that was never read it is not known. */
static const char *layer_name(uint8_t layer)
{
    return layer == IBV_LINK_LAYER_ETHERNET     ? "RoCE"
           : layer == IBV_LINK_LAYER_INFINIBAND ? "IB"
                                                : "-";
}

static const char *no_gid_why(const struct r2_config *cfg)
{
    return cfg->ib_gid_index >= 0 ? " (entry NCCL_IB_GID_INDEX of its GID table is empty)"
           : cfg->ib_addr_family[0] || cfg->ib_addr_range[0]
               ? " (no GID of NCCL_IB_ADDR_FAMILY in NCCL_IB_ADDR_RANGE)"
               : " (its GID table is empty)";
}

static void nics_fill(struct opening *o)
{
    struct ib_nics *nics = o->nics;
    int named = names_give_rails(o), guess = speed_guess(o);
    uint32_t max_msg = max_msg_guess(o), down = 0;

    for (int i = 0; i < o->count && i < IB_MAX_NICS; i++) {
        struct candidate *c = &o->list[i];
        struct ib_nic *nic = &nics->nic[i];
        int rc;
        *nic = c->nic;
        nic->index = i;
        nic->rail = nic->hca.rail >= 0 ? nic->hca.rail
                    : named            ? ib_name_trailing_number(nic->dev_name)
                                       : i;
        if (!c->active && guess > 0) {
            nic->speed_mbps = guess;
        }
        nic->device_index = device_number(nics, nic->ctx);
        nics->count = i + 1;
        nics->last_count += nic->last;
        nic->read.requests = UINT32_MAX;
        atomic_init(&nic->addr_requests, 0);
        rc = ib_nic_refresh(nics, i);
        atomic_init(&nic->state, rc == 0 ? IB_NIC_UP : IB_NIC_DOWN);
        atomic_init(&nic->generation, 0);
        nic->failing = is_passing(rc);
        if (c->unread) {
            nic->max_msg_sz = max_msg;
        }
        down |= (uint32_t)(rc == ENETDOWN) << i;
        if (rc != 0 && rc != ENETDOWN) {
            R2_WARN("NIC %s has no address: %s%s", nic->name, strerror(rc),
                    is_passing(rc)        ? "; it is not used until its driver answers"
                    : rc == ERANGE        ? " (NCCL_IB_GID_INDEX is outside of its GID table)"
                    : rc == EADDRNOTAVAIL ? no_gid_why(nics->cfg)
                                          : "");
        }
        R2_INFO("NIC %d: %s port %u %s %s %d Mb/s gid %u rail %d numa %d %s%s%s", i, nic->dev_name,
                nic->port, layer_name(nic->addr.link_layer),
                ib_nic_state_name(ib_nic_state_get(nic)), nic->speed_mbps, nic->addr.gid_index,
                nic->rail, nic->numa_node, nic->pci_path ? nic->pci_path : "no PCI path",
                nic->ptr_support & IB_PTR_CUDA ? " peermem" : "",
                nic->ptr_support & IB_PTR_DMABUF ? " dmabuf" : "");
    }
    say_down(nics, down);
}

/* Gives back the ports beyond the last number, and their devices where no port is left. */
static void surplus_drop(struct opening *o)
{
    const struct ib_verbs *v = o->nics->v;

    if (o->count > IB_MAX_NICS) {
        R2_WARN("%d ports found, the first %d are used", o->count, IB_MAX_NICS);
    }
    for (int i = IB_MAX_NICS; i < o->count; i++) {
        struct ib_nic *nic = &o->list[i].nic;
        int in_use = 0;
        for (int k = 0; k < i && !in_use; k++) {
            in_use = o->list[k].nic.ctx == nic->ctx;
        }
        free(nic->pci_path);
        for (int k = i + 1; k < o->count && !in_use; k++) {
            in_use = o->list[k].nic.ctx == nic->ctx; /* its last port gives the device back */
        }
        if (!in_use) {
            v->dealloc_pd(nic->pd);
            v->close_device(nic->ctx);
        }
    }
}

/* All candidates are given back: for failures. */
static void candidates_drop(struct opening *o)
{
    for (int i = 0; i < o->count; i++) {
        struct ib_nic *nic = &o->list[i].nic;
        free(nic->pci_path);
        if (i + 1 == o->count || o->list[i + 1].nic.ctx != nic->ctx) {
            o->nics->v->dealloc_pd(nic->pd);
            o->nics->v->close_device(nic->ctx);
        }
    }
}

static int devices_add(struct opening *o, char *why, size_t why_len)
{
    const struct ib_verbs *v = o->nics->v;
    struct ibv_device **list;
    int n = 0, rc = 0;

    errno = 0;
    list = v->get_device_list(&n);
    if (list == NULL) {
        snprintf(why, why_len, "ibv_get_device_list: %s",
                 errno == ENOSYS ? "the kernel has no RDMA support loaded" : strerror(errno));
        return -1;
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = device_add(o, list[i]);
    }
    v->free_device_list(list);
    if (rc != 0) {
        snprintf(why, why_len, "out of memory");
    }
    return rc;
}

int ib_nics_open(struct ib_nics *nics, const struct ib_verbs *v, const struct r2_config *cfg,
                 char *why, size_t why_len)
{
    struct opening o = {.nics = nics};
    char fault[256];

    memset(nics, 0, sizeof(*nics));
    nics->v = v;
    nics->cfg = cfg;
    nics->lock = malloc(sizeof(pthread_mutex_t));
    if (nics->lock == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    pthread_mutex_init(nics->lock, NULL);
    if (cfg->ib_disable) {
        R2_INFO("no devices: NCCL_IB_DISABLE is set");
        return 0;
    }
    /* who loads the options has the same text as an error of the configuration; numbers of devices
     * stay what they are without it */
    if (ib_hca_parse(&o.filter, cfg->ib_hca, fault, sizeof(fault)) != 0) {
        R2_WARN("NCCL_IB_HCA: %s; all devices are shown", fault);
    }
    if (devices_add(&o, why, why_len) != 0) {
        candidates_drop(&o);
        free(o.list);
        ib_nics_close(nics);
        return -1;
    }
    if (o.count > 0) {
        qsort(o.list, (size_t)o.count, sizeof(o.list[0]), candidate_compare);
    }
    nics_fill(&o);
    ib_lag_open(nics, IB_LAG_LIBRARY);
    surplus_drop(&o);
    free(o.list);
    return 0;
}
