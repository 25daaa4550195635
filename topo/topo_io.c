#include "topo_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in linux/openat2.h, which older systems lack. */
struct open_how_v0 {
    uint64_t flags, mode, resolve;
};
#define RESOLVE_NO_MAGICLINKS_V0 0x02
#define RESOLVE_IN_ROOT_V0       0x10
/* Each try fails for the few microseconds of somebody's rename(): a bound against one without end.
 */
#define IO_TRIES 1000
#ifndef SYS_openat2
#define SYS_openat2 437 /* the same number on every architecture */
#endif

static int io_openat(const struct topo_io *io, const char *path, int flags)
{
    flags |= O_CLOEXEC;
    if (io->confined) {
        struct open_how_v0 how = {.flags = (uint64_t)(unsigned)flags,
                                  .resolve = RESOLVE_IN_ROOT_V0 | RESOLVE_NO_MAGICLINKS_V0};
        long fd;
        int tries = 0;

        do { /* EAGAIN: a ".." of a link was passed while some process of this machine renamed
                something, anywhere; the kernel then cannot vouch for it, and asks to try again */
            fd = syscall(SYS_openat2, io->fd, path, &how, sizeof(how));
        } while (fd < 0 && errno == EAGAIN && ++tries < IO_TRIES);
        if (fd >= 0 ||
            (errno != ENOSYS &&
             errno != EPERM)) { /* EPERM: a filter of system calls that does not know it */
            return (int)fd;
        }
    }
    return openat(io->fd, path, flags);
}

int topo_io_open(struct topo_io *io, const char *root)
{
    io->confined = root[0] != '\0' && strcmp(root, "/") != 0;
    io->fd = open(root[0] ? root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return io->fd < 0 ? -1 : 0;
}

void topo_io_close(struct topo_io *io)
{
    close(io->fd);
    io->fd = -1;
}

/* What is no plain file is not opened for reading: that alone can have effects on a device. */
static int plain_open(const struct topo_io *io, const char *path)
{
    struct stat st;
    int fd = io_openat(io, path, O_PATH);

    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    close(fd);
    return io_openat(io, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
}

long topo_io_read(const struct topo_io *io, const char *path, char *out, size_t len)
{
    int fd = plain_open(io, path), error = 0;
    size_t used = 0;

    if (fd < 0) {
        return -1;
    }
    while (used < len - 1 && error == 0) {
        ssize_t n = read(fd, out + used, len - 1 - used);

        if (n > 0) {
            used += (size_t)n;
        } else if (n == 0) {
            break;
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    close(fd);
    if (error != 0) {
        errno = error;
        return -1;
    }
    out[used] = '\0';
    return (long)strlen(out);
}

int topo_io_line(const struct topo_io *io, const char *path, char *out, size_t len)
{
    if (topo_io_read(io, path, out, len) < 0) {
        return -1;
    }
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

int topo_io_link(const struct topo_io *io, const char *path, char *out, size_t len)
{
    int fd = io_openat(io, path, O_PATH | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0) {
        return -1;
    }
    n = readlinkat(fd, "", out, len);
    close(fd);
    if (n <= 0 || (size_t)n >= len) {
        return -1;
    }
    out[n] = '\0';
    return 0;
}

int topo_io_walk(const struct topo_io *io, const char *path,
                 bool (*each)(void *arg, const char *name), void *arg)
{
    int fd = io_openat(io, path, O_RDONLY | O_DIRECTORY);
    struct dirent *e;
    DIR *d;

    if (fd < 0) {
        return -1;
    }
    d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return -1;
    }
    for (int n = 0; n < TOPO_IO_ENTRIES && (e = readdir(d)) != NULL; n++) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !each(arg, e->d_name)) {
            break;
        }
    }
    closedir(d);
    return 0;
}
