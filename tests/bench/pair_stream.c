/*
 * What any plugin can be asked: a stream of messages over one connection and over eight, the set-up
 * of many and what they cost at rest, and single calls for a profiler to count. Nothing here knows
 * whose plugin it is.
 */
#include "tests/bench/pair.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_MOST 8   /* connections */
#define WARM        200 /* messages of each before the clock starts */
#define SETTLE_NS   (3000 * PAIR_NS_MS)
#define REST_NS     (3000 * PAIR_NS_MS)
#define CALL_BYTES  131072
#define EMPTY_DELAY "2s"

static const struct {
    int bytes, connections, window;
} streams[] = {{8, 1, 8}, {131072, 1, 8}, {131072, 1, 32}, {131072, 8, 8}};

static void lanes_open(struct pair_lane *lane, void **comm, int n, int size, int window, char *mem)
{
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)size * (size_t)window;

        lane[i] = (struct pair_lane){
            .comm = comm[i], .buf = mem + (size_t)i * bytes, .size = size, .window = window};
        lane[i].mr = drv_reg(comm[i], lane[i].buf, bytes);
    }
}

/* Until @messages of each have been posted and are done. */
static void lanes_run(struct pair_lane *lane, int n, uint64_t messages)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        left += lane[i].done < messages;
    }
    while (left > 0) {
        for (int i = 0; i < n; i++) {
            left -=
                pair_lane_turn(&lane[i], lane[i].posted == messages) && lane[i].done == messages;
        }
    }
}

void pair_stream_run(int messages)
{
    const size_t most = (size_t)STREAM_MOST * PAIR_WINDOW_MAX * 131072;
    char *mem = drv_map(most);

    for (size_t r = 0; r < sizeof(streams) / sizeof(streams[0]); r++) {
        int n = streams[r].connections, bytes = streams[r].bytes;
        struct pair_lane lane[STREAM_MOST];
        void *comm[STREAM_MOST];
        uint64_t start, each = (uint64_t)messages / (uint64_t)n;
        double cpu, theirs, total = (double)each * n;

        pair_connect(n, 0, comm);
        lanes_open(lane, comm, n, bytes, streams[r].window, mem);
        drv_barrier();
        lanes_run(lane, n, WARM);
        drv_barrier();
        start = pair_now();
        cpu = pair_cpu_ms();
        lanes_run(lane, n, WARM + each);
        cpu = pair_cpu_ms() - cpu;
        start = pair_now() - start;
        drv_swap(&cpu, &theirs, sizeof(cpu));
        if (drv.side) {
            printf("%s{\"bytes\": %d, \"connections\": %d, \"window\": %d, \"messages\": %.0f, "
                   "\"us_per_message\": %.4f, \"cpu_us_per_message\": %.4f}",
                   r ? ", " : "[", bytes, n, streams[r].window, total, (double)start / 1e3 / total,
                   (cpu + theirs) * 1e3 / total);
        }
        for (int i = 0; i < n; i++) {
            OK(drv.net->dereg_mr(comm[i], lane[i].mr));
        }
        pair_close(n, comm);
    }
    if (drv.side) {
        printf("]\n");
    }
}

void pair_crowd_run(int connections)
{
    void **comm = calloc((size_t)connections, sizeof(*comm));
    double cpu, theirs;
    uint64_t setup;

    NEED(comm, "out of memory");
    setup = pair_connect(connections, 0, comm);
    pair_rest(SETTLE_NS);
    cpu = pair_cpu_ms();
    pair_rest(REST_NS);
    cpu = (pair_cpu_ms() - cpu) * 1e9 / (double)REST_NS;
    drv_swap(&cpu, &theirs, sizeof(cpu));
    if (drv.side) {
        printf("{\"connections\": %d, \"nics\": %d, \"setup_ms\": %.1f, "
               "\"idle_cpu_ms_per_s\": %.3f}\n",
               connections, drv.ndev, (double)setup / 1e6, cpu > theirs ? cpu : theirs);
    }
    pair_close(connections, comm);
    free(comm);
}

/* --- calls that a profiler counts --- */

__attribute__((noinline)) void *pair_call_isend(struct pair_lane *s)
{
    void *req = NULL;

    OK(drv.net->isend(s->comm, s->buf, s->size, 1, s->mr, &req));
    return req;
}

__attribute__((noinline)) void *pair_call_irecv(struct pair_lane *s)
{
    void *req = NULL, *at = s->buf;
    int tag = 1, size = s->size;

    OK(drv.net->irecv(s->comm, 1, &at, &size, &tag, &s->mr, &req));
    return req;
}

__attribute__((noinline)) int pair_call_test(void *req)
{
    int done = 0, size = 0;

    OK(drv.net->test(req, &done, &size));
    return done;
}

#define CALL_NUMBER(i) ((char)((i) % 100 + 1)) /* not what the message before left there */
#define SOON_NS        (3 * PAIR_NS_MS)        /* what one end sees has come to the other then */

static uint64_t
    calls_more; /* than one of each kind for each message: the scheduler had other work */

static void calls_again(void)
{
    calls_more++;
    pair_rest(SOON_NS);
}

static void test_once(void *req)
{
    while (!pair_call_test(req)) {
        calls_again();
    }
}

static void *irecv_once(struct pair_lane *s)
{
    void *req;

    while ((req = pair_call_irecv(s)) == NULL) {
        calls_again();
    }
    return req;
}

/* The receiver sees the last byte of message @number; what completes it is right behind. */
static void byte_await(const struct pair_lane *s, char number)
{
    while (__atomic_load_n(&s->buf[s->size - 1], __ATOMIC_ACQUIRE) != number) {
        sched_yield();
    }
    pair_rest(SOON_NS);
}

/* One message at a time, each of whose calls does its work the first time. The next receive is
 * posted before the send is tested: what acknowledges may ride on it. */
static void calls_receive(struct pair_lane *s, int n)
{
    void *req = irecv_once(s);

    for (int i = 0; i < n; i++) {
        drv_barrier();
        byte_await(s, CALL_NUMBER(i));
        test_once(req);
        req = irecv_once(s);
        drv_barrier();
    }
    drv_wait(&req, 1, NULL);
}

static void calls_send(struct pair_lane *s, int n)
{
    void *req;

    for (int i = 0; i < n; i++) {
        drv_barrier();
        pair_rest(SOON_NS);
        s->buf[s->size - 1] = CALL_NUMBER(i);
        while ((req = pair_call_isend(s)) == NULL) {
            calls_again();
        }
        drv_barrier();
        pair_rest(SOON_NS);
        test_once(req);
    }
    req = drv_isend(s->comm, s->buf, s->size, 1, s->mr);
    drv_wait(&req, 1, NULL);
}

/* A receive to which nothing comes. */
static void calls_empty_recv(struct pair_lane *s, int n)
{
    void *req = drv.side ? drv_irecv1(s->comm, s->buf, s->size, 1, s->mr) : NULL;

    for (int i = 0; drv.side && i < n; i++) {
        NEED(!pair_call_test(req), "a receive was done, and nothing was sent");
    }
    drv_barrier();
    if (drv.side == 0) {
        req = drv_isend(s->comm, s->buf, s->size, 1, s->mr);
    }
    drv_wait(&req, 1, NULL);
}

/* A send for which there is no receive. */
static void calls_no_receive(struct pair_lane *s, int n)
{
    void *req;

    for (int i = 0; drv.side == 0 && i < n; i++) {
        NEED(pair_call_isend(s) == NULL, "a send was begun, and there was no receive");
    }
    drv_barrier();
    req = drv.side ? drv_irecv1(s->comm, s->buf, s->size, 1, s->mr)
                   : drv_isend(s->comm, s->buf, s->size, 1, s->mr);
    drv_wait(&req, 1, NULL);
}

/* A send that is on its way: its link is a long one. */
static void calls_empty_send(struct pair_lane *s, int n)
{
    void *req = drv.side ? drv_irecv1(s->comm, s->buf, s->size, 1, s->mr) : NULL;

    drv_barrier();
    if (drv.side == 0) {
        pair_rest(SOON_NS);
        pair_fault_do("h0:n0 delay " EMPTY_DELAY);
        req = drv_isend(s->comm, s->buf, s->size, 1, s->mr);
        for (int i = 0; i < n; i++) {
            NEED(!pair_call_test(req), "a send was done before " EMPTY_DELAY " were over");
        }
        pair_fault_do("h0:n0 delay 0ms");
    }
    drv_wait(&req, 1, NULL);
}

void pair_calls_run(const char *what, int n)
{
    struct pair_lane s;
    void *comm, *req;
    uint64_t theirs;

    pair_connect(1, 0, &comm);
    lanes_open(&s, &comm, 1, CALL_BYTES, 1, drv_map(CALL_BYTES));
    for (int i = 0; i < WARM; i++) {
        req = drv.side ? drv_irecv1(comm, s.buf, s.size, 1, s.mr)
                       : drv_isend(comm, s.buf, s.size, 1, s.mr);
        drv_wait(&req, 1, NULL);
    }
    drv_barrier();
    pair_rest(SOON_NS);
    if (strcmp(what, "calls") == 0) {
        (drv.side ? calls_receive : calls_send)(&s, n);
    } else if (strcmp(what, "calls-empty-recv") == 0) {
        calls_empty_recv(&s, n);
    } else if (strcmp(what, "calls-empty-send") == 0) {
        calls_empty_send(&s, n);
    } else {
        calls_no_receive(&s, n);
    }
    OK(drv.net->dereg_mr(comm, s.mr));
    pair_close(1, &comm);
    drv_swap(&calls_more, &theirs, sizeof(theirs));
    if (drv.side) {
        printf("{\"what\": \"%s\", \"n\": %d, \"plugin\": \"%s\", \"calls_more\": [%llu, %llu]}\n",
               what, n, drv.net->name, (unsigned long long)theirs, (unsigned long long)calls_more);
    }
}
