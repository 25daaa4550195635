/*
 * How long a failure stops a connection, in virtual time: only what the protocol itself needs, with
 * a fixed price for each hand-over between threads and each message of the out-of-band channel.
 * Calls into the driver take no time here.
 */
#include "tests/bench/bench.h"
#include "core/r2_registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_NICS 8
#define STALL_SIZE 32768
#define LINK_RATE  12500000000ull
#define SETTLE_NS  (DUO_MS / 2)

struct stalls {
    uint64_t fault[4096], calm[4096], first[4096];
    unsigned n, ncalm, nfirst;
    uint64_t rng;
};

static uint64_t draw(struct stalls *s, uint64_t below)
{
    s->rng = s->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (s->rng >> 33) % below;
}

static uint64_t pause_longest(struct bench_flow *f, uint64_t ns)
{
    f->longest_pause = 0;
    bench_flow_pass(f, ns);
    return f->longest_pause;
}

/* When the first data went out over a NIC other than @dead since @since; 0: none did. */
static uint64_t survivor_first(int dead, uint64_t since)
{
    uint64_t best = 0;

    for (int i = 0; i < STALL_NICS; i++) {
        uint64_t at = bench_counts[0].data_at[i];

        if (i != dead && at > since && (!best || at < best)) {
            best = at;
        }
    }
    return best;
}

static void nic_fail(struct stalls *s, struct bench_flow *f, int nic, int first)
{
    static const char *const where[] = {"h0:n%d down", "h1:n%d down", "*:n%d down"};
    unsigned side = (unsigned)draw(s, 3);
    char text[32];
    uint64_t at;

    bench_flow_pass(f, 100000 + draw(s, 20000));
    s->calm[s->ncalm++] = pause_longest(f, SETTLE_NS);
    at = duo_now(f->d);
    snprintf(text, sizeof(text), where[side], nic);
    duo_fault(f->d, text);
    r2_inst_wake(f->d->end[0].inst);
    r2_inst_wake(f->d->end[1].inst);
    f->longest_pause = 0;
    if (first) { /* the primary carried everything: what goes out elsewhere is the switch */
        uint64_t sent = 0;

        while (!sent && duo_now(f->d) < at + SETTLE_NS) {
            bench_flow_turn(f);
            sent = survivor_first(nic, at);
        }
        if (sent) {
            s->first[s->nfirst++] = sent - at;
        }
    }
    bench_flow_pass(f, at + SETTLE_NS - duo_now(f->d));
    s->fault[s->n++] = f->longest_pause;
}

/* One connection loses all NICs but the last, the primary first. */
static void chain_run(struct stalls *s, uint64_t wake_ns, unsigned failures)
{
    struct r2_config cfg;
    struct bench_flow f;
    struct duo d;

    bench_config(&cfg, NULL);
    duo_create(&d, STALL_NICS, LINK_RATE, &cfg);
    bench_flow_open(&f, &d, 0, STALL_SIZE);
    bench_watch_start(&d);
    d.wake_ns = wake_ns;
    bench_flow_run(&f, 100);
    for (int nic = 0; nic < STALL_NICS - 1 && s->n < failures; nic++) {
        nic_fail(s, &f, nic, nic == 0);
    }
    if (f.r_done_at + SETTLE_NS < duo_now(&d)) {
        bench_die("a connection with a NIC left stands still");
    }
    f.limit = f.s_posted > f.r_posted ? f.s_posted : f.r_posted;
    bench_flow_run(&f, f.limit);
    bench_flow_close(&f);
    duo_destroy(&d);
}

static int compare(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return a < b ? -1 : a > b;
}

static void spread_print(const char *name, uint64_t *v, unsigned n, const char *end)
{
    qsort(v, n, sizeof(*v), compare);
    printf("\"%s\": {\"n\": %u, \"median_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}%s", name,
           n, (double)v[n / 2] / 1e3, (double)v[n * 99 / 100] / 1e3, (double)v[n - 1] / 1e3, end);
}

int bench_stall_run(unsigned failures)
{
    static const uint64_t wakes[] = {1000, 30000};
    static struct stalls s;

    if (failures < 1 || failures > sizeof(s.fault) / sizeof(s.fault[0])) {
        bench_die("1 to %zu failures are possible", sizeof(s.fault) / sizeof(s.fault[0]));
    }
    printf("{\"bytes\": %d, \"nics\": %d, \"link_gbps\": 100, \"rows\": [", STALL_SIZE, STALL_NICS);
    for (size_t i = 0; i < sizeof(wakes) / sizeof(wakes[0]); i++) {
        memset(&s, 0, sizeof(s));
        s.rng = 20261121 + i;
        while (s.n < failures) {
            chain_run(&s, wakes[i], failures);
        }
        printf("%s\n    {\"handover_us\": %.0f, ", i ? "," : "", (double)wakes[i] / 1e3);
        spread_print("stall", s.fault, s.n, ", ");
        spread_print("first_data_on_a_survivor", s.first, s.nfirst, ", ");
        spread_print("no_fault", s.calm, s.ncalm, "}");
    }
    printf("\n  ]}\n");
    return 0;
}
