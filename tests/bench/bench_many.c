/*
 * A NIC dies under many connections between two processes (protocol P29 to P31): how soon those
 * that have work go on, how long the rest takes, and in how many messages it is said. A worker's
 * job (ibv_modify_qp and the like) takes 50 us, as the protocol assumes.
 */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_NS  50000
#define SIZE    (1 << 20)
#define LIMIT   (20000 * DUO_MS)
#define STEP_NS 2000

struct conn {
    struct r2_comm *tx, *rx;
    struct r2_req *s_req, *r_req;
    uint64_t done_at;
};

static uint8_t *out, *in;

static void start(struct conn *c, struct ib_mr **mr)
{
    void *data = in;
    size_t size = SIZE;
    int tag = 1;

    if (r2_net_reg(c->tx, out, SIZE, IB_PTR_HOST, 0, -1, &mr[0]) != R2_OK ||
        r2_net_reg(c->rx, in, SIZE, IB_PTR_HOST, 0, -1, &mr[1]) != R2_OK ||
        r2_net_irecv(c->rx, 1, &data, &size, &tag, &mr[1], &c->r_req) != R2_OK || !c->r_req) {
        bench_die("no receive");
    }
}

static void send_all(struct duo *d, struct conn *c, unsigned active, struct ib_mr *(*mr)[2])
{
    unsigned left = active;

    for (uint64_t end = duo_now(d) + LIMIT; left && duo_now(d) < end; duo_run(d, STEP_NS)) {
        for (unsigned i = 0; i < active; i++) {
            if (!c[i].s_req) {
                if (r2_net_isend(c[i].tx, out, SIZE, 1, mr[i][0], &c[i].s_req) != R2_OK) {
                    bench_die("isend: %s", c[i].tx->fo.why);
                }
                left -= c[i].s_req != NULL;
            }
        }
    }
    if (left) {
        bench_die("%u sends did not begin", left);
    }
}

/* Until all requests are done at both ends. */
static void finish(struct duo *d, struct conn *c, unsigned active)
{
    unsigned left = active;

    for (uint64_t end = duo_now(d) + LIMIT; left && duo_now(d) < end; duo_run(d, STEP_NS)) {
        for (unsigned i = 0; i < active; i++) {
            int done = 0;

            if (c[i].r_req && r2_net_test(c[i].r_req, &done, NULL) != R2_OK) {
                bench_die("receive: %s", c[i].rx->fo.why);
            }
            if (done) {
                c[i].r_req = NULL;
                c[i].done_at = duo_now(d);
            }
            done = 0;
            if (c[i].s_req && r2_net_test(c[i].s_req, &done, NULL) != R2_OK) {
                bench_die("send: %s", c[i].tx->fo.why);
            }
            if (done) {
                c[i].s_req = NULL;
                left--;
            }
        }
    }
    if (left) {
        bench_die("%u transfers did not end", left);
    }
}

static unsigned unsettled(const struct conn *c, unsigned conns)
{
    unsigned n = 0;

    for (unsigned i = 0; i < conns; i++) {
        const struct fo_path *s = &c[i].tx->fo.path[0], *r = &c[i].rx->fo.path[0];

        n += !(s->state == FO_FENCED && s->settled && r->state == FO_FENCED && r->settled);
    }
    return n;
}

static int by_time(const void *a, const void *b)
{
    const struct conn *x = a, *y = b;

    return x->done_at < y->done_at ? -1 : x->done_at > y->done_at;
}

int bench_many_run(unsigned conns, unsigned active)
{
    struct conn *c = calloc(conns, sizeof(*c));
    struct ib_mr *(*mr)[2] = calloc(active, sizeof(*mr));
    uint64_t fault, settled_at, sent[2], bytes[2];
    struct r2_config cfg;
    struct duo d;

    out = calloc(1, SIZE);
    in = calloc(1, SIZE);
    if (!c || !mr || !out || !in || active > conns) {
        bench_die("no memory, or more active ones than there are");
    }
    bench_config(&cfg, NULL);
    duo_create(&d, 2, 10000000000ull, &cfg);
    for (unsigned i = 0; i < conns; i++) {
        if (duo_connect(&d, 0, &c[i].tx, &c[i].rx) != 0) {
            bench_die("connection %u", i);
        }
    }
    duo_run(&d, 1000 * DUO_MS);
    d.job_ns = JOB_NS;
    /* the last ones made: a queue that is not sorted by need has them behind all others */
    for (unsigned i = 0; i < active; i++) {
        start(&c[i], mr[i]);
    }
    send_all(&d, c, active, mr);
    for (int h = 0; h < 2; h++) {
        sent[h] = d.end[h].sent;
        bytes[h] = d.end[h].sent_bytes;
    }
    fault = duo_now(&d);
    duo_fault(&d, "h0:n0 down");
    finish(&d, c, active);
    while (unsettled(c, conns) && duo_now(&d) < fault + LIMIT) {
        duo_run(&d, DUO_MS / 10);
    }
    settled_at = duo_now(&d);
    if (unsettled(c, conns)) {
        bench_die("%u connections are not settled", unsettled(c, conns));
    }
    printf("{\"connections\": %u, \"active\": %u, \"job_us\": %d, \"message_bytes\": %d,", conns,
           active, JOB_NS / 1000, SIZE);
    printf(" \"messages_sent\": [%llu, %llu], \"bytes_sent\": [%llu, %llu],",
           (unsigned long long)(d.end[0].sent - sent[0]),
           (unsigned long long)(d.end[1].sent - sent[1]),
           (unsigned long long)(d.end[0].sent_bytes - bytes[0]),
           (unsigned long long)(d.end[1].sent_bytes - bytes[1]));
    qsort(c, active, sizeof(*c), by_time);
    printf(
        " \"first_active_ms\": %.3f, \"median_active_ms\": %.3f, \"last_active_ms\": %.3f, \"all_settled_ms\": %.3f}\n",
        (double)(c[0].done_at - fault) / 1e6, (double)(c[active / 2].done_at - fault) / 1e6,
        (double)(c[active - 1].done_at - fault) / 1e6, (double)(settled_at - fault) / 1e6);
    duo_destroy(&d);
    free(c);
    free(mr);
    free(out);
    free(in);
    return 0;
}
