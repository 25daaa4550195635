/* r2_diag: who is slow, from the statistics of many hosts. See docs/r2_diag.1. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_diag/tool.h"
#include "tools/shared/args.h"

#define EXIT_UNKNOWN 2
#define EXIT_USAGE   2

static const char usage[] =
    "usage: r2_diag SOURCE...       who is slow: times of transfers from each host to each other one\n"
    "       r2_diag --ssh HOST...   the same of hosts that run a job now, by r2_stat over ssh\n"
    "  --nics               from each NIC to each other one; --size small or large\n"
    "  --size SIZE          of transfers of that size alone: 16K, 128K, 1M (at most so many bytes) or more\n"
    "  --job ID             of that job of the scheduler alone\n"
    "  --svg FILE           the matrix as a picture, too; - is the output\n"
    "  --json               everything as one JSON object\n"
    "  --run-dir DIR        with --ssh: the run directory there\n"
    "  --limit SECONDS      with --ssh: how long a host has to answer (20)\n"
    "  --version | -h, --help\n"
    "SOURCE: a run directory or a copy of one, a file of statistics of it, or what r2_stat --json has printed.\n"
    "Exit: 0 nothing is slow; 1 something is, or a source was not read; 2 too little is known, or wrong use.\n";

enum {
    OPT_SSH = 1,
    OPT_NICS,
    OPT_SIZE,
    OPT_JOB,
    OPT_SVG,
    OPT_JSON,
    OPT_DIR,
    OPT_LIMIT,
    OPT_VERSION
};

static const struct option options[] = {
    {"ssh", no_argument, NULL, OPT_SSH},
    {"nics", no_argument, NULL, OPT_NICS},
    {"size", required_argument, NULL, OPT_SIZE},
    {"job", required_argument, NULL, OPT_JOB},
    {"svg", required_argument, NULL, OPT_SVG},
    {"json", no_argument, NULL, OPT_JSON},
    {"run-dir", required_argument, NULL, OPT_DIR},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct request {
    struct sources from;
    int json;
    enum figures_by by;
    const char *size_name, *job, *svg;
    unsigned size; /* FIGURES_SIZES: all */
};

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "r2_diag: %s: %s\n", what, why);
    return -1;
}

/* --- command line --- */

static int size_read(struct request *q)
{
    q->size = FIGURES_SIZES;
    if (q->size_name == NULL) {
        return 0;
    }
    for (unsigned s = 0; figures_size_name(q->by, s); s++) {
        if (strcmp(figures_size_name(q->by, s), q->size_name) == 0) {
            q->size = s;
            return 0;
        }
    }
    return args_misuse("r2_diag", "--size is %s, not '%s'",
                       q->by == FIGURES_NIC ? "small or large, of NICs" : "16K, 128K, 1M or more",
                       q->size_name);
}

static int request_fit(struct request *q)
{
    int rc = sources_fit(&q->from);

    if (rc) {
        return rc;
    }
    if (q->svg && q->svg[0] == '\0') {
        return args_misuse("r2_diag", "--svg needs a file, or - for the output");
    }
    if (q->json && q->svg && strcmp(q->svg, "-") == 0) {
        return args_misuse("r2_diag", "--json and --svg - want the same output");
    }
    return size_read(q);
}

/* 0; else the exit status, or -1: done. */
static int option_take(struct request *q, int opt, char **argv)
{
    switch (opt) {
    case OPT_SSH:
        q->from.ssh = 1;
        return 0;
    case OPT_NICS:
        q->by = FIGURES_NIC;
        return 0;
    case OPT_SIZE:
        q->size_name = optarg;
        return 0;
    case OPT_JOB:
        q->job = optarg;
        return 0;
    case OPT_SVG:
        q->svg = optarg;
        return 0;
    case OPT_JSON:
        q->json = 1;
        return 0;
    case OPT_DIR:
        q->from.dir = optarg;
        return 0;
    case OPT_LIMIT:
        return sources_limit_read(&q->from, optarg);
    case OPT_VERSION:
        printf("r2_diag %s (%s)\n", R2_VERSION, R2_GIT);
        return -1;
    case 'h':
        fputs(usage, stdout);
        return -1;
    default:
        return args_refuse("r2_diag", opt, argv, options);
    }
}

static int request_read(struct request *q, int argc, char **argv)
{
    int opt, rc;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        rc = option_take(q, opt, argv);
        if (rc) {
            return rc;
        }
    }
    q->from.name = argv + optind;
    q->from.names = argc - optind;
    return request_fit(q);
}

/* --- what is read --- */

static void view_take(void *arg, int at, const struct r2_stat_view *v)
{
    (void)at;
    figures_view(arg, v);
}

static int json_take(void *arg, int at, const char *text)
{
    (void)at;
    return figures_json(arg, text);
}

/* What was read can be one matrix: 0, else the exit status. */
static int figures_fit(const struct figures *f)
{
    if (f->jobs == 2) {
        fprintf(stderr,
                "r2_diag: statistics of job '%s' and of others; --job ID takes those of one\n",
                f->job);
        return EXIT_USAGE;
    }
    if (f->full) {
        fprintf(stderr, "r2_diag: more than %d hosts or NICs, or out of memory\n", FIGURES_PLACES);
        return EXIT_FAILURE;
    }
    if (f->processes == 0) {
        fprintf(stderr, "r2_diag: there is no process%s%s in what was read\n",
                f->wanted ? " of job " : "", f->wanted ? f->wanted : "");
    }
    return 0;
}

/* --- what is written --- */

static int picture_write(const struct request *q, const struct diag *d)
{
    FILE *f = strcmp(q->svg, "-") == 0 ? stdout : fopen(q->svg, "we");
    int bad;

    if (f == NULL) {
        return complain(q->svg, strerror(errno));
    }
    svg_write(f, d);
    bad = ferror(f);
    bad |= f == stdout ? fflush(f) != 0 : fclose(f) != 0;
    return bad ? complain(q->svg, strerror(errno ? errno : EIO)) : 0;
}

static int output_write(const struct request *q, const struct diag *d)
{
    if (q->svg && picture_write(q, d) != 0) {
        return -1;
    }
    if (q->json) {
        json_write(stdout, d);
    } else if (q->svg == NULL || strcmp(q->svg, "-") != 0) {
        text_write(stdout, d);
    }
    return fflush(stdout) != 0 || ferror(stdout) ? complain("output", strerror(errno)) : 0;
}

/* Where hosts are well beside each other, a NIC of one may not be. */
static void nics_hint(const struct request *q, const struct figures *f, const struct diag *hosts)
{
    static struct diag nics;

    if (q->by == FIGURES_NIC || q->json || hosts->saids ||
        diag_fill(&nics, f, FIGURES_NIC, FIGURES_SIZES) != 0) {
        return;
    }
    if (nics.saids) {
        fputs("r2_diag: between NICs something is slow: r2_diag --nics\n", stderr);
    }
    diag_free(&nics);
}

static int diagnose(const struct request *q, struct figures *f, struct sources_unread *unread)
{
    static struct diag d;
    const struct sources_take take = {f, view_take, json_take};
    int unreads = sources_read(&q->from, &take, unread), rc;

    rc = figures_fit(f);
    if (rc) {
        return rc;
    }
    figures_sort(f);
    if (f->full || diag_fill(&d, f, q->by, q->size) != 0) {
        complain("figures", "out of memory");
        return EXIT_FAILURE;
    }
    d.unread = unread;
    d.unreads = unreads;
    rc = output_write(q, &d) != 0 || unreads || d.saids ? EXIT_FAILURE
         : d.state == DIAG_FEW                          ? EXIT_UNKNOWN
                                                        : EXIT_SUCCESS;
    nics_hint(q, f, &d);
    diag_free(&d);
    return rc;
}

int main(int argc, char **argv)
{
    struct request q = {.from = {.tool = "r2_diag"}, .by = FIGURES_HOST};
    struct figures f = {0};
    struct sources_unread *unread;
    int rc = request_read(&q, argc, argv);

    if (rc) {
        return rc < 0 ? EXIT_SUCCESS : rc;
    }
    f.wanted = q.job;
    unread = calloc((size_t)q.from.names, sizeof(*unread));
    if (unread == NULL) {
        complain("sources", "out of memory");
        return EXIT_FAILURE;
    }
    rc = diagnose(&q, &f, unread);
    figures_free(&f);
    free(unread);
    return rc;
}
