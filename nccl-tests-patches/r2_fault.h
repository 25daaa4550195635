/*
 * Faults in the middle of a measurement of nccl-tests: when which command runs, how long each
 * iteration took, and what that says.
 *
 * The common part of C and C++, in one translation unit: nccl-tests' common.cu includes it, and so
 * does a test of ours. No CUDA, no NCCL.
 *
 * Threads: the caller's main thread of rank 0 owns everything but what the lock guards; one thread
 * of ours runs the commands.
 */
#ifndef R2_FAULT_H
#define R2_FAULT_H

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define R2_FAULTS_MAX 16
/* After the last fault the rate gets this long to settle before it counts as "after". */
#define R2_FAULT_SETTLE_S 0.2
/* Values of long options, beyond any character. */
#define R2_FAULT_OPT       1001
#define R2_FAULT_AFTER_OPT 1002
#define R2_FAULT_JSON_OPT  1003

struct r2_fault {
    double at_s; /* since the first timed iteration */
    const char *command;
    /* under lock: */
    int fired;
    double fired_s, took_s;
    int status; /* of the command; 128 + signal; -1: could not be started */
};

struct r2_iteration {
    double start_s, sec;
};

/* One cell of the table: a size, out of place or in place. */
struct r2_measurement {
    size_t bytes;
    int in_place;
    double busbw_1s; /* GB/s if an iteration took a second */
    struct r2_iteration *it;
    size_t n, room;
};

struct r2_rates {
    double before, during, after; /* GB/s; NaN: no such iteration */
};

static struct {
    struct r2_fault fault[R2_FAULTS_MAX]; /* by time, once the clock runs */
    int n;
    double after_s;  /* the measurement goes on for so long after the last fault */
    double latest_s; /* start of the newest iteration, by r2_fault_now() */
    const char *json;
    struct r2_measurement *m;
    size_t nm;
    long long checked, wrong;
    int failed; /* memory: what was measured is not complete */
    int running;
    double t0;
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop, done, done_s, and what struct r2_fault says */
    pthread_cond_t cond;  /* CLOCK_MONOTONIC */
    int stop, done;
    double done_s;
} r2_fault_all;

static inline double r2_fault_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of an option: 0, or -1 with a message. */
static inline int r2_fault_seconds_parse(const char *text, char stop, double *sec)
{
    char *end;

    errno = 0;
    *sec = strtod(text, &end);
    if (end == text || *end != stop || errno != 0 || !(*sec >= 0 && *sec <= 86400)) {
        fprintf(stderr, "'%s': not a number of seconds between 0 and 86400%s\n", text,
                stop ? " and ':'" : "");
        return -1;
    }
    return 0;
}

/* --fault SECONDS:COMMAND. @text must live as long as the program. 0, or -1 with a message on
 * stderr. */
static inline int r2_fault_add(const char *text)
{
    struct r2_fault *f = &r2_fault_all.fault[r2_fault_all.n];
    const char *colon = strchr(text, ':');

    if (r2_fault_all.n == R2_FAULTS_MAX) {
        fprintf(stderr, "--fault: more than %d\n", R2_FAULTS_MAX);
        return -1;
    }
    if (colon == NULL || colon[1] == '\0') {
        fprintf(stderr, "--fault '%s': SECONDS:COMMAND is wanted\n", text);
        return -1;
    }
    if (r2_fault_seconds_parse(text, ':', &f->at_s) != 0) {
        return -1;
    }
    f->command = colon + 1;
    r2_fault_all.n++;
    return 0;
}

/* --fault_after SECONDS, --fault_json FILE; as r2_fault_add. */
static inline int r2_fault_after_set(const char *text)
{
    return r2_fault_seconds_parse(text, '\0', &r2_fault_all.after_s);
}

static inline int r2_fault_json_set(const char *text)
{
    r2_fault_all.json = text;
    return 0;
}

/* Whether there is anything to do: a fault, or a file to write. Without, nccl-tests is what it was.
 */
static inline int r2_fault_on(void)
{
    return r2_fault_all.n > 0 || r2_fault_all.json != NULL;
}

/* Output of the command goes to stderr: stdout is the table. Blocks until it has ended. */
static inline int r2_fault_command_run(const char *command)
{
    char shell[] = "sh", minus_c[] = "-c";
    char *argv[] = {shell, minus_c, (char *)command, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int rc, status;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    rc = posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Under lock, until @at_s; 0 when there will be no such moment. */
static inline int r2_fault_moment_wait(double at_s)
{
    double due = r2_fault_all.t0 + at_s;
    struct timespec until;

    until.tv_sec = (time_t)due;
    until.tv_nsec = (long)((due - (double)until.tv_sec) * 1e9);
    while (!r2_fault_all.stop && r2_fault_now() < due) {
        pthread_cond_timedwait(&r2_fault_all.cond, &r2_fault_all.lock, &until);
    }
    return !r2_fault_all.stop;
}

static inline void *r2_fault_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&r2_fault_all.lock);
    for (int i = 0; i < r2_fault_all.n && r2_fault_moment_wait(r2_fault_all.fault[i].at_s); i++) {
        struct r2_fault *f = &r2_fault_all.fault[i];
        double start = r2_fault_now(), end;
        int status;

        f->fired = 1;
        f->fired_s = start - r2_fault_all.t0;
        pthread_mutex_unlock(&r2_fault_all.lock);
        status = r2_fault_command_run(f->command);
        end = r2_fault_now();
        pthread_mutex_lock(&r2_fault_all.lock);
        f->status = status;
        f->took_s = end - start;
        r2_fault_all.done++;
        r2_fault_all.done_s = end;
    }
    pthread_mutex_unlock(&r2_fault_all.lock);
    return NULL;
}

static inline int r2_fault_compare(const void *x, const void *y)
{
    double a = ((const struct r2_fault *)x)->at_s, b = ((const struct r2_fault *)y)->at_s;

    return (a > b) - (a < b);
}

/* The first timed iteration begins now; later calls do nothing. Does not block. */
static inline void r2_fault_clock_start(void)
{
    pthread_condattr_t attr;

    if (r2_fault_all.t0 > 0) {
        return;
    }
    qsort(r2_fault_all.fault, (size_t)r2_fault_all.n, sizeof(r2_fault_all.fault[0]),
          r2_fault_compare);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r2_fault_all.cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&r2_fault_all.lock, NULL);
    r2_fault_all.t0 = r2_fault_now();
    r2_fault_all.running =
        r2_fault_all.n > 0 && pthread_create(&r2_fault_all.thread, NULL, r2_fault_main, NULL) == 0;
}

/* Whether a fault is still to be done, or the last one was done too short a time ago; or, where
 * somebody wants to know what comes after it, no iteration has begun since that counts as that: on
 * a busy machine one may take longer than the time. Does not block. */
static inline int r2_fault_unfinished(void)
{
    int more;

    if (!r2_fault_all.running) {
        return 0;
    }
    pthread_mutex_lock(&r2_fault_all.lock);
    more = r2_fault_all.done < r2_fault_all.n ||
           r2_fault_now() - r2_fault_all.done_s < r2_fault_all.after_s ||
           (r2_fault_all.after_s > R2_FAULT_SETTLE_S &&
            r2_fault_all.latest_s < r2_fault_all.done_s + R2_FAULT_SETTLE_S);
    pthread_mutex_unlock(&r2_fault_all.lock);
    return more;
}

/* No more faults; waits for a command that is running. */
static inline void r2_fault_stop(void)
{
    if (!r2_fault_all.running) {
        return;
    }
    pthread_mutex_lock(&r2_fault_all.lock);
    r2_fault_all.stop = 1;
    pthread_cond_broadcast(&r2_fault_all.cond);
    pthread_mutex_unlock(&r2_fault_all.lock);
    pthread_join(r2_fault_all.thread, NULL);
    r2_fault_all.running = 0;
}

/* A new cell of the table. */
static inline void r2_fault_measurement_start(size_t bytes, int in_place, double busbw_1s)
{
    struct r2_measurement *m =
        (struct r2_measurement *)realloc(r2_fault_all.m, (r2_fault_all.nm + 1) * sizeof(*m));

    if (m == NULL) {
        r2_fault_all.failed = 1;
        return;
    }
    r2_fault_all.m = m;
    m += r2_fault_all.nm++;
    memset(m, 0, sizeof(*m));
    m->bytes = bytes;
    m->in_place = in_place;
    m->busbw_1s = busbw_1s;
}

/* An iteration of the newest cell: when it began (r2_fault_now), how long it took; @wrong < 0: not
 * checked. */
static inline void r2_fault_iteration_put(double start, double sec, long long wrong)
{
    struct r2_measurement *m = r2_fault_all.m + r2_fault_all.nm - 1;

    r2_fault_all.latest_s = start;
    if (wrong >= 0) {
        r2_fault_all.checked++;
        r2_fault_all.wrong += wrong;
    }
    if (r2_fault_all.failed) {
        return;
    }
    if (m->n == m->room) {
        size_t room = m->room ? 2 * m->room : 256;
        struct r2_iteration *it = (struct r2_iteration *)realloc(m->it, room * sizeof(*it));

        if (it == NULL) {
            r2_fault_all.failed = 1;
            return;
        }
        m->it = it;
        m->room = room;
    }
    m->it[m->n].start_s = start - r2_fault_all.t0;
    m->it[m->n++].sec = sec;
}

#include "r2_fault_report.h"

#endif
