/*
 * abi_driver [--plugin FILE] [--abi N] [--softfab FILE --fabric NAME | --listen :PORT | --connect
 * HOST:PORT]
 *            [--without CASE] [CASE...]
 *
 * Drives a plugin's table of version N, without it the newest one, as the NCCL of that version
 * does, case by case; without names all of them that are about this version, but the one of
 * --without and those that only run by name. With a fabric every case runs in processes of its own
 * under `softfab exec`, side 0 on host 0 and side 1 on host 1. With --listen here and --connect
 * there, side 0 and side 1 run on two machines: cases with two sides only. Last line "N passed, N
 * failed"; exit status 0 when none failed. DRV_LOG=1 shows the plugin's log.
 */
#include "tests/abi/drv.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct drv_case *const tables[] = {drv_cases_init, drv_cases_data, drv_cases_life,
                                                drv_cases_version, drv_cases_gpu};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

struct options {
    char self[PATH_MAX], plugin[PATH_MAX], softfab[PATH_MAX];
    const char *fabric, *without, *listen, *connect;
    int listener, abi;
};

static const struct drv_case *case_find(const char *name)
{
    for (size_t t = 0; t < TABLES; t++) {
        for (const struct drv_case *c = tables[t]; c->name; c++) {
            if (strcmp(c->name, name) == 0) {
                return c;
            }
        }
    }
    return NULL;
}

/* --- one side --- */

static void too_long(int sig)
{
    static const char text[] = ": not through within its limit\n";
    ssize_t n = write(2, drv.name, strlen(drv.name));

    n = write(2, text, sizeof(text) - 1);
    (void)n;
    _exit(1);
}

/* argv: --side CASE SIDE FD */
static int side_run(const struct options *o, char **argv)
{
    const struct drv_case *c = case_find(argv[0]);

    drv.name = argv[0];
    drv.side = atoi(argv[1]);
    drv.peer = atoi(argv[2]);
    drv.plugin = o->plugin;
    drv.abi = o->abi;
    NEED(c != NULL, "no such case");
    signal(SIGALRM, too_long);
    alarm((unsigned)c->limit_s);
    if (!getenv("DRV_NO_INIT")) {
        drv_load();
        drv_init();
    }
    c->run();
    return 0;
}

/* --- all sides --- */

/* @fd: both ends of the socket pair; keeping the other's would hide its end from us. */
static pid_t side_start(const struct options *o, const struct drv_case *c, int side, const int *fd)
{
    char host[16], number[16], peer[16], abi[16];
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    snprintf(host, sizeof(host), "%d", side);
    snprintf(number, sizeof(number), "%d", side);
    snprintf(peer, sizeof(peer), "%d", fd[side]);
    snprintf(abi, sizeof(abi), "%d", o->abi);
    if (c->sides == 2) {
        close(fd[1 - side]);
    }
    setenv("R2_PLUGIN", o->plugin, 1);
    if (c->env) {
        char *text = strdup(c->env);
        putenv(text);
    }
    if (o->fabric) {
        execl(o->softfab, o->softfab, "exec", "--name", o->fabric, "--host", host, "--", o->self,
              "--abi", abi, "--side", c->name, number, peer, (char *)NULL);
    } else {
        execl(o->self, o->self, "--abi", abi, "--side", c->name, number, peer, (char *)NULL);
    }
    fprintf(stderr, "%s: %s\n", o->fabric ? o->softfab : o->self, strerror(errno));
    _exit(127);
}

/* Our side of a case whose other side runs on another machine. 1 when it passed here. */
static int case_run_half(const struct options *o, const struct drv_case *c)
{
    int side = o->connect != NULL, fd[2] = {-1, -1}, status = 1;
    pid_t pid;

    fd[side] = side ? drv_peer_connect(o->connect) : drv_peer_accept(o->listener);
    if (fd[side] < 0) {
        fprintf(stderr, "%s: the other side does not come\n", c->name);
        return 0;
    }
    pid = side_start(o, c, side, fd);
    close(fd[side]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* 1 when the case passed. A side that fails takes the other with it: its socket ends. */
static int case_run(const struct options *o, const struct drv_case *c)
{
    int fd[2] = {-1, -1}, status, passed = 1;
    pid_t pid[2];

    if (c->sides == 2 && socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0) {
        perror("socketpair");
        exit(2);
    }
    for (int i = 0; i < c->sides; i++) {
        pid[i] = side_start(o, c, i, fd);
        if (pid[i] < 0) {
            perror("fork");
            exit(2);
        }
    }
    for (int i = 0; i < c->sides; i++) {
        close(fd[i]);
    }
    for (int i = 0; i < c->sides; i++) {
        if (waitpid(pid[i], &status, 0) != pid[i] || !WIFEXITED(status) ||
            WEXITSTATUS(status) != 0) {
            if (WIFSIGNALED(status)) {
                fprintf(stderr, "%s side %d: killed by signal %d\n", c->name, i, WTERMSIG(status));
            }
            passed = 0;
        }
    }
    return passed;
}

static int case_report(const struct options *o, const struct drv_case *c)
{
    uint64_t t0 = drv_now_ms();
    int passed = o->listen || o->connect ? case_run_half(o, c) : case_run(o, c);

    printf("%s %s (%u ms)\n", passed ? "passed" : "FAILED", c->name, (unsigned)(drv_now_ms() - t0));
    fflush(stdout);
    return passed;
}

static void misuse(const char *what)
{
    fprintf(
        stderr,
        "abi_driver: %s\nusage: abi_driver [--plugin FILE] [--abi N] [--softfab FILE --fabric NAME | --listen :PORT | "
        "--connect HOST:PORT] "
        "[--without CASE] [CASE...]\n",
        what);
    exit(2);
}

static int options_read(struct options *o, int argc, char **argv)
{
    const char *plugin = getenv("R2_PLUGIN"), *softfab = NULL;
    ssize_t n = readlink("/proc/self/exe", o->self, sizeof(o->self) - 1);
    int i;

    o->self[n > 0 ? n : 0] = '\0';
    for (i = 1; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--plugin") == 0) {
            plugin = argv[i + 1];
        } else if (strcmp(argv[i], "--softfab") == 0) {
            softfab = argv[i + 1];
        } else if (strcmp(argv[i], "--fabric") == 0) {
            o->fabric = argv[i + 1];
        } else if (strcmp(argv[i], "--listen") == 0) {
            o->listen = argv[i + 1];
        } else if (strcmp(argv[i], "--connect") == 0) {
            o->connect = argv[i + 1];
        } else if (strcmp(argv[i], "--without") == 0) {
            o->without = argv[i + 1];
        } else if (strcmp(argv[i], "--abi") == 0) {
            o->abi = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--side") == 0) {
            break;
        } else {
            misuse("no such option");
        }
    }
    if (plugin == NULL || realpath(plugin, o->plugin) == NULL) {
        misuse("which plugin? --plugin FILE or R2_PLUGIN");
    }
    if (o->abi && (o->abi < ABI_VIEW_OLDEST || o->abi > ABI_VIEW_NEWEST)) {
        misuse("--abi: no such version");
    }
    if (o->without && case_find(o->without) == NULL) {
        misuse("--without: no such case");
    }
    if (o->listen && (o->listener = drv_peer_listen(o->listen)) < 0) {
        misuse("--listen: cannot listen there");
    }
    if (o->fabric && (softfab == NULL || realpath(softfab, o->softfab) == NULL)) {
        misuse("--fabric needs --softfab FILE");
    }
    return i;
}

/* One of the @n @names, or where there are none any but the one to leave out; and of this version,
 * with as many sides as there are. */
static int case_wanted(const struct options *o, const struct drv_case *c, int n, char **names)
{
    int named = n == 0 && !c->by_name && !(o->without && strcmp(o->without, c->name) == 0);

    for (int i = 0; i < n; i++) {
        named |= strcmp(names[i], c->name) == 0;
    }
    return named && (c->sides == 2 || !(o->listen || o->connect)) &&
           (o->abi == 0 || o->abi >= c->from_abi);
}

int main(int argc, char **argv)
{
    static struct options o;
    int i = options_read(&o, argc, argv), passed = 0, failed = 0;

    if (argc - i == 4 && strcmp(argv[i], "--side") == 0) {
        return side_run(&o, argv + i + 1);
    }
    for (int k = i; k < argc; k++) {
        if (case_find(argv[k]) == NULL) {
            misuse("no such case");
        }
    }
    for (size_t t = 0; t < TABLES; t++) {
        for (const struct drv_case *c = tables[t]; c->name; c++) {
            if (!case_wanted(&o, c, argc - i, argv + i)) {
                continue;
            }
            if (case_report(&o, c)) {
                passed++;
            } else {
                failed++;
            }
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
