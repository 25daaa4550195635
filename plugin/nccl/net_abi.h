/*
 * NCCL's network plugin ABI, version 8, declared anew: names are ours, layouts are NCCL's and
 * checked below. LP64 only.
 *
 * Included by the adapters alone; everything behind them speaks r2_net.h. How NCCL drives these
 * calls is written there too.
 */
#ifndef NET_ABI_H
#define NET_ABI_H

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
};

enum nccl_log_level {
    NCCL_LOG_NONE = 0,
    NCCL_LOG_VERSION = 1,
    NCCL_LOG_WARN = 2,
    NCCL_LOG_INFO = 3,
    NCCL_LOG_ABORT = 4,
    NCCL_LOG_TRACE = 5,
};

/* Subsystems of a log line. */
#define NCCL_INIT 0x1ul
#define NCCL_NET  0x10ul
#define NCCL_ENV  0x80ul
#define NCCL_ALL  (~0ul)

/* Any thread. Takes a lock and may block in a pipe. Valid to the end of the process. */
typedef void (*nccl_logger_fn)(enum nccl_log_level level, unsigned long flags, const char *file,
                               int line, const char *fmt, ...);

#define NCCL_PTR_HOST   0x1
#define NCCL_PTR_CUDA   0x2
#define NCCL_PTR_DMABUF 0x4

#define NCCL_NET_HANDLE_MAXSIZE 128
#define NCCL_NET_MAX_REQUESTS   32

enum nccl_net_device_type { NCCL_NET_DEVICE_HOST = 0 };
#define NCCL_NET_DEVICE_INVALID_VERSION 0

struct nccl_net_device_handle_v8 {
    int type;
    int version;
    void *handle;
    size_t size;
    int needs_proxy_progress;
};

struct nccl_net_properties_v8 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support;
    int reg_is_global;
    int speed; /* Mb/s */
    int port;
    float latency; /* us */
    int max_comms;
    int max_recvs;
    int net_device_type;
    int net_device_version;
};

struct nccl_net_v8 {
    const char *name;
    enum nccl_result (*init)(nccl_logger_fn log);
    enum nccl_result (*devices)(int *ndev);
    enum nccl_result (*get_properties)(int dev, struct nccl_net_properties_v8 *props);
    enum nccl_result (*listen)(int dev, void *handle, void **listen_comm);
    enum nccl_result (*connect)(int dev, void *handle, void **send_comm,
                                struct nccl_net_device_handle_v8 **send_dev_comm);
    enum nccl_result (*accept)(void *listen_comm, void **recv_comm,
                               struct nccl_net_device_handle_v8 **recv_dev_comm);
    enum nccl_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    enum nccl_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,
                                      uint64_t offset, int fd, void **mhandle);
    enum nccl_result (*dereg_mr)(void *comm, void *mhandle);
    enum nccl_result (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle,
                              void **request);
    enum nccl_result (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags,
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
};

#define NET_ABI_AT(type, field, at)                                                                \
    _Static_assert(offsetof(struct type, field) == (at), #type "." #field)
#define NET_ABI_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

_Static_assert(sizeof(enum nccl_result) == 4 && sizeof(enum nccl_log_level) == 4, "enums are int");
_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8 && sizeof(size_t) == 8, "LP64");

NET_ABI_AT(nccl_net_device_handle_v8, type, 0);
NET_ABI_AT(nccl_net_device_handle_v8, version, 4);
NET_ABI_AT(nccl_net_device_handle_v8, handle, 8);
NET_ABI_AT(nccl_net_device_handle_v8, size, 16);
NET_ABI_AT(nccl_net_device_handle_v8, needs_proxy_progress, 24);
NET_ABI_SIZE(nccl_net_device_handle_v8, 32);

NET_ABI_AT(nccl_net_properties_v8, name, 0);
NET_ABI_AT(nccl_net_properties_v8, pci_path, 8);
NET_ABI_AT(nccl_net_properties_v8, guid, 16);
NET_ABI_AT(nccl_net_properties_v8, ptr_support, 24);
NET_ABI_AT(nccl_net_properties_v8, reg_is_global, 28);
NET_ABI_AT(nccl_net_properties_v8, speed, 32);
NET_ABI_AT(nccl_net_properties_v8, port, 36);
NET_ABI_AT(nccl_net_properties_v8, latency, 40);
NET_ABI_AT(nccl_net_properties_v8, max_comms, 44);
NET_ABI_AT(nccl_net_properties_v8, max_recvs, 48);
NET_ABI_AT(nccl_net_properties_v8, net_device_type, 52);
NET_ABI_AT(nccl_net_properties_v8, net_device_version, 56);
NET_ABI_SIZE(nccl_net_properties_v8, 64);

NET_ABI_AT(nccl_net_v8, name, 0);
NET_ABI_AT(nccl_net_v8, init, 8);
NET_ABI_AT(nccl_net_v8, devices, 16);
NET_ABI_AT(nccl_net_v8, get_properties, 24);
NET_ABI_AT(nccl_net_v8, listen, 32);
NET_ABI_AT(nccl_net_v8, connect, 40);
NET_ABI_AT(nccl_net_v8, accept, 48);
NET_ABI_AT(nccl_net_v8, reg_mr, 56);
NET_ABI_AT(nccl_net_v8, reg_mr_dmabuf, 64);
NET_ABI_AT(nccl_net_v8, dereg_mr, 72);
NET_ABI_AT(nccl_net_v8, isend, 80);
NET_ABI_AT(nccl_net_v8, irecv, 88);
NET_ABI_AT(nccl_net_v8, iflush, 96);
NET_ABI_AT(nccl_net_v8, test, 104);
NET_ABI_AT(nccl_net_v8, close_send, 112);
NET_ABI_AT(nccl_net_v8, close_recv, 120);
NET_ABI_AT(nccl_net_v8, close_listen, 128);
NET_ABI_AT(nccl_net_v8, get_device_mr, 136);
NET_ABI_AT(nccl_net_v8, irecv_consumed, 144);
NET_ABI_SIZE(nccl_net_v8, 152);

#endif
