/*
 * What all adapters of NCCL's table share: results and log lines in NCCL's terms, and the calls that are the same in
 * every version. Return codes and meaning of NULL are NCCL's. Threads as in r2_net.h.
 */
#ifndef NET_SHIMS_H
#define NET_SHIMS_H

#include "net_abi.h"
#include "r2_net.h"
#include "r2_status.h"

#define NET_SHIM_NAME "R2"

/* Largest number of sizes that a test() may write. */
#define NET_SHIM_SIZES R2_NET_MAX_RECVS

/* NCCL's code for @s. An error hands the queued log lines over first, so that its reason is the last WARN that NCCL has
 * seen. */
enum nccl_result net_shim_result(enum r2_status s);

/* The caller broke a rule of the ABI: one WARN that names @call and @what, NCCL_INVALID_ARGUMENT. */
enum nccl_result net_shim_refuse(const char *call, const char *what);

enum nccl_result net_shim_init(nccl_logger_fn log);
enum nccl_result net_shim_devices(int *ndev);
/* NULL and a refusal logged when there is no instance or @dev or @out are bad. */
enum nccl_result net_shim_props(int dev, struct r2_net_props *out);
enum nccl_result net_shim_listen(int dev, void *handle, void **listen_comm);
enum nccl_result net_shim_connect(int dev, void *handle, void **send_comm);
enum nccl_result net_shim_accept(void *listen_comm, void **recv_comm);
enum nccl_result net_shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
enum nccl_result net_shim_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                                        void **mhandle);
enum nccl_result net_shim_dereg_mr(void *comm, void *mhandle);
enum nccl_result net_shim_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
enum nccl_result net_shim_close(void *comm);
enum nccl_result net_shim_close_listen(void *listen_comm);

#endif
