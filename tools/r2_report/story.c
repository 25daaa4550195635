/* From events to what they come to. */
#include "tools/r2_report/story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS 1000000000.0

void story_text_keep(char *out, size_t room, const char *text)
{
    size_t n = 0;

    for (; *text && n + 1 < room; text++) {
        out[n++] = (unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text;
    }
    out[n] = '\0';
}

/* --- processes --- */

/* The place of the process of @e; -1: it is not there. */
static int process_find(const struct story *s, const struct story_event *e)
{
    int i = s->processes - 1;

    while (i >= 0 && (s->process[i].pid != e->pid || strcmp(s->process[i].host, e->host) != 0)) {
        i--;
    }
    return i;
}

/* The process of @e, made when it is not there. -1: out of memory. */
static int process_follow(struct story *s, const struct story_event *e)
{
    int at = process_find(s, e);
    struct story_process *p = at >= 0 ? &s->process[at] : NULL;

    if (p == NULL) {
        p = realloc(s->process, (size_t)(s->processes + 1) * sizeof(*p));
        if (p == NULL) {
            return -1;
        }
        s->process = p;
        p += s->processes++;
        *p = (struct story_process){.host = e->host, .pid = e->pid, .all = -1, .from = e->when};
    }
    p->all = e->all > 0 ? e->all : p->all;
    p->stopped |= e->kind == STORY_STOP;
    p->to = p->stopped ? e->when : s->to;
    return 0;
}

/* --- NICs and their spans --- */

struct story_nic *story_nic_at(struct story *s, const char *host, const char *device)
{
    struct story_nic *p;

    for (int i = 0; i < s->nics; i++) {
        if (strcmp(s->nic[i].host, host) == 0 && strcmp(s->nic[i].device, device) == 0) {
            return &s->nic[i];
        }
    }
    p = realloc(s->nic, (size_t)(s->nics + 1) * sizeof(*p));
    if (p == NULL) {
        return NULL;
    }
    s->nic = p;
    p += s->nics++;
    *p = (struct story_nic){0};
    story_text_keep(p->host, sizeof(p->host), host);
    story_text_keep(p->device, sizeof(p->device), device);
    return p;
}

int story_bytes_add(struct story *s, const char *host, const char *device, uint64_t sent,
                    uint64_t received)
{
    struct story_nic *n = story_nic_at(s, host, device);

    if (n == NULL) {
        return -1;
    }
    n->sent += sent;
    n->received += received;
    n->counted = true;
    return 0;
}

static bool is_fault(enum story_why why)
{
    return why == STORY_LOST || why == STORY_PEERS;
}

/* The open span of process @pid over @n, of a fault or of the administrator's. NULL: none. */
static struct story_span *span_open(const struct story_nic *n, int64_t pid, bool fault)
{
    for (int i = n->spans - 1; i >= 0; i--) {
        if (n->span[i].open && n->span[i].pid == pid && is_fault(n->span[i].why) == fault) {
            return &n->span[i];
        }
    }
    return NULL;
}

static int span_begin(struct story_nic *n, const struct story_event *e, enum story_why why)
{
    struct story_span *p;

    if (span_open(n, e->pid, is_fault(why))) {
        return 0;
    }
    p = realloc(n->span, (size_t)(n->spans + 1) * sizeof(*p));
    if (p == NULL) {
        return -1;
    }
    n->span = p;
    p[n->spans++] = (struct story_span){
        .why = why, .pid = e->pid, .from = e->when, .to = e->when, .open = true, .began = e};
    return 0;
}

static void span_end(struct story_nic *n, int64_t pid, bool fault, uint64_t when)
{
    struct story_span *span = span_open(n, pid, fault);

    if (span) {
        span->to = when;
        span->open = false;
    }
}

/* A process has ended, or the events have: its spans stay open, and last until then. */
static void spans_stop(struct story *s, const struct story_process *p)
{
    for (int i = 0; i < s->nics; i++) {
        struct story_nic *n = &s->nic[i];

        for (int k = 0; k < n->spans && strcmp(n->host, p->host) == 0; k++) {
            if (n->span[k].open && n->span[k].pid == p->pid) {
                n->span[k].to = p->to;
            }
        }
    }
}

/* Whose fault it is comes behind the fault: the process' open spans that the news or verdict @e is
 * about are the other end's. */
static void spans_blame(struct story *s, const struct story_event *e)
{
    for (int i = 0; i < s->nics; i++) {
        struct story_nic *n = &s->nic[i];
        struct story_span *span = strcmp(n->host, e->host) == 0 ? span_open(n, e->pid, true) : NULL;

        if (span && (e->nic[0] ? strcmp(n->device, e->nic) == 0
                               : strcmp(span->began->peer_nic, e->peer_nic) == 0)) {
            span->why = strcmp(e->peer_host, e->host) == 0 ? STORY_LOST : STORY_PEERS;
        }
    }
}

/* "h1:fab1 cable ..." of another host than the one that says so. */
static bool is_of_other(const struct story_event *e)
{
    size_t n = strcspn(e->text, " :");

    return e->text[n] == ':' && strncmp(e->text, e->host, n) != 0;
}

static int event_follow(struct story *s, const struct story_event *e)
{
    struct story_nic *n = e->nic[0] ? story_nic_at(s, e->host, e->nic) : NULL;
    struct story_span *span;
    bool rehearsed = strcmp(e->detail, "rehearsal") == 0 || strcmp(e->how, "rehearsal") == 0;

    if (e->nic[0] && n == NULL) {
        return -1;
    }
    if (e->kind == STORY_FAULT && n && !rehearsed) {
        return span_begin(n, e, strcmp(e->how, "peer") == 0 ? STORY_PEERS : STORY_LOST);
    }
    if (e->kind == STORY_DRAIN && n && strcmp(e->action, "drain") == 0) {
        return span_begin(n, e, rehearsed ? STORY_REHEARSED : STORY_DRAINED);
    }
    if (e->kind == STORY_DRAIN && n && strcmp(e->action, "undrain") == 0) {
        span_end(n, e->pid, false, e->when);
    } else if (e->kind == STORY_FAILBACK && n) {
        span_end(n, e->pid, true, e->when);
    } else if (e->kind == STORY_NEWS && !strstr(e->text, "good again")) {
        spans_blame(s, e);
    } else if (e->kind == STORY_VERDICT && is_of_other(e)) {
        spans_blame(s, e);
    } else if (e->kind == STORY_VERDICT && n && (span = span_open(n, e->pid, true)) != NULL &&
               (e->code[3] == 'N' || e->code[3] == 'L')) {
        span->why = STORY_LOST; /* the other end may have been the first to see it */
    }
    return 0;
}

/* --- verdicts --- */

/* What a verdict is about, as all hosts would name it: "h1:fab1". */
static void subject_of(const struct story_event *e, char *out, size_t room)
{
    char word[140];

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(e->text, " /"), e->text);
    snprintf(out, room, "%s%s%s", strchr(word, ':') ? "" : e->host, strchr(word, ':') ? "" : ":",
             word);
}

/* Process @by says @v, too. 1; 0: it has said it before, so that it says it of another fault; -1:
 * out of memory. */
static int verdict_join(struct story_verdict *v, int by)
{
    int *p;

    for (int i = 0; i < v->said; i++) {
        if (v->by[i] == by) {
            return 0;
        }
    }
    p = realloc(v->by, (size_t)(v->said + 1) * sizeof(*p));
    if (p == NULL) {
        return -1;
    }
    v->by = p;
    p[v->said++] = by;
    return 1;
}

static int verdict_take(struct story *s, const struct story_event *e)
{
    int by = process_find(s, e), joined;
    char about[220], other[220];
    struct story_verdict *p;

    if (strcmp(e->severity, "info") == 0 || e->code[0] == '\0') {
        return 0; /* what held the job up goes on */
    }
    subject_of(e, about, sizeof(about));
    for (int i = 0; i < s->verdicts; i++) {
        struct story_verdict *v = &s->verdict[i];

        v->revised |= e->revises[0] && v->e->pid == e->pid && strcmp(v->e->host, e->host) == 0 &&
                      strcmp(v->e->code, e->revises) == 0 &&
                      (e->revised == 0 || v->e->seq == e->revised);
    }
    for (int i = s->verdicts - 1; i >= 0; i--) {
        subject_of(s->verdict[i].e, other, sizeof(other));
        if (strcmp(s->verdict[i].e->code, e->code) == 0 && strcmp(about, other) == 0 &&
            (joined = verdict_join(&s->verdict[i], by)) != 0) {
            return joined < 0 ? -1 : 0;
        }
    }
    p = realloc(s->verdict, (size_t)(s->verdicts + 1) * sizeof(*p));
    if (p == NULL) {
        return -1;
    }
    s->verdict = p;
    p[s->verdicts] = (struct story_verdict){.e = e};
    return verdict_join(&p[s->verdicts++], by) < 0 ? -1 : 0;
}

/* --- costs --- */

static struct story_cost *cost_at(struct story *s, const char *host)
{
    struct story_cost *p;

    for (int i = 0; i < s->costs; i++) {
        if (strcmp(s->cost[i].host, host) == 0) {
            return &s->cost[i];
        }
    }
    p = realloc(s->cost, (size_t)(s->costs + 1) * sizeof(*p));
    if (p == NULL) {
        return NULL;
    }
    s->cost = p;
    p += s->costs++;
    *p = (struct story_cost){0};
    snprintf(p->host, sizeof(p->host), "%.63s", host);
    return p;
}

static int event_cost(struct story *s, const struct story_event *e)
{
    struct story_cost *c = cost_at(s, e->host);

    if (c == NULL) {
        return -1;
    }
    c->faults += e->kind == STORY_FAULT && strcmp(e->how, "rehearsal") != 0;
    c->giveups += e->kind == STORY_GIVEUP;
    if (e->kind == STORY_SWITCH) {
        c->stall_us = e->stall_us > (int64_t)c->stall_us ? (uint64_t)e->stall_us : c->stall_us;
        c->replayed += e->replayed > 0 ? (uint64_t)e->replayed : 0;
    }
    return 0;
}

static int sums_cost(struct story *s)
{
    for (int i = 0; i < s->processes; i++) {
        const struct story_process *p = &s->process[i];
        struct story_cost *c = cost_at(s, p->host);

        if (c == NULL) {
            return -1;
        }
        c->processes++;
        c->nic_s += p->all > 0 ? (double)p->all * (double)(p->to - p->from) / NS : 0;
    }
    for (int i = 0; i < s->nics; i++) {
        struct story_cost *c = cost_at(s, s->nic[i].host);

        if (c == NULL) {
            return -1;
        }
        for (int k = 0; k < s->nic[i].spans; k++) {
            const struct story_span *span = &s->nic[i].span[k];

            c->lost_s += span->why == STORY_LOST ? (double)(span->to - span->from) / NS : 0;
        }
    }
    story_less(s);
    return 0;
}

/* --- all of it --- */

static int event_compare(const void *a, const void *b)
{
    const struct story_event *x = a, *y = b;

    return x->when != y->when ? (x->when < y->when ? -1 : 1)
           : x->pid != y->pid ? (x->pid < y->pid ? -1 : 1)
                              : (x->mono > y->mono) - (x->mono < y->mono);
}

static int nic_compare(const void *a, const void *b)
{
    const struct story_nic *x = a, *y = b;
    int d = strcmp(x->host, y->host);

    return d ? d : strcmp(x->device, y->device);
}

int story_tell(struct story *s)
{
    if (s->events) {
        qsort(s->event, (size_t)s->events, sizeof(s->event[0]), event_compare);
        s->from = s->event[0].when;
        s->to = s->event[s->events - 1].when;
    }
    for (int i = 0; i < s->events; i++) {
        const struct story_event *e = &s->event[i];

        if (process_follow(s, e) != 0 || event_follow(s, e) != 0 ||
            (e->kind == STORY_VERDICT && verdict_take(s, e) != 0) || event_cost(s, e) != 0) {
            return -1;
        }
    }
    for (int i = 0; i < s->processes; i++) {
        spans_stop(s, &s->process[i]);
    }
    if (s->nics) {
        qsort(s->nic, (size_t)s->nics, sizeof(s->nic[0]), nic_compare);
    }
    return sums_cost(s);
}
