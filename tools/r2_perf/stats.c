#include "tools/r2_perf/stats.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/r2_perf/util.h"

#define STATS_INTERVAL_MIN (R2_NS_PER_S / 10)
#define STATS_LAST_NS      (2 * R2_NS_PER_S)  /* how long the last row is waited for ... */
#define STATS_LAST_TICK    (R2_NS_PER_S / 50) /* ... looking so often */

struct stats {
    uint64_t interval_ns;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards t0 and stop */
    pthread_cond_t cond;  /* CLOCK_MONOTONIC */
    uint64_t t0;          /* 0: not started */
    bool stop;

    /* the thread's own until it has ended */
    char path[1024];
    struct r2_stat_view view;
    uint64_t updated; /* of the last row: when the plugin wrote it, util_now_ns() */
    struct stats_told told;
};

/* The plugin's file is mapped into this process. */
static bool stats_path_find(struct stats *s)
{
    FILE *f = s->path[0] ? NULL : fopen("/proc/self/maps", "re");
    char line[1200];
    while (f && !s->path[0] && fgets(line, sizeof(line), f)) {
        char *path = strchr(line, '/'), *name = strrchr(line, '/');
        uint64_t unique;
        uid_t uid;
        line[strcspn(line, "\n")] = '\0';
        if (path && r2_stat_name(name + 1, &uid, &unique)) {
            snprintf(s->path, sizeof(s->path), "%s", path);
        }
    }
    if (f) {
        fclose(f);
    }
    return s->path[0] != '\0';
}

void stats_row_add(struct stats_told *t, const struct stats_row *row)
{
    if (t->nrows && row->at_ns <= t->row[t->nrows - 1].at_ns) {
        return;
    }
    if (t->nrows == STATS_ROWS_MAX) {
        t->nrows = STATS_ROWS_MAX / 2;
        for (uint32_t i = 0; i < t->nrows; i++) {
            t->row[i] = t->row[2 * i];
        }
        t->halved++;
    }
    t->row[t->nrows++] = *row;
}

/* CLOCK_REALTIME as util_now_ns() has it. */
static uint64_t stats_mono_get(uint64_t real)
{
    uint64_t now = util_now_ns(), behind = r2_clock_ns(CLOCK_REALTIME) - real;
    return behind < now ? now - behind : now;
}

/* What the file has now, since CLOCK_MONOTONIC began; before @t0 (0: not known yet) only the last
 * row stays. True when the plugin has written since the last time. */
static bool stats_look(struct stats *s, uint64_t t0)
{
    struct stats_told *t = &s->told;
    struct stats_row row = {0};
    bool wrote = false;
    if (!stats_path_find(s)) {
        snprintf(t->why, sizeof(t->why), "the plugin keeps no statistics of this process");
        return false;
    }
    if (r2_stat_read(s->path, geteuid(), &s->view, t->why, sizeof(t->why)) != 1) {
        return false;
    }
    uint64_t at = stats_mono_get(s->view.who.updated);
    if (s->view.whole && s->view.who.updated != s->updated) {
        s->updated = s->view.who.updated;
        row.at_ns = (int64_t)at;
        t->nics = s->view.who.nics;
        for (uint32_t i = 0; i < t->nics; i++) {
            snprintf(t->nic[i], sizeof(t->nic[i]), "%s", s->view.nic[i].name);
            row.sent[i] = s->view.nic[i].sent;
            row.received[i] = s->view.nic[i].received;
        }
        t->why[0] = '\0';
        t->nrows = t0 && at > t0 ? t->nrows : 0;
        stats_row_add(t, &row);
        wrote = true;
    }
    r2_stat_view_free(&s->view);
    return wrote;
}

/* Sleep, under lock, for @ns or until something is to be done. */
static void stats_wait(struct stats *s, uint64_t ns)
{
    uint64_t due = util_now_ns() + ns;
    struct timespec until = {.tv_sec = (time_t)(due / R2_NS_PER_S),
                             .tv_nsec = (long)(due % R2_NS_PER_S)};
    pthread_cond_timedwait(&s->cond, &s->lock, &until);
}

static void *stats_main(void *arg)
{
    struct stats *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        uint64_t t0 = s->t0;
        pthread_mutex_unlock(&s->lock);
        stats_look(s, t0);
        pthread_mutex_lock(&s->lock);
        if (!s->stop) {
            stats_wait(s, s->interval_ns);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct stats *stats_open(uint64_t interval_ns)
{
    struct stats *s = util_mem_alloc(1, sizeof(*s));
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->cond, &attr);
    pthread_mutex_init(&s->lock, NULL);
    s->interval_ns = interval_ns > STATS_INTERVAL_MIN ? interval_ns : STATS_INTERVAL_MIN;
    s->running = pthread_create(&s->thread, NULL, stats_main, s) == 0;
    if (!s->running) {
        free(s);
        return NULL;
    }
    return s;
}

void stats_start(struct stats *s, uint64_t t0_ns)
{
    pthread_mutex_lock(&s->lock);
    s->t0 = t0_ns;
    pthread_mutex_unlock(&s->lock);
}

static void stats_thread_end(struct stats *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
    if (s->running) {
        pthread_join(s->thread, NULL);
        s->running = false;
    }
}

/* Those since the clock started, of all that the file has. */
static void stats_events_take(struct stats *s)
{
    struct stats_told *t = &s->told;
    if (!s->path[0] || r2_stat_read(s->path, geteuid(), &s->view, t->why, sizeof(t->why)) != 1) {
        return;
    }
    t->forgotten = s->view.who.history > R2_STAT_HISTORY
                       ? (uint32_t)(s->view.who.history - R2_STAT_HISTORY)
                       : 0;
    for (int i = 0; i < s->view.events; i++) {
        struct r2_stat_event e = s->view.event[i];
        if (e.mono >= s->t0) {
            e.mono -= s->t0;
            t->event[t->nevents++] = e;
        }
    }
    r2_stat_view_free(&s->view);
}

const struct stats_told *stats_stop(struct stats *s)
{
    uint64_t now = util_now_ns(), over = now;
    stats_thread_end(s);
    while (s->t0 && stats_path_find(s) && now - over < STATS_LAST_NS) {
        if (stats_look(s, s->t0) && stats_mono_get(s->updated) >= over) {
            break;
        }
        struct timespec tick = {.tv_nsec = (long)STATS_LAST_TICK};
        nanosleep(&tick, NULL);
        now = util_now_ns();
    }
    if (s->t0) {
        stats_events_take(s);
    }
    for (uint32_t i = 0; i < s->told.nrows; i++) {
        s->told.row[i].at_ns -= (int64_t)s->t0;
    }
    return &s->told;
}

void stats_close(struct stats *s)
{
    if (s) {
        stats_thread_end(s);
        free(s);
    }
}
