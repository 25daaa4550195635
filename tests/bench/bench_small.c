/* Latency of single messages before a NIC is lost and after: virtual time, so what is seen is the
 * way of a message and not the machine. */
#include "tests/bench/bench.h"
#include "core/r2_registry.h"

#include <stdio.h>

#define LINK_RATE 12500000000ull /* bytes per second: 100 Gb/s */
#define WARM      64
#define MESSAGES  600 /* whole rounds over 3, 4 and 8 NICs */

struct small {
    double arrived,
        done; /* ns from posting at both ends until the receiver has it, until both ends say done */
};

static struct small latency(struct bench_flow *f, uint64_t n)
{
    struct small sum = {0, 0};

    for (uint64_t i = 0; i < n; i++) {
        uint64_t start = duo_now(f->d);
        f->limit = f->r_done + 1;
        bench_flow_run(f, f->limit);
        sum.arrived += (double)(f->r_done_at - start);
        sum.done += (double)(duo_now(f->d) - start);
    }
    return (struct small){sum.arrived / (double)n, sum.done / (double)n};
}

/* ns until the receiver has a message of @size over what is left of 4 NICs, cut from @stripe_min
 * bytes on; *parts: work requests of it. */
static double cut_run(size_t size, const char *stripe_min, double *parts)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;
    struct small s;

    bench_config(&cfg, "NCCL_R2_CUT_MIN", stripe_min, NULL);
    duo_create(&d, 4, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, size);
    f.step_ns = 50;
    latency(&f, WARM);
    duo_fault(&d, "h0:n0 down");
    r2_inst_wake(d.end[0].inst);
    duo_run(&d, 50 * DUO_MS);
    f.r_done_at = duo_now(&d);
    latency(&f, WARM);
    bench_watch_start(&d);
    s = latency(&f, MESSAGES);
    *parts = (double)bench_counts[0].data_wrs / MESSAGES;
    bench_flow_close(&f);
    duo_destroy(&d);
    return s.arrived;
}

int bench_cut_run(void)
{
    printf("[\n");
    for (size_t size = 4096; size <= 262144; size *= 2) {
        double whole, parts, in_one = cut_run(size, "1073741824", &whole),
                             cut = cut_run(size, "128", &parts);

        printf(
            "    {\"bytes\": %zu, \"ns\": %.0f, \"ns_cut\": %.0f, \"wrs\": %.2f, \"wrs_cut\": %.2f}%s\n",
            size, in_one, cut, whole, parts, size == 262144 ? "" : ",");
    }
    printf("]\n");
    return 0;
}

static void size_run(size_t size, int nics, int last)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;

    bench_config(&cfg, NULL);
    duo_create(&d, nics, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, size);
    f.step_ns = 50;
    latency(&f, WARM);
    struct small before = latency(&f, MESSAGES);
    bench_watch_start(&d);
    duo_fault(&d, "h0:n0 down");
    r2_inst_wake(d.end[0].inst);
    /* No message is under way: what follows is after the failover. */
    duo_run(&d, 50 * DUO_MS);
    f.r_done_at = duo_now(&d);
    latency(&f, WARM);
    struct small after = latency(&f, MESSAGES);
    if (bench_counts[0].data_at[0] != 0) {
        bench_die("the NIC that is down was given data");
    }
    printf(
        "    {\"bytes\": %zu, \"nics\": %d, \"before_ns\": %.0f, \"after_ns\": %.0f, \"latency_after_over_before\": %.4f, \"done_after_over_before\": %.4f}%s\n",
        size, nics, before.arrived, after.arrived, after.arrived / before.arrived,
        after.done / before.done, last ? "" : ",");
    bench_flow_close(&f);
    duo_destroy(&d);
}

int bench_small_run(void)
{
    static const size_t sizes[] = {8, 64, 512, 4096, 16384, 32768, 65536};
    int n = (int)(sizeof(sizes) / sizeof(sizes[0]));

    printf("[\n");
    for (int nics = 4; nics <= 8; nics += 4) {
        for (int i = 0; i < n; i++) {
            size_run(sizes[i], nics, nics == 8 && i == n - 1);
        }
    }
    printf("]\n");
    return 0;
}
