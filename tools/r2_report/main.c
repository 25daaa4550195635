/* r2_report: what happened to a job, as one page. See docs/r2_report.1. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/telemetry/r2_stat.h"
#include "tools/r2_report/page.h"
#include "tools/r2_report/traffic.h"
#include "tools/shared/args.h"

#define LINE       65536
#define EXIT_USAGE 2

static const char usage[] =
    "usage: r2_report RUNDIR... -o FILE.html     what happened to a job: one page, which needs no network\n"
    "  -o, --output FILE    the page; - is the output\n"
    "  --job ID             only events of that job of the scheduler\n"
    "  --version | -h, --help\n"
    "RUNDIR: run directories of the job's hosts, or copies of them; or files of events and of traffic, as r2-epilog keeps them.\n"
    "Exit: 0; 1 nothing could be read, or not written; 2 wrong use.\n";

enum { OPT_JOB = 1, OPT_VERSION };

static const struct option options[] = {
    {"output", required_argument, NULL, 'o'},
    {"job", required_argument, NULL, OPT_JOB},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "r2_report: %s: %s\n", what, why);
    return -1;
}

/* --- what is read --- */

/* 0; 1: the file cannot be read; -1: there is no room for what is in it. Said. */
static int events_read(struct story *s, const char *path, const char *job)
{
    static char line[LINE];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    struct stat st;

    if (f == NULL || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        complain(path, f ? "no regular file" : strerror(errno));
        rc = 1;
    }
    while (rc == 0 && fgets(line, sizeof(line), f)) {
        rc = story_line_add(s, line, job);
        if (rc != 0) {
            complain(path, s->events == STORY_EVENTS ? "more events than the " STORY_EVENTS_TEXT
                                                       " that fit; --job ID takes those of one job"
                                                     : "out of memory");
        }
    }
    if (rc == 0 && ferror(f)) {
        complain(path, strerror(errno));
        rc = 1;
    }
    if (f) {
        fclose(f);
    } else if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* Statistics of a process, alive or copied: traffic of its NICs. What is of another version is left
 * out, and said. */
static void stat_read(struct story *s, const char *path, const char *job)
{
    struct r2_stat_view *v = calloc(1, sizeof(*v));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char why[4600] = "out of memory";
    int rc = v == NULL ? -1 : 0;

    if (fd < 0) {
        snprintf(why, sizeof(why), "%s: %s", path, strerror(errno));
        rc = -1;
    }
    rc = rc == 0 ? r2_stat_read_fd(fd, path, v, why, sizeof(why)) : rc;
    if (rc < 0) {
        fprintf(stderr, "r2_report: %s\n", why);
    }
    for (uint32_t i = 0; rc == 1 && i < v->who.nics && (!job || !strcmp(job, v->who.job)); i++) {
        if (v->nic[i].device[0] && !v->nic[i].last_resort) {
            story_bytes_add(s, v->who.host, v->nic[i].name, v->nic[i].sent, v->nic[i].received);
        }
    }
    if (rc == 1) {
        r2_stat_view_free(v);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(v);
}

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n > k && strcmp(name + n - k, end) == 0;
}

/* Files of the plugin in a run directory, which has those of all users: one that cannot be read is
 * left out. -1: it has no events, or too many; said. */
static int dir_read(struct story *s, struct traffic *t, const char *dir, const char *job)
{
    DIR *d = opendir(dir);
    int files = 0, rc = 0;
    char path[4400];

    if (d == NULL) {
        return complain(dir, strerror(errno));
    }
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (ends_with(e->d_name, ".ndjson") || ends_with(e->d_name, ".ndjson.1")) {
            files++;
            rc = events_read(s, path, job);
            s->unread += rc > 0;
            rc = rc > 0 ? 0 : rc;
        } else if (strncmp(e->d_name, "nccl-net-r2.", 12) == 0 && ends_with(e->d_name, ".stat")) {
            stat_read(s, path, job);
        } else if (ends_with(e->d_name, ".traffic") && traffic_add(t, path, job) < 0) {
            rc = complain(path, strerror(ENOMEM));
        }
    }
    closedir(d);
    return rc == 0 && files == 0 ? complain(dir, "there are no events in it (*.ndjson)") : rc;
}

static int source_read(struct story *s, struct traffic *t, const char *name, const char *job)
{
    struct stat st;

    if (stat(name, &st) != 0) {
        return complain(name, strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        return dir_read(s, t, name, job);
    }
    return -(
        (ends_with(name, ".traffic") ? traffic_add(t, name, job) : events_read(s, name, job)) != 0);
}

/* --- what is written --- */

static int page_put(const struct story *s, const char *file, int n, char *const *dirs)
{
    FILE *f = strcmp(file, "-") == 0 ? stdout : fopen(file, "we");
    int bad;

    if (f == NULL) {
        return complain(file, strerror(errno));
    }
    page_write(f, s, n, dirs);
    bad = ferror(f);
    bad |= f == stdout ? fflush(f) != 0 : fclose(f) != 0;
    return bad ? complain(file, strerror(errno ? errno : EIO)) : 0;
}

static int report(const char *file, const char *job, int n, char *const *dirs)
{
    struct traffic t = {0};
    struct story s = {0};
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        rc = source_read(&s, &t, dirs[i], job);
    }
    if (rc == 0 && s.events == 0) {
        fprintf(stderr, "r2_report: %s%s%s: nothing to report\n",
                job ? "there is no event of job " : "there is no event", job ? job : "",
                s.wrong ? ", and lines that are none" : "");
        rc = -1;
    }
    if (rc == 0 && (traffic_tell(&t, &s) != 0 || story_tell(&s) != 0)) {
        rc = complain("events", "out of memory");
    }
    rc = rc == 0 ? page_put(&s, file, n, dirs) : rc;
    traffic_free(&t);
    story_free(&s);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const char *file = NULL, *job = NULL;
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":ho:", options, NULL)) != -1) {
        switch (opt) {
        case 'o':
            file = optarg;
            break;
        case OPT_JOB:
            job = optarg;
            break;
        case OPT_VERSION:
            printf("r2_report %s (%s)\n", R2_VERSION, R2_GIT);
            return EXIT_SUCCESS;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            return args_refuse("r2_report", opt, argv, options);
        }
    }
    if (optind == argc) {
        return args_misuse("r2_report", "which run directories, or files of events?");
    }
    if (file == NULL || file[0] == '\0') {
        return args_misuse("r2_report", "-o FILE is needed: where the page goes, - is the output");
    }
    return report(file, job, argc - optind, argv + optind);
}
