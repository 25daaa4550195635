#include "net_shims.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/r2_log.h"
#include "ib_transport/verbs/ib_device.h"
#include "r2_ctx.h"
#include "r2_init.h"
#include "telemetry/r2_prof.h"

_Static_assert(IB_PTR_HOST == NCCL_PTR_HOST && IB_PTR_CUDA == NCCL_PTR_CUDA &&
                   IB_PTR_DMABUF == NCCL_PTR_DMABUF,
               "pointer types");
_Static_assert(R2_NET_HANDLE_SIZE == NCCL_NET_HANDLE_MAXSIZE &&
                   R2_NET_MAX_REQUESTS >= NCCL_NET_MAX_REQUESTS,
               "limits");
_Static_assert(R2_NET_MAX_SIZE <= NCCL_NET_MAX_SIZE_BYTES, "a message");
_Static_assert(R2_NET_NO_CLASS == NCCL_NET_TRAFFIC_CLASS_UNDEF, "no traffic class");

static const uint8_t results[R2_STATUS_COUNT] = {
    [R2_OK] = NCCL_SUCCESS,
    [R2_AGAIN] = NCCL_INTERNAL_ERROR, /* never leaves r2_net.h */
    [R2_ERR_ARG] = NCCL_INVALID_ARGUMENT,
    [R2_ERR_PATH] = NCCL_REMOTE_ERROR,
    [R2_ERR_NIC] = NCCL_SYSTEM_ERROR,
    [R2_ERR_COMM] = NCCL_REMOTE_ERROR,
    [R2_ERR_PEER] = NCCL_REMOTE_ERROR,
    [R2_ERR_CONFIG] = NCCL_INVALID_USAGE,
    [R2_ERR_SYSTEM] = NCCL_SYSTEM_ERROR,
    [R2_ERR_INTERNAL] = NCCL_INTERNAL_ERROR,
};

/* Release at init, acquire in the sink, which may be on the service thread of before. */
static _Atomic(nccl_logger_fn) logger;

/* WARN goes to all subsystems, or a mask could hide it; what the options are is what people look
 * for under ENV. */
static void nccl_sink(enum r2_log_level level, const char *file, int line, const char *msg)
{
    nccl_logger_fn log = atomic_load_explicit(&logger, memory_order_acquire);
    const char *base = strrchr(file, '/');
    unsigned long flags =
        strncmp(base ? base + 1 : file, "r2_conf", 7) == 0 ? NCCL_ENV : NCCL_INIT | NCCL_NET;

    if (log == NULL) {
        return;
    }
    switch (level) {
    case R2_LOG_WARN:
        log(NCCL_LOG_WARN, NCCL_ALL, file, line, "%s", msg);
        break;
    case R2_LOG_INFO:
        log(NCCL_LOG_INFO, flags, file, line, "%s", msg);
        break;
    case R2_LOG_TRACE:
        log(NCCL_LOG_TRACE, flags, file, line, "%s", msg);
        break;
    }
}

static __attribute__((noinline, cold)) enum nccl_result error_result(enum r2_status s)
{
    r2_log_flush();
    return (unsigned)s < R2_STATUS_COUNT ? (enum nccl_result)results[s] : NCCL_INTERNAL_ERROR;
}

enum nccl_result net_shim_result(enum r2_status s)
{
    return __builtin_expect(s == R2_OK, 1) ? NCCL_SUCCESS : error_result(s);
}

enum nccl_result net_shim_refuse(const char *call, const char *what)
{
    R2_WARN("%s: %s", call, what);
    return error_result(R2_ERR_ARG);
}

/* To NCCL's profiler callback, @arg: of the NCCL that made the connection, should there be two in
 * this process. */
static void nccl_event(void *arg, void **event, void *parent, const struct r2_prof_desc *desc)
{
    nccl_profiler_fn report = (nccl_profiler_fn)(uintptr_t)arg;
    struct nccl_profiler_net_ib_v1 data = {.type = NCCL_PROFILER_NET_QP};

    if (desc == NULL) {
        report(event, NCCL_PROFILER_NET_STOP, NULL, NCCL_PROFILER_NET_IB_V1, NULL);
        return;
    }
    data.qp.device = desc->device;
    data.qp.wr_id = desc->wr_id;
    data.qp.opcode = desc->opcode;
    data.qp.qp_num = (int)desc->qp;
    data.qp.length = desc->bytes;
    report(event, NCCL_PROFILER_NET_START, parent, NCCL_PROFILER_NET_IB_V1, &data);
}

enum nccl_result net_shim_init(nccl_logger_fn log)
{
    enum r2_status s;

    atomic_store_explicit(&logger, log, memory_order_release);
    s = r2_init(nccl_sink);
    r2_log_flush();
    return net_shim_result(s);
}

enum nccl_result net_shim_devices(int *ndev)
{
    struct r2_inst *inst = r2_init_instance();

    if (ndev == NULL) {
        return net_shim_refuse("devices", "nowhere to write the count");
    }
    *ndev = 0;
    if (inst == NULL) {
        return net_shim_refuse("devices", "called before init");
    }
    *ndev = r2_net_devices(inst);
    return NCCL_SUCCESS;
}

enum nccl_result net_shim_props(int dev, struct r2_net_props *out)
{
    struct r2_inst *inst = r2_init_instance();

    if (inst == NULL) {
        return net_shim_refuse("getProperties", "called before init");
    }
    return net_shim_result(r2_net_props(inst, dev, out));
}

enum nccl_result net_shim_listen(int dev, void *handle, void **listen_comm)
{
    struct r2_inst *inst = r2_init_instance();
    struct r2_listen *l = NULL;
    enum r2_status s;

    if (handle == NULL || listen_comm == NULL) {
        return net_shim_refuse("listen", "no room for the handle or the comm");
    }
    *listen_comm = NULL;
    if (inst == NULL) {
        return net_shim_refuse("listen", "called before init");
    }
    s = r2_net_listen(inst, dev, handle, &l);
    *listen_comm = l;
    return net_shim_result(s);
}

enum nccl_result net_shim_connect(int dev, int class, void *handle, void **send_comm)
{
    struct r2_inst *inst = r2_init_instance();
    struct r2_comm *c = NULL;
    enum r2_status s;

    if (handle == NULL || send_comm == NULL) {
        return net_shim_refuse("connect", "no handle, or no room for the comm");
    }
    *send_comm = NULL;
    if (inst == NULL) {
        return net_shim_refuse("connect", "called before init");
    }
    s = r2_net_connect_class(inst, dev, class, handle, &c);
    /* with an error NCCL would close what it finds here, and once more at the end */
    *send_comm = s == R2_OK ? c : NULL;
    return net_shim_result(s);
}

enum nccl_result net_shim_connect_plain(int dev, void *handle, void **send_comm,
                                        struct nccl_net_device_handle_v8 **send_dev_comm)
{
    return net_shim_connect(dev, R2_NET_NO_CLASS, handle, send_comm);
}

enum nccl_result net_shim_accept(void *listen_comm, void **recv_comm,
                                 struct nccl_net_device_handle_v8 **recv_dev_comm)
{
    struct r2_comm *c = NULL;
    enum r2_status s;

    if (listen_comm == NULL || recv_comm == NULL) {
        return net_shim_refuse("accept", "no listen comm, or no room for the comm");
    }
    *recv_comm = NULL;
    s = r2_net_accept(listen_comm, &c);
    *recv_comm = s == R2_OK ? c : NULL;
    return net_shim_result(s);
}

enum nccl_result net_shim_ctx_init(void **ctx, uint64_t comm_id,
                                   struct nccl_net_comm_config_v10 *config, nccl_logger_fn log,
                                   nccl_profiler_fn profiler)
{
    struct r2_ctx *c = NULL;
    enum r2_status s;

    atomic_store_explicit(&logger, log, memory_order_release);
    r2_prof_set(profiler ? nccl_event : NULL, (void *)(uintptr_t)profiler);
    if (ctx == NULL) {
        return net_shim_refuse("init", "no room for the context");
    }
    s = r2_ctx_open(nccl_sink, comm_id, config ? config->traffic_class : R2_NET_NO_CLASS, &c);
    *ctx = c;
    r2_log_flush();
    return net_shim_result(s);
}

enum nccl_result net_shim_ctx_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
    if (ctx == NULL) {
        if (listen_comm != NULL) {
            *listen_comm = NULL;
        }
        return net_shim_refuse("listen", "no context");
    }
    return net_shim_listen(dev, handle, listen_comm);
}

enum nccl_result net_shim_ctx_connect(void *ctx, int dev, void *handle, void **send_comm,
                                      struct nccl_net_device_handle_v8 **send_dev_comm)
{
    if (ctx == NULL) {
        if (send_comm != NULL) {
            *send_comm = NULL;
        }
        return net_shim_refuse("connect", "no context");
    }
    return net_shim_connect(dev, r2_ctx_class(ctx), handle, send_comm);
}

enum nccl_result net_shim_ctx_finalize(void *ctx)
{
    return net_shim_result(r2_ctx_close(ctx));
}

enum nccl_result net_shim_reg_mr_dmabuf(void *comm, void *data, size_t size, int type,
                                        uint64_t offset, int fd, void **mhandle)
{
    struct ib_mr *mr = NULL;
    enum r2_status s;

    if (comm == NULL || mhandle == NULL) {
        return net_shim_refuse("regMr", "no comm, or no room for the handle");
    }
    *mhandle = NULL;
    s = r2_net_reg(comm, data, size, type, offset, fd, &mr);
    *mhandle = s == R2_OK ? mr : NULL;
    return net_shim_result(s);
}

enum nccl_result net_shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
    return net_shim_reg_mr_dmabuf(comm, data, size, type, 0, -1, mhandle);
}

enum nccl_result net_shim_dereg_mr(void *comm, void *mhandle)
{
    if (mhandle == NULL) {
        return NCCL_SUCCESS;
    }
    if (comm == NULL) {
        return net_shim_refuse("deregMr", "no comm");
    }
    return net_shim_result(r2_net_dereg(comm, mhandle));
}

enum nccl_result net_shim_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
                                void **request)
{
    if (__builtin_expect(send_comm == NULL || request == NULL, 0)) {
        return net_shim_refuse("isend", "no comm, or no room for the request");
    }
    return net_shim_result(
        r2_net_isend(send_comm, data, size, tag, mhandle, (struct r2_req **)request));
}

enum nccl_result net_shim_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
                                void **mhandles, void **request)
{
    if (__builtin_expect(recv_comm == NULL || request == NULL || n < 1 || n > R2_NET_MAX_RECVS ||
                             !data || !sizes || !tags || !mhandles,
                         0)) {
        return net_shim_refuse("irecv",
                               "no comm, no room for the request, or a bad list of buffers");
    }
    return net_shim_result(r2_net_irecv(recv_comm, n, data, sizes, tags, (struct ib_mr **)mhandles,
                                        (struct r2_req **)request));
}

/* Only where a profiler listens the request is looked at behind the call. */
static __attribute__((noinline)) enum nccl_result begun(enum nccl_result r, void **request,
                                                        void *const *parents)
{
    if (r == NCCL_SUCCESS && *request != NULL) {
        r2_prof_begin(*request, parents);
    }
    return r;
}

enum nccl_result net_shim_isend_profiled(void *send_comm, void *data, size_t size, int tag,
                                         void *mhandle, void *phandle, void **request)
{
    if (__builtin_expect(send_comm != NULL && r2_prof_listens(send_comm), 0)) {
        void *parent = phandle;

        return begun(net_shim_isend(send_comm, data, size, tag, mhandle, request), request,
                     &parent);
    }
    return net_shim_isend(send_comm, data, size, tag, mhandle, request);
}

enum nccl_result net_shim_irecv_profiled(void *recv_comm, int n, void **data, size_t *sizes,
                                         int *tags, void **mhandles, void **phandles,
                                         void **request)
{
    if (__builtin_expect(recv_comm != NULL && r2_prof_listens(recv_comm), 0)) {
        return begun(net_shim_irecv(recv_comm, n, data, sizes, tags, mhandles, request), request,
                     phandles);
    }
    return net_shim_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}

enum nccl_result net_shim_test(void *request, int *done, int *sizes)
{
    if (__builtin_expect(request == NULL || done == NULL, 0)) {
        return net_shim_refuse("test", "no request, or no room for the answer");
    }
    return net_shim_result(r2_net_test(request, done, sizes));
}

enum nccl_result net_shim_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles,
                                 void **request)
{
    struct r2_req *req = NULL;
    enum r2_status s;

    if (recv_comm == NULL || request == NULL || n < 1 || n > R2_NET_MAX_RECVS || data == NULL ||
        sizes == NULL || mhandles == NULL) {
        return net_shim_refuse("iflush",
                               "no comm, no room for the request, or a bad list of buffers");
    }
    s = r2_net_iflush(recv_comm, n, data, sizes, (struct ib_mr **)mhandles, &req);
    *request = s == R2_OK ? req : NULL;
    return net_shim_result(s);
}

/* The rest of NCCL's teardown is skipped after the first error: there is none, whatever the
 * hardware says. */
enum nccl_result net_shim_close(void *comm)
{
    r2_net_close(comm);
    return NCCL_SUCCESS;
}

enum nccl_result net_shim_close_listen(void *listen_comm)
{
    r2_net_close_listen(listen_comm);
    return NCCL_SUCCESS;
}
