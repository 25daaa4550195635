#include "ib_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/r2_symbols.h"

#define LIBRARY "libibverbs.so.1"

/* The headers make macros of these names; here the functions behind them are meant. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

/* One row per call. */
#define ROW(field, symbol)                                                                         \
    {                                                                                              \
        symbol, offsetof(struct ib_verbs, field), 0                                                \
    }
#define ROW_OPTIONAL(field, symbol)                                                                \
    {                                                                                              \
        symbol, offsetof(struct ib_verbs, field), 1                                                \
    }

static const struct r2_symbol rows[] = {
    ROW(get_device_list, "ibv_get_device_list"),
    ROW(free_device_list, "ibv_free_device_list"),
    ROW(get_device_name, "ibv_get_device_name"),
    ROW(get_device_guid, "ibv_get_device_guid"),
    ROW(open_device, "ibv_open_device"),
    ROW(close_device, "ibv_close_device"),
    ROW(query_device, "ibv_query_device"),
    ROW(query_gid, "ibv_query_gid"),
    ROW(get_async_event, "ibv_get_async_event"),
    ROW(ack_async_event, "ibv_ack_async_event"),
    ROW(alloc_pd, "ibv_alloc_pd"),
    ROW(dealloc_pd, "ibv_dealloc_pd"),
    ROW(reg_mr, "ibv_reg_mr"),
    ROW(dereg_mr, "ibv_dereg_mr"),
    ROW(create_comp_channel, "ibv_create_comp_channel"),
    ROW(destroy_comp_channel, "ibv_destroy_comp_channel"),
    ROW(get_cq_event, "ibv_get_cq_event"),
    ROW(ack_cq_events, "ibv_ack_cq_events"),
    ROW(create_cq, "ibv_create_cq"),
    ROW(destroy_cq, "ibv_destroy_cq"),
    ROW(create_srq, "ibv_create_srq"),
    ROW(destroy_srq, "ibv_destroy_srq"),
    ROW(create_qp, "ibv_create_qp"),
    ROW(modify_qp, "ibv_modify_qp"),
    ROW(query_qp, "ibv_query_qp"),
    ROW(destroy_qp, "ibv_destroy_qp"),
    ROW(fork_init, "ibv_fork_init"),
    ROW(wc_status_str, "ibv_wc_status_str"),
    ROW(event_type_str, "ibv_event_type_str"),
    ROW_OPTIONAL(query_gid_ex, "_ibv_query_gid_ex"),
    ROW_OPTIONAL(reg_mr_iova2, "ibv_reg_mr_iova2"),
    ROW_OPTIONAL(reg_dmabuf_mr, "ibv_reg_dmabuf_mr"),
    ROW_OPTIONAL(query_ece, "ibv_query_ece"),
    ROW_OPTIONAL(set_ece, "ibv_set_ece"),
};

/* Written once by ib_verbs_load() before anybody calls it. */
static int (*port_query_compat)(struct ibv_context *ctx, uint8_t port,
                                struct _compat_ibv_port_attr *attr);

/*
 * The exported ibv_query_port writes only the part of the structure that its first version had:
 * newer libraries offer the whole one through the extended context. What an old library leaves out
 * reads as zero.
 */
static int port_query_whole(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    struct verbs_context *extended = verbs_get_ctx_op(ctx, query_port);

    if (extended != NULL) {
        return extended->query_port(ctx, port, attr, sizeof(*attr));
    }
    memset(attr, 0, sizeof(*attr));
    return port_query_compat(ctx, port, (struct _compat_ibv_port_attr *)attr);
}

/*
 * rdma-core has active_speed_ex since v50, behind what the structure was before. The library clears
 * all that it is given room for, so that an older one leaves 0, and an older build of ours asks,
 * too. active_speed has 8 bits: the kernel shows XDR (1 << 8) as NDR there.
 */
uint32_t ib_verbs_port_speed_ex(struct ibv_context *ctx, uint8_t port)
{
    struct verbs_context *extended = verbs_get_ctx_op(ctx, query_port);
    struct {
        char before[52];
        uint32_t active_speed_ex;
    } whole = {.active_speed_ex = 0};

    _Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == 48, "layout of rdma-core");
    return extended && extended->query_port(ctx, port, (struct ibv_port_attr *)(void *)&whole,
                                            sizeof(whole)) == 0
               ? whole.active_speed_ex
               : 0;
}

int ib_verbs_load(struct ib_verbs *v, char *why, size_t why_len)
{
    static const struct r2_symbol compat = {"ibv_query_port", 0, 0};
    const char *missing;
    void *lib;

    memset(v, 0, sizeof(*v));
    lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *reason = dlerror();
        snprintf(why, why_len, "%s", reason ? reason : LIBRARY " cannot be opened");
        return -1;
    }
    missing = r2_symbols_find(lib, &compat, 1, &port_query_compat);
    if (missing == NULL) {
        missing = r2_symbols_find(lib, rows, sizeof(rows) / sizeof(rows[0]), v);
    }
    if (missing != NULL) {
        snprintf(why, why_len, LIBRARY " has no %s: rdma-core is too old", missing);
        dlclose(lib);
        memset(v, 0, sizeof(*v));
        return -1;
    }
    v->query_port = port_query_whole;
    v->query_port_speed_ex = ib_verbs_port_speed_ex;
    if (why_len > 0) {
        why[0] = '\0';
    }
    return 0;
}

int ib_verbs_err(int rc)
{
    if (rc >= 0) {
        return rc;
    }
    if (rc == -1) {
        return errno > 0 ? errno : EIO;
    }
    return -rc;
}
