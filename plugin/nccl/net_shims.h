/*
 * What all adapters of NCCL's table share: results and log lines in NCCL's terms, and the calls
 * that are the same in every version. Return codes and meaning of NULL are NCCL's. Threads as in
 * r2_net.h.
 */
#ifndef NET_SHIMS_H
#define NET_SHIMS_H

#include "base/r2_status.h"
#include "core/r2_net.h"
#include "net_abi_v10.h"

#define NET_SHIM_NAME "R2"

/* NCCL's code for @s. An error hands the queued log lines over first, so that its reason is the
 * last WARN that NCCL has seen. */
enum nccl_result net_shim_result(enum r2_status s);

/* The caller broke a rule of the ABI: one WARN that names @call and @what, NCCL_INVALID_ARGUMENT.
 */
enum nccl_result net_shim_refuse(const char *call, const char *what);

/* --- one init per process, versions 8 to 10 --- */

/* r2_init() with NCCL's logger as the sink of the log. May block in drivers. */
enum nccl_result net_shim_init(nccl_logger_fn log);
enum nccl_result net_shim_devices(int *ndev);
/* NULL and a refusal logged when there is no instance or @dev or @out are bad. */
enum nccl_result net_shim_props(int dev, struct r2_net_props *out);
/* Of versions 9 and 10; net_v9.c. */
enum nccl_result net_shim_properties_v9(int dev, struct nccl_net_properties_v9 *props);
enum nccl_result net_shim_listen(int dev, void *handle, void **listen_comm);
/* Device handles are for plugins that run on the GPU: NCCL's values stay what they are. */
enum nccl_result net_shim_connect(int dev, int class, void *handle, void **send_comm);
enum nccl_result net_shim_connect_plain(int dev, void *handle, void **send_comm,
                                        struct nccl_net_device_handle_v8 **send_dev_comm);
enum nccl_result net_shim_accept(void *listen_comm, void **recv_comm,
                                 struct nccl_net_device_handle_v8 **recv_dev_comm);

/* --- one init per communicator, since version 11; @config and @profiler may be NULL --- */

enum nccl_result net_shim_ctx_init(void **ctx, uint64_t comm_id,
                                   struct nccl_net_comm_config_v10 *config, nccl_logger_fn log,
                                   nccl_profiler_fn profiler);
enum nccl_result net_shim_ctx_listen(void *ctx, int dev, void *handle, void **listen_comm);
enum nccl_result net_shim_ctx_connect(void *ctx, int dev, void *handle, void **send_comm,
                                      struct nccl_net_device_handle_v8 **send_dev_comm);
/* NULL succeeds: NCCL up to 2.29.3 finalizes what init refused. */
enum nccl_result net_shim_ctx_finalize(void *ctx);

/* --- registrations, requests, closes: the same in all versions, but for what is noted --- */

enum nccl_result net_shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
enum nccl_result net_shim_reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
                                        uint64_t offset, int fd, void **mhandle);
enum nccl_result net_shim_dereg_mr(void *comm, void *mhandle);
/* Since version 9. */
enum nccl_result net_shim_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                                void **request);
/* What *request has on entry is not read: a receive whose completion is optional is completed like
 * any other. */
enum nccl_result net_shim_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
                                void **mhandles, void **request);
/* Since version 11. @phandle, @phandles and what these point to: the profiler's parents of what is
 * reported, or NULL. */
enum nccl_result net_shim_isend_profiled(void *send_comm, void *data, size_t size, int tag,
                                         void *mhandle, void *phandle, void **request);
enum nccl_result net_shim_irecv_profiled(void *recv_comm, int n, void **data, size_t *sizes,
                                         int *tags, void **mhandles, void **phandles,
                                         void **request);
enum nccl_result net_shim_test(void *request, int *done, int *sizes);
enum nccl_result net_shim_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
                                 void **request);
enum nccl_result net_shim_close(void *comm);
enum nccl_result net_shim_close_listen(void *listen_comm);

#endif
