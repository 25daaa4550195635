/*
 * Verbs front-end: the calls of libibverbs, with its signatures, over the device model of any
 * engine.
 *
 * Objects are real struct ibv_context, ibv_qp, ...: the inline data path of <infiniband/verbs.h>
 * works through context->ops, and the extended context is there for the inline ibv_query_port,
 * ibv_query_device_ex, ibv_create_cq_ex and ibv_create_qp_ex (the last two are refused with
 * EOPNOTSUPP beyond what the plain calls can do).
 *
 * Errors are those of libibverbs: calls that return int give 0 or an errno value (get_async_event
 * and get_cq_event: -1 with errno), calls that return a pointer give NULL with errno. All calls
 * take the engine's lock; threads as the engine allows. Calls that may wait are named; with
 * engine->never_block they fail with EAGAIN or EBUSY instead of waiting.
 *
 * async_fd and the channel's fd are eventfds in semaphore mode with one count per queued event:
 * pollable, and O_NONBLOCK set by the program makes the get calls fail with EAGAIN when nothing is
 * there.
 */
#ifndef FAB_IBV_H
#define FAB_IBV_H

#include "tests/fabric/model/fab_desc.h"
#include "tests/fabric/model/fab_nic.h"
#include "tests/fabric/model/fab_qp.h"

#include <sys/types.h>

/* What fab_ibv_get_device_list lists: the NICs of one host of one engine. Removed NICs are left out
 * of the list. */
struct fab_ibv_host {
    struct fab_engine *eng;
    int host;
    int nnics;
    struct fab_nic *(*nic)(struct fab_engine *eng, int host, int nic);
};

/* Binds the device list of this process to @h, which must stay until the next bind; NULL: no
 * devices. Objects already created are not touched. The one piece of process-wide state of the
 * front-end. */
void fab_ibv_bind(const struct fab_ibv_host *h);

/* The model objects behind verbs objects, for engines and tests. */
struct fab_ctx *fab_ibv_ctx(struct ibv_context *ctx);
struct fab_qp *fab_ibv_qp(struct ibv_qp *qp);
struct fab_cq *fab_ibv_cq(struct ibv_cq *cq);
struct fab_mr *fab_ibv_mr(struct ibv_mr *mr);
struct fab_nic *fab_ibv_nic(struct ibv_device *dev);

/* Devices (fab_ibv_device.c). A device stays valid while the list that has it is not freed or a
 * context is open on it.
 */
struct ibv_device **fab_ibv_get_device_list(int *num);
void fab_ibv_free_device_list(struct ibv_device **list);
const char *fab_ibv_get_device_name(struct ibv_device *dev);
int fab_ibv_get_device_index(struct ibv_device *dev);
uint64_t fab_ibv_get_device_guid(struct ibv_device *dev); /* network byte order */
struct ibv_context *fab_ibv_open_device(struct ibv_device *dev);
int fab_ibv_close_device(struct ibv_context *ctx);
int fab_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
/* Stands for what a program sees of a removed device in sysfs: 1 when the kernel has taken it away
 * and is done. */
int fab_ibv_is_removed(struct ibv_context *ctx);
int fab_ibv_query_port(struct ibv_context *ctx, uint8_t port,
                       struct ibv_port_attr *attr); /* all of *attr */
int fab_ibv_query_port_len(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
                           size_t len);
int fab_ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
int fab_ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                         struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t fab_ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t max,
                                uint32_t flags, size_t entry_size);
int fab_ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index,
                           int *type); /* rdma-core's private numbers */
int fab_ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index,
                       uint16_t *pkey); /* network byte order */
int fab_ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, uint16_t pkey);
int fab_ibv_fork_init(void);

/* Events (fab_ibv_event.c). get_*: wait until there is one, as libibverbs does. Destroying the
 * object drops its queued events and waits for those got and not acknowledged. */
int fab_ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev);
void fab_ibv_ack_async_event(struct ibv_async_event *ev);
struct ibv_comp_channel *fab_ibv_create_comp_channel(struct ibv_context *ctx);
int fab_ibv_destroy_comp_channel(struct ibv_comp_channel *ch);
int fab_ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context);
void fab_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n);

/* Memory (fab_ibv_mem.c). Ranges that are not mapped are refused with EFAULT. reg_dmabuf_mr maps
 * @fd; EOPNOTSUPP if it cannot. */
struct ibv_pd *fab_ibv_alloc_pd(struct ibv_context *ctx);
int fab_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *fab_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access);
struct ibv_mr *fab_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   int access);
struct ibv_mr *fab_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                    unsigned int access);
struct ibv_mr *fab_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                     int fd, int access);
int fab_ibv_dereg_mr(struct ibv_mr *mr);

/* Completion queues (fab_ibv_cq.c) */
struct ibv_cq *fab_ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                 struct ibv_comp_channel *ch, int vector);
int fab_ibv_resize_cq(struct ibv_cq *cq, int cqe);
int fab_ibv_destroy_cq(struct ibv_cq *cq); /* may wait for ack_cq_events */
int fab_ibv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fab_ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* Queue pairs and shared receive queues (fab_ibv_qp.c) */
struct ibv_qp *fab_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *fab_ibv_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
int fab_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int fab_ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                     struct ibv_qp_init_attr *init);
int fab_ibv_destroy_qp(struct ibv_qp *qp); /* may wait for ack_async_event */
int fab_ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int fab_ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int fab_ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fab_ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *fab_ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int fab_ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int fab_ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int fab_ibv_destroy_srq(struct ibv_srq *srq);
int fab_ibv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Names (fab_ibv_str.c) */
const char *fab_ibv_wc_status_str(enum ibv_wc_status status);
const char *fab_ibv_event_type_str(enum ibv_event_type event);
const char *fab_ibv_node_type_str(enum ibv_node_type type);
const char *fab_ibv_port_state_str(enum ibv_port_state state);
int fab_ibv_rate_to_mbps(enum ibv_rate rate);

#endif
