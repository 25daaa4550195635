/*
 * One worker per RDMA device: verbs calls that may block (create, modify, destroy, query on a sick
 * device) run here, one after the other, so that a hung driver blocks nobody else (protocol section
 * 3, P16.1). First those that somebody waits for, then the others; in order among themselves (P29).
 *
 * A job that has brought nothing new ends quietly, if its run() says so: nobody is woken, and the
 * next turn of the service thread, whatever it is for, takes it back. Who needs it sooner wants it
 * (ib_workers_want), before or after it has ended.
 *
 * A job is embedded in its owner, belongs to the worker from submit until done() has been called,
 * and may be submitted again then. run() is called on the worker's thread; done() on the service
 * thread, from ib_workers_reap(). A worker whose job never returns is abandoned at exit: the
 * library is pinned in memory for that reason.
 */
#ifndef IB_WORKER_H
#define IB_WORKER_H

#include <stdint.h>

#include "base/r2_env.h"

struct ib_job {
    void (*run)(struct ib_job *job);
    void (*done)(struct ib_job *job); /* may be NULL */
    int device;
    int urgent;       /* somebody waits for it; before submit, by who submits */
    int quiet;        /* run() sets it: the end need not wake anybody. 0 when it begins */
    int wanted;       /* the end wakes all the same; the workers' lock */
    int over;         /* it has ended and was not reaped; likewise */
    uint64_t over_at; /* ns, of a quiet one; likewise */
    int busy; /* between submit and done; service thread only, except that submit may come from a
                 thread that owns the object */
    struct ib_job *next;
};

struct ib_workers;

/*
 * @wake is called (any thread) when a finished job waits to be reaped. With env->threads == 0 no
 * thread is started: submit calls env->kick_worker and ib_worker_step() runs jobs. NULL with errno
 * on failure.
 */
struct ib_workers *ib_workers_create(const struct r2_env *env, int devices, void (*wake)(void *arg),
                                     void *arg);

/*
 * Lets the workers run what is queued, then stops and joins them. Those not through after @limit_ns
 * (for all of them together) do not begin another job; one stuck inside a job is abandoned with it:
 * its run() may still return, done() will not be called. done() is never called from here: reap
 * before, until ib_workers_pending() is 0, what must be reaped. NULL is accepted.
 *
 * Returns what is still running: a bit for each device (below 64) whose worker was abandoned. Its
 * job, all that the job can reach, and the device itself must stay as they are until the process
 * ends. Of the other devices nothing runs any more, and no job is busy, whether it was
 * reaped, or begun, or not.
 */
uint64_t ib_workers_destroy(struct ib_workers *w, uint64_t limit_ns);

/* Queues @job for @device. Any thread; never blocks beyond a short lock. */
void ib_workers_submit(struct ib_workers *w, int device, struct ib_job *job);

/*
 * What @job brings is waited for from here on, if it is out: its end wakes even if it is quiet, and
 * one that has ended quietly wakes at once. Service thread; never blocks beyond a short lock.
 */
void ib_workers_want(struct ib_workers *w, struct ib_job *job);

/* Calls done() of the finished jobs. Service thread. Returns how many. */
int ib_workers_reap(struct ib_workers *w);

/* How many jobs of @device were reaped so far, without quiet ones. Thread: as ib_workers_reap. */
uint64_t ib_workers_reaped(const struct ib_workers *w, int device);
/* When the latest quiet one of those that were reaped had ended (ns; 0: none): it may have been
 * long before. Thread: likewise. */
uint64_t ib_workers_quiet_at(const struct ib_workers *w, int device);

/* Jobs submitted and not yet reaped. Any thread. */
int ib_workers_pending(struct ib_workers *w);

/* Simulation: runs one queued job of @device; 0 when there was none. */
int ib_worker_step(struct ib_workers *w, int device);

#endif
