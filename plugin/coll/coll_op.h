/*
 * Operations of communicators that are looked after (coll_ctl.h): which NCCL communicator they are
 * for, their order, and groups. Thread: the application's that calls NCCL, one at a time for a
 * communicator, as NCCL wants; what is said of a group is per thread, as NCCL's groups are. An
 * all_reduce may block while the ranks agree (coll_comm.h); nothing else does but NCCL.
 */
#ifndef COLL_OP_H
#define COLL_OP_H

#include "coll_ctl.h"

/*
 * Groups. An operation on a shadow in a group of the user's is called when that has ended, in a
 * group of its own: two communicators in one group run in an order that NCCL does not promise to be
 * the same on all ranks, and here it is (the user's first). If a group fails, none of its
 * operations counts.
 */
coll_status coll_group_start(const struct coll_real *real);
coll_status coll_group_end(const struct coll_real *real);
/* ncclGroupSimulateEnd: nothing of the group happens. */
coll_status coll_group_simulate_end(const struct coll_real *real, struct coll_sim *sim);
/* Whether the thread is in a group. */
bool coll_group_is_open(void);

struct coll_reduce {
    const void *send;
    void *recv;
    size_t count;
    int type, op;
};

/* An all_reduce of a kind that may switch; takes the reference to @u over. */
coll_status coll_op_reduce(const struct coll_real *real, struct coll_user *u,
                           const struct coll_reduce *what, void *stream);

/*
 * ncclCommAbort of @u's; takes the reference over. To abort is to set flags and then to free, and
 * freeing waits for whatever runs on the GPU, of any communicator (cudaFree): so flags of
 * all are set before any is waited for: the user's in a group, whose end frees it (2.28 to 2.30:
 * ncclCommAbort, ncclAsyncLaunch), those of its shadows by their threads meanwhile. Blocks until
 * they are freed, at the end of the outermost group; up to some seconds where one cannot be.
 */
coll_status coll_op_abort(const struct coll_real *real, struct coll_user *u);

/*
 * An operation that stays on the user's communicator: before and after NCCL's call for it. @u as
 * coll_ctl_get() has said, NULL too; the second one takes the reference over. False: out of memory,
 * and there is no reference any more.
 */
bool coll_op_before(struct coll_user *u, void *stream);
void coll_op_after(struct coll_user *u, void *stream, coll_status rc);

#endif
