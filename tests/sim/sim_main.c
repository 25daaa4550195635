/* Command line of r2_sim. */
#include "sim.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/r2_rules.h"

#define PROVIDER_RUNS                                                                              \
    500                  /* of all classes: 40 in 100 have a library that keeps its own account    \
                          */
#define REFUSED_RUNS 300 /* of which 3 in 100 see a copy refused */
#define RETURN_RUNS  20  /* so many schedules are enough to show a second return */

static struct sim one;

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: r2_sim [--class NAME] [--seed S | --seeds N [--from S] | --soak] [--without RULE]... [--jobs J]\n"
        "              [--first] [--recheck K] [--limit SECONDS] [--verbose] [--list]\n"
        "  --seed S       one schedule; its class is S modulo the number of classes unless --class is given\n"
        "  --seeds N      N schedules from --from (0) on; --soak: 10000\n"
        "  --without RULE switches a rule of the protocol off: the simulation is expected to fail\n"
        "  --first        stop at the first failure\n"
        "  --recheck K    run every K-th seed twice and compare (50; 0: never)\n"
        "  --limit T      seconds of the processor for one schedule (60)\n"
        "  --list         classes and rules\n"
        "Of 100 schedules or more each twentieth part is told on stderr.\n");
}

static void list(void)
{
    printf("classes:\n");
    for (int i = 0; i < sim_class_count; i++) {
        printf("  %-8s %s\n", sim_classes[i].name, sim_classes[i].what);
    }
    printf("rules:\n");
    for (int i = 0; i < R2_RULE_COUNT; i++) {
        printf("  %s\n", r2_rule_name((enum r2_rule)i));
    }
}

static int class_parse(const char *name)
{
    for (int i = 0; i < sim_class_count; i++) {
        if (strcmp(sim_classes[i].name, name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "r2_sim: no class '%s'; --list shows them\n", name);
    exit(2);
}

static void rule_off(const char *name)
{
    int r = r2_rule_parse(name);

    if (r < 0) {
        fprintf(stderr, "r2_sim: no rule '%s'; --list shows them\n", name);
        exit(2);
    }
    r2_rules_off |= 1u << r;
}

static uint64_t number(const char *option, const char *text, uint64_t max)
{
    char *end;
    unsigned long long v = strtoull(text, &end, 0);

    if (*text == '\0' || *text == '-' || *end || v > max) {
        fprintf(stderr, "r2_sim: --%s %s: a number up to %llu is wanted\n", option, text,
                (unsigned long long)max);
        exit(2);
    }
    return v;
}

static int run_one(int cls, uint64_t seed)
{
    static struct sim_stats st[SIM_MAX_CLASSES];
    int bad;

    if (cls < 0) {
        cls = (int)(seed % (unsigned)sim_class_turns);
    }
    bad = sim_run(&one, cls, seed);
    if (bad) {
        printf("FAILED class %s seed %llu at %.3f ms: %s\n", sim_classes[cls].name,
               (unsigned long long)seed, (double)one.failed_at / 1e6, one.why);
        for (int i = 0; i < one.p.procs && !sim_verbose; i++) {
            sim_proc_log_print(&one.proc[i]);
        }
    }
    st[cls] = one.st;
    sim_table_print(st);
    printf("virtual time %.3f ms, %llu events, hash %016llx\n", (double)one.st.virtual_ns / 1e6,
           (unsigned long long)one.st.events, (unsigned long long)one.hash);
    printf("%d passed, %d failed\n", !bad, bad);
    return bad;
}

/* Schedules whose paths return, and none of which carried data over a second or third incarnation,
 * have shown nothing. */
static int returns_missing(const struct sim_stats *st)
{
    int missing = 0;

    for (int c = 0; c < sim_class_count; c++) {
        if (!sim_classes[c].returns || st[c].runs < RETURN_RUNS ||
            (st[c].carried[2] && st[c].carried[3] && st[c].returns)) {
            continue;
        }
        printf("FAILED class %s: no path that returned twice has carried data\n",
               sim_classes[c].name);
        missing++;
    }
    for (int c = 0; c < sim_class_count; c++) {
        if (sim_classes[c].weights && st[c].runs >= RETURN_RUNS &&
            st[c].weights < 10 * st[c].runs) {
            printf("FAILED class %s: its plans hardly changed\n", sim_classes[c].name);
            missing++;
        }
    }
    return missing;
}

/* Schedules with adaptive routing of which none posted a part as two work requests, none saw the
 * second refused, or none a write overtake another one, have shown nothing. */
static int lists_missing(const struct sim_stats *st)
{
    int missing = 0;

    for (int c = 0; c < sim_class_count; c++) {
        if (strcmp(sim_classes[c].name, "adaptive") != 0 || st[c].runs < RETURN_RUNS ||
            (st[c].lists && st[c].lists_cut && st[c].overtaken)) {
            continue;
        }
        printf("FAILED class %s: no list of work requests was cut, or no write overtaken\n",
               sim_classes[c].name);
        missing++;
    }
    return missing;
}

/* Schedules of which none sent by way of a bounce buffer, or none saw its engine fail, neither. */
static int copies_missing(const struct sim_stats *st)
{
    int missing = 0;

    for (int c = 0; c < sim_class_count; c++) {
        if (strcmp(sim_classes[c].name, "bounce") != 0 || st[c].runs < RETURN_RUNS ||
            (st[c].copies && (st[c].copies_refused || st[c].runs < REFUSED_RUNS))) {
            continue;
        }
        printf("FAILED class %s: no copy was %s\n", sim_classes[c].name,
               st[c].copies ? "refused" : "made");
        missing++;
    }
    return missing;
}

/* Nor those with a NIC of last resort over which hardly any has sent. */
static int resorts_missing(const struct sim_stats *st)
{
    int missing = 0;

    for (int c = 0; c < sim_class_count; c++) {
        if (strcmp(sim_classes[c].name, "resort") != 0 || st[c].runs < RETURN_RUNS ||
            st[c].resorts >= st[c].runs) {
            continue;
        }
        printf("FAILED class %s: hardly anything went over the last resort\n", sim_classes[c].name);
        missing++;
    }
    return missing;
}

/* Nor have schedules of all classes in which no library refused a post in ERR, made up a flush, or
 * did so ahead of an arrival. */
static int providers_missing(const struct sim_stats *st)
{
    struct sim_stats all = {0};

    for (int c = 0; c < sim_class_turns; c++) {
        if (!st[c].runs) {
            return 0;
        }
        sim_stats_add(&all, &st[c]);
    }
    if (all.runs < PROVIDER_RUNS || (all.refused && all.made_up && all.late_arrivals)) {
        return 0;
    }
    printf("FAILED: no %s\n", !all.refused   ? "post was refused in ERR"
                              : !all.made_up ? "flush was made up"
                                             : "arrival came behind a flush that was made up");
    return 1;
}

static int run_many(const struct sim_job *job)
{
    static struct sim_stats st[SIM_MAX_CLASSES];
    uint64_t passed, failed = sim_jobs_run(job, st, &passed);

    sim_table_print(st);
    failed += (uint64_t)returns_missing(st) + (uint64_t)lists_missing(st) +
              (uint64_t)copies_missing(st) + (uint64_t)resorts_missing(st) +
              (uint64_t)providers_missing(st);
    printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
    return failed != 0;
}

struct command {
    struct sim_job job;
    uint64_t seed;
    int single, done;
};

/* -1 for an option that does not exist. */
static int option_take(struct command *c, int o, const char *arg)
{
    switch (o) {
    case 'c':
        c->job.cls = class_parse(arg);
        return 0;
    case 's':
        c->seed = number("seed", arg, UINT64_MAX);
        c->single = 1;
        return 0;
    case 'n':
        c->job.count = number("seeds", arg, 1ull << 40);
        return 0;
    case 'f':
        c->job.from = number("from", arg, UINT64_MAX);
        return 0;
    case 'k':
        c->job.count = 10000;
        return 0;
    case 'w':
        rule_off(arg);
        return 0;
    case 'j':
        c->job.jobs = (int)number("jobs", arg, 64);
        return 0;
    case '1':
        c->job.stop_at_first = 1;
        return 0;
    case 'r':
        c->job.recheck = (int)number("recheck", arg, 1000000);
        return 0;
    case 't':
        c->job.limit_s = (unsigned)number("limit", arg, 100000);
        return 0;
    case 'v':
        sim_verbose = 1;
        return 0;
    case 'l':
        list();
        c->done = 1;
        return 0;
    case 'h':
        usage(stdout);
        c->done = 1;
        return 0;
    default:
        return -1;
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"class", 1, NULL, 'c'}, {"seed", 1, NULL, 's'},    {"seeds", 1, NULL, 'n'},
        {"from", 1, NULL, 'f'},  {"soak", 0, NULL, 'k'},    {"without", 1, NULL, 'w'},
        {"jobs", 1, NULL, 'j'},  {"first", 0, NULL, '1'},   {"recheck", 1, NULL, 'r'},
        {"limit", 1, NULL, 't'}, {"verbose", 0, NULL, 'v'}, {"list", 0, NULL, 'l'},
        {"help", 0, NULL, 'h'},  {NULL, 0, NULL, 0}};
    struct command c = {.job = {.cls = -1, .jobs = 1, .limit_s = 60, .recheck = 50}};
    int o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option_take(&c, o, optarg) != 0) {
            usage(stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "r2_sim: unexpected word '%s'\n", argv[optind]);
        return 2;
    }
    if (c.done) {
        return 0;
    }
    if (c.single) {
        return run_one(c.job.cls, c.seed);
    }
    if (c.job.count == 0) {
        usage(stderr);
        return 2;
    }
    if (c.job.jobs < 1) {
        c.job.jobs = 1;
    }
    return run_many(&c.job);
}
