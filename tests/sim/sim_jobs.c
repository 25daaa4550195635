/*
 * Many runs. Each worker is a child process that takes every n-th seed and ends at its first
 * failure, so that neither a crash nor what a failed run leaves behind touches the next one; the
 * parent starts another child behind the seed that failed.
 */
#include "plugin/base/r2_time.h"
#include "sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS      20  /* lines of progress */
#define STEPS_FROM 100 /* ... of so many schedules or more */
#define BLOCKED    20  /* on a machine so busy a seed may take so many times as long */
#define RUN_FAILED 3   /* exit status of a child that has reported its failure; sanitizers use 1 */

struct seat {
    uint64_t at; /* index of the seed under way */
    uint64_t passed, failed;
    struct sim_stats st[SIM_MAX_CLASSES];
    pid_t pid;
};

/* Shared by parent and children. */
struct floor {
    uint64_t done, failed; /* atomic */
    uint64_t since;        /* ns, real time */
    struct seat seat[];
};

static struct sim run;

/* For a build with the leak sanitizer: objects of a dead device are left behind on purpose, a
 * driver is not asked to free them. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:fab_ibv_\n";
}

static int class_of(const struct sim_job *j, uint64_t seed)
{
    return j->cls >= 0 ? j->cls : (int)(seed % (unsigned)sim_class_turns);
}

static void replay_print(int cls, uint64_t seed)
{
    printf("  replay: r2_sim --class %s --seed %llu", sim_classes[cls].name,
           (unsigned long long)seed);
#ifdef R2_TEST_RULES
    for (int r = 0; r < R2_RULE_COUNT; r++) {
        if (r2_rules_off >> r & 1) {
            printf(" --without %s", r2_rule_name((enum r2_rule)r));
        }
    }
#endif
    printf(" --verbose\n");
}

static void failure_print(const struct sim *s)
{
    printf("FAILED class %s seed %llu at %.3f ms: %s\n", sim_classes[s->cls].name,
           (unsigned long long)s->seed, (double)s->failed_at / 1e6, s->why);
    replay_print(s->cls, s->seed);
    fflush(stdout);
}

static uint64_t real_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

/* One schedule more has ended; whoever completes a step says so. */
static void progress(const struct sim_job *j, struct floor *fl, int cls, int bad)
{
    uint64_t failed = __atomic_add_fetch(&fl->failed, (uint64_t)bad, __ATOMIC_SEQ_CST);
    uint64_t done = __atomic_add_fetch(&fl->done, 1, __ATOMIC_SEQ_CST);

    if (j->count < STEPS_FROM || done * STEPS / j->count == (done - 1) * STEPS / j->count) {
        return;
    }
    fprintf(stderr, "%llu of %llu schedules, %llu failed, last class %s, %.0f s\n",
            (unsigned long long)done, (unsigned long long)j->count, (unsigned long long)failed,
            sim_classes[cls].name, (double)(real_now() - fl->since) / 1e9);
}

/* SIGPROF behind so many seconds of the processor, SIGALRM behind BLOCKED times as many for a seed
 * that waits for ever. 0: no limit. */
static void limit_set(unsigned s)
{
    struct itimerval t = {.it_value.tv_sec = s};

    setitimer(ITIMER_PROF, &t, NULL);
    alarm(s * BLOCKED);
}

/* One seed; 0 when it held, and was the same a second time where that is asked for. */
static int seed_run(const struct sim_job *j, uint64_t seed, struct sim_stats *st)
{
    int cls = class_of(j, seed), bad;
    uint64_t hash;

    limit_set(j->limit_s);
    bad = sim_run(&run, cls, seed);
    sim_stats_add(&st[cls], &run.st);
    if (!bad && j->recheck && seed % (unsigned)j->recheck == 0) {
        hash = run.hash;
        bad = sim_run(&run, cls, seed);
        if (!bad && run.hash != hash) {
            sim_fail(&run, "a second run of the same seed went another way");
            bad = 1;
            st[cls].failed++;
        }
    }
    limit_set(0);
    if (bad) {
        failure_print(&run);
    }
    return bad;
}

static void seat_child(const struct sim_job *j, struct floor *fl, struct seat *seat, uint64_t first,
                       uint64_t step)
{
    for (uint64_t i = first; i < j->count; i += step) {
        int bad;
        __atomic_store_n(&seat->at, i, __ATOMIC_SEQ_CST);
        bad = seed_run(j, j->from + i, seat->st);
        progress(j, fl, class_of(j, j->from + i), bad);
        if (bad) {
            seat->failed++;
            fflush(stdout);
            _exit(RUN_FAILED);
        }
        seat->passed++;
    }
    fflush(stdout);
    exit(0);
}

static void seat_start(const struct sim_job *j, struct floor *fl, struct seat *seat, uint64_t first,
                       uint64_t step)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0) {
        perror("r2_sim: fork");
        exit(2);
    }
    if (pid == 0) {
        seat_child(j, fl, seat, first, step);
    }
    seat->pid = pid; /* shared with the child: only the parent writes it */
}

static void crash_note(const struct sim_job *j, struct floor *fl, struct seat *seat, int status)
{
    uint64_t seed = j->from + seat->at;
    int cls = class_of(j, seed), sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (sig == SIGPROF || sig == SIGALRM) {
        printf("FAILED class %s seed %llu: no end within %u s of %s\n", sim_classes[cls].name,
               (unsigned long long)seed, sig == SIGPROF ? j->limit_s : j->limit_s * BLOCKED,
               sig == SIGPROF ? "the processor" : "real time");
    } else if (sig) {
        printf("FAILED class %s seed %llu: %s\n", sim_classes[cls].name, (unsigned long long)seed,
               strsignal(sig));
    } else {
        printf("FAILED class %s seed %llu: exit status %d\n", sim_classes[cls].name,
               (unsigned long long)seed, WEXITSTATUS(status));
    }
    replay_print(cls, seed);
    seat->failed++;
    seat->st[cls].failed++;
    seat->st[cls].runs++;
    fflush(stdout);
    progress(j, fl, cls, 1);
}

static struct seat *seat_of(struct seat *seats, int n, pid_t pid)
{
    for (int i = 0; i < n; i++) {
        if (seats[i].pid == pid) {
            return &seats[i];
        }
    }
    return NULL;
}

uint64_t sim_jobs_run(const struct sim_job *j, struct sim_stats *per_class, uint64_t *passed)
{
    size_t len = sizeof(struct floor) + sizeof(struct seat) * (size_t)j->jobs;
    struct floor *fl = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct seat *seats;
    uint64_t failed = 0, step = (uint64_t)j->jobs;
    int alive = 0, stop = 0, status;
    pid_t pid;

    if (fl == MAP_FAILED) {
        perror("r2_sim: mmap");
        exit(2);
    }
    seats = fl->seat;
    fl->since = real_now();
    for (int i = 0; i < j->jobs && (uint64_t)i < j->count; i++, alive++) {
        seat_start(j, fl, &seats[i], (uint64_t)i, step);
    }
    while (alive > 0 && (pid = wait(&status)) > 0) {
        struct seat *seat = seat_of(seats, j->jobs, pid);
        if (!seat) {
            continue;
        }
        alive--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            continue;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != RUN_FAILED) {
            crash_note(j, fl, seat, status);
        }
        stop |= j->stop_at_first;
        if (!stop && seat->at + step < j->count) {
            seat_start(j, fl, seat, seat->at + step, step);
            alive++;
        } else if (stop) {
            for (int i = 0; i < j->jobs; i++) {
                if (seats[i].pid > 0 && &seats[i] != seat && alive > 0) {
                    kill(seats[i].pid, SIGTERM);
                }
            }
            while (alive > 0 && wait(&status) > 0) {
                alive--;
            }
        }
    }
    *passed = 0;
    for (int i = 0; i < j->jobs; i++) {
        *passed += seats[i].passed;
        failed += seats[i].failed;
        for (int c = 0; c < sim_class_count; c++) {
            sim_stats_add(&per_class[c], &seats[i].st[c]);
        }
    }
    munmap(fl, len);
    return failed;
}
