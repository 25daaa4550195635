/* The writer (r2_stat.h). Pages are reserved before they are written: a full file system must not
 * become a signal in somebody's job. */
#include "r2_stat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/r2_fsize.h"
#include "base/r2_rundir.h"
#include "r2_stat_file.h"

#define GROW  64 /* connections by which the file grows */
#define TRIES 4  /* names, where a sweep of another process is in between */

typedef _Atomic uint64_t word;
_Static_assert(sizeof(word) == 8, "atomic words are plain ones in memory");

struct r2_stat {
    struct r2_stat *next; /* all_lock */
    int fd;
    uint8_t *map;
    unsigned room; /* connections for which there is room in the file */
    int full;      /* the file system has no more */
    char path[512];
};

/* For the child of a fork(), whose copy of the descriptor would keep the lock when this process
 * ends. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct r2_stat *all;

static void fork_before(void)
{
    pthread_mutex_lock(&all_lock);
}
static void fork_parent(void)
{
    pthread_mutex_unlock(&all_lock);
}
static void fork_child(void)
{
    for (struct r2_stat *s = all; s; s = s->next) {
        close(s->fd);
        s->fd = -1;
    }
    pthread_mutex_unlock(&all_lock);
}
static void fork_register(void)
{
    pthread_atfork(fork_before, fork_parent, fork_child);
}

/* --- words --- */

/* Each store is a release and pairs with the reader's fences: who sees a new word also sees that
 * the number was odd before. */
static void set(word *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static word *word_at(const struct r2_stat *s, size_t at)
{
    return (word *)(void *)(s->map + at);
}

static void put(struct r2_stat *s, size_t at, const void *rec, size_t size)
{
    word *w = word_at(s, at);
    uint64_t no = atomic_load_explicit(w, memory_order_relaxed) & ~1ull;

    if (memcmp(s->map + at + 8, rec, size) == 0) {
        return; /* the page stays clean */
    }
    set(w, no + 1);
    for (size_t i = 0; i < size / 8; i++) {
        uint64_t v;

        memcpy(&v, (const uint8_t *)rec + 8 * i, 8);
        set(&w[1 + i], v);
    }
    set(w, no + 2);
}

/* --- the file --- */

static int lock(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &l);
}

/* Takes away the file if nobody holds its lock. Whoever makes one locks it before it writes, and
 * looks afterwards whether it is still there. */
static void sweep_one(const char *path, uid_t uid)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char why[600];

    if (fd < 0) {
        return;
    }
    if (r2_rundir_file_safe(fd, path, uid, why, sizeof(why)) && lock(fd) == 0) {
        unlink(path);
    }
    close(fd);
}

static void sweep(const char *dir, uid_t uid)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        char path[512];
        uint64_t unique;
        uid_t of;
        int n;

        if (!r2_stat_name(e->d_name, &of, &unique) || of != uid) {
            continue;
        }
        n = snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (n > 0 && (size_t)n < sizeof(path)) {
            sweep_one(path, uid);
        }
    }
    if (d) {
        closedir(d);
    }
}

/* A file that is ours and locked; -1 with the reason. */
static int make(struct r2_stat *s, const char *dir, uid_t uid, uint64_t unique, char *why,
                size_t why_len)
{
    struct stat st;

    for (int i = 0; i < TRIES; i++) {
        int n = snprintf(s->path, sizeof(s->path), "%s/nccl-net-r2.%u.%016llx.stat", dir,
                         (unsigned)uid, (unsigned long long)unique + (unsigned)i);

        if (n < 0 || (size_t)n >= sizeof(s->path)) {
            snprintf(why, why_len, "the name of the run directory is too long");
            return -1;
        }
        s->fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (s->fd < 0) {
            snprintf(why, why_len, "%s: %s", s->path, strerror(errno));
            continue;
        }
        if (fchmod(s->fd, 0600) == 0 && lock(s->fd) == 0 && fstat(s->fd, &st) == 0 &&
            st.st_nlink == 1) {
            return 0;
        }
        snprintf(why, why_len, "%s: %s", s->path, strerror(errno));
        unlink(s->path);
        close(s->fd);
    }
    return -1;
}

static int reserve(struct r2_stat *s, unsigned conns)
{
    off_t from = s->room ? (off_t)R2_STAT_SIZE(s->room) : 0;
    struct r2_fsize guard;

    r2_fsize_begin(&guard);
    errno =
        posix_fallocate(s->fd, from, (off_t)R2_STAT_SIZE(conns) - from); /* which does not set it */
    r2_fsize_end(&guard);
    if (errno != 0) {
        return -1;
    }
    s->room = conns;
    return 0;
}

/* The whole range is mapped, the file is as long as it has room. */
static int map(struct r2_stat *s)
{
    s->map = mmap(NULL, R2_STAT_SIZE(R2_STAT_CONNS), PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->map == MAP_FAILED) {
        return -1;
    }
    madvise(s->map, R2_STAT_SIZE(R2_STAT_CONNS), MADV_DONTFORK);
    return 0;
}

struct r2_stat *r2_stat_create(const char *dir, uid_t uid, uint64_t unique, char *why,
                               size_t why_len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct r2_stat *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    sweep(dir, uid);
    if (make(s, dir, uid, unique, why, why_len) != 0) {
        free(s);
        return NULL;
    }
    if (reserve(s, GROW) != 0 || map(s) != 0) {
        snprintf(why, why_len, "%s: %s", s->path, strerror(errno));
        unlink(s->path);
        close(s->fd);
        free(s);
        return NULL;
    }
    set(word_at(s, 8), r2_stat_shape());
    set(word_at(s, 0), R2_STAT_MAGIC); /* from here on it is one */
    pthread_once(&once, fork_register);
    pthread_mutex_lock(&all_lock);
    s->next = all;
    all = s;
    pthread_mutex_unlock(&all_lock);
    return s;
}

void r2_stat_remove(struct r2_stat *s)
{
    struct r2_stat **p;

    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&all_lock);
    for (p = &all; *p != s; p = &(*p)->next) {
    }
    *p = s->next;
    pthread_mutex_unlock(&all_lock);
    munmap(s->map, R2_STAT_SIZE(R2_STAT_CONNS));
    if (s->fd >= 0) {
        unlink(s->path);
        close(s->fd);
    }
    free(s);
}

const char *r2_stat_path(const struct r2_stat *s)
{
    return s->path;
}

/* --- records --- */

void r2_stat_begin(struct r2_stat *s)
{
    word *w = word_at(s, R2_STAT_ROUND_AT);

    set(w, atomic_load_explicit(w, memory_order_relaxed) | 1);
}

void r2_stat_end(struct r2_stat *s)
{
    word *w = word_at(s, R2_STAT_ROUND_AT);

    set(w, (atomic_load_explicit(w, memory_order_relaxed) | 1) + 1);
}

int r2_stat_put_who(struct r2_stat *s, const struct r2_stat_who *who)
{
    put(s, R2_STAT_WHO_AT, who, sizeof(*who));
    return 1;
}

int r2_stat_put_nic(struct r2_stat *s, unsigned i, const struct r2_stat_nic *nic)
{
    if (i >= R2_STAT_NICS) {
        return 0;
    }
    put(s, R2_STAT_NICS_AT + i * R2_STAT_RECORD(*nic), nic, sizeof(*nic));
    return 1;
}

int r2_stat_put_peer(struct r2_stat *s, unsigned i, const struct r2_stat_peer *peer)
{
    if (i >= R2_STAT_PEERS) {
        return 0;
    }
    put(s, R2_STAT_PEERS_AT + i * R2_STAT_RECORD(*peer), peer, sizeof(*peer));
    return 1;
}

int r2_stat_put_conn(struct r2_stat *s, unsigned i, const struct r2_stat_conn *conn)
{
    if (i >= R2_STAT_CONNS) {
        return 0;
    }
    if (i >= s->room && (s->full || reserve(s, (i / GROW + 1) * GROW) != 0)) {
        s->full = 1;
        return 0;
    }
    put(s, R2_STAT_CONNS_AT + i * R2_STAT_RECORD(*conn), conn, sizeof(*conn));
    return 1;
}

int r2_stat_put_event(struct r2_stat *s, const struct r2_stat_event *e)
{
    if (e->no == 0) {
        return 0;
    }
    put(s, R2_STAT_HISTORY_AT + (e->no - 1) % R2_STAT_HISTORY * R2_STAT_RECORD(*e), e, sizeof(*e));
    return 1;
}
