/*
 * NCCL's table of version 10: the traffic class of a communicator comes with each connect. No logic.
 */
#include "net_shims.h"

static enum nccl_result v10_init(nccl_logger_fn log, nccl_profiler_fn profiler)
{
    return net_shim_init_profiled(log, profiler);
}

static enum nccl_result v10_connect(int dev, struct nccl_net_comm_config_v10 *config, void *handle, void **send_comm,
                                    struct nccl_net_device_handle_v8 **send_dev_comm)
{
    return net_shim_connect(dev, config ? config->traffic_class : R2_NET_NO_CLASS, handle, send_comm);
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
    .isend = net_shim_isend_profiled,
    .irecv = net_shim_irecv_profiled,
    .iflush = net_shim_iflush,
    .test = net_shim_test,
    .close_send = net_shim_close,
    .close_recv = net_shim_close,
    .close_listen = net_shim_close_listen,
};
