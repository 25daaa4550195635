/*
 * The process's part in switching communicators: its endpoint of the out-of-band channel, its hubs
 * (coll_hub.h), its communicators (coll_comm.h), and the control thread that serves them.
 *
 * Threads: any, unless a function says otherwise.
 */
#ifndef COLL_CTL_H
#define COLL_CTL_H

#include <stdbool.h>

#include "coll_comm.h"
#include "coll_real.h"

enum coll_policy { COLL_OFF, COLL_ADVISE, COLL_ON }; /* NCCL_R2_PLACE */

/* The latest operation of one NCCL communicator, as an event. */
struct coll_mark {
    void *event;
    bool is_recorded;
};

/* A communicator of the user's that is looked after. */
struct coll_user {
    struct coll_user *next; /* of the process's list, with its lock */
    struct coll_comm comm;
    void *context; /* CUDA's */
    struct coll_config config;
    /* Of the application's thread that calls for it: one at a time, as NCCL wants. [0]: the user's
     * own; [1 + slot]: a shadow, whose thread reads it when no operation is for that any more. */
    struct coll_mark mark[1 + PLACE_HELD];
    int last; /* mark of the operation before */
    /* control thread */
    struct r2_oob_peer *hub;
    uint32_t sent_seq; /* of facts */
    uint64_t next_facts;
    uint64_t prepared; /* since when operations may wait; 0: they do not */
    /* with the list's lock */
    int refs;
    bool left;    /* the user's is gone: freed when there are no references */
    bool kept;    /* ... and has shadows that are not freed yet */
    bool aborted; /* ... and NCCL may have freed it: nobody finds it any more */
    /* of the thread that aborts it, in a group */
    struct coll_user *next_aborted;
};

/* Starts the thread at the first call. False: it is off by NCCL_R2_PLACE, or cannot be, which is
 * said once. May block: interfaces are read. */
bool coll_ctl_start(void);

/* The address of a new communicator's hub, this process, for its id. False: out of memory. */
bool coll_ctl_meet(struct place_meet *meet);

/*
 * NCCL has made @user by @id; @config: how, NULL: by its defaults. From now on the hub knows of it.
 * NULL: it is not looked after, for it has no hub, or out of memory.
 */
struct coll_user *coll_ctl_enter(void *user, const struct coll_id *id, int ranks, int rank,
                                 const struct coll_config *config, void *context);
/*
 * NULL: @user is none that is looked after. Else coll_ctl_put() follows, when the caller is through
 * with it: another thread may end it meanwhile. @ended: one, too, whose end has not freed its
 * shadows in time.
 */
struct coll_user *coll_ctl_get(void *user, bool ended);
void coll_ctl_put(struct coll_user *u);

/* Before the user's communicator is freed, or when it is aborted; may block, up to some seconds
 * where a shadow cannot be freed. The caller's reference is kept; nobody else gets one, but for an
 * abort where the shadow could not be freed. */
void coll_ctl_leave(struct coll_user *u, bool abort);
/* The user aborts it: its shadows are aborted from now on, and no operation begins. True:
 * coll_ctl_leave() follows, when the user's has been aborted, too; false: another thread is at it.
 * Does not block. */
bool coll_ctl_abort(struct coll_user *u);

/* NICs of this process: by the plugin (base/r2_seam.h). Does not block. */
void coll_ctl_nics(unsigned nics, unsigned usable, unsigned used, unsigned mbps);

#endif
