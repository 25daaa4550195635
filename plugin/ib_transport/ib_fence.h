/*
 * Fence: the act after which nothing posted on an incarnation can touch memory any more, and its
 * completions no longer count (protocol P16, P18). Local to one end; says nothing about what the
 * peer received.
 */
#ifndef IB_FENCE_H
#define IB_FENCE_H

#include <stdatomic.h>

#include "ib_path.h"

enum ib_fence_stage {
    IB_FENCE_IDLE,
    IB_FENCE_ERROR, /* ibv_modify_qp(ERR) queued or running on the device's worker */
    IB_FENCE_DRAIN, /* the queue pair is in ERR, waiting for the markers */
    IB_FENCE_HARD,  /* closed: drained */
    IB_FENCE_SOFT,  /* closed without proof that the NIC is quiet; made hard later where that is
                       possible */
    IB_FENCE_STAGES
};
const char *ib_fence_stage_name(enum ib_fence_stage s);

struct ib_fence {
    struct ib_job job; /* first: recovered from the job pointer */
    struct ib_conn *conn;
    struct ib_path *path;
    enum ib_fence_stage stage; /* gate */
    int idle;                  /* gate: no send work request was under way at the begin */
    int refused;               /* gate: the library has refused a post since the move to ERR */
    int queried;               /* gate: ... one was posted to see that, after T_fence */
    int again; /* gate: receive markers posted again, since an arrival took the one before */
    uint64_t erred_at; /* gate: ns, when the move to ERR was answered; 0: not yet */
    int flushed;       /* gate: soft: by its library; hard as of quiet_at (P16.4) */
    uint64_t quiet_at; /* gate: soft: as of when the device has nothing of the queue pair in hand,
                          since it has answered once more; UINT64_MAX: it has not */
    uint64_t since;    /* gate: ns, begin of the fence */
    uint64_t retry_at; /* gate: soft: next try to make it hard */
    uint64_t retry_ns; /* gate: soft: time between two tries */
    void *half;        /* the ib_send or ib_recv, for drain */
    int (*drain)(void *half, int p); /* polls what is there; -1: failed. Markers: path->marker */
    void (*notify)(void *arg); /* the job has finished: somebody should step. Service thread */
    void *notify_arg;
    _Atomic int job_rc;   /* -1 pending, else errno of modify_qp; release by the worker, acquire by
                             the gate holder */
    _Atomic int job_gone; /* the kernel has removed the device; same pair */
    _Atomic uint64_t job_started; /* ns, begin of the first move; 0 while that waits for its turn */
    uint64_t job_ask_at; /* before submit; then the worker's. Not 0: the device is to answer a
                            command once more (P16.4): any that it was given since then (ns) will
                            do. 0: the move itself is wanted */
};

/*
 * Starts to fence f->path: posts the markers, and has the worker of its device move the queue pair
 * to ERR. Refused where a fence of it has begun. @urgent: somebody waits for it. Gate held. Never
 * blocks.
 */
void ib_fence_begin(struct ib_fence *f, struct ib_workers *w, uint64_t now, int urgent);
/* Closed at once, for a protocol without this fence (R2_RULE_RECV_FENCE off). Gate held. */
void ib_fence_without(struct ib_fence *f);

/*
 * Does what can be done now and returns the stage. HARD and SOFT are reached once: the path's
 * incarnation is closed then. In SOFT it goes on trying, and moves to HARD when the queue pair
 * could be drained after all, the device has had its time after a flush that its library made up
 * (P16.4), or the device is gone. Gate held; never blocks.
 * @worker_alive: time (ns) at which the device's worker last finished a job, so that waiting in its
 * queue is not taken for a hang.
 */
enum ib_fence_stage ib_fence_step(struct ib_fence *f, struct ib_workers *w, uint64_t now,
                                  uint64_t worker_alive);

/* Whether the device has nothing of the queue pair in hand any more, by its two answers (P16.4): a
 * flush that has not come proves nothing then. Gate held. */
int ib_fence_is_quiet(const struct ib_fence *f, uint64_t now);

/* Time of the next step that makes sense, UINT64_MAX when only the job's end matters. */
uint64_t ib_fence_deadline(const struct ib_fence *f, uint64_t now);

#endif
