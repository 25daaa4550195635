/*
 * Memory regions. One key serves as lkey and rkey. The key that was let go last is handed out again
 * first, whole, as mlx5 does: a stale key is a good one from then on. Others vary a part of it,
 * which is kinder.
 */
#ifndef FAB_MR_H
#define FAB_MR_H

#include "fab_nic.h"

struct fab_mr {
    struct fab_pd *pd;
    void *user;
    uint8_t *addr; /* in this process */
    uint64_t iova; /* what work requests and peers call @addr */
    uint64_t len;
    uint32_t key;
    uint64_t serial; /* from 1, never used again */
    int access;
    bool gpu; /* memory of a GPU: set by who registers */
};

/*
 * EINVAL: no length, a range that wraps, remote write or atomic without local write, unknown access
 * bits; ENOMEM: no slot, or fault mr-fail. Whether the range is mapped is the front-end's to check.
 * May allocate. Sets mr->key.
 */
int fab_mr_init(struct fab_mr *mr, struct fab_pd *pd, void *addr, uint64_t len, uint64_t iova,
                int access);
/* Later accesses fail, accepted DMA that was not executed is dropped. Succeeds on dead contexts. */
int fab_mr_fini(struct fab_mr *mr);

/* Of the region that has @key now; 0: none. */
uint64_t fab_mr_serial(const struct fab_nic *nic, uint32_t key);

/*
 * The bytes [@va, @va+@len) under @key for a queue pair on @pd: their address here, or NULL if the
 * key is unknown, of another protection domain, too short, or lacks one of the @access bits. @len 0
 * is never looked up by callers.
 */
/* Whether @key names memory of a GPU that fault gpu-dma-fail keeps the NIC from: find says NULL
 * then.
 */
bool fab_mr_blocked(const struct fab_nic *nic, uint32_t key);

void *fab_mr_find(struct fab_nic *nic, const struct fab_pd *pd, uint32_t key, uint64_t va,
                  uint64_t len, int access);

#endif
