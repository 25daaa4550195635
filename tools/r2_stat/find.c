/* Which processes there are, and what belongs together. */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/r2_stat/stat.h"

int stat_dirs_find(struct stat_found *f, const char *asked)
{
    static const char *const usual[STAT_DIRS] = {"/run/nccl-net-r2", "/dev/shm"};
    struct stat st;

    f->dirs = 0;
    if (asked && asked[0]) {
        if (stat(asked, &st) != 0 || !S_ISDIR(st.st_mode)) {
            fprintf(stderr, "r2_stat: %s is no directory\n", asked);
            return -1;
        }
        f->dir[f->dirs++] = asked;
        return 0;
    }
    for (int i = 0; i < STAT_DIRS; i++) {
        if (stat(usual[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            f->dir[f->dirs++] = usual[i];
        }
    }
    if (f->dirs == 0) {
        fprintf(stderr, "r2_stat: there is neither %s nor %s\n", usual[0], usual[1]);
        return -1;
    }
    return 0;
}

static int conn_compare(const void *a, const void *b)
{
    const struct r2_stat_conn *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void take_one(struct stat_found *f, const char *dir, const char *name, uid_t uid,
                     uint64_t unique)
{
    struct stat_proc *p = calloc(1, sizeof(*p));
    char path[1024], why[700] = "out of memory";
    int rc = -1;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (p != NULL) {
        rc = r2_stat_read(path, uid, &p->v, why, sizeof(why));
    }
    if (rc == 1) {
        p->uid = uid;
        p->unique = unique;
        qsort(p->v.conn, (size_t)p->v.conns, sizeof(p->v.conn[0]), conn_compare);
        f->proc[f->procs++] = p;
        return;
    }
    free(p);
    if (rc < 0 && f->unread++ == 0) {
        snprintf(f->why, sizeof(f->why), "%s", why);
    }
}

static int compare(const void *a, const void *b)
{
    const struct stat_proc *x = *(struct stat_proc *const *)a, *y = *(struct stat_proc *const *)b;
    int d;

    if (x->uid != y->uid) {
        return x->uid < y->uid ? -1 : 1;
    }
    if ((d = strcmp(x->v.who.scheduler, y->v.who.scheduler)) != 0 ||
        (d = strcmp(x->v.who.job, y->v.who.job)) != 0) {
        return d;
    }
    if (x->v.who.job[0] == '\0' && (d = strcmp(x->v.who.command, y->v.who.command)) != 0) {
        return d;
    }
    if (x->v.who.start != y->v.who.start) {
        return x->v.who.start < y->v.who.start ? -1 : 1;
    }
    return x->unique < y->unique ? -1 : x->unique > y->unique;
}

void stat_take(struct stat_found *f)
{
    f->procs = f->unread = 0;
    for (int i = 0; i < f->dirs; i++) {
        DIR *d = opendir(f->dir[i]);
        struct dirent *e;

        while (d != NULL && (e = readdir(d)) != NULL && f->procs < STAT_PROCS) {
            uint64_t unique;
            uid_t uid;

            if (r2_stat_name(e->d_name, &uid, &unique) && (geteuid() == 0 || uid == geteuid())) {
                take_one(f, f->dir[i], e->d_name, uid, unique);
            }
        }
        if (d != NULL) {
            closedir(d);
        }
    }
    qsort(f->proc, (size_t)f->procs, sizeof(f->proc[0]), compare);
}

void stat_free(struct stat_found *f)
{
    while (f->procs > 0) {
        struct stat_proc *p = f->proc[--f->procs];

        r2_stat_view_free(&p->v);
        free(p);
    }
}

/* Of one user and job, or, where no scheduler is known, command. */
static bool is_same_job(const struct stat_proc *a, const struct stat_proc *b)
{
    const struct r2_stat_who *x = &a->v.who, *y = &b->v.who;

    if (a->uid != b->uid || strcmp(x->scheduler, y->scheduler) != 0 ||
        strcmp(x->job, y->job) != 0) {
        return false;
    }
    return x->job[0] != '\0' || strcmp(x->command, y->command) == 0;
}

int stat_job_procs(const struct stat_found *f, int i)
{
    int n = 1;

    while (i + n < f->procs && is_same_job(f->proc[i], f->proc[i + n])) {
        n++;
    }
    return n;
}

const char *stat_user(uid_t uid)
{
    static char text[64];
    struct passwd *pw = getpwuid(uid);

    if (pw != NULL) {
        snprintf(text, sizeof(text), "%s", pw->pw_name);
    } else {
        snprintf(text, sizeof(text), "%u", (unsigned)uid);
    }
    return text;
}

/* --- NICs --- */

bool stat_is_verdict(const char *why)
{
    return strncmp(why, "R2-", 3) == 0;
}

static void nic_add(struct stat_nic *to, const struct r2_stat_nic *n)
{
    struct r2_stat_nic sum = to->n;

    if (to->procs++ == 0) {
        to->n = *n;
        return;
    }
    if (stat_nic_badness(n) > stat_nic_badness(&sum) ||
        (stat_nic_badness(n) == stat_nic_badness(&sum) && n->since < sum.since)) {
        to->n = *n; /* for its words */
    } else {
        to->n = sum;
    }
    to->n.sent = sum.sent + n->sent;
    to->n.received = sum.received + n->received;
    to->n.work_requests = sum.work_requests + n->work_requests;
    to->n.lost = sum.lost + n->lost;
    to->n.stalls = sum.stalls + n->stalls;
    to->n.stall_ns = sum.stall_at > n->stall_at ? sum.stall_ns : n->stall_ns;
    to->n.stall_at = sum.stall_at > n->stall_at ? sum.stall_at : n->stall_at;
    to->n.over = sum.over + n->over;
    to->n.primary = sum.primary + n->primary;
    to->n.moved = sum.moved + n->moved;
    to->n.last = sum.last + n->last;
    for (int s = 0; s < R2_SEND_SIZES; s++) {
        to->n.sends[s] = sum.sends[s];
        r2_hist_add(&to->n.sends[s], &n->sends[s]);
    }
}

/* One of last resort is each process's own, and one row for all. */
bool stat_nic_is_same(const struct r2_stat_nic *a, const struct r2_stat_nic *b)
{
    return strcmp(a->name, b->name) == 0 &&
           (a->last_resort ? b->last_resort : a->guid == b->guid && a->port == b->port);
}

uint32_t stat_proc_nics(const struct stat_proc *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->v.who.nics; i++) {
        n += !p->v.nic[i].last_resort;
    }
    return n;
}

int stat_nics(struct stat_proc *const *p, int n, struct stat_nic out[R2_STAT_NICS])
{
    int nics = 0;

    memset(out, 0, R2_STAT_NICS * sizeof(out[0]));
    for (int i = 0; i < n; i++) {
        for (uint32_t k = 0; k < p[i]->v.who.nics; k++) {
            const struct r2_stat_nic *nic = &p[i]->v.nic[k];
            int at = 0;

            if (nic->name[0] == '\0') {
                continue; /* it could not be read */
            }
            while (at < nics && !stat_nic_is_same(&out[at].n, nic)) {
                at++;
            }
            if (at == R2_STAT_NICS) {
                continue;
            }
            nics = at == nics ? nics + 1 : nics;
            nic_add(&out[at], nic);
        }
    }
    return nics;
}
