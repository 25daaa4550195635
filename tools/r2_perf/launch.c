#include "tools/r2_perf/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/r2_perf/outfile.h"
#include "tools/r2_perf/util.h"
#include "tools/r2_perf/watch.h"

/* After the first bad end, the other ranks get this long to report and go. */
#define LAUNCH_GRACE_S 6

extern char **environ;

struct launch_child {
    pid_t pid; /* 0: ended */
    int code;  /* exit code once ended */
};

struct launch {
    const struct opts *o;
    int nranks, listen_fd, board_fd, port;
    uint64_t key;
    char self[PATH_MAX], softfab[PATH_MAX + 16], fabric[128];
    bool use_fabric, own_fabric;
    struct board *board;
    struct launch_child children[BOOT_RANKS_MAX];
    int alive;
    char death[200];  /* the first rank that was killed, not by us */
    bool killing;     /* we have sent SIGKILL: deaths from now on are our doing */
    uint64_t kill_at; /* 0: all is well */
    sigset_t signals, before;
};

/* Run the fabric's command and wait for it; its exit status, -1 when it could not be run. */
static int launch_softfab_run(struct launch *l, char *const argv[], bool quiet)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid;
    int status = -1;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    if (quiet) {
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    }
    int rc = posix_spawnp(&pid, l->softfab, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (rc != 0) {
        fprintf(stderr, "%s: %s cannot be run: %s\n", program_invocation_short_name, l->softfab,
                strerror(rc));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Asks the fabric's command, which @words call, whether the fabric has what the faults name: that
 * is to be known before the run, not in the middle of it. PERF_OK, else the exit code: the command
 * has said why. */
static int launch_faults_check(struct launch *l, char *const *words)
{
    char *check[OPTS_FAULTS_MAX + 12];
    int n = 0, first;
    while (*words) {
        check[n++] = *words++;
    }
    first = n;
    for (int i = 0; i < l->o->nfaults; i++) {
        if (!l->o->faults[i].command) {
            check[n++] = (char *)l->o->faults[i].what;
        }
    }
    check[n] = NULL;
    return n == first || launch_softfab_run(l, check, false) == 0 ? PERF_OK : PERF_USAGE;
}

/* The fabric of this run, unless it is up; its faults are looked at. PERF_OK, else the exit code
 * after a message. */
static int launch_fabric_up(struct launch *l)
{
    char hosts[16], nics[16], spines[16];
    char *status[] = {l->softfab, "status", "--name", l->fabric, NULL};
    char *up[20] = {l->softfab, "up", "--name", l->fabric, "--hosts", hosts, "--nics", nics};
    char *there[] = {l->softfab, "fault", "--name", l->fabric, "--check", NULL};
    char *made[] = {l->softfab, "fault", "--check",  "--hosts", hosts,
                    "--nics",   nics,    "--spines", spines,    NULL};
    int n = 8, rc;
    snprintf(hosts, sizeof(hosts), "%d", l->o->hosts);
    snprintf(nics, sizeof(nics), "%d", l->o->nics);
    snprintf(spines, sizeof(spines), "%d", l->o->spines);
    if (l->o->fabric && launch_softfab_run(l, status, true) == 0) {
        return launch_faults_check(l, there);
    }
    if (!l->o->nics) {
        fprintf(stderr, "%s: there is no fabric %s; give --nics N to start one\n",
                program_invocation_short_name, l->fabric);
        return PERF_INTERNAL;
    }
    if (!l->o->spines) {
        made[7] = NULL;
    }
    rc = launch_faults_check(l, made);
    if (rc != PERF_OK) {
        return rc;
    }
    if (l->o->rate) {
        up[n++] = "--rate";
        up[n++] = (char *)l->o->rate;
    }
    if (l->o->latency) {
        up[n++] = "--latency";
        up[n++] = (char *)l->o->latency;
    }
    if (l->o->crossrail) {
        up[n++] = "--crossrail";
    }
    if (l->o->spines) {
        up[n++] = "--spines";
        up[n++] = spines;
    }
    rc = launch_softfab_run(l, up, false);
    if (rc > 2) { /* of 1 and 2 it has said why */
        fprintf(stderr, "%s: 'softfab up --name %s' ended with status %d\n",
                program_invocation_short_name, l->fabric, rc);
    }
    l->own_fabric = rc == 0;
    return rc == 0 ? PERF_OK : rc == 2 ? PERF_USAGE : PERF_INTERNAL;
}

/* Whether the ranks that options name will be there. Else said. */
static bool launch_ranks_fit(const struct opts *o)
{
    int nranks = o->hosts * o->ranks_per_host;
    bool root = !algo_info_get(o->op)->rooted || o->root_rank < nranks;
    bool late = !o->late_ns || o->late_rank < nranks;
    if (!root || !late) {
        fprintf(stderr,
                "%s: option --%s: there is no rank %d: %d hosts with %d each have 0 to %d\n",
                program_invocation_short_name, root ? "late" : "root",
                root ? o->late_rank : o->root_rank, o->hosts, o->ranks_per_host, nranks - 1);
    }
    return root && late;
}

/* A picture that cannot be written is found out before the run. */
static bool launch_plot_fits(const struct opts *o)
{
    char *folder = o->plot ? util_str_copy(o->plot) : NULL;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    struct stat st;
    bool fits = true;
    if (slash) {
        slash[slash == folder] = '\0';
    }
    if (o->plot) {
        errno = 0;
        fits = stat(o->plot, &st) == 0 ? !S_ISDIR(st.st_mode) && access(o->plot, W_OK) == 0
                                       : access(slash ? folder : ".", W_OK) == 0;
        errno = fits || errno ? errno : EISDIR;
    }
    if (!fits) {
        fprintf(stderr, "%s: --plot %s: %s\n", program_invocation_short_name, o->plot,
                strerror(errno));
    }
    free(folder);
    return fits;
}

/* So is a trace. */
static bool launch_trace_fits(const struct opts *o)
{
    if (o->trace && outfile_check(o->trace) != 0) {
        fprintf(stderr, "%s: --trace %s: %s\n", program_invocation_short_name, o->trace,
                strerror(errno));
        return false;
    }
    return true;
}

static void launch_fabric_down(struct launch *l)
{
    char *down[] = {l->softfab, "down", "--name", l->fabric, NULL};
    if (l->own_fabric && launch_softfab_run(l, down, false) != 0) {
        fprintf(stderr, "%s: 'softfab down --name %s' did not succeed\n",
                program_invocation_short_name, l->fabric);
    }
}

static int launch_paths_set(struct launch *l)
{
    ssize_t n = readlink("/proc/self/exe", l->self, sizeof(l->self) - 1);
    if (n <= 0) {
        return -1;
    }
    l->self[n] = '\0';
    if (l->o->softfab) {
        snprintf(l->softfab, sizeof(l->softfab), "%s", l->o->softfab);
    } else {
        snprintf(l->softfab, sizeof(l->softfab), "%.*s/softfab",
                 (int)(strrchr(l->self, '/') - l->self), l->self);
    }
    l->use_fabric = l->o->fabric || l->o->nics;
    if (l->o->fabric) {
        snprintf(l->fabric, sizeof(l->fabric), "%s", l->o->fabric);
    } else {
        snprintf(l->fabric, sizeof(l->fabric), "r2perf%d", (int)getpid());
    }
    return 0;
}

/* What ranks need to find each other: a socket that already listens, so that nobody has to wait for
 * rank 0. */
static int launch_meeting_open(struct launch *l)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    l->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    l->board_fd = board_create();
    if (l->listen_fd < 0 || l->board_fd < 0 ||
        bind(l->listen_fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(l->listen_fd, BOOT_RANKS_MAX) != 0 ||
        getsockname(l->listen_fd, (struct sockaddr *)&at, &n) != 0 ||
        getrandom(&l->key, sizeof(l->key), 0) != sizeof(l->key)) {
        return -1;
    }
    l->port = ntohs(at.sin_port);
    l->board = board_map(l->board_fd);
    return l->board ? 0 : -1;
}

/* In the child: become the rank. Does not return. */
static void launch_child_exec(struct launch *l, int rank, pid_t parent)
{
    char place[160], host[16], name[16];
    char **argv = util_mem_alloc((size_t)l->o->argc + 16, sizeof(*argv));
    int n = 0, h = rank / l->o->ranks_per_host;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(PERF_INTERNAL); /* it died before it could take us along */
    }
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    snprintf(host, sizeof(host), "%d", h);
    snprintf(place, sizeof(place), "%d:%d:%d:%d:%d:%d:%d:%llu", rank, l->nranks, h,
             rank % l->o->ranks_per_host, l->listen_fd, l->board_fd, l->port,
             (unsigned long long)l->key);
    setenv("R2_PERF_CHILD", place, 1);
    snprintf(name, sizeof(name), "%d", rank);
    setenv("RANK", name, 1); /* as launchers of jobs do */
    if (l->use_fabric) {
        char *wrap[] = {l->softfab, "exec", "--host", host, "--name", l->fabric, "--"};
        setenv("R2_PERF_FABRIC", l->fabric, 1);
        setenv("R2_PERF_SOFTFAB", l->softfab, 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0); /* hosts of a software fabric are one machine */
        for (size_t i = 0; i < sizeof(wrap) / sizeof(wrap[0]); i++) {
            argv[n++] = wrap[i];
        }
    }
    argv[n++] = l->self;
    for (int i = 1; i < l->o->argc; i++) {
        argv[n++] = l->o->argv[i];
    }
    bool given = false;
    for (int i = 1; i < l->o->argc; i++) {
        given = given || algo_op_find(l->o->argv[i]) == l->o->op;
    }
    if (!given) { /* the operation came from the name we were called by, which exec loses */
        argv[n++] = (char *)algo_info_get(l->o->op)->name;
    }
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, argv[0], strerror(errno));
    _exit(127);
}

static int launch_children_start(struct launch *l)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int r = 0; r < l->nranks; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            launch_child_exec(l, r, parent);
        }
        if (pid < 0) {
            fprintf(stderr, "%s: fork: %s\n", program_invocation_short_name, strerror(errno));
            return -1;
        }
        setpgid(pid, pid);
        l->children[r] = (struct launch_child){.pid = pid};
        l->alive++;
    }
    close(l->listen_fd);
    return 0;
}

static void launch_children_kill(struct launch *l)
{
    l->killing = true;
    for (int r = 0; r < l->nranks; r++) {
        if (l->children[r].pid > 0) {
            kill(-l->children[r].pid, SIGKILL);
        }
    }
}

/* One rank has ended with wait status @status. */
static void launch_child_note(struct launch *l, int rank, int status)
{
    struct launch_child *c = &l->children[rank];
    char text[200] = "";
    int sig = WIFSIGNALED(status)         ? WTERMSIG(status)
              : WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128
                                          : 0;
    bool expected = l->kill_at != 0;
    snprintf(text, sizeof(text), "rank %d (process %d on h%d) ", rank, (int)c->pid,
             rank / l->o->ranks_per_host);
    size_t n = strlen(text);
    c->pid = 0;
    c->code = sig ? PERF_NET : WEXITSTATUS(status);
    l->alive--;
    if (c->code == PERF_OK) {
        return;
    }
    if (sig) {
        snprintf(text + n, sizeof(text) - n, "was killed by signal %d (%s)", sig, strsignal(sig));
    } else {
        snprintf(text + n, sizeof(text) - n, "ended with exit code %d", c->code);
    }
    bool told = c->code == PERF_RESULT || c->code == PERF_USAGE || (!sig && rank == 0);
    if (sig && !l->killing && !l->death[0]) {
        snprintf(l->death, sizeof(l->death), "%s", text);
    }
    if (!expected && !told) {
        board_error_post(l->board, c->code == 127 ? PERF_INTERNAL : PERF_NET, text);
    }
    if (!expected && c->code != PERF_RESULT) {
        l->kill_at = util_now_ns() + LAUNCH_GRACE_S * R2_NS_PER_S;
    }
}

static void launch_children_reap(struct launch *l)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int r = 0; r < l->nranks; r++) {
            if (l->children[r].pid == pid) {
                launch_child_note(l, r, status);
            }
        }
    }
}

/* Wait for signals: a child's end, a request to stop, or the time when patience is over. */
static void launch_children_wait(struct launch *l)
{
    while (l->alive > 0) {
        uint64_t now = util_now_ns();
        struct timespec wait = {.tv_sec = 3600};
        if (l->kill_at) {
            uint64_t left = l->kill_at > now ? l->kill_at - now : 0;
            wait = (struct timespec){(time_t)(left / R2_NS_PER_S), (long)(left % R2_NS_PER_S)};
        }
        int sig = sigtimedwait(&l->signals, NULL, &wait);
        if (sig == SIGINT || sig == SIGTERM) {
            board_error_post(l->board, PERF_INTERNAL, sig == SIGINT ? "interrupted" : "terminated");
            launch_children_kill(l);
            l->kill_at = util_now_ns() + R2_NS_PER_S;
        }
        launch_children_reap(l);
        if (l->kill_at && util_now_ns() >= l->kill_at) {
            launch_children_kill(l);
            l->kill_at = util_now_ns() + R2_NS_PER_S;
        }
    }
}

static int launch_result_get(struct launch *l)
{
    bool error = board_error_seen(l->board);
    if (l->death[0]) {
        bool more = error && strcmp(l->death, l->board->text) != 0;
        printf("# error: %s%s%s\n", l->death, more ? "; then " : "", more ? l->board->text : "");
        return PERF_NET;
    }
    if (error) {
        watch_error_print(l->board);
        return l->board->code;
    }
    for (int r = 0; r < l->nranks; r++) {
        if (l->children[r].code) {
            return l->children[r].code;
        }
    }
    return PERF_OK;
}

static int launch_ranks_run(struct launch *l)
{
    if (launch_children_start(l) != 0) {
        launch_children_kill(l);
    }
    launch_children_wait(l);
    return launch_result_get(l);
}

int launch_run(const struct opts *o)
{
    if (!launch_ranks_fit(o) || !launch_plot_fits(o) || !launch_trace_fits(o)) {
        return PERF_USAGE;
    }
    struct launch *l = util_mem_alloc(1, sizeof(*l));
    l->o = o;
    l->nranks = o->hosts * o->ranks_per_host;
    sigemptyset(&l->signals);
    sigaddset(&l->signals, SIGCHLD);
    sigaddset(&l->signals, SIGINT);
    sigaddset(&l->signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &l->signals, &l->before);
    int code = PERF_INTERNAL;
    if (launch_paths_set(l) != 0 || launch_meeting_open(l) != 0) {
        fprintf(stderr, "%s: cannot prepare the start of ranks: %s\n",
                program_invocation_short_name, strerror(errno));
    } else {
        code = l->use_fabric ? launch_fabric_up(l) : PERF_OK;
        code = code == PERF_OK ? launch_ranks_run(l) : code;
        launch_fabric_down(l);
    }
    free(l);
    return code;
}
