#include "r2_nic_history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/r2_fnv.h"

#define HEAD "r2.nic-history/1\n"
#define END  "end "
#define LINE 128 /* bytes */

const char *r2_nic_verdict_name(unsigned verdict)
{
    static const char *const names[R2_NIC_VERDICTS] = {"good", "watch", "drain"};

    return verdict < R2_NIC_VERDICTS ? names[verdict] : "?";
}

/* --- facts --- */

static uint32_t last_hour(const struct r2_nic_past *p)
{
    return p->hours ? p->hour[p->hours - 1].hour : 0;
}

static struct r2_nic_past *nic_of(struct r2_nic_history *h, uint64_t guid, uint32_t port,
                                  const char *name)
{
    struct r2_nic_past *oldest = &h->nic[0];

    for (uint32_t i = 0; i < h->nics; i++) {
        if (h->nic[i].guid == guid && h->nic[i].port == port) {
            return &h->nic[i];
        }
        oldest = last_hour(&h->nic[i]) < last_hour(oldest) ? &h->nic[i] : oldest;
    }
    if (h->nics < R2_NIC_HISTORY_NICS) {
        oldest = &h->nic[h->nics++];
    }
    *oldest = (struct r2_nic_past){.guid = guid, .port = port};
    snprintf(oldest->name, sizeof(oldest->name), "%.23s", name[0] ? name : "?");
    for (char *c = oldest->name; *c; c++) {
        *c = *c > 0x20 && *c < 0x7f ? *c : '_'; /* a word of a line */
    }
    return oldest;
}

/* In order; an hour that is older than all there is room for is not entered: NULL. */
static struct r2_nic_hour *hour_of(struct r2_nic_past *p, uint32_t hour)
{
    uint32_t at = p->hours;

    while (at > 0 && p->hour[at - 1].hour >= hour) {
        at--;
    }
    if (at < p->hours && p->hour[at].hour == hour) {
        return &p->hour[at];
    }
    if (p->hours == R2_NIC_HISTORY_HOURS) {
        if (at == 0) {
            return NULL;
        }
        memmove(&p->hour[0], &p->hour[1], --at * sizeof(p->hour[0]));
    } else {
        memmove(&p->hour[at + 1], &p->hour[at], (p->hours - at) * sizeof(p->hour[0]));
        p->hours++;
    }
    p->hour[at] = (struct r2_nic_hour){.hour = hour};
    return &p->hour[at];
}

static void job_note(struct r2_nic_past *p, uint32_t job, uint32_t hour)
{
    uint32_t at = 0, oldest = 0;

    while (at < p->jobs && p->job[at].job != job) {
        oldest = p->job[at].hour < p->job[oldest].hour ? at : oldest;
        at++;
    }
    if (at == p->jobs) {
        at = p->jobs < R2_NIC_HISTORY_JOBS ? p->jobs++ : oldest;
        p->job[at].hour = 0;
    }
    p->job[at].job = job;
    p->job[at].hour = hour > p->job[at].hour ? hour : p->job[at].hour;
}

void r2_nic_history_note(struct r2_nic_history *h, const struct r2_nic_note *n)
{
    struct r2_nic_past *p = nic_of(h, n->guid, n->port, n->name);
    uint32_t hour = (uint32_t)(n->at / 3600);
    struct r2_nic_hour *e = hour_of(p, hour);
    uint64_t apart = n->at > p->failed_at ? n->at - p->failed_at : p->failed_at - n->at;

    if (e == NULL) {
        return;
    }
    if (n->fact == R2_NIC_SLOW_ITSELF) {
        e->slow_to = UINT32_MAX;
        return;
    }
    if (n->fact == R2_NIC_SLOW) {
        e->slow_to |= 1u << (r2_fnv_add(R2_FNV_BASIS, n->peer, strlen(n->peer)) % 32);
        return;
    }
    job_note(p, n->job, hour);
    if (p->failed_at && apart <= R2_NIC_HISTORY_SAME) {
        return;
    }
    e->flaps += p->failed_at && apart <= R2_NIC_HISTORY_FLAP;
    e->failures += !p->failed_at || apart > R2_NIC_HISTORY_FLAP;
    /* What lies further back than a flap was said by a clock that has been set back since: those
     * that follow are told apart by it. */
    p->failed_at = n->at > p->failed_at || apart > R2_NIC_HISTORY_FLAP ? n->at : p->failed_at;
}

/* --- verdict --- */

/* Hours of the future are those of a clock that was wrong: they count for nothing. */
static int counts(uint32_t hour, uint32_t now, uint32_t span)
{
    return hour <= now && now - hour < span;
}

static void why_put(struct r2_nic_judged *j)
{
    if (j->jobs >= R2_NIC_DRAIN_JOBS) {
        snprintf(j->why, sizeof(j->why), "failed in %u jobs in 7 days", j->jobs);
    } else if (j->failed_hours >= R2_NIC_DRAIN_HOURS) {
        snprintf(j->why, sizeof(j->why), "failed in %u hours in 7 days", j->failed_hours);
    } else if (j->flaps_day >= R2_NIC_DRAIN_FLAPS) {
        snprintf(j->why, sizeof(j->why), "flapped %u times in 24 hours", j->flaps_day);
    } else if (j->slow_hours >= R2_NIC_DRAIN_SLOW) {
        snprintf(j->why, sizeof(j->why), "slow in %u hours in 7 days", j->slow_hours);
    }
}

void r2_nic_history_judge(const struct r2_nic_past *p, uint64_t now, struct r2_nic_judged *out)
{
    uint32_t hour = (uint32_t)(now / 3600);
    int seen = 0;

    *out = (struct r2_nic_judged){.verdict = R2_NIC_GOOD};
    for (uint32_t i = 0; i < p->hours; i++) {
        const struct r2_nic_hour *e = &p->hour[i];

        if (!counts(e->hour, hour, R2_NIC_HISTORY_SPAN)) {
            continue;
        }
        seen = 1;
        out->failures += e->failures;
        out->flaps += e->flaps;
        out->flaps_day += counts(e->hour, hour, 24) ? e->flaps : 0;
        out->failed_hours += e->failures || e->flaps;
        out->slow_hours += __builtin_popcount(e->slow_to) > 1;
    }
    for (uint32_t i = 0; i < p->jobs; i++) {
        out->jobs += (uint32_t)counts(p->job[i].hour, hour, R2_NIC_HISTORY_SPAN);
    }
    why_put(out);
    out->verdict = out->why[0] ? R2_NIC_DRAIN : seen ? R2_NIC_WATCH : R2_NIC_GOOD;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void r2_nic_history_merge(struct r2_nic_history *to, const struct r2_nic_history *from)
{
    for (uint32_t i = 0; i < from->nics; i++) {
        const struct r2_nic_past *f = &from->nic[i];
        struct r2_nic_past *t = nic_of(to, f->guid, f->port, f->name);

        for (uint32_t k = 0; k < f->hours; k++) {
            struct r2_nic_hour *e = hour_of(t, f->hour[k].hour);

            if (e) {
                e->failures = larger(e->failures, f->hour[k].failures);
                e->flaps = larger(e->flaps, f->hour[k].flaps);
                e->slow_to |= f->hour[k].slow_to;
            }
        }
        for (uint32_t k = 0; k < f->jobs; k++) {
            job_note(t, f->job[k].job, f->job[k].hour);
        }
        t->failed_at = f->failed_at > t->failed_at ? f->failed_at : t->failed_at;
    }
}

/* --- text --- */

#define NIC  "nic %016" PRIx64 " %u %s %" PRIu64
#define HOUR "hour %u %u %u %08x"
#define JOB  "job %08x %u"

static void nic_print(FILE *f, const struct r2_nic_past *p)
{
    fprintf(f, NIC "\n", p->guid, p->port, p->name, p->failed_at);
    for (uint32_t i = 0; i < p->hours; i++) {
        fprintf(f, HOUR "\n", p->hour[i].hour, p->hour[i].failures, p->hour[i].flaps,
                p->hour[i].slow_to);
    }
    for (uint32_t i = 0; i < p->jobs; i++) {
        fprintf(f, JOB "\n", p->job[i].job, p->job[i].hour);
    }
}

size_t r2_nic_history_print(const struct r2_nic_history *h, char *out, size_t room)
{
    FILE *f = fmemopen(out, room, "w");
    long n;

    if (f == NULL) {
        return 0;
    }
    fputs(HEAD, f);
    for (uint32_t i = 0; i < h->nics; i++) {
        nic_print(f, &h->nic[i]);
    }
    fflush(f);
    n = ftell(f);
    if (n <= 0 || (size_t)n >= room) {
        fclose(f);
        return 0;
    }
    fprintf(f, END "%08x\n", r2_fnv_add(R2_FNV_BASIS, out, (size_t)n));
    fflush(f);
    n = ftell(f);
    return fclose(f) == 0 && n > 0 && (size_t)n < room ? (size_t)n : 0;
}

/* A line is taken only if what was read of it prints as it stands: no signs, spaces, other digits.
 */
static int nic_parse(const char *line, struct r2_nic_history *h)
{
    struct r2_nic_past *p = &h->nic[h->nics];
    char again[LINE];

    if (h->nics == R2_NIC_HISTORY_NICS || sscanf(line, "nic %16" SCNx64 " %10u %23s %20" SCNu64,
                                                 &p->guid, &p->port, p->name, &p->failed_at) != 4) {
        return -1;
    }
    for (const char *c = p->name; *c; c++) {
        if (*c <= 0x20 || *c > 0x7e) {
            return -1;
        }
    }
    h->nics++;
    snprintf(again, sizeof(again), NIC, p->guid, p->port, p->name, p->failed_at);
    return strcmp(line, again) == 0 ? 0 : -1;
}

static int hour_parse(const char *line, struct r2_nic_past *p)
{
    struct r2_nic_hour *e = &p->hour[p->hours];
    char again[LINE];

    if (p->hours == R2_NIC_HISTORY_HOURS ||
        sscanf(line, "hour %10u %10u %10u %8x", &e->hour, &e->failures, &e->flaps, &e->slow_to) !=
            4 ||
        (p->hours && e[-1].hour >= e->hour)) {
        return -1;
    }
    p->hours++;
    snprintf(again, sizeof(again), HOUR, e->hour, e->failures, e->flaps, e->slow_to);
    return strcmp(line, again) == 0 ? 0 : -1;
}

static int job_parse(const char *line, struct r2_nic_past *p)
{
    struct r2_nic_job *j = &p->job[p->jobs];
    char again[LINE];

    if (p->jobs == R2_NIC_HISTORY_JOBS || sscanf(line, "job %8x %10u", &j->job, &j->hour) != 2) {
        return -1;
    }
    p->jobs++;
    snprintf(again, sizeof(again), JOB, j->job, j->hour);
    return strcmp(line, again) == 0 ? 0 : -1;
}

static int line_parse(const char *line, struct r2_nic_history *h)
{
    struct r2_nic_past *p = h->nics ? &h->nic[h->nics - 1] : NULL;

    if (strncmp(line, "nic ", 4) == 0) {
        return nic_parse(line, h);
    }
    if (p && strncmp(line, "hour ", 5) == 0) {
        return hour_parse(line, p);
    }
    return p && strncmp(line, "job ", 4) == 0 ? job_parse(line, p) : -1;
}

/* The last line, which begins at @at: the checksum of all before it, and nothing behind. What does
 * not begin like one is not worth a checksum: that would be one for each line. */
static int is_end(const char *text, size_t at, size_t len)
{
    char want[32];
    int n;

    if (len - at < sizeof(END) - 1 || memcmp(text + at, END, sizeof(END) - 1) != 0) {
        return 0;
    }
    n = snprintf(want, sizeof(want), END "%08x\n", r2_fnv_add(R2_FNV_BASIS, text, at));
    return len - at == (size_t)n && memcmp(text + at, want, (size_t)n) == 0;
}

int r2_nic_history_parse(const char *text, size_t len, struct r2_nic_history *h)
{
    size_t at = 0;

    memset(h, 0, sizeof(*h));
    for (int no = 1; len > 0; no++) {
        const char *stop = memchr(text + at, '\n', len - at);
        size_t n = stop ? (size_t)(stop - text) - at : 0;
        char line[LINE];

        if (no > 1 && is_end(text, at, len)) {
            return 0;
        }
        if (stop == NULL || n >= sizeof(line)) {
            memset(h, 0, sizeof(*h));
            return no;
        }
        memcpy(line, text + at, n);
        line[n] = '\0';
        if (no == 1 ? n + 1 != strlen(HEAD) || memcmp(text, HEAD, n + 1) != 0
                    : line_parse(line, h) != 0) {
            memset(h, 0, sizeof(*h));
            return no;
        }
        at += n + 1;
    }
    return 0;
}
