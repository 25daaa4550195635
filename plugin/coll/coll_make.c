#include "coll_make.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/r2_log.h"
#include "base/r2_thread.h"
#include "base/r2_time.h"
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

static void *shadow_make(struct coll_user *u, const struct coll_shadow *s)
{
    const struct coll_real *real = coll_real_get();
    const struct coll_cuda *cuda = coll_cuda_get();
    struct coll_config config = u->config;
    struct coll_id id;
    void *comm = NULL;
    coll_status rc;

    memcpy(id.bytes, s->id, sizeof(id.bytes));
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
                "communicator: that wants NCCL 2.28 to 2.30, and NCCL_NET_PLUGIN from the "
                "beginning, or its file as NCCL_TUNER_PLUGIN");
        coll_comm_never(&u->comm); /* nor would it ask for another one */
    } else if (connect_all(real, cuda, comm)) {
        return comm;
    } else {
        R2_WARN("placement: NCCL could not connect a communicator");
    }
    real->abort(comm);
    return NULL;
}

/*
 * Its last operation is through, or the user has aborted. NCCL's finalize would wait for the one,
 * and cannot be reached by the other. No event tells of CUDA's: it is looked for.
 */
static void shadow_wait(struct coll_user *u, int slot)
{
    const struct coll_mark *mark = &u->mark[1 + slot];
    const struct timespec nap = {.tv_nsec = (long)R2_MS(2)};

    while (mark->is_recorded && !coll_comm_is_aborted(&u->comm) &&
           coll_cuda_get()->event_query(mark->event) == COLL_CUDA_NOT_READY) {
        nanosleep(&nap, NULL);
    }
}

static void shadow_free(struct coll_user *u, int slot)
{
    const struct coll_real *real = coll_real_get();
    void *comm = u->comm.shadow[slot].comm;

    if (comm == NULL) {
        return; /* it could not be made */
    }
    shadow_wait(u, slot);
    if (coll_comm_is_aborted(&u->comm)) {
        real->abort(comm);
    } else {
        real->finalize(comm);
        real->destroy(comm);
    }
}

/*
 * The user may capture a graph meanwhile. What this thread does is none of it; but CUDA refuses
 * some calls then, cuEventQuery for one, in all threads that are in its default capture mode, and
 * the user's capture fails with the call.
 */
static void *task_run(void *arg)
{
    struct task t = *(struct task *)arg;
    int mode = COLL_CUDA_CAPTURE_RELAXED;
    void *comm = NULL;

    free(arg);
    coll_cuda_get()->ctx_set_current(t.u->context);
    coll_cuda_get()->capture_mode(&mode);
    if (t.work == COLL_WORK_MAKE) {
        comm = shadow_make(t.u, &t.u->comm.shadow[t.slot]);
    } else {
        shadow_free(t.u, t.slot);
    }
    coll_comm_done(&t.u->comm, t.slot, comm);
    return NULL;
}

/* --- in the control thread --- */

void coll_make_begin(struct coll_user *u, int slot, enum coll_work work)
{
    struct task *t = malloc(sizeof(*t));
    pthread_t thread;
    int rc = -1;

    if (t != NULL) {
        *t = (struct task){u, slot, work};
        rc = r2_thread_start(&thread, task_run, t);
    }
    if (rc == 0) {
        pthread_detach(thread);
        return;
    }
    free(t);
    R2_WARN("placement: no thread to make or free a communicator");
    coll_comm_done(&u->comm, slot, NULL);
}
