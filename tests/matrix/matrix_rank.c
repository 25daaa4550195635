/*
 * A process of the matrix: the only one on its host. One connection to every other host over each NIC, and from it;
 * numbered messages without end, each checked. A connection that ends with an error stays ended: the others go on, and
 * so does the process, as one that is to be heard.
 */
#include "tests/matrix/matrix.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_perf/abi.h"

#define MESSAGE  (32u << 10)
#define DEPTH    2
#define PAUSE_NS (4 * MX_MS) /* of a sender between two messages: two cores carry it all */

/* Shared by the processes of a job: a handle for each connection. */
struct board {
    struct {
        _Atomic int ready;
        char handle[ABI_HANDLE_BYTES];
    } way[MX_HOSTS][MX_HOSTS][MX_NICS]; /* from, to */
};

struct end {
    int sender, other, nic, over;
    void *listen, *comm, *mr, *req[DEPTH];
    uint64_t *buf, head, tail; /* messages done, posted */
    uint64_t next_at;
};

static struct {
    const struct abi_net *net;
    struct board *board;
    int host, hosts, nics;
    struct end end[2 * MX_HOSTS * MX_NICS];
    int ends;
} me;

static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[MX_LINE - 16];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    dprintf(1, "%s %s\n", level == ABI_LOG_WARN ? "WARN" : "INFO", text);
}

static __attribute__((noreturn)) void rank_die(const char *what)
{
    dprintf(1, "r2_matrix: host %d: %s\n", me.host, what);
    _exit(1);
}

static uint64_t word_of(const struct end *e, uint64_t message)
{
    uint64_t from = (uint64_t)(e->sender ? me.host : e->other), to = (uint64_t)(e->sender ? e->other : me.host);

    return ((from * MX_HOSTS + to) * MX_NICS + (uint64_t)e->nic + 1) * 0x9e3779b97f4a7c15ull ^
           (message + 1) * 0xd1342543de82ef95ull;
}

static uint64_t *slot_of(const struct end *e, uint64_t message)
{
    return e->buf + message % DEPTH * (MESSAGE / 8);
}

static void slot_check(const struct end *e, uint64_t message)
{
    uint64_t w = word_of(e, message);
    const uint64_t *p = slot_of(e, message);

    for (uint64_t i = 0; i < MESSAGE / 8; i++) {
        if (p[i] != w + i)
            rank_die("a message has wrong bytes");
    }
}

static void end_over(struct end *e, const char *call, int rc)
{
    dprintf(1, "# host %d: %s %s host %d over NIC %d: %s returned %d\n", me.host, e->sender ? "send" : "recv",
            e->sender ? "to" : "from", e->other, e->nic, call, rc);
    e->over = 1;
}

static void end_open(struct end *e)
{
    int to = e->sender ? e->other : me.host, from = e->sender ? me.host : e->other, rc;
    struct abi_device_handle *none = NULL;

    if (!e->sender && e->listen == NULL) {
        rc = me.net->listen(e->nic, me.board->way[from][to][e->nic].handle, &e->listen);
        if (rc != ABI_SUCCESS)
            rank_die("listen failed");
        atomic_store_explicit(&me.board->way[from][to][e->nic].ready, 1, memory_order_release);
    }
    if (!e->sender)
        rc = me.net->accept(e->listen, &e->comm, &none);
    else if (atomic_load_explicit(&me.board->way[from][to][e->nic].ready, memory_order_acquire))
        rc = me.net->connect(e->nic, me.board->way[from][to][e->nic].handle, &e->comm, &none);
    else
        return;
    if (rc == ABI_SUCCESS && e->comm)
        rc = me.net->reg_mr(e->comm, e->buf, MESSAGE * DEPTH, ABI_PTR_HOST, &e->mr);
    if (rc != ABI_SUCCESS)
        end_over(e, "set-up", rc);
}

/* Posts the next message; 1 when it was taken. */
static int end_post(struct end *e, uint64_t now)
{
    void *data = slot_of(e, e->tail), **req = &e->req[e->tail % DEPTH];
    int size = MESSAGE, tag = 0, rc;

    if (e->tail - e->head == DEPTH || (e->sender && now < e->next_at))
        return 0;
    for (uint64_t i = 0; e->sender && i < MESSAGE / 8; i++)
        slot_of(e, e->tail)[i] = word_of(e, e->tail) + i;
    rc = e->sender ? me.net->isend(e->comm, data, size, tag, e->mr, req)
                   : me.net->irecv(e->comm, 1, &data, &size, &tag, &e->mr, req);
    if (rc != ABI_SUCCESS)
        end_over(e, e->sender ? "isend" : "irecv", rc);
    if (rc != ABI_SUCCESS || *req == NULL)
        return 0;
    e->tail++;
    e->next_at = now + PAUSE_NS;
    return 1;
}

static int end_test(struct end *e)
{
    int done = 0, size[64], rc; /* core has room for as many */

    if (e->head == e->tail)
        return 0;
    rc = me.net->test(e->req[e->head % DEPTH], &done, size);
    if (rc != ABI_SUCCESS)
        end_over(e, "test", rc);
    if (rc != ABI_SUCCESS || !done)
        return 0;
    if (!e->sender)
        slot_check(e, e->head);
    e->head++;
    return 1;
}

static int end_turn(struct end *e, uint64_t now)
{
    int moved = 0;

    if (e->over)
        return 0;
    if (e->comm == NULL) {
        end_open(e);
        return 0;
    }
    moved = end_post(e, now);
    return (e->over ? 0 : end_test(e)) | moved;
}

static void ends_make(void)
{
    for (int h = 0; h < me.hosts; h++) {
        for (int n = 0; n < me.nics && h != me.host; n++) {
            for (int s = 0; s < 2; s++) {
                struct end *e = &me.end[me.ends++];

                *e = (struct end){.sender = s, .other = h, .nic = n, .buf = aligned_alloc(4096, MESSAGE * DEPTH)};
                if (e->buf == NULL)
                    rank_die("memory");
            }
        }
    }
}

int mx_rank_main(int argc, char **argv)
{
    static const struct timespec nap = {0, 100000};
    void *lib;
    int fd, ndev = 0;

    if (argc != 5)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    me.host = atoi(argv[0]);
    me.hosts = atoi(argv[1]);
    me.nics = atoi(argv[2]);
    fd = open(argv[4], O_RDWR | O_CLOEXEC);
    me.board = mmap(NULL, sizeof(*me.board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    lib = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    if (me.board == MAP_FAILED || lib == NULL || (me.net = dlsym(lib, ABI_TABLE_SYMBOL)) == NULL)
        rank_die(lib ? "no board, or no table" : dlerror());
    if (me.net->init(logger) != ABI_SUCCESS || me.net->devices(&ndev) != ABI_SUCCESS || ndev != me.nics)
        rank_die("init");
    ends_make();
    for (;;) {
        int moved = 0;

        for (int i = 0; i < me.ends; i++)
            moved |= end_turn(&me.end[i], mx_now());
        if (!moved)
            nanosleep(&nap, NULL);
    }
}

int mx_board_make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd >= 0 ? ftruncate(fd, sizeof(struct board)) : -1;

    if (fd >= 0)
        close(fd);
    return rc;
}
