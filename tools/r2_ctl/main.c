/* r2_ctl: what an administrator says about NICs to all jobs of this host. See docs/r2_ctl.1. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plugin/base/r2_rundir.h"
#include "tools/r2_ctl/ctl.h"
#include "tools/shared/args.h"

static const char usage[] =
    "usage: r2_ctl drain [HOST] NIC...     keep NICs of this host free of work, in every job, running or to come\n"
    "       r2_ctl undrain [HOST] NIC...   use them again; --all instead of names: all\n"
    "       r2_ctl failback [HOST] NIC...  let what failed there so far return, where NCCL_R2_FAILBACK=manual; all instead of names: all NICs\n"
    "       r2_ctl rehearse [HOST] NIC...  let them fail for a while in every running job, though nothing is wrong with them\n"
    "       r2_ctl status                  NICs, drains, and who uses what on this host\n"
    "       r2_ctl --version | -h, --help\n"
    "  --wait               drain: return when no process has a connection over them any more\n"
    "  --limit SECONDS      ... or after this (60), with exit status 1 and who still does\n"
    "  --for SECONDS        rehearse: for how long (10), at most 3600; 0: it ends\n"
    "  --why TEXT           drain, failback: kept beside the name\n"
    "  --force              drain, failback: a NIC that neither this host shows nor a running job has\n"
    "  --json               status: as one JSON object\n"
    "  --run-dir DIR        the run directory; else $NCCL_R2_RUN_DIR, /run/nccl-net-r2, /dev/shm\n"
    "A NIC is named as in the jobs' logs: mlx5_3, or mlx5_3:2 for a second port. Root commands all users' jobs, others their own.\n"
    "HOST, if given, must be this host. Exit: 0; 1 not done; 2 wrong use.\n";

enum {
    OPT_WAIT = 1,
    OPT_LIMIT,
    OPT_FOR,
    OPT_WHY,
    OPT_JSON,
    OPT_DIR,
    OPT_ALL,
    OPT_FORCE,
    OPT_VERSION,
    OPT_HELP
};

static const struct option options[] = {
    {"wait", no_argument, NULL, OPT_WAIT},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"for", required_argument, NULL, OPT_FOR},
    {"why", required_argument, NULL, OPT_WHY},
    {"json", no_argument, NULL, OPT_JSON},
    {"run-dir", required_argument, NULL, OPT_DIR},
    {"all", no_argument, NULL, OPT_ALL},
    {"force", no_argument, NULL, OPT_FORCE},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

int ctl_fail(const char *fmt, ...)
{
    va_list ap;

    fputs("r2_ctl: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return 1;
}

static int misuse(const char *what)
{
    return args_misuse("r2_ctl", "%s", what);
}

/* --- host registries --- */

void ctl_registries_open(struct ctl *c)
{
    DIR *d = opendir(c->dir);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL && c->registries < CTL_REGISTRIES) {
        unsigned uid;
        char why[600];
        int end = 0;

        if (sscanf(e->d_name, "nccl-net-r2.%u.board%n", &uid, &end) != 1 || end == 0 ||
            e->d_name[end] != '\0' || (geteuid() != 0 && uid != geteuid())) {
            continue;
        }
        c->registry[c->registries] = r2_host_registry_attach(c->dir, uid, why, sizeof(why));
        if (c->registry[c->registries] == NULL) {
            ctl_fail("%s", why);
            continue;
        }
        c->registry_uid[c->registries++] = uid;
    }
    if (d != NULL) {
        closedir(d);
    }
}

void ctl_registries_close(struct ctl *c)
{
    while (c->registries > 0) {
        r2_host_registry_close(c->registry[--c->registries]);
    }
}

void ctl_rows_walk(const struct ctl *c, void (*row)(void *arg, const struct ctl_row *r), void *arg)
{
    for (int b = 0; b < c->registries; b++) {
        for (int i = 0; i < R2_HOST_REGISTRY_SLOTS; i++) {
            struct ctl_row r = {.uid = c->registry_uid[b]};

            if (!r2_host_registry_slot(c->registry[b], i, &r.who)) {
                continue;
            }
            for (int k = 0; k < R2_HOST_REGISTRY_NICS; k++) {
                if (r2_host_registry_slot_nic(c->registry[b], i, k, &r.nic)) {
                    row(arg, &r);
                }
            }
        }
    }
}

/* --- command line --- */

/* Which commands an option is for; of the others it would change nothing, unseen. --force and
 * --run-dir are for all. */
static const struct {
    int option;
    const char *name, *commands[2];
} fits[] = {
    {OPT_WAIT, "wait", {"drain"}},
    {OPT_LIMIT, "limit", {"drain"}},
    {OPT_WHY, "why", {"drain", "failback"}},
    {OPT_JSON, "json", {"status"}},
};

/* 0, or the exit status of wrong use: the options in @given, bits by number, beside @command. */
static int options_fit(unsigned given, const char *command)
{
    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        const char *one = fits[i].commands[0], *two = fits[i].commands[1];

        if ((given & 1u << fits[i].option) && strcmp(command, one) != 0 &&
            (two == NULL || strcmp(command, two) != 0)) {
            return args_misuse("r2_ctl", "--%s goes with %s%s%s, not with %s", fits[i].name, one,
                               two ? " and " : "", two ? two : "", command);
        }
    }
    if ((given & 1u << OPT_LIMIT) && !(given & 1u << OPT_WAIT)) {
        return args_misuse("r2_ctl", "--limit goes with --wait");
    }
    return 0;
}

static bool is_this_host(const char *name)
{
    char host[256] = "";
    const char *id = getenv("NCCL_HOSTID"); /* as the jobs call it */
    size_t n;

    if (id && strcmp(name, id) == 0) {
        return true;
    }
    gethostname(host, sizeof(host) - 1);
    n = strcspn(host, ".");
    return strcasecmp(name, host) == 0 || (strlen(name) == n && strncasecmp(name, host, n) == 0) ||
           strcasecmp(name, "localhost") == 0;
}

/* A job here has it, or the kernel. */
static bool is_nic(const struct ctl *c, const char *name)
{
    return ctl_name_known(c, name) || ctl_nic_here(name);
}

/* Passes over the name of this host; anything else that is no NIC is an error. */
static int host_skip(const struct ctl *c, int *n, char ***names)
{
    if (*n > 1 && is_this_host((*names)[0])) {
        ++*names;
        --*n;
    } else if (*n > 1 && !is_nic(c, (*names)[0])) {
        return ctl_fail(
            "%s is neither this host nor a NIC here; r2_ctl works on the host that it runs on",
            (*names)[0]);
    }
    return 0;
}

static int failback_run(struct ctl *c, bool all, int n, char **names)
{
    if (all) {
        return misuse("failback takes names, or the word all, not --all");
    }
    if (host_skip(c, &n, &names) != 0) {
        return 1;
    }
    if (n == 0) {
        return misuse("which NIC?");
    }
    return ctl_failback(c, n == 1 && strcmp(names[0], "all") == 0 ? 0 : n, names);
}

static int rehearse_run(struct ctl *c, bool all, int n, char **names)
{
    if (all || c->force) {
        return misuse("rehearse takes names and --for alone");
    }
    if (host_skip(c, &n, &names) != 0) {
        return 1;
    }
    return n == 0 ? misuse("which NIC?") : ctl_rehearse(c, n, names);
}

static int names_run(struct ctl *c, bool add, bool all, int n, char **names)
{
    int rc;

    if (host_skip(c, &n, &names) != 0) {
        return 1;
    }
    if (all && (n > 0 || add)) {
        return misuse("--all goes with undrain and without names");
    }
    if (n == 0 && !all) {
        return misuse("which NIC?");
    }
    rc = ctl_drain_change(c, add, n, names);
    return rc == 0 && add && c->wait ? ctl_drain_wait(c, n, names) : rc;
}

static int command_unknown(const char *word)
{
    static const char *const commands[] = {"drain",    "undrain", "failback",
                                           "rehearse", "status",  NULL};
    const char *near = args_near(word, commands);

    return near ? args_misuse("r2_ctl", "unknown command '%s': did you mean %s?", word, near)
                : args_misuse("r2_ctl",
                              "unknown command '%s': drain, undrain, failback, rehearse or status",
                              word);
}

static bool is_command(const char *word)
{
    return strcmp(word, "drain") == 0 || strcmp(word, "undrain") == 0 ||
           strcmp(word, "failback") == 0 || strcmp(word, "rehearse") == 0 ||
           strcmp(word, "status") == 0;
}

/* The run directory. 0, or the exit status after a message, which names what said so. */
static int dir_find(struct ctl *c)
{
    static const char variable[] = "NCCL_R2_RUN_DIR=";
    const char *asked = c->dir;
    size_t n = sizeof(variable) - 1;
    char why[600];

    if (asked && asked[0] == '\0') {
        return misuse("--run-dir needs a directory");
    }
    c->dir = r2_rundir_find(asked ? asked : getenv("NCCL_R2_RUN_DIR"), why, sizeof(why));
    if (c->dir == NULL) {
        return asked && strncmp(why, variable, n) == 0 ? ctl_fail("--run-dir %s", why + n)
                                                       : ctl_fail("%s", why);
    }
    return 0;
}

static int command_run(struct ctl *c, bool all, unsigned given, int n, char **words)
{
    int rc;

    if (n > 0 && c->for_ms >= 0 && strcmp(words[0], "rehearse") != 0) {
        return misuse("--for goes with rehearse");
    }
    if (n == 0) {
        return misuse("what is to be done? drain, undrain, failback, rehearse or status");
    }
    if (!is_command(words[0])) {
        return command_unknown(words[0]);
    }
    if ((rc = options_fit(given, words[0])) != 0 || (rc = dir_find(c)) != 0) {
        return rc;
    }
    ctl_registries_open(c);
    if (strcmp(words[0], "drain") == 0 || strcmp(words[0], "undrain") == 0) {
        rc = names_run(c, words[0][0] == 'd', all, n - 1, words + 1);
    } else if (strcmp(words[0], "failback") == 0) {
        rc = failback_run(c, all, n - 1, words + 1);
    } else if (strcmp(words[0], "rehearse") == 0) {
        rc = rehearse_run(c, all, n - 1, words + 1);
    } else {
        rc = n > 1 ? args_misuse("r2_ctl", "status takes no names, not '%s'", words[1])
                   : ctl_status(c);
    }
    ctl_registries_close(c);
    return rc;
}

/* "10", "2.5s" or "500ms" */
static int for_parse(const char *text, int *ms)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || !(v >= 0)) {
        return -1;
    }
    if (strcmp(end, "ms") != 0) {
        v *= 1000;
        if (*end != '\0' && strcmp(end, "s") != 0) {
            return -1;
        }
    }
    if (v > R2_RUNDIR_REHEARSE_MS || (v > 0 && v < 1)) {
        return -1;
    }
    *ms = (int)v;
    return 0;
}

int main(int argc, char **argv)
{
    struct ctl c = {.limit_s = 60, .why = "", .for_ms = -1};
    unsigned given = 0;
    bool all = false;
    char *end;
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        given |= opt < 32 ? 1u << opt : 0;
        switch (opt) {
        case OPT_WAIT:
            c.wait = true;
            break;
        case OPT_LIMIT:
            c.limit_s = strtod(optarg, &end);
            if (end == optarg || *end != '\0' || !(c.limit_s >= 0 && c.limit_s <= 1e6)) {
                return args_misuse("r2_ctl", "--limit takes seconds, 0 to 1000000, not '%s'",
                                   optarg);
            }
            break;
        case OPT_FOR:
            if (for_parse(optarg, &c.for_ms) != 0) {
                return args_misuse("r2_ctl",
                                   "--for takes seconds, 0 to 3600, as 10, 2.5s or 500ms, not '%s'",
                                   optarg);
            }
            break;
        case OPT_WHY:
            c.why = optarg;
            break;
        case OPT_JSON:
            c.json = true;
            break;
        case OPT_DIR:
            c.dir = optarg;
            break;
        case OPT_ALL:
            all = true;
            break;
        case OPT_FORCE:
            c.force = true;
            break;
        case OPT_VERSION:
            printf("r2_ctl %s (%s)\n", R2_VERSION, R2_GIT);
            return 0;
        case OPT_HELP:
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            return args_refuse("r2_ctl", opt, argv, options);
        }
    }
    return command_run(&c, all, given, argc - optind, argv + optind);
}
