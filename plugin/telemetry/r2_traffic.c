/* The writer (r2_traffic.h). A row is one pwrite(): a full file system is an error, and the file is
 * as long as it has rows. */
#include "r2_traffic.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_fsize.h"
#include "base/r2_time.h"
#include "r2_traffic_file.h"

struct r2_traffic {
    int fd; /* -1: no more rows */
    uint32_t nics;
    uint64_t no;                                  /* of the last row; 0: none */
    uint64_t from;                                /* mono: what `base` is of */
    uint64_t mono, real;                          /* the last look ... */
    struct r2_traffic_cell seen[R2_TRAFFIC_NICS]; /* ... and what it saw */
    struct r2_traffic_cell base[R2_TRAFFIC_NICS]; /* what the rows have */
    char path[512];
};

/* "DIR/NAME.stat" to "DIR/NAME.traffic", or back. -1: it is no such name, or too long. */
static int path_turn(const char *path, const char *from, const char *to, char *out, size_t room)
{
    size_t n = strlen(path), k = strlen(from);
    int len;

    if (n < k || strcmp(path + n - k, from) != 0) {
        return -1;
    }
    len = snprintf(out, room, "%.*s%s", (int)(n - k), path, to);
    return len < 0 || (size_t)len >= room ? -1 : 0;
}

static int put(int fd, const void *from, size_t len, off_t at)
{
    struct r2_fsize guard;
    ssize_t n;

    r2_fsize_begin(&guard);
    n = pwrite(fd, from, len, at);
    r2_fsize_end(&guard);
    return n == (ssize_t)len ? 0 : -1;
}

struct r2_traffic *r2_traffic_create(const char *stat_path, const struct r2_traffic_head *head,
                                     char *why, size_t why_len)
{
    struct r2_traffic *t = calloc(1, sizeof(*t));
    struct r2_traffic_head h = *head;

    if (t == NULL || h.nics > R2_TRAFFIC_NICS ||
        path_turn(stat_path, ".stat", ".traffic", t->path, sizeof(t->path)) != 0) {
        snprintf(why, why_len, "%s: %s", stat_path,
                 t ? "no file can be named after it" : "out of memory");
        free(t);
        return NULL;
    }
    h.magic = R2_TRAFFIC_MAGIC;
    h.shape = r2_traffic_shape();
    t->nics = h.nics;
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->fd < 0 || put(t->fd, &h, sizeof(h), 0) != 0) {
        snprintf(why, why_len, "%s: %s", t->path, strerror(errno));
        if (t->fd >= 0) {
            unlink(t->path);
            close(t->fd);
        }
        free(t);
        return NULL;
    }
    return t;
}

/* --- rows --- */

/* Counters go forward; what a look sees of them while they move between two places may not. */
static void cell_follow(struct r2_traffic_cell *out, const struct r2_traffic_cell *now)
{
    out->sent = now->sent > out->sent ? now->sent : out->sent;
    out->received = now->received > out->received ? now->received : out->received;
    out->state = now->state;
}

static int is_changed(const struct r2_traffic *t)
{
    for (uint32_t i = 0; i < t->nics; i++) {
        const struct r2_traffic_cell *a = &t->base[i], *b = &t->seen[i];

        if (a->sent != b->sent || a->received != b->received || a->state != b->state) {
            return 1;
        }
    }
    return 0;
}

/* Of what was seen last. */
static void row_put(struct r2_traffic *t)
{
    uint64_t row[R2_TRAFFIC_WORDS(R2_TRAFFIC_NICS)] = {0}, took = r2_elapsed(t->mono, t->from);
    size_t words = R2_TRAFFIC_WORDS(t->nics);

    row[0] = row[words - 1] = ++t->no;
    row[1] = t->real > took ? t->real - took : 0;
    row[2] = t->real;
    for (uint32_t i = 0; i < t->nics; i++) {
        row[3 + i / 16] |= (uint64_t)t->seen[i].state << (4 * (i % 16));
        row[R2_TRAFFIC_CELLS_AT + 2 * i] = t->seen[i].sent;
        row[R2_TRAFFIC_CELLS_AT + 2 * i + 1] = t->seen[i].received;
    }
    memcpy(t->base, t->seen, sizeof(t->base));
    t->from = t->mono;
    if (put(t->fd, row, words * sizeof(row[0]), (off_t)R2_TRAFFIC_AT(t->no, t->nics)) != 0) {
        close(t->fd);
        t->fd = -1;
    }
}

void r2_traffic_look(struct r2_traffic *t, const struct r2_traffic_cell *cell, uint64_t mono,
                     uint64_t real)
{
    if (t->fd < 0) {
        return;
    }
    for (uint32_t i = 0; i < t->nics; i++) {
        cell_follow(&t->seen[i], &cell[i]);
    }
    t->from = t->mono ? t->from : mono;
    t->mono = mono;
    t->real = real;
    if (!is_changed(t)) {
        t->from = mono;
    } else if (r2_elapsed(mono, t->from) >= R2_TRAFFIC_ROW) {
        row_put(t);
    }
}

void r2_traffic_close(struct r2_traffic *t)
{
    if (t == NULL) {
        return;
    }
    if (t->fd >= 0 && is_changed(t)) {
        row_put(t);
    }
    if (t->no == 0) {
        unlink(t->path);
    }
    if (t->fd >= 0) {
        close(t->fd);
    }
    free(t);
}

/* --- what has been left --- */

struct left {
    char name[64];
    time_t when;
};

static int newest_first(const void *a, const void *b)
{
    const struct left *x = a, *y = b;

    return (x->when < y->when) - (x->when > y->when);
}

/* Whether @name is a file of @uid whose process has ended, and which. */
static int is_left(int dir, const char *name, uid_t uid, struct left *out)
{
    char sign[64];
    uint64_t unique;
    struct stat st;
    uid_t of;

    if (!r2_traffic_name(name, &of, &unique) || of != uid ||
        path_turn(name, ".traffic", ".stat", sign, sizeof(sign)) != 0 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_uid != uid ||
        faccessat(dir, sign, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        return 0;
    }
    snprintf(out->name, sizeof(out->name), "%.63s", name);
    out->when = st.st_mtime;
    return 1;
}

void r2_traffic_sweep(const char *dir, uid_t uid, time_t now)
{
    DIR *d = opendir(dir);
    struct left *left = NULL;
    size_t n = 0;

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct left one, *p;

        if (!is_left(dirfd(d), e->d_name, uid, &one)) {
            continue;
        }
        p = realloc(left, (n + 1) * sizeof(*p));
        if (p == NULL) {
            break; /* the next process */
        }
        left = p;
        left[n++] = one;
    }
    if (n > 1) {
        qsort(left, n, sizeof(*left), newest_first);
    }
    for (size_t i = 0; i < n; i++) {
        if (i >= R2_TRAFFIC_KEPT || now - left[i].when > R2_TRAFFIC_AGE_S) {
            unlinkat(dirfd(d), left[i].name, 0);
        }
    }
    free(left);
    if (d) {
        closedir(d);
    }
}
