/* The exported verbs: each the front-end's function, or one that says it is not supported. */
#include "tests/fabric/shm/shm_export.h"

#include "tests/fabric/shm/shm_engine.h"
#include "tests/fabric/verbs/fab_ibv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* <infiniband/verbs.h> wraps these in macros. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_reg_mr_iova2

/* --- devices --- */

static struct fab_nic *host_nic(struct fab_engine *eng, int host, int nic)
{
    return &shm_engine_of(eng)->nic[nic].nic;
}

/* Places in the fabric's tree instead of /sys. */
static void device_paths_set(struct shm_engine *e, struct ibv_device *dev)
{
    const char *num = dev->name + strcspn(dev->name, "0123456789");

    snprintf(dev->ibdev_path, sizeof(dev->ibdev_path), "%s/host%d/sys/class/infiniband/%.15s",
             e->map.dir, e->host, dev->name);
    snprintf(dev->dev_name, sizeof(dev->dev_name), "uverbs%.16s", num);
    snprintf(dev->dev_path, sizeof(dev->dev_path),
             "%s/host%d/sys/class/infiniband_verbs/uverbs%.16s", e->map.dir, e->host, num);
}

SHM_DEFINE_11(struct ibv_device **, ibv_get_device_list, (int *num))
{
    static struct fab_ibv_host host;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct shm_engine *e = shm_engine_get();
    int n = 0;

    if (e == NULL && errno != ENOSYS) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (e != NULL && host.eng != &e->base) {
        host = (struct fab_ibv_host){&e->base, e->host, e->map.seg->head.desc.nics, host_nic};
        fab_ibv_bind(&host);
    }
    pthread_mutex_unlock(&lock);
    if (e != NULL) {
        shm_engine_refresh(e);
    }
    struct ibv_device **list = fab_ibv_get_device_list(&n);
    for (int i = 0; list != NULL && e != NULL && i < n; i++) {
        device_paths_set(e, list[i]);
    }
    if (num != NULL) {
        *num = n;
    }
    return list;
}

SHM_EXPORT_11(void, ibv_free_device_list, (struct ibv_device * *list), (list))
SHM_EXPORT_11(const char *, ibv_get_device_name, (struct ibv_device * dev), (dev))
SHM_EXPORT_11(__be64, ibv_get_device_guid, (struct ibv_device * dev), (dev))
SHM_EXPORT_11(struct ibv_context *, ibv_open_device, (struct ibv_device * dev), (dev))
SHM_EXPORT_11(int, ibv_close_device, (struct ibv_context * ctx), (ctx))
SHM_EXPORT_11(int, ibv_query_device, (struct ibv_context * ctx, struct ibv_device_attr *attr),
              (ctx, attr))
SHM_EXPORT_11(int, ibv_query_gid,
              (struct ibv_context * ctx, uint8_t port, int index, union ibv_gid *gid),
              (ctx, port, index, gid))
SHM_EXPORT_11(int, ibv_query_pkey,
              (struct ibv_context * ctx, uint8_t port, int index, __be16 *pkey),
              (ctx, port, index, pkey))

/* Programs built before the port's attributes grew pass a shorter struct; those built since go
 * through context->query_port. */
SHM_DEFINE_11(int, ibv_query_port,
              (struct ibv_context * ctx, uint8_t port, struct _compat_ibv_port_attr *attr))
{
    return fab_ibv_query_port_len(ctx, port, (struct ibv_port_attr *)attr,
                                  offsetof(struct ibv_port_attr, port_cap_flags2));
}

SHM_EXPORT int ibv_get_device_index(struct ibv_device *dev)
{
    return fab_ibv_get_device_index(dev);
}

SHM_EXPORT int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                                 struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    return fab_ibv_query_gid_ex(ctx, port, index, entry, flags, entry_size);
}

SHM_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
                                        size_t max, uint32_t flags, size_t entry_size)
{
    return fab_ibv_query_gid_table(ctx, entries, max, flags, entry_size);
}

SHM_EXPORT int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, __be16 pkey)
{
    return fab_ibv_get_pkey_index(ctx, port, pkey);
}

/* --- events --- */

SHM_EXPORT_11(int, ibv_get_async_event, (struct ibv_context * ctx, struct ibv_async_event *ev),
              (ctx, ev))
SHM_EXPORT_11(void, ibv_ack_async_event, (struct ibv_async_event * ev), (ev))
SHM_EXPORT_11(int, ibv_get_cq_event,
              (struct ibv_comp_channel * ch, struct ibv_cq **cq, void **cq_context),
              (ch, cq, cq_context))
SHM_EXPORT_11(void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int n), (cq, n))

SHM_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    return fab_ibv_create_comp_channel(ctx);
}

SHM_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    return fab_ibv_destroy_comp_channel(ch);
}

/* --- memory --- */

SHM_EXPORT_11(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * ctx), (ctx))
SHM_EXPORT_11(int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd))
SHM_EXPORT_11(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *addr, size_t len, int access),
              (pd, addr, len, access))
SHM_EXPORT_11(int, ibv_dereg_mr, (struct ibv_mr * mr), (mr))

SHM_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                          int access)
{
    return fab_ibv_reg_mr_iova(pd, addr, len, iova, access);
}

SHM_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                           unsigned int access)
{
    return fab_ibv_reg_mr_iova2(pd, addr, len, iova, access);
}

SHM_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
                                            uint64_t iova, int fd, int access)
{
    return fab_ibv_reg_dmabuf_mr(pd, offset, len, iova, fd, access);
}

/* --- completion queues, queue pairs --- */

SHM_EXPORT_11(struct ibv_cq *, ibv_create_cq,
              (struct ibv_context * ctx, int cqe, void *cq_context, struct ibv_comp_channel *ch,
               int vector),
              (ctx, cqe, cq_context, ch, vector))
SHM_EXPORT_11(int, ibv_resize_cq, (struct ibv_cq * cq, int cqe), (cq, cqe))
SHM_EXPORT_11(int, ibv_destroy_cq, (struct ibv_cq * cq), (cq))
SHM_EXPORT_11(struct ibv_qp *, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr),
              (pd, attr))
SHM_EXPORT_11(int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
              (qp, attr, mask))
SHM_EXPORT_11(int, ibv_query_qp,
              (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask,
               struct ibv_qp_init_attr *init),
              (qp, attr, mask, init))
SHM_EXPORT_11(int, ibv_destroy_qp, (struct ibv_qp * qp), (qp))
SHM_EXPORT_11(struct ibv_srq *, ibv_create_srq,
              (struct ibv_pd * pd, struct ibv_srq_init_attr *attr), (pd, attr))
SHM_EXPORT_11(int, ibv_modify_srq, (struct ibv_srq * srq, struct ibv_srq_attr *attr, int mask),
              (srq, attr, mask))
SHM_EXPORT_11(int, ibv_query_srq, (struct ibv_srq * srq, struct ibv_srq_attr *attr), (srq, attr))
SHM_EXPORT_11(int, ibv_destroy_srq, (struct ibv_srq * srq), (srq))

/* --- names and numbers --- */

SHM_EXPORT int ibv_fork_init(void)
{
    return fab_ibv_fork_init();
}

SHM_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return fab_ibv_wc_status_str(status);
}

SHM_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
    return fab_ibv_event_type_str(event);
}

SHM_EXPORT const char *ibv_node_type_str(enum ibv_node_type type)
{
    return fab_ibv_node_type_str(type);
}

SHM_EXPORT const char *ibv_port_state_str(enum ibv_port_state state)
{
    return fab_ibv_port_state_str(state);
}

SHM_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
    return fab_ibv_rate_to_mbps(rate);
}
