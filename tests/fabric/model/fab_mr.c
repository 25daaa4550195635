/* Protection domains and memory regions. */
#include "fab_mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS_KNOWN                                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                       \
     IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE)
/* Bits this device would have to honour to accept them. */
#define ACCESS_REFUSED (IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED)

int fab_pd_init(struct fab_pd *pd, struct fab_ctx *ctx)
{
    int rc = fab_ctx_check(ctx);

    if (rc) {
        return rc;
    }
    if (ctx->nic->npds >= FAB_MAX_PD) {
        return ENOMEM;
    }
    ctx->nic->npds++;
    *pd = (struct fab_pd){.ctx = ctx};
    return 0;
}

int fab_pd_fini(struct fab_pd *pd)
{
    if (pd->refs) {
        return EBUSY;
    }
    pd->ctx->nic->npds--;
    return 0;
}

static int grow(struct fab_nic *nic)
{
    uint32_t want = nic->mr_slots ? nic->mr_slots * 2 : 64;
    struct fab_mr **mr = realloc(nic->mr, want * sizeof *mr);
    uint32_t *spare;

    if (!mr) {
        return ENOMEM;
    }
    nic->mr = mr;
    spare = realloc(nic->mr_free, want * sizeof *spare);
    if (!spare) {
        return ENOMEM;
    }
    nic->mr_free = spare;
    memset(mr + nic->mr_slots, 0, (want - nic->mr_slots) * sizeof *mr);
    nic->mr_slots = want;
    return 0;
}

static int check(const struct fab_mr *mr)
{
    if (mr->len == 0 || (uintptr_t)mr->addr + mr->len < (uintptr_t)mr->addr ||
        mr->iova + mr->len < mr->iova) {
        return EINVAL;
    }
    if (mr->access & ~ACCESS_KNOWN) {
        return EINVAL;
    }
    if (mr->access & ACCESS_REFUSED) {
        return EOPNOTSUPP;
    }
    if (mr->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
        !(mr->access & IBV_ACCESS_LOCAL_WRITE)) {
        return EINVAL;
    }
    return 0;
}

/* The variant of a new key counts keys; one that was let go comes back whole, as from the cache of
 * mlx5. */
static int take_key(struct fab_nic *nic, uint32_t *key)
{
    int rc;

    if (nic->mr_nfree) {
        *key = nic->mr_free[--nic->mr_nfree];
        return 0;
    }
    if (nic->mr_used == nic->mr_slots && (rc = grow(nic))) {
        return rc;
    }
    *key = nic->mr_used << 8 | (nic->mr_used % 255 + 1);
    nic->mr_used++;
    return 0;
}

int fab_mr_init(struct fab_mr *mr, struct fab_pd *pd, void *addr, uint64_t len, uint64_t iova,
                int access)
{
    struct fab_nic *nic = pd->ctx->nic;
    int rc = fab_ctx_check(pd->ctx);

    *mr = (struct fab_mr){.pd = pd, .addr = addr, .len = len, .iova = iova, .access = access};
    if (!rc) {
        rc = check(mr);
    }
    if (rc) {
        return rc;
    }
    if (nic->mr_fail) {
        nic->mr_fail -= nic->mr_fail != UINT32_MAX;
        return ENOMEM;
    }
    if (nic->nmrs >= FAB_MAX_MR) {
        return ENOMEM;
    }
    rc = take_key(nic, &mr->key);
    if (rc) {
        return rc;
    }
    mr->serial = ++nic->mr_serial;
    nic->mr[mr->key >> 8] = mr;
    nic->nmrs++;
    pd->refs++;
    return 0;
}

int fab_mr_fini(struct fab_mr *mr)
{
    struct fab_nic *nic = mr->pd->ctx->nic;

    nic->mr[mr->key >> 8] = NULL;
    nic->mr_free[nic->mr_nfree++] = mr->key;
    nic->nmrs--;
    mr->pd->refs--;
    return 0;
}

bool fab_mr_blocked(const struct fab_nic *nic, uint32_t key)
{
    uint32_t slot = key >> 8;

    return nic->gpu_dma_fail && slot < nic->mr_slots && nic->mr[slot] &&
           nic->mr[slot]->key == key && nic->mr[slot]->gpu;
}

void *fab_mr_find(struct fab_nic *nic, const struct fab_pd *pd, uint32_t key, uint64_t va,
                  uint64_t len, int access)
{
    uint32_t slot = key >> 8;
    const struct fab_mr *mr = slot < nic->mr_slots ? nic->mr[slot] : NULL;

    if (!mr || mr->key != key || mr->pd != pd || (mr->access & access) != access) {
        return NULL;
    }
    if (va < mr->iova || len > mr->len || va - mr->iova > mr->len - len) {
        return NULL;
    }
    if (nic->gpu_dma_fail && mr->gpu) {
        nic->cnt.gpu_failed++;
        return NULL;
    }
    return mr->addr + (va - mr->iova);
}

uint64_t fab_mr_serial(const struct fab_nic *nic, uint32_t key)
{
    uint32_t slot = key >> 8;
    const struct fab_mr *mr = slot < nic->mr_slots ? nic->mr[slot] : NULL;

    return mr && mr->key == key ? mr->serial : 0;
}
