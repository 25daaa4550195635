#include "r2_rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "r2_time.h"

static int dir_writable(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, W_OK | X_OK) == 0;
}

const char *r2_rundir_find(const char *wanted, char *why, size_t why_len)
{
    static const char *const usual[] = {R2_RUNDIR_OWN, R2_RUNDIR_COMMON};

    if (wanted && wanted[0]) {
        if (dir_writable(wanted)) {
            return wanted;
        }
        snprintf(why, why_len, "NCCL_R2_RUN_DIR=%s is no directory that this process can write",
                 wanted);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        if (dir_writable(usual[i])) {
            return usual[i];
        }
    }
    snprintf(why, why_len, "neither %s nor %s is a directory that this process can write", usual[0],
             usual[1]);
    return NULL;
}

static int path_of(const char *dir, uid_t uid, const char *kind, char *out, size_t len)
{
    int n = snprintf(out, len, "%s/nccl-net-r2.%u.%s", dir, (unsigned)uid, kind);

    return n < 0 || (size_t)n >= len ? -1 : 0;
}

int r2_rundir_drain_path(const char *dir, uid_t uid, char *out, size_t len)
{
    return path_of(dir, uid, "drain", out, len);
}

int r2_rundir_commands_path(const char *dir, uid_t uid, enum r2_rundir_kind kind, char *out,
                            size_t len)
{
    return path_of(dir, uid, kind == R2_RUNDIR_REHEARSE ? "rehearse" : "failback", out, len);
}

int r2_rundir_stamp_get(const char *path, struct r2_rundir_stamp *out)
{
    struct stat st;

    memset(out, 0, sizeof(*out));
    if (lstat(path, &st) != 0) {
        return errno != ENOENT; /* else it may be there, and be seen with the next call */
    }
    out->ino = st.st_ino;
    out->size = st.st_size;
    out->ctime = st.st_ctim;
    return 1;
}

int r2_rundir_stamp_same(const struct r2_rundir_stamp *a, const struct r2_rundir_stamp *b)
{
    return a->ino == b->ino && a->size == b->size && a->ctime.tv_sec == b->ctime.tv_sec &&
           a->ctime.tv_nsec == b->ctime.tv_nsec;
}

/* Time stamps of files have grains of milliseconds: two changes in one grain show as one. */
#define SETTLED_NS R2_NS_PER_S

int r2_rundir_dir_same(const char *dir, struct r2_rundir_dir *seen)
{
    struct r2_rundir_dir now = {.settled = 0};
    struct stat st;
    int same;

    if (stat(dir, &st) == 0) {
        uint64_t changed = (uint64_t)st.st_mtim.tv_sec * R2_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;

        now = (struct r2_rundir_dir){.dev = st.st_dev, .ino = st.st_ino, .mtime = st.st_mtim};
        now.settled = r2_elapsed(r2_clock_ns(CLOCK_REALTIME), changed) >= SETTLED_NS;
    }
    same = seen->settled && now.settled && now.dev == seen->dev && now.ino == seen->ino &&
           now.mtime.tv_sec == seen->mtime.tv_sec && now.mtime.tv_nsec == seen->mtime.tv_nsec;
    *seen = now;
    return same;
}

int r2_rundir_file_safe(int fd, const char *path, uid_t uid, char *why, size_t why_len)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        snprintf(why, why_len, "%s is not a file", path);
    } else if (st.st_uid != uid) {
        snprintf(why, why_len, "%s belongs to user %u, not to user %u", path, (unsigned)st.st_uid,
                 (unsigned)uid);
    } else if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        snprintf(why, why_len, "%s can be written by others (mode %03o)", path,
                 (unsigned)st.st_mode & 0777);
    } else {
        return 1;
    }
    return 0;
}

static size_t blank_length(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && (text[n] == ' ' || text[n] == '\t' || text[n] == '\r')) {
        n++;
    }
    return n;
}

/* Length of the name of a NIC at @text: a device, and a port of 1 to 255 behind ':' if one is
 * given; 0: it is none. */
static size_t name_length(const char *text, size_t len)
{
    static const char device[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t n = 0, port;
    unsigned value = 0;

    while (n < len && text[n] && strchr(device, text[n])) {
        n++;
    }
    if (n == 0 || n > 60 || n == len || text[n] != ':') {
        return n > 60 ? 0 : n;
    }
    for (port = n + 1; port < len && port < n + 4 && text[port] >= '0' && text[port] <= '9';
         port++) {
        value = 10 * value + (unsigned)(text[port] - '0');
    }
    return value >= 1 && value <= 255 ? port : 0;
}

int r2_rundir_drain_parse(const char *text, size_t len, char *list, size_t room, char *why,
                          size_t why_len)
{
    size_t n = 0;
    int line = 0, names = 0;

    list[0] = '\0';
    for (size_t i = 0; i < len;) {
        size_t end = i, end_of_name;

        line++;
        while (end < len && text[end] != '\n') {
            end++;
        }
        while (i < end && (text[i] == ' ' || text[i] == '\t')) {
            i++;
        }
        end_of_name = i + name_length(text + i, end - i);
        if (end_of_name < end && text[end_of_name] != ' ' && text[end_of_name] != '\t' &&
            text[end_of_name] != '\r' && text[end_of_name] != '#') {
            snprintf(why, why_len, "line %d does not begin with the name of a NIC", line);
            return -1;
        }
        if (end_of_name > i) {
            if (n + (end_of_name - i) + 2 >= room || ++names > R2_RUNDIR_NAMES) {
                snprintf(why, why_len, "more names than fit, at line %d", line);
                return -1;
            }
            list[n] = n ? ',' : '=';
            memcpy(list + n + 1, text + i, end_of_name - i);
            n += 1 + (end_of_name - i);
            list[n] = '\0';
        }
        i = end + 1;
    }
    return 0;
}

static void printable_copy(const char *text, size_t len, char *out, size_t room)
{
    size_t n = 0;

    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r')) {
        len--;
    }
    for (; n < len && n + 1 < room; n++) {
        out[n] = text[n] < 0x20 || text[n] > 0x7e ? '?' : text[n];
    }
    out[n] = '\0';
}

void r2_rundir_drain_note(const char *text, size_t len, const char *name, char *note, size_t room)
{
    size_t want = strlen(name);

    note[0] = '\0';
    for (size_t i = 0; i < len;) {
        const char *nl = memchr(text + i, '\n', len - i), *hash;
        size_t end = nl ? (size_t)(nl - text) : len,
               end_of_name = i + blank_length(text + i, end - i);
        size_t n = name_length(text + end_of_name, end - end_of_name);

        if (n > 0 && n == want && strncmp(text + end_of_name, name, n) == 0) {
            hash = memchr(text + end_of_name, '#', end - end_of_name);
            hash = hash ? hash + 1 : text + end;
            hash += blank_length(hash, (size_t)(text + end - hash));
            printable_copy(hash, (size_t)(text + end - hash), note, room);
        }
        i = end + 1;
    }
}

const char *r2_rundir_drain_reason(const char *note)
{
    const char *colon;

    if (strncmp(note, "since ", 6) != 0 || note[6] < '0' || note[6] > '9') {
        return note; /* an administrator wrote the line by hand */
    }
    colon = strstr(note, ": ");
    return colon ? colon + 2 : "";
}

/* The number at @text behind white space; 0 is none. *used: how much it takes, 0 where there is no
 * number. */
static uint64_t number_parse(const char *text, size_t len, size_t *used)
{
    size_t i = blank_length(text, len), n = 0;
    uint64_t number = 0;

    for (; i > 0 && i + n < len && text[i + n] >= '0' && text[i + n] <= '9' && n < 19; n++) {
        number = 10 * number + (uint64_t)(text[i + n] - '0');
    }
    *used = n ? i + n : 0;
    return number;
}

/* One line of a file of commands; 0: nothing on it, 1: *out, -1: it is none. */
static int command_parse(const char *text, size_t len, enum r2_rundir_kind kind,
                         struct r2_rundir_command *out)
{
    size_t i = blank_length(text, len), n;
    uint64_t ms = 0;

    if (i == len || text[i] == '#') {
        return 0;
    }
    n = text[i] == '*' && kind == R2_RUNDIR_FAILBACK ? 1 : name_length(text + i, len - i);
    if (n == 0 || n >= sizeof(out->name)) {
        return -1;
    }
    memcpy(out->name, text + i, n);
    out->name[n] = '\0';
    i += n;
    out->number = number_parse(text + i, len - i, &n);
    i += n;
    if (kind == R2_RUNDIR_REHEARSE) {
        ms = number_parse(text + i, len - i, &n);
        i += n;
        if (n == 0 || ms > R2_RUNDIR_REHEARSE_MS) {
            return -1;
        }
    }
    out->ms = (uint32_t)ms;
    return out->number == 0 || (i < len && (text[i] == '\0' || !strchr(" \t\r#", text[i]))) ? -1
                                                                                            : 1;
}

int r2_rundir_commands_parse(const char *text, size_t len, enum r2_rundir_kind kind,
                             struct r2_rundir_command *out, char *why, size_t why_len)
{
    int line = 0, n = 0;

    for (size_t i = 0; i < len;) {
        const char *nl = memchr(text + i, '\n', len - i);
        size_t end = nl ? (size_t)(nl - text) : len;
        struct r2_rundir_command end_of_name;
        int r = command_parse(text + i, end - i, kind, &end_of_name);

        line++;
        if (r < 0) {
            snprintf(why, why_len, "line %d is not the name of a NIC and %s", line,
                     kind == R2_RUNDIR_REHEARSE ? "two numbers" : "a number");
            return -1;
        }
        if (r > 0 && n == R2_RUNDIR_NAMES) {
            snprintf(why, why_len, "more than %d names", R2_RUNDIR_NAMES);
            return -1;
        }
        if (r > 0) {
            out[n++] = end_of_name;
        }
        i = end + 1;
    }
    return n;
}

int r2_rundir_text(const char *path, uid_t uid, char text[R2_RUNDIR_TEXT_MAX + 1], size_t *len,
                   char *why, size_t why_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = R2_RUNDIR_BAD;
    ssize_t n;

    *len = 0;
    if (fd < 0 && errno == ENOENT) {
        return 0;
    }
    if (fd < 0) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
        return errno == ELOOP || errno == EACCES ? R2_RUNDIR_BAD : R2_RUNDIR_LATER;
    }
    if (r2_rundir_file_safe(fd, path, uid, why, why_len)) {
        n = read(fd, text, R2_RUNDIR_TEXT_MAX + 1);
        if (n < 0 || n > R2_RUNDIR_TEXT_MAX) {
            snprintf(why, why_len, "%s: %s", path, n < 0 ? strerror(errno) : "too long");
            rc = n < 0 ? R2_RUNDIR_LATER : R2_RUNDIR_BAD;
        } else {
            *len = (size_t)n;
            rc = 0;
        }
    }
    close(fd);
    return rc;
}

int r2_rundir_drain_text(const char *path, uid_t uid, char text[R2_RUNDIR_TEXT_MAX + 1],
                         size_t *len, char *list, size_t room, char *why, size_t why_len)
{
    char reason[128];
    int rc = r2_rundir_text(path, uid, text, len, why, why_len);

    list[0] = '\0';
    if (rc == 0 && r2_rundir_drain_parse(text, *len, list, room, reason, sizeof(reason)) != 0) {
        snprintf(why, why_len, "%s: %s", path, reason);
        rc = R2_RUNDIR_BAD;
    }
    return rc;
}

int r2_rundir_drain_read(const char *path, uid_t uid, char *list, size_t room, char *why,
                         size_t why_len)
{
    char text[R2_RUNDIR_TEXT_MAX + 1];
    size_t len;

    return r2_rundir_drain_text(path, uid, text, &len, list, room, why, why_len);
}
