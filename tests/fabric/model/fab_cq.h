/*
 * Completion queues, with exactly as many entries as asked for.
 *
 * One completion too many breaks the CQ: it is lost with all later ones, IBV_EVENT_CQ_ERR is
 * raised, and every queue pair on the CQ goes to ERR with IBV_EVENT_QP_FATAL. Entries that are in
 * can still be polled.
 *
 * Polling an entry gives back the work-queue slots that it stands for (those of the unsignaled
 * sends before it too).
 */
#ifndef FAB_CQ_H
#define FAB_CQ_H

#include "fab_nic.h"

struct fab_rq;
struct fab_rwqe;

struct fab_cqe {
    struct ibv_wc wc;
    struct fab_qp *qp;
    struct fab_rq
        *rq; /* receive completion: the queue that gets @slot back; NULL: a send completion */
    struct fab_rwqe *slot;
    uint64_t send_index; /* send completion: slots up to this one are free again */
    bool codeless; /* the library made it up and leaves the field of the vendor's code as it was */
};

struct fab_cq {
    struct fab_ctx *ctx;
    void *user;
    struct fab_cqe *ring;
    uint32_t size, head, count;
    uint32_t refs; /* queue pairs on it, counting both directions */
    enum { FAB_CQ_QUIET, FAB_CQ_ARMED, FAB_CQ_ARMED_SOLICITED } armed;
    bool broken;
};

int fab_cq_init(struct fab_cq *cq, struct fab_ctx *ctx, int cqe,
                void *user);                   /* EINVAL, ENOMEM, EIO */
int fab_cq_fini(struct fab_cq *cq);            /* EBUSY while queue pairs use it */
int fab_cq_resize(struct fab_cq *cq, int cqe); /* EINVAL if more entries are in than @cqe */
/* Up to @n entries into @wc. Their number; -EIO when the device died and nothing is left in. */
int fab_cq_poll(struct fab_cq *cq, int n, struct ibv_wc *wc);
int fab_cq_arm(struct fab_cq *cq, bool solicited_only);

/* ---- inside the model ---- */

/* Adds a completion; @solicited as the sender asked, errors always count as solicited. */
void fab_cq_push(struct fab_cq *cq, const struct fab_cqe *cqe, bool solicited);
/* Takes out the completions of @qp (reset, destroy). */
void fab_cq_purge(struct fab_cq *cq, struct fab_qp *qp);

/* Fields of @wc that verbs leave undefined on this status are filled with this byte, so that nobody
 * gets used to their values. */
#define FAB_POISON 0xa5

#endif
