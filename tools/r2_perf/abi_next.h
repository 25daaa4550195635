/*
 * The net plugin interface after version 8, as the driver sees it. Deliberately apart from the
 * plugin's own declarations, as abi.h: read from what NCCL publishes, and checked to the byte.
 * LP64.
 *
 * Calls that never changed (devices, accept, registrations, iflush, test, close) are declared in
 * each table again: a table is read from top to bottom.
 */
#ifndef R2_PERF_ABI_NEXT_H
#define R2_PERF_ABI_NEXT_H

#include "tools/r2_perf/abi.h"

#define ABI_RECV_OPTIONAL                                                                          \
    ((void *)0x1) /* *request of irecv on entry: the completion is not needed */
#define ABI_CLASS_UNDEF (-1)
#define ABI_ID_UNDEF    (-1)
#define ABI_SIZE_LIMIT  (1ll << 40) /* of max_p2p_bytes and max_coll_bytes */

/* Versions 9 and 10. */
struct abi_props_v9 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int32_t ptr_support, reg_is_global, force_flush;
    int32_t speed; /* Mb/s */
    int32_t port;
    float latency; /* us */
    int32_t max_comms, max_recvs;
    int32_t device_type, device_version;
    int32_t ndevs, devs[4];
    uint64_t max_p2p_bytes, max_coll_bytes;
};
_Static_assert(offsetof(struct abi_props_v9, force_flush) == 32 &&
                   offsetof(struct abi_props_v9, device_version) == 60,
               "properties of version 9");
_Static_assert(offsetof(struct abi_props_v9, ndevs) == 64 &&
                   offsetof(struct abi_props_v9, devs) == 68 &&
                   offsetof(struct abi_props_v9, max_p2p_bytes) == 88 &&
                   sizeof(struct abi_props_v9) == 104,
               "properties of version 9");

struct abi_props_v11 {
    struct abi_props_v9 v9;
    int32_t max_multi_request;
};
_Static_assert(offsetof(struct abi_props_v11, max_multi_request) == 104 &&
                   sizeof(struct abi_props_v11) == 112,
               "properties of version 11");

struct abi_props_v12 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int32_t ptr_support, reg_is_global, force_flush;
    int32_t speed;
    int32_t port;
    float latency;
    int32_t max_comms, max_recvs;
    int32_t device_type, device_version;
    int32_t ndevs, devs[8];
    uint64_t max_p2p_bytes, max_coll_bytes;
    int32_t max_multi_request;
    int16_t rail, plane;
};
_Static_assert(offsetof(struct abi_props_v12, devs) == 68 &&
                   offsetof(struct abi_props_v12, max_p2p_bytes) == 104 &&
                   offsetof(struct abi_props_v12, max_multi_request) == 120 &&
                   offsetof(struct abi_props_v12, rail) == 124 &&
                   offsetof(struct abi_props_v12, plane) == 126 &&
                   sizeof(struct abi_props_v12) == 128,
               "properties of version 12");

/* Of a communicator. */
struct abi_config {
    int32_t traffic_class;
};

/* setNetAttr: hints, -1 where nothing is known. */
struct abi_attr {
    int32_t send_peers_max, send_peers_min, send_flows_max, send_flows_min;
    int32_t recv_peers_max, recv_peers_min, recv_flows_max, recv_flows_min;
    uint32_t op, algo, proto;
};
_Static_assert(sizeof(struct abi_attr) == 44, "hints");

typedef int (*abi_profiler_t)(void **event, int type, void *phandle, int64_t plugin, void *data);

/* Type 0 starts an event, which @data describes, 1 stops it. */
#define ABI_EVENT_START 0
#define ABI_EVENT_STOP  1
#define ABI_EVENT_IB    0x10001 /* what describes events of IB transports: */
struct abi_event_ib {
    uint8_t kind; /* 1: of a queue pair */
    uint8_t pad[7];
    int32_t device, pad2;
    uint64_t wr_id;
    int32_t opcode, qp;
    uint64_t length;
};
_Static_assert(offsetof(struct abi_event_ib, device) == 8 &&
                   offsetof(struct abi_event_ib, wr_id) == 16 &&
                   offsetof(struct abi_event_ib, length) == 32 && sizeof(struct abi_event_ib) == 40,
               "event of a queue pair");

struct abi_net_v9 {
    const char *name;
    int (*init)(abi_logger_t logger);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct abi_props_v9 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm, struct abi_device_handle **dev_comm);
    int (*accept)(void *listen_comm, void **recv_comm, struct abi_device_handle **dev_comm);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mhandle);
    int (*dereg_mr)(void *comm, void *mhandle);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *send_comm);
    int (*close_recv)(void *recv_comm);
    int (*close_listen)(void *listen_comm);
    int (*get_device_mr)(void *comm, void *mhandle, void **dptr_mhandle);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, void *props);
};

struct abi_net_v10 {
    const char *name;
    int (*init)(abi_logger_t logger, abi_profiler_t profiler);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct abi_props_v9 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, struct abi_config *config, void *handle, void **send_comm,
                   struct abi_device_handle **dev_comm);
    int (*accept)(void *listen_comm, void **recv_comm, struct abi_device_handle **dev_comm);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mhandle);
    int (*dereg_mr)(void *comm, void *mhandle);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                 void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                 void **phandles, void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *send_comm);
    int (*close_recv)(void *recv_comm);
    int (*close_listen)(void *listen_comm);
    int (*get_device_mr)(void *comm, void *mhandle, void **dptr_mhandle);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, void *props);
};

/* Versions 11 and 12: they differ in the properties, which are struct abi_props_v11 and struct
 * abi_props_v12. */
struct abi_net_v11 {
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, struct abi_config *config, abi_logger_t logger,
                abi_profiler_t profiler);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, void *props);
    int (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
    int (*connect)(void *ctx, int dev, void *handle, void **send_comm,
                   struct abi_device_handle **dev_comm);
    int (*accept)(void *listen_comm, void **recv_comm, struct abi_device_handle **dev_comm);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mhandle);
    int (*dereg_mr)(void *comm, void *mhandle);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                 void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                 void **phandles, void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *send_comm);
    int (*close_recv)(void *recv_comm);
    int (*close_listen)(void *listen_comm);
    int (*get_device_mr)(void *comm, void *mhandle, void **dptr_mhandle);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, void *props);
    int (*finalize)(void *ctx);
    int (*set_net_attr)(void *ctx, struct abi_attr *attr);
};
_Static_assert(sizeof(struct abi_net_v9) == 160 && sizeof(struct abi_net_v10) == 160 &&
                   sizeof(struct abi_net_v11) == 176,
               "sizes of the tables");
_Static_assert(offsetof(struct abi_net_v9, make_vdevice) == 152 &&
                   offsetof(struct abi_net_v11, finalize) == 160 &&
                   offsetof(struct abi_net_v11, set_net_attr) == 168,
               "ends of the tables");

#endif
