#include "tools/r2_perf/abi_view.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define VIEW_GROUP_MAX 64

struct abi_view abi_view = {.traffic_class = ABI_CLASS_UNDEF, .comm_id = 0x5ca1ab1e};

static struct abi_net view; /* what the caller sees of a newer table */

static const struct abi_net_v9 *v9(void)
{
    return abi_view.table;
}

static const struct abi_net_v10 *v10(void)
{
    return abi_view.table;
}

static const struct abi_net_v11 *v11(void)
{
    return abi_view.table;
}

static int view_profiler(void **event, int type, void *phandle, int64_t plugin, void *data)
{
    __atomic_add_fetch(&abi_view.profiled, 1, __ATOMIC_RELAXED);
    return abi_view.profiler ? abi_view.profiler(event, type, phandle, plugin, data) : ABI_SUCCESS;
}

static int view_init(abi_logger_t logger)
{
    struct abi_config config = {.traffic_class = abi_view.traffic_class};

    if (abi_view.version == 9) {
        return v9()->init(logger);
    }
    if (abi_view.version == 10) {
        return v10()->init(logger, view_profiler);
    }
    return v11()->init(&abi_view.ctx, abi_view.comm_id, &config, logger, view_profiler);
}

static int view_properties(int dev, struct abi_props *out)
{
    struct abi_props_v12 p12;
    struct abi_props_v11 p11;
    struct abi_props_v9 *p = &p11.v9;
    int rc;

    memset(&p11, 0x5a, sizeof(p11));
    memset(&p12, 0x5a, sizeof(p12));
    rc = abi_view.version == 12 ? v11()->get_properties(dev, out ? &p12 : NULL)
                                : v9()->get_properties(dev, out ? p : NULL);
    if (rc != ABI_SUCCESS || out == NULL) {
        return rc;
    }
    if (abi_view.version == 12) {
        memcpy(p, &p12, offsetof(struct abi_props_v9, ndevs)); /* the same up to there */
    }
    *out = (struct abi_props){.name = p->name,
                              .pci_path = p->pci_path,
                              .guid = p->guid,
                              .ptr_support = p->ptr_support,
                              .reg_is_global = p->reg_is_global,
                              .speed = p->speed,
                              .port = p->port,
                              .latency = p->latency,
                              .max_comms = p->max_comms,
                              .max_recvs = p->max_recvs,
                              .device_type = p->device_type,
                              .device_version = p->device_version};
    return rc;
}

static int view_listen(int dev, void *handle, void **listen_comm)
{
    return abi_view.version >= 11 ? v11()->listen(abi_view.ctx, dev, handle, listen_comm)
                                  : v9()->listen(dev, handle, listen_comm);
}

static int view_connect(int dev, void *handle, void **send_comm,
                        struct abi_device_handle **dev_comm)
{
    struct abi_config config = {.traffic_class = abi_view.traffic_class};

    if (abi_view.version >= 11) {
        return v11()->connect(abi_view.ctx, dev, handle, send_comm, dev_comm);
    }
    if (abi_view.version == 10) { /* NCCL's own connections have no configuration */
        return v10()->connect(dev,
                              config.traffic_class == ABI_CLASS_UNDEF && dev & 1 ? NULL : &config,
                              handle, send_comm, dev_comm);
    }
    return v9()->connect(dev, handle, send_comm, dev_comm);
}

static int view_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
    size_t wide = size < 0 ? SIZE_MAX : (size_t)size;
    int step; /* what a profiler handle may point at */

    return abi_view.version >= 10 ? v10()->isend(comm, data, wide, tag, mhandle, &step, request)
                                  : v9()->isend(comm, data, wide, tag, mhandle, request);
}

static int view_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
                      void **request)
{
    size_t wide[VIEW_GROUP_MAX];
    void *phandles[VIEW_GROUP_MAX];
    int step;

    for (int i = 0; sizes && i < n && i < VIEW_GROUP_MAX; i++) {
        wide[i] = sizes[i] < 0 ? SIZE_MAX : (size_t)sizes[i];
        phandles[i] = &step;
    }
    if (abi_view.optional && n == 1 && request) {
        *request = ABI_RECV_OPTIONAL;
    }
    return abi_view.version >= 10
               ? v10()->irecv(comm, n, data, sizes ? wide : NULL, tags, mhandles, phandles, request)
               : v9()->irecv(comm, n, data, sizes ? wide : NULL, tags, mhandles, request);
}

const char *abi_view_symbol(int version)
{
    static char symbol[32];

    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    return symbol;
}

/* What did not change is the plugin's own. The order of the calls is that of version 9 in all of
 * them. */
static void view_fill(const struct abi_net_v9 *t)
{
    view = (struct abi_net){.name = t->name,
                            .init = view_init,
                            .devices = t->devices,
                            .get_properties = view_properties,
                            .listen = view_listen,
                            .connect = view_connect,
                            .accept = t->accept,
                            .reg_mr = t->reg_mr,
                            .reg_mr_dmabuf = t->reg_mr_dmabuf,
                            .dereg_mr = t->dereg_mr,
                            .isend = view_isend,
                            .irecv = view_irecv,
                            .iflush = t->iflush,
                            .test = t->test,
                            .close_send = t->close_send,
                            .close_recv = t->close_recv,
                            .close_listen = t->close_listen,
                            .get_device_mr = t->get_device_mr,
                            .irecv_consumed = t->irecv_consumed};
}

const struct abi_net *abi_view_find(void *lib, int version)
{
    int from = version ? version : ABI_VIEW_NEWEST, to = version ? version : ABI_VIEW_OLDEST;

    for (int v = from; v >= to; v--) {
        const void *table = dlsym(lib, abi_view_symbol(v));
        if (table && *(const char *const *)table) { /* one that has no name is none */
            abi_view.version = v;
            abi_view.table = table;
            if (v == ABI_VIEW_OLDEST) {
                return table;
            }
            view_fill(table);
            return &view;
        }
    }
    return NULL;
}

int abi_view_finalize(void)
{
    void *ctx = abi_view.ctx;

    abi_view.ctx = NULL;
    return abi_view.version >= 11 && ctx ? v11()->finalize(ctx) : ABI_SUCCESS;
}
