/*
 * What connections cost a process in which nothing is under way: CPU time, how often its service
 * thread wakes and what for, and how often the workers of its devices do.
 */
#include "tests/bench/pair.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_NS (4000 * PAIR_NS_MS) /* probes of new NIC pairs, weights, rows of statistics */
#define IDLE_NS   (4000 * PAIR_NS_MS)
#define FDS       4096

/* What a wake-up of the service thread was for, by the descriptor that had something. */
enum cause { DEADLINE, JOB, CHANNEL, REGISTRY, DEVICE, CAUSES };

static const char *const causes[CAUSES] = {"deadline", "job", "channel", "registry", "device"};
static _Atomic uint64_t wakes[CAUSES];
static uint8_t cause_of_fd[FDS]; /* +1; the service thread's */

static enum cause cause_get(int fd)
{
    char path[64], to[256];
    ssize_t n;

    if (fd < 0 || fd >= FDS) {
        return CHANNEL;
    }
    if (cause_of_fd[fd] == 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, to, sizeof(to) - 1);
        to[n > 0 ? n : 0] = '\0';
        cause_of_fd[fd] = 1 + (strcmp(to, "anon_inode:[eventfd]") == 0     ? JOB
                               : strcmp(to, "anon_inode:[eventpoll]") == 0 ? CHANNEL
                               : strcmp(to, "anon_inode:inotify") == 0     ? REGISTRY
                                                                           : DEVICE);
    }
    return (enum cause)(cause_of_fd[fd] - 1);
}

static bool is_service(void)
{
    static _Thread_local int8_t is; /* 0: not asked */
    char name[16] = "";

    if (is == 0) { /* a thread has its name before it waits for the first time */
        pthread_getname_np(pthread_self(), name, sizeof(name));
        is = strcmp(name, "r2-service") == 0 ? 1 : -1;
    }
    return is > 0;
}

/* Stands before the C library's. The thread's own eventfd comes first: who rings it has ended a
 * job, or woken a connection; those of devices come after it. */
__attribute__((visibility("default"))) int ppoll(struct pollfd *fds, nfds_t n,
                                                 const struct timespec *limit, const sigset_t *mask)
{
    static int (*_Atomic real)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    int (*call)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) =
        atomic_load_explicit(&real, memory_order_acquire);
    enum cause cause = DEADLINE;
    int rc;

    if (call == NULL) {
        *(void **)&call = dlsym(RTLD_NEXT, "ppoll");
        atomic_store_explicit(&real, call, memory_order_release); /* pairs with the load above */
    }
    rc = call(fds, n, limit, mask);
    if (is_service()) {
        for (nfds_t i = 0; rc > 0 && i < n; i++) {
            if (fds[i].revents) {
                cause = i == 0 ? JOB : i > 2 ? DEVICE : cause_get(fds[i].fd);
                break;
            }
        }
        atomic_fetch_add_explicit(&wakes[cause], 1, memory_order_relaxed);
    }
    return rc;
}

/* Of all threads whose name begins with @name: CPU time in ms, and how often they went to sleep. */
static void threads_read(const char *name, double *ms, double *sleeps)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;

    *ms = *sleeps = 0;
    NEED(d, "no /proc");
    while ((e = readdir(d)) != NULL) {
        unsigned long long ns = 0, n = 0;
        char path[300], line[128] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (f == NULL) {
            continue;
        }
        if (fgets(line, sizeof(line), f) && strncmp(line, "Name:\t", 6) == 0 &&
            strncmp(line + 6, name, strlen(name)) == 0) {
            while (fgets(line, sizeof(line), f) &&
                   sscanf(line, "voluntary_ctxt_switches: %llu", &n) != 1) {
            }
            *sleeps += (double)n;
            fclose(f);
            snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
            f = fopen(path, "r");
            NEED(f && fscanf(f, "%llu", &ns) == 1, "%s", path);
            *ms += (double)ns / 1e6;
        }
        fclose(f);
    }
    closedir(d);
}

struct sample {
    double cpu, service, workers; /* ms */
    double sleeps, jobs;          /* of the service thread, of the workers */
    double wakes[CAUSES];
};

static void sample_take(struct sample *s)
{
    s->cpu = pair_cpu_ms();
    threads_read("r2-service", &s->service, &s->sleeps);
    threads_read("r2-verbs", &s->workers, &s->jobs);
    for (int i = 0; i < CAUSES; i++) {
        s->wakes[i] = (double)atomic_load_explicit(&wakes[i], memory_order_relaxed);
    }
}

static void sample_put(const struct sample *a, const struct sample *b, double s)
{
    printf("\"cpu_ms_per_s\": %.3f, \"service_ms_per_s\": %.3f, \"workers_ms_per_s\": %.3f, ",
           (b->cpu - a->cpu) / s, (b->service - a->service) / s, (b->workers - a->workers) / s);
    printf("\"service_sleeps_per_s\": %.2f, \"worker_sleeps_per_s\": %.2f, \"wakes_per_s\": {",
           (b->sleeps - a->sleeps) / s, (b->jobs - a->jobs) / s);
    for (int i = 0; i < CAUSES; i++) {
        printf("%s\"%s\": %.2f", i ? ", " : "", causes[i], (b->wakes[i] - a->wakes[i]) / s);
    }
    printf("}");
}

void pair_idle_run(int n)
{
    void **comm = calloc((size_t)n, sizeof(*comm));
    struct sample mine[2], theirs[2];
    uint64_t from;
    double s;

    NEED(comm, "out of memory");
    pair_connect(n, 0, comm);
    drv_barrier();
    pair_rest(SETTLE_NS);
    from = pair_now();
    sample_take(&mine[0]);
    pair_rest(IDLE_NS);
    sample_take(&mine[1]);
    s = (double)(pair_now() - from) / 1e9;
    drv_swap(mine, theirs, sizeof(mine));
    if (drv.side) {
        printf("{\"connections\": %d, \"nics\": %d, \"sender\": {", n, drv.ndev);
        sample_put(&theirs[0], &theirs[1], s);
        printf("}, \"receiver\": {");
        sample_put(&mine[0], &mine[1], s);
        printf("}}\n");
    }
    pair_close(n, comm);
    drv_barrier();
    free(comm);
}
