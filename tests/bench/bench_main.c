/* bench_inproc SECTION: see usage. Prints one JSON object. */
#include "tests/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "bench_inproc: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

void bench_config(struct r2_config *cfg, ...)
{
    char why[200];
    va_list ap;

    r2_config_defaults(cfg);
    va_start(ap, cfg);
    for (const char *name; (name = va_arg(ap, const char *)) != NULL;) {
        if (r2_config_set(cfg, name, va_arg(ap, const char *), why, sizeof(why)) != 0) {
            bench_die("%s: %s", name, why);
        }
    }
    va_end(ap);
}

static int number(const char *text, int least, int most)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;

    if (!text || *end || n < least || n > most) {
        bench_die("'%s' is no number between %d and %d", text ? text : "", least, most);
    }
    return (int)n;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "cost") == 0) {
        return bench_cost_run();
    }
    if (strcmp(what, "memory") == 0) {
        return bench_memory_run();
    }
    if (strcmp(what, "fill") == 0) {
        return bench_fill_run();
    }
    if (strcmp(what, "cut") == 0) {
        return bench_cut_run();
    }
    if (strcmp(what, "small") == 0) {
        return bench_small_run();
    }
    if (strcmp(what, "stall") == 0) {
        return bench_stall_run((unsigned)number(argc > 2 ? argv[2] : "1000", 1, 4096));
    }
    if (strcmp(what, "hour") == 0) {
        return bench_hour_run();
    }
    if (strcmp(what, "gossip") == 0) {
        return bench_gossip_run((unsigned)number(argc > 2 ? argv[2] : "100", 1, 1000));
    }
    if (strcmp(what, "many") == 0) {
        return bench_many_run((unsigned)number(argc > 2 ? argv[2] : "1000", 1, 4000),
                              (unsigned)number(argc > 3 ? argv[3] : "16", 1, 4000));
    }
    if (strcmp(what, "rings") == 0) {
        return bench_rings_run((unsigned)number(argc > 2 ? argv[2] : "8", 1, BENCH_RINGS_SEEDS));
    }
    if (strcmp(what, "calls") == 0 && argc == 5) {
        return bench_calls_run(argv[2], (unsigned)number(argv[3], 1, 1000000),
                               number(argv[4], 1, 8));
    }
    fprintf(
        stderr,
        "usage: bench_inproc cost | memory | fill | cut | small | stall [FAILURES] | many [CONNECTIONS [ACTIVE]] | gossip [SEEDS] | hour | rings [SEEDS] | calls traffic|traffic-2-qps|traffic-8-qps|idle-send|idle-recv|no-receive N NICS\n");
    return 2;
}
