/* Devices, contexts, ports and addresses. */
#include "fab_ibv_priv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(const struct fab_ibv_host *) bound;

void fab_ibv_bind(const struct fab_ibv_host *h)
{
    atomic_store_explicit(&bound, h, memory_order_release); /* with the load in get_device_list */
}

struct fab_ctx *fab_ibv_ctx(struct ibv_context *ctx)
{
    return &fab_ibv_ctx_of(ctx)->m;
}

static struct fab_ibv_device *dev_of(struct ibv_device *dev)
{
    return (struct fab_ibv_device *)dev;
}

struct fab_nic *fab_ibv_nic(struct ibv_device *dev)
{
    struct fab_ibv_device *d = dev_of(dev);

    return d->host.nic(d->host.eng, d->host.host, d->index);
}

static struct fab_ibv_device *dev_new(const struct fab_ibv_host *h, int index)
{
    struct fab_ibv_device *d = calloc(1, sizeof *d);

    if (!d) {
        return NULL;
    }
    d->host = *h;
    d->index = index;
    atomic_init(&d->refs, 1);
    d->ibv.node_type = IBV_NODE_CA;
    d->ibv.transport_type = IBV_TRANSPORT_IB;
    fab_nic_name(index, d->ibv.name, sizeof d->ibv.name);
    snprintf(d->ibv.dev_name, sizeof d->ibv.dev_name, "uverbs%d", index);
    snprintf(d->ibv.dev_path, sizeof d->ibv.dev_path, "/sys/class/infiniband_verbs/uverbs%d",
             index);
    snprintf(d->ibv.ibdev_path, sizeof d->ibv.ibdev_path, "/sys/class/infiniband/fab%d", index);
    return d;
}

static void dev_put(struct fab_ibv_device *d)
{
    if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
        free(d);
    }
}

struct ibv_device **fab_ibv_get_device_list(int *num)
{
    const struct fab_ibv_host *h =
        atomic_load_explicit(&bound, memory_order_acquire); /* with the store in bind */
    int n = 0, want = h ? h->nnics : 0;
    struct ibv_device **list = calloc((size_t)want + 1, sizeof *list);

    if (!list) {
        goto nomem;
    }
    for (int i = 0; i < want; i++) {
        h->eng->ops->lock(h->eng); /* faults change it */
        enum fab_life gone = h->nic(h->eng, h->host, i)->gone;
        h->eng->ops->unlock(h->eng);
        if (gone == FAB_REMOVED || gone == FAB_UNPLUGGED) {
            continue;
        }
        list[n] = (struct ibv_device *)dev_new(h, i);
        if (!list[n]) {
            goto nomem;
        }
        n++;
    }
    if (num) {
        *num = n;
    }
    return list;
nomem:
    if (list) {
        fab_ibv_free_device_list(list);
    }
    if (num) {
        *num = 0;
    }
    errno = ENOMEM;
    return NULL;
}

void fab_ibv_free_device_list(struct ibv_device **list)
{
    for (int i = 0; list[i]; i++) {
        dev_put(dev_of(list[i]));
    }
    free(list);
}

const char *fab_ibv_get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

int fab_ibv_get_device_index(struct ibv_device *dev)
{
    return dev_of(dev)->index;
}

uint64_t fab_ibv_get_device_guid(struct ibv_device *dev)
{
    return fab_nic_guid(dev_of(dev)->host.host, dev_of(dev)->index);
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
                           struct ibv_device_attr_ex *attr, size_t len)
{
    if (len < sizeof attr->orig_attr) {
        return EINVAL;
    }
    memset(attr, 0, len);
    return fab_ibv_query_device(ctx, &attr->orig_attr);
}

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
    *bad = wr;
    return EOPNOTSUPP;
}

static void fill_ops(struct fab_ibv_ctx *c)
{
    struct verbs_context *v = &c->v;

    v->sz = sizeof *v;
    v->query_port = fab_ibv_query_port_len;
    v->query_device_ex = query_device_ex;
    v->create_qp_ex = fab_ibv_create_qp_ex;
    v->post_srq_ops = post_srq_ops;
    v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    v->context.ops.poll_cq = fab_ibv_poll_cq;
    v->context.ops.req_notify_cq = fab_ibv_req_notify_cq;
    v->context.ops.post_send = fab_ibv_post_send;
    v->context.ops.post_recv = fab_ibv_post_recv;
    v->context.ops.post_srq_recv = fab_ibv_post_srq_recv;
}

struct ibv_context *fab_ibv_open_device(struct ibv_device *dev)
{
    struct fab_ibv_device *d = dev_of(dev);
    struct fab_ibv_ctx *c = calloc(1, sizeof *c);
    struct fab_engine *e = d->host.eng;
    int rc = ENOMEM;

    if (!c) {
        goto fail;
    }
    rc = fab_ibv_queue_init(&c->async);
    if (rc) {
        goto fail;
    }
    fab_ibv_lock(e);
    rc = fab_ctx_open(&c->m, fab_ibv_nic(dev), &fab_ibv_ctx_ops, c);
    if (!rc) {
        rc = fab_ibv_control(&c->m, FAB_CALL_OPEN);
        if (rc) {
            fab_ctx_close(&c->m);
        }
    }
    fab_ibv_unlock(e);
    if (rc) {
        fab_ibv_queue_fini(&c->async);
        goto fail;
    }
    fill_ops(c);
    c->dev = d;
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    c->v.context.device = dev;
    c->v.context.cmd_fd = -1;
    c->v.context.async_fd = c->async.fd;
    c->v.context.num_comp_vectors = 4;
    pthread_mutex_init(&c->v.context.mutex, NULL);
    return &c->v.context;
fail:
    free(c);
    errno = rc;
    return NULL;
}

int fab_ibv_close_device(struct ibv_context *ctx)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    struct fab_engine *e = fab_ibv_eng(ctx);

    fab_ibv_lock(e);
    fab_ctx_close(&c->m);
    fab_ibv_unlock(e);
    fab_ibv_queue_fini(&c->async);
    pthread_mutex_destroy(&ctx->mutex);
    dev_put(c->dev);
    free(c);
    return 0;
}

int fab_ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    int rc;

    fab_ibv_lock(fab_ibv_eng(ctx));
    rc = fab_query_device(&c->m, attr);
    fab_ibv_unlock(fab_ibv_eng(ctx));
    return rc;
}

int fab_ibv_is_removed(struct ibv_context *ctx)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    int removed;

    fab_ibv_lock(fab_ibv_eng(ctx));
    removed = fab_ctx_removed(&c->m);
    fab_ibv_unlock(fab_ibv_eng(ctx));
    return removed;
}

int fab_ibv_query_port_len(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
                           size_t len)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    struct ibv_port_attr full;
    int rc;

    fab_ibv_lock(fab_ibv_eng(ctx));
    fab_ibv_progress(&c->m);
    rc = fab_ibv_control(&c->m, FAB_CALL_QUERY);
    if (!rc) {
        rc = fab_query_port(&c->m, port, &full);
    }
    fab_ibv_unlock(fab_ibv_eng(ctx));
    if (rc) {
        return rc;
    }
    if (len > sizeof full) {
        memset((char *)attr + sizeof full, 0, len - sizeof full);
        len = sizeof full;
    }
    memcpy(attr, &full, len);
    return 0;
}

int fab_ibv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    return fab_ibv_query_port_len(ctx, port, attr, sizeof *attr);
}

static int query_gid(struct ibv_context *ctx, uint32_t port, uint32_t index, union ibv_gid *gid)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    int rc;

    fab_ibv_lock(fab_ibv_eng(ctx));
    rc = fab_query_gid(&c->m, port > 255 ? 0 : (uint8_t)port, index, gid);
    fab_ibv_unlock(fab_ibv_eng(ctx));
    return rc;
}

int fab_ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
    int rc = index < 0 ? EINVAL : query_gid(ctx, port, (uint32_t)index, gid);

    if (!rc) {
        return 0;
    }
    errno = rc;
    return -1; /* as libibverbs has it */
}

int fab_ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                         struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    struct ibv_gid_entry full = {.gid_index = index, .port_num = port};
    int rc;

    if (flags) {
        return EOPNOTSUPP;
    }
    if (entry_size < sizeof full) {
        return EINVAL;
    }
    full.gid_type = index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    rc = query_gid(ctx, port, index, &full.gid);
    if (rc) {
        return rc;
    }
    memset(entry, 0, entry_size);
    memcpy(entry, &full, sizeof full);
    return 0;
}

ssize_t fab_ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t max,
                                uint32_t flags, size_t entry_size)
{
    size_t n;

    for (n = 0; n < max && n < FAB_GIDS; n++) {
        int rc = fab_ibv_query_gid_ex(ctx, 1, (uint32_t)n,
                                      (struct ibv_gid_entry *)((char *)entries + n * entry_size),
                                      flags, entry_size);

        if (rc) {
            return -rc;
        }
    }
    return max < FAB_GIDS ? -EINVAL : (ssize_t)n;
}

int fab_ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index, int *type)
{
    union ibv_gid gid;
    int rc = query_gid(ctx, port, index, &gid);

    if (rc) {
        errno = rc;
        return -1;
    }
    *type = index & 1 ? 1 : 0; /* 0: IB or RoCE v1, 1: RoCE v2 */
    return 0;
}

int fab_ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey)
{
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htons(0xffff);
    return 0;
}

int fab_ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, uint16_t pkey)
{
    return port == 1 && pkey == htons(0xffff) ? 0 : -1;
}

int fab_ibv_fork_init(void)
{
    return 0;
}
