#include "ib_transport/ib_mr.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "r2_log.h"

/*
 * lock: the list, refs, stats, and every registration and deregistration, so that two threads that register one buffer
 * at the same time register it once. Who uses a handle on the data path does not take it.
 */
struct ib_mr_cache {
    struct ib_nics *nics;
    pthread_mutex_t lock;
    struct ib_mr *head;
    struct ib_mr_stats stats;
    uintptr_t page;
    int relaxed; /* IBV_ACCESS_RELAXED_ORDERING or 0 */
    _Atomic uint32_t refused; /* NICs that have refused some buffer; relaxed: a hint */
    int (*reaches)(void *arg, int nic, const struct ib_mr *mr, const struct ibv_mr *m); /* const after init */
    void *reaches_arg;
};

static int relaxed_access(const struct ib_nics *nics)
{
    int want = (int)nics->cfg->ib_relaxed_ordering;

    /* libraries that have this call are those that know the flag */
    if (want != 0 && nics->v->reg_mr_iova2 != NULL)
        return IBV_ACCESS_RELAXED_ORDERING;
    if (want == 1)
        R2_INFO("NCCL_IB_PCI_RELAXED_ORDERING=1, but this libibverbs has no ibv_reg_mr_iova2: off");
    return 0;
}

struct ib_mr_cache *ib_mr_cache_create(struct ib_nics *nics)
{
    struct ib_mr_cache *cache = calloc(1, sizeof(*cache));
    long page = sysconf(_SC_PAGESIZE);

    if (cache == NULL)
        return NULL;
    cache->nics = nics;
    cache->page = page > 0 ? (uintptr_t)page : 4096;
    cache->relaxed = relaxed_access(nics);
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

static int nic_is_usable(const struct ib_nics *nics, int nic)
{
    enum ib_nic_state s = ib_nic_state_get(&nics->nic[nic]);

    return s != IB_NIC_FATAL && s != IB_NIC_GONE;
}

/* Must hold the lock. On a FATAL device no call is made: its context, and with it the pin, goes with the process. */
static void mr_deregister(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    for (int i = 0; i < cache->nics->count; i++) {
        struct ibv_mr *m = atomic_exchange_explicit(&mr->mr[i], NULL, memory_order_relaxed);
        if (m != NULL && ib_nic_state_get(&cache->nics->nic[i]) != IB_NIC_FATAL)
            cache->nics->v->dereg_mr(m);
    }
    if (mr->dmabuf_fd >= 0)
        close(mr->dmabuf_fd);
}

void ib_mr_cache_destroy(struct ib_mr_cache *cache)
{
    struct ib_mr *mr;

    if (cache == NULL)
        return;
    while ((mr = cache->head) != NULL) {
        cache->head = mr->next;
        mr_deregister(cache, mr);
        free(mr);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static struct ibv_mr *register_one(struct ib_mr_cache *cache, const struct ib_mr *mr, int nic)
{
    const struct ib_verbs *v = cache->nics->v;
    struct ibv_pd *pd = cache->nics->nic[nic].pd;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | cache->relaxed;
    void *addr = (void *)mr->addr;

    errno = 0;
    if (mr->dmabuf_fd >= 0) {
        if (v->reg_dmabuf_mr != NULL)
            return v->reg_dmabuf_mr(pd, mr->dmabuf_offset, mr->len, mr->addr, mr->dmabuf_fd, access);
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (cache->relaxed)
        return v->reg_mr_iova2(pd, addr, mr->len, mr->addr, (unsigned)access);
    return v->reg_mr(pd, addr, mr->len, access);
}

void ib_mr_cache_reaches_set(struct ib_mr_cache *cache, int (*reaches)(void *arg, int nic, const struct ib_mr *mr, const struct ibv_mr *m), void *arg)
{
    cache->reaches = reaches;
    cache->reaches_arg = arg;
}

/* What register_one() made, if the NIC reaches the memory, too. NULL with errno. */
static struct ibv_mr *reached(struct ib_mr_cache *cache, const struct ib_mr *mr, int nic, struct ibv_mr *m)
{
    int rc;

    if (m == NULL || mr->type == IB_PTR_HOST || cache->reaches == NULL)
        return m;
    rc = cache->reaches(cache->reaches_arg, nic, mr, m);
    if (rc == 0)
        return m;
    cache->nics->v->dereg_mr(m);
    errno = rc;
    return NULL;
}

/*
 * Registers @mr on the NICs of @mask that it lacks, but for those that refused it before. Returns on how many of @mask
 * it is registered then; *err is the last errno. Must hold the lock. Release: whoever reads the pointer without the
 * lock sees the whole MR.
 */
static int mr_register(struct ib_mr_cache *cache, struct ib_mr *mr, uint64_t mask, int *err)
{
    int have = 0;

    for (int i = 0; i < cache->nics->count; i++) {
        struct ibv_mr *m;
        if (!(mask >> i & 1))
            continue;
        if (atomic_load_explicit(&mr->mr[i], memory_order_relaxed) != NULL) {
            have++;
            continue;
        }
        if (!nic_is_usable(cache->nics, i) || mr->refused >> i & 1)
            continue;
        m = reached(cache, mr, i, register_one(cache, mr, i));
        if (m == NULL) {
            *err = errno ? errno : EIO;
            mr->refused |= 1u << i;
            atomic_fetch_or_explicit(&cache->refused, 1u << i, memory_order_relaxed);
            cache->stats.failures++;
            R2_INFO("buffer %p + %zu cannot be registered on NIC %s: %s", (void *)mr->addr, mr->len,
                    cache->nics->nic[i].name, strerror(*err));
            continue;
        }
        cache->stats.registrations++;
        atomic_store_explicit(&mr->mr[i], m, memory_order_release);
        have++;
    }
    return have;
}

/* As mr_register, for an entry that others use already: a NIC that refused is asked again only when there is no other.
 */
static int mr_widen(struct ib_mr_cache *cache, struct ib_mr *mr, uint64_t mask, int *err)
{
    int have = mr_register(cache, mr, mask, err);

    if (have == 0) {
        mr->refused &= ~(uint32_t)mask;
        have = mr_register(cache, mr, mask, err);
    }
    return have;
}

static int type_is_known(int type)
{
    return type == IB_PTR_HOST || type == IB_PTR_CUDA || type == IB_PTR_DMABUF;
}

/* Fills what is looked for; -1 with errno. DMA-BUF keeps its exact extent: the exporter knows no pages of ours. */
static int key_make(const struct ib_mr_cache *cache, struct ib_mr *key, void *addr, size_t len, int type,
                    uint64_t offset, int fd)
{
    uintptr_t begin = (uintptr_t)addr, end;

    if (len == 0)
        len = 1;
    if (addr == NULL || !type_is_known(type) || begin + len < begin || (type == IB_PTR_DMABUF && fd < 0)) {
        errno = EINVAL;
        return -1;
    }
    end = begin + len;
    if (fd < 0) {
        begin -= begin % cache->page;
        if (end % cache->page)
            end += cache->page - end % cache->page;
        if (end < begin) {
            errno = EINVAL;
            return -1;
        }
    }
    key->addr = begin;
    key->len = end - begin;
    key->type = type;
    key->dmabuf_fd = fd;
    key->dmabuf_offset = offset;
    return 0;
}

/*
 * Must hold the lock. Covering is enough. Memory that came through a DMA-BUF and memory that did not are different even
 * at the same address; the fd itself says nothing: the same memory comes with another one each time.
 */
static struct ib_mr *mr_find(struct ib_mr_cache *cache, const struct ib_mr *key)
{
    struct ib_mr *m;

    for (m = cache->head; m != NULL; m = m->next) {
        if (m->type == key->type && (m->dmabuf_fd >= 0) == (key->dmabuf_fd >= 0) && m->addr <= key->addr &&
            m->addr + m->len >= key->addr + key->len && !atomic_load_explicit(&m->left, memory_order_relaxed))
            return m;
    }
    return NULL;
}

/* Must hold the lock. NULL with errno. */
static struct ib_mr *mr_create(struct ib_mr_cache *cache, const struct ib_mr *key, uint64_t mask)
{
    struct ib_mr *mr = calloc(1, sizeof(*mr));
    int err = ENODEV; /* when there was no NIC to try */

    if (mr == NULL)
        return NULL;
    mr->addr = key->addr;
    mr->len = key->len;
    mr->type = key->type;
    mr->dmabuf_offset = key->dmabuf_offset;
    mr->dmabuf_fd = -1;
    if (key->dmabuf_fd >= 0) {
        mr->dmabuf_fd = fcntl(key->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
        if (mr->dmabuf_fd < 0) {
            free(mr);
            return NULL;
        }
    }
    if (mr_register(cache, mr, mask, &err) == 0) {
        mr_deregister(cache, mr);
        free(mr);
        errno = err;
        return NULL;
    }
    ib_mr_pin(mr);
    mr->next = cache->head;
    cache->head = mr;
    cache->stats.live++;
    return mr;
}

struct ib_mr *ib_mr_get(struct ib_mr_cache *cache, void *addr, size_t len, int type, uint64_t offset, int fd,
                        uint64_t nic_mask)
{
    struct ib_mr key, *mr;
    int err = ENODEV;

    if (nic_mask == 0) {
        errno = EINVAL;
        return NULL;
    }
    if (key_make(cache, &key, addr, len, type, offset, fd) != 0)
        return NULL;
    pthread_mutex_lock(&cache->lock);
    mr = mr_find(cache, &key);
    if (mr == NULL) {
        mr = mr_create(cache, &key, nic_mask);
    } else if (mr_widen(cache, mr, nic_mask, &err) == 0) {
        mr = NULL; /* it stands on other NICs, on none of these */
        errno = err;
    } else {
        cache->stats.hits++;
    }
    if (mr != NULL)
        mr->refs++;
    pthread_mutex_unlock(&cache->lock);
    return mr;
}

uint32_t ib_mr_cache_refused(struct ib_mr_cache *cache)
{
    return atomic_load_explicit(&cache->refused, memory_order_relaxed);
}

/*
 * The entry leaves the list and its registrations go under one hold of the lock: a get in between would find memory
 * that is about to be let go.
 */
static void put_locked(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    struct ib_mr **p;

    if (mr->refs > 0 && --mr->refs == 0) {
        for (p = &cache->head; *p != mr; p = &(*p)->next) {
        }
        *p = mr->next;
        cache->stats.live--;
        mr_deregister(cache, mr);
        ib_mr_unpin(mr);
    }
}

void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    if (mr == NULL)
        return;
    pthread_mutex_lock(&cache->lock);
    put_locked(cache, mr);
    pthread_mutex_unlock(&cache->lock);
}

int ib_mr_put_known(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    struct ib_mr *m;

    pthread_mutex_lock(&cache->lock);
    for (m = cache->head; m != NULL && m != mr; m = m->next) {
    }
    if (m != NULL)
        put_locked(cache, m);
    pthread_mutex_unlock(&cache->lock);
    return m != NULL ? 0 : -1;
}

void ib_mr_pin(struct ib_mr *mr)
{
    atomic_fetch_add_explicit(&mr->pins, 1, memory_order_relaxed);
}

/* Release: what others did with it comes before the end; acquire: the end after that. */
void ib_mr_unpin(struct ib_mr *mr)
{
    if (atomic_fetch_sub_explicit(&mr->pins, 1, memory_order_acq_rel) == 1)
        free(mr);
}

void ib_mr_leave(struct ib_mr *mr)
{
    atomic_store_explicit(&mr->left, 1, memory_order_relaxed);
}

void ib_mr_cache_stats(struct ib_mr_cache *cache, struct ib_mr_stats *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->stats;
    pthread_mutex_unlock(&cache->lock);
}
