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

/* Has NCCL make it, ready for an all_reduce. NULL, or why it is of no use; *@rc: NCCL's error. */
static const char *shadow_init(struct coll_user *u, struct coll_shadow *s, coll_status *rc)
{
    const struct coll_real *real = coll_real_get();
    struct coll_config config = u->config;
    struct coll_id id;

    memcpy(id.bytes, s->id, sizeof(id.bytes));
    config.blocking = 1;
    was_asked = false;
    makes = true;
    *rc = real->init_rank_config((void **)&s->early, u->comm.ranks, id, s->rank, &config);
    makes = false;
    if (*rc != COLL_SUCCESS) {
        return "NCCL could not make a communicator";
    }
    if (!was_asked) {
        coll_comm_never(&u->comm); /* nor would it ask for another one */
        return "NCCL does not ask this plugin's tuner in the thread that makes a communicator: that "
               "wants NCCL 2.28 to 2.30, and NCCL_NET_PLUGIN from the beginning, or its file as "
               "NCCL_TUNER_PLUGIN";
    }
    return connect_all(real, coll_cuda_get(), s->early) ? NULL
                                                        : "NCCL could not connect a communicator";
}

/* One that has failed is reported first, and aborted when it is freed: an abort may wait for other
 * ranks of this host (ncclProxyService), which are broken off when the hub knows of the failure. */
static void *shadow_make(struct coll_user *u, int slot)
{
    struct coll_shadow *s = &u->comm.shadow[slot];
    coll_status rc;
    const char *why = shadow_init(u, s, &rc);

    if (!coll_comm_made(&u->comm, slot)) {
        R2_INFO("placement: NCCL's init of a communicator is broken off: nobody wants it any more");
        return NULL;
    }
    if (rc != COLL_SUCCESS) {
        R2_WARN("placement: %s: error %d", why, (int)rc);
    } else if (why != NULL) {
        R2_WARN("placement: %s", why);
    }
    return why == NULL ? s->early : NULL;
}

/* Megabytes of the GPU that nobody has taken; -1: CUDA does not say. */
static long long gpu_left_mb(void)
{
    size_t left, all;

    return coll_cuda_get()->mem_get_info(&left, &all) == 0 ? (long long)(left >> 20) : -1;
}

/* What it has cost. What others took of the GPU meanwhile cannot be told from it: both figures are
 * said. */
static void *shadow_make_timed(struct coll_user *u, int slot)
{
    long long had = gpu_left_mb(), has;
    uint64_t begun = r2_clock_ns(CLOCK_MONOTONIC);
    void *comm = shadow_make(u, slot);
    double s = (double)r2_elapsed(r2_clock_ns(CLOCK_MONOTONIC), begun) / R2_NS_PER_S;
    const char *what =
        comm != NULL ? "a communicator is made, in" : "no communicator is made, after";

    has = gpu_left_mb();
    if (had >= 0 && has >= 0) {
        R2_INFO("placement: %s %.1f s; the GPU has %lld MiB left, %lld before", what, s, has, had);
    } else {
        R2_INFO("placement: %s %.1f s", what, s);
    }
    return comm;
}

/*
 * Frees the thread that makes it from NCCL: an abort sets the flag that NCCL's init looks at
 * wherever it waits. Within a group it frees nothing until the group ends, which is when the init
 * has returned. Where NCCL is another one than was read for this, the init goes on.
 */
static void shadow_break(struct coll_user *u, int slot)
{
    const struct coll_real *real = coll_real_get();
    void *comm;

    if (coll_real_defers_aborts() && real->group_start() == COLL_SUCCESS) {
        comm = coll_comm_break(&u->comm, slot);
        if (comm != NULL) {
            real->abort(comm);
            coll_comm_break_wait(&u->comm, slot);
        }
        real->group_end();
    }
    coll_comm_broken(&u->comm, slot);
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
    struct coll_shadow *s = &u->comm.shadow[slot];
    void *comm = s->comm;

    if (comm == NULL) {
        if (s->early != NULL && !s->broken) {
            real->abort(s->early); /* the init has failed, and left it behind (2.22 to 2.30) */
        }
        return;
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

    free(arg);
    coll_cuda_get()->ctx_set_current(t.u->context);
    coll_cuda_get()->capture_mode(&mode);
    switch (t.work) {
    case COLL_WORK_MAKE:
        coll_comm_done(&t.u->comm, t.slot, shadow_make_timed(t.u, t.slot));
        break;
    case COLL_WORK_BREAK:
        shadow_break(t.u, t.slot);
        break;
    default:
        shadow_free(t.u, t.slot);
        coll_comm_done(&t.u->comm, t.slot, NULL);
        break;
    }
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
    if (work == COLL_WORK_BREAK) {
        coll_comm_broken(&u->comm, slot);
    } else {
        coll_comm_done(&u->comm, slot, NULL);
    }
}
