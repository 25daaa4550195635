#include "ib_mr_work.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/r2_time.h"

/*
 * A driver that works needs about as long as those of other NICs for the same memory, which may be
 * asked all at once and take one after the other inside the kernel; and some time on a busy
 * machine.
 */
#define LATE_TIMES   16
#define LATE_UNKNOWN 20 /* x late_ns, where nobody has done it yet */
#define IDLE_NS      1000000ull

uint64_t ib_mr_work_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

static void cond_setup(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

void ib_mr_work_init(struct ib_mr_work *w, pthread_mutex_t *lock, int threads, uint64_t late_ns)
{
    memset(w, 0, sizeof(*w));
    w->lock = lock;
    w->threads = threads;
    w->late_ns = late_ns;
    cond_setup(&w->ended);
    for (int i = 0; i < IB_MAX_NICS; i++) {
        w->line[i].work = w;
        w->line[i].nic = i;
        w->line[i].tail = &w->line[i].head;
        cond_setup(&w->line[i].more);
    }
}

/* Lock held, released while the job runs. 0: there was none. */
static int run_one(struct ib_mr_line *l)
{
    struct ib_mr_job *job = l->head;

    if (job == NULL) {
        return 0;
    }
    l->head = job->next;
    if (l->head == NULL) {
        l->tail = &l->head;
    }
    l->took = job->took;
    l->since = ib_mr_work_now();
    pthread_mutex_unlock(l->work->lock);
    job->run(job);
    pthread_mutex_lock(l->work->lock);
    return 1;
}

void ib_mr_work_ended(struct ib_mr_work *w, int nic)
{
    w->line[nic].since = 0;
    w->line[nic].logged = 0;
    pthread_cond_broadcast(&w->ended);
}

static void *line_main(void *arg)
{
    struct ib_mr_line *l = arg;

    pthread_mutex_lock(l->work->lock);
    for (;;) {
        if (run_one(l)) {
            continue;
        }
        if (l->stop) {
            break;
        }
        pthread_cond_wait(&l->more, l->work->lock);
    }
    l->exited = 1;
    ib_mr_work_ended(l->work, l->nic);
    pthread_mutex_unlock(l->work->lock);
    return NULL;
}

/* The host program's signal handlers must never run on a thread of ours. */
static void line_start(struct ib_mr_line *l)
{
    sigset_t all, old;
    char name[16];

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    l->started = pthread_create(&l->thread, NULL, line_main, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (l->started) {
        snprintf(name, sizeof(name), "r2-mr-%d", l->nic);
        pthread_setname_np(l->thread, name);
    }
}

void ib_mr_work_submit(struct ib_mr_work *w, int nic, struct ib_mr_job *job)
{
    struct ib_mr_line *l = &w->line[nic];

    job->next = NULL;
    *l->tail = job;
    l->tail = &job->next;
    if (w->threads && !l->started) {
        line_start(l);
    } else {
        pthread_cond_signal(&l->more);
    }
}

/* Lock held. Jobs of NICs without a thread. Returns how many. */
static int run_here(struct ib_mr_work *w)
{
    int n = 0;

    for (int i = 0; i < IB_MAX_NICS; i++) {
        while (!w->line[i].started && run_one(&w->line[i])) {
            n++;
        }
    }
    return n;
}

/* Lock held. 0, or ETIMEDOUT. */
static int wait_until(struct ib_mr_work *w, uint64_t end)
{
    struct timespec t = {.tv_sec = (time_t)(end / R2_NS_PER_S),
                         .tv_nsec = (long)(end % R2_NS_PER_S)};

    return pthread_cond_timedwait(&w->ended, w->lock, &t);
}

void ib_mr_work_wait(struct ib_mr_work *w, uint64_t ns)
{
    if (run_here(w) == 0) {
        wait_until(w, ib_mr_work_now() + ns);
    }
}

uint64_t ib_mr_work_runs(const struct ib_mr_work *w, int nic)
{
    return w->line[nic].since ? ib_mr_work_now() - w->line[nic].since : 0;
}

int ib_mr_work_behind(const struct ib_mr_work *w, int nic)
{
    const struct ib_mr_line *l = &w->line[nic];
    uint64_t may = LATE_UNKNOWN * w->late_ns;

    if (l->since && *l->took) {
        may = w->late_ns + LATE_TIMES * *l->took;
    }
    return ib_mr_work_runs(w, nic) > may;
}

uint64_t ib_mr_work_stop(struct ib_mr_work *w, uint64_t limit_ns)
{
    uint64_t end = ib_mr_work_now() + limit_ns, stuck = 0;

    pthread_mutex_lock(w->lock);
    run_here(w);
    for (int i = 0; i < IB_MAX_NICS; i++) {
        w->line[i].stop = 1;
        pthread_cond_signal(&w->line[i].more);
    }
    for (int i = 0; i < IB_MAX_NICS; i++) {
        struct ib_mr_line *l = &w->line[i];

        /* one that is in no job sees stop at once */
        while (l->started && !l->exited && (wait_until(w, end) != ETIMEDOUT || l->since == 0)) {
            end = l->since || ib_mr_work_now() < end ? end : ib_mr_work_now() + IDLE_NS;
        }
        if (l->started && !l->exited) {
            stuck |= 1ull << i;
            pthread_detach(l->thread);
        }
    }
    pthread_mutex_unlock(w->lock);
    for (int i = 0; i < IB_MAX_NICS; i++) {
        if (w->line[i].started && !(stuck >> i & 1)) {
            pthread_join(w->line[i].thread, NULL);
        }
    }
    return stuck;
}

void ib_mr_work_free(struct ib_mr_work *w)
{
    for (int i = 0; i < IB_MAX_NICS; i++) {
        pthread_cond_destroy(&w->line[i].more);
    }
    pthread_cond_destroy(&w->ended);
}
