/*
 * A handful of RDMA devices made by hand, behind struct ib_verbs: only what the device layer asks
 * for (listing, ports, GIDs, registrations, asynchronous events). No data path. Everything is as
 * the test sets it; calls are counted.
 *
 * One set per process. Registration calls may come from several threads; the rest from one.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <pthread.h>
#include <stdatomic.h>

#include "ib_transport/verbs/ib_verbs.h"

#define FAKE_DEVS 40
#define FAKE_GIDS 8

struct fake_port {
    struct ibv_port_attr attr;
    union ibv_gid gid[FAKE_GIDS];
    int version[FAKE_GIDS]; /* RoCE version that query_gid_ex tells: 1, 2; 0: the entry is refused
                             */
    int query_errno;
    uint32_t speed_ex; /* of a lane, a bit; 0: as attr.active_speed */
};

struct fake_dev {
    struct ibv_device dev; /* first */
    struct ibv_context ctx;
    struct ibv_pd pd;
    uint64_t guid; /* host order */
    int ports;
    struct fake_port port[3]; /* by number, from 1 */
    int event_fd;             /* write end of the async pipe */
    int open_errno, query_errno, pd_errno, reg_errno;
    int opened, pds, acks;
    atomic_int mrs; /* registered now */
    atomic_int reg_calls;
    int last_access, last_via; /* last_via: 'r' reg_mr, 'i' reg_mr_iova2, 'd' reg_dmabuf_mr */
    int last_fd;
    uint64_t last_iova, last_offset;
    size_t last_len;
};

extern struct fake_dev fake_dev[FAKE_DEVS];
extern int fake_dev_count;
extern int fake_list_errno;
extern int fake_dmabuf_errno; /* what reg_dmabuf_mr fails with; 0: it works */

/* No devices, default behaviour. */
void fake_reset(void);

/* Adds an RoCE device with one ACTIVE port of 100 Gb/s and a v1/v2, link-local/IPv4 GID table. */
struct fake_dev *fake_add(const char *name);

/* The calls. */
void fake_table(struct ib_verbs *v);

/* Queues an event; @port for port events, else 0; @object a struct ibv_qp or ibv_cq for those. */
void fake_event(struct fake_dev *d, enum ibv_event_type type, int port, void *object);

/* Directory tree for tests, removed by fake_tree_end(). */
const char *fake_tree_begin(void);
/* Writes @text to @path (relative), making folders. @text NULL: a folder. */
void fake_tree_file(const char *path, const char *text);
/* Symbolic link @path (relative) to @target. */
void fake_tree_link(const char *path, const char *target);
void fake_tree_end(void);
/* Device directory "ib/<name>" with a PCI function "devices/<pci>" on @numa below the tree, bound
 * to @d. */
void fake_tree_device(struct fake_dev *d, const char *pci, int numa);

#endif
