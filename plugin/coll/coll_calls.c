/*
 * NCCL's calls, in front of NCCL: as LD_PRELOAD, or linked before libnccl. What a communicator that
 * is looked after does goes to the NCCL communicator that its ranks have agreed on; all else is
 * handed on as it is. Threads and blocking as nccl.h says of each; an all_reduce may block, too,
 * while the ranks agree (coll_comm.h).
 */
#include "base/r2_log.h"
#include "coll_op.h"

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
    own.blocking = !coll_group_is_open() && own.blocking != 0; /* INT32_MIN: not set, which is 1 */
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
    struct coll_user *u = coll_ctl_get(comm, abort);

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
    struct coll_user *u;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    u = coll_real_defers_aborts() ? coll_ctl_get(comm, true) : NULL;
    if (u != NULL) {
        return coll_op_abort(real, u);
    }
    leave(comm, true);
    return real->abort(comm);
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

/* What is under way on a shadow is aborted with the rest. */
CALL(ncclCommShrink, void *comm, int *without, int n, void **newcomm, struct coll_config *config,
     int flags)
{
    const struct coll_real *real = coll_real_get();
    coll_status rc;

    if (real == NULL || real->shrink == NULL) {
        return not_there("ncclCommShrink");
    }
    rc = real->shrink(comm, without, n, newcomm, config, flags);
    if ((rc == COLL_SUCCESS || rc == COLL_IN_PROGRESS) && (flags & COLL_SHRINK_ABORT) != 0) {
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
        coll_comm_return(&u->comm, slot[i]);
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
    u = rc == COLL_SUCCESS && *error == COLL_SUCCESS ? coll_ctl_get(comm, false) : NULL;
    if (u != NULL) {
        *error = shadow_error(real, u);
        coll_ctl_put(u);
    }
    return rc;
}

/* --- operations --- */

CALL(ncclGroupStart, void)
{
    const struct coll_real *real = coll_real_get();

    return real != NULL ? coll_group_start(real) : COLL_SYSTEM_ERROR;
}

CALL(ncclGroupEnd, void)
{
    const struct coll_real *real = coll_real_get();

    return real != NULL ? coll_group_end(real) : COLL_SYSTEM_ERROR;
}

CALL(ncclGroupSimulateEnd, struct coll_sim *sim)
{
    const struct coll_real *real = coll_real_get();

    if (real == NULL || real->group_simulate_end == NULL) {
        return not_there("ncclGroupSimulateEnd");
    }
    return coll_group_simulate_end(real, sim);
}

/* NULL: nothing of @comm ever goes elsewhere. */
static struct coll_user *user_get(void *comm)
{
    struct coll_user *u = coll_ctl_get(comm, false);

    if (u != NULL && u->comm.only_advises) {
        coll_ctl_put(u);
        return NULL;
    }
    return u;
}

/* All ranks say the same of an operation: its count, type and operator are the same on all. */
static bool may_switch(size_t count, int type, int op)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}; /* ncclDataType_t */

    return type >= 0 && (size_t)type < sizeof(bytes) && op >= 0 && op < 5 /* ncclNumOps */ &&
           count >= LEAST_BYTES / bytes[type];
}

/* What stays on the user's communicator. */
#define STAYS_BODY(field, arguments)                                                               \
    struct coll_user *u = user_get(comm);                                                          \
    coll_status rc;                                                                                \
                                                                                                   \
    if (!coll_op_before(u, stream)) {                                                              \
        return COLL_SYSTEM_ERROR;                                                                  \
    }                                                                                              \
    rc = real->field arguments;                                                                    \
    coll_op_after(u, stream, rc);                                                                  \
    return rc;

static coll_status small_reduce(const struct coll_real *real, const struct coll_reduce *w,
                                void *comm, void *stream){
    STAYS_BODY(all_reduce, (w->send, w->recv, w->count, w->type, w->op, comm, stream))}

CALL(ncclAllReduce, const void *send, void *recv, size_t count, int type, int op, void *comm,
     void *stream)
{
    const struct coll_real *real = coll_real_get();
    const struct coll_reduce what = {send, recv, count, type, op};
    struct coll_user *u;

    if (real == NULL) {
        return COLL_SYSTEM_ERROR;
    }
    u = may_switch(count, type, op) ? user_get(comm) : NULL;
    return u != NULL ? coll_op_reduce(real, u, &what, stream)
                     : small_reduce(real, &what, comm, stream);
}

/* The others: their parameters, and how they are handed on. */
#define STAYS(name, field, parameters, arguments)                                                  \
    coll_status name parameters;                                                                   \
    __attribute__((visibility("default"))) coll_status name parameters                             \
    {                                                                                              \
        const struct coll_real *real = coll_real_get();                                            \
                                                                                                   \
        if (real == NULL || real->field == NULL) {                                                 \
            return not_there(#name);                                                               \
        }                                                                                          \
        STAYS_BODY(field, arguments)                                                               \
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
