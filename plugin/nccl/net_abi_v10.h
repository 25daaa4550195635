/*
 * Version 10 of NCCL's network plugin ABI: a traffic class with connect, a profiler. As net_abi.h;
 * the properties are version 9's.
 */
#ifndef NET_ABI_V10_H
#define NET_ABI_V10_H

#include "net_abi_v9.h"

#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1)

struct nccl_net_comm_config_v10 {
    int traffic_class;
};

/*
 * Reports an event of a plugin to NCCL's profiler plugin, as a child of what @phandle of isend or
 * irecv stands for, which must not be NULL when it starts. *ehandle is written only when the
 * profiler keeps the event. @type, @plugin_id, @data: below; a stop needs neither @phandle nor
 * @data.
 */
typedef enum nccl_result (*nccl_profiler_fn)(void **ehandle, int type, void *phandle,
                                             int64_t plugin_id, void *data);

enum { NCCL_PROFILER_NET_START = 0, NCCL_PROFILER_NET_STOP = 1 };

/* What profilers know how to read: an event of a queue pair, in the words of NCCL's IB transport.
 */
#define NCCL_PROFILER_NET_IB_V1 ((1 << 16) | 1) /* type of network; version of the description */
#define NCCL_PROFILER_NET_QP    1
struct nccl_profiler_net_ib_v1 {
    uint8_t type; /* NCCL_PROFILER_NET_QP */
    struct {
        int device;
        uint64_t wr_id;
        int opcode;
        int qp_num;
        size_t length;
    } qp;
};

struct nccl_net_v10 {
    const char *name;
    enum nccl_result (*init)(nccl_logger_fn log, nccl_profiler_fn profiler);
    enum nccl_result (*devices)(int *ndev);
    enum nccl_result (*get_properties)(int dev, struct nccl_net_properties_v9 *props);
    enum nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    /* @config: NULL where NCCL connects for itself (bootstrap, GPUDirect test) */
    enum nccl_result (*connect)(int dev, struct nccl_net_comm_config_v10 *config, void *handle,
                                void **send_comm, struct nccl_net_device_handle_v8 **send_dev_comm);
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
};

NET_ABI_AT(nccl_net_comm_config_v10, traffic_class, 0);
NET_ABI_SIZE(nccl_net_comm_config_v10, 4);

NET_ABI_AT(nccl_profiler_net_ib_v1, type, 0);
NET_ABI_AT(nccl_profiler_net_ib_v1, qp.device, 8);
NET_ABI_AT(nccl_profiler_net_ib_v1, qp.wr_id, 16);
NET_ABI_AT(nccl_profiler_net_ib_v1, qp.opcode, 24);
NET_ABI_AT(nccl_profiler_net_ib_v1, qp.qp_num, 28);
NET_ABI_AT(nccl_profiler_net_ib_v1, qp.length, 32);
NET_ABI_SIZE(nccl_profiler_net_ib_v1, 40);

NET_ABI_AT(nccl_net_v10, name, 0);
NET_ABI_AT(nccl_net_v10, init, 8);
NET_ABI_AT(nccl_net_v10, devices, 16);
NET_ABI_AT(nccl_net_v10, get_properties, 24);
NET_ABI_AT(nccl_net_v10, listen, 32);
NET_ABI_AT(nccl_net_v10, connect, 40);
NET_ABI_AT(nccl_net_v10, accept, 48);
NET_ABI_AT(nccl_net_v10, reg_mr, 56);
NET_ABI_AT(nccl_net_v10, reg_mr_dmabuf, 64);
NET_ABI_AT(nccl_net_v10, dereg_mr, 72);
NET_ABI_AT(nccl_net_v10, isend, 80);
NET_ABI_AT(nccl_net_v10, irecv, 88);
NET_ABI_AT(nccl_net_v10, iflush, 96);
NET_ABI_AT(nccl_net_v10, test, 104);
NET_ABI_AT(nccl_net_v10, close_send, 112);
NET_ABI_AT(nccl_net_v10, close_recv, 120);
NET_ABI_AT(nccl_net_v10, close_listen, 128);
NET_ABI_AT(nccl_net_v10, get_device_mr, 136);
NET_ABI_AT(nccl_net_v10, irecv_consumed, 144);
NET_ABI_AT(nccl_net_v10, make_vdevice, 152);
NET_ABI_SIZE(nccl_net_v10, 160);

#endif
