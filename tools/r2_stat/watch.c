/* What goes on (--watch, --follow), and what a monitor asks (--check, --assert-loaded). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_config.h"
#include "tools/r2_stat/screen.h"

#define FOLLOW_S                                                                                   \
    0.2 /* writes into a mapped file wake nobody, on purpose: the job would pay for it */
#define CHECK_LINE 80 /* node-problem-detector cuts its message there */

static void pause_for(double seconds)
{
    struct timespec ts = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&ts, NULL); /* a signal ends the program anyway */
}

int stat_watch(struct stat_found *f, double seconds, struct stat_more more)
{
    const char *term = getenv("TERM");

    if (isatty(STDOUT_FILENO) && term && term[0] && strcmp(term, "dumb") != 0) {
        return stat_watch_tty(f, seconds, more);
    }
    for (;;) {
        char when[40];
        struct timespec ts;

        stat_take(f);
        clock_gettime(CLOCK_REALTIME, &ts);
        stat_time((uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec, true, when,
                  sizeof(when));
        printf("%s, every %g s\n\n", when, seconds);
        stat_print(f, more);
        stat_free(f);
        putchar('\n');
        if (fflush(stdout) != 0) {
            return 1; /* nobody reads any more */
        }
        pause_for(seconds);
    }
}

/* --- follow --- */

struct known {
    uint64_t unique, no;
    uid_t uid;
    bool seen;
    char host[64], command[32];
    int64_t pid;
};

struct follow {
    struct known k[STAT_PROCS];
    int n;
    bool json, first;
};

static void notice(const struct follow *fo, const struct known *k, const char *what)
{
    if (!fo->json) {
        printf("%s %" PRId64 " (%s) %s\n", k->host, k->pid, k->command, what);
    }
}

static struct known *known_of(struct follow *fo, const struct stat_proc *p)
{
    struct known *k;

    for (int i = 0; i < fo->n; i++) {
        if (fo->k[i].unique == p->unique && fo->k[i].uid == p->uid) {
            return &fo->k[i];
        }
    }
    if (fo->n == STAT_PROCS) {
        return NULL;
    }
    k = &fo->k[fo->n++];
    *k = (struct known){.unique = p->unique, .uid = p->uid, .pid = p->v.who.pid};
    snprintf(k->host, sizeof(k->host), "%s", p->v.who.host);
    snprintf(k->command, sizeof(k->command), "%s", p->v.who.command);
    notice(fo, k, fo->first ? "runs" : "begins");
    return k;
}

static void follow_one(struct follow *fo, const struct stat_proc *p)
{
    struct known *k = known_of(fo, p);

    if (k == NULL) {
        return;
    }
    k->seen = true;
    for (int i = 0; i < p->v.events; i++) {
        const struct r2_stat_event *e = &p->v.event[i];

        if (e->no <= k->no) {
            continue;
        }
        k->no = e->no;
        if (fo->json) {
            stat_json_event(p, e);
        } else {
            stat_print_event(p, e);
        }
    }
}

static void follow_gone(struct follow *fo)
{
    for (int i = 0; i < fo->n;) {
        if (fo->k[i].seen) {
            fo->k[i++].seen = false;
            continue;
        }
        notice(fo, &fo->k[i], "has ended");
        fo->k[i] = fo->k[--fo->n];
    }
}

int stat_follow(struct stat_found *f, bool json)
{
    struct follow *fo = calloc(1, sizeof(*fo));

    if (fo == NULL) {
        fprintf(stderr, "r2_stat: out of memory\n");
        return 1;
    }
    fo->json = json;
    fo->first = true;
    for (;;) {
        stat_take(f);
        if (fo->first && f->procs == 0 && !json) {
            stat_print_none(f);
        }
        for (int i = 0; i < f->procs; i++) {
            follow_one(fo, f->proc[i]);
        }
        follow_gone(fo);
        stat_free(f);
        fo->first = false;
        if (fflush(stdout) != 0) {
            free(fo);
            return 1;
        }
        pause_for(FOLLOW_S);
    }
}

/* --- monitors --- */

#define STALL_LATELY                                                                               \
    600000000000ull /* ns: so long a stall is a problem that monitors are to see                   \
                     */

struct health {
    const struct r2_stat_nic *worst;   /* NIC of all jobs; NULL: all are well */
    const struct r2_stat_nic *theirs;  /* well, but a peer's fault made connections leave it */
    const struct r2_stat_nic *resort;  /* connections have no path but over it; NULL: none */
    uint32_t bad;                      /* NICs */
    const struct r2_stat_nic *stalled; /* stood still lately, without a fault; NULL: none */
};

static struct health health_of(const struct stat_found *f)
{
    static struct stat_nic nic[R2_STAT_NICS];
    struct health h = {0};
    int n = stat_nics(f->proc, f->procs, nic), score = 0;
    uint64_t now = (uint64_t)time(NULL) * 1000000000;

    for (int i = 0; i < n; i++) {
        const struct r2_stat_nic *x = &nic[i].n;
        bool moved = x->moved && !x->drained;
        int s = x->state != R2_STAT_NIC_UP ? 2 + x->state : moved && !x->theirs;

        if (x->last_resort) {
            h.resort = x->last ? x : NULL;
            continue;
        }
        h.bad += s > 0;
        if (s > score) {
            score = s;
            h.worst = x;
        }
        if (x->stall_at && x->stall_at + STALL_LATELY > now &&
            (!h.stalled || x->stall_at > h.stalled->stall_at)) {
            h.stalled = x;
        }
        if (s == 0 && moved) {
            h.theirs = x;
        }
    }
    return h;
}

/* What is wrong with a NIC, in one line. */
static void problem_text(const struct r2_stat_nic *n, uint32_t bad, char *line, size_t room)
{
    const char *why, *word;
    char since[32];
    uint64_t at;

    word = stat_nic_word(n, &why, &at);
    if (stat_is_verdict(why)) {
        snprintf(line, room, "%s", why);
    } else {
        snprintf(line, room, "%.16s/%u %s since %s, %u moved%s: %s", n->device, n->port, word,
                 stat_time(at, false, since, sizeof(since)), n->moved, bad > 1 ? ", more NICs" : "",
                 why);
    }
}

static void stall_line(const struct r2_stat_nic *n, char *line, size_t room)
{
    char at[32], code[R2_STAT_STALL_CODE];
    bool is_told = r2_stat_stall_code(n->blamed, n->blamed_at, n->stall_ns, n->stall_at, code);

    snprintf(line, room, "%.16s/%u stood still for %.2f s until %s, %s%s", n->device, n->port,
             (double)n->stall_ns / 1e9, stat_time(n->stall_at, false, at, sizeof(at)),
             is_told ? "why: " : "without a fault", code);
}

static void well_text(const struct stat_found *f, const struct health *h, char *line, size_t room)
{
    int n = snprintf(line, room, "%d process%s, ", f->procs, f->procs == 1 ? "" : "es");
    const char *why;
    uint64_t at;

    if (h->theirs) {
        stat_nic_word(h->theirs, &why, &at);
        snprintf(line + n, room - (size_t)n, "NICs here are well; %.16s avoided for %s",
                 h->theirs->device, why);
    } else {
        snprintf(line + n, room - (size_t)n, "all NICs carry what they should");
    }
}

int stat_check(const struct stat_found *f, bool is_idle_well)
{
    char line[CHECK_LINE + 1];
    uint64_t giveups = 0;
    struct health h;

    for (int i = 0; i < f->procs; i++) {
        giveups += f->proc[i]->v.who.giveups;
    }
    if (f->procs == 0) {
        puts(f->unread      ? "statistics of jobs here cannot be read"
             : is_idle_well ? "no job here uses the plugin"
                            : "no job here uses the plugin: nothing is known");
        return f->unread || !is_idle_well ? 2 : 0;
    }
    h = health_of(f);
    if (h.resort) {
        snprintf(line, sizeof(line),
                 "%u connections go over TCP, no RDMA path is left to them: checkpoint now",
                 h.resort->last);
    } else if (h.worst) {
        problem_text(h.worst, h.bad, line, sizeof(line));
    } else if (giveups) {
        snprintf(line, sizeof(line), "%" PRIu64 " connections were given up; the NICs are up",
                 giveups);
    } else if (h.stalled) {
        stall_line(h.stalled, line, sizeof(line));
    } else {
        well_text(f, &h, line, sizeof(line));
    }
    puts(line);
    return h.resort || h.worst || giveups || h.stalled;
}

int stat_assert_loaded(const struct stat_found *f)
{
    struct r2_job job;

    r2_config_job(&job, NULL, NULL);
    for (int i = 0; i < f->procs; i++) {
        const struct r2_stat_who *w = &f->proc[i]->v.who;

        if (f->proc[i]->uid == geteuid() &&
            (job.id[0] == '\0' ||
             (strcmp(w->job, job.id) == 0 && strcmp(w->scheduler, job.scheduler) == 0))) {
            printf("loaded: %s, pid %" PRId64 ", nccl-net-r2 %s\n", w->command, w->pid, w->version);
            return 0;
        }
    }
    if (job.id[0]) {
        printf("not loaded: no process of %s job %s uses the plugin on this host\n", job.scheduler,
               job.id);
    } else {
        printf("not loaded: no process of user %s uses the plugin on this host\n",
               stat_user(geteuid()));
    }
    return 1;
}
