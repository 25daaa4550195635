/* Work requests and completions per message. */
#include "tests/bench/bench.h"
#include "core/r2_registry.h"

#include <stdio.h>

#define LINK_RATE 12500000000ull /* bytes per second: 100 Gb/s */
#define WARM      200

static int rows;

static void row_print(const char *traffic, int nics, size_t size, uint64_t n)
{
    const struct bench_counts *s = &bench_counts[0], *r = &bench_counts[1];
    double m = (double)n;

    if (s->recv_wrs || r->data_wrs || s->cts_wrs || s->ack_wrs) {
        bench_die("an end did the other one's work");
    }
    printf(
        "%s\n    {\"traffic\": \"%s\", \"nics\": %d, \"bytes\": %zu, \"messages\": %llu, "
        "\"sender\": {\"send_wrs\": %.4f, \"cqes\": %.4f, \"other_wrs\": %.4f}, "
        "\"receiver\": {\"recv_wrs\": %.4f, \"cts_wrs\": %.4f, \"ack_wrs\": %.4f, \"signaled\": %.4f, \"cqes\": %.4f, "
        "\"other_wrs\": %.4f}}",
        rows++ ? "," : "", traffic, nics, size, (unsigned long long)n, (double)s->data_wrs / m,
        (double)s->cqes / m, (double)s->other_wrs / m, (double)r->recv_wrs / m,
        (double)r->cts_wrs / m, (double)r->ack_wrs / m, (double)r->signaled / m,
        (double)r->cqes / m, (double)r->other_wrs / m);
}

/* A stream: what n messages in the middle of many cost. */
static void stream_count(const char *name, size_t size, const char *fault, uint64_t n)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;

    bench_config(&cfg, NULL);
    duo_create(&d, 4, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, size);
    bench_flow_run(&f, WARM);
    if (fault) {
        duo_fault(&d, fault);
        r2_inst_wake(d.end[0].inst);
        bench_flow_pass(&f, 20 * DUO_MS);
        bench_flow_run(&f, f.r_done + WARM);
    }
    bench_watch_start(&d);
    bench_flow_run(&f, f.r_done + n);
    row_print(name, 4, size, n);
    f.limit = f.s_posted > f.r_posted ? f.s_posted : f.r_posted;
    bench_flow_run(&f, f.limit);
    bench_flow_close(&f);
    duo_destroy(&d);
}

/* Bursts of one window with silence between them: the last acknowledgement of each has no CTS to
 * ride on. */
static void burst_count(size_t size, uint64_t bursts)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;

    bench_config(&cfg, NULL);
    duo_create(&d, 4, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, size);
    bench_watch_start(&d);
    for (uint64_t b = 1; b <= bursts; b++) {
        f.limit = b * BENCH_WINDOW;
        bench_flow_run(&f, f.limit);
        duo_run(&d, DUO_MS);
    }
    row_print("bursts of a window", 4, size, f.limit);
    bench_flow_close(&f);
    duo_destroy(&d);
}

int bench_cost_run(void)
{
    static const size_t sizes[] = {0, 64, 4096, 65536, 131072, 524288, 1048576, 4194304};

    printf("{\"window\": %d, \"link_gbps\": 100, \"rows\": [", BENCH_WINDOW);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        stream_count("stream", sizes[i], NULL, sizes[i] > 600000 ? 400 : 2000);
    }
    burst_count(131072, 50);
    stream_count("stream over the survivors", 32768, "h0:n0 down", 2000);
    stream_count("stream over the survivors", 524288, "h0:n0 down", 1000);
    printf("\n  ]}\n");
    return 0;
}
