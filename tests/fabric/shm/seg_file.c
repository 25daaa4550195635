/* The mapped file. */
#include "tests/fabric/shm/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int file_sized(const char *path, off_t size, size_t allocate, char *why, size_t why_len)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = 0;

    if (fd < 0) {
        snprintf(why, why_len, "cannot create %s: %s", path, strerror(errno));
        return -1;
    }
    if (ftruncate(fd, size) != 0) {
        rc = errno;
    }
    if (rc == 0 && allocate > 0) {
        rc = posix_fallocate(fd, 0, (off_t)allocate);
    }
    if (rc != 0) {
        snprintf(why, why_len, "cannot reserve %zu KiB for %s: %s", allocate >> 10, path,
                 strerror(rc));
        close(fd);
        return -1;
    }
    return fd;
}

static void seg_fill(struct seg *s, const char *name, const struct fab_desc *d)
{
    snprintf(s->head.name, sizeof(s->head.name), "%s", name);
    s->head.version = SEG_VERSION;
    s->head.size = sizeof(struct seg);
    s->head.created_s = (int64_t)time(NULL);
    s->head.desc = *d;
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            atomic_store_explicit(&seg_nic_at(s, h, n)->link.rate, d->nic[h][n].rate,
                                  memory_order_relaxed);
        }
    }
    s->head.magic = SEG_MAGIC;
}

int seg_file_create(const char *dir, const char *name, const struct fab_desc *d, char *why,
                    size_t why_len)
{
    char path[SEG_PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/alive", dir);
    int fd = file_sized(path, SEG_SLOTS + 1, 0, why, why_len);
    if (fd < 0) {
        return -1;
    }
    close(fd);
    snprintf(path, sizeof(path), "%s/segment", dir);
    fd = file_sized(path, (off_t)sizeof(struct seg), offsetof(struct seg, ring), why, why_len);
    if (fd < 0) {
        return -1;
    }
    struct seg *s =
        mmap(NULL, offsetof(struct seg, ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (s == MAP_FAILED) {
        snprintf(why, why_len, "cannot map %s: %s", path, strerror(errno));
        return -1;
    }
    seg_fill(s, name, d);
    munmap(s, offsetof(struct seg, ring));
    return 0;
}

/* A number out of the way of programs that close or reuse low descriptors; the record locks go with
 * the descriptor. */
static int fd_raise(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 500);

    if (high < 0) {
        return fd;
    }
    close(fd);
    return high;
}

static int map_open(struct seg_map *m, const char *dir, char *why, size_t why_len)
{
    char path[SEG_PATH_MAX + 16];
    struct stat st;

    snprintf(path, sizeof(path), "%s/segment", dir);
    m->seg_fd = open(path, O_RDWR | O_CLOEXEC);
    if (m->seg_fd < 0) {
        snprintf(why, why_len, "no fabric at %s: %s", dir, strerror(errno));
        return -1;
    }
    m->seg_fd = fd_raise(m->seg_fd);
    if (fstat(m->seg_fd, &st) != 0 || (uint64_t)st.st_size != sizeof(struct seg)) {
        snprintf(why, why_len, "%s is not a segment of this version of softfab", path);
        return -1;
    }
    void *p = mmap(NULL, sizeof(struct seg), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                   m->seg_fd, 0);
    if (p == MAP_FAILED) {
        snprintf(why, why_len, "cannot map %s: %s", path, strerror(errno));
        return -1;
    }
    m->seg = p;
    if (m->seg->head.magic != SEG_MAGIC || m->seg->head.version != SEG_VERSION ||
        m->seg->head.size != sizeof(struct seg)) {
        snprintf(why, why_len, "%s is not a segment of this version of softfab", path);
        return -1;
    }
    snprintf(path, sizeof(path), "%s/alive", dir);
    m->alive_fd = open(path, O_RDWR | O_CLOEXEC);
    if (m->alive_fd < 0) {
        snprintf(why, why_len, "cannot open %s: %s", path, strerror(errno));
        return -1;
    }
    m->alive_fd = fd_raise(m->alive_fd);
    return 0;
}

int seg_file_open(struct seg_map *m, const char *dir, char *why, size_t why_len)
{
    *m = (struct seg_map){.seg_fd = -1, .alive_fd = -1, .slot = -1, .owner = getpid()};
    if (strlen(dir) >= sizeof(m->dir)) {
        snprintf(why, why_len, "%s is too long a path", dir);
        return -1;
    }
    snprintf(m->dir, sizeof(m->dir), "%s", dir);
    if (map_open(m, dir, why, why_len) != 0) {
        seg_file_close(m);
        return -1;
    }
    return 0;
}

void seg_file_close(struct seg_map *m)
{
    if (m->slot >= 0 && m->owner == getpid()) {
        seg_slot_detach(m);
    }
    if (m->seg != NULL) {
        munmap(m->seg, sizeof(struct seg));
    }
    if (m->seg_fd >= 0) {
        close(m->seg_fd);
    }
    if (m->alive_fd >= 0) {
        close(m->alive_fd);
    }
    *m = (struct seg_map){.seg_fd = -1, .alive_fd = -1, .slot = -1};
}
