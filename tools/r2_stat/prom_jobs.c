/* r2_stat --prom: whose jobs they are, and which verdicts their processes have reached. The labels
 * of both are what an alert is told apart by. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/r2_stat/prom.h"

/* --- jobs --- */

/* "NAME{scheduler="..",...} ". The command tells those apart that no scheduler has started. */
static void of_job(FILE *f, const char *name, const struct stat_proc *p)
{
    const struct r2_stat_who *w = &p->v.who;

    fputs(name, f);
    prom_label(f, "{", "scheduler", w->scheduler);
    prom_label(f, ",", "job_id", w->job);
    prom_label(f, ",", "user", stat_user(p->uid));
    prom_label(f, ",", "command", w->command);
    fputs("} ", f);
}

static void job_capacity(FILE *f, const struct stat_found *found, int from, int to)
{
    uint64_t all = 0, up = 0;

    for (int i = from; i < to; i++) {
        uint32_t nics = stat_proc_nics(found->proc[i]);
        uint32_t carry = found->proc[i]->v.who.capacity_up;

        all += nics;
        up += carry < nics ? carry : nics;
    }
    of_job(f, "r2_job_capacity_ratio", found->proc[from]);
    fprintf(f, "%.6f\n", all ? (double)up / (double)all : 0.0);
}

void prom_jobs(FILE *f, const struct stat_found *found)
{
    int jobs = 0;

    for (int i = 0; i < found->procs; i += stat_job_procs(found, i)) {
        jobs++;
    }
    prom_head(f, "r2_jobs", "gauge", "Jobs of this host that use the plugin.");
    fprintf(f, "r2_jobs %d\n", jobs);
    if (jobs == 0) {
        return;
    }
    prom_head(f, "r2_job_info", "gauge", "Which job it is.");
    for (int i = 0; i < found->procs; i += stat_job_procs(found, i)) {
        of_job(f, "r2_job_info", found->proc[i]);
        fputs("1\n", f);
    }
    prom_head(f, "r2_job_capacity_ratio", "gauge",
              "NICs that carry, or could, of those that the job's processes here have.");
    for (int i = 0; i < found->procs; i += stat_job_procs(found, i)) {
        job_capacity(f, found, i, i + stat_job_procs(found, i));
    }
}

/* --- verdicts --- */

const struct probe_code_info *prom_code(const char *text)
{
    for (int c = PROBE_CODE_NONE + 1; c < PROBE_CODES; c++) {
        const struct probe_code_info *info = probe_code_info((enum probe_code)c);
        size_t n = strlen(info->name);

        if (strncmp(text, info->name, n) == 0 && (text[n] == ' ' || text[n] == '\0')) {
            return info;
        }
    }
    return NULL;
}

/* The newest verdict with @code; NULL: none. */
static const struct r2_stat_event *newest(const struct stat_found *found, const char *code)
{
    const struct r2_stat_event *best = NULL;

    for (int i = 0; i < found->procs; i++) {
        const struct r2_stat_view *v = &found->proc[i]->v;

        for (int k = 0; k < v->events; k++) {
            const struct r2_stat_event *e = &v->event[k];

            if (e->kind == R2_EVENT_VERDICT && strcmp(e->code, code) == 0 &&
                (best == NULL || e->when > best->when)) {
                best = e;
            }
        }
    }
    return best;
}

void prom_verdicts(FILE *f, const struct stat_found *found)
{
    int shown = 0;

    for (int c = PROBE_CODE_NONE + 1; c < PROBE_CODES; c++) {
        const struct probe_code_info *info = probe_code_info((enum probe_code)c);
        const struct r2_stat_event *e = newest(found, info->name);

        if (e == NULL || strncmp(e->cause, "goes-on", 7) == 0) {
            continue; /* what held the job up does not any more */
        }
        if (shown++ == 0) {
            prom_head(f, "r2_verdict_timestamp_seconds", "gauge",
                      "When a process that lives reached its newest verdict with this code.");
        }
        fputs("r2_verdict_timestamp_seconds", f);
        prom_label(f, "{", "code", info->name);
        prom_label(f, ",", "blame", info->blame);
        prom_label(f, ",", "action", info->action);
        fprintf(f, "} %" PRIu64 ".%09u\n", e->when / NS, (unsigned)(e->when % NS));
    }
}
