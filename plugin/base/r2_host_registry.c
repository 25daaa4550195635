#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "r2_fsize.h"
#include "r2_host_registry_int.h"
#include "r2_rundir.h"

/* For the child of a fork(), whose copy of the descriptor would keep the lock when this process
 * ends. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct r2_host_registry *all;

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
    for (struct r2_host_registry *b = all; b; b = b->next) {
        close(b->fd);
        if (b->notify >= 0) {
            close(b->notify);
        }
        b->fd = b->notify = -1;
    }
    pthread_mutex_unlock(&all_lock);
}
static void fork_register(void)
{
    pthread_atfork(fork_before, fork_parent, fork_child);
}

const char *r2_host_registry_kind_name(enum r2_host_registry_kind k)
{
    static const char *const names[R2_HOST_REGISTRY_KINDS] = {
        "none", "NIC down", "NIC up", "NIC pair silent", "NIC pair answers", "news", "way silent"};

    return (unsigned)k < R2_HOST_REGISTRY_KINDS ? names[k] : "?";
}

/* --- the file --- */

int r2_host_registry_path(const char *dir, uid_t uid, char *out, size_t len)
{
    int n = snprintf(out, len, "%s/nccl-net-r2.%u.board", dir, (unsigned)uid);

    return n < 0 || (size_t)n >= len ? -1 : 0;
}

/* Whole from the moment it has its name. 0 also when somebody else was faster. */
static int make(const char *dir, const char *path, char *why, size_t why_len)
{
    uint64_t head[3] = {MAGIC, (uint64_t)R2_HOST_REGISTRY_SLOTS << 32 | VERSION, 0};
    char tmp[512];
    int fd = -1, n = snprintf(tmp, sizeof(tmp), "%s/.nccl-net-r2.XXXXXX", dir), rc = -1;
    struct r2_fsize guard;

    if (n > 0 && (size_t)n < sizeof(tmp)) {
        fd = mkostemp(tmp, O_CLOEXEC);
    }
    if (fd < 0) {
        snprintf(why, why_len, "%s: no file can be made there: %s", dir, strerror(errno));
        return -1;
    }
    r2_fsize_begin(&guard);
    errno = posix_fallocate(fd, 0, (off_t)FILE_SIZE); /* which does not set it */
    r2_fsize_end(&guard);
    if (errno != 0 || fchmod(fd, 0600) != 0 ||
        pwrite(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head)) {
        snprintf(why, why_len, "%s: %s", tmp, strerror(errno));
    } else if (link(tmp, path) != 0 && errno != EEXIST) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
    } else {
        rc = 0;
    }
    unlink(tmp);
    close(fd);
    return rc;
}

static int check(int fd, const char *path, char *why, size_t why_len)
{
    uint64_t head[2] = {0};
    struct stat st;

    if (fstat(fd, &st) != 0 || (size_t)st.st_size != FILE_SIZE ||
        pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head) || head[0] != MAGIC ||
        head[1] != ((uint64_t)R2_HOST_REGISTRY_SLOTS << 32 | VERSION)) {
        snprintf(why, why_len, "%s is no host registry of this version: remove it when no job runs",
                 path);
        return -1;
    }
    return 0;
}

static struct r2_host_registry *map_file(int fd, const char *path, char *why, size_t why_len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct r2_host_registry *b = calloc(1, sizeof(*b));

    if (b == NULL) {
        snprintf(why, why_len, "out of memory");
        return NULL;
    }
    b->fd = fd;
    b->own = -1;
    b->map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (b->map == MAP_FAILED) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
        free(b);
        return NULL;
    }
    madvise(b->map, FILE_SIZE, MADV_DONTFORK);
    b->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (b->notify >= 0 && inotify_add_watch(b->notify, path, IN_MODIFY) < 0) {
        close(b->notify);
        b->notify = -1;
    }
    pthread_once(&once, fork_register);
    pthread_mutex_lock(&all_lock);
    b->next = all;
    all = b;
    pthread_mutex_unlock(&all_lock);
    return b;
}

static void known_set(struct r2_host_registry *b, int i, int taken)
{
    uint64_t bit = 1ull << i % 64;

    b->known[i / 64] = taken ? b->known[i / 64] | bit : b->known[i / 64] & ~bit;
}

struct r2_host_registry *r2_host_registry_attach(const char *dir, uid_t uid, char *why,
                                                 size_t why_len)
{
    char path[512];
    struct r2_host_registry *b = NULL;
    int fd;

    if (r2_host_registry_path(dir, uid, path, sizeof(path)) != 0) {
        snprintf(why, why_len, "the name of the run directory is too long");
        return NULL;
    }
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        int err = errno;

        snprintf(why, why_len, "%s: %s", path, strerror(err));
        errno = err;
        return NULL;
    }
    if (r2_rundir_file_safe(fd, path, uid, why, why_len) && check(fd, path, why, why_len) == 0) {
        b = map_file(fd, path, why, why_len);
    }
    if (b == NULL) {
        close(fd);
        errno = EINVAL;
        return NULL;
    }
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) { /* what was said before is history */
        b->seen_inc[i] = registry_get(&registry_slot_of(b, i)->incarnation);
        b->seen[i] = registry_get(&registry_slot_of(b, i)->events);
        known_set(b, i, b->seen_inc[i] != 0);
    }
    return b;
}

/* --- slots --- */

static struct flock lock_of(int i, short type)
{
    return (struct flock){.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = HEADER_SIZE + (off_t)i * SLOT_SIZE,
                          .l_len = 1};
}

/* Nobody can take it meanwhile: the lock is ours. Readers see incarnation 0 first and the new one
 * last. */
static void slot_begin(struct r2_host_registry *b, int i, const struct r2_host_registry_who *me)
{
    struct registry_slot *s = registry_slot_of(b, i);
    struct timespec ts;
    uint64_t inc;

    registry_set(&s->incarnation, 0);
    for (int e = 0; e < R2_HOST_REGISTRY_EVENTS; e++) {
        registry_set(&s->event[e][0], 0);
    }
    for (int n = 0; n < R2_HOST_REGISTRY_NICS; n++) {
        for (int w = 0; w < NIC_WORDS; w++) {
            registry_set(&s->nic[n][w], 0);
        }
        for (int w = 0; w < LOAD_WORDS; w++) {
            registry_set(&s->load[n][w], 0);
        }
        for (int w = 0; w < FLOW_WORDS; w++) {
            registry_set(&s->flow[n][w], 0);
        }
        for (int w = 0; w < TEMPO_WORDS; w++) {
            registry_set(&s->tempo[n][w], 0);
        }
    }
    registry_set(&s->flow_of, 0);
    registry_set(&s->tempo_of, 0);
    registry_set(&s->room_of, 0);
    registry_set(&s->events, 0);
    registry_set(&s->pid, (uint64_t)me->pid);
    registry_set(&s->since, me->since);
    registry_text_set(s->command, TEXT(R2_HOST_REGISTRY_NAME), me->command);
    registry_text_set(s->host, TEXT(R2_HOST_REGISTRY_HOST), me->host);
    clock_gettime(CLOCK_REALTIME, &ts);
    inc = (uint64_t)ts.tv_sec << 30 ^ (uint64_t)ts.tv_nsec ^ (uint64_t)me->pid << 40;
    registry_set(&s->incarnation, inc | 1);
    b->own = i;
}

struct r2_host_registry *r2_host_registry_open(const char *dir,
                                               const struct r2_host_registry_who *me, char *why,
                                               size_t why_len)
{
    char path[512];
    struct r2_host_registry *b = r2_host_registry_attach(dir, geteuid(), why, why_len);

    if (b == NULL && errno == ENOENT &&
        r2_host_registry_path(dir, geteuid(), path, sizeof(path)) == 0 &&
        make(dir, path, why, why_len) == 0) {
        b = r2_host_registry_attach(dir, geteuid(), why, why_len);
    }
    if (b == NULL) {
        return NULL;
    }
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        struct flock l = lock_of(i, F_WRLCK);

        if (fcntl(b->fd, F_OFD_SETLK, &l) == 0) {
            slot_begin(b, i, me);
            return b;
        }
        if (errno != EAGAIN && errno != EACCES) {
            snprintf(why, why_len, "%s: record locks: %s", dir, strerror(errno));
            r2_host_registry_close(b);
            return NULL;
        }
    }
    snprintf(why, why_len, "all %d slots of the host registry in %s are taken",
             R2_HOST_REGISTRY_SLOTS, dir);
    r2_host_registry_close(b);
    return NULL;
}

void r2_host_registry_close(struct r2_host_registry *b)
{
    struct r2_host_registry **p;

    if (b == NULL) {
        return;
    }
    if (b->own >= 0) {
        registry_set(&registry_slot_of(b, b->own)->incarnation, 0);
    }
    pthread_mutex_lock(&all_lock);
    for (p = &all; *p != b; p = &(*p)->next) {
    }
    *p = b->next;
    pthread_mutex_unlock(&all_lock);
    munmap(b->map, FILE_SIZE);
    if (b->notify >= 0) {
        close(b->notify);
    }
    if (b->fd >= 0) {
        close(b->fd); /* and with it the lock */
    }
    free(b);
}

/* --- the bell --- */

int r2_host_registry_fd(const struct r2_host_registry *b)
{
    return b->notify;
}

void r2_host_registry_heard(struct r2_host_registry *b)
{
    char sink[1024] __attribute__((aligned(__alignof__(struct inotify_event))));

    while (b->notify >= 0 && read(b->notify, sink, sizeof(sink)) > 0) {
    }
}

void r2_host_registry_ring(struct r2_host_registry *b)
{
    struct r2_fsize guard;
    uint64_t one = 1;
    ssize_t n;

    r2_fsize_begin(&guard); /* a limit counts in a file that is there, too */
    n = pwrite(b->fd, &one, sizeof(one), BELL);
    r2_fsize_end(&guard);
    if (n < 0) {
        return; /* they look from time to time */
    }
}

/* --- events --- */

void r2_host_registry_post(struct r2_host_registry *b, const struct r2_host_registry_event *e)
{
    struct registry_slot *s;
    word *w;
    uint64_t gid[2];

    if (b->own < 0) {
        return;
    }
    s = registry_slot_of(b, b->own);
    w = s->event[b->posted % R2_HOST_REGISTRY_EVENTS];
    memcpy(gid, e->gid, sizeof(gid));
    registry_set(&w[0], 0);
    registry_set(&w[1], (uint64_t)e->kind | (uint64_t)e->port << 8 | (uint64_t)e->lid << 16);
    registry_set(&w[2], e->guid);
    registry_set(&w[3], gid[0]);
    registry_set(&w[4], gid[1]);
    registry_set(&w[5], e->when);
    for (int i = 0; i < R2_HOST_REGISTRY_DATA; i++) {
        registry_set(&w[6 + i], e->data[i]);
    }
    b->posted++;
    registry_set(&w[0], b->posted);
    registry_set(&s->events, b->posted);
    r2_host_registry_ring(b);
}

/* Event number @no of @s. 0: it is not there (any more), or makes no sense. */
static int event_read(const struct registry_slot *s, uint64_t no, struct r2_host_registry_event *e)
{
    const word *w = s->event[(no - 1) % R2_HOST_REGISTRY_EVENTS];
    uint64_t gid[2], head;

    if (registry_get(&w[0]) != no) {
        return 0;
    }
    head = registry_get(&w[1]);
    e->guid = registry_get(&w[2]);
    gid[0] = registry_get(&w[3]);
    gid[1] = registry_get(&w[4]);
    e->when = registry_get(&w[5]);
    for (int i = 0; i < R2_HOST_REGISTRY_DATA; i++) {
        e->data[i] = registry_get(&w[6 + i]);
    }
    if (registry_get(&w[0]) != no) {
        return 0;
    }
    e->kind = (enum r2_host_registry_kind)(head & 0xff);
    e->port = (uint8_t)(head >> 8);
    e->lid = (uint16_t)(head >> 16);
    memcpy(e->gid, gid, sizeof(gid));
    return e->kind > R2_HOST_REGISTRY_NONE && e->kind < R2_HOST_REGISTRY_KINDS;
}

/* Gossip of slot @i: numbers (@from, *upto]. */
static int slot_gossip(struct r2_host_registry *b, int i, uint64_t *from, uint64_t *upto)
{
    const struct registry_slot *s = registry_slot_of(b, i);
    uint64_t inc = registry_get(&s->incarnation);

    if (i == b->own || inc == 0) {
        return 0;
    }
    if (inc != b->seen_inc[i]) {
        b->seen_inc[i] = inc;
        b->seen[i] = 0;
    }
    *upto = registry_get(&s->events);
    *from = b->seen[i];
    if (*upto <= *from) {
        return 0; /* nothing, or a number that went back, which an honest writer's never does */
    }
    if (*upto - *from > R2_HOST_REGISTRY_EVENTS) {
        *from = *upto - R2_HOST_REGISTRY_EVENTS; /* the rest is overwritten */
    }
    return 1;
}

static void who_get(const struct registry_slot *s, struct r2_host_registry_who *who)
{
    registry_text_get(s->command, TEXT(R2_HOST_REGISTRY_NAME), who->command);
    registry_text_get(s->host, TEXT(R2_HOST_REGISTRY_HOST), who->host);
    who->pid = (pid_t)registry_get(&s->pid);
    who->since = registry_get(&s->since);
}

/* The next event of slot @i. */
static int slot_next(struct r2_host_registry *b, int i, struct r2_host_registry_event *e,
                     struct r2_host_registry_who *from)
{
    uint64_t no, upto;

    if (!slot_gossip(b, i, &no, &upto)) {
        return 0;
    }
    while (no < upto) {
        b->seen[i] = ++no;
        if (event_read(registry_slot_of(b, i), no, e)) {
            if (from) {
                who_get(registry_slot_of(b, i), from);
            }
            return 1;
        }
    }
    return 0;
}

int r2_host_registry_next(struct r2_host_registry *b, struct r2_host_registry_event *e,
                          struct r2_host_registry_who *from)
{
    for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
        known_set(b, i, registry_get(&registry_slot_of(b, i)->incarnation) != 0);
        if (slot_next(b, i, e, from)) {
            return 1;
        }
    }
    return 0;
}

int r2_host_registry_next_known(struct r2_host_registry *b, struct r2_host_registry_event *e,
                                struct r2_host_registry_who *from)
{
    for (int w = 0; w < R2_HOST_REGISTRY_SLOTS / 64; w++) {
        for (uint64_t m = b->known[w]; m; m &= m - 1) {
            if (slot_next(b, 64 * w + __builtin_ctzll(m), e, from)) {
                return 1;
            }
        }
    }
    return 0;
}

int r2_host_registry_slot_alive(struct r2_host_registry *b, int i)
{
    struct flock l;

    if (i < 0 || i >= R2_HOST_REGISTRY_SLOTS ||
        registry_get(&registry_slot_of(b, i)->incarnation) == 0) {
        return 0;
    }
    l = lock_of(i, F_WRLCK);
    return fcntl(b->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

int r2_host_registry_slot(struct r2_host_registry *b, int i, struct r2_host_registry_who *who)
{
    if (!r2_host_registry_slot_alive(b, i)) {
        return 0;
    }
    who_get(registry_slot_of(b, i), who);
    return 1;
}

int r2_host_registry_slot_events(const struct r2_host_registry *b, int i,
                                 struct r2_host_registry_event out[R2_HOST_REGISTRY_EVENTS])
{
    const struct registry_slot *s = registry_slot_of(b, i);
    uint64_t upto = registry_get(&s->events);
    int n = 0;

    for (uint64_t no = upto > R2_HOST_REGISTRY_EVENTS ? upto - R2_HOST_REGISTRY_EVENTS : 0;
         no < upto; no++) {
        n += event_read(s, no + 1, &out[n]);
    }
    return n;
}
