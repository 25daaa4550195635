#include "tests/abi/drv.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINKS_MAX 64

/* A value that is no pointer: what NCCL's variables may hold when they are handed over. */
#define STALE ((void *)0x5a5a5a5a)

/* One half-open connection; the handle is a heap copy of what came from the other side, as core's
 * is. */
struct half {
    void *listen;
    char *handle;
};

static void half_begin(struct half *h, int dev)
{
    char mine[ABI_HANDLE_BYTES], *theirs = malloc(ABI_HANDLE_BYTES);

    NEED(theirs != NULL, "memory");
    h->listen = NULL;
    OK(drv.net->listen(dev, mine, &h->listen));
    NEED(h->listen != NULL, "listen succeeded without a comm");
    drv_swap(mine, theirs, sizeof(mine));
    memset(mine, 0xee, sizeof(mine));
    h->handle = theirs;
}

/* One turn, never waiting. 1 when both directions stand. */
static int half_turn(struct half *h, struct drv_link *l)
{
    struct abi_device_handle *untouched = STALE;

    if (l->send == NULL) {
        l->send = STALE;
        /* sendDevComm may be NULL itself; where there is one it stays what it was */
        OK(drv.net->connect(l->dev, h->handle, &l->send, l->dev & 1 ? &untouched : NULL));
        NEED(l->send != STALE, "connect left *sendComm as it was");
        NEED(untouched == STALE, "connect wrote *sendDevComm");
    }
    if (l->recv == NULL) {
        l->recv = STALE;
        OK(drv.net->accept(h->listen, &l->recv, l->dev & 1 ? &untouched : NULL));
        NEED(l->recv != STALE, "accept left *recvComm as it was");
        if (l->recv != NULL) {
            OK(drv.net->close_listen(h->listen)); /* at once, as core does */
            h->listen = NULL;
        }
    }
    return l->send != NULL && l->recv != NULL;
}

static void connect_all(struct drv_link *l, int n)
{
    static struct half h[LINKS_MAX];
    int left = n;

    NEED(n <= LINKS_MAX, "%d links", n);
    for (int i = 0; i < n; i++) {
        half_begin(&h[i], l[i].dev);
    }
    while (left > 0) {
        for (int i = 0; i < n; i++) {
            if (h[i].handle != NULL && half_turn(&h[i], &l[i])) {
                memset(h[i].handle, 0xdd, ABI_HANDLE_BYTES);
                free(h[i].handle);
                h[i].handle = NULL;
                left--;
            }
        }
        sched_yield();
    }
}

void drv_connect(struct drv_link *l, int dev)
{
    *l = (struct drv_link){.dev = dev};
    connect_all(l, 1);
}

void drv_connect_many(struct drv_link *l, int n)
{
    for (int i = 0; i < n; i++) {
        l[i] = (struct drv_link){.dev = i % drv.ndev};
    }
    connect_all(l, n);
}

void drv_close(struct drv_link *l)
{
    OK(drv.net->close_send(l->send));
    OK(drv.net->close_recv(l->recv));
    l->send = l->recv = NULL;
}

void drv_self_test(void)
{
    char *buf = drv_map(8192);
    struct drv_link l;
    void *req[2];
    int sizes[2], peer = drv.peer;

    drv.peer = -1;
    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 4096), *mi = drv_reg(l.recv, buf + 4096, 4096);
    drv_fill(buf, 999, 4);
    req[0] = drv_irecv1(l.recv, buf + 4096, 4096, 0, mi);
    req[1] = drv_isend(l.send, buf, 999, 0, mo);
    drv_wait(req, 2, sizes);
    NEED(sizes[0] == 999 && sizes[1] == 999, "sizes %d %d", sizes[0], sizes[1]);
    drv_check(buf + 4096, 999, 4, "message");
    drv_close(&l);
    drv.peer = peer;
}

void *drv_map(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    NEED(p != MAP_FAILED, "mmap of %zu bytes", len);
    return p;
}

void *drv_reg(void *comm, void *data, size_t len)
{
    void *mh = NULL;

    OK(drv.net->reg_mr(comm, data, len, ABI_PTR_HOST, &mh));
    NEED(mh != NULL, "regMr succeeded without a handle");
    return mh;
}

static void request_check(const void *req)
{
    NEED(req != STALE, "*request was not written");
    NEED(req == NULL || (uintptr_t)req > 0xfff, "a request that looks like a small number");
}

void *drv_isend(void *comm, void *data, int size, int tag, void *mh)
{
    void *req;

    for (;;) {
        req = STALE;
        OK(drv.net->isend(comm, data, size, tag, mh, &req));
        request_check(req);
        if (req != NULL) {
            return req;
        }
        sched_yield();
    }
}

void *drv_irecv1(void *comm, void *data, int size, int tag, void *mh)
{
    void *req;

    for (;;) {
        req = STALE;
        OK(drv.net->irecv(comm, 1, &data, &size, &tag, &mh, &req));
        request_check(req);
        if (req != NULL) {
            return req;
        }
        sched_yield();
    }
}

int drv_test(void *request, int *sizes)
{
    int done = 7;

    OK(drv.net->test(request, &done, sizes));
    NEED(done == 0 || done == 1, "done is %d", done);
    return done;
}

void drv_wait(void **req, int n, int *sizes)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        left += req[i] != NULL;
    }
    while (left > 0) {
        for (int i = 0; i < n; i++) {
            if (req[i] != NULL && drv_test(req[i], sizes ? &sizes[i] : NULL)) {
                req[i] = NULL;
                left--;
            }
        }
        sched_yield();
    }
}

static uint64_t word_at(size_t i, uint32_t seed)
{
    return ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)seed * 0xc2b2ae3d27d4eb4full;
}

static uint8_t byte_at(size_t i, uint32_t seed)
{
    return (uint8_t)(word_at(i / 8, seed) >> (8 * (i % 8)));
}

void drv_fill(void *buf, size_t len, uint32_t seed)
{
    char *p = buf;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        uint64_t w = word_at(i / 8, seed);
        memcpy(p + i, &w, 8);
    }
    for (; i < len; i++) {
        p[i] = (char)byte_at(i, seed);
    }
}

void drv_check(const void *buf, size_t len, uint32_t seed, const char *what)
{
    const uint8_t *p = buf;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        uint64_t w = word_at(i / 8, seed), got;
        memcpy(&got, p + i, 8);
        NEED(got == w, "%s: wrong data in the 8 bytes at %zu of %zu", what, i, len);
    }
    for (; i < len; i++) {
        NEED(p[i] == byte_at(i, seed), "%s: wrong byte at %zu of %zu", what, i, len);
    }
}

void drv_check_byte(const void *buf, size_t len, int value, const char *what)
{
    const uint8_t *p = buf;

    for (size_t i = 0; i < len; i++) {
        NEED(p[i] == value, "%s: byte %zu of %zu was written", what, i, len);
    }
}
