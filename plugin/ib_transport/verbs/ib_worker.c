#include "ib_worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/r2_log.h"
#include "base/r2_time.h"

/*
 * worker.lock: its queue and flags. workers.done_lock: the list of finished jobs, and of each job
 * `wanted` and `over`. Neither is held across run(), done() or wake().
 *
 * A quiet end and who wants it meet under done_lock: whichever comes second finds the other one.
 * The worker finds `wanted` and wakes; or the service thread finds `over`, and wakes itself. (It
 * may be through with what it reaps in this turn; the next one comes at once.) A wake too many does
 * no harm, and none is missing. Reaping finds every job that was listed before it took the list,
 * woken for or not, so that what ended before the thread's latest turn is never left.
 *
 * in_run is what makes abandoning safe: a worker found outside of run() when its time is up is only
 * between two short locks, or in wake(), and will see `leave` on its next turn, so it is waited
 * for. One found inside run() sees `leave` when run() returns, if it ever does, and from then on
 * touches neither the job, nor the finished list, nor wake()'s argument: all of them may be gone.
 */
struct worker {
    struct ib_workers *all;
    int device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;               /* queue not empty, or stop */
    pthread_cond_t gone;               /* exited */
    struct ib_job *head[2], **tail[2]; /* urgent ones, the others */
    uint8_t started, in_run;
    uint8_t stop;  /* leave when the queue is empty */
    uint8_t leave; /* leave now, whatever is queued */
    uint8_t exited;
    uint64_t reaped, quiet_at; /* who reaps */
};

struct ib_workers {
    struct r2_env env;
    void (*wake)(void *arg);
    void *arg;
    int devices;
    atomic_int
        pending; /* submitted and not reaped; relaxed: a count for the owner, orders nothing */
    pthread_mutex_t done_lock;
    struct ib_job *done_head, **done_tail;
    struct ib_workers *next_abandoned;
    struct worker worker[];
};

/* What abandoned threads may still touch: never freed, and found by leak checkers here. */
static pthread_mutex_t abandoned_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_workers *abandoned;

static void list_append(struct ib_job ***tail, struct ib_job *job)
{
    job->next = NULL;
    **tail = job;
    *tail = &job->next;
}

/* Must hold w->lock, or be the only thread (simulation). */
static struct ib_job *queue_pop(struct worker *w)
{
    int i = w->head[0] == NULL;
    struct ib_job *job = w->head[i];

    if (job != NULL) {
        w->head[i] = job->next;
        if (w->head[i] == NULL) {
            w->tail[i] = &w->head[i];
        }
    }
    return job;
}

/* From the unlock on the job may be reaped, and gone. */
static void job_finish(struct ib_workers *all, struct ib_job *job)
{
    uint64_t now = job->quiet ? all->env.now_ns(all->env.arg) : 0;
    int wakes;

    pthread_mutex_lock(&all->done_lock);
    list_append(&all->done_tail, job);
    job->over = 1;
    job->over_at = now;
    wakes = !job->quiet || job->wanted;
    pthread_mutex_unlock(&all->done_lock);
    if (wakes) {
        all->wake(all->arg);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct ib_job *job;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->head[0] == NULL && w->head[1] == NULL && !w->stop && !w->leave) {
            pthread_cond_wait(&w->work, &w->lock);
        }
        job = w->leave ? NULL : queue_pop(w);
        if (job == NULL) {
            break;
        }
        w->in_run = 1;
        pthread_mutex_unlock(&w->lock);
        job->run(job);
        pthread_mutex_lock(&w->lock);
        if (w->leave) {
            break; /* abandoned: the job is nobody's any more */
        }
        w->in_run = 0;
        pthread_mutex_unlock(&w->lock);
        job_finish(w->all, job);
        pthread_mutex_lock(&w->lock);
    }
    w->exited = 1;
    pthread_cond_signal(&w->gone);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* The host program's signal handlers must never run on a thread of ours: all signals are blocked
 * there. */
static int worker_start(struct worker *w)
{
    sigset_t all, old;
    char name[16];
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        return rc;
    }
    w->started = 1;
    snprintf(name, sizeof(name), "r2-verbs-%d", w->device);
    pthread_setname_np(w->thread, name);
    return 0;
}

static void worker_init(struct worker *w, struct ib_workers *all, int device)
{
    pthread_condattr_t attr;

    w->all = all;
    w->device = device;
    w->tail[0] = &w->head[0];
    w->tail[1] = &w->head[1];
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->gone, &attr);
    pthread_condattr_destroy(&attr);
}

struct ib_workers *ib_workers_create(const struct r2_env *env, int devices, void (*wake)(void *arg),
                                     void *arg)
{
    struct ib_workers *all;
    int rc;

    if (devices < 0 || devices > 64 || wake == NULL) {
        errno = EINVAL;
        return NULL;
    }
    all = calloc(1, sizeof(*all) + (size_t)devices * sizeof(all->worker[0]));
    if (all == NULL) {
        return NULL;
    }
    all->env = *env;
    all->wake = wake;
    all->arg = arg;
    all->devices = devices;
    all->done_tail = &all->done_head;
    pthread_mutex_init(&all->done_lock, NULL);
    for (int i = 0; i < devices; i++) {
        worker_init(&all->worker[i], all, i);
    }
    for (int i = 0; env->threads && i < devices; i++) {
        rc = worker_start(&all->worker[i]);
        if (rc != 0) {
            ib_workers_destroy(all, R2_NS_PER_S);
            errno = rc;
            return NULL;
        }
    }
    return all;
}

/* Waits for the exit of @w until @deadline; 0 when its thread is joined, -1 when it had to be
 * abandoned. */
static int worker_stop(struct worker *w, const struct timespec *deadline)
{
    int gone, rc = 0;

    if (!w->started) {
        return 0;
    }
    pthread_mutex_lock(&w->lock);
    while (!w->exited && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&w->gone, &w->lock, deadline);
    }
    w->leave = 1;
    pthread_cond_signal(&w->work);
    while (!w->exited && !w->in_run) {
        pthread_cond_wait(&w->gone, &w->lock);
    }
    gone = w->exited;
    pthread_mutex_unlock(&w->lock);
    if (gone) {
        pthread_join(w->thread, NULL);
    } else {
        pthread_detach(w->thread);
    }
    return gone ? 0 : -1;
}

static void workers_free(struct ib_workers *all)
{
    for (int i = 0; i < all->devices; i++) {
        pthread_mutex_destroy(&all->worker[i].lock);
        pthread_cond_destroy(&all->worker[i].work);
        pthread_cond_destroy(&all->worker[i].gone);
    }
    pthread_mutex_destroy(&all->done_lock);
    free(all);
}

/* No thread touches these any more: what was not begun never will be, and what has ended needs
 * nobody to take it back. */
static void jobs_drop(struct ib_workers *all, uint64_t stuck)
{
    struct ib_job *job;

    for (int i = 0; i < all->devices; i++) {
        while (!(stuck >> i & 1) && (job = queue_pop(&all->worker[i])) != NULL) {
            job->busy = 0;
        }
    }
    pthread_mutex_lock(&all->done_lock);
    for (job = all->done_head; job != NULL; job = job->next) {
        job->busy = 0;
    }
    pthread_mutex_unlock(&all->done_lock);
}

uint64_t ib_workers_destroy(struct ib_workers *all, uint64_t limit_ns)
{
    struct timespec deadline;
    uint64_t end, stuck = 0;

    if (all == NULL) {
        return 0;
    }
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    end = (uint64_t)deadline.tv_nsec + limit_ns % R2_NS_PER_S;
    deadline.tv_sec += (time_t)(limit_ns / R2_NS_PER_S + end / R2_NS_PER_S);
    deadline.tv_nsec = (long)(end % R2_NS_PER_S);

    for (int i = 0; i < all->devices; i++) {
        struct worker *w = &all->worker[i];
        pthread_mutex_lock(&w->lock);
        w->stop = 1;
        pthread_cond_signal(&w->work);
        pthread_mutex_unlock(&w->lock);
    }
    for (int i = 0; i < all->devices; i++) {
        if (worker_stop(&all->worker[i], &deadline) != 0) {
            R2_INFO("the driver of RDMA device %d does not return: its thread is left behind", i);
            stuck |= 1ull << i;
        }
    }
    jobs_drop(all, stuck);
    if (!stuck) {
        workers_free(all);
        return 0;
    }
    pthread_mutex_lock(&abandoned_lock);
    all->next_abandoned = abandoned;
    abandoned = all;
    pthread_mutex_unlock(&abandoned_lock);
    return stuck;
}

void ib_workers_submit(struct ib_workers *all, int device, struct ib_job *job)
{
    struct worker *w = &all->worker[device];

    job->device = device;
    job->busy = 1;
    job->quiet = job->wanted = job->over = 0; /* no worker has it yet, nor the list */
    atomic_fetch_add_explicit(&all->pending, 1, memory_order_relaxed);
    pthread_mutex_lock(&w->lock);
    list_append(&w->tail[!job->urgent], job);
    pthread_mutex_unlock(&w->lock);
    pthread_cond_signal(&w->work); /* else the worker wakes to sleep again, on the lock */
    if (!all->env.threads) {
        all->env.kick_worker(all->env.arg, device);
    }
}

void ib_workers_want(struct ib_workers *all, struct ib_job *job)
{
    int missed;

    if (!job->busy) {
        return;
    }
    pthread_mutex_lock(&all->done_lock);
    missed = job->over && job->quiet && !job->wanted;
    job->wanted = 1;
    pthread_mutex_unlock(&all->done_lock);
    if (missed) {
        all->wake(all->arg);
    }
}

int ib_workers_pending(struct ib_workers *all)
{
    return atomic_load_explicit(&all->pending, memory_order_relaxed);
}

/* The whole list is taken first: a done() that submits again, and a worker that is quick, must not
 * make this endless. */
int ib_workers_reap(struct ib_workers *all)
{
    struct ib_job *job, *next;
    int n = 0;

    pthread_mutex_lock(&all->done_lock);
    job = all->done_head;
    all->done_head = NULL;
    all->done_tail = &all->done_head;
    pthread_mutex_unlock(&all->done_lock);
    for (; job != NULL; job = next, n++) {
        next = job->next;
        job->busy = 0;
        if (job->quiet) {
            all->worker[job->device].quiet_at = job->over_at; /* they end in order */
        } else {
            all->worker[job->device].reaped++;
        }
        atomic_fetch_sub_explicit(&all->pending, 1, memory_order_relaxed);
        if (job->done) {
            job->done(job); /* may free or submit it again */
        }
    }
    return n;
}

uint64_t ib_workers_reaped(const struct ib_workers *all, int device)
{
    return all->worker[device].reaped;
}

uint64_t ib_workers_quiet_at(const struct ib_workers *all, int device)
{
    return all->worker[device].quiet_at;
}

int ib_worker_step(struct ib_workers *all, int device)
{
    struct ib_job *job = queue_pop(&all->worker[device]);

    if (job == NULL) {
        return 0;
    }
    job->run(job);
    job_finish(all, job);
    return 1;
}
