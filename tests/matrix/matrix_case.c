/* One case: a job that is well, a fault, what everybody says, the end of the fault, a job that is
 * well. */
#include "tests/matrix/matrix.h"

#include <signal.h>
#include <string.h>

#define SETTLE (250 * MX_MS) /* what others say a little later */
#define UNTOLD                                                                                     \
    (5000 * MX_MS)                  /* nobody can tell: how long it is listened for a wrong blame, \
                                       at least */
#define BACK_LIMIT  (60000 * MX_MS) /* these two are bounds against hangs */
#define CLEAR_LIMIT (60000 * MX_MS)

struct run {
    struct mx_case c;
    struct mx_job *j;
    struct mx_tally t;
    uint64_t swallowed; /* SPINE: before the fault */
};

static void on_verdict(void *arg, int proc, const struct mx_verdict *v)
{
    struct run *r = arg;

    mx_tally_add(&r->t, &r->c, proc, v);
}

/* Whether this process is one that can speak: it lives, and is not the one that is stopped. */
static int speaks(const struct run *r, int i)
{
    return i != r->c.host || (r->c.kind != MX_KILLED && r->c.kind != MX_STOPPED);
}

static int inject(struct run *r)
{
    pid_t pid = r->j->proc[r->c.host].pid;
    char text[48];

    for (int i = 0; mx_case_fault(&r->c, i, text); i++) {
        if (mx_job_fault(r->j, text) != 0) {
            return -1;
        }
    }
    if (r->c.kind != MX_KILLED && r->c.kind != MX_STOPPED) {
        return 0;
    }
    r->j->dying = r->c.kind == MX_KILLED;
    return pid > 0 && kill(pid, r->j->dying ? SIGKILL : SIGSTOP) == 0
               ? 0
               : mx_job_fail(r->j, "h%d has no process", r->c.host);
}

/* Of a way only those say something who take it: no health report goes round, which nobody has a
 * use for. */
static int is_known_to_one(const struct run *r)
{
    for (int i = 0; i < r->c.hosts; i++) {
        if (r->j->proc[i].informed_at) {
            return 1;
        }
    }
    return 0;
}

static int all_informed(const struct run *r)
{
    if (r->c.kind == MX_SPINE) {
        return is_known_to_one(r);
    }
    for (int i = 0; i < r->c.hosts; i++) {
        if (speaks(r, i) && r->j->proc[i].pid > 0 && r->j->proc[i].informed_at == 0) {
            return 0;
        }
    }
    return 1;
}

/* Somebody has given a verdict, whichever; a way that swallows nothing is nobody's to speak of. */
static int is_spoken_of(const struct run *r)
{
    int spoken = r->c.kind == MX_SPINE;

    for (int i = 0; i < r->c.hosts; i++) {
        for (int b = 0; b < MX_BLAMES; b++) {
            spoken |= r->t.said[i][b] != 0;
        }
    }
    return spoken;
}

static int can_be_told(struct run *r)
{
    r->c.met = r->c.kind == MX_SPINE && mx_job_swallowed(r->j, r->c.nic, r->c.spine) > r->swallowed;
    return mx_case_can_tell(&r->c);
}

/* Until everybody knows, and a little longer; a case without a fault for its whole time. What a
 * silent way swallows in that longer time has nobody left to listen: it is asked before. */
static void listen_until_known(struct run *r, uint64_t from)
{
    const struct mx_opts *o = r->j->o;
    int calm = mx_case_blame(&r->c) == MX_NOTHING;
    uint64_t end = from + (uint64_t)(calm ? o->window_ms : o->limit_ms) * MX_MS;

    while (mx_now() < end) {
        int can = can_be_told(r);

        if (!calm && (all_informed(r) || (!can && is_spoken_of(r) && mx_now() >= from + UNTOLD))) {
            break;
        }
        mx_procs_read(r->j, 10 * MX_MS);
    }
    end = mx_now() + SETTLE;
    while (!calm && mx_now() < end) {
        mx_procs_read(r->j, 10 * MX_MS);
    }
}

static void sum_up(const struct run *r, uint64_t from, struct mx_sums *s)
{
    uint64_t first = 0, last = 0;
    unsigned can = 0, informed = 0;

    for (int i = 0; i < r->c.hosts; i++) {
        const struct mx_proc *p = &r->j->proc[i];

        if (!speaks(r, i)) {
            continue;
        }
        can |= 1u << i;
        informed |= (unsigned)(p->informed_at != 0) << i;
        if (p->verdict_at && (first == 0 || p->verdict_at < first)) {
            first = p->verdict_at;
        }
        last = p->informed_at > last ? p->informed_at : last;
    }
    mx_tally_sum(&r->t, &r->c, can, informed, first ? first - from : 0, last ? last - from : 0, s);
}

/* The fault ends; dead processes and contexts are replaced. What is said meanwhile still belongs to
 * the case. */
static int mend(struct run *r, struct mx_sums *s)
{
    struct mx_job *j = r->j;

    if (r->c.kind == MX_STOPPED && j->proc[r->c.host].pid > 0) {
        kill(j->proc[r->c.host].pid, SIGCONT);
    }
    if (mx_job_fault(j, "*:* restore") != 0) {
        return -1;
    }
    if (mx_case_ends_job(&r->c)) {
        mx_job_stop(j);
        return mx_job_start(j);
    }
    if (mx_job_well(j, BACK_LIMIT) == 0 && mx_job_cleared(j, CLEAR_LIMIT) == 0) {
        return 0;
    }
    s->stayed[r->c.kind]++;
    if (mx_still_blamed(j)) {
        printf("%s stayed blamed\n", mx_still_blamed(j));
    }
    mx_job_stop(j);
    return mx_job_start(j);
}

int mx_case_run(struct mx_job *j, uint64_t seed, struct mx_sums *s)
{
    struct run r = {.j = j};
    struct mx_sums before = *s;
    const char *worse;
    enum mx_kind k;
    uint64_t from;
    char name[64];
    int rc;

    mx_case_draw(&r.c, seed, j->o->hosts, j->o->nics, j->o->spines);
    r.c.crossrail = j->o->crossrail;
    mx_case_name(&r.c, name, sizeof(name));
    k = r.c.kind;
    j->said = on_verdict;
    j->arg = &r;
    for (int i = 0; i < r.c.hosts; i++) {
        j->proc[i].verdict_at = j->proc[i].informed_at = 0;
        j->proc[i].verdicts = j->proc[i].good_reports = 0;
    }
    if (j->o->verbose) {
        printf("seed %llu: %s\n", (unsigned long long)seed, name);
    }
    r.swallowed = r.c.kind == MX_SPINE ? mx_job_swallowed(j, r.c.nic, r.c.spine) : 0;
    from = mx_now();
    if (inject(&r) != 0) {
        return -1;
    }
    listen_until_known(&r, from);
    sum_up(&r, from, s);
    memset(&r.t, 0, sizeof(r.t)); /* of what is said while it is mended only wrong blames count */
    rc = mend(&r, s);
    s->wrong[k] += (uint64_t)r.t.wrong;
    s->wrong_place[k] += (uint64_t)r.t.wrong_place;
    worse = mx_sums_worse(s, &before, k);
    if (worse) {
        printf("FAILED seed %llu: %s: %s: %s/process*.log from %.6f on\n", (unsigned long long)seed,
               name, worse, j->o->dir, (double)from / 1e9);
    }
    j->said = NULL;
    return j->why[0] ? -1 : rc;
}
