/* Memory keys and completion queues of the TCP device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tcpdev_int.h"

/* --- memory --- */

/*
 * A key: its place in the table, and 12 bits that are drawn anew each time the place is taken, and
 * are never those of the one before: a key that was taken away is no key. They are never 0, nor is
 * a key: that is how a peer is told that there is none. Places are taken in turn, so that one comes
 * again late.
 */
#define KEY_PLACE(key)     ((key) >> 12)
#define KEY_OF(place, tag) ((place) << 12 | ((tag) % 0xfff + 1))

static struct tcpdev_mr *mr_of(const struct tcpdev *d, uint32_t key)
{
    struct tcpdev_mr *m = KEY_PLACE(key) < d->mr_room ? d->mrs[KEY_PLACE(key)] : NULL;

    return m && ((uintptr_t)m & 1) == 0 && m->base.lkey == key ? m : NULL;
}

/* Of a place that is free the table keeps the last key, marked by its low bit. */
static uint32_t last_key(const struct tcpdev *d, uint32_t place)
{
    return (uint32_t)((uintptr_t)d->mrs[place] >> 1);
}

static int mr_room_make(struct tcpdev *d)
{
    uint32_t room = d->mr_room ? 2 * d->mr_room : 256;
    struct tcpdev_mr **bigger;

    if (d->mr_count < d->mr_room) {
        return 0;
    }
    if (room > TCPDEV_MAX_MR) {
        return ENOMEM;
    }
    bigger = realloc(d->mrs, room * sizeof(*bigger));
    if (bigger == NULL) {
        return ENOMEM;
    }
    for (uint32_t i = d->mr_room; i < room; i++) {
        bigger[i] = (struct tcpdev_mr *)(uintptr_t)1;
    }
    d->mrs = bigger;
    d->mr_room = room;
    return 0;
}

static uint32_t mr_place(struct tcpdev *d)
{
    uint32_t place;

    while (((uintptr_t)d->mrs[d->mr_next] & 1) == 0) {
        d->mr_next = (d->mr_next + 1) % d->mr_room;
    }
    place = d->mr_next;
    d->mr_next = (place + 1) % d->mr_room;
    return place;
}

struct ibv_mr *tcpdev_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    struct tcpdev *d = tcpdev_of(pd->context);
    struct tcpdev_mr *m = calloc(1, sizeof(*m));
    uint32_t place, tag;
    int rc;

    if (m == NULL || (uintptr_t)addr + len < (uintptr_t)addr) {
        free(m);
        errno = m ? EINVAL : ENOMEM;
        return NULL;
    }
    m->gpu = access & IB_ACCESS_GPU ? tcpdev_gpu_of(d, addr, len) : NULL;
    if ((access & IB_ACCESS_GPU) && m->gpu == NULL) {
        rc = errno;
        free(m);
        errno = rc;
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    rc = mr_room_make(d);
    if (rc == 0) {
        place = mr_place(d);
        tag = (uint32_t)tcpdev_random(d);
        tag += KEY_OF(place, tag) == last_key(d, place);
        m->base = (struct ibv_mr){.context = pd->context,
                                  .pd = pd,
                                  .addr = addr,
                                  .length = len,
                                  .lkey = KEY_OF(place, tag),
                                  .rkey = KEY_OF(place, tag)};
        m->access = access;
        d->mrs[place] = m;
        d->mr_count++;
    }
    pthread_mutex_unlock(&d->lock);
    if (rc != 0) {
        free(m);
        errno = rc;
        return NULL;
    }
    return &m->base;
}

int tcpdev_dereg_mr(struct ibv_mr *mr)
{
    struct tcpdev *d = tcpdev_of(mr->context);
    struct tcpdev_mr *m = (struct tcpdev_mr *)mr;
    int rc;

    pthread_mutex_lock(&d->lock);
    m->dead = true;
    tcpdev_out_wait(d, NULL, m);
    rc = tcpdev_gpu_wait(d, NULL, m);
    if (rc !=
        0) { /* as of a device that does not answer: the key stays its own, and allows nothing */
        pthread_mutex_unlock(&d->lock);
        return rc;
    }
    d->mrs[KEY_PLACE(mr->lkey)] = (struct tcpdev_mr *)(((uintptr_t)mr->lkey << 1) | 1);
    d->mr_count--;
    pthread_mutex_unlock(&d->lock);
    free(mr);
    return 0;
}

struct tcpdev_mr *tcpdev_mem_find(const struct tcpdev *d, uint32_t key, uint64_t addr, uint32_t len,
                                  int access)
{
    struct tcpdev_mr *m = mr_of(d, key);
    uint64_t begin = m ? (uintptr_t)m->base.addr : 0;

    return m && !m->dead && !(m->gpu && atomic_load(&m->gpu->broken)) &&
                   (m->access & access) == access && addr >= begin &&
                   addr - begin <= m->base.length && len <= m->base.length - (addr - begin)
               ? m
               : NULL;
}

bool tcpdev_mem_is_allowed(const struct tcpdev *d, uint32_t key, uint64_t addr, uint32_t len,
                           int access)
{
    return len == 0 || tcpdev_mem_find(d, key, addr, len, access); /* as with hardware */
}

/* --- completions --- */

struct ibv_cq *tcpdev_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *ch, int vector)
{
    struct tcpdev_cq *cq;
    uint32_t room = 1;

    if (ch != NULL) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (cqe < 1 || cqe > TCPDEV_MAX_CQE) {
        errno = EINVAL;
        return NULL;
    }
    while (room < (uint32_t)cqe) {
        room *= 2;
    }
    cq = calloc(1, sizeof(*cq));
    if (cq != NULL) {
        cq->ring = malloc(room * sizeof(*cq->ring));
    }
    if (cq == NULL || cq->ring == NULL) {
        free(cq);
        errno = ENOMEM;
        return NULL;
    }
    cq->room = room;
    cq->base = (struct ibv_cq){.context = ctx, .cq_context = cq_context, .cqe = (int)room};
    atomic_init(&cq->pushed, 0);
    return &cq->base;
}

int tcpdev_destroy_cq(struct ibv_cq *base)
{
    struct tcpdev_cq *cq = (struct tcpdev_cq *)base;
    struct tcpdev *d = tcpdev_of(base->context);
    bool used = false;

    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < TCPDEV_BUCKETS && !used; i++) {
        for (const struct tcpdev_qp *q = d->qps[i]; q && !used; q = q->next_hash) {
            used = q->base.send_cq == base || q->base.recv_cq == base;
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (used) {
        return EBUSY;
    }
    free(cq->ring);
    free(cq);
    return 0;
}

/* Entries beyond its room are lost, as in a queue that a NIC overruns: who makes it as large as
 * what may be posted never has any. */
void tcpdev_cq_push(struct ibv_cq *base, const struct ibv_wc *wc)
{
    struct tcpdev_cq *cq = (struct tcpdev_cq *)base;
    uint32_t at = atomic_load_explicit(&cq->pushed, memory_order_relaxed);

    if (at - cq->polled < cq->room) {
        cq->ring[at & (cq->room - 1)] = *wc;
        atomic_store_explicit(&cq->pushed, at + 1, memory_order_release);
    }
}

int tcpdev_poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
    struct tcpdev_cq *cq = (struct tcpdev_cq *)base;
    struct tcpdev *d;
    int got = 0;

    /* @polled is what this thread, or one that handed the queue to it, has written itself */
    if (atomic_load_explicit(&cq->pushed, memory_order_acquire) == cq->polled) {
        return 0;
    }
    d = tcpdev_of(base->context);
    pthread_mutex_lock(&d->lock);
    while (got < n && atomic_load_explicit(&cq->pushed, memory_order_relaxed) != cq->polled) {
        wc[got++] = cq->ring[cq->polled++ & (cq->room - 1)];
    }
    pthread_mutex_unlock(&d->lock);
    return got;
}
