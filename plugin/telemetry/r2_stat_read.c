/* The reader (r2_stat.h). It reads with pread(): another user's file is never mapped, and a short
 * one is an error. */
#include "r2_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/r2_rundir.h"
#include "r2_stat_file.h"

#define ROUNDS 8  /* tries to take all of it at one moment */
#define TRIES  64 /* tries to take one record */
#define STALL_APART                                                                                \
    1000000000ull /* ns: the ends of a pair stop so far apart; what a last path is probed after */

const char *r2_stat_nic_state_name(unsigned state)
{
    static const char *const names[R2_STAT_NIC_STATES] = {"up", "down", "fatal", "gone"};

    return state < R2_STAT_NIC_STATES ? names[state] : "?";
}

bool r2_stat_stall_code(const char *blamed, uint64_t blamed_at, uint64_t ns, uint64_t until,
                        char code[R2_STAT_STALL_CODE])
{
    size_t len = strcspn(blamed, " ");
    uint64_t from = until > ns + STALL_APART ? until - ns - STALL_APART : 0;
    bool is_told = strncmp(blamed, "R2-", 3) == 0 && len < R2_STAT_STALL_CODE &&
                   blamed_at >= from && blamed_at <= until;

    snprintf(code, R2_STAT_STALL_CODE, "%.*s", is_told ? (int)len : 0, blamed);
    return is_told;
}

const char *r2_stat_path_state_name(unsigned state)
{
    static const char *const names[R2_STAT_PATH_STATES] = {"none", "up", "down", "fenced"};

    return state < R2_STAT_PATH_STATES ? names[state] : "?";
}

void r2_stat_times_of(const struct r2_hist *h, struct r2_stat_times *out)
{
    *out = (struct r2_stat_times){.samples = r2_hist_count(h),
                                  .sum_ns = h->sum_ns,
                                  .p50_ns = r2_hist_quantile(h, 500),
                                  .p99_ns = r2_hist_quantile(h, 990),
                                  .p999_ns = r2_hist_quantile(h, 999)};
}

int r2_stat_name(const char *name, uid_t *uid, uint64_t *unique)
{
    static const char head[] = "nccl-net-r2.";
    unsigned long id = 0;
    uint64_t v = 0;
    int n = 0;

    if (strncmp(name, head, sizeof(head) - 1) != 0) {
        return 0;
    }
    name += sizeof(head) - 1;
    for (; name[n] >= '0' && name[n] <= '9' && n < 10; n++) {
        id = 10 * id + (unsigned long)(name[n] - '0');
    }
    if (n == 0 || (n > 1 && name[0] == '0') || id > UINT32_MAX || name[n] != '.') {
        return 0;
    }
    name += n + 1;
    for (n = 0; n < 16; n++) {
        const char *at = name[n] ? strchr("0123456789abcdef", name[n]) : NULL;

        if (at == NULL) {
            return 0;
        }
        v = v << 4 | (unsigned)(at[0] <= '9' ? at[0] - '0' : at[0] - 'a' + 10);
    }
    *uid = (uid_t)id;
    *unique = v;
    return strcmp(name + 16, ".stat") == 0;
}

/* --- reading --- */

static int get(int fd, size_t at, void *out, size_t len)
{
    return pread(fd, out, len, (off_t)at) == (ssize_t)len ? 0 : -1;
}

/*
 * The number of a record, in order with the reads before and after: fences order what the kernel
 * reads for us like our own loads, since it does so on this processor.
 */
static int number(int fd, size_t at, uint64_t *no)
{
    int rc;

    atomic_thread_fence(memory_order_seq_cst);
    rc = get(fd, at, no, 8);
    atomic_thread_fence(memory_order_seq_cst);
    return rc;
}

/* A record as it was at one moment. -1: it is not there, or changes all the time. */
static int record(int fd, size_t at, void *out, size_t len)
{
    uint64_t before, after;

    for (int i = 0; i < TRIES; i++) {
        if (number(fd, at, &before) != 0 || get(fd, at + 8, out, len) != 0 ||
            number(fd, at, &after) != 0) {
            return -1;
        }
        if (before == after && before % 2 == 0) {
            return 0;
        }
    }
    return -1;
}

/* --- nothing is trusted --- */

static void text_mend(char *text, size_t room)
{
    text[room - 1] = '\0';
    for (size_t i = 0; text[i]; i++) {
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e) {
            text[i] = '?';
        }
    }
}
#define MEND(field) text_mend(field, sizeof(field))

static void who_mend(struct r2_stat_who *w)
{
    MEND(w->command);
    MEND(w->host);
    MEND(w->version);
    MEND(w->scheduler);
    MEND(w->job);
    MEND(w->step);
    w->peers = w->peers < R2_STAT_PEERS ? w->peers : R2_STAT_PEERS;
    w->nics = w->nics < R2_STAT_NICS ? w->nics : R2_STAT_NICS;
    w->conns = w->conns < R2_STAT_CONNS ? w->conns : R2_STAT_CONNS;
}

static void nic_mend(struct r2_stat_nic *n)
{
    MEND(n->name);
    MEND(n->device);
    MEND(n->pci);
    MEND(n->why);
    MEND(n->trouble);
    MEND(n->blamed);
    n->state = n->state < R2_STAT_NIC_STATES ? n->state : R2_STAT_NIC_STATES;
}

static void peer_mend(struct r2_stat_peer *p)
{
    MEND(p->host);
    MEND(p->address);
    for (int s = 0; s < R2_BAND_SIZES; s++) {
        struct r2_stat_transfer *t = &p->transfer[s];

        t->state = t->state < R2_BAND_STATES ? t->state : R2_BAND_LEARNS;
    }
}

static void conn_mend(struct r2_stat_conn *c, unsigned nics)
{
    MEND(c->peer_host);
    MEND(c->peer_addr);
    MEND(c->why);
    c->npaths = c->npaths < R2_STAT_PATHS ? c->npaths : R2_STAT_PATHS;
    c->dev = c->dev < nics ? c->dev : 0;
    for (int p = 0; p < R2_STAT_PATHS; p++) {
        struct r2_stat_path *path = &c->path[p];

        MEND(path->peer_name);
        path->nic = path->nic < nics ? path->nic : 0;
        path->state = path->state < R2_STAT_PATH_STATES ? path->state : R2_STAT_PATH_NONE;
    }
}

static int event_mend(struct r2_stat_event *e)
{
    MEND(e->code);
    MEND(e->nic);
    MEND(e->peer_host);
    MEND(e->peer_nic);
    MEND(e->cause);
    MEND(e->text);
    return e->no != 0;
}

/* --- the view --- */

static int events_read(int fd, struct r2_stat_view *v)
{
    uint64_t all = v->who.history, n = all < R2_STAT_HISTORY ? all : R2_STAT_HISTORY;

    v->events = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct r2_stat_event *e = &v->event[v->events];
        uint64_t no = all - n + i + 1;

        if (record(fd, R2_STAT_HISTORY_AT + (no - 1) % R2_STAT_HISTORY * R2_STAT_RECORD(*e), e,
                   sizeof(*e)) != 0) {
            continue;
        }
        v->events += event_mend(e) && e->no == no; /* else a later one has taken its place */
    }
    return 0;
}

static void peers_read(int fd, struct r2_stat_view *v)
{
    for (uint32_t i = 0; i < v->who.peers; i++) {
        struct r2_stat_peer *p = &v->peer[i];

        if (record(fd, R2_STAT_PEERS_AT + i * R2_STAT_RECORD(*p), p, sizeof(*p)) != 0) {
            memset(p, 0, sizeof(*p));
        }
        peer_mend(p);
    }
}

static void conns_read(int fd, struct r2_stat_view *v)
{
    v->conns = 0;
    for (uint32_t i = 0; i < v->who.conns; i++) {
        struct r2_stat_conn *c = &v->conn[v->conns];

        if (record(fd, R2_STAT_CONNS_AT + i * R2_STAT_RECORD(*c), c, sizeof(*c)) != 0 ||
            c->id == 0) {
            continue;
        }
        conn_mend(c, v->who.nics);
        v->conns++;
    }
}

/* All records once. -1: not even the first one. */
static int pass(int fd, struct r2_stat_view *v)
{
    if (record(fd, R2_STAT_WHO_AT, &v->who, sizeof(v->who)) != 0) {
        return -1;
    }
    who_mend(&v->who);
    for (uint32_t i = 0; i < v->who.nics; i++) {
        if (record(fd, R2_STAT_NICS_AT + i * R2_STAT_RECORD(v->nic[0]), &v->nic[i],
                   sizeof(v->nic[i])) != 0) {
            memset(&v->nic[i], 0, sizeof(v->nic[i]));
        }
        nic_mend(&v->nic[i]);
    }
    peers_read(fd, v);
    events_read(fd, v);
    conns_read(fd, v);
    return 0;
}

int r2_stat_read_fd(int fd, const char *path, struct r2_stat_view *v, char *why, size_t why_len)
{
    uint64_t head[2] = {0}, before, after;

    memset(v, 0, sizeof(*v));
    if (get(fd, 0, head, sizeof(head)) == 0 && head[0] == 0) {
        return 0; /* it is being made */
    }
    if (head[0] != R2_STAT_MAGIC) {
        snprintf(why, why_len, "%s is no statistics file", path);
        return -1;
    }
    if (head[1] != r2_stat_shape()) {
        snprintf(why, why_len,
                 "%s holds no statistics of this version: its format is %u, and %d can be read",
                 path, (unsigned)(head[1] >> 48), R2_STAT_VERSION);
        return -1;
    }
    v->conn = calloc(R2_STAT_CONNS, sizeof(*v->conn));
    if (v->conn == NULL) {
        snprintf(why, why_len, "out of memory");
        return -1;
    }
    for (int i = 0; i < ROUNDS && !v->whole; i++) {
        if (number(fd, R2_STAT_ROUND_AT, &before) != 0 || pass(fd, v) != 0 ||
            number(fd, R2_STAT_ROUND_AT, &after) != 0) {
            snprintf(why, why_len, "%s is truncated, or changes all the time", path);
            r2_stat_view_free(v);
            return -1;
        }
        v->whole = before == after && before % 2 == 0;
    }
    return 1;
}

/* Whether somebody holds the file's lock. */
static int alive(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

int r2_stat_read(const char *path, uid_t uid, struct r2_stat_view *v, char *why, size_t why_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc;

    memset(v, 0, sizeof(*v));
    if (fd < 0) {
        snprintf(why, why_len, "%s: %s", path, strerror(errno));
        return errno == ENOENT ? 0 : -1;
    }
    if (!r2_rundir_file_safe(fd, path, uid, why, why_len)) {
        rc = -1;
    } else if (!alive(fd)) {
        rc = 0;
    } else {
        rc = r2_stat_read_fd(fd, path, v, why, why_len);
    }
    close(fd);
    return rc;
}

void r2_stat_view_free(struct r2_stat_view *v)
{
    free(v->conn);
    v->conn = NULL;
    v->conns = 0;
}
