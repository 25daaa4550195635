/*
 * The conductor of a scenario: a fabric, a process per rank, faults when they are asked for or when
 * so many bytes have moved, and an end in any case. It is the only thread that starts or ends
 * processes.
 */
#include "tests/nccl/rank/nccl_life.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fabric/shm/seg.h"

#define NICS "4"
#define RATE "25MB/s"
#define SLOW                                                                                       \
    "*:* rate 4MB/s" /* so that a collective is not over before its fault, nor before anybody sees \
                        that */
#define EARLY   2000000 /* bytes of the collective that have moved when the fault comes */
#define TURN_NS 1000000
#define GRACE_S 5 /* of the other ranks, after one has failed */

extern char **environ;

struct conduct {
    const struct life_scenario *s;
    struct life_board *board;
    int board_fd;
    char folder[PATH_MAX], fabric[64];
    struct seg_map map;
    pid_t pid[LIFE_RANKS]; /* 0: has ended */
    int alive, code;
    uint64_t kill_at;  /* 0: all is well */
    uint64_t armed_at; /* bytes moved at which it fires; 0: nothing is armed */
    char armed[160];
    bool slow;
};

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    (void)sig;
    stopped = 1;
}

static void failed(struct conduct *c, int code, const char *text)
{
    struct life_board *b = c->board;
    int none = 0;

    if (atomic_compare_exchange_strong(&b->failed, &none, 1)) {
        snprintf(b->text, sizeof(b->text), "%s", text);
        b->code = code;
        atomic_store(&b->failed, 2);
    }
}

static char *softfab_path(const struct conduct *c, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/softfab", c->folder);
    return path;
}

/* Runs softfab with these arguments; what it prints goes to stderr. Its exit code. */
static int softfab(const struct conduct *c, char *const argv[])
{
    posix_spawn_file_actions_t to_stderr;
    int rc, status = 0;
    pid_t pid;

    posix_spawn_file_actions_init(&to_stderr);
    posix_spawn_file_actions_adddup2(&to_stderr, 2, 1);
    rc = posix_spawn(&pid, argv[0], &to_stderr, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&to_stderr);
    if (rc != 0) {
        fprintf(stderr, "r2_nccl_life: %s: %s\n", argv[0], strerror(rc));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int fabric_up(struct conduct *c)
{
    char path[PATH_MAX + 16], hosts[8], dir[SEG_PATH_MAX], why[512] = "";
    char *up[] = {softfab_path(c, path, sizeof(path)),
                  (char *)"up",
                  (char *)"--name",
                  c->fabric,
                  (char *)"--hosts",
                  hosts,
                  (char *)"--nics",
                  (char *)NICS,
                  (char *)"--rate",
                  (char *)RATE,
                  c->s->gpu ? (char *)"--gpu" : NULL,
                  NULL};

    snprintf(hosts, sizeof(hosts), "%d", c->s->ranks);
    if (softfab(c, up) != 0) {
        return -1;
    }
    if (seg_dir_path(c->fabric, dir, sizeof(dir), why, sizeof(why)) != 0 ||
        seg_file_open(&c->map, dir, why, sizeof(why)) != 0) {
        fprintf(stderr, "r2_nccl_life: %s\n", why);
        return -1;
    }
    return 0;
}

static void fabric_down(struct conduct *c)
{
    char path[PATH_MAX + 16];
    char *down[] = {softfab_path(c, path, sizeof(path)), (char *)"down", (char *)"--name",
                    c->fabric, NULL};

    if (c->map.seg) {
        seg_file_close(&c->map);
    }
    softfab(c, down);
}

static uint64_t bytes_moved(struct conduct *c)
{
    uint64_t sum = 0;

    for (int h = 0; h < c->s->ranks; h++) {
        for (int n = 0; n < atoi(NICS); n++) {
            sum += atomic_load(&seg_nic_at(c->map.seg, h, n)->count.tx_bytes);
        }
    }
    return sum;
}

/* --- what ranks ask for --- */

static int rank_kill(struct conduct *c, int rank, char *why, size_t bytes)
{
    if (rank < 0 || rank >= c->s->ranks || c->pid[rank] == 0) {
        snprintf(why, bytes, "there is no rank %d", rank);
        return -1;
    }
    atomic_store(&c->board->place[rank].limit_ns, 0);
    kill(c->pid[rank], SIGKILL);
    while (waitpid(c->pid[rank], NULL, 0) < 0 && errno == EINTR) {
    }
    c->pid[rank] = 0;
    c->alive--;
    atomic_store(&c->board->place[rank].gone, 1);
    return 0;
}

static int rank_stop(struct conduct *c, int rank, char *why, size_t bytes)
{
    if (rank < 0 || rank >= c->s->ranks || c->pid[rank] == 0 || kill(c->pid[rank], SIGSTOP) != 0) {
        snprintf(why, bytes, "there is no rank %d", rank);
        return -1;
    }
    atomic_store(&c->board->place[rank].limit_ns, 0);
    atomic_store(&c->board->place[rank].gone, 1);
    return 0;
}

/* As softfab does it, and at once: a program would be loaded while the collective goes on. */
static int fault_apply(struct conduct *c, const char *text, char *why, size_t bytes)
{
    const struct fab_desc *d = &c->map.seg->head.desc;
    struct fab_fault f;

    if (fab_fault_parse(text, &f, why, bytes) != 0 ||
        seg_fault_apply(&c->map, &f, why, bytes) != 0) {
        return -1;
    }
    for (int h = 0; h < d->hosts; h++) {
        for (int n = 0; n < d->nics; n++) {
            seg_sysfs_state_set(c->map.dir, h, n,
                                atomic_load(&seg_nic_at(c->map.seg, h, n)->link.down) == 0);
        }
    }
    return 0;
}

static int act(struct conduct *c, const char *what, char *why, size_t bytes)
{
    int rank;

    if (sscanf(what, "kill %d", &rank) == 1) {
        return rank_kill(c, rank, why, bytes);
    }
    if (sscanf(what, "stop %d", &rank) == 1) {
        return rank_stop(c, rank, why, bytes);
    }
    if (strncmp(what, "fault ", 6) == 0) {
        return fault_apply(c, what + 6, why, bytes);
    }
    snprintf(why, bytes, "is nothing that the conductor does");
    return -1;
}

static void asked_answer(struct conduct *c)
{
    struct life_board *b = c->board;
    uint32_t number = atomic_load(&b->asked);

    if (number == atomic_load(&b->answered)) {
        return;
    }
    b->answer_rc = 0;
    if (strncmp(b->ask, "arm ", 4) == 0) {
        b->answer_rc = fault_apply(c, SLOW, b->answer, sizeof(b->answer));
        snprintf(c->armed, sizeof(c->armed), "%s", b->ask + 4);
        atomic_store(&b->fired, 0);
        c->armed_at = bytes_moved(c) + EARLY;
        c->slow = true;
    } else {
        if (c->slow) {
            b->answer_rc = fault_apply(c, "*:* rate " RATE, b->answer, sizeof(b->answer));
            c->slow = false;
        }
        b->answer_rc |= act(c, b->ask, b->answer, sizeof(b->answer));
    }
    atomic_store(&b->answered, number);
}

static void armed_fire(struct conduct *c)
{
    uint64_t moved = bytes_moved(c);
    char why[400], text[600];

    atomic_store(&c->board->moved, moved);
    if (c->armed_at == 0 || moved < c->armed_at) {
        return;
    }
    c->armed_at = 0;
    if (act(c, c->armed, why, sizeof(why)) != 0) {
        snprintf(text, sizeof(text), "%s: %s", c->armed, why);
        failed(c, PERF_INTERNAL, text);
    }
    atomic_store(&c->board->moved_fired, bytes_moved(c));
    atomic_store(&c->board->fired, 1);
}

/* --- the ranks --- */

static void rank_become(struct conduct *c, int rank, const char *log_dir, pid_t parent)
{
    char path[PATH_MAX + 16], self[PATH_MAX + 16], host[8], place[64], log[PATH_MAX + 16];
    char *argv[] = {softfab_path(c, path, sizeof(path)),
                    (char *)"exec",
                    (char *)"--host",
                    host,
                    (char *)"--name",
                    c->fabric,
                    (char *)"--",
                    self,
                    (char *)c->s->name,
                    NULL};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(PERF_INTERNAL);
    }
    snprintf(host, sizeof(host), "%d", rank);
    snprintf(self, sizeof(self), "%s/r2_nccl_life", c->folder);
    snprintf(place, sizeof(place), "%d:%d:%d", rank, c->s->ranks, c->board_fd);
    snprintf(log, sizeof(log), "%s/log.%%p", log_dir);
    setenv("R2_NCCL_LIFE_RANK", place, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_NET", "R2", 0);
    setenv("NCCL_DEBUG", "INFO", 1); /* scenarios read it */
    setenv("NCCL_DEBUG_SUBSYS", "INIT,NET,REG", 0);
    setenv("NCCL_DEBUG_FILE", log, 1);
    if (c->s->placed) {
        char coll[PATH_MAX + 32];

        snprintf(coll, sizeof(coll), "%s/libr2coll.so", c->folder);
        setenv("LD_PRELOAD", coll, 1);
        snprintf(coll, sizeof(coll), "%s/libnccl-net-r2.so", c->folder);
        setenv("NCCL_NET_PLUGIN", coll, 0); /* libr2coll.so looks at it before main() */
        setenv("NCCL_R2_PLACE", "on", 1);
        /* With NCCL's own two shadows take 17 s, most of it to clear memory for its buffers. */
        setenv("NCCL_BUFFSIZE", "524288", 0);
        setenv("NCCL_LL128_BUFFSIZE", "655360", 0);
    }
    for (size_t i = 0; i < sizeof(c->s->set) / sizeof(c->s->set[0]) && c->s->set[i]; i++) {
        char name[64];
        const char *is = strchr(c->s->set[i], '=');

        snprintf(name, sizeof(name), "%.*s", (int)(is - c->s->set[i]), c->s->set[i]);
        setenv(name, is + 1, 1);
    }
    execv(argv[0], argv);
    fprintf(stderr, "r2_nccl_life: %s: %s\n", argv[0], strerror(errno));
    _exit(PERF_INTERNAL);
}

static int ranks_start(struct conduct *c, const char *log_dir)
{
    pid_t parent = getpid();

    fflush(NULL);
    for (int r = 0; r < c->s->ranks; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            rank_become(c, r, log_dir, parent);
        }
        if (pid < 0) {
            failed(c, PERF_INTERNAL, "fork failed");
            return -1;
        }
        c->pid[r] = pid;
        c->alive++;
    }
    return 0;
}

static void ranks_reap(struct conduct *c)
{
    for (int r = 0; r < c->s->ranks; r++) {
        char text[200];
        int status;

        if (c->pid[r] == 0 || waitpid(c->pid[r], &status, WNOHANG) != c->pid[r]) {
            continue;
        }
        c->pid[r] = 0;
        c->alive--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            continue;
        }
        snprintf(text, sizeof(text), "rank %d %s %d in '%s'", r,
                 WIFEXITED(status) ? "ended with code" : "was ended by signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
                 c->board->place[r].phase);
        failed(c, PERF_NET, text);
    }
}

static void limits_look(struct conduct *c)
{
    uint64_t now = util_now_ns();

    for (int r = 0; r < c->s->ranks; r++) {
        struct life_place *p = &c->board->place[r];
        uint64_t limit = atomic_load(&p->limit_ns);
        char text[200];

        if (c->pid[r] && limit && now > limit) {
            snprintf(text, sizeof(text), "rank %d: %s has not returned for %d s", r, p->phase,
                     LIFE_LIMIT_S);
            failed(c, PERF_TIMEOUT, text);
        }
    }
    if (stopped) {
        failed(c, PERF_INTERNAL, "interrupted");
    }
    if (atomic_load(&c->board->failed) == 2 && c->kill_at == 0) {
        c->kill_at = now + (stopped ? 0 : GRACE_S * R2_NS_PER_S);
    }
    if (c->kill_at && now >= c->kill_at) {
        for (int r = 0; r < c->s->ranks; r++) {
            if (c->pid[r]) {
                kill(c->pid[r], SIGKILL);
            }
        }
    }
}

static int board_open(struct conduct *c)
{
    c->board_fd = memfd_create("r2_nccl_life", 0);
    if (c->board_fd < 0 || ftruncate(c->board_fd, sizeof(*c->board)) != 0) {
        return -1;
    }
    c->board = mmap(NULL, sizeof(*c->board), PROT_READ | PROT_WRITE, MAP_SHARED, c->board_fd, 0);
    return c->board == MAP_FAILED ? -1 : 0;
}

static int folder_find(struct conduct *c)
{
    ssize_t n = readlink("/proc/self/exe", c->folder, sizeof(c->folder) - 1);

    if (n <= 0) {
        return -1;
    }
    c->folder[n] = '\0';
    *strrchr(c->folder, '/') = '\0';
    return 0;
}

int life_conduct(const struct life_scenario *s, const char *log_dir)
{
    struct conduct c = {.s = s};
    struct sigaction on_stop = {.sa_handler = stop};

    snprintf(c.fabric, sizeof(c.fabric), "r2life%d", (int)getpid());
    if (board_open(&c) != 0 || folder_find(&c) != 0) {
        fprintf(stderr, "r2_nccl_life: %s\n", strerror(errno));
        return PERF_INTERNAL;
    }
    sigaction(SIGINT, &on_stop, NULL);
    sigaction(SIGTERM, &on_stop, NULL);
    if (fabric_up(&c) != 0) {
        return PERF_INTERNAL;
    }
    ranks_start(&c, log_dir);
    while (c.alive > 0) {
        asked_answer(&c);
        armed_fire(&c);
        ranks_reap(&c);
        limits_look(&c);
        nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
    }
    fabric_down(&c);
    if (atomic_load(&c.board->failed) == 2) {
        printf("# error: %s: %s\n", s->name, c.board->text);
        return c.board->code;
    }
    return PERF_OK;
}
