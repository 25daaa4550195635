#include "ib_mr.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "ib_mr_entry.h"

#define LATE_FENCES 25 /* x T_fence: what a call into a driver may take, whatever others took */

/* Caches with a thread that never came back from a driver: found by leak checkers here. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_mr_cache *left_behind;

static int relaxed_access(const struct ib_nics *nics)
{
    int want = (int)nics->cfg->ib_relaxed_ordering;

    /* libraries that have this call are those that know the flag */
    if (want != 0 && nics->v->reg_mr_iova2 != NULL) {
        return IBV_ACCESS_RELAXED_ORDERING;
    }
    if (want == 1) {
        R2_INFO("NCCL_IB_PCI_RELAXED_ORDERING=1, but this libibverbs has no ibv_reg_mr_iova2: off");
    }
    return 0;
}

struct ib_mr_cache *ib_mr_cache_create(struct ib_nics *nics, int threads)
{
    struct ib_mr_cache *cache = calloc(1, sizeof(*cache));
    long page = sysconf(_SC_PAGESIZE);

    if (cache == NULL) {
        return NULL;
    }
    cache->nics = nics;
    cache->page = page > 0 ? (uintptr_t)page : 4096;
    cache->relaxed = relaxed_access(nics);
    pthread_mutex_init(&cache->lock, NULL);
    ib_mr_work_init(&cache->work, &cache->lock, threads,
                    LATE_FENCES * (uint64_t)nics->cfg->t_fence_ms * 1000000);
    return cache;
}

void ib_mr_cache_reaches_set(struct ib_mr_cache *cache,
                             int (*reaches)(void *arg, int nic, const struct ib_mr *mr,
                                            const struct ibv_mr *m),
                             void *arg)
{
    cache->reaches = reaches;
    cache->reaches_arg = arg;
}

static bool type_is_known(int type)
{
    return type == IB_PTR_HOST || type == IB_PTR_CUDA || type == IB_PTR_DMABUF;
}

/* Fills what is looked for; -1 with errno. DMA-BUF keeps its exact extent: the exporter knows no
 * pages of ours. */
static int key_make(const struct ib_mr_cache *cache, struct ib_mr *key, void *addr, size_t len,
                    int type, uint64_t offset, int fd)
{
    uintptr_t begin = (uintptr_t)addr, end;

    if (len == 0) {
        len = 1;
    }
    if (addr == NULL || !type_is_known(type) || begin + len < begin ||
        (type == IB_PTR_DMABUF && fd < 0)) {
        errno = EINVAL;
        return -1;
    }
    end = begin + len;
    if (fd < 0) {
        begin -= begin % cache->page;
        if (end % cache->page) {
            end += cache->page - end % cache->page;
        }
        if (end < begin) {
            errno = EINVAL;
            return -1;
        }
    }
    key->addr = begin;
    key->len = end - begin;
    key->type = type;
    key->dmabuf = fd >= 0;
    key->dmabuf_fd = fd;
    key->dmabuf_offset = offset;
    return 0;
}

static bool is_whole(const struct ib_mr *mr, const struct ib_mr *key)
{
    return key->addr == mr->addr && key->len == mr->len;
}

/*
 * Must hold the lock. Covering is enough. Memory that came through a DMA-BUF and memory that did
 * not are different even at the same address; the fd itself says nothing: the same memory comes
 * with another one each time. That of a part need not reach over the whole, so that NICs which lack
 * it have nothing to ask with: such a part is registered for itself.
 */
static struct ib_mr *mr_find(struct ib_mr_cache *cache, const struct ib_mr *key, uint64_t nic_mask)
{
    struct ib_mr *m;

    for (m = cache->head; m != NULL; m = m->next) {
        if (m->type == key->type && m->dmabuf == key->dmabuf && m->addr <= key->addr &&
            m->addr + m->len >= key->addr + key->len &&
            !atomic_load_explicit(&m->left, memory_order_relaxed) &&
            (!m->dmabuf || is_whole(m, key) ||
             !ib_mr_entry_will_ask(cache, ib_mr_entry_of(m), nic_mask))) {
            return m;
        }
    }
    return NULL;
}

/* Must hold the lock. In the list, registered nowhere, without a reference. NULL with errno. */
static struct ib_mr *mr_create(struct ib_mr_cache *cache, const struct ib_mr *key)
{
    struct ib_mr_entry *e = calloc(1, sizeof(*e) + (size_t)cache->nics->count * sizeof(e->job[0]));
    struct ib_mr *mr = &e->mr;

    if (e == NULL) {
        return NULL;
    }
    mr->addr = key->addr;
    mr->len = key->len;
    mr->type = key->type;
    mr->dmabuf = key->dmabuf;
    mr->dmabuf_fd = -1;
    ib_mr_changed(mr);
    ib_mr_pin(mr);
    mr->next = cache->head;
    cache->head = mr;
    cache->stats.live++;
    return mr;
}

/*
 * Lock held. A reference less, of a part: @part; else of all of it, or it is not known. As long as
 * one of all of it is left, nothing of it can be other memory. With the last one the caller waits
 * until no NIC has the memory any more, but for one whose driver does not come back: that
 * registration is counted, and ends when the driver does.
 */
static void put_locked(struct ib_mr_cache *cache, struct ib_mr *mr, bool part)
{
    struct ib_mr_entry *e = ib_mr_entry_of(mr);
    uint32_t late;

    if (mr->refs == 0) {
        return;
    }
    e->wholes -= !part && e->wholes > 0;
    if (--mr->refs > 0) {
        if (e->wholes == 0) {
            ib_mr_leave(
                mr); /* what was let go may be other memory soon, which the NIC does not have */
        }
        return;
    }
    ib_mr_entry_drop(cache, e);
    late = ib_mr_entry_wait(cache, e, &e->leaving, UINT32_MAX);
    if (late | e->pending) {
        cache->stats.owed += (uint64_t)__builtin_popcount(late | e->pending);
        R2_WARN(
            "buffer %p + %zu is let go while the driver of NIC %s does not come back: it may stay pinned",
            (void *)mr->addr, mr->len, cache->nics->nic[__builtin_ctz(late | e->pending)].name);
    }
    ib_mr_unpin(mr);
}

struct ib_mr *ib_mr_get(struct ib_mr_cache *cache, void *addr, size_t len, int type,
                        uint64_t offset, int fd, uint64_t nic_mask)
{
    struct ib_mr key, *mr;
    int err, hit;

    if (nic_mask == 0) {
        errno = EINVAL;
        return NULL;
    }
    if (key_make(cache, &key, addr, len, type, offset, fd) != 0) {
        return NULL;
    }
    pthread_mutex_lock(&cache->lock);
    mr = mr_find(cache, &key, nic_mask);
    hit = mr != NULL;
    if (!hit && (mr = mr_create(cache, &key)) == NULL) {
        pthread_mutex_unlock(&cache->lock);
        return NULL;
    }
    ib_mr_entry_of(mr)->wholes += is_whole(mr, &key);
    mr->refs++; /* before the lock is let go */
    if (ib_mr_entry_register(cache, ib_mr_entry_of(mr), nic_mask, &key, &err) == 0) {
        put_locked(cache, mr, !is_whole(mr, &key));
        mr = NULL; /* it may stand on other NICs, on none of these */
    } else {
        cache->stats.hits += (uint64_t)hit;
    }
    pthread_mutex_unlock(&cache->lock);
    if (mr == NULL) {
        errno = err;
    }
    return mr;
}

uint32_t ib_mr_cache_refused(struct ib_mr_cache *cache)
{
    return atomic_load_explicit(&cache->refused, memory_order_relaxed);
}

bool ib_mr_is_whole(const struct ib_mr_cache *cache, const struct ib_mr *mr, void *addr, size_t len,
                    int type, int fd)
{
    struct ib_mr key;

    return key_make(cache, &key, addr, len, type, 0, fd) == 0 && is_whole(mr, &key);
}

static void put(struct ib_mr_cache *cache, struct ib_mr *mr, bool part)
{
    if (mr == NULL) {
        return;
    }
    pthread_mutex_lock(&cache->lock);
    put_locked(cache, mr, part);
    pthread_mutex_unlock(&cache->lock);
}

void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    put(cache, mr, false);
}

void ib_mr_put_part(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    put(cache, mr, true);
}

int ib_mr_put_known(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    struct ib_mr *m;

    pthread_mutex_lock(&cache->lock);
    for (m = cache->head; m != NULL && m != mr; m = m->next) {
    }
    if (m != NULL) {
        put_locked(cache, m, false);
    }
    pthread_mutex_unlock(&cache->lock);
    return m != NULL ? 0 : -1;
}

int ib_mr_last(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    struct ib_mr *m;
    int last = -1;

    pthread_mutex_lock(&cache->lock);
    for (m = cache->head; m != NULL && m != mr; m = m->next) {
    }
    if (m != NULL) {
        last = m->refs == 1;
        if (last) {
            ib_mr_leave(m);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return last;
}

void ib_mr_keep(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    ib_mr_leave(mr);
    atomic_fetch_add_explicit(&cache->kept, 1, memory_order_relaxed);
}

void ib_mr_pin(struct ib_mr *mr)
{
    atomic_fetch_add_explicit(&mr->pins, 1, memory_order_relaxed);
}

/* Release: what others did with it comes before the end; acquire: the end after that. */
void ib_mr_unpin(struct ib_mr *mr)
{
    if (atomic_fetch_sub_explicit(&mr->pins, 1, memory_order_acq_rel) == 1) {
        free(mr);
    }
}

void ib_mr_changed(struct ib_mr *mr)
{
    static _Atomic uint64_t
        last; /* of the process: a handle at the address of another one differs */

    atomic_store_explicit(&mr->version,
                          atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1,
                          memory_order_release);
}

void ib_mr_leave(struct ib_mr *mr)
{
    atomic_store_explicit(&mr->left, 1, memory_order_relaxed);
}

uint64_t ib_mr_cache_destroy(struct ib_mr_cache *cache, uint64_t limit_ns)
{
    uint64_t stuck;

    if (cache == NULL) {
        return 0;
    }
    pthread_mutex_lock(&cache->lock);
    while (cache->head != NULL) {
        struct ib_mr *mr = cache->head;

        ib_mr_entry_drop(cache, ib_mr_entry_of(mr));
        ib_mr_unpin(mr);
    }
    pthread_mutex_unlock(&cache->lock);
    stuck = ib_mr_work_stop(&cache->work, limit_ns);
    if (stuck) {
        pthread_mutex_lock(&left_lock);
        cache->next_left = left_behind;
        left_behind = cache;
        pthread_mutex_unlock(&left_lock);
        return stuck;
    }
    ib_mr_work_free(&cache->work);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
    return 0;
}

void ib_mr_cache_stats(struct ib_mr_cache *cache, struct ib_mr_stats *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->stats;
    out->kept = atomic_load_explicit(&cache->kept, memory_order_relaxed);
    pthread_mutex_unlock(&cache->lock);
}
