/*
 * r2_config: the options of libnccl-net-r2.so, from the rows that the plugin itself reads, and
 * whether it works here. See docs/r2_config.1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/r2_config/check.h"
#include "tools/r2_config/doctor.h"
#include "tools/r2_config/elf.h"
#include "tools/r2_config/show.h"
#include "tools/shared/args.h"

#define EXIT_USAGE 2

static const char usage[] =
    "usage: r2_config                  every option with its value here and where that comes from\n"
    "       r2_config --diff           what is not at its default\n"
    "       r2_config --json           everything, as one JSON object\n"
    "       r2_config --explain NAME   all about one option: what it may be, the value of each source, and which one wins\n"
    "       r2_config --check FILE...  nccl.conf, lock.conf, profiles: what would be taken, what is wrong\n"
    "       r2_config --doctor         why the plugin does not load here, or does not see a NIC\n"
    "       r2_config --markdown       the table of docs/options.md\n"
    "       r2_config --man            the list of options of nccl-net-r2(7)\n"
    "       r2_config --version [FILE...]  version: of this program, or of plugins, of which no code is run\n"
    "       r2_config -h, --help       this\n"
    "  --root DIR                      look for /etc/nccl.conf, lock.conf, /sys, /dev and /run below DIR: to try them out\n"
    "  --limit SECONDS                 with --doctor: of one check (60)\n"
    "Exit: 0; 1 an option that would end the job, an error in a file, a check that fails; 2 wrong use.\n";

enum command {
    COMMAND_ALL,
    COMMAND_DIFF,
    COMMAND_JSON,
    COMMAND_EXPLAIN,
    COMMAND_CHECK,
    COMMAND_DOCTOR,
    COMMAND_MARKDOWN,
    COMMAND_MAN,
    COMMAND_VERSION,
    COMMAND_HELP,
    COMMAND_ROOT, /* these are options of the others */
    COMMAND_LIMIT,
};

static const struct option options[] = {
    {"diff", no_argument, NULL, COMMAND_DIFF},
    {"json", no_argument, NULL, COMMAND_JSON},
    {"explain", required_argument, NULL, COMMAND_EXPLAIN},
    {"check", required_argument, NULL, COMMAND_CHECK},
    {"doctor", no_argument, NULL, COMMAND_DOCTOR},
    {"markdown", no_argument, NULL, COMMAND_MARKDOWN},
    {"man", no_argument, NULL, COMMAND_MAN},
    {"version", no_argument, NULL, COMMAND_VERSION},
    {"help", no_argument, NULL, COMMAND_HELP},
    {"root", required_argument, NULL, COMMAND_ROOT},
    {"limit", required_argument, NULL, COMMAND_LIMIT},
    {NULL, 0, NULL, 0},
};

struct request {
    enum command command;
    const char *argument; /* of --explain, --check */
    const char *root;
    int limit_s;
    char **rest; /* more files, after the options */
};

static int misuse(const char *what)
{
    return args_misuse("r2_config", "%s", what);
}

static int seconds_parse(const char *text)
{
    char *end;
    long v = strtol(text, &end, 10);

    return *text && *end == '\0' && v >= 1 && v <= 3600 ? (int)v : -1;
}

/* 0, or the exit status of wrong use. */
static int request_parse(struct request *r, int argc, char **argv)
{
    int c, commands = 0, limited = 0;
    struct stat root;

    memset(r, 0, sizeof(*r));
    r->root = "";
    r->limit_s = DOCTOR_LIMIT_S;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (c == '?' || c == ':') {
            return args_refuse("r2_config", c, argv, options);
        }
        if (c == COMMAND_ROOT) {
            r->root = optarg;
            continue;
        }
        if (c == COMMAND_LIMIT) {
            limited = 1;
            r->limit_s = seconds_parse(optarg);
            if (r->limit_s < 0) {
                return args_misuse("r2_config", "--limit: expected 1 to 3600 seconds, not '%s'",
                                   optarg);
            }
            continue;
        }
        r->command = c == 'h' ? COMMAND_HELP : (enum command)c;
        r->argument = optarg;
        commands++;
    }
    r->rest = argv + optind;
    if (commands > 1) {
        return misuse("one command at a time");
    }
    if (limited && r->command != COMMAND_DOCTOR) {
        return misuse("--limit goes with --doctor");
    }
    if (r->root[0] && (stat(r->root, &root) != 0 || !S_ISDIR(root.st_mode))) {
        return args_misuse("r2_config", "--root: there is no such directory: %s", r->root);
    }
    if (*r->rest && r->command != COMMAND_CHECK && r->command != COMMAND_EXPLAIN &&
        r->command != COMMAND_VERSION) {
        return args_misuse("r2_config", "'%s' is one argument too many", *r->rest);
    }
    return 0;
}

static int files_check(const struct request *r)
{
    int rc = check_print(r->argument);

    for (char **file = r->rest; *file; file++) {
        rc |= check_print(*file);
    }
    return rc;
}

static int names_explain(const struct values *v, const struct request *r)
{
    int rc = show_explain(v, r->argument) == 0 ? 0 : EXIT_USAGE;

    for (char **name = r->rest; *name; name++) {
        rc |= show_explain(v, *name) == 0 ? 0 : EXIT_USAGE;
    }
    return rc;
}

/* What the plugin calls itself in its first line at INFO. Programs of ours have that text without
 * the versions of the tables. */
static int file_version(const char *path)
{
    struct elf_info elf;
    char why[256];

    if (elf_read(path, &elf, why, sizeof(why)) != 0) {
        fprintf(stderr, "r2_config: %s: %s\n", path, why);
        return 1;
    }
    if (strstr(elf.ident, " abi=") == NULL) {
        fprintf(stderr, "r2_config: %s: no build of libnccl-net-r2.so\n", path);
        return 1;
    }
    printf("%s: %s\n", path, elf.ident);
    return 0;
}

static int versions_print(const struct request *r)
{
    int rc = 0;

    if (*r->rest == NULL) {
        puts("r2_config of nccl-net-r2 " R2_VERSION " " R2_GIT);
    }
    for (char **file = r->rest; *file; file++) {
        rc |= file_version(*file);
    }
    return rc;
}

/* What needs the values that hold here. */
static int values_show(const struct request *r)
{
    struct values *v = values_read(r->root);
    int rc = 0;

    if (v == NULL) {
        fputs("r2_config: out of memory\n", stderr);
        return 1;
    }
    if (r->command == COMMAND_JSON) {
        show_json(v);
    } else if (r->command == COMMAND_DIFF) {
        show_diff(v);
    } else if (r->command == COMMAND_EXPLAIN) {
        rc = names_explain(v, r);
    } else if (r->command == COMMAND_DOCTOR) {
        rc = doctor_run(v, r->root, r->limit_s);
    } else {
        show_all(v);
    }
    if (r->command != COMMAND_DOCTOR) {
        for (int i = 0; i < v->warns; i++) {
            fprintf(stderr, "%s\n", v->warn[i]);
        }
        if (rc == 0 && v->cfg.error[0]) {
            fprintf(stderr, "r2_config: the plugin would end the job: %s\n", v->cfg.error);
            rc = 1;
        }
    }
    values_free(v);
    return rc;
}

int main(int argc, char **argv)
{
    struct request r;
    int rc = request_parse(&r, argc, argv);

    if (rc != 0) {
        return rc;
    }
    switch (r.command) {
    case COMMAND_CHECK:
        return files_check(&r);
    case COMMAND_MARKDOWN:
        show_markdown();
        return 0;
    case COMMAND_MAN:
        show_man();
        return 0;
    case COMMAND_VERSION:
        return versions_print(&r);
    case COMMAND_HELP:
        fputs(usage, stdout);
        return 0;
    default:
        return values_show(&r);
    }
}
