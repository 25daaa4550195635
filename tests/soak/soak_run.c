/* One schedule: a fabric, its processes, the faults, and that nothing is left of them. */
#include "tests/soak/soak.h"
#include "tests/fabric/shm/seg.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    const struct soak_opts *o;
    struct soak_plan plan;
    struct soak_board *board;
    int board_fd, trigger_fd;
    char fabric[32], dir[300];
    struct seg_map map;
    int mapped, up;
    struct soak_injector *in;
    pid_t pid[SOAK_PROCS]; /* 0: has ended */
    int pid_fd[SOAK_PROCS];
    int failed;
    char *why;
    size_t why_len;
};

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
    caught = sig;
}

/* They are let through where the conductor waits, and nowhere else: none is missed between a look
 * and a wait. */
void soak_run_catch(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigset_t set;

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int soak_run_caught(void)
{
    return caught;
}

/* The first reason counts. */
static __attribute__((format(printf, 2, 3))) void run_fail(struct run *r, const char *fmt, ...)
{
    va_list ap;

    if (r->failed) {
        return;
    }
    r->failed = 1;
    va_start(ap, fmt);
    vsnprintf(r->why, r->why_len, fmt, ap);
    va_end(ap);
}

/* Runs the fabric's command; its output goes to the schedule's folder. */
static int softfab(struct run *r, char *const argv[])
{
    char path[340];
    int status = -1;
    pid_t pid;

    snprintf(path, sizeof(path), "%s/fabric.log", r->dir);
    pid = fork();
    if (pid == 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
        dup2(fd, 1);
        dup2(fd, 2);
        execv(r->o->softfab, argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) {
        run_fail(r, "softfab %s ended with status %#x: see %s", argv[1], (unsigned)status, path);
    }
    return status == 0 ? 0 : -1;
}

static int fabric_up(struct run *r)
{
    char hosts[16], nics[16], rate[32], spines[16], path[SEG_PATH_MAX];
    char *argv[17] = {"softfab", "up", "--name", r->fabric, "--hosts", hosts, "--nics", nics};
    int n = 8;

    snprintf(hosts, sizeof(hosts), "%d", r->plan.hosts);
    snprintf(nics, sizeof(nics), "%d", r->plan.nics);
    if (r->plan.rate) {
        snprintf(rate, sizeof(rate), "%lluMB/s", (unsigned long long)r->plan.rate / 1000000);
        argv[n++] = "--rate";
        argv[n++] = rate;
    }
    if (r->plan.crossrail) {
        argv[n++] = "--crossrail";
    }
    if (r->plan.reorder) {
        argv[n++] = "--reorder";
    }
    if (r->plan.spines) {
        snprintf(spines, sizeof(spines), "%d", r->plan.spines);
        argv[n++] = "--spines";
        argv[n++] = spines;
    }
    if (softfab(r, argv) != 0) {
        return -1;
    }
    r->up = 1;
    if (seg_dir_path(r->fabric, path, sizeof(path), r->why, r->why_len) != 0 ||
        seg_file_open(&r->map, path, r->why, r->why_len) != 0) {
        r->failed = 1;
        return -1;
    }
    r->mapped = 1;
    return 0;
}

static int board_make(struct run *r)
{
    r->board_fd = (int)syscall(SYS_memfd_create, "soak", 0u);
    r->trigger_fd = eventfd(0, EFD_NONBLOCK);
    if (r->board_fd < 0 || r->trigger_fd < 0 || ftruncate(r->board_fd, sizeof(*r->board)) != 0) {
        run_fail(r, "board: %s", strerror(errno));
        return -1;
    }
    r->board = mmap(NULL, sizeof(*r->board), PROT_READ | PROT_WRITE, MAP_SHARED, r->board_fd, 0);
    if (r->board == MAP_FAILED) {
        r->board = NULL;
        run_fail(r, "board: %s", strerror(errno));
        return -1;
    }
    atomic_store(&r->board->killed, -1);
    atomic_store(&r->board->ranks, (uint32_t)r->plan.procs);
    return 0;
}

/* In the child: options, output, `softfab exec`. */
static __attribute__((noreturn)) void rank_exec(struct run *r, int i, pid_t parent)
{
    char host[16], rank[16], cls[16], seed[32], board[16], trigger[16], path[340];
    char *argv[] = {"softfab",
                    "exec",
                    "--name",
                    r->fabric,
                    "--host",
                    host,
                    "--",
                    (char *)r->o->self,
                    "--rank",
                    rank,
                    cls,
                    seed,
                    (char *)r->o->plugin,
                    board,
                    trigger,
                    NULL};

    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    snprintf(host, sizeof(host), "%d", i % r->plan.hosts);
    snprintf(rank, sizeof(rank), "%d", i);
    snprintf(cls, sizeof(cls), "%d", r->plan.cls);
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)r->plan.seed);
    snprintf(board, sizeof(board), "%d", r->board_fd);
    snprintf(trigger, sizeof(trigger), "%d", r->trigger_fd);
    for (int k = 0; k < r->plan.nenv; k++) {
        putenv(r->plan.env[k]);
    }
    setenv("NCCL_R2_LOG", "trace", 1); /* each line counts, however many there are */
    /* What mallinfo calls used is what is used: freed memory is in no cache of a thread. */
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0", 1);
    snprintf(path, sizeof(path), "%s/process%d.log", r->dir, i);
    if (!r->o->verbose) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(fd, 1);
        dup2(fd, 2);
    }
    execv(r->o->softfab, argv);
    _exit(127);
}

static int ranks_start(struct run *r)
{
    pid_t parent = getpid();

    fflush(NULL);
    for (int i = 0; i < r->plan.procs; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            rank_exec(r, i, parent);
        }
        if (pid > 0) {
            r->pid_fd[i] = (int)syscall(SYS_pidfd_open, pid, 0);
        }
        if (pid < 0 || r->pid_fd[i] < 0) {
            run_fail(r, "process %d: %s", i, strerror(errno));
            return -1;
        }
        r->pid[i] = pid;
    }
    return 0;
}

static void rank_ended(struct run *r, int i)
{
    struct soak_rank_board *b = &r->board->rank[i];
    int status = 0;

    if (waitpid(r->pid[i], &status, WNOHANG) != r->pid[i]) {
        return;
    }
    r->pid[i] = 0;
    close(r->pid_fd[i]);
    r->pid_fd[i] = -1;
    if (atomic_load(&b->failed)) {
        run_fail(r, "process %d: %s", i, b->why);
    } else if (WIFSIGNALED(status) &&
               !(WTERMSIG(status) == SIGKILL && atomic_load(&r->board->killed) == i)) {
        run_fail(r, "process %d: %s", i, strsignal(WTERMSIG(status)));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        run_fail(r, "process %d: exit status %d: see %s/process%d.log", i, WEXITSTATUS(status),
                 r->dir, i);
    }
}

/* All have ended their last lap. Where an end left early, faults that wait for messages would wait
 * for ever. */
static void late_ones(struct run *r)
{
    if (r->plan.want == SOAK_KILL &&
        atomic_load(&r->board->in_lap[r->plan.laps - 1]) >= atomic_load(&r->board->ranks)) {
        atomic_store(&r->board->through, 1);
    }
}

static int alive(const struct run *r)
{
    int n = 0;

    for (int i = 0; i < r->plan.procs; i++) {
        n += r->pid[i] != 0;
    }
    return n;
}

static void supervise(struct run *r)
{
    uint64_t end = soak_now() + r->o->limit_s * 1000ull * SOAK_MS, word;

    while (alive(r) && !r->failed) {
        struct pollfd p[SOAK_PROCS + 1] = {{.fd = r->trigger_fd, .events = POLLIN}};
        int64_t next;
        uint64_t now, left;
        struct timespec ts;
        sigset_t none;

        late_ones(r);
        next = soak_inject_step(r->in, 0);
        now = soak_now();
        left = end > now ? end - now : 0;
        if (soak_inject_error(r->in)) {
            run_fail(r, "%s", soak_inject_error(r->in));
        }
        if (soak_inject_left(r->in) == 0) {
            atomic_store(&r->board->over, 1);
        }
        if (next >= 0 && (uint64_t)next < left) {
            left = (uint64_t)next;
        }
        for (int i = 0; i < r->plan.procs; i++) {
            p[i + 1] = (struct pollfd){.fd = r->pid[i] ? r->pid_fd[i] : -1, .events = POLLIN};
        }
        ts = (struct timespec){(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
        sigemptyset(&none);
        if (ppoll(p, (nfds_t)r->plan.procs + 1, &ts, &none) == 0 && soak_now() >= end) {
            run_fail(r, "no end within %u s", r->o->limit_s);
        }
        if (caught) {
            run_fail(r, "signal %d", (int)caught);
        }
        if ((p[0].revents & POLLIN) && read(r->trigger_fd, &word, sizeof(word)) != sizeof(word)) {
            run_fail(r, "trigger: %s", strerror(errno));
        }
        for (int i = 0; i < r->plan.procs; i++) {
            if (p[i + 1].revents) {
                rank_ended(r, i);
            }
        }
    }
}

static void ranks_end(struct run *r)
{
    for (int i = 0; i < r->plan.procs; i++) {
        if (r->pid[i] == 0) {
            continue;
        }
        kill(r->pid[i], SIGKILL);
        waitpid(r->pid[i], NULL, 0);
        close(r->pid_fd[i]);
    }
}

static void judge(struct run *r)
{
    uint32_t done = atomic_load(&r->board->done), false_ones = 0, wrong = 0;

    for (int i = 0; i < r->plan.procs; i++) {
        false_ones += atomic_load(&r->board->rank[i].false_switches);
        wrong += atomic_load(&r->board->rank[i].wrong);
    }
    if (r->plan.want == SOAK_FINISH && done != r->plan.total) {
        run_fail(r, "%u messages were received, %u sent", done, r->plan.total);
    }
    if (soak_inject_left(r->in)) {
        run_fail(r, "%d faults were not injected", soak_inject_left(r->in));
    }
    if (false_ones) {
        run_fail(r, "%u false switches", false_ones);
    }
    if (wrong) {
        run_fail(r, "%u verdicts blame what nothing has happened to", wrong);
    }
}

static void count(const struct run *r, struct soak_stats *st)
{
    const struct soak_board *b = r->board;
    uint32_t resorts = 0;

    st->conns += (uint64_t)(r->plan.conns * r->plan.laps);
    st->messages += atomic_load(&b->done);
    soak_inject_count(r->in, st->faults);
    for (int i = 0; i < r->plan.procs; i++) {
        const struct soak_rank_board *k = &b->rank[i];
        st->bytes += atomic_load(&k->bytes);
        st->switches += atomic_load(&k->switches);
        st->false_switches += atomic_load(&k->false_switches);
        st->wrong += atomic_load(&k->wrong);
        st->retransmits += atomic_load(&k->retransmits);
        st->returns += atomic_load(&k->returns);
        st->soft += atomic_load(&k->soft);
        st->unproven += atomic_load(&k->unproven);
        st->errors += atomic_load(&k->errors);
        resorts += atomic_load(&k->resorts);
        st->stall = atomic_load(&k->stall) > st->stall ? atomic_load(&k->stall) : st->stall;
        st->ended = atomic_load(&k->ended) > st->ended ? atomic_load(&k->ended) : st->ended;
        st->heap_growth = atomic_load(&k->heap_growth) > st->heap_growth
                              ? atomic_load(&k->heap_growth)
                              : st->heap_growth;
    }
    st->resorts += resorts != 0;
}

static int files_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static void fabric_down(struct run *r)
{
    char path[SEG_PATH_MAX], why[200];
    char *argv[] = {"softfab", "down", "--name", r->fabric, NULL};

    if (r->mapped) {
        seg_file_close(&r->map);
    }
    if (!r->up) {
        return;
    }
    softfab(r, argv);
    if (seg_dir_path(r->fabric, path, sizeof(path), why, sizeof(why)) != 0 ||
        access(path, F_OK) == 0) {
        run_fail(r, "the fabric's folder is still there");
    }
}

static void left_over(struct run *r, int files)
{
    if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD) {
        run_fail(r, "a process is left");
    }
    if (files_open() != files) {
        run_fail(r, "%d files are open, %d were before", files_open(), files);
    }
}

static void dir_remove(const struct run *r)
{
    static const char *const names[] = {"fabric.log",   "faults.log",   "process0.log",
                                        "process1.log", "process2.log", "process3.log"};
    char path[340];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", r->dir, names[i]);
        unlink(path);
    }
    rmdir(r->dir);
}

static void injector_make(struct run *r)
{
    char log[340];

    snprintf(log, sizeof(log), "%s/faults.log", r->dir);
    r->in = soak_inject_new(&r->plan, r->board, &r->map, r->pid, log);
    if (r->in == NULL) {
        run_fail(r, "memory");
    }
}

int soak_run(const struct soak_opts *o, int cls, uint64_t seed, struct soak_stats *st, char *why,
             size_t why_len)
{
    static struct run run;
    struct run *r = &run;
    int files = files_open();
    uint64_t t0 = soak_now();

    *r = (struct run){.o = o, .board_fd = -1, .trigger_fd = -1, .why = why, .why_len = why_len};
    soak_plan_draw(&r->plan, cls, seed);
    snprintf(r->fabric, sizeof(r->fabric), "soak%d", (int)getpid());
    snprintf(r->dir, sizeof(r->dir), "%s/%s-%llu", o->dir, soak_classes[cls].name,
             (unsigned long long)seed);
    mkdir(r->dir, 0755);
    if (o->verbose) {
        soak_plan_print(&r->plan);
    }
    if (board_make(r) == 0 && fabric_up(r) == 0) {
        injector_make(r);
        if (r->in) {
            soak_inject_step(r->in, 1);
        }
        if (r->in && ranks_start(r) == 0) {
            supervise(r);
        }
        ranks_end(r);
        judge(r);
        count(r, st);
    }
    soak_inject_free(r->in);
    fabric_down(r);
    if (r->board) {
        munmap(r->board, sizeof(*r->board));
    }
    close(r->board_fd);
    close(r->trigger_fd);
    left_over(r, files);
    if (!r->failed && !o->keep) {
        dir_remove(r);
    }
    st->runs++;
    st->failed += (unsigned)r->failed;
    t0 = (soak_now() - t0) / SOAK_MS;
    st->ms += t0;
    st->longest_ms = t0 > st->longest_ms ? t0 : st->longest_ms;
    return r->failed;
}
