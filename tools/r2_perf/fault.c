#include "tools/r2_perf/fault.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/r2_perf/util.h"

extern char **environ;

struct fault_agent {
    const char *softfab, *fabric;
    struct fault_event events[OPTS_FAULTS_MAX];
    int n;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards t0 and stop */
    pthread_cond_t cond;  /* CLOCK_MONOTONIC */
    uint64_t t0;          /* 0: not started */
    bool stop;
    int done;         /* events, under lock */
    uint64_t done_ns; /* when the last of them had ended, under lock */
    uint64_t after_ns;
};

/* Output of the command goes to stderr: stdout is the table. */
static int fault_command_run(struct fault_agent *a, const struct opts_fault *spec)
{
    char *shell[] = {"sh", "-c", (char *)spec->what, NULL};
    char *fabric[] = {(char *)a->softfab, "fault", "--name", (char *)a->fabric,
                      (char *)spec->what, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    int rc = spec->command ? posix_spawn(&pid, "/bin/sh", &actions, NULL, shell, environ)
                           : posix_spawnp(&pid, a->softfab, &actions, NULL, fabric, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0) {
        fprintf(stderr, "%s: fault '%s' cannot be done: %s\n", program_invocation_short_name,
                spec->what, strerror(rc));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Wait, under lock, until @at after time zero; false when there will be no such moment. */
static bool fault_moment_wait(struct fault_agent *a, uint64_t at)
{
    while (!a->stop) {
        if (!a->t0) {
            pthread_cond_wait(&a->cond, &a->lock);
            continue;
        }
        uint64_t due = a->t0 + at;
        if (util_now_ns() >= due) {
            return true;
        }
        struct timespec until = {.tv_sec = (time_t)(due / R2_NS_PER_S),
                                 .tv_nsec = (long)(due % R2_NS_PER_S)};
        pthread_cond_timedwait(&a->cond, &a->lock, &until);
    }
    return false;
}

static void *fault_agent_main(void *arg)
{
    struct fault_agent *a = arg;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->n && fault_moment_wait(a, a->events[i].spec->at_ns); i++) {
        struct fault_event *e = &a->events[i];
        uint64_t t0 = a->t0;
        pthread_mutex_unlock(&a->lock);
        uint64_t start = util_now_ns();
        e->fired = true;
        e->fired_ns = start - t0;
        e->status = fault_command_run(a, e->spec);
        e->took_ns = util_now_ns() - start;
        pthread_mutex_lock(&a->lock);
        a->done++;
        a->done_ns = start + e->took_ns;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static int fault_event_compare(const void *x, const void *y)
{
    uint64_t a = ((const struct fault_event *)x)->spec->at_ns,
             b = ((const struct fault_event *)y)->spec->at_ns;
    return a < b ? -1 : a > b;
}

struct fault_agent *fault_agent_open(const struct opts *o, const char *softfab, const char *fabric)
{
    struct fault_agent *a = util_mem_alloc(1, sizeof(*a));
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->cond, &attr);
    pthread_mutex_init(&a->lock, NULL);
    a->softfab = softfab;
    a->fabric = fabric;
    a->n = o->nfaults;
    a->after_ns = o->after_ns;
    for (int i = 0; i < a->n; i++) {
        a->events[i].spec = &o->faults[i];
    }
    qsort(a->events, (size_t)a->n, sizeof(a->events[0]), fault_event_compare);
    a->running = a->n > 0 && pthread_create(&a->thread, NULL, fault_agent_main, a) == 0;
    return a;
}

void fault_agent_start(struct fault_agent *a, uint64_t t0_ns)
{
    pthread_mutex_lock(&a->lock);
    a->t0 = t0_ns;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

bool fault_agent_unfinished(struct fault_agent *a)
{
    pthread_mutex_lock(&a->lock);
    bool more = a->n > 0 && (a->done < a->n || util_now_ns() - a->done_ns < a->after_ns);
    pthread_mutex_unlock(&a->lock);
    return more;
}

void fault_agent_stop(struct fault_agent *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
    if (a->running) {
        pthread_join(a->thread, NULL);
        a->running = false;
    }
}

const struct fault_event *fault_events_get(const struct fault_agent *a, int *n)
{
    *n = a->n;
    return a->events;
}

void fault_agent_close(struct fault_agent *a)
{
    if (a) {
        fault_agent_stop(a);
        free(a);
    }
}
