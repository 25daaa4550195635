/*
 * The NCCL below this library, and CUDA's driver below that: what is called of both, declared anew
 * (names are ours, signatures are nccl.h's and cuda.h's; LP64 only), found at run time.
 */
#ifndef COLL_REAL_H
#define COLL_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "place/place_meet.h"

enum coll_result { /* ncclResult_t */
                   COLL_SUCCESS = 0,
                   COLL_SYSTEM_ERROR = 2,
                   COLL_INTERNAL_ERROR = 3,
                   COLL_INVALID_ARGUMENT = 4,
                   COLL_INVALID_USAGE = 5,
                   COLL_REMOTE_ERROR = 6,
                   COLL_IN_PROGRESS = 7
};

struct coll_id { /* ncclUniqueId, which NCCL takes by value */
    uint8_t bytes[PLACE_ID_BYTES];
};

/*
 * ncclConfig_t as of 2.18 to 2.30: later releases have more behind it, which NCCL takes as not set
 * where the size says that they are not there.
 */
struct coll_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char *net;
    int split_share;
};
#define COLL_CONFIG_MAGIC   0xcafebeefu
#define COLL_CONFIG_VERSION 21805     /* 2.18.5, the first that has these */
#define COLL_CONFIG_UNSET   INT32_MIN /* NCCL_CONFIG_UNDEF_INT */

struct coll_sim { /* ncclSimInfo_t, 2.22 */
    size_t size;
    unsigned magic, version;
    float us;
};
#define COLL_SHRINK_ABORT 1 /* NCCL_SHRINK_ABORT */
#define COLL_SIM_MAGIC    0x74685283u
#define COLL_SIM_VERSION  22200

typedef enum coll_result coll_status;

struct coll_real {
    coll_status (*get_version)(int *version);
    coll_status (*get_unique_id)(struct coll_id *id);
    coll_status (*init_rank)(void **comm, int ranks, struct coll_id id, int rank);
    coll_status (*init_rank_config)(void **comm, int ranks, struct coll_id id, int rank,
                                    struct coll_config *config);
    coll_status (*finalize)(void *comm);
    coll_status (*destroy)(void *comm);
    coll_status (*abort)(void *comm);
    coll_status (*revoke)(void *comm, int flags);
    coll_status (*shrink)(void *comm, int *without, int n, void **newcomm,
                          struct coll_config *config, int flags);
    coll_status (*async_error)(void *comm, coll_status *error);
    coll_status (*group_start)(void);
    coll_status (*group_end)(void);
    coll_status (*group_simulate_end)(struct coll_sim *sim);
    coll_status (*all_reduce)(const void *send, void *recv, size_t count, int type, int op,
                              void *comm, void *stream);
    coll_status (*broadcast)(const void *send, void *recv, size_t count, int type, int root,
                             void *comm, void *stream);
    coll_status (*bcast)(void *buff, size_t count, int type, int root, void *comm, void *stream);
    coll_status (*reduce)(const void *send, void *recv, size_t count, int type, int op, int root,
                          void *comm, void *stream);
    coll_status (*all_gather)(const void *send, void *recv, size_t count, int type, void *comm,
                              void *stream);
    coll_status (*reduce_scatter)(const void *send, void *recv, size_t count, int type, int op,
                                  void *comm, void *stream);
    coll_status (*send)(const void *buff, size_t count, int type, int peer, void *comm,
                        void *stream);
    coll_status (*recv)(void *buff, size_t count, int type, int peer, void *comm, void *stream);
    coll_status (*all_to_all)(const void *send, void *recv, size_t count, int type, void *comm,
                              void *stream);
    coll_status (*gather)(const void *send, void *recv, size_t count, int type, int root,
                          void *comm, void *stream);
    coll_status (*scatter)(const void *send, void *recv, size_t count, int type, int root,
                           void *comm, void *stream);
};

struct coll_cuda {
    int (*ctx_get_current)(void **context);
    int (*ctx_set_current)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_is_capturing)(void *stream, int *status);
    int (*stream_wait_event)(void *stream, void *event, unsigned flags);
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_destroy)(void *event);
    int (*capture_mode)(int *mode);
    int (*mem_get_info)(size_t *left, size_t *all); /* of the current context's GPU */
};
#define COLL_CUDA_NOT_READY           600
#define COLL_CUDA_STREAM_NON_BLOCKING 1u
#define COLL_CUDA_EVENT_NO_TIMING     2u
#define COLL_CUDA_NOT_CAPTURING       0
#define COLL_CUDA_CAPTURE_RELAXED     2

/*
 * NCCL: behind this library in the order of the loader, or whatever libnccl.so.2 the process has
 * loaded. NULL, and one line on stderr, where there is none: nothing can be called then. Any
 * thread; found once.
 */
const struct coll_real *coll_real_get(void);

/*
 * Whether an abort in a group sets NCCL's flags at once, and frees when the group has ended
 * (ncclCommAbort, ncclAsyncLaunch): 2.28 to 2.30, which were read for it.
 */
bool coll_real_defers_aborts(void);
/* The same of ncclGetVersion's figure. */
bool coll_real_version_defers_aborts(int version);

/* What the process has of CUDA's driver. NULL: something is missing, and nothing switches. */
const struct coll_cuda *coll_cuda_get(void);

#endif
