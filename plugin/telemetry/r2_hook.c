#include "r2_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/r2_fsize.h"
#include "base/r2_log.h"
#include "base/r2_rundir.h"
#include "base/r2_thread.h"
#include "base/r2_time.h"

#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9; the same number on all architectures */
#endif

#define STACK         32768 /* bytes, of either of the two that come after the thread */
#define LOCK_TRIES    200
#define LOCK_PAUSE_NS 10000000

#define FD_MAX 65536 /* descriptors that are closed one by one, before Linux 5.9 */

extern char **environ;

/* One run. All of it is one piece of memory, the thread's. */
struct run {
    char program[512], reason[32], key[100], told[512];
    const char *argv[3];
    char **env;
    int in; /* what the program reads */
    int err;
    size_t len;
    char line[R2_HOOK_LINE];
    _Alignas(16) char middle[STACK];
    _Alignas(16) char leaf[STACK];
};

/* --- who has been told --- */

static bool line_parse(const char *text, const char *end, uint64_t *at, const char **key)
{
    char number[24];
    const char *space = memchr(text, ' ', (size_t)(end - text));
    char *stop;

    if (space == NULL || space == text || (size_t)(space - text) >= sizeof(number) ||
        end - space < 2 || *text < '0' || *text > '9') {
        return false;
    }
    memcpy(number, text, (size_t)(space - text));
    number[space - text] = '\0';
    errno = 0;
    *at = strtoull(number, &stop, 10);
    *key = space + 1;
    return *stop == '\0' && errno == 0;
}

int r2_hook_told(const char *text, size_t *len, uint64_t now, const char *key,
                 char out[R2_HOOK_TOLD])
{
    const char *end = text + *len, *next;
    size_t n = 0, key_len = strlen(key), own;
    char mine[128];

    own = (size_t)snprintf(mine, sizeof(mine), "%llu %.96s\n", (unsigned long long)now, key);
    for (const char *at = text; at < end; at = next) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *who;
        uint64_t when;
        size_t size;

        next = stop ? stop + 1 : end;
        if (stop == NULL || !line_parse(at, stop, &when, &who) || when > now ||
            now - when >= R2_HOOK_PAUSE_NS) {
            continue;
        }
        if ((size_t)(stop - who) == key_len && memcmp(who, key, key_len) == 0) {
            return 0;
        }
        size = (size_t)(next - at);
        while (n + size + own > R2_HOOK_TOLD && n > 0) { /* the oldest stand first */
            char *first = memchr(out, '\n', n);

            n -= (size_t)(first + 1 - out);
            memmove(out, first + 1, n);
        }
        if (n + size + own <= R2_HOOK_TOLD) {
            memcpy(out + n, at, size);
            n += size;
        }
    }
    memcpy(out + n, mine, own);
    *len = n + own;
    return 1;
}

int r2_hook_path(const char *dir, char *out, size_t len)
{
    int n = snprintf(out, len, "%s/nccl-net-r2.%u.told", dir, (unsigned)geteuid());

    return n < 0 || (size_t)n >= len ? -1 : 0;
}

/* Others hold it for microseconds, but where one of them has been stopped. */
static bool lock_take(int fd)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return false;
}

/*
 * Whether this process is the one of its host that runs the program. Where the file
 * cannot be used, once too often is better than never.
 */
static bool is_ours(const struct run *r)
{
    char text[R2_HOOK_TOLD], out[R2_HOOK_TOLD], why[700];
    struct r2_fsize guard;
    ssize_t got;
    size_t len;
    bool due, wrong;
    int fd;

    if (r->told[0] == '\0') {
        return true;
    }
    fd = open(r->told, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0 || !r2_rundir_file_safe(fd, r->told, geteuid(), why, sizeof(why))) {
        R2_WARN("NCCL_R2_ON_EVENT: %s: %s: other processes of this host may run it, too", r->told,
                fd < 0 ? strerror(errno) : why);
        if (fd >= 0) {
            close(fd);
        }
        return true;
    }
    if (!lock_take(fd) || (got = pread(fd, text, sizeof(text), 0)) < 0) {
        close(fd);
        return true;
    }
    len = (size_t)got;
    due = r2_hook_told(text, &len, r2_clock_ns(CLOCK_MONOTONIC), r->key, out);
    r2_fsize_begin(&guard);
    wrong = due && (pwrite(fd, out, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) != 0);
    r2_fsize_end(&guard);
    if (wrong) {
        R2_INFO("NCCL_R2_ON_EVENT: %s cannot be written: %s", r->told, strerror(errno));
    }
    close(fd); /* and with it the lock */
    return due;
}

/* --- running --- */

/*
 * Both run in this process's memory, while the one that made them stands still: as between vfork
 * and exec, they call nothing but the kernel. Signal handlers and descriptors are theirs.
 */
__attribute__((no_sanitize("address", "thread"))) static int leaf_main(void *arg)
{
    struct run *r = arg;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(r->program, (char *const *)r->argv, r->env);
    r->err = errno;
    syscall(SYS_exit_group, 127);
    return 127;
}

__attribute__((no_sanitize("address", "thread"))) static void descriptors_close(void)
{
    struct rlimit most;

    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0) {
        return;
    }
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur > FD_MAX) {
        most.rlim_cur = FD_MAX;
    }
    for (int fd = 3; fd < (int)most.rlim_cur; fd++) {
        close(fd);
    }
}

/*
 * Stands between the job and the program: it ends at once, without a signal to the job, so that the
 * program belongs to init.
 */
__attribute__((no_sanitize("address", "thread"))) static int middle_main(void *arg)
{
    struct run *r = arg;
    struct sigaction usual = {.sa_handler = SIG_DFL};

    for (int s = 1; s < _NSIG; s++) {
        sigaction(s, &usual, NULL);
    }
    setsid();
    if (r->in == 0 ? fcntl(0, F_SETFD, 0) != 0 : dup2(r->in, 0) != 0) {
        r->err = errno;
    } else {
        descriptors_close();
        if (clone(leaf_main, r->leaf + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, r) < 0) {
            r->err = errno;
        }
    }
    syscall(SYS_exit_group, 0);
    return 0;
}

static void program_start(struct run *r)
{
    int ends[2], pid = -1;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        r->err = errno;
        return;
    }
    if (write(ends[1], r->line, r->len) == (ssize_t)r->len) {
        close(ends[1]);
        r->in = ends[0];
        pid = clone(middle_main, r->middle + STACK, CLONE_VM | CLONE_VFORK, r);
    } else {
        close(ends[1]);
    }
    if (pid < 0) {
        r->err = errno;
    }
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR) {
    }
}

static void *run_main(void *arg)
{
    struct run *r = arg;

    if (!is_ours(r)) {
        R2_TRACE("NCCL_R2_ON_EVENT: %s has been run for %s on this host", r->program, r->reason);
        free(r);
        return NULL;
    }
    program_start(r);
    if (r->err) {
        R2_WARN("NCCL_R2_ON_EVENT=%s cannot be run: %s", r->program, strerror(r->err));
    } else {
        R2_INFO("NCCL_R2_ON_EVENT: %s %s runs", r->program, r->reason);
    }
    free(r);
    return NULL;
}

/* --- beginning --- */

struct r2_hook_env {
    size_t count, bytes;
    char text[]; /* NAME=VALUE, each ended by a zero */
};

static bool is_left_out(const char *name)
{
    return strncmp(name, "LD_PRELOAD=", 11) == 0;
}

struct r2_hook_env *r2_hook_env_copy(void)
{
    struct r2_hook_env *env;
    size_t bytes = 0;

    for (char **e = environ; e && *e; e++) {
        bytes += strlen(*e) + 1;
    }
    env = calloc(1, sizeof(*env) + bytes);
    for (char **e = environ; env && e && *e; e++) {
        size_t len = strlen(*e) + 1;

        if (!is_left_out(*e) && len <= bytes - env->bytes) {
            memcpy(env->text + env->bytes, *e, len);
            env->bytes += len;
            env->count++;
        }
    }
    return env;
}

/* A run with its own copy of all that @what names: it outlives the call, and the instance. */
static struct run *run_make(const struct r2_hook_run *what)
{
    size_t count = what->env ? what->env->count : 0, bytes = what->env ? what->env->bytes : 0;
    struct run *r = calloc(1, sizeof(*r) + (count + 1) * sizeof(char *) + bytes);
    char *text;

    if (r == NULL) {
        return NULL;
    }
    r->env = (char **)(r + 1);
    text = (char *)(r->env + count + 1);
    if (bytes) {
        memcpy(text, what->env->text, bytes);
    }
    for (size_t i = 0; i < count; i++) {
        r->env[i] = text;
        text += strlen(text) + 1;
    }
    snprintf(r->program, sizeof(r->program), "%s", what->program);
    snprintf(r->reason, sizeof(r->reason), "%s", what->reason);
    snprintf(r->key, sizeof(r->key), "%s", what->key);
    if (what->dir[0] && r2_hook_path(what->dir, r->told, sizeof(r->told)) != 0) {
        r->told[0] = '\0';
    }
    r->argv[0] = r->program;
    r->argv[1] = r->reason;
    r->len = what->len;
    memcpy(r->line, what->line, r->len);
    return r;
}

int r2_hook_start(const struct r2_hook_run *what)
{
    pthread_t thread;
    struct run *r;
    int rc;

    if (what->len > R2_HOOK_LINE || strlen(what->program) >= sizeof(r->program)) {
        return E2BIG;
    }
    r = run_make(what);
    if (r == NULL) {
        return ENOMEM;
    }
    rc = r2_thread_start(&thread, run_main, r);
    if (rc != 0) {
        free(r);
        return rc;
    }
    pthread_detach(thread);
    return 0;
}
