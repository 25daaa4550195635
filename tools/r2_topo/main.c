/* r2_topo: how far this host's NICs are from its GPUs, and which one is used when another fails.
 * See docs/r2_topo.1. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_topo/tool.h"
#include "tools/shared/args.h"

static const char usage[] =
    "usage: r2_topo [OPTION...]     NICs, GPUs, and what lies between them on this host\n"
    "  --order              also the substitutes of each NIC, the best first, as each GPU sees them\n"
    "  --json               as one JSON object\n"
    "  --svg FILE           also as a picture; - is the output\n"
    "  --source sysfs|hwloc where the facts are read: the kernel's files (default), or hwloc, if installed\n"
    "  --xml FILE           hwloc's XML in place of a machine\n"
    "  --root DIR           a captured tree in place of this machine's /\n"
    "  --version | -h, --help\n"
    "Exit: 0; 1 could not be read or written; 2 wrong use.\n";

enum { OPT_ORDER = 1, OPT_JSON, OPT_SVG, OPT_SOURCE, OPT_XML, OPT_ROOT, OPT_VERSION, OPT_HELP };

static const struct option options[] = {
    {"order", no_argument, NULL, OPT_ORDER},
    {"json", no_argument, NULL, OPT_JSON},
    {"svg", required_argument, NULL, OPT_SVG},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"xml", required_argument, NULL, OPT_XML},
    {"root", required_argument, NULL, OPT_ROOT},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

struct request {
    struct topo_source source;
    const char *svg;
    const char *xml;
    int json, order, source_given;
};

static int misuse(const char *what)
{
    return args_misuse("r2_topo", "%s", what);
}

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "r2_topo: %s: %s\n", what, why);
    return EXIT_FAILURE;
}

/* --- names --- */

const char *nic_text(const struct topo *t, int nic, char *out)
{
    snprintf(out, NIC_TEXT, "%s:%u", t->nic[nic].name, t->nic[nic].port);
    return out;
}

const char *gbps_text(uint32_t mbps, char *out)
{
    if (mbps == 0) {
        strcpy(out, "?");
    } else {
        snprintf(out, 16, "%.4g", mbps / 1000.0);
    }
    return out;
}

int ends_count(const struct topo *t)
{
    return t->gpus ? t->gpus : t->numas;
}

struct topo_end end_at(const struct topo *t, int i)
{
    return (struct topo_end){t->gpus ? TOPO_END_GPU : TOPO_END_NUMA, i};
}

const char *end_text(const struct topo *t, int i, char *out)
{
    if (t->gpus) {
        snprintf(out, 16, "GPU%d", i);
    } else {
        snprintf(out, 16, "node %d", t->numa[i].id);
    }
    return out;
}

/* --- command line --- */

/* 0: go on; else the exit status + 1. */
static int option_take(struct request *q, int opt)
{
    switch (opt) {
    case OPT_ORDER:
        q->order = 1;
        return 0;
    case OPT_JSON:
        q->json = 1;
        return 0;
    case OPT_SVG:
        q->svg = optarg;
        return optarg[0] ? 0 : misuse("--svg needs a file, or - for the output") + 1;
    case OPT_SOURCE:
        q->source_given = 1;
        if (topo_source_parse(optarg, &q->source) == 0 && q->source.xml == NULL) {
            return 0;
        }
        return args_misuse("r2_topo", "--source is sysfs or hwloc, not '%s'", optarg) + 1;
    case OPT_XML:
        q->xml = optarg;
        return optarg[0] ? 0 : misuse("--xml needs a file") + 1;
    case OPT_ROOT:
        q->source.root = optarg;
        if (optarg[0] != '\0') {
            return 0;
        }
        return misuse("--root needs a directory") + 1;
    case OPT_VERSION:
        printf("r2_topo %s %s\n", R2_VERSION, R2_GIT);
        return EXIT_SUCCESS + 1;
    default: /* help */
        fputs(usage, stdout);
        return EXIT_SUCCESS + 1;
    }
}

static int request_read(int argc, char **argv, struct request *q)
{
    int opt, done;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        done = opt == '?' || opt == ':' ? args_refuse("r2_topo", opt, argv, options) + 1
                                        : option_take(q, opt);
        if (done != 0) {
            return done;
        }
    }
    if (optind < argc) {
        return args_misuse("r2_topo", "there is nothing to name beside options, not '%s'",
                           argv[optind]) +
               1;
    }
    if (q->xml != NULL && (q->source.root[0] != '\0' || q->source_given)) {
        return misuse("--xml stands alone: no --root, no --source") + 1;
    }
    if (q->xml != NULL) {
        q->source.from = TOPO_FROM_XML;
        q->source.xml = q->xml;
    }
    if (q->json && q->svg != NULL && strcmp(q->svg, "-") == 0) {
        return misuse("--json and --svg - want the same output") + 1;
    }
    return 0;
}

static int picture_write(const struct request *q, const struct tool *tool)
{
    FILE *f;
    int bad;

    if (strcmp(q->svg, "-") == 0) {
        svg_write(stdout, tool);
        return 0;
    }
    f = fopen(q->svg, "we");
    if (f == NULL) {
        return complain(q->svg, strerror(errno));
    }
    svg_write(f, tool);
    bad = ferror(f);
    if (fclose(f) != 0 || bad) {
        return complain(q->svg, strerror(errno ? errno : EIO));
    }
    return 0;
}

static int output_end(void)
{
    return fflush(stdout) != 0 || ferror(stdout) ? complain("output", strerror(errno))
                                                 : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct tool tool;
    struct request q = {.source = {.from = TOPO_FROM_SYSFS, .root = ""}};
    char why[900];
    int rc = request_read(argc, argv, &q);

    if (rc != 0) {
        return rc == EXIT_SUCCESS + 1 ? output_end() : rc - 1;
    }
    if (topo_load(&q.source, &tool.t, why, sizeof(why)) != 0) {
        fprintf(stderr, "r2_topo: %s\n", why);
        return EXIT_FAILURE;
    }
    tool.source = q.source.from == TOPO_FROM_SYSFS   ? "sysfs"
                  : q.source.from == TOPO_FROM_HWLOC ? "hwloc"
                                                     : q.source.xml;
    tool.root = q.source.root;
    tool.order = q.order;
    if (q.svg != NULL && picture_write(&q, &tool) != 0) {
        return EXIT_FAILURE;
    }
    if (q.json) {
        json_write(stdout, &tool);
    } else if (q.svg == NULL || strcmp(q.svg, "-") != 0) {
        text_write(stdout, &tool);
    }
    return output_end();
}
