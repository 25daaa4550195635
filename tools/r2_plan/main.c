/* r2_plan: what an all_reduce costs beside servers that lost NICs, and what to use. See
 * docs/r2_plan.1 and docs/collectives.md. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/r2_perf/util.h"
#include "tools/schedule/sim.h"
#include "tools/r2_plan/tool.h"
#include "tools/shared/args.h"
#include "tools/shared/sources.h"

#define EXIT_USAGE 2

static const char usage[] =
    "usage: r2_plan --nodes N [OPTION...]              what an all_reduce costs, and what to use\n"
    "       r2_plan --from SOURCE... [OPTION...]       the same of the hosts of a job, by name\n"
    "       r2_plan --ssh HOST... [OPTION...]          of hosts that run it now, over ssh\n"
    "       r2_plan simulate --nodes N [OPTION...]     the schedules chunk by chunk, data checked\n"
    "  --nodes N            servers, 2 to 4096\n"
    "  --nics K             NICs of each, 1 to 32 (8)\n"
    "  --gpus G             GPUs of each, 1 to 64 (8)\n"
    "  --lost LIST          what is lost: node 3 one NIC and node 17 two of them: 3:1,17:n2+n5\n"
    "  --size BYTES         of the all_reduce, as in 64M (1G)\n"
    "  --rate GBPS          of a NIC, in Gb/s (400)\n"
    "  --rail-only          also the rank order for a fabric that joins only equal rails\n"
    "  --what-if K          also what losing 1 to K NICs would cost, beside nothing else lost\n"
    "  --json               as one JSON object\n"
    "--from and --ssh are in place of --nodes, --nics and --lost; hosts are in the order of the line\n"
    "  --job ID             of that job of the scheduler alone\n"
    "  --run-dir DIR        with --ssh: the run directory there\n"
    "  --limit SECONDS      with --ssh: how long a host has to answer (20)\n"
    "SOURCE: a run directory or a copy of one, a file of statistics of it, or what r2_stat --json\n"
    "has printed.\n"
    "simulate has --nodes (to 128), --nics, --lost and --json, and\n"
    "  --pieces P           what a node's part of the data is divided into, 1 to 64 (8)\n"
    "  --share HOW          how NICs are shared: by the bytes that connections carry, by\n"
    "                       connections alike, or at a receiver by senders first (bytes)\n"
    "  --version | -h, --help\n"
    "Exit: 0; 1 could not be written, a host could not be read or planned for, or simulated data\n"
    "was wrong; 2 wrong use.\n";

enum {
    OPT_NODES = 1,
    OPT_NICS,
    OPT_GPUS,
    OPT_LOST,
    OPT_SIZE,
    OPT_RATE,
    OPT_RAIL_ONLY,
    OPT_WHAT_IF,
    OPT_PIECES,
    OPT_SHARE,
    OPT_FROM,
    OPT_SSH,
    OPT_JOB,
    OPT_DIR,
    OPT_LIMIT,
    OPT_JSON,
    OPT_VERSION,
    OPT_HELP
};

/* In the order of OPT_NODES and those behind it. */
static const struct option options[] = {
    {"nodes", required_argument, NULL, OPT_NODES},
    {"nics", required_argument, NULL, OPT_NICS},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"lost", required_argument, NULL, OPT_LOST},
    {"size", required_argument, NULL, OPT_SIZE},
    {"rate", required_argument, NULL, OPT_RATE},
    {"rail-only", no_argument, NULL, OPT_RAIL_ONLY},
    {"what-if", required_argument, NULL, OPT_WHAT_IF},
    {"pieces", required_argument, NULL, OPT_PIECES},
    {"share", required_argument, NULL, OPT_SHARE},
    {"from", no_argument, NULL, OPT_FROM},
    {"ssh", no_argument, NULL, OPT_SSH},
    {"job", required_argument, NULL, OPT_JOB},
    {"run-dir", required_argument, NULL, OPT_DIR},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"json", no_argument, NULL, OPT_JSON},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

enum command { PLAN, SIMULATE, READ };

static const char *const of_command[] = {
    [PLAN] = "without --from or --ssh",
    [SIMULATE] = "with simulate",
    [READ] = "with --from or --ssh, which say it",
};

/* What has no meaning with a command. */
static const bool is_foreign[OPT_HELP + 1][READ + 1] = {
    [OPT_NODES] = {[READ] = true},
    [OPT_NICS] = {[READ] = true},
    [OPT_GPUS] = {[SIMULATE] = true},
    [OPT_LOST] = {[READ] = true},
    [OPT_SIZE] = {[SIMULATE] = true},
    [OPT_RATE] = {[SIMULATE] = true},
    [OPT_RAIL_ONLY] = {[SIMULATE] = true},
    [OPT_WHAT_IF] = {[SIMULATE] = true},
    [OPT_PIECES] = {[PLAN] = true, [READ] = true},
    [OPT_SHARE] = {[PLAN] = true, [READ] = true},
    [OPT_FROM] = {[SIMULATE] = true},
    [OPT_SSH] = {[SIMULATE] = true},
    [OPT_JOB] = {[PLAN] = true, [SIMULATE] = true},
    [OPT_DIR] = {[PLAN] = true, [SIMULATE] = true},
    [OPT_LIMIT] = {[PLAN] = true, [SIMULATE] = true},
};

/* The command line. */
struct request {
    struct job *j;
    enum command command;
    const char *lost, *job; /* NULL: not said */
    bool is_given[OPT_HELP + 1];
    struct sources from;
};

static int misuse(const char *what, const char *value)
{
    return args_misuse("r2_plan", "%s%s%s", what, value ? ", not " : "", value ? value : "") + 1;
}

static int number_take(const char *what, int lo, int hi, int *value)
{
    long n;

    if (!util_int_parse(optarg, lo, hi, &n)) {
        return misuse(what, optarg);
    }
    *value = (int)n;
    return 0;
}

static int rate_take(struct job *j)
{
    char *end;

    j->gbps = strtod(optarg, &end);
    if (end == optarg || *end != '\0' || !(j->gbps >= 0.001 && j->gbps <= 100000)) {
        return misuse("--rate is that of a NIC in Gb/s, 0.001 to 100000", optarg);
    }
    return 0;
}

static int size_take(struct job *j)
{
    size_t bytes;

    if (!util_size_parse(optarg, &bytes) || bytes == 0 || bytes > 1ull << 50) {
        return misuse("--size is a number of bytes as in 64M or 1.5G, 1 to 1024T", optarg);
    }
    j->bytes = bytes;
    return 0;
}

/* 0: go on; else the exit status + 1. */
static int option_take(struct request *q, int opt)
{
    struct job *j = q->j;
    int rc;

    q->is_given[opt] = true;
    switch (opt) {
    case OPT_NODES:
        return number_take("--nodes is a whole number from 2 to 4096", 2, PLANNER_NODES, &j->nodes);
    case OPT_NICS:
        return number_take("--nics is a whole number from 1 to 32", 1, TOOL_NICS, &j->nics);
    case OPT_GPUS:
        return number_take("--gpus is a whole number from 1 to 64", 1, 64, &j->gpus);
    case OPT_WHAT_IF:
        return number_take("--what-if is a whole number from 1 to 64", 1, 64, &j->what_if);
    case OPT_LOST:
        if (q->lost != NULL) {
            return misuse("--lost is given once: nodes are separated by commas", NULL);
        }
        q->lost = optarg;
        return 0;
    case OPT_SIZE:
        return size_take(j);
    case OPT_RATE:
        j->rate_by = RATE_SAID;
        return rate_take(j);
    case OPT_RAIL_ONLY:
        j->rail_only = true;
        return 0;
    case OPT_PIECES:
        return number_take("--pieces is a whole number from 1 to 64", 1, 64, &j->pieces);
    case OPT_SHARE:
        return simulate_by_read(optarg, &j->by)
                   ? 0
                   : misuse("--share is bytes, connections or senders", optarg);
    case OPT_FROM:
    case OPT_SSH:
        q->from.ssh = opt == OPT_SSH;
        return 0;
    case OPT_JOB:
        q->job = optarg;
        return 0;
    case OPT_DIR:
        q->from.dir = optarg;
        return 0;
    case OPT_LIMIT:
        rc = sources_limit_read(&q->from, optarg);
        return rc ? rc + 1 : 0;
    case OPT_JSON:
        j->json = true;
        return 0;
    case OPT_VERSION:
        printf("r2_plan %s %s\n", R2_VERSION, R2_GIT);
        return EXIT_SUCCESS + 1;
    default: /* help */
        fputs(usage, stdout);
        return EXIT_SUCCESS + 1;
    }
}

/* Words where none have a meaning. */
static int word_refuse(const char *word)
{
    static const char *const words[] = {"simulate", NULL};

    if (strcmp(word, words[0]) == 0) {
        return misuse("simulate comes before the options", NULL);
    }
    if (args_near(word, words)) {
        return args_misuse("r2_plan", "unknown word '%s': did you mean simulate?", word) + 1;
    }
    return misuse("there is nothing to name beside options", word);
}

static int options_fit(const struct request *q)
{
    if (q->is_given[OPT_FROM] && q->is_given[OPT_SSH]) {
        return misuse("--from and --ssh: one of them", NULL);
    }
    for (int opt = 1; opt <= OPT_HELP; opt++) {
        if (q->is_given[opt] && is_foreign[opt][q->command]) {
            fprintf(stderr, "r2_plan: --%s has no meaning %s\n", options[opt - 1].name,
                    opt == OPT_PIECES || opt == OPT_SHARE ? "without simulate"
                                                          : of_command[q->command]);
            return EXIT_USAGE + 1;
        }
    }
    return 0;
}

static int request_read(int argc, char **argv, struct request *q)
{
    int opt, done;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (opt == '?' || opt == ':') {
            return args_refuse("r2_plan", opt, argv, options) + 1;
        }
        done = option_take(q, opt == 'h' ? OPT_HELP : opt);
        if (done != 0) {
            return done;
        }
    }
    if (q->is_given[OPT_FROM] || q->is_given[OPT_SSH]) {
        q->command = q->command == SIMULATE ? SIMULATE : READ;
    }
    done = options_fit(q);
    if (done == 0 && q->command == READ) {
        q->from.name = argv + optind;
        q->from.names = argc - optind;
        done = sources_fit(&q->from);
        return done ? done + 1 : 0;
    }
    return done == 0 && optind < argc ? word_refuse(argv[optind]) : done;
}

/* What the command line says of nodes. */
static int nodes_take(const struct request *q)
{
    struct job *j = q->j;
    char why[200];

    if (j->nodes == 0) {
        return misuse("--nodes is needed: how many servers there are; or --from, or --ssh", NULL);
    }
    if (q->command == SIMULATE && j->nodes > STEPS_NODES) {
        return misuse("simulate takes up to 128 nodes", NULL);
    }
    job_begin(j);
    if (q->lost != NULL && !job_lost_read(j, q->lost, why, sizeof(why))) {
        fprintf(stderr, "r2_plan: --lost: %s\n", why);
        return EXIT_USAGE + 1;
    }
    if (j->rail_only && j->is_counted) {
        return misuse("--rail-only needs the names of lost NICs, as in --lost 3:n1+n4", q->lost);
    }
    return 0;
}

static int output_end(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "r2_plan: output: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static int plan_write(struct job *j)
{
    static struct answer a;

    if (!answer_find(j, &a)) {
        fputs("r2_plan: the planner refused what the command line allows: a bug\n", stderr);
        return EXIT_FAILURE;
    }
    if (j->json) {
        json_write(stdout, j, &a);
    } else {
        text_write(stdout, j, &a);
    }
    return output_end();
}

static int hosts_plan(const struct request *q)
{
    struct hosts h = {.wanted = q->job};
    int rc = hosts_read(&h, &q->from, q->j);

    rc = rc == 0 ? plan_write(q->j) : rc;
    hosts_free(&h);
    return rc;
}

int main(int argc, char **argv)
{
    static struct job j = {.nics = 8,
                           .gpus = 8,
                           .gbps = 400,
                           .bytes = 1ull << 30,
                           .patterns = TOOL_PATTERNS,
                           .pieces = 8};
    struct request q = {.j = &j, .from = {.tool = "r2_plan"}};
    int skip = argc > 1 && strcmp(argv[1], "simulate") == 0, rc;

    q.command = skip ? SIMULATE : PLAN;
    argv[skip] = argv[0];
    rc = request_read(argc - skip, argv + skip, &q);
    if (rc == 0 && q.command != READ) {
        rc = nodes_take(&q);
    }
    if (rc != 0) {
        return rc == EXIT_SUCCESS + 1 ? output_end() : rc - 1;
    }
    if (q.command == SIMULATE) {
        bool is_right = simulate_write(stdout, &j);

        rc = output_end();
        return is_right ? rc : EXIT_FAILURE;
    }
    return q.command == READ ? hosts_plan(&q) : plan_write(&j);
}
