/*
 * Where registrations and deregistrations run: a thread for each NIC, begun with its first job,
 * so that a driver that hangs keeps no other NIC and no caller. They are apart from the device's
 * worker, whose queue is long at a job's start.
 *
 * Guarded by the lock that init is given; no job runs under it.
 */
#ifndef IB_MR_WORK_H
#define IB_MR_WORK_H

#include <pthread.h>
#include <stdint.h>

#include "ib_device.h"

struct ib_mr_job {
    void (*run)(struct ib_mr_job *job); /* without the lock; @job is its own from here on */
    const uint64_t *took; /* ns that others took for the same, 0: nobody knows; under the lock */
    struct ib_mr_job *next;
};

struct ib_mr_line {
    struct ib_mr_work *work;
    int nic;
    pthread_t thread;
    pthread_cond_t more; /* a job, or stop */
    struct ib_mr_job *head, **tail;
    const uint64_t *took; /* of the job that runs */
    uint64_t since;       /* ns of the monotonic clock: when it began; 0: none runs */
    uint8_t started, stop, exited;
    uint8_t logged; /* that it is behind */
};

struct ib_mr_work {
    pthread_mutex_t *lock;
    pthread_cond_t ended; /* some job, or some thread */
    int threads;
    uint64_t late_ns;
    struct ib_mr_line line[IB_MAX_NICS];
};

/* @threads 0: jobs run in wait (simulation). @late_ns: behind() allows so much in any case. */
void ib_mr_work_init(struct ib_mr_work *w, pthread_mutex_t *lock, int threads, uint64_t late_ns);
/* Lock held. Where no thread can be had, the job runs in wait. */
void ib_mr_work_submit(struct ib_mr_work *w, int nic, struct ib_mr_job *job);
/* Lock held, released meanwhile: until a job ends, @ns at most. */
void ib_mr_work_wait(struct ib_mr_work *w, uint64_t ns);
/*
 * Lock held. By the job that runs on @nic, at its end: who waits looks again. What took points to
 * may go from here on.
 */
void ib_mr_work_ended(struct ib_mr_work *w, int nic);
/* Lock held. How long the job that runs on @nic has run, ns; 0: none. */
uint64_t ib_mr_work_runs(const struct ib_mr_work *w, int nic);
/*
 * Lock held. Whether that is longer than a driver that works takes, seen by what the same took
 * elsewhere.
 */
int ib_mr_work_behind(const struct ib_mr_work *w, int nic);

/*
 * Runs what is queued and ends the threads, within @limit_ns. Lock not held. Returns a bit for
 * each NIC whose thread is stuck in its driver: it is left, and @w, the lock and all that its job
 * can reach must stay for the life of the process.
 */
uint64_t ib_mr_work_stop(struct ib_mr_work *w, uint64_t limit_ns);
/* After a stop that returned 0. */
void ib_mr_work_free(struct ib_mr_work *w);

uint64_t ib_mr_work_now(void); /* ns, monotonic */

#endif
