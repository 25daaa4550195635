/*
 * The version-free network API, in our own types. The net_vN.c adapters translate NCCL's tables to
 * it and contain nothing else; simulation and tests call it directly. NCCL's calling rules are
 * written here once. Implemented in service/: r2_service.c, r2_connect.c, r2_comm.c, r2_reg.c.
 *
 * Threads: init, devices, properties: any, before the rest. listen, connect, accept, reg, dereg,
 * close: NCCL's proxy service thread (or a user's). isend, irecv, iflush, test: NCCL's progress
 * thread; one thread at a time per comm, which may run while another thread is in reg/dereg of the
 * same comm. Nothing here blocks, except reg and dereg: in the driver, and a dereg under
 * outstanding requests until no queue pair can use the buffer any more (P27). R2_AGAIN never leaves
 * this API: "not yet" is R2_OK with a NULL result. Any other status ends NCCL's job; its reason is
 * the last WARN in the log. A pointer that is a result is NULL as long as there is none.
 */
#ifndef R2_NET_H
#define R2_NET_H

#include <stddef.h>
#include <stdint.h>

#include "base/r2_config.h"
#include "base/r2_env.h"
#include "base/r2_status.h"
#include "ib_transport/verbs/ib_verbs.h"
#include "oob/r2_oob.h"

#define R2_NET_HANDLE_SIZE  128
#define R2_NET_MAX_RECVS    8
#define R2_NET_MAX_REQUESTS 32 /* per comm, times R2_NET_MAX_RECVS for sends */
#define R2_NET_MAX_SIZE     (1ull << 30)
#define R2_NET_NO_CLASS     (-1) /* no traffic class requested */
_Static_assert(R2_NET_MAX_SIZE <= INT32_MAX, "test() reports sizes as int");

struct topo;
struct r2_inst;   /* this process: devices, threads, peers */
struct r2_listen; /* a listen comm */
struct r2_comm;   /* a send or a receive comm */
struct r2_req;    /* a request */
struct ib_mr;     /* a registration */

struct r2_inst_params {
    const struct r2_env *env;     /* copied */
    const struct ib_verbs *verbs; /* copied */
    const struct r2_config *cfg;  /* copied */
    /* makes the OOB endpoint; the product passes the TCP backend. ev->arg is the instance, its
     * devices are open */
    struct r2_oob *(*oob_create)(void *arg, const struct r2_oob_events *ev, char *why,
                                 size_t why_len);
    void *oob_arg;
    const char *host;               /* name in logs */
    const char *run_dir;            /* NULL: no host registry, no drain files, no statistics */
    const struct r2_job *job;       /* NULL: not known */
    const struct topo *topo;        /* of this host, not kept; NULL: not known */
    const struct ib_copy_ops *copy; /* engine for NCCL_R2_RELAY, and its argument; NULL: none. They
                                       outlive the instance */
    void *copy_arg;
    /* where @copy is NULL: opens one when memory of a GPU is first registered, for r2_reach.h;
     * NULL: none */
    int (*copy_open)(const struct ib_copy_ops **ops, void **arg);
};

/* Opens devices, starts the threads (env->threads). NULL with the reason in @why. May block in
 * drivers. Init only. */
struct r2_inst *r2_inst_create(const struct r2_inst_params *p, char *why, size_t why_len);

/*
 * For the end of the process: stops the service thread and flushes last messages (P28). Frees
 * nothing, since NCCL's threads may still be inside; what they call from now on makes no progress.
 * -1 when a driver keeps the service thread. Blocks up to T_exit.
 */
int r2_inst_exit_notify(struct r2_inst *inst);

/* Last messages, then frees what is not stuck in a driver. Blocks up to twice T_exit. Not with NCCL
 * inside. */
void r2_inst_destroy(struct r2_inst *inst);

/* Simulation (env->threads == 0): one turn of the service thread; returns its next deadline in ns,
 * UINT64_MAX for none. */
uint64_t r2_inst_service_step(struct r2_inst *inst);
/* Simulation: one job of a device's worker; 0 when there was none. */
int r2_inst_worker_step(struct r2_inst *inst, int device);

struct r2_net_props {
    const char *name;
    const char *pci_path;
    uint64_t guid;
    int ptr_support; /* IB_PTR_*: same bits as NCCL_PTR_* */
    int speed_mbps;
    int port;
    int max_comms;
    int force_flush;     /* a flush after every receive is wanted */
    int16_t rail, plane; /* as the user numbers them in NCCL_IB_HCA; -1 */
};

/* How many NICs NCCL may use; @dev in the calls below is less than that, else R2_ERR_ARG. One of
 * last resort is none of them, but on a host that has no other and whose user has named it. */
int r2_net_devices(struct r2_inst *inst);
/* Strings are the instance's and stay. */
enum r2_status r2_net_props(struct r2_inst *inst, int dev, struct r2_net_props *out);

/*
 * Fills @handle, R2_NET_HANDLE_SIZE bytes, which NCCL brings to the process that connects. *out
 * ends with r2_net_close_listen(). R2_ERR_CONFIG: an option is wrong.
 */
enum r2_status r2_net_listen(struct r2_inst *inst, int dev, void *handle, struct r2_listen **out);
/*
 * The sending end. To be called again with the same @handle, which keeps the state between calls,
 * as long as *out is NULL. *out ends with r2_net_close(). R2_ERR_ARG: no handle of this plugin's
 * version; set-up that fails (NCCL_R2_CONNECT) ends with the status of its reason.
 */
enum r2_status r2_net_connect(struct r2_inst *inst, int dev, void *handle, struct r2_comm **out);
/* The same, for a communicator that requests a class of traffic, @class: RoCE traffic class, 0 to
 * 255, or InfiniBand service level, 0 to 15; R2_NET_NO_CLASS. The receiver's end follows.
 * NCCL_IB_TC and NCCL_IB_SL go before it. R2_ERR_CONFIG when the port has no such class. */
enum r2_status r2_net_connect_class(struct r2_inst *inst, int dev, int class, void *handle,
                                    struct r2_comm **out);
/* The receiving end of the next connection on @l that stands, as with connect. R2_ERR_COMM: a
 * set-up on @l has failed. */
enum r2_status r2_net_accept(struct r2_listen *l, struct r2_comm **out);

/*
 * Registers [@addr, @addr + @len) on every NIC of @c. @type: IB_PTR_*; @offset, @fd: of a DMA-BUF,
 * which stays the caller's. R2_ERR_SYSTEM: no NIC takes it, or, at a
 * receiver, none can flush the memory of a GPU. *out ends with r2_net_dereg().
 */
enum r2_status r2_net_reg(struct r2_comm *c, void *addr, size_t len, int type, uint64_t offset,
                          int fd, struct ib_mr **out);
/*
 * Releases one handle; NULL is accepted. Each r2_net_reg() is a registration of its own, also of
 * memory that another one covers: while requests are outstanding the connection ends with the last
 * handle that it has of theirs (P27), no sooner. What another connection has, or has left at its
 * close, may be released here; that is no end of this one. R2_ERR_ARG, and nothing else, for what
 * is no registration.
 */
enum r2_status r2_net_dereg(struct r2_comm *c, struct ib_mr *mr);

/* *req is always written: NULL means nothing was started. It is the connection's, valid until test
 * says done or the connection is closed; nobody frees it. Buffers and registrations stay until
 * then. */
enum r2_status r2_net_isend(struct r2_comm *c, void *data, size_t size, int tag, struct ib_mr *mr,
                            struct r2_req **req);
enum r2_status r2_net_irecv(struct r2_comm *c, int n, void **data, const size_t *sizes,
                            const int *tags, struct ib_mr **mrs, struct r2_req **req);
enum r2_status r2_net_iflush(struct r2_comm *c, int n, void **data, const int *sizes,
                             struct ib_mr **mrs, struct r2_req **req);
/* Whether @req is done; then it is the connection's again. @sizes: NULL, or room for 1 (send) or n
 * (receive) counts in bytes, written only when *done; a flush has none. */
enum r2_status r2_net_test(struct r2_req *req, int *done, int *sizes);

/*
 * Closes an attempt to connect whose set-up is over, and that NCCL has not polled for
 * NCCL_R2_CONNECT (it polls all the time; an abort in the middle of its init leaves attempts
 * behind). Returns the next time. Service thread, gate held.
 */
uint64_t r2_net_step_attempt(struct r2_comm *c, uint64_t now);

/* All accept NULL, requests outstanding and dead hardware; always succeed and return at once.
 * Registrations that are left stay. */
void r2_net_close(struct r2_comm *c);
void r2_net_close_listen(struct r2_listen *l);

#endif
