#include "ib_device.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "ib_gid.h"
#include "ib_sysfs.h"

static const char *const state_names[] = {
    [IB_NIC_UP] = "UP",
    [IB_NIC_DOWN] = "DOWN",
    [IB_NIC_FATAL] = "FATAL",
    [IB_NIC_GONE] = "GONE",
};
#define STATES (sizeof(state_names) / sizeof(state_names[0]))

/* Row: from, column: to. */
static const uint8_t legal[STATES][STATES] = {
    [IB_NIC_UP] = {[IB_NIC_DOWN] = 1, [IB_NIC_FATAL] = 1, [IB_NIC_GONE] = 1},
    [IB_NIC_DOWN] = {[IB_NIC_UP] = 1, [IB_NIC_FATAL] = 1, [IB_NIC_GONE] = 1},
    [IB_NIC_FATAL] = {[IB_NIC_GONE] = 1},
};

const char *ib_nic_state_name(enum ib_nic_state s)
{
    return (unsigned)s < STATES ? state_names[s] : "unknown state";
}

enum ib_nic_state ib_nic_state_get(const struct ib_nic *nic)
{
    /* pairs with the release in ib_nic_state_change() */
    return (enum ib_nic_state)atomic_load_explicit(&nic->state, memory_order_acquire);
}

int ib_nic_state_change(struct ib_nics *nics, int index, enum ib_nic_state to, const char *why)
{
    struct ib_nic *nic = &nics->nic[index];
    enum ib_nic_state from = ib_nic_state_get(nic);
    const char *place = nic->pci_path ? strrchr(nic->pci_path, '/') : NULL;

    if ((unsigned)to >= STATES || !legal[from][to]) {
        return 0;
    }
    ib_nic_addr_request(nic);
    /* Before the state: who sees the new state also sees the new generation. */
    if (from == IB_NIC_UP) {
        atomic_fetch_add_explicit(&nic->generation, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&nic->state, (int)to, memory_order_release);
    if (to == IB_NIC_UP) {
        R2_INFO("NIC %s rail %d %s: %s -> %s: %s", nic->name, nic->rail, place ? place + 1 : "-",
                ib_nic_state_name(from), ib_nic_state_name(to), why);
    } else {
        R2_WARN("NIC %s rail %d %s: %s -> %s: %s", nic->name, nic->rail, place ? place + 1 : "-",
                ib_nic_state_name(from), ib_nic_state_name(to), why);
    }
    return 1;
}

void ib_nic_addr_get(struct ib_nics *nics, int nic, struct ib_addr *out)
{
    pthread_mutex_lock(nics->lock);
    *out = nics->nic[nic].addr;
    pthread_mutex_unlock(nics->lock);
}

void ib_nic_addr_request(struct ib_nic *nic)
{
    atomic_fetch_add_explicit(&nic->addr_requests, 1, memory_order_relaxed);
}

bool ib_nic_addr_is_fresh(struct ib_nics *nics, int index)
{
    struct ib_nic *nic = &nics->nic[index];
    int fresh;

    pthread_mutex_lock(nics->lock);
    fresh = nic->read.requests == atomic_load_explicit(&nic->addr_requests, memory_order_relaxed);
    pthread_mutex_unlock(nics->lock);
    return fresh;
}

static int port_read(struct ib_nics *nics, struct ib_nic *nic, struct ibv_port_attr *attr)
{
    int rc;

    errno = 0;
    rc = nics->v->query_port(nic->ctx, nic->port, attr);
    return ib_verbs_err(rc);
}

/* Whether the entry that was chosen last has the GID that it had then. */
static bool gid_holds(struct ib_nics *nics, const struct ib_nic *nic, const struct ib_addr *known)
{
    union ibv_gid gid = {.raw = {0}};

    errno = 0;
    return ib_verbs_err(nics->v->query_gid(nic->ctx, nic->port, known->gid_index, &gid)) == 0 &&
           memcmp(gid.raw, known->gid, sizeof(known->gid)) == 0;
}

/* Of a NIC of last resort: all that it has. */
static int last_gids_read(struct ib_nics *nics, const struct ib_nic *nic,
                          const struct ibv_port_attr *attr, struct ib_addr *addr)
{
    union ibv_gid gid = {.raw = {0}}, more = {.raw = {0}};
    int rc = ib_verbs_err(nics->v->query_gid(nic->ctx, nic->port, 0, &gid));

    if (rc == 0 && attr->gid_tbl_len > 1) {
        rc = ib_verbs_err(nics->v->query_gid(nic->ctx, nic->port, 1, &more));
    }
    memcpy(addr->gid, gid.raw, sizeof(gid.raw));
    memcpy(addr->second, more.raw, sizeof(more.raw));
    return rc;
}

/*
 * An address of RoCE, or of InfiniBand, by the options, which may be the @known one. Where there is
 * none, the link layer is known, and what is a backup depends on it.
 */
static int gid_take(struct ib_nics *nics, struct ib_nic *nic, const struct ibv_port_attr *attr,
                    const struct ib_addr *known, struct ib_addr *addr)
{
    int given = attr->link_layer == IBV_LINK_LAYER_ETHERNET ? (int)nics->cfg->ib_gid_index : -1;
    struct ib_gid_entry home, e = {0};
    int rc;

    pthread_mutex_lock(nics->lock);
    home = nic->read.home;
    pthread_mutex_unlock(nics->lock);
    rc = ib_gid_choose(nics->v, nic->ctx, nic->port, attr, nics->cfg, &home, &e);
    if (rc == 0) {
        ib_gid_home_note(&home, given, &e);
        addr->gid_index = e.index;
        memcpy(addr->gid, e.gid.raw, sizeof(addr->gid));
        if (given >= 0 && e.index != given && e.index != known->gid_index) {
            R2_INFO("NIC %s: the address of NCCL_IB_GID_INDEX=%d has moved to entry %u of the GID "
                    "table, which is used",
                    nic->name, given, e.index);
        }
    }
    pthread_mutex_lock(nics->lock);
    nic->read.home = home;
    nic->addr.link_layer = attr->link_layer;
    pthread_mutex_unlock(nics->lock);
    return rc == EADDRNOTAVAIL && attr->state != IBV_PORT_ACTIVE ? ENETDOWN : rc;
}

int ib_nic_refresh(struct ib_nics *nics, int index)
{
    struct ib_nic *nic = &nics->nic[index];
    uint32_t requested = atomic_load_explicit(&nic->addr_requests, memory_order_relaxed);
    struct ibv_port_attr attr;
    struct ib_addr addr = {0}, known;
    int rc = port_read(nics, nic, &attr), fresh;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(nics->lock);
    known = nic->addr;
    fresh = nic->read.requests == requested;
    pthread_mutex_unlock(nics->lock);
    addr.gid_index = known.gid_index;
    memcpy(addr.gid, known.gid, sizeof(addr.gid));
    if (nic->last) { /* no option of RoCE is about them */
        rc = last_gids_read(nics, nic, &attr, &addr);
    } else if (!fresh || known.link_layer != attr.link_layer || !gid_holds(nics, nic, &known)) {
        rc = gid_take(nics, nic, &attr, &known, &addr);
    }
    if (rc != 0) {
        return rc;
    }
    addr.link_layer = attr.link_layer;
    addr.mtu = (uint8_t)attr.active_mtu;
    addr.lid = attr.lid;
    addr.lmc = attr.lmc;
    addr.grh = (attr.flags & IBV_QPF_GRH_REQUIRED) != 0;
    addr.pkey_index = (uint16_t)nics->cfg->ib_pkey;
    pthread_mutex_lock(nics->lock);
    nic->addr = addr;
    nic->read.requests = requested;
    pthread_mutex_unlock(nics->lock);
    return attr.state == IBV_PORT_ACTIVE ? 0 : ENETDOWN;
}

bool ib_nic_is_gone(const struct ib_nics *nics, int nic)
{
    const struct ib_nic *n = &nics->nic[nic];

    if (nics->v->is_removed != NULL) {
        return nics->v->is_removed(n->ctx);
    }
    return ib_sysfs_device_has_left(nics->device_dir[n->device_index]);
}

int ib_nic_qp_destroy(struct ib_nics *nics, int nic, struct ibv_qp *qp)
{
    enum ib_nic_state state;
    int rc = qp ? ib_verbs_err(nics->v->destroy_qp(qp)) : 0;

    if (rc == 0) {
        return 1;
    }
    state = ib_nic_state_get(&nics->nic[nic]);
    if (state == IB_NIC_UP || state == IB_NIC_DOWN) {
        R2_WARN_MANY(
            R2_LOG_KEPT,
            "NIC %s: a queue pair cannot be destroyed: %s: our memory that it may use stays registered",
            nics->nic[nic].name, strerror(rc));
    }
    return state == IB_NIC_GONE;
}

int ib_nic_mr_release(struct ib_nics *nics, int nic, struct ibv_mr *mr, int ended)
{
    if (mr == NULL || (ended && ib_verbs_err(nics->v->dereg_mr(mr)) == 0) ||
        ib_nic_state_get(&nics->nic[nic]) == IB_NIC_GONE) {
        return 1;
    }
    atomic_fetch_add_explicit(&nics->kept, 1, memory_order_relaxed);
    return 0;
}

const char **ib_nics_netdevs(const struct ib_nics *nics)
{
    char names[4 * IB_MAX_NICS][IB_NETDEV_MAX];
    int n = 0;

    for (int i = 0; i < nics->count; i++) {
        const struct ib_nic *nic = &nics->nic[i];
        n = ib_sysfs_netdevs(nic->ctx->device->ibdev_path, nic->port, names, n, 4 * IB_MAX_NICS);
    }
    return ib_sysfs_names_pack(names, n);
}

void ib_nics_close(struct ib_nics *nics)
{
    struct ibv_pd *freed = NULL;

    for (int i = 0; i < nics->count; i++) {
        free(nics->nic[i].pci_path);
    }
    for (int d = 0; d < nics->device_count; d++) {
        for (int i = 0; i < nics->count; i++) {
            struct ibv_pd *pd = nics->nic[i].device_index == d ? nics->nic[i].pd : NULL;
            if (pd != NULL && pd != freed) {
                freed = pd;
                nics->v->dealloc_pd(pd);
            }
        }
        nics->v->close_device(nics->device_ctx[d]);
        if (nics->device_dir[d] >= 0) {
            close(nics->device_dir[d]);
        }
    }
    if (nics->lock != NULL) {
        pthread_mutex_destroy(nics->lock);
        free(nics->lock);
    }
    memset(nics, 0, sizeof(*nics));
}
