#include "ib_mr.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "ib_mr_work.h"

#define POLL_NS     20000000ull /* between two checks of a NIC that may be behind */
#define LATE_FENCES 25 /* x T_fence: what a call into a driver may take, whatever others took */

/*
 * lock: the list, refs, stats, what is under way. No call into a driver is made under it: those run
 * on a thread for each NIC (ib_mr_work), and who needs them waits, for a NIC that hangs not long.
 * Who uses a handle on the data path does not take it.
 */
struct ib_mr_cache {
    struct ib_nics *nics;
    pthread_mutex_t lock;
    struct ib_mr_work work;
    struct ib_mr *head;
    struct ib_mr_stats stats;
    uintptr_t page;
    int relaxed;              /* IBV_ACCESS_RELAXED_ORDERING or 0 */
    _Atomic uint32_t refused; /* NICs that have refused some buffer; relaxed: a hint */
    int (*reaches)(void *arg, int nic, const struct ib_mr *mr,
                   const struct ibv_mr *m); /* const after init */
    void *reaches_arg;
    struct ib_mr_cache *next_left;
    _Atomic uint64_t kept; /* relaxed: a count */
};

/*
 * One NIC's job for an entry: at most one at a time, and a registration that nobody waits for any
 * more ends by itself.
 */
struct mr_job {
    struct ib_mr_job job; /* first */
    struct ib_mr_cache *cache;
    struct entry *e;
    int nic;
    struct ibv_mr *m; /* to be deregistered */
};

/* What the cache alone knows of a registration. */
struct entry {
    struct ib_mr mr;  /* first: freed as such */
    uint32_t pending; /* NICs on which it is being registered */
    uint32_t leaving; /* ... deregistered */
    uint8_t gone;     /* no reference is left */
    uint8_t mixed;    /* stood for a part of itself, too: which reference is of what is not known.
                         The cache's lock */
    int err;          /* errno of the last NIC that refused */
    uint64_t took;    /* ns: the shortest registration of it; 0: none has ended */
    struct mr_job job[];
};

/* Caches with a thread that never came back from a driver: found by leak checkers here. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_mr_cache *left_behind;

static struct entry *entry_of(struct ib_mr *mr)
{
    return (struct entry *)mr;
}

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

static bool nic_is_usable(const struct ib_nics *nics, int nic)
{
    enum ib_nic_state s = ib_nic_state_get(&nics->nic[nic]);

    return s != IB_NIC_FATAL && s != IB_NIC_GONE;
}

static struct ibv_mr *register_one(struct ib_mr_cache *cache, const struct ib_mr *mr, int nic)
{
    const struct ib_verbs *v = cache->nics->v;
    struct ibv_pd *pd = cache->nics->nic[nic].pd;
    int access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | cache->relaxed;
    void *addr = (void *)mr->addr;

    errno = 0;
    if (mr->dmabuf_fd >= 0) {
        if (v->reg_dmabuf_mr != NULL) {
            return v->reg_dmabuf_mr(pd, mr->dmabuf_offset, mr->len, mr->addr, mr->dmabuf_fd,
                                    access);
        }
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (cache->relaxed) {
        return v->reg_mr_iova2(pd, addr, mr->len, mr->addr, (unsigned)access);
    }
    return v->reg_mr(pd, addr, mr->len, access);
}

void ib_mr_cache_reaches_set(struct ib_mr_cache *cache,
                             int (*reaches)(void *arg, int nic, const struct ib_mr *mr,
                                            const struct ibv_mr *m),
                             void *arg)
{
    cache->reaches = reaches;
    cache->reaches_arg = arg;
}

/* What register_one() made, if the NIC reaches the memory, too. NULL with errno. */
static struct ibv_mr *reached(struct ib_mr_cache *cache, const struct ib_mr *mr, int nic,
                              struct ibv_mr *m)
{
    int rc;

    if (m == NULL || mr->type == IB_PTR_HOST || cache->reaches == NULL) {
        return m;
    }
    rc = cache->reaches(cache->reaches_arg, nic, mr, m);
    if (rc == 0) {
        return m;
    }
    cache->nics->v->dereg_mr(m);
    errno = rc;
    return NULL;
}

/* --- jobs: on the NIC's thread --- */

/* Lock held. The descriptor keeps memory: it goes as soon as nobody can need it. */
static void fd_settle(struct entry *e)
{
    if (e->gone && !e->pending && e->mr.dmabuf_fd >= 0) {
        close(e->mr.dmabuf_fd);
        e->mr.dmabuf_fd = -1;
    }
}

static void deregister_one(const struct ib_mr_cache *cache, int nic, struct ibv_mr *m)
{
    /*
     * On a FATAL device no call is made: its context, and with it the pin, goes with the process.
     */
    if (ib_nic_state_get(&cache->nics->nic[nic]) != IB_NIC_FATAL) {
        cache->nics->v->dereg_mr(m);
    }
}

/*
 * Lock held. What came of a registration. Release: whoever reads the pointer without the lock
 * sees the whole MR.
 */
static void register_note(struct ib_mr_cache *cache, struct entry *e, int nic, struct ibv_mr *m,
                          int err, uint64_t took)
{
    if (m != NULL) {
        cache->stats.registrations++;
        e->took = e->took && e->took < took ? e->took : took;
        atomic_store_explicit(&e->mr.mr[nic], m, memory_order_release);
        ib_mr_changed(&e->mr);
        return;
    }
    e->err = err;
    e->mr.refused |= 1u << nic;
    atomic_fetch_or_explicit(&cache->refused, 1u << nic, memory_order_relaxed);
    cache->stats.failures++;
    R2_INFO("buffer %p + %zu cannot be registered on NIC %s: %s", (void *)e->mr.addr, e->mr.len,
            cache->nics->nic[nic].name, strerror(err));
}

/*
 * Nobody knows the key before it is noted: a registration that comes too late is taken away by
 * who made it.
 */
static void run_register(struct ib_mr_job *job)
{
    struct mr_job *j = (struct mr_job *)job;
    struct ib_mr_cache *cache = j->cache;
    struct entry *e = j->e;
    struct ibv_mr *m = NULL;
    uint64_t since = ib_mr_work_now();
    int nic = j->nic, wanted, called = 0, err = 0;

    pthread_mutex_lock(&cache->lock);
    wanted = !e->gone;
    pthread_mutex_unlock(&cache->lock);
    if (wanted && nic_is_usable(cache->nics, nic)) {
        called = 1;
        m = reached(cache, &e->mr, nic, register_one(cache, &e->mr, nic));
        err = m ? 0 : errno ? errno : EIO;
    }
    pthread_mutex_lock(&cache->lock);
    if (m != NULL && e->gone) {
        cache->stats.late++;
        pthread_mutex_unlock(&cache->lock);
        deregister_one(cache, nic, m);
        pthread_mutex_lock(&cache->lock);
    } else if (called && !e->gone) {
        register_note(cache, e, nic, m, err, ib_mr_work_now() - since + 1);
    }
    e->pending &= ~(1u << nic);
    fd_settle(e);
    ib_mr_work_ended(&cache->work, nic);
    ib_mr_unpin(&e->mr);
    pthread_mutex_unlock(&cache->lock);
}

static void run_deregister(struct ib_mr_job *job)
{
    struct mr_job *j = (struct mr_job *)job;
    struct ib_mr_cache *cache = j->cache;
    struct entry *e = j->e;
    int nic = j->nic;

    deregister_one(cache, nic, j->m);
    pthread_mutex_lock(&cache->lock);
    e->leaving &= ~(1u << nic);
    ib_mr_work_ended(&cache->work, nic);
    ib_mr_unpin(&e->mr);
    pthread_mutex_unlock(&cache->lock);
}

/* --- who waits for them --- */

/* Lock held. The entry stays as long as the job is not through. */
static void job_begin(struct ib_mr_cache *cache, struct entry *e, int nic,
                      void (*run)(struct ib_mr_job *), struct ibv_mr *m)
{
    e->job[nic] = (struct mr_job){
        .job = {.run = run, .took = &e->took}, .cache = cache, .e = e, .nic = nic, .m = m};
    ib_mr_pin(&e->mr);
    ib_mr_work_submit(&cache->work, nic, &e->job[nic].job);
}

/* Lock held. On how many NICs of @mask it is registered. */
static int have(const struct ib_mr_cache *cache, struct entry *e, uint64_t mask)
{
    int n = 0;

    for (int i = 0; i < cache->nics->count; i++) {
        n += (mask >> i & 1) && atomic_load_explicit(&e->mr.mr[i], memory_order_relaxed) != NULL;
    }
    return n;
}

/* Lock held. One line for each time that a driver is left alone with its call. */
static void log_behind(struct ib_mr_cache *cache, uint32_t nics)
{
    for (; nics; nics &= nics - 1) {
        int i = __builtin_ctz(nics);

        if (!cache->work.line[i].logged && nic_is_usable(cache->nics, i)) {
            cache->work.line[i].logged = 1;
            R2_WARN(
                "NIC %s: its driver has not come back from registering memory for %llu ms: going on without it",
                cache->nics->nic[i].name,
                (unsigned long long)(ib_mr_work_runs(&cache->work, i) / 1000000));
        }
    }
}

/*
 * Lock held. Waits until the bits of *left are gone, or enough: for those of a NIC whose driver
 * does not come back no longer than it takes to see that, unless it is being registered and no
 * other has it. Returns the NICs that are left.
 */
static uint32_t wait_for(struct ib_mr_cache *cache, struct entry *e, const uint32_t *left,
                         uint32_t mask)
{
    uint64_t since = ib_mr_work_now(), limit = (uint64_t)cache->nics->cfg->t_give_up_ms * 1000000;
    uint32_t now;

    while ((now = *left & mask) != 0) {
        uint32_t behind = 0, stuck = 0;

        for (int i = 0; i < cache->nics->count; i++) {
            if (!(now >> i & 1)) {
                continue;
            }
            behind |= (uint32_t)ib_mr_work_behind(&cache->work, i) << i;
            stuck |= (uint32_t)(ib_mr_work_runs(&cache->work, i) >= limit) << i;
        }
        if (now == behind && (left == &e->leaving || have(cache, e, mask))) {
            stuck = now;
        }
        if (now == stuck || ib_mr_work_now() - since >= limit) {
            log_behind(cache, now);
            break;
        }
        ib_mr_work_wait(&cache->work, POLL_NS);
    }
    return now;
}

/*
 * Lock held. Begins what @mask lacks, but for NICs that refused. Returns the NICs that were
 * asked.
 */
static uint32_t register_begin(struct ib_mr_cache *cache, struct entry *e, uint64_t mask)
{
    uint32_t requested = 0;

    for (int i = 0; i < cache->nics->count; i++) {
        if (!(mask >> i & 1) || ((e->pending | e->mr.refused) >> i & 1) ||
            !nic_is_usable(cache->nics, i) ||
            atomic_load_explicit(&e->mr.mr[i], memory_order_relaxed) != NULL) {
            continue;
        }
        e->pending |= 1u << i;
        requested |= 1u << i;
        job_begin(cache, e, i, run_register, NULL);
    }
    return requested;
}

/*
 * Lock held. On how many NICs of @mask it is registered when all have answered that do. One that
 * refused before is asked again only when there is no other. *err: why none.
 */
static int mr_register(struct ib_mr_cache *cache, struct entry *e, uint64_t mask, int *err)
{
    uint32_t requested = register_begin(cache, e, mask), again, late;
    int n;

    late = wait_for(cache, e, &e->pending, (uint32_t)mask);
    n = have(cache, e, mask);
    again = n ? 0 : e->mr.refused & (uint32_t)mask & ~requested;
    if (again) {
        e->mr.refused &= ~again;
        register_begin(cache, e, mask);
        late = wait_for(cache, e, &e->pending, (uint32_t)mask);
        n = have(cache, e, mask);
    }
    *err = late ? ETIMEDOUT : e->mr.refused & mask ? e->err : ENODEV;
    return n;
}

/* Lock held. No reference is left: nobody finds it any more, and its registrations go. */
static void mr_drop(struct ib_mr_cache *cache, struct entry *e)
{
    struct ib_mr **p;

    for (p = &cache->head; *p != &e->mr; p = &(*p)->next) {
    }
    *p = e->mr.next;
    cache->stats.live--;
    e->gone = 1;
    for (int i = 0; i < cache->nics->count; i++) {
        struct ibv_mr *m = atomic_exchange_explicit(&e->mr.mr[i], NULL, memory_order_relaxed);
        if (m != NULL && ib_nic_state_get(&cache->nics->nic[i]) != IB_NIC_FATAL) {
            e->leaving |= 1u << i;
            job_begin(cache, e, i, run_deregister, m);
        }
    }
    ib_mr_changed(&e->mr);
    fd_settle(e);
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
    key->dmabuf_fd = fd;
    key->dmabuf_offset = offset;
    return 0;
}

/*
 * Must hold the lock. Covering is enough. Memory that came through a DMA-BUF and memory that did
 * not are different even at the same address; the fd itself says nothing: the same memory comes
 * with another one each time.
 */
static struct ib_mr *mr_find(struct ib_mr_cache *cache, const struct ib_mr *key)
{
    struct ib_mr *m;

    for (m = cache->head; m != NULL; m = m->next) {
        if (m->type == key->type && (m->dmabuf_fd >= 0) == (key->dmabuf_fd >= 0) &&
            m->addr <= key->addr && m->addr + m->len >= key->addr + key->len &&
            !atomic_load_explicit(&m->left, memory_order_relaxed)) {
            return m;
        }
    }
    return NULL;
}

/* Must hold the lock. In the list, registered nowhere, without a reference. NULL with errno. */
static struct ib_mr *mr_create(struct ib_mr_cache *cache, const struct ib_mr *key)
{
    struct entry *e = calloc(1, sizeof(*e) + (size_t)cache->nics->count * sizeof(e->job[0]));
    struct ib_mr *mr = &e->mr;

    if (e == NULL) {
        return NULL;
    }
    mr->addr = key->addr;
    mr->len = key->len;
    mr->type = key->type;
    mr->dmabuf_offset = key->dmabuf_offset;
    mr->dmabuf_fd = -1;
    if (key->dmabuf_fd >= 0) {
        mr->dmabuf_fd = fcntl(key->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
        if (mr->dmabuf_fd < 0) {
            free(e);
            return NULL;
        }
    }
    ib_mr_changed(mr);
    ib_mr_pin(mr);
    mr->next = cache->head;
    cache->head = mr;
    cache->stats.live++;
    return mr;
}

/*
 * Lock held. A reference less. With the last one the caller waits until no NIC has the memory
 * any more, but for one whose driver does not come back: that registration is counted, and ends
 * when the driver does.
 */
static void put_locked(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    struct entry *e = entry_of(mr);
    uint32_t late;

    if (mr->refs == 0) {
        return;
    }
    if (--mr->refs > 0) {
        if (e->mixed) {
            ib_mr_leave(
                mr); /* what was let go may be other memory soon, which the NIC does not have */
        }
        return;
    }
    mr_drop(cache, e);
    late = wait_for(cache, e, &e->leaving, UINT32_MAX);
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
    mr = mr_find(cache, &key);
    hit = mr != NULL;
    if (!hit && (mr = mr_create(cache, &key)) == NULL) {
        pthread_mutex_unlock(&cache->lock);
        return NULL;
    }
    entry_of(mr)->mixed |= key.addr != mr->addr || key.len != mr->len;
    mr->refs++; /* before the lock is let go */
    if (mr_register(cache, entry_of(mr), nic_mask, &err) == 0) {
        put_locked(cache, mr);
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

void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr)
{
    if (mr == NULL) {
        return;
    }
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
    if (m != NULL) {
        put_locked(cache, m);
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

        mr_drop(cache, entry_of(mr));
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
