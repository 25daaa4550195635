/* An event from its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/shared/json_in.h"
#include "tools/r2_report/story.h"

struct taken {
    struct story_event e;
    char schema[32], scheduler[24];
    int capacity; /* values of it so far */
    bool is_lost; /* out of memory */
};

static const char *const kinds[STORY_KINDS] = {
    [STORY_OTHER] = "",          [STORY_FAULT] = "fault",       [STORY_SWITCH] = "switch",
    [STORY_VERDICT] = "verdict", [STORY_FAILBACK] = "failback", [STORY_DRAIN] = "drain",
    [STORY_GIVEUP] = "giveup",   [STORY_START] = "start",       [STORY_STOP] = "stop",
    [STORY_NEWS] = "news",       [STORY_STALL] = "stall",       [STORY_CHECKPOINT] = "checkpoint",
};

uint64_t story_time(const char *text)
{
    struct tm tm = {0};
    char fraction[10] = "000000000";
    int n = 0;

    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &n) != 6 ||
        tm.tm_year < 1970) {
        return 0;
    }
    if (text[n] == '.') {
        size_t digits = strspn(text + n + 1, "0123456789");

        memcpy(fraction, text + n + 1, digits < 9 ? digits : 9);
        n += 1 + (int)digits;
    }
    if (strcmp(text + n, "Z") != 0) {
        return 0;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (uint64_t)timegm(&tm) * 1000000000 + strtoull(fraction, NULL, 10);
}

static enum story_kind kind_of(const char *text)
{
    for (int k = 1; k < STORY_KINDS; k++) {
        if (strcmp(text, kinds[k]) == 0) {
            return (enum story_kind)k;
        }
    }
    return STORY_OTHER;
}

static void evidence_add(struct taken *t, const char *text)
{
    if (t->e.evidences < STORY_EVIDENCE) {
        t->e.evidence[t->e.evidences] = strdup(text);
        t->is_lost |= t->e.evidence[t->e.evidences] == NULL;
        t->e.evidences += t->e.evidence[t->e.evidences] != NULL;
    }
}

static void number_take(struct taken *t, const char *path, const char *text)
{
    const struct {
        const char *path;
        int64_t *to;
    } rows[] = {{"pid", &t->e.pid},
                {"seq", &t->e.seq},
                {"revises.seq", &t->e.revised},
                {"stall_us", &t->e.stall_us},
                {"replayed_bytes", &t->e.replayed},
                {"connections", &t->e.connections}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(path, rows[i].path) == 0) {
            *rows[i].to = strtoll(text, NULL, 10);
        }
    }
    if (strcmp(path, "mono_ns") == 0) {
        t->e.mono = strtoull(text, NULL, 10);
    } else if (strcmp(path, "confidence") == 0) {
        t->e.confidence = atoi(text);
    } else if (strcmp(path, "capacity") == 0) {
        *(t->capacity++ ? &t->e.up : &t->e.all) = strtoll(text, NULL, 10);
    }
}

static void take(void *arg, const char *path, const char *text)
{
    struct taken *t = arg;
    const struct {
        const char *path;
        char *to;
        size_t room;
    } rows[] = {{"schema", t->schema, sizeof(t->schema)},
                {"host", t->e.host, sizeof(t->e.host)},
                {"job.id", t->e.job, sizeof(t->e.job)},
                {"severity", t->e.severity, sizeof(t->e.severity)},
                {"code", t->e.code, sizeof(t->e.code)},
                {"blame", t->e.blame, sizeof(t->e.blame)},
                {"nic.device", t->e.nic, sizeof(t->e.nic)},
                {"peer.host", t->e.peer_host, sizeof(t->e.peer_host)},
                {"peer.device", t->e.peer_nic, sizeof(t->e.peer_nic)},
                {"cause.how", t->e.how, sizeof(t->e.how)},
                {"cause.detail", t->e.detail, sizeof(t->e.detail)},
                {"revises.code", t->e.revises, sizeof(t->e.revises)},
                {"action", t->e.action, sizeof(t->e.action)},
                {"text", t->e.text, sizeof(t->e.text)}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(path, rows[i].path) == 0) {
            story_text_keep(rows[i].to, rows[i].room, text);
            return; /* cut, where it is longer than any that the plugin writes */
        }
    }
    if (strcmp(path, "ts") == 0) {
        t->e.when = story_time(text);
    } else if (strcmp(path, "since") == 0) {
        t->e.since = story_time(text);
    } else if (strcmp(path, "kind") == 0) {
        t->e.kind = kind_of(text);
    } else if (strcmp(path, "evidence") == 0) {
        evidence_add(t, text);
    } else {
        number_take(t, path, text);
    }
}

static void event_free(struct story_event *e)
{
    while (e->evidences > 0) {
        free(e->evidence[--e->evidences]);
    }
}

static int event_keep(struct story *s, const struct story_event *e)
{
    if (s->events == STORY_EVENTS) {
        return -1;
    }
    if (s->events == s->room) {
        int room = s->room ? 2 * s->room : 256;
        struct story_event *p = realloc(s->event, (size_t)room * sizeof(*p));

        if (p == NULL) {
            return -1;
        }
        s->event = p;
        s->room = room;
    }
    s->event[s->events++] = *e;
    return 0;
}

int story_line_add(struct story *s, const char *line, const char *job)
{
    struct taken t = {
        .e = {.pid = -1, .stall_us = -1, .replayed = -1, .connections = -1, .all = -1, .up = -1}};
    int rc = 0;

    if (json_in_walk(line, take, &t) != 0 || strcmp(t.schema, "r2.event/1") != 0 || t.e.when == 0 ||
        t.e.host[0] == '\0') {
        s->wrong++;
    } else if ((job == NULL || strcmp(job, t.e.job) == 0) && !t.is_lost &&
               (rc = event_keep(s, &t.e)) == 0) {
        return 0; /* its texts are the story's */
    }
    event_free(&t.e);
    return t.is_lost ? -1 : rc;
}

void story_free(struct story *s)
{
    for (int i = 0; i < s->events; i++) {
        event_free(&s->event[i]);
    }
    for (int i = 0; i < s->nics; i++) {
        free(s->nic[i].span);
        free(s->nic[i].rate);
    }
    for (int i = 0; i < s->verdicts; i++) {
        free(s->verdict[i].by);
    }
    free(s->event);
    free(s->nic);
    free(s->verdict);
    free(s->process);
    free(s->cost);
    *s = (struct story){0};
}
