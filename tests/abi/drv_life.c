/* Cases of connections and registrations: birth, sharing, death. */
#include "tests/abi/drv.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Nothing that must not block may take this long. RC gives up later, and with it whoever waits for
 * a peer or a packet; on an emulated processor (check-lab) a close has taken more than a second. */
#define QUICK_MS 5000

/* One message each way, checked. */
static void ping(struct drv_link *l, char *out, char *in, void *mo, void *mi, size_t len,
                 uint32_t seed)
{
    void *req[2];
    int sizes[2];

    drv_fill(out, len, seed + (uint32_t)drv.side);
    req[0] = drv_irecv1(l->recv, in, (int)len, 0, mi);
    req[1] = drv_isend(l->send, out, (int)len, 0, mo);
    drv_wait(req, 2, sizes);
    NEED(sizes[0] == (int)len && sizes[1] == (int)len, "sizes %d, %d", sizes[0], sizes[1]);
    drv_check(in, len, seed + (drv.peer < 0 ? 0 : 1 - (uint32_t)drv.side), "ping");
}

static void listen_and_nothing_else(void)
{
    char handle[ABI_HANDLE_BYTES];
    void *comm[200], *send = (void *)1, *recv = (void *)1;
    uint64_t t0 = drv_now_ms();

    for (int i = 0; i < 200; i++) {
        comm[i] = NULL;
        OK(drv.net->listen(i % drv.ndev, handle, &comm[i]));
        NEED(comm[i] != NULL, "no comm");
    }
    /* nobody dials */
    OK(drv.net->accept(comm[0], &recv, NULL));
    NEED(recv == NULL, "accept gave a comm that nobody connected");
    for (int i = 0; i < 200; i++) {
        OK(drv.net->close_listen(comm[i]));
    }
    NEED(drv_now_ms() - t0 < QUICK_MS, "%u ms", (unsigned)(drv_now_ms() - t0));
    /* bytes that are no handle */
    memset(handle, 0x5a, sizeof(handle));
    NEED(drv.net->connect(0, handle, &send, NULL) != ABI_SUCCESS && send == NULL,
         "connected to garbage");
    NEED(drv_last_warn()[0] != '\0', "no reason given");
    NEED(drv.net->listen(drv.ndev, handle, &recv) != ABI_SUCCESS && recv == NULL,
         "listening on a device that is not there");
}

/* Starts a request that may be refused, or fail because the other side has closed already. */
static void start_maybe(struct drv_link *l, char *buf, int in, void *mh)
{
    void *req = NULL, *data = buf;
    int size = in ? 1000 : 50000, tag = 0, rc;

    rc = in ? drv.net->irecv(l->recv, 1, &data, &size, &tag, &mh, &req)
            : drv.net->isend(l->send, buf, size, tag, mh, &req);
    NEED(rc == ABI_SUCCESS || rc == ABI_REMOTE_ERROR, "starting a request returned %d: %s", rc,
         drv_last_warn());
    NEED(rc == ABI_SUCCESS || req == NULL, "an error, and a request");
}

/* NCCL's abort: the requests are never tested again, both ends close, in any order; then new
 * connections. */
static void close_with_requests_outstanding(void)
{
    enum { ROOM = 1 << 20 };
    char *buf = drv_map(ROOM);
    struct drv_link l;

    for (int turn = 0; turn < 12; turn++) {
        drv_connect(&l, turn % drv.ndev);
        void *mo = drv_reg(l.send, buf, ROOM), *mi = drv_reg(l.recv, buf, ROOM);
        uint64_t t0;
        /* receives only, sends only, both, so that data is under way; each with both ends ready,
         * and with one that is early */
        for (int i = 0; i < 8 && turn % 3 != 1; i++) {
            start_maybe(&l, buf + i * 1000, 1, mi);
        }
        for (int i = 0; i < 200 && turn % 3 != 0; i++) {
            start_maybe(&l, buf + i % 8 * 50000, 0, mo);
        }
        if (turn & 1) {
            drv_barrier();
        }
        t0 = drv_now_ms();
        OK(drv.net->dereg_mr(l.send, mo)); /* core drops registrations before it closes */
        OK(drv.net->dereg_mr(l.recv, mi));
        drv_close(&l);
        NEED(drv_now_ms() - t0 < QUICK_MS, "turn %d: closing took %u ms", turn,
             (unsigned)(drv_now_ms() - t0));
        drv_barrier();
    }
    drv_connect(&l, 0);
    void *mo = drv_reg(l.send, buf, 1000), *mi = drv_reg(l.recv, buf + 4096, 1000);
    ping(&l, buf, buf + 4096, mo, mi, 1000, 9);
    drv_barrier();
    drv_close(&l);
}

/* The receiver is done before the sender knows; the sender closes first; the receiver has not yet
 * asked for what is on its way. */
static void one_end_closes_first(void)
{
    char *buf = drv_map(1 << 20);
    struct drv_link l;
    int size;

    for (int turn = 0; turn < 20; turn++) {
        drv_connect(&l, turn % drv.ndev);
        void *mh = drv_reg(drv.side ? l.recv : l.send, buf, 1 << 20), *req;
        if (drv.side == 0) {
            drv_fill(buf, 100000, (uint32_t)turn);
            req = drv_isend(l.send, buf, 100000, 0, mh);
            drv_wait(&req, 1, &size);
            drv_close(&l);
        } else {
            memset(buf, 0, 100000);
            req = drv_irecv1(l.recv, buf, 100000, 0, mh);
            if (turn & 1) {
                drv_wait(&req, 1, &size);
                drv_check(buf, 100000, (uint32_t)turn, "message");
                drv_close(&l); /* as early as NCCL may */
            } else {
                drv_wait(&req, 1, &size);
                drv_barrier();
                drv_check(buf, 100000, (uint32_t)turn, "message");
                drv_close(&l);
            }
        }
        if (drv.side == 0 && !(turn & 1)) {
            drv_barrier();
        }
    }
    drv_barrier();
}

/* The send/recv pool of NCCL: one buffer, registered once per connection, and parts of it. */
static void one_buffer_many_connections(void)
{
    enum { LINKS = 64, ROOM = LINKS * 4096 };
    static struct drv_link l[LINKS];
    static void *mo[LINKS], *mi[LINKS];
    char *buf = drv_map(2 * ROOM);
    uint64_t t0 = drv_now_ms();

    drv_connect_many(l, LINKS);
    fprintf(stderr, "%s side %d: 64 connections each way in %u ms\n", drv.name, drv.side,
            (unsigned)(drv_now_ms() - t0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LINKS; i++) {
            mo[i] = drv_reg(l[i].send, buf, 2 * ROOM);
            mi[i] = drv_reg(l[i].recv, buf + (i & 1 ? ROOM : 0), (size_t)ROOM * (i & 1 ? 1 : 2));
        }
        for (int i = 0; i < LINKS; i++) {
            ping(&l[i], buf + i * 4096, buf + ROOM + i * 4096, mo[i], mi[i], 3000,
                 (uint32_t)(round * LINKS + i) * 2);
        }
        /* the first to be let go are not the last: what is left must still serve */
        for (int i = 0; i < LINKS / 2; i++) {
            OK(drv.net->dereg_mr(l[i].send, mo[i]));
            OK(drv.net->dereg_mr(l[i].recv, mi[i]));
        }
        for (int i = LINKS / 2; i < LINKS; i++) {
            ping(&l[i], buf + i * 4096, buf + ROOM + i * 4096, mo[i], mi[i], 4000,
                 (uint32_t)(round * LINKS + i) * 3);
        }
        for (int i = LINKS / 2; i < LINKS; i++) {
            OK(drv.net->dereg_mr(l[i].send, mo[i]));
            OK(drv.net->dereg_mr(l[i].recv, mi[i]));
        }
        OK(drv.net->dereg_mr(l[0].send, NULL));
    }
    drv_barrier();
    for (int i = 0; i < LINKS; i++) {
        drv_close(&l[i]);
    }
}

/* The service thread of NCCL registers user buffers on a comm that the progress thread posts on. */
static struct drv_link shared;
static atomic_int stop;
static atomic_int registrations;

static void *registrar(void *arg)
{
    char *buf = drv_map(64 * 4096);
    uint32_t rnd = 3;

    while (!atomic_load(&stop)) {
        void *a, *b;
        size_t at = drv_random(&rnd) % 32 * 4096;
        a = drv_reg(shared.send, buf + at, 1 + drv_random(&rnd) % 100000);
        b = drv_reg(shared.recv, buf, 64 * 4096);
        OK(drv.net->dereg_mr(shared.send, a));
        OK(drv.net->dereg_mr(shared.recv, b));
        atomic_fetch_add(&registrations, 2);
        sched_yield();
    }
    return NULL;
}

static void registering_while_sending(void)
{
    char *buf = drv_map(1 << 20);
    pthread_t thread;

    drv_connect(&shared, 0);
    void *mo = drv_reg(shared.send, buf, 1 << 20), *mi = drv_reg(shared.recv, buf, 1 << 20);
    NEED(pthread_create(&thread, NULL, registrar, NULL) == 0, "thread");
    for (int i = 0; i < 3000; i++) {
        ping(&shared, buf, buf + (1 << 19), mo, mi, (size_t)i, (uint32_t)i * 2);
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    NEED(atomic_load(&registrations) >= 20, "only %d registrations meanwhile",
         atomic_load(&registrations));
    drv_barrier();
    drv_close(&shared);
}

/* A rank may exchange with itself, and host and device numbers have nothing to do with each other.
 */
static void every_pair_of_devices(void)
{
    char *buf = drv_map(1 << 16);

    for (int dev = 0; dev < drv.ndev; dev++) {
        struct drv_link l;
        drv_connect(&l, dev);
        void *mo = drv_reg(l.send, buf, 1 << 15), *mi = drv_reg(l.recv, buf + (1 << 15), 1 << 15);
        for (int i = 0; i < 50; i++) {
            ping(&l, buf, buf + (1 << 15), mo, mi, (size_t)(i * 500),
                 (uint32_t)(dev * 100 + i) * 2);
        }
        drv_barrier();
        drv_close(&l);
    }
}

const struct drv_case drv_cases_life[] = {
    {"listen_only", 1, 30, listen_and_nothing_else, NULL},
    {"loopback_close_outstanding", 1, 60, close_with_requests_outstanding, NULL},
    {"loopback_devices", 1, 60, every_pair_of_devices, NULL},
    {"devices", 2, 60, every_pair_of_devices, NULL},
    {"close_outstanding", 2, 60, close_with_requests_outstanding, NULL},
    {"close_first", 2, 60, one_end_closes_first, NULL},
    {"shared_buffer", 2, 90, one_buffer_many_connections, NULL},
    {"reg_while_isend", 2, 300, registering_while_sending, NULL},
    {0},
};
