/* Asynchronous events and completion channels. */
#include "fab_ibv_priv.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

int fab_ibv_queue_init(struct fab_ibv_queue *q)
{
    q->head = q->tail = NULL;
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return q->fd < 0 ? errno : 0;
}

void fab_ibv_queue_fini(struct fab_ibv_queue *q)
{
    struct fab_ibv_event *ev;

    while ((ev = q->head) != NULL) {
        q->head = ev->next;
        free(ev);
    }
    close(q->fd);
}

static void push(struct fab_ibv_queue *q, const struct fab_ibv_event *what)
{
    struct fab_ibv_event *ev = malloc(sizeof *ev);
    uint64_t one = 1;

    if (!ev) {
        abort(); /* an event that is lost would look like a fault of the program under test */
    }
    *ev = *what;
    ev->next = NULL;
    if (q->tail) {
        q->tail->next = ev;
    } else {
        q->head = ev;
    }
    q->tail = ev;
    if (write(q->fd, &one, sizeof one) != sizeof one) {
        abort();
    }
}

/* One event less: the count of the eventfd is the length of the list whenever the lock is free, so
 * this read never waits. */
static void take_count(struct fab_ibv_queue *q)
{
    uint64_t count;

    if (read(q->fd, &count, sizeof count) != sizeof count) {
        abort();
    }
}

/* Returns with the engine's lock held when there was an event, so that the caller counts it as got
 * before it could be forgotten. */
static int pop(struct fab_engine *e, struct fab_ibv_queue *q, struct fab_ibv_event *out)
{
    struct pollfd p = {.fd = q->fd, .events = POLLIN};
    struct fab_ibv_event *ev;

    for (;;) {
        fab_ibv_lock(e);
        ev = q->head;
        if (ev) {
            take_count(q);
            q->head = ev->next;
            if (!q->head) {
                q->tail = NULL;
            }
            *out = *ev;
            free(ev);
            return 0;
        }
        fab_ibv_unlock(e);
        if (e->never_block || fcntl(q->fd, F_GETFL) & O_NONBLOCK) {
            errno = EAGAIN;
            return -1;
        }
        if (poll(&p, 1, -1) < 0) {
            return -1;
        }
    }
}

void fab_ibv_queue_forget(struct fab_ibv_queue *q, const void *element, const struct fab_ibv_cq *cq)
{
    struct fab_ibv_event **pp = &q->head, *ev;

    q->tail = NULL;
    while ((ev = *pp) != NULL) {
        if (cq ? ev->cq == cq : (const void *)ev->async.element.qp == element) {
            *pp = ev->next;
            free(ev);
            take_count(q);
        } else {
            q->tail = ev;
            pp = &ev->next;
        }
    }
}

int fab_ibv_wait_acked(struct fab_engine *e, pthread_mutex_t *mutex, pthread_cond_t *cond,
                       const uint32_t *completed, const uint32_t *got)
{
    int rc = 0;

    pthread_mutex_lock(mutex);
    while (*completed != *got && !rc) {
        if (e->never_block) {
            rc = EBUSY;
        } else {
            pthread_cond_wait(cond, mutex);
        }
    }
    pthread_mutex_unlock(mutex);
    return rc;
}

/* ---- asynchronous events ---- */

static void on_async(struct fab_ctx *ctx, enum ibv_event_type type, void *element)
{
    struct fab_ibv_ctx *c = ctx->user;
    struct fab_ibv_event ev = {.async.event_type = type};

    if (element) {
        ev.async.element.qp = element; /* a union of pointers; a CQ or an SRQ the same way */
    } else {
        ev.async.element.port_num = 1;
    }
    push(&c->async, &ev);
}

static void on_comp(struct fab_ctx *ctx, struct fab_cq *m)
{
    struct fab_ibv_cq *cq = m->user;
    struct fab_ibv_event ev = {.cq = cq};

    if (!cq->ibv.channel) {
        return;
    }
    push(&((struct fab_ibv_channel *)cq->ibv.channel)->q, &ev);
    if (ctx->nic->eng->ops->channel) {
        ctx->nic->eng->ops->channel(ctx->nic->eng, ctx->nic);
    }
}

const struct fab_ctx_ops fab_ibv_ctx_ops = {.async = on_async, .comp = on_comp};

enum element { NONE, QP, CQ, SRQ };

static enum element element_of(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_CQ_ERR:
        return CQ;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return QP;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return SRQ;
    default:
        return NONE;
    }
}

static void count(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *n, uint32_t by)
{
    pthread_mutex_lock(mutex);
    *n += by;
    if (cond) {
        pthread_cond_broadcast(cond);
    }
    pthread_mutex_unlock(mutex);
}

int fab_ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *out)
{
    struct fab_ibv_ctx *c = fab_ibv_ctx_of(ctx);
    struct fab_ibv_event ev;

    if (pop(fab_ibv_eng(ctx), &c->async, &ev)) {
        return -1;
    }
    *out = ev.async;
    switch (element_of(out->event_type)) {
    case QP:
        count(&out->element.qp->mutex, NULL, &((struct fab_ibv_qp *)out->element.qp)->async_got, 1);
        break;
    case CQ:
        count(&out->element.cq->mutex, NULL, &((struct fab_ibv_cq *)out->element.cq)->async_got, 1);
        break;
    case SRQ:
        count(&out->element.srq->mutex, NULL, &((struct fab_ibv_srq *)out->element.srq)->async_got,
              1);
        break;
    case NONE:
        break;
    }
    fab_ibv_unlock(fab_ibv_eng(ctx));
    return 0;
}

void fab_ibv_ack_async_event(struct ibv_async_event *ev)
{
    struct ibv_qp *qp = ev->element.qp;
    struct ibv_cq *cq = ev->element.cq;
    struct ibv_srq *srq = ev->element.srq;

    switch (element_of(ev->event_type)) {
    case QP:
        count(&qp->mutex, &qp->cond, &qp->events_completed, 1);
        break;
    case CQ:
        count(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
        break;
    case SRQ:
        count(&srq->mutex, &srq->cond, &srq->events_completed, 1);
        break;
    case NONE:
        break;
    }
}

/* ---- completion channels ---- */

struct ibv_comp_channel *fab_ibv_create_comp_channel(struct ibv_context *ctx)
{
    struct fab_ibv_channel *ch = calloc(1, sizeof *ch);
    int rc = ENOMEM;

    if (ch) {
        fab_ibv_lock(fab_ibv_eng(ctx));
        rc = fab_ctx_check(&fab_ibv_ctx_of(ctx)->m);
        fab_ibv_unlock(fab_ibv_eng(ctx));
    }
    if (!rc) {
        rc = fab_ibv_queue_init(&ch->q);
    }
    if (rc) {
        free(ch);
        errno = rc;
        return NULL;
    }
    ch->ibv.context = ctx;
    ch->ibv.fd = ch->q.fd;
    return &ch->ibv;
}

int fab_ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    struct fab_ibv_channel *c = (struct fab_ibv_channel *)ch;
    int busy;

    fab_ibv_lock(fab_ibv_eng(ch->context));
    busy = ch->refcnt;
    fab_ibv_unlock(fab_ibv_eng(ch->context));
    if (busy) {
        return EBUSY;
    }
    fab_ibv_queue_fini(&c->q);
    free(c);
    return 0;
}

int fab_ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context)
{
    struct fab_engine *e = fab_ibv_eng(ch->context);
    struct fab_ibv_event ev;

    if (pop(e, &((struct fab_ibv_channel *)ch)->q, &ev)) {
        return -1;
    }
    *cq = &ev.cq->ibv;
    *cq_context = ev.cq->ibv.cq_context;
    count(&ev.cq->ibv.mutex, NULL, &ev.cq->comp_got, 1);
    fab_ibv_unlock(e);
    return 0;
}

void fab_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    count(&cq->mutex, &cq->cond, &cq->comp_events_completed, n);
}
