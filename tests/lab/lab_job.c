#include "tests/lab/lab_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup"

static unsigned jobs_started, jobs_swept;

void lab_job_init(void)
{
    if (access(GROUPS "/cgroup.procs", F_OK) != 0 &&
        mount("cgroup2", GROUPS, "cgroup2", 0, NULL) != 0) {
        lab_die(1, "mount of the control groups at %s: %s", GROUPS, strerror(errno));
    }
}

static int group_write(unsigned number, const char *file, const char *text)
{
    char path[96];
    int fd, rc;

    snprintf(path, sizeof(path), "%s/job%u/%s", GROUPS, number, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    rc = write(fd, text, strlen(text)) < 0 ? -1 : 0;
    close(fd);
    return rc;
}

void lab_job_kill(struct lab_job *j)
{
    if (j->number != 0) {
        (void)!group_write(j->number, "cgroup.kill", "1");
    }
}

void lab_job_sweep(void)
{
    char path[64];
    unsigned i;

    for (i = jobs_swept + 1; i <= jobs_started; i++) {
        snprintf(path, sizeof(path), "%s/job%u", GROUPS, i);
        if (rmdir(path) == 0 || errno == ENOENT) {
            jobs_swept += i == jobs_swept + 1;
        }
    }
}

__attribute__((noreturn)) static void child_exec(int in, int out, int err, const char *flags,
                                                 const char *cwd, char **argv)
{
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY}, files = {65536, 65536};
    struct sched_param normal = {0};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    setsid();
    if (strchr(flags, LAB_EXEC_URGENT) == NULL) {
        sched_setscheduler(0, SCHED_OTHER, &normal);
    }
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    setrlimit(RLIMIT_NOFILE, &files);
    if (chdir(cwd) != 0 && chdir("/") != 0) {
        _exit(126);
    }
    execvp(argv[0], argv);
    lab_complain("%s: %s", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int pipes_open(int p[3][2], bool with_stdin)
{
    int i;

    for (i = 0; i < 3; i++) {
        p[i][0] = p[i][1] = -1;
    }
    if (with_stdin) {
        if (pipe2(p[0], O_CLOEXEC) != 0) {
            return -1;
        }
    } else {
        p[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    return p[0][0] >= 0 && pipe2(p[1], O_CLOEXEC) == 0 && pipe2(p[2], O_CLOEXEC) == 0 ? 0 : -1;
}

static void pipes_close(int p[3][2])
{
    int i;

    for (i = 0; i < 6; i++) {
        if (p[i / 2][i % 2] >= 0) {
            close(p[i / 2][i % 2]);
        }
    }
}

/* A child that is born into control group @path: at no time is it outside, or the group without it.
 */
static pid_t group_fork(const char *path)
{
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), err;
    long pid;

    if (fd < 0) {
        return -1;
    }
    args.cgroup = (uint64_t)fd;
    pid = syscall(SYS_clone3, &args, sizeof(args));
    err = errno;
    close(fd);
    errno = err;
    return (pid_t)pid;
}

static int end_take(int *end)
{
    int fd = *end;

    *end = -1;
    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return fd;
}

int lab_job_start(struct lab_job *j, const char *flags, const char *cwd, char **argv)
{
    char path[64];
    int p[3][2], err;

    j->number = jobs_started + 1;
    snprintf(path, sizeof(path), "%s/job%u", GROUPS, j->number);
    if (pipes_open(p, strchr(flags, LAB_EXEC_STDIN) != NULL) != 0 || mkdir(path, 0755) != 0) {
        goto err_pipes;
    }
    jobs_started++;
    j->pid = group_fork(path);
    if (j->pid < 0) {
        goto err_pipes;
    }
    if (j->pid == 0) {
        child_exec(p[0][0], p[1][1], p[2][1], flags, cwd, argv);
    }
    j->in = end_take(&p[0][1]);
    j->out = end_take(&p[1][0]);
    j->err = end_take(&p[2][0]);
    pipes_close(p);
    return 0;

err_pipes:
    err = errno;
    pipes_close(p);
    j->number = 0;
    j->pid = 0;
    return err;
}
