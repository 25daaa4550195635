#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_rundir.h"
#include "plugin/base/r2_time.h"
#include "tools/r2_ctl/ctl.h"
#include "tools/shared/patience.h"

bool ctl_name_is(const char *name, const struct r2_host_registry_nic *nic)
{
    char port[48];
    size_t n = strcspn(nic->name, ":");

    snprintf(port, sizeof(port), "%.*s:%u", (int)n, nic->name, nic->port);
    /* a name without a port means the whole device, as in NCCL_IB_HCA */
    return strcmp(name, nic->name) == 0 || strcmp(name, port) == 0 ||
           (strlen(name) == n && strncmp(name, nic->name, n) == 0);
}

/* --- the file --- */

/* The name of a line: its first word. Returns its length. */
static size_t line_name(const char **line, size_t len)
{
    size_t skip = 0, n;

    while (skip < len && ((*line)[skip] == ' ' || (*line)[skip] == '\t')) {
        skip++;
    }
    *line += skip;
    for (n = 0; n < len - skip && !strchr(" \t\r#\n", (*line)[n]); n++) {
    }
    return n;
}

static bool is_one_of(const char *word, size_t len, int n, char *const *names)
{
    for (int i = 0; i < n; i++) {
        if (strlen(names[i]) == len && strncmp(names[i], word, len) == 0) {
            return true;
        }
    }
    return false;
}

size_t ctl_lines_keep(const char *old, size_t len, int n, char *const *names, char *out)
{
    size_t used = 0;

    for (size_t i = 0; i < len;) {
        const char *word = old + i;
        const char *nl = memchr(word, '\n', len - i);
        size_t line = nl ? (size_t)(nl - word) + 1 : len - i, name;

        i += line;
        name = line_name(&word, line);
        if (name == 0 || (n > 0 && !is_one_of(word, name, n, names))) {
            memcpy(out + used, old + i - line, line);
            used += line;
            if (!nl) {
                out[used++] = '\n';
            }
        }
    }
    return used;
}

int ctl_lines_add(const struct ctl *c, char *out, size_t used, size_t room, int n,
                  char *const *names, const char *value)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;

    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &tm));
    for (int i = 0; i < n; i++) {
        int w = snprintf(out + used, room - used, "%s%s # since %s%s%.*s\n", names[i], value, when,
                         c->why[0] ? ": " : "", (int)strcspn(c->why, "\r\n"), c->why);

        if (w < 0 || (size_t)w >= room - used) {
            return -1;
        }
        used += (size_t)w;
    }
    return (int)used;
}

/* By rename: a reader sees the old file or the new one. */
static int file_replace(const char *path, const char *text, size_t len)
{
    char tmp[600];
    int fd, n = snprintf(tmp, sizeof(tmp), "%s.XXXXXX", path), rc = 0;

    if (n < 0 || (size_t)n >= sizeof(tmp)) {
        return ctl_fail("%s: the name is too long", path);
    }
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0) {
        return ctl_fail("%s: %s", tmp, strerror(errno));
    }
    if (write(fd, text, len) != (ssize_t)len || fchmod(fd, 0644) != 0 || rename(tmp, path) != 0) {
        rc = ctl_fail("%s: %s", path, strerror(errno));
        unlink(tmp);
    }
    close(fd);
    return rc;
}

int ctl_names_check(int n, char *const *names)
{
    char list[R2_RUNDIR_TEXT_MAX + 8], why[128];

    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if (len == 0 || len > 60 || strpbrk(names[i], " \t\r\n#") ||
            r2_rundir_drain_parse(names[i], len, list, sizeof(list), why, sizeof(why)) != 0) {
            return ctl_fail("'%s' cannot be the name of a NIC, as mlx5_3 and mlx5_3:2 are, with a "
                            "port from 1 to 255",
                            names[i]);
        }
    }
    return 0;
}

/* Which of @names are on no line of the file: to be undrained, and not drained. Says so. */
static int names_missing(const char *path, const char *text, size_t len, int n, char *const *names)
{
    int missing = 0;

    for (int i = 0; i < n; i++) {
        char rest[2 * R2_RUNDIR_TEXT_MAX + 2];

        if (ctl_lines_keep(text, len, 1, &names[i], rest) >= len) {
            missing += ctl_fail("%s is not on a line of %s: nothing was done", names[i], path);
        }
    }
    return missing;
}

struct change {
    const struct ctl *c;
    bool add;
    int n;
    char *const *names;
};

static int drain_edit(void *arg, const char *path, const char *old, size_t len, char *text)
{
    const struct change *ch = arg;
    char list[R2_RUNDIR_TEXT_MAX + 8], why[128];
    int used;

    if (r2_rundir_drain_parse(old, len, list, sizeof(list), why, sizeof(why)) != 0) {
        ctl_fail("%s: %s. Mend or remove it first", path, why);
        return -1;
    }
    if (!ch->add && names_missing(path, old, len, ch->n, ch->names) != 0) {
        return -1;
    }
    used = (int)ctl_lines_keep(old, len, ch->n, ch->names, text);
    if (ch->add) {
        used = ctl_lines_add(ch->c, text, (size_t)used, CTL_TEXT_ROOM, ch->n, ch->names, "");
    }
    if (used < 0 || used > R2_RUNDIR_TEXT_MAX ||
        r2_rundir_drain_parse(text, (size_t)used, list, sizeof(list), why, sizeof(why)) != 0) {
        ctl_fail("%s would have more than %d names or %d bytes", path, R2_RUNDIR_NAMES,
                 R2_RUNDIR_TEXT_MAX);
        return -1;
    }
    return used;
}

/* A stranger who made the file first, where anybody may, must not keep us waiting. -1: said. */
static int lock_take(const char *lock)
{
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct timespec step = {.tv_nsec = 20000000};
    char why[700];

    if (fd < 0) {
        ctl_fail("%s: %s", lock, strerror(errno));
        return -1;
    }
    if (!r2_rundir_file_safe(fd, lock, geteuid(), why, sizeof(why))) {
        ctl_fail("%s. Remove it", why);
        close(fd);
        return -1;
    }
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == 500) {
            ctl_fail("%s: %s", lock,
                     errno == EWOULDBLOCK ? "another r2_ctl holds it for 10 s" : strerror(errno));
            close(fd);
            return -1;
        }
        nanosleep(&step, NULL);
    }
    return fd;
}

/* Under the lock: two administrators at once lose nothing. */
int ctl_file_edit(const struct ctl *c, const char *path, ctl_edit_func_t edit, void *arg)
{
    char lock[600], old[R2_RUNDIR_TEXT_MAX + 1], text[CTL_TEXT_ROOM], why[400];
    size_t len;
    int fd, used, rc = 1;

    snprintf(lock, sizeof(lock), "%s.lock", path);
    fd = lock_take(lock);
    if (fd < 0) {
        return 1;
    }
    if (r2_rundir_text(path, geteuid(), old, &len, why, sizeof(why)) != 0) {
        ctl_fail("%s. Mend or remove it first", why);
    } else {
        used = edit(arg, path, old, len, text);
        rc = used < 0 ? 1 : file_replace(path, text, (size_t)used);
    }
    close(fd);
    for (int i = 0; rc == 0 && i < c->registries; i++) {
        r2_host_registry_ring(c->registry[i]);
    }
    return rc;
}

struct known {
    const char *name;
    bool found;
};

static void known_row(void *arg, const struct ctl_row *r)
{
    struct known *k = arg;

    k->found |= ctl_name_is(k->name, &r->nic);
}

bool ctl_name_known(const struct ctl *c, const char *name)
{
    struct known k = {.name = name};

    ctl_rows_walk(c, known_row, &k);
    return k.found;
}

int ctl_drain_change(const struct ctl *c, bool add, int n, char *const *names)
{
    struct change ch = {.c = c, .add = add, .n = n, .names = names};
    char path[512];

    if (ctl_names_check(n, names) != 0 || ctl_names_known(c, add ? n : 0, names) != 0) {
        return 1;
    }
    if (r2_rundir_drain_path(c->dir, geteuid(), path, sizeof(path)) != 0) {
        return ctl_fail("%s: the name is too long", c->dir);
    }
    return ctl_file_edit(c, path, drain_edit, &ch);
}

/* --- waiting --- */

struct users {
    int n;
    char *const *names;
    bool say;
    int users; /* processes; rows of one are behind each other */
    long last; /* the last one's pid */
    long pid;  /* the first one's */
    char command[R2_HOST_REGISTRY_NAME];
};

static void users_row(void *arg, const struct ctl_row *r)
{
    struct users *u = arg;

    for (int i = 0; i < u->n; i++) {
        if (!ctl_name_is(u->names[i], &r->nic) || (r->nic.usable == 0 && r->nic.drained)) {
            continue;
        }
        if (u->users == 0) {
            u->pid = (long)r->who.pid;
            snprintf(u->command, sizeof(u->command), "%s", r->who.command);
        }
        u->users += u->users == 0 || u->last != (long)r->who.pid;
        u->last = (long)r->who.pid;
        if (u->say && !r->nic.drained) {
            ctl_fail("%s: process %ld (%s, user %u) does not drain it", r->nic.name,
                     (long)r->who.pid, r->who.command, (unsigned)r->uid);
        } else if (u->say) {
            ctl_fail(
                "%s: process %ld (%s, user %u) has %u connections over it, for %u of them it is the last NIC",
                r->nic.name, (long)r->who.pid, r->who.command, (unsigned)r->uid, r->nic.usable,
                r->nic.last);
        }
        return;
    }
}

static void wait_say(const struct users *u, double waited_s, double limit_s)
{
    char more[40] = "";

    if (u->users > 1) {
        snprintf(more, sizeof(more), " and %d more", u->users - 1);
    }
    fprintf(stderr,
            "r2_ctl: not free yet after %.0f s: %s (pid %ld)%s; waits for at most %.0f s more\n",
            waited_s, u->command, u->pid, more, limit_s - waited_s);
}

int ctl_drain_wait(const struct ctl *c, int n, char *const *names)
{
    struct users u = {.n = n, .names = names};
    struct patience p = {0};
    struct timespec step = {.tv_nsec = 20000000};
    uint64_t since = r2_clock_ns(CLOCK_MONOTONIC);
    double waited;

    for (;;) {
        u.users = 0;
        ctl_rows_walk(c, users_row, &u);
        waited = (double)(r2_clock_ns(CLOCK_MONOTONIC) - since) / 1e9;
        if (u.users == 0 || u.say) {
            break;
        }
        if (waited >= c->limit_s) {
            u.say = true; /* once more, and now by name */
        } else {
            if (patience_is_due(&p, waited)) {
                wait_say(&u, waited, c->limit_s);
            }
            nanosleep(&step, NULL); /* rows change without a bell */
        }
    }
    return u.users ? ctl_fail("not free after %g s", c->limit_s) : 0;
}
