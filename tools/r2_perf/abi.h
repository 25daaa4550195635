/*
 * The net plugin interface of version 8 as the driver sees it, and the shape in which it drives
 * every version (abi_view.h). Deliberately apart from the plugin's own declarations: two
 * independent readings of one ABI that must meet at run time. Offsets are those of LP64 machines.
 */
#ifndef R2_PERF_ABI_H
#define R2_PERF_ABI_H

#include <stddef.h>
#include <stdint.h>

enum abi_result {
    ABI_SUCCESS = 0,
    ABI_CUDA_ERROR = 1,
    ABI_SYSTEM_ERROR = 2,
    ABI_INTERNAL_ERROR = 3,
    ABI_INVALID_ARGUMENT = 4,
    ABI_INVALID_USAGE = 5,
    ABI_REMOTE_ERROR = 6,
    ABI_IN_PROGRESS = 7,
    ABI_TIMEOUT = 8,
};

enum abi_log_level {
    ABI_LOG_NONE,
    ABI_LOG_VERSION,
    ABI_LOG_WARN,
    ABI_LOG_INFO,
    ABI_LOG_ABORT,
    ABI_LOG_TRACE
};

#define ABI_PTR_HOST     0x1
#define ABI_HANDLE_BYTES 128
#define ABI_MESSAGE_MAX  (1 << 30)
#define ABI_TABLE_SYMBOL "ncclNetPlugin_v8" /* later versions: abi_next.h */
#define ABI_DEVICE_HOST  0

typedef void (*abi_logger_t)(int level, unsigned long flags, const char *file, int line,
                             const char *fmt, ...) __attribute__((format(printf, 5, 6)));

struct abi_props {
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
    int device_type;
    int device_version;
};

struct abi_device_handle;

struct abi_net {
    const char *name;
    int (*init)(abi_logger_t logger);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct abi_props *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm, struct abi_device_handle **dev_comm);
    int (*accept)(void *listen_comm, void **recv_comm, struct abi_device_handle **dev_comm);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mhandle);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mhandle);
    int (*dereg_mr)(void *comm, void *mhandle);
    int (*isend)(void *send_comm, void *data, int size, int tag, void *mhandle, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *send_comm);
    int (*close_recv)(void *recv_comm);
    int (*close_listen)(void *listen_comm);
    int (*get_device_mr)(void *comm, void *mhandle, void **dptr_mhandle);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
};

#define ABI_AT(type, field, off)                                                                   \
    _Static_assert(offsetof(struct type, field) == (off), #type "." #field)
ABI_AT(abi_props, name, 0);
ABI_AT(abi_props, pci_path, 8);
ABI_AT(abi_props, guid, 16);
ABI_AT(abi_props, ptr_support, 24);
ABI_AT(abi_props, reg_is_global, 28);
ABI_AT(abi_props, speed, 32);
ABI_AT(abi_props, port, 36);
ABI_AT(abi_props, latency, 40);
ABI_AT(abi_props, max_comms, 44);
ABI_AT(abi_props, max_recvs, 48);
ABI_AT(abi_props, device_type, 52);
ABI_AT(abi_props, device_version, 56);
_Static_assert(sizeof(struct abi_props) == 64, "size of the properties");
ABI_AT(abi_net, name, 0);
ABI_AT(abi_net, init, 8);
ABI_AT(abi_net, devices, 16);
ABI_AT(abi_net, get_properties, 24);
ABI_AT(abi_net, listen, 32);
ABI_AT(abi_net, connect, 40);
ABI_AT(abi_net, accept, 48);
ABI_AT(abi_net, reg_mr, 56);
ABI_AT(abi_net, reg_mr_dmabuf, 64);
ABI_AT(abi_net, dereg_mr, 72);
ABI_AT(abi_net, isend, 80);
ABI_AT(abi_net, irecv, 88);
ABI_AT(abi_net, iflush, 96);
ABI_AT(abi_net, test, 104);
ABI_AT(abi_net, close_send, 112);
ABI_AT(abi_net, close_recv, 120);
ABI_AT(abi_net, close_listen, 128);
ABI_AT(abi_net, get_device_mr, 136);
ABI_AT(abi_net, irecv_consumed, 144);
_Static_assert(sizeof(struct abi_net) == 152, "size of the table");
#undef ABI_AT

#endif
