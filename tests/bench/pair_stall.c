/*
 * How long a port that goes down stops one connection, in real time. Every failure has a twin: a
 * fault that changes nothing, applied in the same way, after which the longest pause is what the
 * machine does by itself.
 */
#include "tests/bench/pair.h"
#include "tests/fabric/shm/seg.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WINDOW 8
#define SIZE   16384
#define WATCH_NS                                                                                   \
    (5 * PAIR_NS_MS) /* pauses that begin in this time after an event are the event's */
#define RUNS_MAX 64
#define NICS     8

struct stream {
    void *comm, *mr;
    char *buf;
    void *req[WINDOW];
    uint64_t posted, done, limit;
    uint64_t done_at, longest; /* of the receiver */
};

static struct seg_map fabric; /* open until the process ends */

void pair_fabric_open(void)
{
    const char *dir = getenv(SEG_ENV_DIR);
    char why[200];

    NEED(dir && seg_file_open(&fabric, dir, why, sizeof(why)) == 0, "no fabric: %s",
         dir ? why : "not under softfab exec");
}

static void stream_turn(struct stream *s)
{
    char *at = s->buf + s->posted % WINDOW * SIZE;
    int done = 0, size = SIZE, tag = 1;
    void *req = NULL;

    if (s->posted < s->limit && s->posted - s->done < WINDOW) {
        if (drv.side) {
            void *data = at;
            OK(drv.net->irecv(s->comm, 1, &data, &size, &tag, &s->mr, &req));
        } else {
            memcpy(at, &s->posted, sizeof(s->posted));
            OK(drv.net->isend(s->comm, at, SIZE, tag, s->mr, &req));
        }
        if (req) {
            s->req[s->posted++ % WINDOW] = req;
        }
    }
    if (s->posted > s->done) {
        OK(drv.net->test(s->req[s->done % WINDOW], &done, &size));
    }
    if (!done) {
        sched_yield();
        return;
    }
    if (drv.side) {
        uint64_t now = pair_now(), number;

        memcpy(&number, s->buf + s->done % WINDOW * SIZE, sizeof(number));
        NEED(number == s->done && size == SIZE, "message %llu in the place of %llu",
             (unsigned long long)number, (unsigned long long)s->done);
        s->longest = now - s->done_at > s->longest ? now - s->done_at : s->longest;
        s->done_at = now;
    }
    s->done++;
}

static void stream_pass(struct stream *s, uint64_t ns)
{
    uint64_t end = pair_now() + ns;

    while (pair_now() < end) {
        stream_turn(s);
    }
}

void pair_fault_do(const char *text)
{
    struct fab_fault f;
    char why[200];

    NEED(fab_fault_parse(text, &f, why, sizeof(why)) == 0 &&
             seg_fault_apply(&fabric, &f, why, sizeof(why)) == 0,
         "%s", why);
}

uint64_t pair_nic_received(int host, int nic)
{
    return atomic_load_explicit(&seg_nic_at(fabric.seg, host, nic)->count.rx_bytes,
                                memory_order_relaxed);
}

/* Longest pause that begins within WATCH_NS after @text was applied, or that it fell into. */
static uint64_t event_measure(struct stream *s, const char *text)
{
    stream_pass(s, (30 + (unsigned)rand() % 10) * PAIR_NS_MS);
    s->longest = 0;
    pair_fault_do(text);
    stream_pass(s, WATCH_NS);
    for (uint64_t done = s->done; s->done == done;) {
        stream_turn(s);
    }
    return s->longest;
}

static void sender_run(struct stream *s)
{
    uint64_t last;

    s->limit = UINT64_MAX;
    while (recv(drv.peer, &last, sizeof(last), MSG_DONTWAIT) != (ssize_t)sizeof(last)) {
        stream_turn(s);
    }
    NEED(s->posted <= last, "more was sent than received");
    s->limit = last;
    while (s->done < last) {
        stream_turn(s);
    }
}

/* All NICs but the last one fail, on either side or on both. */
static void receiver_run(struct stream *s, uint64_t *stall, uint64_t *calm)
{
    static const char *const where[] = {"h0:n%d down", "h1:n%d down", "*:n%d down"};
    char text[32];

    s->limit = UINT64_MAX;
    stream_pass(s, 50 * PAIR_NS_MS);
    for (int nic = 0; nic < NICS - 1; nic++) {
        snprintf(text, sizeof(text), "*:n%d delay 0ms", NICS - 1);
        calm[nic] = event_measure(s, text);
        snprintf(text, sizeof(text), where[(unsigned)rand() % 3], nic);
        stall[nic] = event_measure(s, text);
    }
    s->limit = s->posted;
    NEED(send(drv.peer, &s->limit, sizeof(s->limit), 0) == (ssize_t)sizeof(s->limit),
         "the sender is gone");
    while (s->done < s->limit) {
        stream_turn(s);
    }
}

static void spread_print(const char *name, uint64_t *v, int n, const char *end)
{
    struct pair_spread p = pair_spread_get(v, n);

    printf(
        "\"%s\": {\"n\": %d, \"p25_ms\": %.3f, \"median_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}%s",
        name, n, p.p25, p.median, p.p99, p.most, end);
}

void pair_stall_run(int runs)
{
    static uint64_t stall[RUNS_MAX * NICS], calm[RUNS_MAX * NICS];
    NEED(drv.ndev == NICS, "the fabric has %d NICs, not %d", drv.ndev, NICS);
    srand(7);
    for (int i = 0; i < runs; i++) {
        struct stream s = {.buf = drv_map(WINDOW * SIZE)};

        pair_connect(1, 0, &s.comm);
        s.mr = drv_reg(s.comm, s.buf, WINDOW * SIZE);
        s.done_at = pair_now();
        if (drv.side) {
            receiver_run(&s, stall + i * (NICS - 1), calm + i * (NICS - 1));
        } else {
            sender_run(&s);
        }
        OK(drv.net->dereg_mr(s.comm, s.mr));
        pair_close(1, &s.comm);
        drv_barrier();
        if (drv.side) {
            pair_fault_do("*:* up");
        }
        pair_rest(400 * PAIR_NS_MS); /* both plugins have looked at their ports again */
    }
    if (drv.side) {
        printf("{\"bytes\": %d, \"nics\": %d, ", SIZE, NICS);
        spread_print("stall", stall, runs * (NICS - 1), ", ");
        spread_print("no_fault", calm, runs * (NICS - 1), "}\n");
    }
}
