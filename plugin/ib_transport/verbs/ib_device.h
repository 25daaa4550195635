/*
 * The NICs of this host: one entry per (RDMA device, port), in one stable order, including ports
 * that are down.
 *
 * Opened once at init and kept for the life of the process. Descriptive fields are const after
 * ib_nics_open(). What can change (state, address) has one writer, the service thread, and is read
 * by anybody through the accessors.
 */
#ifndef IB_DEVICE_H
#define IB_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/r2_config.h"
#include "ib_gid.h"
#include "ib_verbs.h"

#define IB_MAX_NICS 32
#define IB_NAME_MAX 64

enum ib_nic_state {
    IB_NIC_UP,    /* port ACTIVE as far as we know */
    IB_NIC_DOWN,  /* port not ACTIVE, or its driver answers with errors (failing); may come back */
    IB_NIC_FATAL, /* the device is lost to this context, as an event of the kernel reports: not
                     touched again by this process */
    IB_NIC_GONE,  /* the kernel has removed the device, and destroyed all that was made on it: its
                     DMA is over */
};
const char *ib_nic_state_name(enum ib_nic_state s);

/* Where a port is reached. Read again at set-up and after each link event. */
struct ib_addr {
    uint8_t link_layer; /* IBV_LINK_LAYER_* */
    uint8_t mtu;        /* enum ibv_mtu, active */
    uint8_t gid_index;
    uint8_t grh;  /* InfiniBand: the port wants a global route header in every packet; of our own
                     ports alone */
    uint8_t lmc;  /* InfiniBand: it has the 2^lmc LIDs from lid on */
    uint8_t zero; /* no padding: addresses are compared whole */
    uint16_t lid;
    uint16_t pkey_index;
    uint8_t gid[16];
    uint8_t second[16]; /* GID of a NIC of last resort that has two; else zero */
};

struct ib_nic {
    /* const after open */
    int index;              /* the NCCL device number */
    char name[IB_NAME_MAX]; /* unique on the host: "mlx5_0", or "mlx5_0:2" for a second port */
    char dev_name[IB_NAME_MAX];
    uint8_t port;
    char fw[32];     /* firmware, as the driver says it; "": not known */
    char netdev[16]; /* network interface of the port; "": none, or not known */
    char *pci_path;  /* real path of the PCI device's sysfs directory; NULL when there is none */
    int numa_node;   /* -1 unknown */
    uint64_t guid;   /* host order */
    int speed_mbps;
    struct {
        int rail, plane;
    } hca;    /* from NCCL_IB_HCA, -1 */
    int rail; /* from NCCL_IB_HCA, else trailing number of the name if the host's NICs all have
                 distinct ones, else index */
    int max_qp_wr, max_cqe, max_sge;
    uint32_t max_msg_sz;
    int ptr_support; /* IB_PTR_* bits */
    bool last; /* of last resort: carries only where no other NIC does. Behind all others in number
                */
    struct ibv_context *ctx; /* shared by the ports of a device */
    struct ibv_pd *pd;
    int device_index; /* index of the RDMA device: worker threads are per device */

    /* writer: service thread (init before threads start) */
    _Atomic int state;           /* enum ib_nic_state */
    _Atomic uint32_t generation; /* +1 each time the process gives the NIC up */
    uint32_t failing;    /* refreshes in a row that the driver answered with an error; service
                            thread */
    struct ib_addr addr; /* under ib_nics.lock */
    struct {
        uint32_t requests; /* addr_requests when what is in @addr was read; UINT32_MAX: never */
        struct ib_gid_entry home; /* what entry NCCL_IB_GID_INDEX had first */
    } read;                       /* under ib_nics.lock */

    _Atomic bool bond; /* a queue pair's port of a bond is ours to choose; ib_lag.h. Relaxed:
                          written at init, and taken away by a worker */

    /* writer: the device's worker. Any thread may read @asked (acquire), then @answered */
    _Atomic uint64_t asked;    /* ns, begin of the last command to the device that it has answered;
                                  0: none. Release */
    _Atomic uint64_t answered; /* ns, when it did, or one that it has answered since. Relaxed */

    /* any thread */
    _Atomic uint32_t addr_requests; /* +1 each time the address may have become another; relaxed: a
                                    count, orders nothing */
};

#define IB_LAST_SECRET      2 /* where it lies in the GID of a NIC of last resort, and its bytes */
#define IB_LAST_SECRET_SIZE 10
#define IB_LAST_RAIL_RDMA                                                                          \
    0x7e00                      /* plus its rail: an RDMA NIC that is one for a connection; ...    \
                                 */
#define IB_LAST_RAILS    0x100  /* ... of a rail below this */
#define IB_LAST_RAIL     0x7f00 /* of NICs of last resort: they reach each other and no others */
#define IB_LAST_RAIL_IP6 0x7f01 /* of those that have two GIDs, likewise */

#define IB_PTR_HOST   1
#define IB_PTR_CUDA   2
#define IB_PTR_DMABUF 4

enum ib_fact_kind {
    IB_FACT_PORT_DOWN,   /* nic */
    IB_FACT_PORT_UP,     /* nic; address was read again */
    IB_FACT_ADDR_CHANGE, /* nic; GID, LID, P_Key or SM change; address was read again */
    IB_FACT_REFRESH, /* nic; an event requests a read of it, on a worker; context: enum ib_refresh,
                     for ib_async_refreshed() */
    IB_FACT_DEVICE_FATAL, /* each nic of the device; its state says whether it is gone */
    IB_FACT_DEVICE_FAILS, /* nic; its driver answers with errors. It may answer better later:
                             PORT_UP */
    IB_FACT_REMOVED,      /* each nic of a device that was fatal: it is gone now */
    IB_FACT_QP_FATAL,     /* nic, qp_context */
    IB_FACT_CQ_ERR,       /* nic, cq_context */
};

/* What an event requests of a refresh, a bit each. */
enum ib_refresh {
    IB_REFRESH_ACTIVE = 1, /* PORT_ACTIVE: announced even if nothing changed for us */
    IB_REFRESH_ADDR = 2,   /* the address may be another */
};

struct ib_fact {
    enum ib_fact_kind kind;
    int nic;
    uint64_t context; /* of queue pairs and queues: (uintptr_t) qp_context or cq_context, an id of
                         ours, never a pointer to follow */
};

/* Of mlx5dv; NULL where no NIC is a bond, or it has none. Const after open. */
struct ib_lag {
    bool (*is_mlx5)(struct ibv_device *device);
    int (*set_port)(struct ibv_qp *qp, uint8_t port);
};

struct ib_nics {
    const struct ib_verbs *v;
    const struct r2_config *cfg;
    const struct ib_ways *ways; /* ib_way.h; const once the NICs are in use. NULL: the default */
    struct ib_lag lag;
    int count;
    int last_count; /* of those, NICs of last resort: the last ones */
    struct ib_nic nic[IB_MAX_NICS];
    int device_count;
    struct ibv_context *device_ctx[IB_MAX_NICS];
    int device_dir[IB_MAX_NICS]; /* of sysfs, held open: ib_sysfs_device_open(); -1: none */
    _Atomic uint64_t kept; /* registrations of our own memory that could not be taken away. Any
                              thread; relaxed: a count */
    void *lock;            /* of addr fields; private */
};

/*
 * Lists, filters (NCCL_IB_HCA), sorts (PCI path, then name, then port: the same in every process of
 * the host) and opens the devices; picks the GID; reads the port state; makes async descriptors
 * non-blocking. A device that cannot be opened (EPERM: not ours) is left out with one INFO line.
 * Zero NICs is success with count 0. -1 with the reason in
 * @why when verbs itself does not work. Thread: init only. May block in the driver.
 */
int ib_nics_open(struct ib_nics *nics, const struct ib_verbs *v, const struct r2_config *cfg,
                 char *why, size_t why_len);

/* Closes everything; errors of dead devices are ignored. For simulation and tests: the product
 * keeps its devices. */
void ib_nics_close(struct ib_nics *nics);

/* @gid, of @nic or of one that it reaches, as it may be printed and sent: that of a NIC of last
 * resort has a secret in it (docs/last-resort.md), which is left out. */
static inline void ib_nic_gid_show(const struct ib_nic *nic, const uint8_t gid[16], uint8_t out[16])
{
    memcpy(out, gid, 16);
    if (nic->last) {
        memset(out + IB_LAST_SECRET, 0, IB_LAST_SECRET_SIZE);
    }
}

/* Any thread; as of a moment ago. */
enum ib_nic_state ib_nic_state_get(const struct ib_nic *nic);

/*
 * The one writer of state. Legal moves: UP<->DOWN, {UP,DOWN}->FATAL, any->GONE; others are refused.
 * Returns 1 when the state changed (one log line), else 0. A move away from UP raises the
 * generation. Thread: service.
 */
int ib_nic_state_change(struct ib_nics *nics, int nic, enum ib_nic_state to, const char *why);

/* Copies the address. Any thread. */
void ib_nic_addr_get(struct ib_nics *nics, int nic, struct ib_addr *out);

/*
 * Reads LID, GID, MTU again. The GID table is searched only where ib_nic_addr_request() was called
 * since, or the entry that was chosen has another GID: a search is a call per entry. 0: taken, and
 * the port is ACTIVE; ENETDOWN: it is not, and the address is taken if it has one; else the
 * positive errno of the call that failed, and the address is what it was (ERANGE:
 * NCCL_IB_GID_INDEX is outside of the table; EADDRNOTAVAIL: no entry is usable). The state is not
 * touched: that is for ib_nic_state_change(). Thread: init or a device worker; may block in the
 * driver.
 */
int ib_nic_refresh(struct ib_nics *nics, int nic);

/* The address may be another: it is no longer fresh, the next refresh searches. Any thread. */
void ib_nic_addr_request(struct ib_nic *nic);
/* Whether the address was read after all requests for it. Any thread. */
bool ib_nic_addr_is_fresh(struct ib_nics *nics, int nic);

/*
 * Whether the kernel has removed the device, which is proof that its DMA is over. No call on the
 * device shows that: one that was taken away answers EIO, and so do drivers when their firmware
 * refuses a command. But the directory of the device leaves sysfs only after the kernel has
 * destroyed every object of every process on it (or, with drivers that cannot be taken away under a
 * process, after all have closed it). Any thread; never blocks.
 */
bool ib_nic_is_gone(const struct ib_nics *nics, int nic);

/*
 * Whether @qp is no more: destroyed, or its device is gone; NULL is none. Where a device that is
 * there refuses, it has the queue pair still, and may read and write what is registered for it;
 * that is logged. Worker, or nobody else has it; may block in the driver.
 */
int ib_nic_qp_destroy(struct ib_nics *nics, int nic, struct ibv_qp *qp);
/*
 * Takes @mr away if the queue pair it was for is @ended, as ib_nic_qp_destroy() says, and returns
 * whether its memory is nobody's now. Else it stays registered, is counted (ib_nics.kept), and its
 * memory must never be used for anything else: a registration that is taken away is no fence, since
 * the next one may have its key (P27). NULL: 1. Thread as above.
 */
int ib_nic_mr_release(struct ib_nics *nics, int nic, struct ibv_mr *mr, int ended);

/*
 * Reads and acknowledges all async events that are there, but for those of the devices in @none (a
 * bit each), which have none, and hands each on as facts, having updated states first. What takes a
 * call that may block is requested by IB_FACT_REFRESH. Never blocks. Thread: service.
 */
void ib_async_progress(struct ib_nics *nics, uint32_t none,
                       void (*sink)(void *arg, const struct ib_fact *fact), void *arg);

/*
 * Checks whether a device that is fatal, or whose driver answers with errors, is gone by now: no
 * event reports that. Returns how many devices are left of which it is not known. Never blocks.
 * Thread: service.
 */
int ib_async_removals(struct ib_nics *nics, void (*sink)(void *arg, const struct ib_fact *fact),
                      void *arg);

/*
 * Applies what ib_nic_refresh() returned on a worker, @rc: for what events have requested
 * (@requested, of enum ib_refresh, before the refresh began), and, with 0, for what happens without
 * an event and for events that were lost. Thread: service.
 */
void ib_async_refreshed(struct ib_nics *nics, int nic, int rc, unsigned requested,
                        void (*sink)(void *arg, const struct ib_fact *fact), void *arg);

/*
 * The descriptors to wait on: device_ctx[i]->async_fd for i < device_count. That of a device whose
 * NICs are FATAL or GONE may be readable for ever without anything to read.
 */

/* Netdev names of the data NICs (from gid_attrs/ndevs, or device/net), NULL terminated, for the OOB
 * channel to avoid. Caller frees the array with free(). */
const char **ib_nics_netdevs(const struct ib_nics *nics);

#endif
