/*
 * Registered memory and fork, as libibverbs has it before kernel 5.12 where RDMAV_FORK_SAFE is
 * set: the pages of a registration are kept from children (MADV_DONTFORK) until no registration
 * has them any more. Whole pages, whoever else uses the rest of them.
 */
#include "fab_ibv_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    uintptr_t from, end; /* whole pages */
    struct range *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges; /* one per registration */

static bool fork_safe(void)
{
    return getenv("RDMAV_FORK_SAFE") != NULL || getenv("IBV_FORK_SAFE") != NULL;
}

static struct range pages_of(const void *addr, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return (struct range){.from = (uintptr_t)addr / page * page,
                          .end = ((uintptr_t)addr + len + page - 1) / page * page};
}

int fab_ibv_dontfork(const void *addr, size_t len)
{
    struct range *r;

    if (!fork_safe()) {
        return 0;
    }
    r = malloc(sizeof *r);
    if (!r) {
        return ENOMEM;
    }
    *r = pages_of(addr, len);
    if (madvise((void *)r->from, r->end - r->from, MADV_DONTFORK) != 0) {
        free(r);
        return errno;
    }
    pthread_mutex_lock(&lock);
    r->next = ranges;
    ranges = r;
    pthread_mutex_unlock(&lock);
    return 0;
}

static bool has(uintptr_t page)
{
    for (const struct range *r = ranges; r; r = r->next) {
        if (r->from <= page && page < r->end) {
            return true;
        }
    }
    return false;
}

void fab_ibv_dofork(const void *addr, size_t len)
{
    struct range want = pages_of(addr, len), *r, **at = &ranges;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    pthread_mutex_lock(&lock);
    while ((r = *at) != NULL && (r->from != want.from || r->end != want.end)) {
        at = &r->next;
    }
    if (r) {
        *at = r->next;
        free(r);
        for (uintptr_t p = want.from; p < want.end; p += page) {
            if (!has(p)) {
                madvise((void *)p, page, MADV_DOFORK);
            }
        }
    }
    pthread_mutex_unlock(&lock);
}
