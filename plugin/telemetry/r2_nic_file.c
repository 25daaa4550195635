#include "r2_nic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_fsize.h"
#include "base/r2_rundir.h"

#define TRIES 4 /* files, where others rename them meanwhile */

int r2_nic_file_path(const char *dir, uid_t uid, char *out, size_t len)
{
    int n = snprintf(out, len, "%s/nccl-net-r2.%u.nics", dir, (unsigned)uid);

    return n < 0 || (size_t)n >= len ? -1 : 0;
}

int r2_nic_file_name(const char *name, uid_t *uid)
{
    char again[64];
    unsigned of;

    if (sscanf(name, "nccl-net-r2.%10u.nics", &of) != 1) {
        return 0;
    }
    *uid = of;
    snprintf(again, sizeof(again), "nccl-net-r2.%u.nics", of);
    return strcmp(name, again) == 0;
}

static int open_file(const char *path, int flags)
{
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
}

static enum r2_nic_file_result failed(const char *path, char *why, size_t why_len)
{
    snprintf(why, why_len, "%s: %s", path, strerror(errno));
    return R2_NIC_FILE_FAILED;
}

/* The history in @fd, which is @path. */
static enum r2_nic_file_result fd_read(int fd, const char *path, struct r2_nic_history *h,
                                       char *why, size_t why_len)
{
    char *text = malloc(R2_NIC_HISTORY_TEXT + 1);
    ssize_t got = text ? pread(fd, text, R2_NIC_HISTORY_TEXT + 1, 0) : -1;
    int line;

    memset(h, 0, sizeof(*h));
    if (got < 0) {
        free(text);
        return failed(path, why, why_len);
    }
    line = r2_nic_history_parse(text, (size_t)got, h);
    free(text);
    if (line || got > R2_NIC_HISTORY_TEXT) {
        memset(h, 0, sizeof(*h));
        snprintf(why, why_len, "%s is damaged, line %d: it counts for nothing", path, line);
        return R2_NIC_FILE_DAMAGED;
    }
    return R2_NIC_FILE_OK;
}

enum r2_nic_file_result r2_nic_file_read(const char *path, uid_t uid, struct r2_nic_history *h,
                                         char *why, size_t why_len)
{
    enum r2_nic_file_result rc = R2_NIC_FILE_FAILED;
    int fd = open_file(path, O_RDONLY);

    memset(h, 0, sizeof(*h));
    if (fd < 0) {
        return errno == ENOENT ? R2_NIC_FILE_NONE : failed(path, why, why_len);
    }
    if (r2_rundir_file_safe(fd, path, uid, why, why_len)) {
        rc = fd_read(fd, path, h, why, why_len);
    }
    close(fd);
    return rc;
}

static bool is_current(int fd, const char *path)
{
    struct stat open_st, named;

    return fstat(fd, &open_st) == 0 && lstat(path, &named) == 0 && named.st_ino == open_st.st_ino &&
           named.st_dev == open_st.st_dev;
}

/* The file that @path means, made where there is none, and locked: -1 with the result. Who has
 * locked one that has been renamed meanwhile takes the next one. */
static int lock_file(const char *path, uid_t uid, enum r2_nic_file_result *rc, char *why,
                     size_t why_len)
{
    *rc = R2_NIC_FILE_BUSY;
    for (int i = 0; i < TRIES; i++) {
        int fd = open_file(path, O_RDWR | O_CREAT);

        if (fd < 0) {
            *rc = failed(path, why, why_len);
            return -1;
        }
        if (!r2_rundir_file_safe(fd, path, uid, why, why_len)) {
            *rc = R2_NIC_FILE_FAILED;
            close(fd);
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_current(fd, path)) {
            return fd;
        }
        close(fd);
    }
    return -1;
}

static bool write_all(int fd, const char *text, size_t n)
{
    struct r2_fsize guard;
    ssize_t done;

    r2_fsize_begin(&guard);
    done = write(fd, text, n);
    r2_fsize_end(&guard);
    if (done >= 0 && (size_t)done < n) {
        errno = ENOSPC; /* the next one would say so */
    }
    return done == (ssize_t)n;
}

/* Whole, or not at all. Under the lock of @path: nobody else writes the other name. */
static enum r2_nic_file_result replace(const char *path, const struct r2_nic_history *h, char *why,
                                       size_t why_len)
{
    char *text = malloc(R2_NIC_HISTORY_TEXT), next[600];
    size_t n = text ? r2_nic_history_print(h, text, R2_NIC_HISTORY_TEXT) : 0;
    enum r2_nic_file_result rc = R2_NIC_FILE_OK;
    int fd;

    snprintf(next, sizeof(next), "%s.new", path);
    unlink(next); /* of a process that was killed here */
    fd = n ? open_file(next, O_WRONLY | O_CREAT | O_EXCL) : -1;
    if (fd < 0 || !write_all(fd, text, n) || rename(next, path) != 0) {
        rc = failed(next, why, why_len);
        unlink(next);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(text);
    return rc;
}

/* It keeps its name, too, until the next one has it: who finds none makes one, and would have the
 * lock of that while we hold this one's. */
static void set_aside(const char *path)
{
    char bad[600];

    snprintf(bad, sizeof(bad), "%s.bad", path);
    unlink(bad);
    link(path, bad); /* else it is replaced, which is as good */
}

enum r2_nic_file_result r2_nic_file_enter(const char *path, uid_t uid,
                                          const struct r2_nic_note *note, int n, char *why,
                                          size_t why_len)
{
    struct r2_nic_history *h = malloc(sizeof(*h));
    enum r2_nic_file_result rc = R2_NIC_FILE_BUSY, wrote;
    int fd = h ? lock_file(path, uid, &rc, why, why_len) : -1;
    char other[700];

    if (fd < 0) {
        free(h);
        return rc;
    }
    rc = fd_read(fd, path, h, why, why_len);
    if (rc == R2_NIC_FILE_DAMAGED) {
        set_aside(path);
    }
    if (rc != R2_NIC_FILE_FAILED) {
        for (int i = 0; i < n; i++) {
            r2_nic_history_note(h, &note[i]);
        }
        wrote = replace(path, h, other, sizeof(other));
        if (wrote == R2_NIC_FILE_FAILED) {
            snprintf(why, why_len, "%s", other);
            rc = wrote;
        }
    }
    close(fd); /* and with it the lock */
    free(h);
    return rc;
}
