/*
 * The last resort beside a raw TCP stream of the same two processes: one connection, all NICs of
 * one of its hosts lost, messages of some sizes over tcp0 and the same bytes over a socket, in
 * turn; how long the loss stops the connection, and how long after the NICs are there again RDMA
 * carries. Side 1 receives, breaks NICs and prints.
 */
#include "tests/bench/pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW     8
#define STEP       (512 << 10) /* a step of NCCL's, with its default buffer of 4 MiB */
#define LARGEST    (8 << 20)
#define ROUNDS     3
#define ROUND_NS   (300 * PAIR_NS_MS)
#define PILOT      (64ull << 20)      /* bytes by which the size of a round is found */
#define WATCH_NS   (800 * PAIR_NS_MS) /* the longest pause in this time after a fault is its */
#define SETTLE_NS  (300 * PAIR_NS_MS)
#define IDLE_NS    50000        /* the machine may have two cores: a turn that found nothing */
#define BACK_BYTES (4ull << 20) /* over RDMA: more than probes and control messages */
#define BACK_NS    (20000 * PAIR_NS_MS)

static const int sizes[] = {64 << 10, STEP, 1 << 20, LARGEST};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct last {
    void *comm, *mr;
    int size; /* of a message */
    char *buf;
    void *req[WINDOW];
    uint64_t posted, done, limit;
    uint64_t done_at, longest; /* of the receiver */
    int raw;                   /* socket */
};

static void turn(struct last *s)
{
    char *at = s->buf + s->posted % WINDOW * (size_t)s->size;
    int done = 0, size = s->size, tag = 1;
    void *req = NULL;

    if (s->posted < s->limit && s->posted - s->done < WINDOW) {
        if (drv.side) {
            void *data = at;
            OK(drv.net->irecv(s->comm, 1, &data, &size, &tag, &s->mr, &req));
        } else {
            memcpy(at, &s->posted, sizeof(s->posted));
            memcpy(at + size - sizeof(s->posted), &s->posted, sizeof(s->posted));
            OK(drv.net->isend(s->comm, at, (size_t)size, tag, s->mr, &req));
        }
        if (req) {
            s->req[s->posted++ % WINDOW] = req;
        }
    }
    if (s->posted > s->done) {
        OK(drv.net->test(s->req[s->done % WINDOW], &done, &size));
    }
    if (!done) {
        if (req == NULL) {
            pair_rest(IDLE_NS);
        }
        return;
    }
    if (drv.side) {
        uint64_t now = pair_now(), first, end;

        at = s->buf + s->done % WINDOW * (size_t)s->size;
        memcpy(&first, at, sizeof(first));
        memcpy(&end, at + s->size - sizeof(end), sizeof(end));
        NEED(first == s->done && end == s->done && size == s->size,
             "message %llu to %llu in the place of %llu", (unsigned long long)first,
             (unsigned long long)end, (unsigned long long)s->done);
        s->longest = now - s->done_at > s->longest ? now - s->done_at : s->longest;
        s->done_at = now;
    }
    s->done++;
}

static void pass(struct last *s, uint64_t ns)
{
    uint64_t end = pair_now() + ns;

    while (pair_now() < end) {
        turn(s);
    }
}

/* --- stretches without an end of their own: the receiver ends them --- */

static void stretch_begin(struct last *s)
{
    drv_barrier();
    s->limit = UINT64_MAX;
    s->done_at = pair_now();
}

/* The receiver's end of one. */
static void stretch_end(struct last *s)
{
    s->limit = s->posted;
    NEED(send(drv.peer, &s->limit, sizeof(s->limit), 0) == (ssize_t)sizeof(s->limit),
         "the sender is gone");
    while (s->done < s->limit) {
        turn(s);
    }
}

/* The sender's. */
static void stretch_send(struct last *s)
{
    uint64_t last;

    stretch_begin(s);
    while (recv(drv.peer, &last, sizeof(last), MSG_DONTWAIT) != (ssize_t)sizeof(last)) {
        turn(s);
    }
    NEED(s->posted <= last, "more was sent than received");
    s->limit = last;
    while (s->done < last) {
        turn(s);
    }
}

/* The longest pause within WATCH_NS after @text was applied, or that it fell into. */
static uint64_t event_measure(struct last *s, const char *text)
{
    pass(s, SETTLE_NS);
    s->longest = 0;
    pair_fault_do(text);
    pass(s, WATCH_NS);
    for (uint64_t done = s->done; s->done == done;) {
        turn(s);
    }
    return s->longest;
}

/* Bytes that came to side 1 over RDMA. */
static uint64_t rdma_bytes(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < drv.ndev; i++) {
        sum += pair_nic_received(1, i);
    }
    return sum;
}

/* From @text, which mends what is broken, until RDMA carries. */
static uint64_t return_measure(struct last *s, const char *text)
{
    uint64_t since, bytes;

    pass(s, SETTLE_NS);
    bytes = rdma_bytes();
    pass(s, SETTLE_NS);
    NEED(rdma_bytes() - bytes < BACK_BYTES, "RDMA carries where all NICs of a host are lost");
    s->longest = 0;
    bytes = rdma_bytes();
    pair_fault_do(text);
    since = pair_now();
    while (rdma_bytes() - bytes < BACK_BYTES) {
        turn(s);
        NEED(pair_now() - since < BACK_NS, "RDMA does not carry again");
    }
    since = pair_now() - since;
    pass(s, SETTLE_NS);
    return since;
}

/* --- both transports, the same bytes --- */

struct round {
    uint64_t ns, cpu_ns; /* CPU time: of both processes */
};

static uint64_t cpu_now(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000ull +
           ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
}

static struct round round_begin(void)
{
    drv_barrier();
    return (struct round){pair_now(), cpu_now()};
}

static struct round round_end(struct round since)
{
    struct round took = {pair_now() - since.ns, cpu_now() - since.cpu_ns};
    uint64_t theirs;

    drv_swap(&took.cpu_ns, &theirs, sizeof(theirs));
    took.cpu_ns += theirs;
    return took;
}

/* @bytes over the socket, by calls of a message. */
static struct round raw_round(const struct last *s, uint64_t bytes)
{
    struct round since = round_begin();
    size_t size = (size_t)s->size;

    for (uint64_t at = 0; at < bytes;) {
        size_t gone = at % size;
        char *buf = s->buf + at / size % WINDOW * size + gone;
        ssize_t n = drv.side ? recv(s->raw, buf, size - gone, 0)
                             : send(s->raw, buf, size - gone, MSG_NOSIGNAL);

        NEED(n > 0, "the socket is gone");
        at += (uint64_t)n;
    }
    return round_end(since);
}

static struct round last_round(struct last *s, uint64_t bytes)
{
    struct round since;

    s->limit = s->done + bytes / (uint64_t)s->size;
    since = round_begin();
    while (s->done < s->limit) {
        turn(s);
    }
    return round_end(since);
}

static void raw_open(struct last *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in theirs;
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    NEED(fd >= 0, "no socket");
    if (drv.side) {
        NEED(bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 1) == 0 &&
                 getsockname(fd, (struct sockaddr *)&at, &len) == 0,
             "no listener");
    }
    drv_swap(&at, &theirs, sizeof(at));
    if (drv.side) {
        s->raw = accept(fd, NULL, NULL);
        close(fd);
    } else {
        s->raw = connect(fd, (struct sockaddr *)&theirs, sizeof(theirs)) == 0 ? fd : -1;
    }
    NEED(s->raw >= 0, "the raw stream cannot be opened");
    setsockopt(s->raw, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Whole messages that the raw stream takes about ROUND_NS for; the same at both sides. */
static uint64_t bytes_of_round(const struct last *s)
{
    uint64_t ns = raw_round(s, PILOT).ns, mine, theirs;

    mine = (uint64_t)((double)PILOT / (double)ns * (double)ROUND_NS) / LARGEST * LARGEST + LARGEST;
    drv_swap(&mine, &theirs, sizeof(mine));
    return mine < theirs ? mine : theirs;
}

struct rates {
    struct round raw[SIZES][ROUNDS], last[SIZES][ROUNDS];
};

/* Both in turn, at all sizes; @out: of the receiver. */
static void rates_measure(struct last *s, uint64_t bytes, struct rates *out)
{
    for (int i = 0; i < ROUNDS; i++) {
        for (size_t k = 0; k < SIZES; k++) {
            struct round raw, last;

            s->size = sizes[k];
            s->posted = s->done = 0;
            raw = raw_round(s, bytes);
            last = last_round(s, bytes);
            if (out) {
                out->raw[k][i] = raw;
                out->last[k][i] = last;
            }
        }
    }
    s->size = STEP;
}

static void rates_print(const struct rates *r, uint64_t bytes)
{
    double gb = (double)bytes;

    for (size_t k = 0; k < SIZES; k++) {
        for (int i = 0; i < ROUNDS; i++) {
            const struct round *raw = &r->raw[k][i], *last = &r->last[k][i];

            printf("%s{\"size\": %d, \"raw_gbs\": %.4f, \"last_gbs\": %.4f, "
                   "\"raw_cpu_s_per_gb\": %.4f, \"last_cpu_s_per_gb\": %.4f}",
                   k || i ? ", " : "", sizes[k], gb / (double)raw->ns, gb / (double)last->ns,
                   (double)raw->cpu_ns / gb, (double)last->cpu_ns / gb);
        }
    }
}

/* --- a run --- */

static void sender_run(struct last *s, uint64_t bytes)
{
    stretch_send(s);
    rates_measure(s, bytes, NULL);
    stretch_send(s);
}

static void receiver_run(struct last *s, uint64_t bytes, int host, bool silent)
{
    struct rates rates;
    uint64_t calm, stall, back;
    char fault[32], mend[32];

    snprintf(fault, sizeof(fault), "h%d:* %s", host, silent ? "blackhole" : "down");
    snprintf(mend, sizeof(mend), "h%d:* %s", host, silent ? "restore" : "up");
    stretch_begin(s);
    calm = event_measure(s, "*:* delay 0ms");
    stall = event_measure(s, fault);
    stretch_end(s);
    rates_measure(s, bytes, &rates);
    stretch_begin(s);
    back = return_measure(s, mend);
    printf("{\"fault\": \"%s\", \"host\": %d, \"bytes\": %d, \"no_fault_ms\": %.3f, "
           "\"stall_ms\": %.3f, \"return_ms\": %.3f, \"return_stall_ms\": %.3f, \"rounds\": [",
           silent ? "silent" : "event", host, STEP, (double)calm / 1e6, (double)stall / 1e6,
           (double)back / 1e6, (double)s->longest / 1e6);
    stretch_end(s);
    rates_print(&rates, bytes);
    printf("]}\n");
}

void pair_last_run(int number, bool silent)
{
    struct last s = {.size = STEP, .buf = drv_map(WINDOW * LARGEST)};
    uint64_t bytes;

    raw_open(&s);
    bytes = bytes_of_round(&s);
    pair_connect(1, 0, &s.comm);
    s.mr = drv_reg(s.comm, s.buf, WINDOW * LARGEST);
    if (drv.side) {
        receiver_run(&s, bytes, number % 2, silent);
    } else {
        sender_run(&s, bytes);
    }
    OK(drv.net->dereg_mr(s.comm, s.mr));
    pair_close(1, &s.comm);
    drv_barrier();
    close(s.raw);
}
