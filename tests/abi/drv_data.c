/* Cases of the data path. */
#include "tests/abi/drv.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PTR_CUDA   0x2
#define PTR_DMABUF 0x4

#define GUARD 64 /* bytes around a message that must stay */
#define SLOTS 64 /* of the array that core hands to test() */

/* Sends @size bytes from @at in one buffer to @at2 in the other side's, both ways at once, and
 * looks at every byte around. */
static void exchange(struct drv_link *l, char *out, char *in, void *mo, void *mi, size_t size,
                     size_t at, size_t at2, uint32_t seed)
{
    int sizes[2] = {-1, -1};
    void *req[2];

    memset(in + at2 - GUARD, 0x77, size + 2 * GUARD);
    drv_fill(out + at, size, seed + (uint32_t)drv.side);
    req[1] = drv_irecv1(l->recv, in + at2, (int)size, 3, mi);
    req[0] = drv_isend(l->send, out + at, (int)size, 3, mo);
    drv_wait(req, 2, sizes);
    NEED(sizes[0] == (int)size && sizes[1] == (int)size, "%zu bytes: sent %d, received %d", size,
         sizes[0], sizes[1]);
    drv_check(in + at2, size, seed + (drv.peer < 0 ? 0 : 1 - (uint32_t)drv.side), "exchange");
    drv_check_byte(in + at2 - GUARD, GUARD, 0x77, "before the message");
    drv_check_byte(in + at2 + size, GUARD, 0x77, "behind the message");
}

static void sizes_and_alignments(void)
{
    static const size_t sizes[] = {0,     1,     2,      7,      8,      63,      64,      127,
                                   128,   129,   255,    1000,   4095,   4096,    4097,    65535,
                                   65536, 65537, 131072, 131201, 524288, 1048576, 3,       0,
                                   99999, 16384, 12345,  777777, 262144, 2097152, 4194304, 8388593};
    static const size_t places[] = {0, 1, 3, 8, 63, 127, 128};
    size_t room = (8u << 20) + 4096;
    char *out = drv_map(room), *in = drv_map(room);
    struct drv_link l;
    uint32_t seed = 1;

    drv_connect(&l, 1 % drv.ndev);
    void *mo = drv_reg(l.send, out, room), *mi = drv_reg(l.recv, in, room);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++, seed += 2) {
            if (k < 2 || sizes[i] < 70000) {
                exchange(&l, out, in, mo, mi, sizes[i], GUARD + places[k],
                         GUARD + places[(k * 3 + i) % 7], seed);
            }
        }
    }
    OK(drv.net->dereg_mr(l.send, mo));
    OK(drv.net->dereg_mr(l.recv, mi));
    drv_barrier();
    drv_close(&l);
}

/* The largest message a plugin can be handed, one byte less, and the receiver's room larger than
 * the message. */
static void a_gibibyte(void)
{
    size_t gib = 1u << 30, room = gib + 4096;
    char *buf = drv_map(room);
    struct drv_link l;
    int size;

    drv_connect(&l, 0);
    for (int turn = 0; turn < 2; turn++) {
        size_t len = gib - (size_t)turn;
        void *mh;
        if (drv.side == 0) {
            drv_fill(buf + turn, len, 40 + (uint32_t)turn);
            mh = drv_reg(l.send, buf, room);
            void *req = drv_isend(l.send, buf + turn, (int)len, 0, mh);
            drv_wait(&req, 1, &size);
            OK(drv.net->dereg_mr(l.send, mh));
        } else {
            memset(buf, 0, room);
            mh = drv_reg(l.recv, buf, room);
            void *req = drv_irecv1(l.recv, buf, (int)gib, 0, mh);
            drv_wait(&req, 1, &size);
            drv_check(buf, len, 40 + (uint32_t)turn, "gibibyte");
            drv_check_byte(buf + len, room - len, 0, "behind the gibibyte");
            OK(drv.net->dereg_mr(l.recv, mh));
        }
        NEED((size_t)size == len, "size %d", size);
    }
    drv_barrier();
    drv_close(&l);
}

/* A group is @n buffers in one request; the senders' order is turned, so only the tags say which is
 * which. */
static void groups_with_tags(void)
{
    enum { PIECE = 70000, ROUNDS = 40 };
    char *buf = drv_map(8 * (PIECE + GUARD));
    struct drv_link l;
    uint32_t rnd = 5;

    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, 8 * (PIECE + GUARD));

    for (int round = 0; round < ROUNDS; round++) {
        int n = 1 + round % 8, size[8], tag[8], order[8], got[SLOTS];
        void *data[8], *mhs[8], *req[8] = {NULL};
        for (int i = 0; i < n; i++) {
            size[i] = drv_random(&rnd) % 5 == 0 ? 0 : (int)(drv_random(&rnd) % PIECE);
            tag[i] = 1000 + round * 7 - i * 13;
            order[i] = i;
            data[i] = buf + (size_t)i * (PIECE + GUARD);
            mhs[i] = mh;
        }
        for (int i = n - 1; i > 0; i--) {
            int k = (int)(drv_random(&rnd) % (uint32_t)(i + 1)), t = order[i];
            order[i] = order[k];
            order[k] = t;
        }
        if (drv.side == 0) {
            for (int k = 0; k < n; k++) {
                int i = order[k];
                drv_fill(data[i], (size_t)size[i], (uint32_t)(round * 8 + i));
                req[k] = drv_isend(l.send, data[i], size[i], tag[i], mh);
            }
            drv_wait(req, n, NULL);
        } else {
            int room[8];
            memset(buf, 0x33, 8 * (PIECE + GUARD));
            for (int i = 0; i < n; i++) {
                room[i] = PIECE;
            }
            for (req[0] = NULL; req[0] == NULL; sched_yield()) {
                OK(drv.net->irecv(l.recv, n, data, room, tag, mhs, &req[0]));
            }
            for (int i = 0; i < SLOTS; i++) {
                got[i] = -5;
            }
            while (!drv_test(req[0], got)) {
                sched_yield();
            }
            for (int i = 0; i < n; i++) {
                NEED(got[i] == size[i], "round %d: buffer %d has %d bytes, sent were %d", round, i,
                     got[i], size[i]);
                drv_check(data[i], (size_t)size[i], (uint32_t)(round * 8 + i), "group");
                drv_check_byte((char *)data[i] + size[i], (size_t)(PIECE + GUARD - size[i]), 0x33,
                               "behind a piece");
            }
            for (int i = n; i < SLOTS; i++) {
                NEED(got[i] == -5, "size %d of a group of %d was written", i, n);
            }
        }
    }
    OK(drv.net->dereg_mr(l.send, mh));
    drv_barrier();
    drv_close(&l);
}

/* More than the receiver has room for: cut, and both are told. The next message is whole. */
static void truncation(void)
{
    static const int sent[] = {1000, 600, 65536, 5, 300000, 1 << 20, 0, 128};
    static const int room[] = {600, 600, 1, 0, 65537, 4000, 100, 127};
    size_t len = (1u << 20) + GUARD;
    char *buf = drv_map(len);
    struct drv_link l;

    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, len);

    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        int want = sent[i] < room[i] ? sent[i] : room[i], size = -1;
        void *req;
        if (drv.side == 0) {
            drv_fill(buf, (size_t)sent[i], (uint32_t)i);
            req = drv_isend(l.send, buf, sent[i], 0, mh);
        } else {
            memset(buf, 0x44, len);
            req = drv_irecv1(l.recv, buf, room[i], 0, mh);
        }
        drv_wait(&req, 1, &size);
        NEED(size == want, "%d bytes into %d: size is %d", sent[i], room[i], size);
        if (drv.side == 1) {
            drv_check(buf, (size_t)want, (uint32_t)i, "truncated");
            drv_check_byte(buf + want, len - (size_t)want, 0x44, "behind the room");
        }
        drv_barrier();
    }
    OK(drv.net->dereg_mr(l.send, mh));
    drv_close(&l);
}

/* Starts request @n, once; NULL when it was not taken. */
static void *start_one(struct drv_link *l, char *buf, void *mh, int n)
{
    int size = 512, tag[8] = {0, 1, 2, 3, 4, 5, 6, 7}, sizes[8];
    void *data[8], *mhs[8], *req = (void *)0x5a5a5a5a;

    if (drv.side == 0) {
        drv_fill(buf + n * size, (size_t)size, (uint32_t)n);
        OK(drv.net->isend(l->send, buf + n * size, size, n % 8, mh, &req));
    } else {
        for (int i = 0; i < 8; i++) {
            data[i] = buf + (n * 8 + i) * size;
            mhs[i] = mh;
            sizes[i] = size;
        }
        OK(drv.net->irecv(l->recv, 8, data, sizes, tag, mhs, &req));
    }
    NEED(req != (void *)0x5a5a5a5a, "*request was not written");
    return req;
}

#define REFUSALS 100 /* in a row; on a loaded machine one may take a turn of the scheduler */

/*
 * Starts requests until there are @max, or none is taken for a while; how many there are then. One
 * refusal says nothing: it may be only a bad moment.
 */
static int fill_up(struct drv_link *l, char *buf, void *mh, void **req, int n, int max)
{
    uint64_t last = drv_now_ms();

    for (int refused = 0; n < max && (drv_now_ms() - last < 200 || refused < REFUSALS);) {
        req[n] = start_one(l, buf, mh, n);
        if (req[n] == NULL) {
            refused++;
            sched_yield();
        } else {
            n++;
            refused = 0;
            last = drv_now_ms();
        }
    }
    return n;
}

/*
 * With receives posted neither side runs out below 32 requests (x 8 for sends: a receive may take
 * that many); what is one too many is refused in peace. A send may also be refused for want of a
 * receive: it is repeated. Only the oldest request is tested: the others must get on all the same.
 */
static void request_limits(void)
{
    enum { SEND_MIN = 32 * 8, RECV_MIN = 32, MAX = 4096 };
    static void *req[MAX + 1];
    int n, sizes[8], want = drv.side == 0 ? SEND_MIN : RECV_MIN;
    char *buf = drv_map((MAX + 1) * 512);
    struct drv_link l;

    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, (MAX + 1) * 512);

    for (int turn = 0; turn < 3; turn++) {
        /* receives first; sends first; together */
        if (turn == drv.side) {
            drv_barrier();
        }
        n = fill_up(&l, buf, mh, req, 0, want);
        if (turn == 1 - drv.side) {
            drv_barrier();
        }
        NEED(drv.side == 0 || n == want, "turn %d: only %d receives were taken", turn, n);
        while (n < want) {
            n = fill_up(&l, buf, mh, req, n, want);
            sched_yield();
        }
        for (int i = 0; i < n; i++) {
            while (!drv_test(req[i], sizes)) {
                sched_yield();
            }
        }
        for (int i = 0; drv.side == 1 && i < RECV_MIN * 8; i++) {
            drv_check(buf + i * 512, 512, (uint32_t)i, "message");
        }
        memset(buf, 0, SEND_MIN * 512);
        drv_barrier();
    }
    /* without end; closed with all of it outstanding */
    n = fill_up(&l, buf, mh, req, 0, drv.side == 0 ? MAX : MAX / 8);
    NEED(n < (drv.side == 0 ? MAX : MAX / 8), "%d requests were taken without a peer", n);
    drv_barrier();
    drv_close(&l);
}

/* Flushes of host memory, empty lists of sizes, and test() without room for a size. */
static void flush_and_null_sizes(void)
{
    char *buf = drv_map(4096);
    struct drv_link l;
    void *req, *data = buf;
    int size = 100;

    drv_connect(&l, 0);
    void *mh = drv_reg(drv.side ? l.recv : l.send, buf, 4096);

    for (int i = 0; i < 100; i++) {
        drv_fill(buf, 100, (uint32_t)i);
        if (drv.side == 1) {
            memset(buf, 0, 100);
        }
        req = drv.side == 0 ? drv_isend(l.send, buf, 100, 0, mh)
                            : drv_irecv1(l.recv, buf, 100, 0, mh);
        drv_wait(&req, 1, NULL);
        if (drv.side == 1) {
            drv_check(buf, 100, (uint32_t)i, "message");
            req = NULL;
            OK(drv.net->iflush(l.recv, 1, &data, &size, &mh, &req));
            drv_wait(&req, 1, NULL);
        }
        drv_barrier();
    }
    drv_close(&l);
}

/* Memory that came as a descriptor, which is closed right after the call, as core does; each time
 * it is another one. */
static void *reg_dmabuf(void *comm, char *buf, size_t len, int fd)
{
    void *mh = NULL;
    int again = dup(fd);

    NEED(again >= 0, "dup");
    OK(drv.net->reg_mr_dmabuf(comm, buf, len, PTR_CUDA, 0, again, &mh));
    NEED(mh != NULL, "regMrDmaBuf succeeded without a handle");
    close(again);
    return mh;
}

/* Stands for GPU memory as far as that goes without a GPU: type, descriptor, flush. */
static void dmabuf(void)
{
    enum { ROOM = 1 << 20 };
    int fd = memfd_create("gpu", MFD_CLOEXEC), sizes[1], len = 300000;
    char *buf;
    struct abi_props p;
    struct drv_link l;
    void *mh[3], *req, *data;

    OK(drv.net->get_properties(0, &p));
    NEED(p.ptr_support & PTR_DMABUF, "the fabric's devices take DMA-BUF, the plugin says %x",
         p.ptr_support);
    NEED(fd >= 0 && ftruncate(fd, ROOM) == 0, "memfd");
    buf = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(buf != MAP_FAILED, "mmap");
    drv_connect(&l, 0);
    for (int i = 0; i < 3; i++) {
        mh[i] = reg_dmabuf(drv.side ? l.recv : l.send, buf, ROOM, fd);
    }
    close(fd);
    for (int i = 0; i < 60; i++) {
        if (i % 20 == 10) { /* the others must go on serving */
            OK(drv.net->dereg_mr(drv.side ? l.recv : l.send, mh[i / 20]));
        }
        void *use = mh[i < 10 ? 0 : i < 30 ? 1 : 2];
        if (i >= 50) {
            break;
        }
        if (drv.side == 0) {
            drv_fill(buf + i * 1000, (size_t)len, (uint32_t)i);
            req = drv_isend(l.send, buf + i * 1000, len, 0, use);
            drv_wait(&req, 1, sizes);
        } else {
            data = buf + i * 1000;
            req = drv_irecv1(l.recv, data, len, 0, use);
            drv_wait(&req, 1, sizes);
            req = NULL;
            OK(drv.net->iflush(l.recv, 1, &data, sizes, &use, &req)); /* NULL means flushed */
            drv_wait(&req, 1, NULL);
            drv_check(data, (size_t)len, (uint32_t)i, "message");
        }
        NEED(sizes[0] == len, "size %d", sizes[0]);
        drv_barrier();
    }
    drv_barrier();
    drv_close(&l);
}

/* Several connections, both ways, random sizes, as deep as core goes; only the oldest request of
 * each is tested. */
static void traffic(void)
{
    enum { LINKS = 6, DEPTH = 8, MESSAGES = 400, ROOM = 200000 };
    static struct drv_link l[LINKS];
    static struct {
        char *buf;
        void *mh, *req[DEPTH];
        int posted, done, size[DEPTH];
        uint32_t rnd;
    } s[LINKS][2];
    int left = LINKS * 2;

    drv_connect_many(l, LINKS);
    for (int i = 0; i < LINKS; i++) {
        for (int in = 0; in < 2; in++) {
            s[i][in].buf = drv_map(DEPTH * ROOM);
            s[i][in].mh = drv_reg(in ? l[i].recv : l[i].send, s[i][in].buf, DEPTH * ROOM);
            s[i][in].rnd =
                (uint32_t)(i * 2 + (drv.peer < 0 ? 0 : drv.side ^ in)); /* of the sender */
        }
    }
    for (int i = 0; left > 0; i = (i + 1) % LINKS) {
        for (int in = 0; in < 2; in++) {
            int k = s[i][in].posted % DEPTH, size = -1;
            char *at = s[i][in].buf + (size_t)k * ROOM;
            if (s[i][in].posted < MESSAGES && s[i][in].posted - s[i][in].done < DEPTH) {
                uint32_t seed = (uint32_t)s[i][in].posted, before = s[i][in].rnd;
                void *req = NULL;
                int len = (int)(drv_random(&s[i][in].rnd) %
                                (drv_random(&s[i][in].rnd) % 8 ? 3000 : ROOM)),
                    room = ROOM, tag = 0;
                if (in) {
                    OK(drv.net->irecv(l[i].recv, 1, (void **)&at, &room, &tag, &s[i][in].mh, &req));
                } else {
                    drv_fill(at, (size_t)len, seed + (uint32_t)i);
                    OK(drv.net->isend(l[i].send, at, len, tag, s[i][in].mh, &req));
                }
                if (req == NULL) {
                    s[i][in].rnd = before;
                } else {
                    s[i][in].req[k] = req;
                    s[i][in].size[k] = len;
                    s[i][in].posted++;
                }
            }
            k = s[i][in].done % DEPTH;
            if (s[i][in].done < s[i][in].posted && drv_test(s[i][in].req[k], &size)) {
                NEED(size == s[i][in].size[k], "link %d message %d: size %d, expected %d", i,
                     s[i][in].done, size, s[i][in].size[k]);
                if (in) {
                    drv_check(s[i][in].buf + (size_t)k * ROOM, (size_t)size,
                              (uint32_t)s[i][in].done + (uint32_t)i, "traffic");
                }
                left -= ++s[i][in].done == MESSAGES;
            }
        }
        if (i == 0) {
            sched_yield();
        }
    }
    drv_barrier();
    for (int i = 0; i < LINKS; i++) {
        drv_close(&l[i]);
    }
}

const struct drv_case drv_cases_data[] = {
    {"loopback_sizes", 1, 60, sizes_and_alignments, NULL},
    {"loopback_traffic", 1, 60, traffic, NULL},
    {"sizes", 2, 60, sizes_and_alignments, NULL},
    {"groups", 2, 60, groups_with_tags, NULL},
    {"truncation", 2, 60, truncation, NULL},
    {"request_limits", 2, 60, request_limits, NULL},
    {"flush", 2, 60, flush_and_null_sizes, NULL},
    {"dmabuf", 2, 60, dmabuf, NULL},
    {"traffic", 2, 60, traffic, NULL},
    {"gibibyte", 2, 120, a_gibibyte, NULL},
    {0},
};
