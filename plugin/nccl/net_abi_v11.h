/*
 * Version 11 of NCCL's network plugin ABI: one init and one finalize per communicator, with a
 * context between them. As net_abi.h; the traffic class is in init now.
 */
#ifndef NET_ABI_V11_H
#define NET_ABI_V11_H

#include "net_abi_v10.h"

/* Hints of setNetAttr: how many peers and connections will be busy at once, for which operations.
 * -1: not known. */
struct nccl_net_comm_attr_v11 {
    int32_t max_concurrent_peers;
    int32_t min_concurrent_peers;
    int32_t max_flows_per_peer;
    int32_t min_flows_per_peer;
};

struct nccl_net_attr_v11 {
    struct nccl_net_comm_attr_v11 send_comm_attr;
    struct nccl_net_comm_attr_v11 recv_comm_attr;
    uint32_t op;
    uint32_t algo;
    uint32_t proto;
};

struct nccl_net_properties_v11 {
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
    struct nccl_net_vdevice_props_v9 v_props;
    size_t max_p2p_bytes;
    size_t max_coll_bytes;
    int max_multi_request_size;
};

struct nccl_net_v11 {
    const char *name;
    enum nccl_result (*init)(void **ctx, uint64_t comm_id, struct nccl_net_comm_config_v10 *config,
                             nccl_logger_fn log, nccl_profiler_fn profiler);
    enum nccl_result (*devices)(int *ndev);
    enum nccl_result (*get_properties)(int dev, struct nccl_net_properties_v11 *props);
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
        int *dev, struct nccl_net_vdevice_props_v9 *props); /* NULL: NICs are not fused */
    enum nccl_result (*finalize)(void *ctx);
    enum nccl_result (*set_net_attr)(
        void *ctx, struct nccl_net_attr_v11 *attr); /* NULL: nobody reads the hints */
};

NET_ABI_AT(nccl_net_attr_v11, send_comm_attr, 0);
NET_ABI_AT(nccl_net_attr_v11, recv_comm_attr, 16);
NET_ABI_AT(nccl_net_attr_v11, op, 32);
NET_ABI_AT(nccl_net_attr_v11, algo, 36);
NET_ABI_AT(nccl_net_attr_v11, proto, 40);
NET_ABI_SIZE(nccl_net_attr_v11, 44);

NET_ABI_AT(nccl_net_properties_v11, name, 0);
NET_ABI_AT(nccl_net_properties_v11, pci_path, 8);
NET_ABI_AT(nccl_net_properties_v11, guid, 16);
NET_ABI_AT(nccl_net_properties_v11, ptr_support, 24);
NET_ABI_AT(nccl_net_properties_v11, reg_is_global, 28);
NET_ABI_AT(nccl_net_properties_v11, force_flush, 32);
NET_ABI_AT(nccl_net_properties_v11, speed, 36);
NET_ABI_AT(nccl_net_properties_v11, port, 40);
NET_ABI_AT(nccl_net_properties_v11, latency, 44);
NET_ABI_AT(nccl_net_properties_v11, max_comms, 48);
NET_ABI_AT(nccl_net_properties_v11, max_recvs, 52);
NET_ABI_AT(nccl_net_properties_v11, net_device_type, 56);
NET_ABI_AT(nccl_net_properties_v11, net_device_version, 60);
NET_ABI_AT(nccl_net_properties_v11, v_props, 64);
NET_ABI_AT(nccl_net_properties_v11, max_p2p_bytes, 88);
NET_ABI_AT(nccl_net_properties_v11, max_coll_bytes, 96);
NET_ABI_AT(nccl_net_properties_v11, max_multi_request_size, 104);
NET_ABI_SIZE(nccl_net_properties_v11, 112);

NET_ABI_AT(nccl_net_v11, name, 0);
NET_ABI_AT(nccl_net_v11, init, 8);
NET_ABI_AT(nccl_net_v11, devices, 16);
NET_ABI_AT(nccl_net_v11, get_properties, 24);
NET_ABI_AT(nccl_net_v11, listen, 32);
NET_ABI_AT(nccl_net_v11, connect, 40);
NET_ABI_AT(nccl_net_v11, accept, 48);
NET_ABI_AT(nccl_net_v11, reg_mr, 56);
NET_ABI_AT(nccl_net_v11, reg_mr_dmabuf, 64);
NET_ABI_AT(nccl_net_v11, dereg_mr, 72);
NET_ABI_AT(nccl_net_v11, isend, 80);
NET_ABI_AT(nccl_net_v11, irecv, 88);
NET_ABI_AT(nccl_net_v11, iflush, 96);
NET_ABI_AT(nccl_net_v11, test, 104);
NET_ABI_AT(nccl_net_v11, close_send, 112);
NET_ABI_AT(nccl_net_v11, close_recv, 120);
NET_ABI_AT(nccl_net_v11, close_listen, 128);
NET_ABI_AT(nccl_net_v11, get_device_mr, 136);
NET_ABI_AT(nccl_net_v11, irecv_consumed, 144);
NET_ABI_AT(nccl_net_v11, make_vdevice, 152);
NET_ABI_AT(nccl_net_v11, finalize, 160);
NET_ABI_AT(nccl_net_v11, set_net_attr, 168);
NET_ABI_SIZE(nccl_net_v11, 176);

#endif
