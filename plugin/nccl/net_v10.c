/*
 * NCCL's table of version 10: the traffic class of a communicator comes with each connect. No
 * logic.
 */
#include "net_shims.h"

static enum nccl_result v10_init(nccl_logger_fn log, nccl_profiler_fn profiler)
{
    return net_shim_init(log);
}

static enum nccl_result v10_connect(int dev, struct nccl_net_comm_config_v10 *config, void *handle,
                                    void **send_comm,
                                    struct nccl_net_device_handle_v8 **send_dev_comm)
{
    return net_shim_connect(dev, config ? config->traffic_class : R2_NET_NO_CLASS, handle,
                            send_comm);
}

/* Profiler handles are passed over: those of NCCL 2.26 name the step that is current when an event
 * begins, not the one that they came with, and 2.27 hands out some that its own callback cannot
 * read. */
static enum nccl_result v10_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                                  void *phandle, void **request)
{
    return net_shim_isend(send_comm, data, size, tag, mhandle, request);
}

static enum nccl_result v10_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
                                  void **mhandles, void **phandles, void **request)
{
    return net_shim_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}

extern const struct nccl_net_v10 ncclNetPlugin_v10;
__attribute__((visibility("default"))) const struct nccl_net_v10 ncclNetPlugin_v10 = {
    .name = NET_SHIM_NAME,
    .init = v10_init,
    .devices = net_shim_devices,
    .get_properties = net_shim_properties_v9,
    .listen = net_shim_listen,
    .connect = v10_connect,
    .accept = net_shim_accept,
    .reg_mr = net_shim_reg_mr,
    .reg_mr_dmabuf = net_shim_reg_mr_dmabuf,
    .dereg_mr = net_shim_dereg_mr,
    .isend = v10_isend,
    .irecv = v10_irecv,
    .iflush = net_shim_iflush,
    .test = net_shim_test,
    .close_send = net_shim_close,
    .close_recv = net_shim_close,
    .close_listen = net_shim_close_listen,
};
