/*
 * Memory registration on every NIC that may carry the buffer, with a reference-counted cache.
 *
 * NCCL registers the same pool once per connection, and from the service thread while the progress
 * thread posts: the cache has one lock, under which no driver is called, and the handle is read
 * without it (its per-NIC pointers only go from NULL to an MR while it is referenced).
 */
#ifndef IB_MR_H
#define IB_MR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ib_device.h"

struct ib_mr_cache;

/* A buffer registered by NCCL. Owned by the cache, referenced by the caller between get and put. */
struct ib_mr {
    uintptr_t addr; /* page-rounded extent of host memory; exact for DMA-BUF */
    size_t len;
    int type;      /* IB_PTR_* */
    bool dmabuf;   /* it came through a DMA-BUF */
    int dmabuf_fd; /* our dup while NICs are asked, else -1: descriptors are few. Under the lock,
                      and read by who is asked */
    uint64_t dmabuf_offset; /* in @dmabuf_fd; as that */
    int refs;               /* under the cache's lock */
    _Atomic uint8_t
        left; /* who had a reference has ended without dropping it: found no more. relaxed */
    _Atomic int pins; /* who may read it, the cache's references as one: the last one frees it */
    uint32_t refused; /* NICs that could not register it; under the cache's lock */
    /* of the registrations as they are: another number whenever one of @mr has changed, and none
     * that any other handle has or had. Release behind @mr, acquire before it */
    _Atomic uint64_t version;
    _Atomic(struct ibv_mr *) mr[IB_MAX_NICS]; /* release at registration, acquire at use */
    struct ib_mr *next;
};

/*
 * @threads 0: calls into drivers are made by who needs them (simulation), else by a thread for
 * each NIC. NULL with errno.
 */
struct ib_mr_cache *ib_mr_cache_create(struct ib_nics *nics, int threads);
/*
 * Drops what is left; errors ignored. Returns a bit for each NIC whose driver has not come back
 * after @limit_ns: then the cache and @nics must stay for the life of the process, since it may
 * still come back.
 */
uint64_t ib_mr_cache_destroy(struct ib_mr_cache *cache, uint64_t limit_ns);

/*
 * @reaches is called for memory of a GPU that NIC nic has just registered, as m. It returns 0 to
 * use it; errno: the registration is taken back, as if the NIC had refused it. From threads of
 * several NICs at once; may block as long as a registration may. Before the first ib_mr_get().
 */
void ib_mr_cache_reaches_set(struct ib_mr_cache *cache,
                             int (*reaches)(void *arg, int nic, const struct ib_mr *mr,
                                            const struct ibv_mr *m),
                             void *arg);

/*
 * Registers [addr, addr+len) on every NIC in @nic_mask that is not FATAL or GONE, or finds a
 * registration that covers it (host memory: page rounded, sub-ranges accepted; the lookup is by
 * address, length and type, never by fd) and adds the NICs it lacks, to one that came through a
 * DMA-BUF if it has the same extent. A NIC that cannot register is left out with one INFO line per
 * NIC and buffer; only when *no* NIC could, or on a bad argument, it fails: NULL with errno. len 0
 * is treated as one byte. @fd is the caller's: it is dup()ed for as long as a NIC is asked.
 * Relaxed ordering as configured, through reg_mr_iova2 where there is one. Thread: any. Waits for
 * all NICs at once; for one whose driver does not come back 25 T_fence longer than the others take,
 * and no more until it does: its key is 0 until then. Where no other NIC of @nic_mask has it,
 * T_give_up at most, and then it fails with ETIMEDOUT.
 */
struct ib_mr *ib_mr_get(struct ib_mr_cache *cache, void *addr, size_t len, int type,
                        uint64_t offset, int fd, uint64_t nic_mask);

/* NICs that could not register some buffer so far, bit per NIC. Any thread; takes no lock. */
uint32_t ib_mr_cache_refused(struct ib_mr_cache *cache);

/*
 * Whether a get with these arguments, which returned @mr, was of all of it; false: of a part. Any
 * thread; takes no lock, while the caller has a reference.
 */
bool ib_mr_is_whole(const struct ib_mr_cache *cache, const struct ib_mr *mr, void *addr, size_t len,
                    int type, int fd);

/* Drops a reference; with the last one every registration is really taken away, but for one on a
 * NIC whose driver does not come back: it is counted, and ends when that does. Waits as get does.
 * NULL is accepted, and a pinned one that has no reference any more. Dead devices are ignored.
 * What was let go may be other memory soon, with pages that the NIC does not have: where references
 * are left of which none is known to be of all of @mr, it stands for new ones no more. */
void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr);
/* The same for a reference that was of a part (ib_mr_is_whole), which the caller knows: @mr is
 * found for the next part, too, as NCCL 2.20 to 2.23 registers for each operation. It must not be
 * that of a whole: memory that takes its place would be found in @mr. */
void ib_mr_put_part(struct ib_mr_cache *cache, struct ib_mr *mr);
/* The same for a pointer that may be none of the cache's: -1 then, and nothing is touched. */
int ib_mr_put_known(struct ib_mr_cache *cache, struct ib_mr *mr);
/*
 * Whether the next put is the last: 1, and @mr stands for new ones no more; 0; -1: @mr is none of
 * the cache's.
 */
int ib_mr_last(struct ib_mr_cache *cache, struct ib_mr *mr);
/*
 * A reference that is never dropped (P27): @mr stays registered, is counted, and stands for new
 * ones no more. Takes no lock.
 */
void ib_mr_keep(struct ib_mr_cache *cache, struct ib_mr *mr);
/* As long as @mr is pinned it can be read, also when its last reference was dropped by somebody
 * else: it has no registration then. Take no lock. */
void ib_mr_pin(struct ib_mr *mr);
void ib_mr_unpin(struct ib_mr *mr);
/* The caller has references that it will not drop, and its memory may go and others come at its
 * place: @mr stands for new ones no more. Takes no lock. */
void ib_mr_leave(struct ib_mr *mr);

/* Keys on one NIC, 0 when not registered there. Data path: one acquire load. */
static inline uint32_t ib_mr_lkey(struct ib_mr *mr, int nic)
{
    struct ibv_mr *m = atomic_load_explicit(&mr->mr[nic], memory_order_acquire);
    return m ? m->lkey : 0;
}
static inline uint32_t ib_mr_rkey(struct ib_mr *mr, int nic)
{
    struct ibv_mr *m = atomic_load_explicit(&mr->mr[nic], memory_order_acquire);
    return m ? m->rkey : 0;
}

/* As long as this number is the same, ib_mr_rkey() returns the same for each NIC, or newer keys. */
static inline uint64_t ib_mr_version(const struct ib_mr *mr)
{
    return atomic_load_explicit(&mr->version, memory_order_acquire);
}
/* @mr->mr has changed: by who changes it. */
void ib_mr_changed(struct ib_mr *mr);

struct ib_mr_stats {
    uint64_t registrations, hits, failures, kept;
    uint64_t owed; /* of NICs whose driver had not come back when the last reference was dropped */
    uint64_t late; /* registrations that came behind that, and were taken away at once */
    int live;
};
void ib_mr_cache_stats(struct ib_mr_cache *cache, struct ib_mr_stats *out);

#endif
