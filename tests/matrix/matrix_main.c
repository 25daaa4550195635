/* Command line of r2_matrix. */
#include "tests/matrix/matrix.h"

#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct mx_job job;
static _Atomic int caught;

static void on_signal(int sig)
{
    caught = sig;
}

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: r2_matrix [--seeds N] [--from S] [--seed S] [--hosts H] [--nics N] [--spines N] [--crossrail] [--json FILE] [--dir DIR] "
        "[--verbose]\n"
        "  --seeds N      cases S .. S+N-1 (16: one of each kind); a case's kind is its seed modulo the number of "
        "kinds\n"
        "  --seed S       one case\n"
        "  --hosts H      2 to %d (3); with two, cable, path and switch cannot be told apart unless rails reach each other\n"
        "  --nics N       1 to %d (2) on each host\n"
        "  --spines N     ways between two ports of a rail, 1 to %d (8)\n"
        "  --crossrail    rails reach each other\n"
        "  --window MS    how long a case without a fault is watched (1000)\n"
        "  --limit MS     how long a verdict is waited for (30000), where nobody can tell no longer than 5000\n"
        "  --dir DIR      logs of the processes (matrix, beside this program)\n"
        "  --verbose      each case, and each verdict\n"
        "  --list         the kinds\n"
        "Last line: N passed, N failed. A verdict that blames what is not broken fails; so does a fault that "
        "nobody tells though somebody could,\n"
        "a process that leaves such a one undecided, and one that does not hear of it.\n",
        MX_HOSTS, MX_NICS, FAB_MAX_SPINES);
}

static long number(const char *name, const char *text, long min, long max)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (*text == '\0' || *end || v < min || v > max) {
        fprintf(stderr, "r2_matrix: --%s %s: a number from %ld to %ld is wanted\n", name, text, min,
                max);
        exit(2);
    }
    return v;
}

/* 1: nothing else is to be done. */
static int option_take(struct mx_opts *o, int c)
{
    switch (c) {
    case 'n':
        o->seeds = (uint64_t)number("seeds", optarg, 1, 1000000);
        return 0;
    case 'f':
        o->from = (uint64_t)number("from", optarg, 0, LONG_MAX);
        return 0;
    case 's':
        o->from = (uint64_t)number("seed", optarg, 0, LONG_MAX);
        o->seeds = 1;
        return 0;
    case 'H':
        o->hosts = (int)number("hosts", optarg, 2, MX_HOSTS);
        return 0;
    case 'N':
        o->nics = (int)number("nics", optarg, 1, MX_NICS);
        return 0;
    case 'S':
        o->spines = (int)number("spines", optarg, 1, FAB_MAX_SPINES);
        return 0;
    case 'x':
        o->crossrail = 1;
        return 0;
    case 'w':
        o->window_ms = (int)number("window", optarg, 100, 600000);
        return 0;
    case 'L':
        o->limit_ms = (int)number("limit", optarg, 100, 600000);
        return 0;
    case 'j':
        o->json = optarg;
        return 0;
    case 'd':
        o->dir = optarg;
        return 0;
    case 'v':
        o->verbose = 1;
        return 0;
    case 'l':
        for (int k = 0; k < MX_KINDS; k++) {
            printf("%2d %s\n", k, mx_kind_name((enum mx_kind)k));
        }
        return 1;
    case 'h':
        usage(stdout);
        return 1;
    default:
        usage(stderr);
        exit(2);
    }
}

static int json_write(const struct mx_sums *s, const struct mx_opts *o)
{
    FILE *f = fopen(o->json, "w");
    int rc = f ? mx_table_json(s, o, f) : -1;

    if (f && fclose(f) != 0) {
        rc = -1;
    }
    if (rc != 0) {
        fprintf(stderr, "r2_matrix: %s: %s\n", o->json, strerror(errno));
    }
    return rc;
}

static int campaign(const struct mx_opts *o)
{
    static struct mx_sums s;
    uint64_t begun = mx_now(), done = 0, bad = 0;
    int rc = mx_job_up(&job, o) != 0 || mx_job_start(&job) != 0 ? -1 : 0;

    for (; rc == 0 && done < o->seeds && !caught; done++) {
        uint64_t before = mx_sums_bad(&s);

        rc = mx_case_run(&job, o->from + done, &s);
        bad += mx_sums_bad(&s) != before;
        fflush(stdout);
    }
    mx_job_down(&job);
    mx_table_print(&s, stdout);
    if (rc != 0 || caught) {
        printf("r2_matrix: ended after %llu cases: %s\n", (unsigned long long)done,
               caught ? "signal" : job.why);
    }
    if (o->json && json_write(&s, o) != 0) {
        rc = -1;
    }
    bad += rc != 0 || caught;
    printf("%.0f s\n%llu passed, %llu failed\n", (double)(mx_now() - begun) / 1e9,
           (unsigned long long)(done > bad ? done - bad : 0), (unsigned long long)bad);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seeds", 1, NULL, 'n'},  {"from", 1, NULL, 'f'},      {"seed", 1, NULL, 's'},
        {"hosts", 1, NULL, 'H'},  {"nics", 1, NULL, 'N'},      {"window", 1, NULL, 'w'},
        {"limit", 1, NULL, 'L'},  {"json", 1, NULL, 'j'},      {"dir", 1, NULL, 'd'},
        {"spines", 1, NULL, 'S'}, {"crossrail", 0, NULL, 'x'}, {"verbose", 0, NULL, 'v'},
        {"list", 0, NULL, 'l'},   {"help", 0, NULL, 'h'},      {NULL, 0, NULL, 0}};
    static char self[PATH_MAX], dir[PATH_MAX + 16];
    struct mx_opts o = {.hosts = 3,
                        .nics = 2,
                        .spines = 8,
                        .seeds = MX_KINDS,
                        .window_ms = 1000,
                        .limit_ms = 30000};
    struct sigaction sa = {.sa_handler = on_signal};
    int c;

    if (argc > 1 && strcmp(argv[1], "--rank") == 0) {
        return mx_rank_main(argc - 2, argv + 2);
    }
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0) {
        return 2;
    }
    o.build = dirname(self);
    snprintf(dir, sizeof(dir), "%s/matrix", o.build);
    o.dir = dir;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option_take(&o, c)) {
            return 0;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "r2_matrix: unexpected word '%s'\n", argv[optind]);
        return 2;
    }
    if (mkdir(o.dir, 0755) != 0 && errno != EEXIST) {
        fprintf(stderr, "r2_matrix: %s: %s\n", o.dir, strerror(errno));
        return 2;
    }
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    return campaign(&o);
}
