/* r2_stat: what the jobs of this host that run with the plugin are doing. See docs/r2_stat.1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_stat/stat.h"
#include "tools/shared/args.h"

static const char usage[] =
    "usage: r2_stat [OPTION]...     NICs of each job on this host that uses libnccl-net-r2.so\n"
    "  -c, --connections      its connections, too\n"
    "  -H, --history          what has happened to it, too\n"
    "  -l, --latency          how long its sends take, too; with -c of each connection\n"
    "  --watch [SECONDS]      again every so many seconds (2); on a terminal a screen with rates, of which ? lists the keys\n"
    "  --follow               history as it comes, one line each\n"
    "  --json                 everything as one JSON object; with --follow one object a line\n"
    "  --prom [FILE]          for Prometheus' textfile collector: into FILE, whole or not at all; else to stdout\n"
    "  --check                one line of at most 80 characters, and an exit status to match\n"
    "  --npd                  the same as a custom plugin of node-problem-detector: no job is no problem\n"
    "  --nic-history          what its NICs have gone through over jobs, and which to drain: then the exit status is 1\n"
    "  --assert-loaded        exit status 0 when a process of this user (and job) uses the plugin, else 1\n"
    "  --run-dir DIR          the run directory; else $NCCL_R2_RUN_DIR, else /run/nccl-net-r2 and /dev/shm\n"
    "  --version | -h, --help\n"
    "Root sees the jobs of all users, others their own. Exit: 0; with --check and --npd 1 a problem, 2 nothing is known; 2 wrong "
    "use.\n";

enum {
    OPT_WATCH = 1,
    OPT_FOLLOW,
    OPT_JSON,
    OPT_PROM,
    OPT_CHECK,
    OPT_NPD,
    OPT_LOADED,
    OPT_NICS,
    OPT_DIR,
    OPT_VERSION,
    OPT_HELP
};

static const struct option options[] = {
    {"connections", no_argument, NULL, 'c'},
    {"history", no_argument, NULL, 'H'},
    {"latency", no_argument, NULL, 'l'},
    {"watch", optional_argument, NULL, OPT_WATCH},
    {"follow", no_argument, NULL, OPT_FOLLOW},
    {"json", no_argument, NULL, OPT_JSON},
    {"prom", optional_argument, NULL, OPT_PROM},
    {"check", no_argument, NULL, OPT_CHECK},
    {"npd", no_argument, NULL, OPT_NPD},
    {"assert-loaded", no_argument, NULL, OPT_LOADED},
    {"nic-history", no_argument, NULL, OPT_NICS},
    {"run-dir", required_argument, NULL, OPT_DIR},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

struct args {
    struct stat_more more;
    bool json, follow, check, npd, loaded, nics;
    double watch; /* seconds; 0: not asked for */
    const char *dir;
    const char *prom; /* file, "-": stdout; NULL: not asked for */
};

static int misuse(const char *what)
{
    return args_misuse("r2_stat", "%s", what);
}

static int seconds_of(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0.1 && *out <= 86400 ? 0 : -1;
}

static int run(const struct args *a)
{
    struct stat_found *f = calloc(1, sizeof(*f));
    int rc = 0;

    if (f == NULL || stat_dirs_find(f, a->dir) != 0) {
        free(f);
        if (a->npd) {
            puts("the run directory of jobs cannot be read");
        }
        return a->check || a->npd ? 2 : 1; /* a collector's file that is not written any more grows
                                    old: r2_collector_timestamp_seconds */
    }
    if (a->watch > 0) {
        rc = stat_watch(f, a->watch, a->more);
    } else if (a->follow) {
        rc = stat_follow(f, a->json);
    } else if (a->nics) {
        rc = stat_nic_history(f, a->json);
    } else {
        stat_take(f);
        if (a->check || a->npd) {
            rc = stat_check(f, a->npd);
        } else if (a->loaded) {
            rc = stat_assert_loaded(f);
        } else if (a->prom) {
            rc = stat_prom(f, a->prom);
        } else if (a->json) {
            stat_json(f);
        } else {
            stat_print(f, a->more);
        }
        stat_free(f);
    }
    free(f);
    return rc;
}

/* getopt_long takes an optional argument only behind '='; NULL: there is none. */
static char *word_behind(int argc, char **argv)
{
    return optind < argc && (argv[optind][0] != '-' || argv[optind][1] == '\0') ? argv[optind++]
                                                                                : NULL;
}

/* What is to be done is one thing. 0, or the exit status of wrong use. */
static int args_fit(const struct args *a)
{
    const struct {
        const char *name;
        bool is_given, is_table;
    } ways[] = {{"watch", a->watch > 0, true},      {"follow", a->follow, false},
                {"check", a->check, false},         {"npd", a->npd, false},
                {"prom", a->prom != NULL, false},   {"nic-history", a->nics, false},
                {"assert-loaded", a->loaded, false}};
    const char *given = NULL;
    bool is_table = true;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (ways[i].is_given && given) {
            return args_misuse("r2_stat", "--%s and --%s exclude each other", given, ways[i].name);
        }
        given = ways[i].is_given ? ways[i].name : given;
        is_table = ways[i].is_given ? ways[i].is_table : is_table;
    }
    if (a->json && given && !a->follow && !a->nics) {
        return args_misuse(
            "r2_stat", "--json goes alone, with --follow or --nic-history, not with --%s", given);
    }
    if (!is_table && (a->more.conns || a->more.history || a->more.sends)) {
        return args_misuse("r2_stat", "-c, -H and -l are of the tables, not of --%s", given);
    }
    if (a->prom && a->prom[0] == '\0') {
        return misuse("--prom needs a file, or - for the output");
    }
    return 0;
}

/* 0; else the exit status, or -1: done. */
static int args_read(struct args *a, int argc, char **argv)
{
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":cHlh", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            a->more.conns = true;
            break;
        case 'H':
            a->more.history = true;
            break;
        case 'l':
            a->more.sends = true;
            break;
        case OPT_WATCH:
            optarg = optarg ? optarg : word_behind(argc, argv);
            a->watch = 2;
            if (optarg != NULL && seconds_of(optarg, &a->watch) != 0) {
                return args_misuse("r2_stat", "--watch takes seconds, 0.1 to 86400, not '%s'",
                                   optarg);
            }
            break;
        case OPT_FOLLOW:
            a->follow = true;
            break;
        case OPT_JSON:
            a->json = true;
            break;
        case OPT_PROM:
            a->prom = optarg ? optarg : word_behind(argc, argv);
            a->prom = a->prom ? a->prom : "-";
            break;
        case OPT_CHECK:
            a->check = true;
            break;
        case OPT_NPD:
            a->npd = true;
            break;
        case OPT_LOADED:
            a->loaded = true;
            break;
        case OPT_NICS:
            a->nics = true;
            break;
        case OPT_DIR:
            a->dir = optarg;
            if (optarg[0] == '\0') {
                return misuse("--run-dir needs a directory");
            }
            break;
        case OPT_VERSION:
            printf("r2_stat %s (%s)\n", R2_VERSION, R2_GIT);
            return -1;
        case OPT_HELP:
        case 'h':
            fputs(usage, stdout);
            return -1;
        default:
            return args_refuse("r2_stat", opt, argv, options);
        }
    }
    if (optind < argc) {
        return args_misuse("r2_stat", "there is nothing to name beside options, not '%s'",
                           argv[optind]);
    }
    return args_fit(a);
}

int main(int argc, char **argv)
{
    struct args a = {.dir = getenv("NCCL_R2_RUN_DIR")};
    int rc = args_read(&a, argc, argv);

    return rc < 0 ? 0 : rc ? rc : run(&a);
}
