/*
 * NCCL's table of version 8: int sizes to size_t and back. No logic.
 */
#include "net_shims.h"

static enum nccl_result v8_properties(int dev, struct nccl_net_properties_v8 *props)
{
    struct r2_net_props p;
    enum nccl_result r;

    if (props == NULL) {
        return net_shim_refuse("getProperties", "no room for the properties");
    }
    r = net_shim_props(dev, &p);
    if (r != NCCL_SUCCESS) {
        return r;
    }
    *props = (struct nccl_net_properties_v8){
        .name = (char *)p.name,
        .pci_path = (char *)p.pci_path,
        .guid = p.guid,
        .ptr_support = p.ptr_support,
        .reg_is_global = 1, /* registrations belong to the device, not to the comm */
        .speed = p.speed_mbps,
        .port = p.port,
        .latency = 0, /* NCCL's default */
        .max_comms = p.max_comms,
        .max_recvs = R2_NET_MAX_RECVS,
        .net_device_type = NCCL_NET_DEVICE_HOST,
        .net_device_version = NCCL_NET_DEVICE_INVALID_VERSION,
    };
    return NCCL_SUCCESS;
}

static enum nccl_result v8_isend(void *send_comm, void *data, int size, int tag, void *mhandle,
                                 void **request)
{
    if (__builtin_expect(size < 0, 0)) {
        return net_shim_refuse("isend", "a negative size");
    }
    return net_shim_isend(send_comm, data, (size_t)size, tag, mhandle, request);
}

static enum nccl_result v8_irecv(void *recv_comm, int n, void **data, int *sizes, int *tags,
                                 void **mhandles, void **request)
{
    size_t wide[R2_NET_MAX_RECVS];

    if (__builtin_expect(n < 1 || n > R2_NET_MAX_RECVS || sizes == NULL, 0)) {
        return net_shim_refuse("irecv", "a bad list of buffers");
    }
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(sizes[i] < 0, 0)) {
            return net_shim_refuse("irecv", "a negative size");
        }
        wide[i] = (size_t)sizes[i];
    }
    return net_shim_irecv(recv_comm, n, data, wide, tags, mhandles, request);
}

extern const struct nccl_net_v8 ncclNetPlugin_v8;
__attribute__((visibility("default"))) const struct nccl_net_v8 ncclNetPlugin_v8 = {
    .name = NET_SHIM_NAME,
    .init = net_shim_init,
    .devices = net_shim_devices,
    .get_properties = v8_properties,
    .listen = net_shim_listen,
    .connect = net_shim_connect_plain,
    .accept = net_shim_accept,
    .reg_mr = net_shim_reg_mr,
    .reg_mr_dmabuf = net_shim_reg_mr_dmabuf,
    .dereg_mr = net_shim_dereg_mr,
    .isend = v8_isend,
    .irecv = v8_irecv,
    .iflush = net_shim_iflush,
    .test = net_shim_test,
    .close_send = net_shim_close,
    .close_recv = net_shim_close,
    .close_listen = net_shim_close_listen,
};
