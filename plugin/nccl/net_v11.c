/*
 * NCCL's table of version 11: contexts per communicator. No logic.
 */
#include "net_abi_v11.h"

#include "net_shims.h"

static enum nccl_result v11_properties(int dev, struct nccl_net_properties_v11 *props)
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
    *props = (struct nccl_net_properties_v11){
        .name = (char *)p.name,
        .pci_path = (char *)p.pci_path,
        .guid = p.guid,
        .ptr_support = p.ptr_support,
        .reg_is_global = 1, /* registrations belong to the device, not to the comm */
        .force_flush = p.force_flush,
        .speed = p.speed_mbps,
        .port = p.port,
        .latency = 0, /* NCCL's default */
        .max_comms = p.max_comms,
        .max_recvs = R2_NET_MAX_RECVS,
        .net_device_type = NCCL_NET_DEVICE_HOST,
        .net_device_version = NCCL_NET_DEVICE_INVALID_VERSION,
        .v_props = {.ndevs = 1, .devs = {dev}},
        .max_p2p_bytes = R2_NET_MAX_SIZE, /* and NCCL cuts there anyway */
        .max_coll_bytes = R2_NET_MAX_SIZE,
        .max_multi_request_size = 1,
    };
    return NCCL_SUCCESS;
}

extern const struct nccl_net_v11 ncclNetPlugin_v11;
__attribute__((visibility("default"))) const struct nccl_net_v11 ncclNetPlugin_v11 = {
    .name = NET_SHIM_NAME,
    .init = net_shim_ctx_init,
    .devices = net_shim_devices,
    .get_properties = v11_properties,
    .listen = net_shim_ctx_listen,
    .connect = net_shim_ctx_connect,
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
    .finalize = net_shim_ctx_finalize,
};
