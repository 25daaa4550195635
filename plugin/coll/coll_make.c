#include "coll_make.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/r2_log.h"
#include "place/place_plan.h"

struct task {
    struct coll_user *u;
    int slot;
    enum coll_work work;
};

static _Thread_local bool makes, was_asked;

bool coll_make_is_shadow(void)
{
    was_asked = makes;
    return makes;
}

/* --- in the task's thread --- */

/*
 * Has NCCL connect what an all_reduce of this communicator needs, now and not in the user's first
 * operation: a group that is only estimated connects, and launches nothing (groupLaunch of
 * src/group.cc, 2.22 to 2.30). What is at the addresses is not looked at.
 */
static bool connect_all(const struct coll_real *real, const struct coll_cuda *cuda, void *comm)
{
    static float nothing[4];
    struct coll_sim sim = {sizeof(sim), COLL_SIM_MAGIC, COLL_SIM_VERSION, 0};
    void *stream;
    bool done;

    if (real->group_simulate_end == NULL ||
        cuda->stream_create(&stream, COLL_CUDA_STREAM_NON_BLOCKING) != 0) {
        return false;
    }
    real->group_start();
    done = real->all_reduce(nothing, nothing, PLACE_PLAN_BYTES / sizeof(float), 7 /* float */, 0,
                            comm, stream) == COLL_SUCCESS;
    done = real->group_simulate_end(&sim) == COLL_SUCCESS && done;
    cuda->stream_destroy(stream);
    return done;
}

static void *shadow_make(const struct coll_user *u, const struct coll_shadow *s)
{
    const struct coll_real *real = coll_real_get();
    const struct coll_cuda *cuda = coll_cuda_get();
    struct coll_config config = u->config;
    struct coll_id id;
    void *comm = NULL;
    coll_status rc;

    for (int i = 0; i < PLACE_ID_BYTES; i++) {
        id.bytes[i] = s->id[i];
    }
    config.blocking = 1;
    was_asked = false;
    makes = true;
    rc = real->init_rank_config(&comm, u->comm.ranks, id, s->rank, &config);
    makes = false;
    if (rc != COLL_SUCCESS) {
        R2_WARN("placement: NCCL could not make a communicator: error %d", (int)rc);
        return NULL;
    }
    if (!was_asked) {
        R2_WARN("placement: NCCL does not ask this plugin's tuner in the thread that makes a "
                "communicator: that wants NCCL 2.28 to 2.30, and no other NCCL_TUNER_PLUGIN");
    } else if (connect_all(real, cuda, comm)) {
        return comm;
    } else {
        R2_WARN("placement: NCCL could not connect a communicator");
    }
    real->abort(comm);
    return NULL;
}

static void shadow_free(void *comm, bool abort)
{
    const struct coll_real *real = coll_real_get();

    if (comm != NULL && abort) {
        real->abort(comm);
    } else if (comm != NULL) {
        real->finalize(comm);
        real->destroy(comm);
    }
}

static void *task_run(void *arg)
{
    struct task t = *(struct task *)arg;
    struct coll_shadow *s = &t.u->comm.shadow[t.slot];
    void *comm = NULL;

    free(arg);
    coll_cuda_get()->ctx_set_current(t.u->context);
    if (t.work == COLL_WORK_MAKE) {
        comm = shadow_make(t.u, s);
    } else {
        shadow_free(s->comm, t.work == COLL_WORK_ABORT);
    }
    coll_comm_done(&t.u->comm, t.slot, comm);
    return NULL;
}

/* --- in the control thread --- */

void coll_make_begin(struct coll_user *u, int slot, enum coll_work work)
{
    struct task *t = malloc(sizeof(*t));
    pthread_t thread;
    sigset_t all, before;
    int rc = -1;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (t != NULL) {
        *t = (struct task){u, slot, work};
        rc = pthread_create(&thread, NULL, task_run, t);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        pthread_detach(thread);
        return;
    }
    free(t);
    R2_WARN("placement: no thread to make or free a communicator");
    coll_comm_done(&u->comm, slot, NULL);
}
