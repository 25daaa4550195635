/* Inside of the verbs front-end: the verbs objects with the model objects they stand for. */
#ifndef FAB_IBV_PRIV_H
#define FAB_IBV_PRIV_H

#include "tests/fabric/verbs/fab_ibv.h"

#include <errno.h>
#include <stdatomic.h>

struct fab_ibv_device {
    struct ibv_device ibv; /* first */
    struct fab_ibv_host host;
    int index;
    atomic_int refs; /* the list that shows it, and each context on it */
};

/* A queued event; a list guarded by the engine's lock. */
struct fab_ibv_event {
    struct fab_ibv_event *next;
    struct ibv_async_event async; /* of a context */
    struct fab_ibv_cq *cq;        /* of a channel */
};

struct fab_ibv_queue {
    struct fab_ibv_event *head, *tail;
    int fd; /* eventfd in semaphore mode: one count per event in the list */
};

struct fab_ibv_ctx {
    struct fab_ctx m;
    struct fab_ibv_device *dev;
    struct fab_ibv_queue async;
    struct verbs_context v; /* v.context is what programs hold */
};

struct fab_ibv_channel {
    struct ibv_comp_channel ibv; /* first */
    struct fab_ibv_queue q;
};

struct fab_ibv_pd {
    struct ibv_pd ibv; /* first */
    struct fab_pd m;
};

struct fab_ibv_mr {
    struct ibv_mr ibv; /* first */
    struct fab_mr m;
    void *map; /* of a DMA-BUF */
    size_t map_len;
};

/* Events got by the program so far; together with *_events_completed of the verbs object, under its
 * mutex. */
struct fab_ibv_cq {
    struct ibv_cq ibv; /* first */
    struct fab_cq m;
    uint32_t comp_got, async_got;
};

struct fab_ibv_srq {
    struct ibv_srq ibv; /* first */
    struct fab_srq m;
    uint32_t async_got;
};

struct fab_ibv_qp {
    struct ibv_qp ibv; /* first */
    struct fab_qp m;
    struct ibv_qp_init_attr init;
    uint32_t async_got;
};

static inline struct fab_ibv_ctx *fab_ibv_ctx_of(struct ibv_context *c)
{
    return (struct fab_ibv_ctx *)((char *)c - offsetof(struct fab_ibv_ctx, v.context));
}

static inline struct fab_engine *fab_ibv_eng(struct ibv_context *c)
{
    return fab_ibv_ctx_of(c)->m.nic->eng;
}

static inline void fab_ibv_lock(struct fab_engine *e)
{
    e->ops->lock(e);
}

static inline void fab_ibv_unlock(struct fab_engine *e)
{
    e->ops->unlock(e);
}

/* The engine's say on a control call, with the lock held: 0 or an errno value. */
static inline int fab_ibv_control(struct fab_ctx *c, enum fab_call call)
{
    struct fab_engine *e = c->nic->eng;

    int rc = e->ops->control ? e->ops->control(e, c->nic, call) : 0;

    return rc ? rc : fab_ctx_call(c);
}

static inline void fab_ibv_progress(struct fab_ctx *c)
{
    struct fab_engine *e = c->nic->eng;

    if (e->ops->progress) {
        e->ops->progress(e, c->nic);
    }
}

/* fab_ibv_fork.c: pages of a registration are kept from forked children, and no longer. Nothing
 * without RDMAV_FORK_SAFE. dontfork: 0 or an errno value. */
int fab_ibv_dontfork(const void *addr, size_t len);
void fab_ibv_dofork(const void *addr, size_t len);

/* fab_ibv_event.c. push: lock held. */
extern const struct fab_ctx_ops fab_ibv_ctx_ops;
int fab_ibv_queue_init(struct fab_ibv_queue *q);
void fab_ibv_queue_fini(struct fab_ibv_queue *q);
/* Takes the queued events of one object away, lock held. @element: QP, CQ or SRQ as in the event;
 * @cq: completion events of it. */
void fab_ibv_queue_forget(struct fab_ibv_queue *q, const void *element,
                          const struct fab_ibv_cq *cq);
/*
 * Waits until *@completed has reached *@got, both guarded by @mutex. EBUSY at once instead of
 * waiting with never_block. Without the engine's lock.
 */
int fab_ibv_wait_acked(struct fab_engine *e, pthread_mutex_t *mutex, pthread_cond_t *cond,
                       const uint32_t *completed, const uint32_t *got);

#endif
