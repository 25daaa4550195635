/*
 * Version 9 of NCCL's network plugin ABI: sizes of messages are size_t, the properties have limits
 * of sizes. As net_abi.h.
 *
 * All that versions 9 to 12 share is here under the name of version 9: the device handle is version
 * 8's.
 */
#ifndef NET_ABI_V9_H
#define NET_ABI_V9_H

#include "net_abi.h"

/* Upper end of what NCCL takes for max_p2p_bytes and max_coll_bytes; 0 is not taken either. */
#define NCCL_NET_MAX_SIZE_BYTES (1ull << 40)

/*
 * What *request of irecv may hold on entry: the caller does not need the completion (LL, LL128). A
 * hint that a plugin may pass over; it never survives the call.
 */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1

#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4

/* The devices that one device is made of: itself. */
struct nccl_net_vdevice_props_v9 {
    int ndevs;
    int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
};

struct nccl_net_properties_v9 {
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
};

struct nccl_net_v9 {
    const char *name;
    enum nccl_result (*init)(nccl_logger_fn log);
    enum nccl_result (*devices)(int *ndev);
    enum nccl_result (*get_properties)(int dev, struct nccl_net_properties_v9 *props);
    enum nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum nccl_result (*connect)(int dev, void *handle, void **send_comm,
                                struct nccl_net_device_handle_v8 **send_dev_comm);
    enum nccl_result (*accept)(void *listen_comm, void **recv_comm,
                               struct nccl_net_device_handle_v8 **recv_dev_comm);
    enum nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                      uint64_t offset, int fd, void **mhandle);
    enum nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum nccl_result (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                              void **request);
    enum nccl_result (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
                              void **mhandles, void **request);
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
};

NET_ABI_AT(nccl_net_vdevice_props_v9, ndevs, 0);
NET_ABI_AT(nccl_net_vdevice_props_v9, devs, 4);
NET_ABI_SIZE(nccl_net_vdevice_props_v9, 20);

NET_ABI_AT(nccl_net_properties_v9, name, 0);
NET_ABI_AT(nccl_net_properties_v9, pci_path, 8);
NET_ABI_AT(nccl_net_properties_v9, guid, 16);
NET_ABI_AT(nccl_net_properties_v9, ptr_support, 24);
NET_ABI_AT(nccl_net_properties_v9, reg_is_global, 28);
NET_ABI_AT(nccl_net_properties_v9, force_flush, 32);
NET_ABI_AT(nccl_net_properties_v9, speed, 36);
NET_ABI_AT(nccl_net_properties_v9, port, 40);
NET_ABI_AT(nccl_net_properties_v9, latency, 44);
NET_ABI_AT(nccl_net_properties_v9, max_comms, 48);
NET_ABI_AT(nccl_net_properties_v9, max_recvs, 52);
NET_ABI_AT(nccl_net_properties_v9, net_device_type, 56);
NET_ABI_AT(nccl_net_properties_v9, net_device_version, 60);
NET_ABI_AT(nccl_net_properties_v9, v_props, 64);
NET_ABI_AT(nccl_net_properties_v9, max_p2p_bytes, 88);
NET_ABI_AT(nccl_net_properties_v9, max_coll_bytes, 96);
NET_ABI_SIZE(nccl_net_properties_v9, 104);

NET_ABI_AT(nccl_net_v9, name, 0);
NET_ABI_AT(nccl_net_v9, init, 8);
NET_ABI_AT(nccl_net_v9, devices, 16);
NET_ABI_AT(nccl_net_v9, get_properties, 24);
NET_ABI_AT(nccl_net_v9, listen, 32);
NET_ABI_AT(nccl_net_v9, connect, 40);
NET_ABI_AT(nccl_net_v9, accept, 48);
NET_ABI_AT(nccl_net_v9, reg_mr, 56);
NET_ABI_AT(nccl_net_v9, reg_mr_dmabuf, 64);
NET_ABI_AT(nccl_net_v9, dereg_mr, 72);
NET_ABI_AT(nccl_net_v9, isend, 80);
NET_ABI_AT(nccl_net_v9, irecv, 88);
NET_ABI_AT(nccl_net_v9, iflush, 96);
NET_ABI_AT(nccl_net_v9, test, 104);
NET_ABI_AT(nccl_net_v9, close_send, 112);
NET_ABI_AT(nccl_net_v9, close_recv, 120);
NET_ABI_AT(nccl_net_v9, close_listen, 128);
NET_ABI_AT(nccl_net_v9, get_device_mr, 136);
NET_ABI_AT(nccl_net_v9, irecv_consumed, 144);
NET_ABI_AT(nccl_net_v9, make_vdevice, 152);
NET_ABI_SIZE(nccl_net_v9, 160);

#endif
