/* Traffic to be profiled: bench_call_send and bench_call_recv are where a profiler starts and stops
 * counting. */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <string.h>

#define LINK_RATE 12500000000ull
#define SIZE      131072
#define STEP_NS   15000 /* more than a message takes on the link */

/* One request that cannot end, tested again and again: what a test costs that finds nothing. */
static void idle(struct bench_flow *f, int sending, unsigned n)
{
    bench_flow_run(f, 64);
    f->limit = f->r_done + BENCH_WINDOW;
    while (f->r_posted < f->limit || f->s_posted < f->limit) {
        bench_flow_turn(f);
    }
    /* time stands still: what is on its way stays there */
    for (unsigned i = 0; i < n; i++) {
        if (sending) {
            bench_call_send(f);
        } else {
            bench_call_recv(f);
        }
    }
    bench_flow_run(f, f->limit);
}

/* Sends for which there is no receive. */
static void refused(struct bench_flow *f, unsigned n)
{
    f->limit = 64;
    bench_flow_run(f, f->limit);
    f->limit += BENCH_WINDOW;
    for (unsigned i = 0; i < n; i++) {
        bench_call_send(f);
    }
    if (f->s_posted != f->s_done) {
        bench_die("a send without a receive was begun");
    }
    bench_flow_run(f, f->limit);
}

/* Each message is done when it is tested first. */
static void stream(struct bench_flow *f, unsigned n)
{
    bench_flow_run(f, n);
    f->limit = f->s_posted > f->r_posted ? f->s_posted : f->r_posted;
    bench_flow_run(f, f->limit);
    if (f->s_tests + f->r_tests > 2 * f->limit + 6 * BENCH_WINDOW) {
        bench_die("%llu messages took %llu and %llu tests", (unsigned long long)f->limit,
                  (unsigned long long)f->s_tests, (unsigned long long)f->r_tests);
    }
}

int bench_calls_run(const char *what, unsigned n, int nics)
{
    const char *qps = strcmp(what, "traffic-2-qps") == 0   ? "2"
                      : strcmp(what, "traffic-8-qps") == 0 ? "8"
                                                           : "1";
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;

    bench_config(&cfg, "NCCL_IB_QPS_PER_CONNECTION", qps, NULL);
    duo_create(&d, nics, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, SIZE);
    f.step_ns = 5000;
    if (strcmp(what, "traffic") == 0 || qps[0] != '1') {
        f.step_ns = STEP_NS;
        stream(&f, n);
    } else if (strcmp(what, "no-receive") == 0) {
        refused(&f, n);
    } else if (strcmp(what, "idle-send") == 0 || strcmp(what, "idle-recv") == 0) {
        idle(&f, strcmp(what, "idle-send") == 0, n);
    } else {
        bench_die("no such traffic: %s", what);
    }
    printf("{\"send_tests\": %llu, \"recv_tests\": %llu}\n", (unsigned long long)f.s_tests,
           (unsigned long long)f.r_tests);
    bench_flow_close(&f);
    duo_destroy(&d);
    return 0;
}
