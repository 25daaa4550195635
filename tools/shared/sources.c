/* Run directories, files, and what the command line says of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/telemetry/r2_stat_file.h"
#include "tools/shared/args.h"
#include "tools/shared/sources.h"

#define JSON_MOST (256ull << 20) /* bytes */

/* The source that is being read. */
struct reading {
    const struct sources *s;
    const struct sources_take *t;
    int at;
};

/* Statistics at @fd, of a process that lives or has ended. 1; 0: it is being made; -1: said. */
static int stat_read(const struct reading *r, int fd, const char *name, char *why, size_t room)
{
    struct r2_stat_view *v = calloc(1, sizeof(*v));
    int rc = -1;

    if (v == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    rc = r2_stat_read_fd(fd, name, v, why, room);
    if (rc == 1) {
        r->t->view(r->t->arg, r->at, v);
        r2_stat_view_free(v);
    }
    free(v);
    return rc;
}

/* --- one file --- */

static int text_read(const struct reading *r, int fd, size_t size, char *why, size_t room)
{
    char *text = malloc(size + 1);
    size_t n = 0;
    ssize_t got = 1;
    int rc;

    if (text == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    while (n < size && (got = pread(fd, text + n, size - n, (off_t)n)) > 0) {
        n += (size_t)got;
    }
    text[n] = '\0';
    rc = got < 0 ? -1 : r->t->json(r->t->arg, r->at, text);
    if (rc != 0) {
        snprintf(why, room, "%s",
                 got < 0 ? strerror(errno)
                         : "neither statistics of a process nor what r2_stat --json prints");
    }
    free(text);
    return rc;
}

static int file_read(const struct reading *r, const char *name, char *why, size_t room)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -1;
    uint64_t magic = 0;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, room, "%s", strerror(errno));
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > JSON_MOST) {
        snprintf(why, room, "%s", S_ISREG(st.st_mode) ? "too large" : "no regular file");
    } else if (pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == R2_STAT_MAGIC) {
        rc = stat_read(r, fd, name, why, room) < 0 ? -1 : 0;
    } else {
        rc = text_read(r, fd, (size_t)st.st_size, why, room);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* --- a directory --- */

/* Which of the files of a directory are read: where processes live, those that have ended are an
 * earlier job's. */
enum pass { LIVING, ENDED };

/* 1: read; 0: not one of this pass; -1: it cannot be read, said on stderr. */
static int entry_read(const struct reading *r, const char *path, uid_t uid, enum pass pass)
{
    char why[4600] = "out of memory";
    struct r2_stat_view *v = pass == LIVING ? calloc(1, sizeof(*v)) : NULL;
    int rc, fd;

    if (pass == LIVING) {
        rc = v ? r2_stat_read(path, uid, v, why, sizeof(why)) : -1;
        if (rc == 1) {
            r->t->view(r->t->arg, r->at, v);
            r2_stat_view_free(v);
        }
        free(v);
        return rc == 1; /* what cannot be read is tried again: a copy has another owner */
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        snprintf(why, sizeof(why), "%s: %s", path, strerror(errno));
        rc = errno == ENOENT ? 0 : -1;
    } else {
        rc = stat_read(r, fd, path, why, sizeof(why));
        close(fd);
    }
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", r->s->tool, why);
    }
    return rc;
}

/* How many were read. @bad: how many could not be. */
static int dir_pass(const struct reading *r, DIR *d, const char *dir, enum pass pass, int *bad)
{
    char path[4400];
    int n = 0;

    rewinddir(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        uint64_t unique;
        uid_t uid;
        int rc;

        if (!r2_stat_name(e->d_name, &uid, &unique)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        rc = entry_read(r, path, uid, pass);
        n += rc > 0;
        *bad += rc < 0;
    }
    return n;
}

static int dir_read(const struct reading *r, const char *dir, char *why, size_t room)
{
    DIR *d = opendir(dir);
    int bad = 0, n;

    if (d == NULL) {
        snprintf(why, room, "%s", strerror(errno));
        return -1;
    }
    n = dir_pass(r, d, dir, LIVING, &bad);
    n = n ? n : dir_pass(r, d, dir, ENDED, &bad);
    closedir(d);
    if (n > 0 && bad == 0) {
        return 0;
    }
    snprintf(why, room,
             bad ? "%d files could not be read"
                 : "there are no statistics in it (nccl-net-r2.*.stat)",
             bad);
    return -1;
}

static int source_read(const struct reading *r, const char *name, char *why, size_t room)
{
    struct stat st;

    if (stat(name, &st) != 0) {
        snprintf(why, room, "%s", strerror(errno));
        return -1;
    }
    return S_ISDIR(st.st_mode) ? dir_read(r, name, why, room) : file_read(r, name, why, room);
}

int sources_read(const struct sources *s, const struct sources_take *t,
                 struct sources_unread *unread)
{
    struct sources_remote *remote = s->ssh ? calloc((size_t)s->names, sizeof(*remote)) : NULL;
    int n = 0;

    for (int i = 0; remote && i < s->names; i++) {
        remote[i].host = s->name[i];
    }
    if (remote) {
        sources_ssh_read(s, t, remote, s->names);
    }
    for (int i = 0; i < s->names; i++) {
        struct reading r = {.s = s, .t = t, .at = i};
        struct sources_unread *u = &unread[n];

        *u = (struct sources_unread){.name = s->name[i]};
        if (remote) {
            snprintf(u->why, sizeof(u->why), "%s", remote[i].why);
        } else if (s->ssh) {
            snprintf(u->why, sizeof(u->why), "out of memory");
        } else if (source_read(&r, s->name[i], u->why, sizeof(u->why)) == 0) {
            u->why[0] = '\0';
        }
        if (u->why[0]) {
            fprintf(stderr, "%s: %s: %s\n", s->tool, u->name, u->why);
            n++;
        }
    }
    free(remote);
    return n;
}

/* --- the command line --- */

/* Words that a shell on another host will read: none of them may mean anything to it. */
static int is_plain(const char *text)
{
    return text[0] && text[0] != '-' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "._-@:/+,%[]")] == '\0';
}

int sources_limit_read(struct sources *s, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end || n < 1 || n > 3600) {
        return args_misuse(s->tool, "--limit: expected 1 to 3600 seconds, not '%s'", text);
    }
    s->seconds = (int)n;
    return 0;
}

int sources_fit(struct sources *s)
{
    if (s->names == 0) {
        return args_misuse(s->tool, s->ssh ? "--ssh: which hosts?"
                                           : "which run directories, or files of statistics?");
    }
    if (!s->ssh && (s->dir || s->seconds)) {
        return args_misuse(s->tool, "--%s goes with --ssh", s->dir ? "run-dir" : "limit");
    }
    for (int i = 0; s->ssh && i < s->names; i++) {
        if (!is_plain(s->name[i])) {
            return args_misuse(s->tool, "'%s' cannot be the name of a host", s->name[i]);
        }
    }
    if (s->dir && !is_plain(s->dir)) {
        return args_misuse(s->tool, "--run-dir: '%s' has characters that a shell would read",
                           s->dir);
    }
    s->seconds = s->seconds ? s->seconds : 20;
    return 0;
}
