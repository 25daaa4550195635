/*
 * NCCL's calls, in front of NCCL: as LD_PRELOAD, or linked before libnccl. What a communicator that
 * is looked after does goes to the NCCL communicator that its ranks have agreed on; all else is
 * handed on as it is. Threads and blocking as nccl.h says of each; an all_reduce may block, too,
 * while the ranks agree (coll_comm.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/r2_log.h"
#include "coll_ctl.h"

/* NCCL's header has these; ours are declared here alone, for whom nobody calls within. */
#define CALL(name, ...)                                                                            \
    coll_status name(__VA_ARGS__);                                                                 \
    __attribute__((visibility("default"))) coll_status name(__VA_ARGS__)

/* Operations below this stay on the user's communicator: latency is what they cost. Part of the
 * rule by which all ranks count (place_note.h, version). */
#define LEAST_BYTES (1u << 20)

static coll_status not_there(const char *call)
{
    R2_WARN("%s: this NCCL has none", call);
    r2_log_flush();
    return COLL_INVALID_USAGE;
}

struct pending {
    struct coll_user *u;
    int slot;
    void *comm, *stream;
    const void *send;
    void *recv;
    size_t count;
    int type, op;
};

/*
 * Groups. An operation on a shadow in a group of the user's is called when that has ended, in a
 * group of its own: two communicators in one group run in an order that NCCL does not promise to be
 * the same on all ranks, and here it is (the user's first).
 */
static _Thread_local struct {
    int depth, n, room;
    struct pending *op;
} group;

/* --- communicators come and go --- */

CALL(ncclGetUniqueId, struct coll_id *id)
{
    const struct coll_real *real = coll_real_get();
    struct place_meet meet;
    coll_status rc;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    rc = real->get_unique_id(id);
    if (rc == COLL_SUCCESS && id != NULL && coll_ctl_start() && coll_ctl_meet(&meet)) {
        place_meet_put(id->bytes, &meet);
    }
    return rc;
}

static void *context_get(void)
{
    const struct coll_cuda *cuda = coll_cuda_get();
    void *context = NULL;

    return cuda != NULL && cuda->ctx_get_current(&context) == 0 ? context : NULL;
}

static const struct coll_config defaults = {.size = sizeof(defaults),
                                            .magic = COLL_CONFIG_MAGIC,
                                            .version = COLL_CONFIG_VERSION,
                                            .blocking = 1,
                                            .cga = COLL_CONFIG_UNSET,
                                            .min_ctas = COLL_CONFIG_UNSET,
                                            .max_ctas = COLL_CONFIG_UNSET,
                                            .split_share = COLL_CONFIG_UNSET};

/* In a group it is not complete yet, and one thread may have several GPUs: it only counts. */
static void enter(void *comm, const struct coll_id *id, int ranks, int rank,
                  const struct coll_config *config)
{
    struct coll_config own = defaults;

    if (config != NULL && config->size >= sizeof(own)) {
        own.blocking = config->blocking;
        own.cga = config->cga;
        own.min_ctas = config->min_ctas;
        own.max_ctas = config->max_ctas;
    }
    own.blocking = group.depth == 0 && own.blocking != 0; /* INT32_MIN: not set, which is 1 */
    coll_ctl_enter(comm, id, ranks, rank, &own, context_get());
}

CALL(ncclCommInitRank, void **comm, int ranks, struct coll_id id, int rank)
{
    const struct coll_real *real = coll_real_get();
    coll_status rc;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    rc = real->init_rank(comm, ranks, id, rank);
    if (rc == COLL_SUCCESS && comm != NULL) {
        enter(*comm, &id, ranks, rank, NULL);
    }
    return rc;
}

CALL(ncclCommInitRankConfig, void **comm, int ranks, struct coll_id id, int rank,
     struct coll_config *config)
{
    const struct coll_real *real = coll_real_get();
    coll_status rc;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    rc = real->init_rank_config(comm, ranks, id, rank, config);
    if (rc == COLL_SUCCESS && comm != NULL) { /* one that is not complete yet is not looked after */
        enter(*comm, &id, ranks, rank, config);
    }
    return rc;
}

static void leave(void *comm, bool abort)
{
    struct coll_user *u = coll_ctl_get(comm);

    if (u != NULL) {
        coll_ctl_leave(u, abort);
        coll_ctl_put(u);
    }
}

CALL(ncclCommFinalize, void *comm)
{
    const struct coll_real *real = coll_real_get();

    leave(comm, false);
    return real != NULL ? real->finalize(comm) : COLL_SYSTEM_ERROR;
}

CALL(ncclCommDestroy, void *comm)
{
    const struct coll_real *real = coll_real_get();

    leave(comm, false);
    return real != NULL ? real->destroy(comm) : COLL_SYSTEM_ERROR;
}

CALL(ncclCommAbort, void *comm)
{
    const struct coll_real *real = coll_real_get();

    leave(comm, true);
    return real != NULL ? real->abort(comm) : COLL_SYSTEM_ERROR;
}

CALL(ncclCommRevoke, void *comm, int flags)
{
    const struct coll_real *real = coll_real_get();
    coll_status rc;

    if (real == NULL || real->revoke == NULL) {
        return not_there("ncclCommRevoke");
    }
    rc = real->revoke(comm, flags);
    if (rc == COLL_SUCCESS || rc == COLL_IN_PROGRESS) {
        leave(comm, true);
    }
    return rc;
}

static coll_status shadow_error(const struct coll_real *real, struct coll_user *u)
{
    coll_status error = COLL_SUCCESS;
    void *shadow[PLACE_HELD];
    int slot[PLACE_HELD], n = coll_comm_hold(&u->comm, shadow, slot);

    for (int i = 0; i < n; i++) {
        if (error == COLL_SUCCESS) {
            real->async_error(shadow[i], &error);
        }
        coll_comm_return(&u->comm, slot[i], false);
    }
    return error;
}

/* An error of a shadow is one of the user's communicator. */
CALL(ncclCommGetAsyncError, void *comm, coll_status *error)
{
    const struct coll_real *real = coll_real_get();
    struct coll_user *u;
    coll_status rc;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    rc = real->async_error(comm, error);
    u = rc == COLL_SUCCESS && *error == COLL_SUCCESS ? coll_ctl_get(comm) : NULL;
    if (u != NULL) {
        *error = shadow_error(real, u);
        coll_ctl_put(u);
    }
    return rc;
}

/* --- operations --- */

/*
 * NCCL runs the operations of one communicator one after the other, on whatever streams they are.
 * Those of two it does not: the second one waits here for the first where they are on different
 * streams.
 */
static void order(struct coll_user *u, void *comm, void *stream)
{
    const struct coll_cuda *cuda = coll_cuda_get();
    void *event;

    if (u->has_switched && u->last_comm != comm && u->last_stream != stream && cuda != NULL &&
        cuda->event_create(&event, COLL_CUDA_EVENT_NO_TIMING) == 0) {
        if (cuda->event_record(event, u->last_stream) != 0 ||
            cuda->stream_wait_event(stream, event, 0) != 0) {
            R2_WARN("placement: two operations of a communicator could not be ordered");
        }
        cuda->event_destroy(event);
    }
    u->last_comm = comm;
    u->last_stream = stream;
}

/* An operation that stays on the user's communicator. */
static void stays(void *comm, void *stream)
{
    struct coll_user *u = coll_ctl_get(comm);

    if (u != NULL) {
        order(u, comm, stream);
        coll_ctl_put(u);
    }
}

static bool defer(const struct pending *op)
{
    if (group.n == group.room) {
        int room = group.room != 0 ? 2 * group.room : 16;
        struct pending *more = realloc(group.op, (size_t)room * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        group.op = more;
        group.room = room;
    }
    group.op[group.n++] = *op;
    return true;
}

static coll_status issue(const struct coll_real *real, const struct pending *op)
{
    order(op->u, op->comm, op->stream);
    return real->all_reduce(op->send, op->recv, op->count, op->type, op->op, op->comm, op->stream);
}

static bool is_of_arguments(coll_status rc)
{
    return rc == COLL_INVALID_ARGUMENT || rc == COLL_INVALID_USAGE;
}

CALL(ncclGroupStart, void)
{
    const struct coll_real *real = coll_real_get();

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    group.depth++;
    return real->group_start();
}

static coll_status deferred_run(const struct coll_real *real)
{
    coll_status rc = real->group_start(), end;

    for (int i = 0; i < group.n && rc == COLL_SUCCESS; i++) {
        rc = issue(real, &group.op[i]);
    }
    end = real->group_end();
    return rc != COLL_SUCCESS ? rc : end;
}

CALL(ncclGroupEnd, void)
{
    const struct coll_real *real = coll_real_get();
    coll_status rc;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    group.depth -= group.depth > 0;
    rc = real->group_end();
    if (group.depth == 0 && group.n > 0) {
        if (rc == COLL_SUCCESS) {
            rc = deferred_run(real);
        }
        for (int i = group.n - 1; i >= 0; i--) {
            coll_comm_return(&group.op[i].u->comm, group.op[i].slot, is_of_arguments(rc));
            coll_ctl_put(group.op[i].u);
        }
        group.n = 0;
    }
    return rc;
}

/* All ranks say the same of an operation: its count, type and operator are the same on all. */
static bool may_switch(size_t count, int type, int op)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* ncclDataType_t */

    return type >= 0 && (size_t)type < sizeof(bytes) && op >= 0 && op < 5 /* ncclNumOps */ &&
           count >= LEAST_BYTES / bytes[type];
}

static bool is_captured(void *stream)
{
    const struct coll_cuda *cuda = coll_cuda_get();
    int status = COLL_CUDA_NOT_CAPTURING;

    return cuda != NULL && cuda->stream_is_capturing(stream, &status) == 0 &&
           status != COLL_CUDA_NOT_CAPTURING;
}

/* True: it is called when the user's group ends, and *@rc is what that is told now. */
static bool is_deferred(struct pending *op, coll_status *rc)
{
    *rc = COLL_SUCCESS;
    if (op->slot < 0) {
        return false;
    }
    op->u->has_switched = true;
    if (group.depth == 0) {
        return false;
    }
    if (!defer(op)) {
        *rc = COLL_SYSTEM_ERROR;
        return false;
    }
    return true;
}

/* Takes the reference to op->u over. */
static coll_status reduce_somewhere(const struct coll_real *real, struct pending *op)
{
    coll_status rc;

    if (is_captured(op->stream)) {
        coll_comm_never(&op->u->comm);
    }
    if (!coll_comm_begin(&op->u->comm, &op->comm, &op->slot)) {
        R2_WARN("placement: an operation cannot begin: the process that leads the agreement is "
                "lost, or the communicator is ended");
        r2_log_flush();
        coll_ctl_put(op->u);
        return COLL_REMOTE_ERROR;
    }
    if (is_deferred(op, &rc)) {
        return COLL_SUCCESS;
    }
    if (rc == COLL_SUCCESS) {
        rc = issue(real, op);
    }
    coll_comm_return(&op->u->comm, op->slot, is_of_arguments(rc));
    coll_ctl_put(op->u);
    return rc;
}

CALL(ncclAllReduce, const void *send, void *recv, size_t count, int type, int op, void *comm,
     void *stream)
{
    const struct coll_real *real = coll_real_get();
    struct pending p = {.u =
                            real != NULL && may_switch(count, type, op) ? coll_ctl_get(comm) : NULL,
                        .stream = stream,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op};

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    if (p.u != NULL) {
        return reduce_somewhere(real, &p);
    }
    stays(comm, stream);
    return real->all_reduce(send, recv, count, type, op, comm, stream);
}

/* What stays on the user's communicator: its parameters, and how they are handed on. */
#define STAYS(name, field, parameters, arguments)                                                  \
    coll_status name parameters;                                                                   \
    __attribute__((visibility("default"))) coll_status name parameters                             \
    {                                                                                              \
        const struct coll_real *real = coll_real_get();                                            \
                                                                                                   \
        if (real == NULL || real->field == NULL) {                                                 \
            return not_there(#name);                                                               \
        }                                                                                          \
        stays(comm, stream);                                                                       \
        return real->field arguments;                                                              \
    }

STAYS(ncclBroadcast, broadcast,
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
      (send, recv, count, type, root, comm, stream))
STAYS(ncclBcast, bcast, (void *buff, size_t count, int type, int root, void *comm, void *stream),
      (buff, count, type, root, comm, stream))
STAYS(ncclReduce, reduce,
      (const void *send, void *recv, size_t count, int type, int op, int root, void *comm,
       void *stream),
      (send, recv, count, type, op, root, comm, stream))
STAYS(ncclAllGather, all_gather,
      (const void *send, void *recv, size_t count, int type, void *comm, void *stream),
      (send, recv, count, type, comm, stream))
STAYS(ncclReduceScatter, reduce_scatter,
      (const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream),
      (send, recv, count, type, op, comm, stream))
STAYS(ncclSend, send,
      (const void *buff, size_t count, int type, int peer, void *comm, void *stream),
      (buff, count, type, peer, comm, stream))
STAYS(ncclRecv, recv, (void *buff, size_t count, int type, int peer, void *comm, void *stream),
      (buff, count, type, peer, comm, stream))
STAYS(ncclAlltoAll, all_to_all,
      (const void *send, void *recv, size_t count, int type, void *comm, void *stream),
      (send, recv, count, type, comm, stream))
STAYS(ncclGather, gather,
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
      (send, recv, count, type, root, comm, stream))
STAYS(ncclScatter, scatter,
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
      (send, recv, count, type, root, comm, stream))
