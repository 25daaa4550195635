/* Protection domains and memory regions. */
#include "fab_ibv_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct fab_mr *fab_ibv_mr(struct ibv_mr *mr)
{
    return &((struct fab_ibv_mr *)mr)->m;
}

struct ibv_pd *fab_ibv_alloc_pd(struct ibv_context *ctx)
{
    struct fab_ibv_pd *pd = calloc(1, sizeof *pd);
    int rc = ENOMEM;

    if (pd) {
        fab_ibv_lock(fab_ibv_eng(ctx));
        rc = fab_pd_init(&pd->m, &fab_ibv_ctx_of(ctx)->m);
        fab_ibv_unlock(fab_ibv_eng(ctx));
    }
    if (rc) {
        free(pd);
        errno = rc;
        return NULL;
    }
    pd->ibv.context = ctx;
    return &pd->ibv;
}

int fab_ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct fab_ibv_pd *pd = (struct fab_ibv_pd *)ibv;
    struct fab_engine *e = fab_ibv_eng(ibv->context);
    int rc;

    fab_ibv_lock(e);
    rc = fab_pd_fini(&pd->m);
    fab_ibv_unlock(e);
    if (!rc) {
        free(pd);
    }
    return rc;
}

/* Whether every page of the range is mapped: mincore() fails at the first one that is not, and
 * changes nothing. */
static int mapped(const void *addr, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + len;
    unsigned char resident[4096];
    size_t step = sizeof resident * page;

    if (len == 0 || end < from) {
        return 1; /* the model names what is wrong with these */
    }
    for (; from < end; from += step) {
        if (mincore((void *)from, end - from < step ? end - from : step, resident) != 0) {
            return 0;
        }
        if (end - from <= step) {
            break;
        }
    }
    return 1;
}

/* As long as the driver of @ctx hangs in such calls. Lock held at the end. */
static void lock_unhung(struct fab_engine *e, struct fab_ctx *ctx)
{
    fab_ibv_lock(e);
    while (ctx->nic->mr_hang && !e->never_block) {
        fab_ibv_unlock(e);
        usleep(1000);
        fab_ibv_lock(e);
        fab_ibv_control(ctx, FAB_CALL_QUERY); /* looks for faults */
    }
}

static struct ibv_mr *reg(struct ibv_pd *ibv_pd, void *addr, size_t len, uint64_t iova, int access,
                          struct fab_ibv_mr *mr)
{
    struct fab_ibv_pd *pd = (struct fab_ibv_pd *)ibv_pd;
    struct fab_engine *e = fab_ibv_eng(ibv_pd->context);
    bool gpu;
    int rc;

    lock_unhung(e, pd->m.ctx);
    gpu = e->ops->memory_has && e->ops->memory_has(e, addr, len);
    rc = gpu || mapped(addr, len) ? 0 : EFAULT;
    if (!rc) {
        rc = fab_ibv_control(pd->m.ctx, FAB_CALL_REG_MR);
    }
    if (!rc) {
        rc = fab_mr_init(&mr->m, &pd->m, addr, len, iova, access);
    }
    mr->m.gpu = gpu;
    fab_ibv_unlock(e);
    if (rc) {
        errno = rc;
        return NULL;
    }
    mr->ibv.context = ibv_pd->context;
    mr->ibv.pd = ibv_pd;
    mr->ibv.addr = addr;
    mr->ibv.length = len;
    mr->ibv.handle = mr->m.key >> 8;
    mr->ibv.lkey = mr->ibv.rkey = mr->m.key;
    return &mr->ibv;
}

struct ibv_mr *fab_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                    unsigned int access)
{
    struct fab_ibv_mr *mr = calloc(1, sizeof *mr);
    int rc;

    if (!mr) {
        errno = ENOMEM;
        return NULL;
    }
    rc = fab_ibv_dontfork(addr, len);
    if (rc) {
        free(mr);
        errno = rc;
        return NULL;
    }
    if (!reg(pd, addr, len, iova, (int)access, mr)) {
        rc = errno;
        fab_ibv_dofork(addr, len);
        free(mr);
        errno = rc;
        return NULL;
    }
    return &mr->ibv;
}

struct ibv_mr *fab_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    return fab_ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *fab_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   int access)
{
    return fab_ibv_reg_mr_iova2(pd, addr, len, iova, (unsigned int)access);
}

struct ibv_mr *fab_ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                     int fd, int access)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset & (page - 1);
    struct fab_ibv_mr *mr = calloc(1, sizeof *mr);
    int rc;

    if (!mr) {
        errno = ENOMEM;
        return NULL;
    }
    mr->map_len = len + skip;
    mr->map =
        mmap(NULL, mr->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - skip));
    if (mr->map == MAP_FAILED) {
        rc = errno == EBADF || errno == EINVAL || errno == ENOMEM ? errno : EOPNOTSUPP;
        free(mr);
        errno = rc;
        return NULL;
    }
    if (!reg(pd, (char *)mr->map + skip, len, iova, access, mr)) {
        rc = errno;
        munmap(mr->map, mr->map_len);
        free(mr);
        errno = rc;
        return NULL;
    }
    mr->ibv.addr = NULL;
    return &mr->ibv;
}

int fab_ibv_dereg_mr(struct ibv_mr *ibv)
{
    struct fab_ibv_mr *mr = (struct fab_ibv_mr *)ibv;
    struct fab_engine *e = fab_ibv_eng(ibv->context);
    int rc;

    lock_unhung(e, mr->m.pd->ctx);
    rc = fab_mr_fini(&mr->m);
    fab_ibv_unlock(e);
    if (rc) {
        return rc;
    }
    if (mr->map) {
        munmap(mr->map, mr->map_len);
    } else {
        fab_ibv_dofork(ibv->addr, ibv->length);
    }
    free(mr);
    return 0;
}
