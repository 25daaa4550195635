/*
 * The verbs seam: the control calls of libibverbs as a table of real functions.
 *
 * The product fills it from libibverbs.so.1, opened at run time (ib_verbs_load); tests fill it from
 * a device model. The data path (post_send, post_recv, post_srq_recv, poll_cq, req_notify_cq) is
 * not in it: in <infiniband/verbs.h> those are inline calls through qp->context->ops, which a model
 * serves as well as a driver does.
 *
 * Return conventions are those of verbs: calls returning int return 0 or an errno value (some old
 * providers return -1 with errno set; ib_verbs_err() folds both); calls returning a pointer return
 * NULL and set errno.
 */
#ifndef IB_VERBS_H
#define IB_VERBS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* Of registrations with a device of last resort: the address is one of a GPU's. */
#define IB_ACCESS_GPU (1 << 30)

struct ib_verbs {
    struct ibv_device **(*get_device_list)(int *num);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *dev);
    uint64_t (*get_device_guid)(struct ibv_device *dev); /* network byte order */
    struct ibv_context *(*open_device)(struct ibv_device *dev);
    int (*close_device)(struct ibv_context *ctx);
    int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
    int (*query_port)(struct ibv_context *ctx, uint8_t port,
                      struct ibv_port_attr *attr); /* writes all of *attr */
    uint32_t (*query_port_speed_ex)(struct ibv_context *ctx,
                                    uint8_t port); /* ib_verbs_port_speed_ex(); NULL in models */
    int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
    int (*query_gid_ex)(struct ibv_context *ctx, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
    int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);
    void (*ack_async_event)(struct ibv_async_event *ev);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
    struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned int access);
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
    int (*destroy_comp_channel)(struct ibv_comp_channel *ch);
    int (*get_cq_event)(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
    struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *ch, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
    int (*destroy_srq)(struct ibv_srq *srq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*query_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
    int (*set_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
    int (*fork_init)(void);
    const char *(*wc_status_str)(enum ibv_wc_status status);
    const char *(*event_type_str)(enum ibv_event_type event);
    /* NULL in the product, which looks at sysfs (ib_nic_is_gone): whether the device has left it.
     * For models, which have none. */
    int (*is_removed)(struct ibv_context *ctx);
    /* NULL: no device is. Mb/s of one that is used only where no other is left
     * (docs/last-resort.md), 0 of others. */
    int (*last_resort)(struct ibv_context *ctx);
};

/*
 * Opens libibverbs.so.1 and fills @v. On failure returns -1 and writes the reason (what could not
 * be opened, or which symbol is missing) to @why. Optional calls (query_gid_ex, reg_mr_iova2,
 * reg_dmabuf_mr, query_ece, set_ece) are NULL where the library is too old. Thread: init only.
 * Blocks: no. Frees: the library stays open until the process ends.
 */
int ib_verbs_load(struct ib_verbs *v, char *why, size_t why_len);

/* The speed of a lane, a bit, where active_speed of the port is too narrow for it; 0: it is not, or
 * the library does not know. Init only; may block in the driver. */
uint32_t ib_verbs_port_speed_ex(struct ibv_context *ctx, uint8_t port);

/* Folds the two error conventions of int-returning verbs into a positive errno value, 0 for
 * success. */
int ib_verbs_err(int rc);

#endif
