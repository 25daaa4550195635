/*
 * Version 12 of NCCL's network plugin ABI: up to 8 devices in one, rails and planes. As net_abi.h.
 */
#ifndef NET_ABI_V12_H
#define NET_ABI_V12_H

#include "net_abi_v11.h"

#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8
#define NCCL_NET_ID_UNDEF             (-1)

/* The devices that one device is made of: itself. */
struct nccl_net_vdevice_props_v12 {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
};

struct nccl_net_properties_v12 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support;
    int reg_is_global;
    int force_flush;
    int speed; /* Mb/s */
    int port;
    float latency; /* us */
    int max_comms;
    int max_recvs;
    int net_device_type;
    int net_device_version;
    struct nccl_net_vdevice_props_v12 v_props;
    size_t max_p2p_bytes;
    size_t max_coll_bytes;
    int max_multi_request_size;
    int16_t rail_id;
    int16_t plane_id;
};

struct nccl_net_v12 {
    const char *name;
    enum nccl_result (*init)(void **ctx, uint64_t comm_id, struct nccl_net_comm_config_v10 *config,
                             nccl_logger_fn log, nccl_profiler_fn profiler);
    enum nccl_result (*devices)(int *ndev);
    enum nccl_result (*get_properties)(int dev, struct nccl_net_properties_v12 *props);
    enum nccl_result (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
    enum nccl_result (*connect)(void *ctx, int dev, void *handle, void **send_comm,
                                struct nccl_net_device_handle_v8 **send_dev_comm);
    enum nccl_result (*accept)(void *listen_comm, void **recv_comm,
                               struct nccl_net_device_handle_v8 **recv_dev_comm);
    enum nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                      uint64_t offset, int fd, void **mhandle);
    enum nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                              void *phandle, void **request);
    enum nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
                              void **mhandles, void **phandles, void **request);
    enum nccl_result (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
                               void **request);
    enum nccl_result (*test)(void *request, int *done, int *sizes);
    enum nccl_result (*close_send)(void *send_comm);
    enum nccl_result (*close_recv)(void *recv_comm);
    enum nccl_result (*close_listen)(void *listen_comm);
    enum nccl_result (*get_device_mr)(void *comm, void *mhandle,
                                      void **dptr_mhandle); /* NULL: host plugin */
    enum nccl_result (*irecv_consumed)(void *recv_comm, int n,
                                       void *request); /* NULL: host plugin */
    enum nccl_result (*make_vdevice)(
        int *dev, struct nccl_net_vdevice_props_v12 *props); /* NULL: NICs are not fused */
    enum nccl_result (*finalize)(void *ctx);
    enum nccl_result (*set_net_attr)(
        void *ctx, struct nccl_net_attr_v11 *attr); /* NULL: nobody reads the hints */
};

NET_ABI_AT(nccl_net_vdevice_props_v12, ndevs, 0);
NET_ABI_AT(nccl_net_vdevice_props_v12, devs, 4);
NET_ABI_SIZE(nccl_net_vdevice_props_v12, 36);

NET_ABI_AT(nccl_net_properties_v12, name, 0);
NET_ABI_AT(nccl_net_properties_v12, pci_path, 8);
NET_ABI_AT(nccl_net_properties_v12, guid, 16);
NET_ABI_AT(nccl_net_properties_v12, ptr_support, 24);
NET_ABI_AT(nccl_net_properties_v12, reg_is_global, 28);
NET_ABI_AT(nccl_net_properties_v12, force_flush, 32);
NET_ABI_AT(nccl_net_properties_v12, speed, 36);
NET_ABI_AT(nccl_net_properties_v12, port, 40);
NET_ABI_AT(nccl_net_properties_v12, latency, 44);
NET_ABI_AT(nccl_net_properties_v12, max_comms, 48);
NET_ABI_AT(nccl_net_properties_v12, max_recvs, 52);
NET_ABI_AT(nccl_net_properties_v12, net_device_type, 56);
NET_ABI_AT(nccl_net_properties_v12, net_device_version, 60);
NET_ABI_AT(nccl_net_properties_v12, v_props, 64);
NET_ABI_AT(nccl_net_properties_v12, max_p2p_bytes, 104);
NET_ABI_AT(nccl_net_properties_v12, max_coll_bytes, 112);
NET_ABI_AT(nccl_net_properties_v12, max_multi_request_size, 120);
NET_ABI_AT(nccl_net_properties_v12, rail_id, 124);
NET_ABI_AT(nccl_net_properties_v12, plane_id, 126);
NET_ABI_SIZE(nccl_net_properties_v12, 128);

NET_ABI_AT(nccl_net_v12, name, 0);
NET_ABI_AT(nccl_net_v12, init, 8);
NET_ABI_AT(nccl_net_v12, devices, 16);
NET_ABI_AT(nccl_net_v12, get_properties, 24);
NET_ABI_AT(nccl_net_v12, listen, 32);
NET_ABI_AT(nccl_net_v12, connect, 40);
NET_ABI_AT(nccl_net_v12, accept, 48);
NET_ABI_AT(nccl_net_v12, reg_mr, 56);
NET_ABI_AT(nccl_net_v12, reg_mr_dmabuf, 64);
NET_ABI_AT(nccl_net_v12, dereg_mr, 72);
NET_ABI_AT(nccl_net_v12, isend, 80);
NET_ABI_AT(nccl_net_v12, irecv, 88);
NET_ABI_AT(nccl_net_v12, iflush, 96);
NET_ABI_AT(nccl_net_v12, test, 104);
NET_ABI_AT(nccl_net_v12, close_send, 112);
NET_ABI_AT(nccl_net_v12, close_recv, 120);
NET_ABI_AT(nccl_net_v12, close_listen, 128);
NET_ABI_AT(nccl_net_v12, get_device_mr, 136);
NET_ABI_AT(nccl_net_v12, irecv_consumed, 144);
NET_ABI_AT(nccl_net_v12, make_vdevice, 152);
NET_ABI_AT(nccl_net_v12, finalize, 160);
NET_ABI_AT(nccl_net_v12, set_net_attr, 168);
NET_ABI_SIZE(nccl_net_v12, 176);

#endif
