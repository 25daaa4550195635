#include "r2_pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* 0: too much. */
static size_t whole_pages(size_t len)
{
    long n = sysconf(_SC_PAGESIZE);
    size_t page = n > 0 ? (size_t)n : 4096;

    return len > SIZE_MAX - page ? 0 : (len + page - 1) / page * page;
}

void *r2_pages_get(size_t len)
{
    void *mem =
        mmap(NULL, whole_pages(len), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mem == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    return mem;
}

void r2_pages_put(void *mem, size_t len)
{
    if (mem) {
        munmap(mem, whole_pages(len));
    }
}
