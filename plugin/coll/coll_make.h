/*
 * Making and freeing shadow communicators, each by a thread of its own: NCCL's calls for it take
 * seconds, and wait for other ranks.
 */
#ifndef COLL_MAKE_H
#define COLL_MAKE_H

#include "coll_ctl.h"

/* Begins @work with slot @slot of @u; coll_comm_done() is called when it is done. Control thread;
 * does not block. */
void coll_make_begin(struct coll_user *u, int slot, enum coll_work work);

/*
 * Asked by NCCL's tuner (nccl/net_tuner.c) when a communicator is made: whether this thread makes a
 * shadow, whose all_reduce is to be by Tree. NCCL 2.28 to 2.30 makes one in the thread that calls
 * (asyncJobLaunch of src/group.cc, one job); where a thread of NCCL's asks, the answer is no, and
 * the shadow is not used.
 */
bool coll_make_is_shadow(void);

#endif
