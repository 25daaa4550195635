/*
 * A process of the matrix: the only one on its host. One connection to every other host over each
 * NIC, and from it; numbered messages without end, each checked. A connection that ends with an
 * error stays ended: the others go on, and so does the process, as one that is to be heard. The
 * processes share a folder and nothing else, so that they may be on several machines (tests/lab).
 */
#include "tests/matrix/matrix.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_perf/abi.h"

#define MESSAGE (32u << 10)
#define DEPTH   2
#define PAUSE_MS                                                                                   \
    4 /* of a sender between two messages, unless said otherwise: two cores carry it all */
#define NAPS    40           /* in a pause: how often it is looked whether something has moved */
#define SEEK_NS (20 * MX_MS) /* between two looks for a handle */
#define SAY_NS  (1000 * MX_MS)

struct end {
    int sender, other, nic, over;
    int found; /* sender: has the handle */
    char handle[ABI_HANDLE_BYTES];
    void *listen, *comm, *mr, *req[DEPTH];
    uint64_t *buf, head, tail; /* messages done, posted */
    uint64_t next_at;          /* sender: not before; without a handle yet: not looked for before */
};

static struct {
    const struct abi_net *net;
    const char *dir; /* a file with the handle for each connection */
    int host, hosts, nics;
    uint64_t pause_ns;
    struct end end[2 * MX_HOSTS * MX_NICS];
    int ends;
    uint64_t said, send_at; /* messages over each connection, as last printed; when to look again */
} me;

static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[MX_LINE - 16];
    va_list ap;

    if (level > ABI_LOG_INFO) { /* NCCL_R2_LOG=trace is set for what is left out otherwise */
        return;
    }
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
    uint64_t from = (uint64_t)(e->sender ? me.host : e->other),
             to = (uint64_t)(e->sender ? e->other : me.host);

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
        if (p[i] != w + i) {
            rank_die("a message has wrong bytes");
        }
    }
}

static void end_over(struct end *e, const char *call, int rc)
{
    dprintf(1, "# host %d: %s %s host %d over NIC %d: %s returned %d\n", me.host,
            e->sender ? "send" : "recv", e->sender ? "to" : "from", e->other, e->nic, call, rc);
    e->over = 1;
}

/* TMP: its name while it is being written, so that a handle appears whole. */
static void way_name(const struct end *e, char *out, size_t len, const char *tmp)
{
    snprintf(out, len, "%s/%d-%d-%d%s", me.dir, e->sender ? me.host : e->other,
             e->sender ? e->other : me.host, e->nic, tmp);
}

static void way_put(const struct end *e, const char handle[ABI_HANDLE_BYTES])
{
    char tmp[512], name[512];
    int fd;

    way_name(e, tmp, sizeof(tmp), ".new");
    way_name(e, name, sizeof(name), "");
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, handle, ABI_HANDLE_BYTES) != ABI_HANDLE_BYTES || close(fd) != 0 ||
        rename(tmp, name) != 0) {
        rank_die("a handle cannot be written");
    }
}

/* 0: it is not there yet. */
static int way_get(const struct end *e, char handle[ABI_HANDLE_BYTES])
{
    char name[512];
    int fd;
    ssize_t n;

    way_name(e, name, sizeof(name), "");
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    n = read(fd, handle, ABI_HANDLE_BYTES);
    close(fd);
    if (n != ABI_HANDLE_BYTES) {
        rank_die("a handle is not whole");
    }
    return 1;
}

static void end_listen(struct end *e)
{
    char handle[ABI_HANDLE_BYTES];

    if (me.net->listen(e->nic, handle, &e->listen) != ABI_SUCCESS) {
        rank_die("listen failed");
    }
    way_put(e, handle);
}

static void end_open(struct end *e, uint64_t now)
{
    struct abi_device_handle *none = NULL;
    int rc;

    if (!e->sender) {
        if (e->listen == NULL) {
            end_listen(e);
        }
        rc = me.net->accept(e->listen, &e->comm, &none);
    } else {
        if (!e->found && now >= e->next_at) {
            e->found = way_get(e, e->handle);
            e->next_at = now + SEEK_NS;
        }
        if (!e->found) {
            return;
        }
        rc = me.net->connect(e->nic, e->handle, &e->comm, &none);
    }
    if (rc == ABI_SUCCESS && e->comm) {
        rc = me.net->reg_mr(e->comm, e->buf, MESSAGE * DEPTH, ABI_PTR_HOST, &e->mr);
    }
    if (rc != ABI_SUCCESS) {
        end_over(e, "set-up", rc);
    }
}

/* Posts the next message; 1 when it was taken. */
static int end_post(struct end *e, uint64_t now)
{
    void *data = slot_of(e, e->tail), **req = &e->req[e->tail % DEPTH];
    int size = MESSAGE, tag = 0, rc;

    if (e->tail - e->head == DEPTH || (e->sender && now < e->next_at)) {
        return 0;
    }
    for (uint64_t i = 0; e->sender && i < MESSAGE / 8; i++) {
        slot_of(e, e->tail)[i] = word_of(e, e->tail) + i;
    }
    rc = e->sender ? me.net->isend(e->comm, data, size, tag, e->mr, req)
                   : me.net->irecv(e->comm, 1, &data, &size, &tag, &e->mr, req);
    if (rc != ABI_SUCCESS) {
        end_over(e, e->sender ? "isend" : "irecv", rc);
    }
    if (rc != ABI_SUCCESS || *req == NULL) {
        return 0;
    }
    e->tail++;
    e->next_at = now + me.pause_ns;
    return 1;
}

static int end_test(struct end *e)
{
    int done = 0, size[64], rc; /* core has room for as many */

    if (e->head == e->tail) {
        return 0;
    }
    rc = me.net->test(e->req[e->head % DEPTH], &done, size);
    if (rc != ABI_SUCCESS) {
        end_over(e, "test", rc);
    }
    if (rc != ABI_SUCCESS || !done) {
        return 0;
    }
    if (!e->sender) {
        slot_check(e, e->head);
    }
    e->head++;
    return 1;
}

static int end_turn(struct end *e, uint64_t now)
{
    int moved = 0;

    if (e->over) {
        return 0;
    }
    if (e->comm == NULL) {
        end_open(e, now);
        return 0;
    }
    moved = end_post(e, now);
    return (e->over ? 0 : end_test(e)) | moved;
}

/* A line when every connection that is not over has carried more than at the last line. */
static void progress_say(uint64_t now)
{
    uint64_t least = UINT64_MAX;
    int n = 0;

    if (now < me.send_at) {
        return;
    }
    me.send_at = now + SAY_NS;
    for (int i = 0; i < me.ends; i++) {
        if (!me.end[i].over) {
            least = me.end[i].head < least ? me.end[i].head : least;
            n++;
        }
    }
    if (n && least > me.said) {
        dprintf(1, "# carried %llu messages over each of %d connections\n",
                (unsigned long long)least, n);
        me.said = least;
    }
}

static void ends_make(void)
{
    for (int h = 0; h < me.hosts; h++) {
        for (int n = 0; n < me.nics && h != me.host; n++) {
            for (int s = 0; s < 2; s++) {
                struct end *e = &me.end[me.ends++];

                *e = (struct end){
                    .sender = s, .other = h, .nic = n, .buf = aligned_alloc(4096, MESSAGE * DEPTH)};
                if (e->buf == NULL) {
                    rank_die("memory");
                }
            }
        }
    }
}

int mx_rank_main(int argc, char **argv)
{
    struct timespec nap = {0, 0};
    void *lib;
    int ndev = 0;

    if (argc != 5 && argc != 6) {
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    me.host = atoi(argv[0]);
    me.hosts = atoi(argv[1]);
    me.nics = atoi(argv[2]);
    me.dir = argv[4];
    me.pause_ns = (argc == 6 ? strtoull(argv[5], NULL, 10) : PAUSE_MS) * MX_MS;
    nap.tv_nsec = (long)(me.pause_ns / NAPS % 1000000000);
    lib = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL || (me.net = dlsym(lib, ABI_TABLE_SYMBOL)) == NULL) {
        rank_die(lib ? "no table" : dlerror());
    }
    if (me.net->init(logger) != ABI_SUCCESS || me.net->devices(&ndev) != ABI_SUCCESS ||
        ndev != me.nics) {
        rank_die("init");
    }
    ends_make();
    for (;;) {
        int moved = 0;

        for (int i = 0; i < me.ends; i++) {
            moved |= end_turn(&me.end[i], mx_now());
        }
        progress_say(mx_now());
        if (!moved) {
            nanosleep(&nap, NULL);
        }
    }
}

int mx_ways_make(const char *path)
{
    char name[512];
    struct dirent *d;
    DIR *dir;
    int rc = mkdir(path, 0700);

    if (rc == 0 || errno != EEXIST) {
        return rc;
    }
    dir = opendir(path);
    if (dir == NULL) {
        return -1;
    }
    rc = 0;
    while (rc == 0 && (d = readdir(dir)) != NULL) {
        snprintf(name, sizeof(name), "%s/%s", path, d->d_name);
        if (d->d_name[0] != '.' && unlink(name) != 0) {
            rc = -1;
        }
    }
    closedir(dir);
    return rc;
}
