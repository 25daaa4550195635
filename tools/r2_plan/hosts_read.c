/* Hosts from their statistics, and what keeps them from being one job. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/r2_plan/tool.h"

#define EXIT_USAGE 2

static void view_take(void *arg, int at, const struct r2_stat_view *v)
{
    hosts_view(arg, at, v);
}

static int json_take(void *arg, int at, const char *text)
{
    return hosts_json(arg, at, text);
}

/* What was read is of one job, once: 0, else the exit status. */
static int hosts_fit(const struct hosts *h, const struct sources *from)
{
    switch (h->fault) {
    case HOSTS_WELL:
        return 0;
    case HOSTS_JOBS:
        fprintf(stderr,
                "r2_plan: statistics of job '%s' and of '%s'; --job ID takes those of one\n",
                h->what[0], h->what[1]);
        return EXIT_USAGE;
    case HOSTS_TWICE:
        fprintf(stderr, "r2_plan: host %s is there twice: %s and %s\n", h->what[0],
                from->name[h->where[0]], from->name[h->where[1]]);
        return EXIT_USAGE;
    case HOSTS_MANY:
        fprintf(stderr,
                h->what[1][0] ? "r2_plan: host %s has more than %d NICs\n"
                              : "r2_plan: host %s is one more than %d\n",
                h->what[0], h->what[1][0] ? HOSTS_NICS : PLANNER_NODES);
        return EXIT_FAILURE;
    default:
        fputs("r2_plan: out of memory\n", stderr);
        return EXIT_FAILURE;
    }
}

/* Each source has a process of the job: 0, else the exit status. */
static int sources_all(const struct hosts *h, const struct sources *from)
{
    int rc = 0;

    for (int at = 0; at < from->names; at++) {
        bool has = false;

        for (int i = 0; i < h->hosts && !has; i++) {
            for (int k = 0; k < h->host[i]->processes && !has; k++) {
                has = h->host[i]->process[k].at == at;
            }
        }
        if (!has) {
            fprintf(stderr, "r2_plan: %s: there is no process%s%s\n", from->name[at],
                    h->wanted ? " of job " : " with the plugin", h->wanted ? h->wanted : "");
            rc = EXIT_FAILURE;
        }
    }
    return rc;
}

static int job_fill(const struct hosts *h, struct job *j)
{
    char why[400];

    if (h->hosts < 2) {
        fprintf(stderr, "r2_plan: only host %s was read: an order wants two at least\n",
                h->host[0]->name);
        return EXIT_USAGE;
    }
    if (!hosts_job(h, j, why, sizeof(why))) {
        fprintf(stderr, "r2_plan: %s\n", why);
        return EXIT_FAILURE;
    }
    if (j->rail_only && j->is_counted) {
        fputs(
            "r2_plan: --rail-only: NICs have no rails that are known, or hosts have unlike ones\n",
            stderr);
        return EXIT_FAILURE;
    }
    for (int i = 0; i < h->peers; i++) {
        if (hosts_is_missing(h, i)) {
            fprintf(stderr,
                    "r2_plan: host %s: others know it, nothing was read of it; the plan is "
                    "without it\n",
                    h->peer[i]);
        }
    }
    return 0;
}

int hosts_read(struct hosts *h, const struct sources *from, struct job *j)
{
    const struct sources_take take = {h, view_take, json_take};
    struct sources_unread *unread = calloc((size_t)from->names, sizeof(*unread));
    int rc;

    if (unread == NULL) {
        fputs("r2_plan: out of memory\n", stderr);
        return EXIT_FAILURE;
    }
    rc = sources_read(from, &take, unread) > 0 ? EXIT_FAILURE : 0;
    free(unread);
    rc = rc ? rc : hosts_fit(h, from);
    rc = rc ? rc : sources_all(h, from);
    if (rc == 0) {
        hosts_sort(h);
        rc = job_fill(h, j);
    }
    return rc;
}
