/*
 * A net plugin over TCP on the loopback, with a second, independent reading of the v8 table. It
 * exists to test drivers of plugins: it is right by default, and wrong in one chosen way when told
 * so by the environment.
 *
 *   TCPTEST_NDEV=N        devices (default 2)
 *   TCPTEST_NULL=P        isend, irecv and the connection calls answer "not now" in P percent of
 *                         calls
 *   TCPTEST_CORRUPT=N     flip one bit of the N-th message that this process receives
 *   TCPTEST_DROP=N        throw the content of the N-th message away and say that it arrived
 *   TCPTEST_SHORT=N       deliver the first half of the N-th message and report that size
 *   TCPTEST_STALE=N       after the N-th message, write over it once more, as a late copy would
 *   TCPTEST_STALL=N:MS    let the N-th message wait MS milliseconds, and log that a path went DOWN
 *   TCPTEST_STALL_AT=FILE:MS   the same with the first message that is complete when there is FILE
 *   TCPTEST_ERROR=N       answer a remote error when the N-th message would be done
 *   TCPTEST_HANG=N        never finish the N-th message
 *   TCPTEST_KILL=N        die by SIGKILL at the N-th message
 *   TCPTEST_LISTEN=1      listen fails; TCPTEST_INIT=1: init fails
 * Messages are counted from 1 per process, empty ones left out. A thread calls one connection at a
 * time, as NCCL does.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef void (*log_t)(int level, unsigned long flags, const char *file, int line, const char *fmt,
                      ...);

struct props {
    char *name, *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
};

enum { OK = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, REMOTE_ERROR = 6 };
enum kind { FREE, SEND, RECV, FLUSH };

#define REQUESTS     32
#define HANDLE_MAGIC 0x7463707465737431ull

struct handle {
    uint64_t magic;
    uint16_t port;
    int32_t fd; /* connect's state between calls: 0 none, else fd + 1 */
};
_Static_assert(sizeof(struct handle) <= 128, "handle");

struct comm;
struct request {
    struct comm *comm;
    enum kind kind; /* FREE once it was tested as done */
    char *data;
    uint32_t size, capacity, moved, head, head_moved;
    bool done, short_done;
    uint64_t ready_ns; /* not done before */
    uint64_t number;   /* of the message in this process */
};

struct comm {
    int fd;
    struct request requests[REQUESTS];
    uint64_t posted, finished; /* ring over requests: [finished, posted) move data, in order */
};

static struct {
    log_t log;
    int ndev, null_percent;
    uint64_t corrupt, drop, cut, stale, stall, stall_ms, error, hang, kill;
    bool bad_listen, bad_init;
    char stall_at[256];        /* empty: none, or it has been */
    _Atomic uint64_t received; /* a counter; nothing is ordered by it */
} state;

static char names[8][20];

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t env_number(const char *name, uint64_t other)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : other;
}

/* True now and then, without any order that a driver could get used to. */
static bool not_now(void)
{
    static _Thread_local uint64_t x = 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (int)(x % 100) < state.null_percent;
}

static int tcp_init(log_t log)
{
    const char *colon = getenv("TCPTEST_STALL") ? strchr(getenv("TCPTEST_STALL"), ':') : NULL;
    const char *at = getenv("TCPTEST_STALL_AT");
    state.log = log;
    state.ndev = (int)env_number("TCPTEST_NDEV", 2);
    state.null_percent = (int)env_number("TCPTEST_NULL", 0);
    state.corrupt = env_number("TCPTEST_CORRUPT", 0);
    state.drop = env_number("TCPTEST_DROP", 0);
    state.cut = env_number("TCPTEST_SHORT", 0);
    state.stale = env_number("TCPTEST_STALE", 0);
    state.stall = env_number("TCPTEST_STALL", 0);
    state.stall_ms = colon ? strtoull(colon + 1, NULL, 10) : 0;
    if (at && strrchr(at, ':')) {
        state.stall_ms = strtoull(strrchr(at, ':') + 1, NULL, 10);
        snprintf(state.stall_at, sizeof(state.stall_at), "%.*s", (int)(strrchr(at, ':') - at), at);
    }
    state.error = env_number("TCPTEST_ERROR", 0);
    state.hang = env_number("TCPTEST_HANG", 0);
    state.kill = env_number("TCPTEST_KILL", 0);
    state.bad_listen = env_number("TCPTEST_LISTEN", 0);
    state.bad_init = env_number("TCPTEST_INIT", 0);
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof(names[i]), "tcptest%d", i);
    }
    if (state.bad_init) {
        log(2, ~0ul, __FILE__, __LINE__, "NET/TCPTEST : told to fail in init");
        return SYSTEM_ERROR;
    }
    log(3, 0x10, __func__, __LINE__, "NET/TCPTEST : %d devices", state.ndev);
    return OK;
}

static int tcp_devices(int *ndev)
{
    *ndev = state.ndev;
    return OK;
}

static int tcp_properties(int dev, struct props *p)
{
    *p = (struct props){.name = names[dev % 8],
                        .guid = (uint64_t)dev + 1,
                        .ptr_support = 1,
                        .speed = 10000,
                        .port = 1,
                        .max_comms = 65536,
                        .max_recvs = 1};
    return OK;
}

static int tcp_listen(int dev, void *handle, void **listen_comm)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    struct handle h = {.magic = HANDLE_MAGIC};
    if (state.bad_listen) {
        state.log(2, ~0ul, __FILE__, __LINE__, "NET/TCPTEST : told to fail in listen");
        return SYSTEM_ERROR;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        return SYSTEM_ERROR;
    }
    struct comm *c = calloc(1, sizeof(*c));
    h.port = at.sin_port;
    memcpy(handle, &h, sizeof(h));
    c->fd = fd;
    *listen_comm = c;
    return OK;
}

static struct comm *comm_new(int fd)
{
    struct comm *c = calloc(1, sizeof(*c));
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->fd = fd;
    return c;
}

/* Keeps its socket in the handle between calls, which a driver has to preserve. */
static int tcp_connect(int dev, void *handle, void **send_comm, void **dev_comm)
{
    struct handle h;
    memcpy(&h, handle, sizeof(h));
    *send_comm = NULL;
    if (h.magic != HANDLE_MAGIC) {
        return INTERNAL_ERROR;
    }
    if (not_now()) {
        return OK;
    }
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = h.port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!h.fd) {
        h.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) + 1;
        memcpy(handle, &h, sizeof(h));
    }
    if (connect(h.fd - 1, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EISCONN) {
        *send_comm = comm_new(h.fd - 1);
        return OK;
    }
    return errno == EINPROGRESS || errno == EALREADY ? OK : REMOTE_ERROR;
}

static int tcp_accept(void *listen_comm, void **recv_comm, void **dev_comm)
{
    struct comm *l = listen_comm;
    *recv_comm = NULL;
    int fd = not_now() ? -1 : accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        *recv_comm = comm_new(fd);
    }
    return OK;
}

static int tcp_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
    *mhandle = comm;
    return type == 1 ? OK : INTERNAL_ERROR;
}

static int tcp_dereg(void *comm, void *mhandle)
{
    return OK;
}

/* The next slot, or NULL when all are in use. */
static struct request *request_new(struct comm *c, enum kind kind)
{
    struct request *r = &c->requests[c->posted % REQUESTS];
    if (r->kind != FREE || c->posted - c->finished >= REQUESTS || not_now()) {
        return NULL;
    }
    *r = (struct request){.comm = c, .kind = kind};
    c->posted++;
    return r;
}

static int tcp_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
    struct request *r = request_new(comm, SEND);
    if (mhandle != comm || size < 0) {
        return INTERNAL_ERROR;
    }
    *request = r;
    if (r) {
        r->data = data;
        r->head = r->size = (uint32_t)size;
    }
    return OK;
}

static int tcp_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
                     void **request)
{
    struct request *r = request_new(comm, RECV);
    if (n != 1 || mhandles[0] != comm) {
        return INTERNAL_ERROR;
    }
    *request = r;
    if (r) {
        r->data = data[0];
        r->capacity = (uint32_t)sizes[0];
    }
    return OK;
}

static int tcp_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
    struct comm *c = comm;
    struct request *r = c->posted - c->finished < REQUESTS / 2 ? request_new(comm, FLUSH) : NULL;
    *request = r;
    return OK;
}

static bool stall_due(uint64_t n)
{
    if (state.stall_at[0] && access(state.stall_at, F_OK) == 0) {
        state.stall_at[0] = '\0';
        return true;
    }
    return n == state.stall;
}

/* What goes wrong on purpose, once a message is complete. */
static int message_spoil(struct request *r)
{
    uint64_t n = r->number = atomic_fetch_add(&state.received, 1) + 1;
    if (n == state.kill) {
        raise(SIGKILL);
    }
    if (n == state.corrupt) {
        r->data[r->size / 2] ^= 0x10;
    }
    if (n == state.cut) {
        r->size /= 2;
    }
    if (stall_due(n)) {
        r->ready_ns = now_ns() + state.stall_ms * 1000000u;
        state.log(3, 0x10, __func__, __LINE__, "NET/R2 : test line of a path that is DOWN");
    }
    if (n == state.hang) {
        r->ready_ns = UINT64_MAX;
    }
    if (n == state.error) {
        state.log(2, ~0ul, __FILE__, __LINE__, "NET/TCPTEST : told to fail at message %llu",
                  (unsigned long long)n);
        return REMOTE_ERROR;
    }
    return OK;
}

/* Bytes that the spoilers throw away go here. */
static char *message_place(struct request *r, char *waste, size_t room, size_t *want)
{
    uint64_t n = atomic_load(&state.received) + 1;
    bool lose = n == state.drop || (n == state.cut && r->moved >= r->head / 2);
    if (n == state.cut && r->moved < r->head / 2 && *want > r->head / 2 - r->moved) {
        *want = r->head / 2 - r->moved;
    }
    if (lose) {
        *want = *want < room ? *want : room;
    }
    return lose ? waste : r->data + r->moved;
}

static int request_send(struct request *r)
{
    while (r->head_moved < sizeof(r->head) || r->moved < r->size) {
        bool head = r->head_moved < sizeof(r->head);
        const char *from = head ? (char *)&r->head + r->head_moved : r->data + r->moved;
        size_t left = head ? sizeof(r->head) - r->head_moved : r->size - r->moved;
        ssize_t k = send(r->comm->fd, from, left, MSG_NOSIGNAL | (head && r->size ? MSG_MORE : 0));
        if (k < 0) {
            return errno == EAGAIN ? OK : REMOTE_ERROR;
        }
        *(head ? &r->head_moved : &r->moved) += (uint32_t)k;
    }
    r->done = true;
    return OK;
}

static int request_recv(struct request *r)
{
    static _Thread_local char waste[65536];
    while (r->head_moved < sizeof(r->head) || r->moved < r->head) {
        bool head = r->head_moved < sizeof(r->head);
        size_t left = head ? sizeof(r->head) - r->head_moved : r->head - r->moved;
        char *to =
            head ? (char *)&r->head + r->head_moved : message_place(r, waste, sizeof(waste), &left);
        ssize_t k = recv(r->comm->fd, to, left, 0);
        if (k <= 0) {
            return k < 0 && errno == EAGAIN ? OK : REMOTE_ERROR;
        }
        *(head ? &r->head_moved : &r->moved) += (uint32_t)k;
        if (r->head > r->capacity && r->head_moved == sizeof(r->head)) {
            return INTERNAL_ERROR; /* drivers under test never send more than was asked for */
        }
    }
    r->size = r->head;
    r->done = true;
    return r->size ? message_spoil(r) : OK;
}

/* Move everything of the connection that can move: only the oldest request is ever tested. */
static int comm_pump(struct comm *c)
{
    while (c->finished < c->posted) {
        struct request *r = &c->requests[c->finished % REQUESTS];
        int rc = r->kind == SEND ? request_send(r) : r->kind == RECV ? request_recv(r) : OK;
        r->done = r->done || r->kind == FLUSH ||
                  r->kind == FREE; /* a flush may have been tested already */
        if (rc || !r->done) {
            return rc;
        }
        c->finished++;
    }
    return OK;
}

static int tcp_test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    *done = 0;
    int rc = comm_pump(r->comm);
    if (r->kind == FLUSH && r->moved++) {
        r->done = true; /* at the second look, and never behind receives that were posted later */
    }
    if (rc || !r->done || r->ready_ns > now_ns()) {
        return rc;
    }
    *done = 1;
    if (sizes) {
        sizes[0] = (int)r->size;
    }
    if (r->kind == RECV && r->number && r->number == state.stale) {
        memset(r->data, 0x5a, r->size);
    }
    r->kind = FREE;
    return OK;
}

static int tcp_close(void *comm)
{
    struct comm *c = comm;
    if (c) {
        close(c->fd);
        free(c);
    }
    return OK;
}

struct table {
    const char *name;
    int (*init)(log_t);
    int (*devices)(int *);
    int (*properties)(int, struct props *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg)(void *, void *, size_t, int, void **);
    void *reg_dmabuf;
    int (*dereg)(void *, void *);
    int (*isend)(void *, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void **, int *, int *, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    void *device_mr, *consumed;
};
_Static_assert(sizeof(struct table) == 152 && sizeof(struct props) == 64, "layout of the v8 table");

extern const struct table ncclNetPlugin_v8;
__attribute__((visibility("default"))) const struct table ncclNetPlugin_v8 = {
    "TCPTEST", tcp_init,  tcp_devices, tcp_properties, tcp_listen, tcp_connect, tcp_accept,
    tcp_reg,   NULL,      tcp_dereg,   tcp_isend,      tcp_irecv,  tcp_iflush,  tcp_test,
    tcp_close, tcp_close, tcp_close,   NULL,           NULL};
