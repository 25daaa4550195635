/*
 * Small texts and links below a directory that stands for "/": a machine's own root, or a captured
 * tree. In a captured tree nothing leads out of it where the kernel can see to that (openat2,
 * Linux 5.6). Only plain files are opened, and only their beginning is read.
 *
 * Any thread. Blocks only as long as the file system does: sysfs and procfs are in memory.
 */
#ifndef TOPO_IO_H
#define TOPO_IO_H

#include <stdbool.h>
#include <stddef.h>

#define TOPO_IO_ENTRIES 8192 /* more than that of one directory are not looked at */

struct topo_io {
    int fd;
    bool confined;
};

/* @root: a directory; "" and "/": the machine. 0, or -1 with errno. Closed by topo_io_close(). */
int topo_io_open(struct topo_io *io, const char *root);
void topo_io_close(struct topo_io *io);

/*
 * The beginning of a plain file, at most @len - 1 bytes, ended by a zero; bytes after a zero in the
 * file are lost. @path is relative. Returns how many bytes, -1 when it cannot be read (errno;
 * EINVAL: not a plain file).
 */
long topo_io_read(const struct topo_io *io, const char *path, char *out, size_t len);

/* The first line of such a file without its end. 0, -1. */
int topo_io_line(const struct topo_io *io, const char *path, char *out, size_t len);

/* Where a symbolic link points to, as it is written. 0, -1 (also when it is longer than @len - 1).
 */
int topo_io_link(const struct topo_io *io, const char *path, char *out, size_t len);

/* Calls @each with every name in a directory, in any order, "." and ".." left out; stops when @each
 * is false. -1: no such directory. */
int topo_io_walk(const struct topo_io *io, const char *path,
                 bool (*each)(void *arg, const char *name), void *arg);

#endif
