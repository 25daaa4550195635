#include "ib_mr_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_log.h"

#define POLL_NS 20000000ull /* between two checks of a NIC that may be behind */

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
    if (cache->nics->nic[nic].last && mr->type != IB_PTR_HOST) {
        /* by its address, however NICs reach it: its bytes are copied */
        return v->reg_mr(pd, addr, mr->len, access | IB_ACCESS_GPU);
    }
    if (mr->dmabuf) {
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

/* What register_one() made, if the NIC reaches the memory, too. NULL with errno. */
static struct ibv_mr *reached(struct ib_mr_cache *cache, const struct ib_mr *mr, int nic,
                              struct ibv_mr *m)
{
    int rc;

    if (m == NULL || mr->type == IB_PTR_HOST || cache->reaches == NULL ||
        cache->nics->nic[nic].last) {
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

/* Lock held. The descriptor keeps memory, and is one of few: it goes as soon as nobody asks. */
static void fd_settle(struct ib_mr_entry *e)
{
    if (e->askers == 0 && !e->pending && e->mr.dmabuf_fd >= 0) {
        close(e->mr.dmabuf_fd);
        e->mr.dmabuf_fd = -1;
    }
}

/* Lock held. 0, or errno. */
static int fd_take(struct ib_mr_entry *e, const struct ib_mr *key)
{
    if (e->mr.dmabuf_fd < 0) {
        e->mr.dmabuf_fd = fcntl(key->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
        e->mr.dmabuf_offset = key->dmabuf_offset;
    }
    return e->mr.dmabuf_fd < 0 ? errno : 0;
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
static void register_note(struct ib_mr_cache *cache, struct ib_mr_entry *e, int nic,
                          struct ibv_mr *m, int err, uint64_t took)
{
    if (m != NULL) {
        cache->stats.registrations++;
        if (!cache->nics->nic[nic].last) { /* it makes none wait, which says nothing of drivers */
            e->took = e->took && e->took < took ? e->took : took;
        }
        atomic_store_explicit(&e->mr.mr[nic], m, memory_order_release);
        ib_mr_changed(&e->mr);
        return;
    }
    e->err = err;
    e->mr.refused |= 1u << nic;
    if (cache->nics->nic[nic].last) {
        return; /* of the one of last resort, nobody expected it */
    }
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
    struct ib_mr_entry *e = j->e;
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
    struct ib_mr_entry *e = j->e;
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
static void job_begin(struct ib_mr_cache *cache, struct ib_mr_entry *e, int nic,
                      void (*run)(struct ib_mr_job *), struct ibv_mr *m)
{
    e->job[nic] = (struct mr_job){
        .job = {.run = run, .took = &e->took}, .cache = cache, .e = e, .nic = nic, .m = m};
    ib_mr_pin(&e->mr);
    ib_mr_work_submit(&cache->work, nic, &e->job[nic].job);
}

/*
 * Lock held. On how many NICs of @mask it is registered. One of last resort counts where there is
 * no other, or all others are dead: what RDMA refuses is refused, so that the job ends with a
 * reason, as without it.
 */
static int have(const struct ib_mr_cache *cache, const struct ib_mr_entry *e, uint64_t mask)
{
    int rdma = 0, last = 0;
    bool owed = false;

    for (int i = 0; i < cache->nics->count; i++) {
        bool there =
            (mask >> i & 1) && atomic_load_explicit(&e->mr.mr[i], memory_order_relaxed) != NULL;

        if (cache->nics->nic[i].last) {
            last += there;
        } else {
            rdma += there;
            owed = owed || ((((e->mr.refused | e->pending) & mask) >> i & 1) &&
                            nic_is_usable(cache->nics, i));
        }
    }
    return rdma || owed ? rdma : last;
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

uint32_t ib_mr_entry_wait(struct ib_mr_cache *cache, struct ib_mr_entry *e, const uint32_t *left,
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
static uint32_t register_begin(struct ib_mr_cache *cache, struct ib_mr_entry *e, uint64_t mask)
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

bool ib_mr_entry_will_ask(const struct ib_mr_cache *cache, const struct ib_mr_entry *e,
                          uint64_t mask)
{
    for (int i = 0; i < cache->nics->count; i++) {
        if ((mask >> i & 1) && nic_is_usable(cache->nics, i) &&
            !((e->pending | e->mr.refused) >> i & 1) &&
            atomic_load_explicit(&e->mr.mr[i], memory_order_relaxed) == NULL) {
            return true;
        }
    }
    return have(cache, e, mask) == 0; /* those that refused are asked once more */
}

/* Lock held. ib_mr_entry_register() of what has its descriptor, if it needs one. */
static int ask(struct ib_mr_cache *cache, struct ib_mr_entry *e, uint64_t mask, int *err)
{
    uint32_t requested = register_begin(cache, e, mask), again, late;
    int n;

    late = ib_mr_entry_wait(cache, e, &e->pending, (uint32_t)mask);
    n = have(cache, e, mask);
    again = n ? 0 : e->mr.refused & (uint32_t)mask & ~requested;
    if (again) {
        e->mr.refused &= ~again;
        register_begin(cache, e, mask);
        late = ib_mr_entry_wait(cache, e, &e->pending, (uint32_t)mask);
        n = have(cache, e, mask);
    }
    *err = late ? ETIMEDOUT : e->mr.refused & mask ? e->err : ENODEV;
    return n;
}

int ib_mr_entry_register(struct ib_mr_cache *cache, struct ib_mr_entry *e, uint64_t mask,
                         const struct ib_mr *key, int *err)
{
    int n;

    if (e->mr.dmabuf && ib_mr_entry_will_ask(cache, e, mask) && (*err = fd_take(e, key)) != 0) {
        return have(cache, e, mask);
    }
    e->askers++;
    n = ask(cache, e, mask, err);
    e->askers--;
    fd_settle(e);
    return n;
}

void ib_mr_entry_drop(struct ib_mr_cache *cache, struct ib_mr_entry *e)
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
