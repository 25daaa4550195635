/* Command line of r2_soak, progress, table. */
#include "tests/soak/soak.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

#define EFFECT_RUNS                                                                                \
    4                 /* so many schedules of a class that breaks paths must have shown a switch   \
                       */
#define WIDE_RUNS 100 /* ... and so many of all classes retransmits and returns */

/* For a build with the leak sanitizer: objects of a dead device are left behind on purpose, a
 * driver is not asked to free them. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:fab_ibv_\n";
}

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: r2_soak [--class NAME] [--seed S | --seeds N [--from S]] [--limit SECONDS] [--verbose] "
        "[--keep] [--list]\n"
        "  --seed S     one schedule; its class is S modulo the number of classes unless --class is given\n"
        "  --seeds N    N schedules from --from (0) on\n"
        "  --first      stop at the first failure\n"
        "  --limit T    seconds for one schedule (60)\n"
        "  --verbose    show the schedule, and what the plugin says in every process\n"
        "  --keep       leave the processes' logs there, also when all was right\n"
        "Plugin, fabric and logs are those of the build folder that r2_soak lies in.\n");
}

static int class_parse(const char *name)
{
    for (int i = 0; i < soak_class_count; i++) {
        if (strcmp(soak_classes[i].name, name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "r2_soak: no class '%s'; --list shows them\n", name);
    exit(2);
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t v = strtoull(text, &end, 0);

    if (*text == '\0' || *text == '-' || *end) {
        fprintf(stderr, "r2_soak: '%s' is no number\n", text);
        exit(2);
    }
    return v;
}

static void places_find(struct soak_opts *o)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL || (size_t)n + 32 > sizeof(o->dir)) {
        fprintf(stderr, "r2_soak: cannot work in '%s'\n", self);
        exit(2);
    }
    snprintf(o->self, sizeof(o->self), "%.255s", self);
    *slash = '\0';
    snprintf(o->plugin, sizeof(o->plugin), "%.180s/libnccl-net-r2.so", self);
    snprintf(o->softfab, sizeof(o->softfab), "%.180s/softfab", self);
    snprintf(o->dir, sizeof(o->dir), "%.180s/soak", self);
    mkdir(o->dir, 0755);
}

/* Nothing of the caller's settings may decide what is tested. */
static void environment_clear(void)
{
    for (int i = 0; environ[i];) {
        char name[64];
        size_t len = strcspn(environ[i], "=");
        if (strncmp(environ[i], "NCCL_", 5) == 0 && len < sizeof(name)) {
            memcpy(name, environ[i], len);
            name[len] = '\0';
            unsetenv(name);
        } else {
            i++;
        }
    }
}

static void stats_add(struct soak_stats *to, const struct soak_stats *s)
{
    to->runs += s->runs;
    to->failed += s->failed;
    to->messages += s->messages;
    to->bytes += s->bytes;
    to->conns += s->conns;
    to->switches += s->switches;
    to->false_switches += s->false_switches;
    to->wrong += s->wrong;
    to->retransmits += s->retransmits;
    to->returns += s->returns;
    to->soft += s->soft;
    to->unproven += s->unproven;
    to->errors += s->errors;
    to->resorts += s->resorts;
    to->ms += s->ms;
    to->stall = s->stall > to->stall ? s->stall : to->stall;
    to->ended = s->ended > to->ended ? s->ended : to->ended;
    to->longest_ms = s->longest_ms > to->longest_ms ? s->longest_ms : to->longest_ms;
    to->heap_growth = s->heap_growth > to->heap_growth ? s->heap_growth : to->heap_growth;
    for (int i = 0; i < SOAK_KINDS; i++) {
        to->faults[i] += s->faults[i];
    }
}

static void row_print(const char *name, const struct soak_stats *s)
{
    uint64_t faults = 0;

    for (int i = 0; i < SOAK_KINDS; i++) {
        faults += s->faults[i];
    }
    printf(
        "%-8s %9llu %6llu %7llu %9llu %8.1f %7llu %9llu %6llu %8llu %8llu %6llu %9.1f %7llu %9.1f\n",
        name, (unsigned long long)s->runs, (unsigned long long)s->failed,
        (unsigned long long)s->conns, (unsigned long long)s->messages, (double)s->bytes / 1e6,
        (unsigned long long)faults, (unsigned long long)s->switches,
        (unsigned long long)s->false_switches, (unsigned long long)s->retransmits,
        (unsigned long long)s->returns, (unsigned long long)s->soft, (double)s->stall / 1e6,
        (unsigned long long)s->errors, (double)s->ended / 1e6);
}

static void table_print(const struct soak_stats *st, const struct soak_stats *all)
{
    printf("%-8s %9s %6s %7s %9s %8s %7s %9s %6s %8s %8s %6s %9s %7s %9s\n", "class", "schedules",
           "failed", "conns", "messages", "MB", "faults", "switches", "false", "resent", "returns",
           "soft", "stall ms", "errors", "latest ms");
    for (int c = 0; c < soak_class_count; c++) {
        if (st[c].runs) {
            row_print(soak_classes[c].name, &st[c]);
        }
    }
    row_print("sum", all);
    printf("faults:");
    for (int i = 0; i < SOAK_KINDS; i++) {
        if (all->faults[i]) {
            printf(" %s %llu", soak_kind_name(i), (unsigned long long)all->faults[i]);
        }
    }
    printf(
        "\nwrong verdicts: %llu; holds ended by T_dead: %llu; schedules that went over TCP: %llu; heap after the last of many laps in one process: %+lld bytes at most; %.1f "
        "s, the longest "
        "schedule %.1f s\n",
        (unsigned long long)all->wrong, (unsigned long long)all->unproven,
        (unsigned long long)all->resorts, (long long)all->heap_growth, (double)all->ms / 1e3,
        (double)all->longest_ms / 1e3);
}

/* Faults that never had an effect have shown nothing. */
static uint64_t effects_missing(const struct soak_stats *st, const struct soak_stats *all)
{
    uint64_t missing = 0;

    for (int c = 0; c < soak_class_count; c++) {
        if (!soak_classes[c].switches || st[c].runs < EFFECT_RUNS || st[c].switches) {
            continue;
        }
        printf("FAILED class %s: no path has gone down\n", soak_classes[c].name);
        missing++;
    }
    for (int c = 0; c < soak_class_count; c++) {
        if (!soak_classes[c].resorts || st[c].runs < EFFECT_RUNS ||
            (st[c].resorts >= st[c].runs / 2 && st[c].returns)) {
            continue;
        }
        printf("FAILED class %s: %llu went over TCP, with %llu returns, of %llu schedules\n",
               soak_classes[c].name, (unsigned long long)st[c].resorts,
               (unsigned long long)st[c].returns, (unsigned long long)st[c].runs);
        missing++;
    }
    if (all->runs >= WIDE_RUNS && (all->retransmits == 0 || all->returns == 0)) {
        printf("FAILED: %llu retransmits, %llu returns in %llu schedules\n",
               (unsigned long long)all->retransmits, (unsigned long long)all->returns,
               (unsigned long long)all->runs);
        missing++;
    }
    return missing;
}

struct command {
    struct soak_opts o;
    uint64_t from, count;
    int cls, first;
};

static void one(const struct command *c, uint64_t seed, struct soak_stats *st)
{
    int cls = c->cls >= 0 ? c->cls : (int)(seed % (unsigned)soak_class_count);
    struct soak_stats mine = {0};
    char why[900] = "";

    if (soak_run(&c->o, cls, seed, &mine, why, sizeof(why)) != 0) {
        printf("FAILED class %s seed %llu: %s\n", soak_classes[cls].name, (unsigned long long)seed,
               why);
        printf("  logs: %s/%s-%llu\n", c->o.dir, soak_classes[cls].name, (unsigned long long)seed);
        printf("  again: %s --class %s --seed %llu --verbose\n", c->o.self, soak_classes[cls].name,
               (unsigned long long)seed);
    }
    stats_add(&st[cls], &mine);
}

static int run_all(const struct command *c)
{
    static struct soak_stats st[32], all;
    uint64_t failed = 0;

    for (uint64_t i = 0; i < c->count; i++) {
        one(c, c->from + i, st);
        all = (struct soak_stats){0};
        for (int k = 0; k < soak_class_count; k++) {
            stats_add(&all, &st[k]);
        }
        if (i % 10 == 9 && c->count > 10) {
            printf("%llu of %llu schedules, %llu failed, %llu switches, %llu false, %.0f s\n",
                   (unsigned long long)i + 1, (unsigned long long)c->count,
                   (unsigned long long)all.failed, (unsigned long long)all.switches,
                   (unsigned long long)all.false_switches, (double)all.ms / 1e3);
        }
        fflush(stdout);
        if ((all.failed && c->first) || soak_run_caught()) {
            break;
        }
    }
    table_print(st, &all);
    failed = all.failed + effects_missing(st, &all);
    printf("%llu passed, %llu failed\n", (unsigned long long)(all.runs - all.failed),
           (unsigned long long)failed);
    return failed != 0;
}

static void list(void)
{
    for (int i = 0; i < soak_class_count; i++) {
        printf("%-8s %s\n", soak_classes[i].name, soak_classes[i].what);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"class", 1, NULL, 'c'},   {"seed", 1, NULL, 's'},  {"seeds", 1, NULL, 'n'},
        {"from", 1, NULL, 'f'},    {"limit", 1, NULL, 't'}, {"first", 0, NULL, '1'},
        {"verbose", 0, NULL, 'v'}, {"keep", 0, NULL, 'k'},  {"list", 0, NULL, 'l'},
        {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    static struct command c = {.cls = -1, .o.limit_s = 60};
    int opt;

    if (argc > 2 && strcmp(argv[1], "--rank") == 0) {
        return soak_rank_main(argc - 2, argv + 2);
    }
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            c.cls = class_parse(optarg);
            break;
        case 's':
            c.from = number(optarg);
            c.count = 1;
            break;
        case 'n':
            c.count = number(optarg);
            break;
        case 'f':
            c.from = number(optarg);
            break;
        case 't':
            c.o.limit_s = (unsigned)number(optarg);
            break;
        case '1':
            c.first = 1;
            break;
        case 'v':
            c.o.verbose = 1;
            break;
        case 'k':
            c.o.keep = 1;
            break;
        case 'l':
            list();
            return 0;
        default:
            usage(opt == 'h' ? stdout : stderr);
            return opt == 'h' ? 0 : 2;
        }
    }
    if (c.count == 0 || optind < argc) {
        usage(stderr);
        return 2;
    }
    environment_clear();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    places_find(&c.o);
    soak_run_catch();
    return run_all(&c);
}
