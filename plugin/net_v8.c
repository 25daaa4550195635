/*
 * NCCL's table of version 8: int sizes to size_t and back. No logic.
 */
#include "net_shims.h"

static enum nccl_result v8_properties(int dev, struct nccl_net_properties_v8 *props)
{
    struct r2_net_props p;
    enum nccl_result r;

    if (props == NULL)
        return net_shim_refuse("getProperties", "no room for the properties");
    r = net_shim_props(dev, &p);
    if (r != NCCL_SUCCESS)
        return r;
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

/* The device handles are for plugins that run on the GPU: NCCL's values stay what they are. */
static enum nccl_result v8_connect(int dev, void *handle, void **send_comm,
                                   struct nccl_net_device_handle_v8 **send_dev_comm)
{
    return net_shim_connect(dev, handle, send_comm);
}

static enum nccl_result v8_accept(void *listen_comm, void **recv_comm, struct nccl_net_device_handle_v8 **recv_dev_comm)
{
    return net_shim_accept(listen_comm, recv_comm);
}

static enum nccl_result v8_isend(void *send_comm, void *data, int size, int tag, void *mhandle, void **request)
{
    struct r2_req *req = NULL;
    enum r2_status s;

    if (__builtin_expect(send_comm == NULL || request == NULL || size < 0, 0))
        return net_shim_refuse("isend", "no comm, no room for the request, or a negative size");
    s = r2_net_isend(send_comm, data, (size_t)size, tag, mhandle, &req);
    *request = req;
    return net_shim_result(s);
}

static enum nccl_result v8_irecv(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
                                 void **request)
{
    size_t wide[R2_NET_MAX_RECVS];
    struct r2_req *req = NULL;
    enum r2_status s;

    if (__builtin_expect(recv_comm == NULL || request == NULL || n < 1 || n > R2_NET_MAX_RECVS || !data || !sizes ||
                             !tags || !mhandles,
                         0))
        return net_shim_refuse("irecv", "no comm, no room for the request, or a bad list of buffers");
    for (int i = 0; i < n; i++) {
        if (__builtin_expect(sizes[i] < 0, 0))
            return net_shim_refuse("irecv", "a negative size");
        wide[i] = (size_t)sizes[i];
    }
    s = r2_net_irecv(recv_comm, n, data, wide, tags, (struct ib_mr **)mhandles, &req);
    *request = req;
    return net_shim_result(s);
}

/*
 * How many sizes a request has is known behind r2_net.h only, and NCCL sums its whole array: what was not written there
 * must not be written here. No message is as long as the mark.
 */
static enum nccl_result v8_test(void *request, int *done, int *sizes)
{
    size_t wide[NET_SHIM_SIZES];
    enum r2_status s;

    if (__builtin_expect(request == NULL || done == NULL, 0))
        return net_shim_refuse("test", "no request, or no room for the answer");
    for (int i = 0; i < NET_SHIM_SIZES; i++)
        wide[i] = SIZE_MAX;
    *done = 0;
    s = r2_net_test(request, done, sizes ? wide : NULL);
    if (*done && sizes) {
        for (int i = 0; i < NET_SHIM_SIZES && wide[i] != SIZE_MAX; i++)
            sizes[i] = (int)wide[i];
    }
    return net_shim_result(s);
}

extern const struct nccl_net_v8 ncclNetPlugin_v8;
__attribute__((visibility("default"))) const struct nccl_net_v8 ncclNetPlugin_v8 = {
    .name = NET_SHIM_NAME,
    .init = net_shim_init,
    .devices = net_shim_devices,
    .get_properties = v8_properties,
    .listen = net_shim_listen,
    .connect = v8_connect,
    .accept = v8_accept,
    .reg_mr = net_shim_reg_mr,
    .reg_mr_dmabuf = net_shim_reg_mr_dmabuf,
    .dereg_mr = net_shim_dereg_mr,
    .isend = v8_isend,
    .irecv = v8_irecv,
    .iflush = net_shim_iflush,
    .test = v8_test,
    .close_send = net_shim_close,
    .close_recv = net_shim_close,
    .close_listen = net_shim_close_listen,
};
