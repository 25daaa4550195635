/* Memory of the GPUs and of the host, in the stand-in for CUDA's driver. */
#include "tests/gpu/fake/fake_cuda_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

EXPORT int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
EXPORT int cuMemFree_v2(uint64_t ptr);
EXPORT int cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags);
EXPORT int cuMemFreeHost(void *ptr);
EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes);
EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes);
EXPORT int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes);
EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr);
EXPORT int cuMemGetHandleForAddressRange(int *fd, uint64_t ptr, size_t len, int type,
                                         unsigned long long flags);
EXPORT void *fake_cuda_host(const void *ptr);

/* Allocation @k has the addresses from BASE + k * STEP, behind its skew: below where the kernel
 * maps anything unasked. An address is not used twice. */
#define BASE 0x200000000000ull
#define STEP (1ull << 32)
#define MOST 4096
#define PAGE 4096u

#define MEMORY_HOST      1
#define MEMORY_DEVICE    2
#define ATTR_MEMORY_TYPE 2
#define ATTR_ORDINAL     9
#define DMA_BUF_FD       1
#define HOST_PORTABLE    1

static struct {
    char *bytes; /* a mapping of fd, from its beginning; NULL: freed */
    size_t len;
    unsigned skew;
    int fd, gpu;
} memory[MOST];
static int memories;
static struct {
    char *bytes; /* NULL: free */
    size_t len;
    int gpu; /* whose context was current */
} host[MOST];
static int hosts;

void *fake_memory_at(uint64_t ptr, size_t len, int *gpu)
{
    uint64_t k = ptr < BASE ? MOST : (ptr - BASE) / STEP, at;

    if (k >= (uint64_t)memories || memory[k].bytes == NULL) {
        return NULL;
    }
    at = (ptr - BASE) % STEP - memory[k].skew;
    if (len > memory[k].len || at > memory[k].len - len) {
        return NULL;
    }
    *gpu = memory[k].gpu;
    return memory[k].bytes + at;
}

void *fake_bytes_at(uint64_t ptr, size_t len, int *gpu)
{
    *gpu = -1;
    if (ptr < BASE || ptr >= BASE + MOST * STEP) {
        return (void *)(uintptr_t)ptr;
    }
    return fake_memory_at(ptr, len, gpu);
}

void *fake_cuda_host(const void *ptr)
{
    void *p;
    int gpu;

    pthread_mutex_lock(&fake_lock);
    p = fake_memory_at((uint64_t)(uintptr_t)ptr, 1, &gpu);
    pthread_mutex_unlock(&fake_lock);
    return p;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t bytes)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE), fd;
    char *p = MAP_FAILED;

    if (rc != 0 || bytes == 0) {
        return rc ? rc : INVALID_VALUE;
    }
    fd = bytes <= STEP / 2 ? memfd_create("fake GPU", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    pthread_mutex_lock(&fake_lock);
    if (p != MAP_FAILED && memories < MOST) {
        memory[memories].bytes = p;
        memory[memories].len = bytes;
        memory[memories].skew = fake_skew;
        memory[memories].fd = fd;
        memory[memories].gpu = fake_current()->device;
        *ptr = BASE + (uint64_t)memories++ * STEP + fake_skew;
        fake_live.memory++;
    } else {
        rc = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake_lock);
    if (rc != 0 && p != MAP_FAILED) {
        munmap(p, bytes);
    }
    if (rc != 0 && fd >= 0) {
        close(fd);
    }
    return rc;
}

int cuMemFree_v2(uint64_t ptr)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE), gpu = -1;
    uint64_t k = (ptr - BASE) / STEP;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    if (fake_memory_at(ptr, 1, &gpu) != memory[k % MOST].bytes || gpu < 0) {
        rc = INVALID_VALUE;
    } else if (gpu != fake_current()->device) {
        rc = INVALID_CONTEXT;
    } else {
        munmap(memory[k].bytes, memory[k].len);
        close(memory[k].fd);
        memory[k].bytes = NULL;
        fake_live.memory--;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE);
    void *p = NULL;

    if (rc != 0 || bytes == 0 || flags > 7) {
        return rc ? rc : INVALID_VALUE;
    }
    if (posix_memalign(&p, PAGE, bytes) != 0) {
        return OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake_lock);
    if (hosts < MOST) {
        host[hosts].bytes = p;
        host[hosts].len = bytes;
        host[hosts++].gpu = fake_current()->device;
        fake_live.host++;
        fake_count.wrong += (flags & HOST_PORTABLE) == 0;
    } else {
        rc = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake_lock);
    if (rc == 0) {
        *ptr = p;
    } else {
        free(p);
    }
    return rc;
}

int cuMemFreeHost(void *ptr)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE), k = 0;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    while (k < hosts && host[k].bytes != ptr) {
        k++;
    }
    if (ptr == NULL || k == hosts) {
        rc = INVALID_VALUE;
    } else {
        host[k].bytes = NULL;
        fake_live.host--;
    }
    pthread_mutex_unlock(&fake_lock);
    if (rc == 0) {
        free(ptr);
    }
    return rc;
}

/* @to_gpu: which of the two has to be memory of a GPU. */
static int copy_now(const char *name, uint64_t dst, uint64_t src, size_t bytes, int to_gpu)
{
    int rc = fake_enter(name, FAKE_INIT | FAKE_CTX), dst_gpu, src_gpu;
    void *to, *from;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    to = fake_bytes_at(dst, bytes, &dst_gpu);
    from = fake_bytes_at(src, bytes, &src_gpu);
    if (to == NULL || from == NULL || (to_gpu ? dst_gpu : src_gpu) < 0) {
        rc = INVALID_VALUE;
    } else {
        memcpy(to, from, bytes);
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t bytes)
{
    return copy_now(__func__, dst, (uint64_t)(uintptr_t)src, bytes, 1);
}

int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t bytes)
{
    return copy_now(__func__, (uint64_t)(uintptr_t)dst, src, bytes, 0);
}

int cuMemsetD8_v2(uint64_t dst, unsigned char value, size_t bytes)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX), gpu;
    void *to;

    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&fake_lock);
    to = fake_memory_at(dst, bytes, &gpu);
    if (to != NULL) {
        memset(to, value, bytes);
    }
    pthread_mutex_unlock(&fake_lock);
    return to ? 0 : INVALID_VALUE;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr)
{
    int rc = fake_enter(__func__, FAKE_INIT), gpu = -1, type = 0;

    if (rc != 0 || (attribute != ATTR_MEMORY_TYPE && attribute != ATTR_ORDINAL)) {
        return rc ? rc : INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    if (fake_memory_at(ptr, 1, &gpu) != NULL) {
        type = MEMORY_DEVICE;
    }
    for (int k = 0; k < hosts; k++) {
        uintptr_t from = (uintptr_t)host[k].bytes;

        if (from != 0 && ptr >= from && ptr < from + host[k].len) {
            type = MEMORY_HOST;
            gpu = host[k].gpu;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    if (type == 0) {
        return INVALID_VALUE;
    }
    *(int *)value = attribute == ATTR_MEMORY_TYPE ? type : gpu;
    return 0;
}

/* The file that the memory is a mapping of: who maps it has the same bytes. */
int cuMemGetHandleForAddressRange(int *fd, uint64_t ptr, size_t len, int type,
                                  unsigned long long flags)
{
    int rc = fake_enter(__func__, FAKE_INIT | FAKE_CTX | FAKE_UNSAFE), gpu;

    if (rc != 0 || type != DMA_BUF_FD || flags != 0 || ptr % PAGE != 0 || len % PAGE != 0 ||
        len == 0) {
        return rc ? rc : INVALID_VALUE;
    }
    pthread_mutex_lock(&fake_lock);
    if (!fake_dmabuf) {
        rc = NOT_SUPPORTED;
    } else if (fake_memory_at(ptr, len, &gpu) == NULL || (ptr - BASE) % STEP != 0) {
        rc = INVALID_VALUE;
    } else {
        *fd = dup(memory[(ptr - BASE) / STEP].fd);
        rc = *fd < 0 ? OUT_OF_MEMORY : 0;
    }
    pthread_mutex_unlock(&fake_lock);
    return rc;
}
