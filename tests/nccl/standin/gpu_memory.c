/* Device memory is memory of the host behind a file, so that other processes and DMA-BUF have it.
 */
#include "tests/nccl/standin/gpu.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRAIN (64u << 10)

static struct gpu_mem *mems;
static size_t used[GPUS_MAX]; /* memory of each device that this process has */
static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;

/* A part of device memory has a file of its own since someone asked for a DMA-BUF of it: that
 * begins where it is asked for, a descriptor of the allocation's file does not. Who maps the
 * allocation by IPC later finds the parts here. */
#define PARTS_MAX 64
struct gpu_parts {
    int pid, len;
    struct {
        size_t at, len;
        int fd;
    } part[PARTS_MAX];
};
#define PARTS_SIZE 4096
_Static_assert(sizeof(struct gpu_parts) <= PARTS_SIZE, "the parts fit behind the memory");

static bool mem_add(char *addr, size_t len, enum gpu_kind kind, int dev, int fd,
                    struct gpu_parts *parts)
{
    struct gpu_mem *m = malloc(sizeof(*m));

    if (m == NULL) {
        return false;
    }
    *m = (struct gpu_mem){addr, len, kind, dev, fd, parts, NULL};
    pthread_mutex_lock(&mem_lock);
    m->next = mems;
    mems = m;
    pthread_mutex_unlock(&mem_lock);
    return true;
}

bool gpu_note(void *addr, size_t len, enum gpu_kind kind, int dev)
{
    return mem_add(addr, len, kind, dev, -1, NULL);
}

size_t gpu_left(int dev)
{
    size_t left;

    pthread_mutex_lock(&mem_lock);
    left = GPU_MEMORY - used[dev];
    pthread_mutex_unlock(&mem_lock);
    return left;
}

static bool device_take(int dev, size_t len)
{
    bool has;

    pthread_mutex_lock(&mem_lock);
    has = len <= GPU_MEMORY - used[dev];
    used[dev] += has ? len : 0;
    pthread_mutex_unlock(&mem_lock);
    return has;
}

static void device_put(int dev, size_t len)
{
    pthread_mutex_lock(&mem_lock);
    used[dev] -= len;
    pthread_mutex_unlock(&mem_lock);
}

/* Device memory is a file's, so that other processes and a DMA-BUF can have it. */
static void *memory_map(size_t whole, enum gpu_kind kind, int dev)
{
    int fd = kind == GPU_MEM_DEVICE ? memfd_create("gpu", MFD_CLOEXEC) : -1;
    struct gpu_parts *parts = NULL;
    char *at;

    if (fd >= 0) {
        if (ftruncate(fd, (off_t)(whole + PARTS_SIZE)) == 0) {
            parts = mmap(NULL, PARTS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)whole);
        }
        if (parts == NULL || parts == MAP_FAILED) {
            close(fd);
            return NULL;
        }
        parts->pid = (int)getpid();
    }
    at = mmap(NULL, whole + GRAIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    at = (char *)(((uintptr_t)at + GRAIN - 1) / GRAIN * GRAIN);
    if (mmap(at, whole, PROT_READ | PROT_WRITE,
             MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd,
             0) == MAP_FAILED) {
        return NULL;
    }
    if (!mem_add(at, whole, kind, dev, fd, parts)) {
        return NULL;
    }
    return at;
}

void *gpu_alloc(size_t len, enum gpu_kind kind, int dev)
{
    size_t whole = len > 0 ? (len + GRAIN - 1) / GRAIN * GRAIN : GRAIN;
    bool is_device = kind == GPU_MEM_DEVICE;
    void *at;

    if (whole < len || (is_device && !device_take(dev, whole))) {
        gpu_log("device %d has no memory for %zu bytes: %zu are left", dev, len, gpu_left(dev));
        return NULL;
    }
    at = memory_map(whole, kind, dev);
    if (at == NULL && is_device) {
        device_put(dev, whole);
    }
    return at;
}

static int file_of(int pid, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

void *gpu_import(int pid, int fd, size_t len, int dev)
{
    int own = file_of(pid, fd);
    struct gpu_parts *parts;
    char *at;

    if (own < 0) {
        return NULL;
    }
    at = mmap(NULL, len + PARTS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    close(own);
    if (at == MAP_FAILED) {
        return NULL;
    }
    parts = (void *)(at + len);
    for (int i = 0; i < parts->len; i++) {
        int part = file_of(pid, parts->part[i].fd);

        if (part < 0 || mmap(at + parts->part[i].at, parts->part[i].len, PROT_READ | PROT_WRITE,
                             MAP_FIXED | MAP_SHARED, part, 0) == MAP_FAILED) {
            gpu_die("a part of another process's memory cannot be mapped");
        }
        close(part);
    }
    return mem_add(at, len + PARTS_SIZE, GPU_MEM_IPC, dev, -1, NULL) ? at : NULL;
}

int gpu_export(void *addr, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page, from;
    struct gpu_mem m;
    char *at = addr;
    int fd = -1, i;

    if (!gpu_find(at, &m) || m.parts == NULL || (uintptr_t)at % page != 0 ||
        at + whole > m.addr + m.len) {
        return -1;
    }
    from = (size_t)(at - m.addr);
    pthread_mutex_lock(&mem_lock);
    for (i = 0; i < m.parts->len; i++) {
        if (from < m.parts->part[i].at + m.parts->part[i].len &&
            from + whole > m.parts->part[i].at) {
            break;
        }
    }
    if (i < m.parts->len) {
        if (from == m.parts->part[i].at && whole <= m.parts->part[i].len) {
            fd = fcntl(m.parts->part[i].fd, F_DUPFD_CLOEXEC, 0);
        } else {
            gpu_log("a DMA-BUF of %p + %zu would cross another", addr, len);
        }
    } else if (from == 0) {
        fd = fcntl(m.fd, F_DUPFD_CLOEXEC, 0);
    } else if (i < PARTS_MAX) {
        fd = memfd_create("gpu-part", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)whole) != 0 ||
            pwrite(fd, at, whole, 0) != (ssize_t)whole ||
            mmap(at, whole, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, 0) == MAP_FAILED) {
            gpu_die("no memory for a DMA-BUF");
        }
        m.parts->part[i].at = from;
        m.parts->part[i].len = whole;
        m.parts->part[i].fd = fd;
        m.parts->len++;
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&mem_lock);
    return fd;
}

bool gpu_free(void *addr)
{
    struct gpu_mem *m = NULL;

    pthread_mutex_lock(&mem_lock);
    for (struct gpu_mem **p = &mems; *p; p = &(*p)->next) {
        if ((*p)->addr == addr) {
            m = *p;
            *p = m->next;
            break;
        }
    }
    pthread_mutex_unlock(&mem_lock);
    if (m == NULL) {
        return false;
    }
    if (m->kind != GPU_MEM_REGISTERED) {
        munmap(m->addr, m->len);
    }
    if (m->kind == GPU_MEM_DEVICE) {
        device_put(m->dev, m->len);
    }
    if (m->parts) {
        for (int i = 0; i < m->parts->len; i++) {
            close(m->parts->part[i].fd);
        }
        munmap(m->parts, PARTS_SIZE);
    }
    if (m->fd >= 0) {
        close(m->fd);
    }
    free(m);
    return true;
}

bool gpu_find(const void *addr, struct gpu_mem *out)
{
    const char *a = addr;
    bool found = false;

    pthread_mutex_lock(&mem_lock);
    for (struct gpu_mem *m = mems; m && !found; m = m->next) {
        if (a >= m->addr && a < m->addr + m->len) {
            *out = *m;
            found = true;
        }
    }
    pthread_mutex_unlock(&mem_lock);
    return found;
}
