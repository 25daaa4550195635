/*
 * The plugin's heap. For this program its objects are linked with malloc and the like renamed to
 * bench_*, so that what they allocate is told from what the fabric and the bench itself allocate.
 * Sizes are those of the heap, rounding and all.
 */
#include "tests/bench/bench.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

int64_t bench_heap[BENCH_HOSTS];
int bench_host;
static const struct duo *heap_duo;

void *bench_malloc(size_t n);
void *bench_calloc(size_t n, size_t size);
void *bench_realloc(void *p, size_t n);
int bench_posix_memalign(void **p, size_t align, size_t n);
void bench_free(void *p);
void *bench_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
int bench_munmap(void *p, size_t n);

void bench_heap_start(struct duo *d)
{
    heap_duo = d;
    bench_heap[0] = bench_heap[1] = 0;
}

static int host_now(void)
{
    return heap_duo && heap_duo->running >= 0 ? heap_duo->running : bench_host;
}

static void *heap_note(void *p, int sign)
{
    if (p) {
        bench_heap[host_now()] += sign * (int64_t)malloc_usable_size(p);
    }
    return p;
}

void *bench_malloc(size_t n)
{
    return heap_note(malloc(n), 1);
}

void *bench_calloc(size_t n, size_t size)
{
    return heap_note(calloc(n, size), 1);
}

void *bench_realloc(void *p, size_t n)
{
    heap_note(p, -1);
    return heap_note(realloc(p, n), 1);
}

int bench_posix_memalign(void **p, size_t align, size_t n)
{
    int rc = posix_memalign(p, align, n);

    if (rc == 0) {
        heap_note(*p, 1);
    }
    return rc;
}

void bench_free(void *p)
{
    heap_note(p, -1);
    free(p);
}

/* Pages of the process's own (r2_pages.h); files are not its heap. */
void *bench_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    void *p = mmap(at, n, prot, flags, fd, off);

    if (p != MAP_FAILED && flags & MAP_ANONYMOUS) {
        bench_heap[host_now()] += (int64_t)n;
    }
    return p;
}

int bench_munmap(void *p, size_t n)
{
    return munmap(p, n);
}
