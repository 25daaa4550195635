/* Processes and what they print. */
#include "plugin/base/r2_time.h"
#include "tests/matrix/matrix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t mx_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

int mx_job_fail(struct mx_job *j, const char *fmt, ...)
{
    va_list ap;

    if (j->why[0] == '\0') {
        va_start(ap, fmt);
        vsnprintf(j->why, sizeof(j->why), fmt, ap);
        va_end(ap);
    }
    return -1;
}

/*
 * RC's own time-outs are short, so that what was lost costs no more than the fault; a NIC is taken
 * back soon, so that many cases can follow each other.
 */
static void rank_environment(int i)
{
    char text[16];

    snprintf(text, sizeof(text), "h%d", i);
    setenv("NCCL_HOSTID", text, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_TIMEOUT", "15", 0);
    setenv("NCCL_R2_T_RETURN", "100", 0);
    setenv("NCCL_R2_T_PACKET", "200", 0);
    setenv("NCCL_R2_LOG", "trace", 1); /* each path's line counts, however many there are */
}

static __attribute__((noreturn)) void rank_exec(const struct mx_job *j, int i, int out,
                                                pid_t parent)
{
    char softfab[320], self[320], plugin[340], ways[340], host[16], hosts[16], nics[16];
    char *argv[] = {"softfab", "exec",   "--name", (char *)j->name, "--host", host,   "--",
                    self,      "--rank", host,     hosts,           nics,     plugin, ways,
                    NULL};
    int null = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    rank_environment(i);
    snprintf(softfab, sizeof(softfab), "%s/softfab", j->o->build);
    snprintf(self, sizeof(self), "%s/r2_matrix", j->o->build);
    snprintf(plugin, sizeof(plugin), "%s/libnccl-net-r2.so", j->o->build);
    snprintf(ways, sizeof(ways), "%s/ways", j->o->dir);
    snprintf(host, sizeof(host), "%d", i);
    snprintf(hosts, sizeof(hosts), "%d", j->o->hosts);
    snprintf(nics, sizeof(nics), "%d", j->o->nics);
    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    execv(softfab, argv);
    _exit(127);
}

int mx_proc_start(struct mx_job *j, int i)
{
    struct mx_proc *p = &j->proc[i];
    pid_t parent = getpid();
    char path[340];
    int out[2];

    snprintf(path, sizeof(path), "%s/process%d.log", j->o->dir, i);
    *p = (struct mx_proc){.fd = -1, .log = fopen(path, j->runs > 1 ? "a" : "w")};
    if (p->log == NULL || pipe2(out, O_CLOEXEC) != 0) {
        return mx_job_fail(j, "%s: %s", path, strerror(errno));
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0) {
        rank_exec(j, i, out[1], parent);
    }
    close(out[1]);
    p->fd = out[0];
    return p->pid > 0 ? 0 : mx_job_fail(j, "fork: %s", strerror(errno));
}

static void proc_forget(struct mx_proc *p)
{
    if (p->fd >= 0) {
        close(p->fd);
    }
    if (p->log) {
        fclose(p->log);
    }
    p->fd = -1;
    p->log = NULL;
}

void mx_proc_end(struct mx_proc *p)
{
    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    p->pid = 0;
    proc_forget(p);
}

static void line_take(struct mx_job *j, int i, const char *line)
{
    struct mx_proc *p = &j->proc[i];
    struct mx_verdict v;
    uint64_t now = mx_now();
    enum mx_said said;
    const char *who;
    char far[64];

    fprintf(p->log, "%.6f %s\n", (double)now / 1e9, line);
    if (strncmp(line, "r2_matrix: ", 11) == 0 || (strncmp(line, "# host ", 7) == 0 && !j->dying)) {
        mx_job_fail(j, "%s", line);
    }
    p->carried |= strncmp(line, "# carried ", 10) == 0;
    who = mx_line_who(line);
    said = mx_line_read(line, &v);
    j->reported_at = said == MX_SAID_VERDICT ? now : j->reported_at;
    switch (said) {
    case MX_SAID_VERDICT:
        p->verdicts++;
        if (v.blame != MX_UNKNOWN) {
            p->verdict_at = p->verdict_at ? p->verdict_at : now;
            p->informed_at = p->informed_at ? p->informed_at : now;
            far[0] = '\0';
            if (v.blame == MX_PATH && v.far_host >= 0) {
                snprintf(far, sizeof(far), "h%d fab%d", v.far_host, v.far_nic);
            }
            if (v.blame != MX_WAY) { /* that it is good again is not said */
                mx_blamed(j, who, far);
            }
        }
        if (j->o->verbose) {
            printf("    h%d: %s\n", i, strstr(line, "NET/R2"));
        }
        if (j->said) {
            j->said(j->arg, i, &v);
        } else {
            mx_job_fail(j, "a verdict before anything was broken: %s", line);
        }
        break;
    case MX_SAID_BAD_REPORT:
        p->informed_at = p->informed_at ? p->informed_at : now;
        break;
    case MX_SAID_GOOD_REPORT:
        p->good_reports++;
        mx_cleared(j, who);
        break;
    case MX_SAID_PATH_DOWN:
        p->paths_down++;
        break;
    case MX_SAID_PATH_UP:
        p->paths_down--;
        break;
    case MX_SAID_LEFT_OUT:
        mx_job_fail(j, "nobody knows which paths are up: %s", line);
        break;
    default:
        break;
    }
}

/* Whole lines; what is longer than the buffer is cut. */
static void text_take(struct mx_job *j, int i, const char *text, size_t n)
{
    struct mx_proc *p = &j->proc[i];

    for (size_t k = 0; k < n; k++) {
        if (text[k] != '\n') {
            if (p->len < sizeof(p->buf) - 1) {
                p->buf[p->len++] = text[k];
            }
            continue;
        }
        p->buf[p->len] = '\0';
        p->len = 0;
        line_take(j, i, p->buf);
    }
}

void mx_procs_read(struct mx_job *j, uint64_t limit)
{
    struct pollfd pfd[MX_HOSTS];
    char text[4096];

    for (int i = 0; i < j->o->hosts; i++) {
        pfd[i] = (struct pollfd){.fd = j->proc[i].fd, .events = POLLIN};
    }
    if (poll(pfd, (nfds_t)j->o->hosts, (int)(limit / MX_MS) + 1) <= 0) {
        return;
    }
    for (int i = 0; i < j->o->hosts; i++) {
        ssize_t n;

        if (pfd[i].fd < 0 || pfd[i].revents == 0) {
            continue;
        }
        while ((n = read(pfd[i].fd, text, sizeof(text))) > 0) {
            text_take(j, i, text, (size_t)n);
        }
        if (n == 0) { /* it has ended */
            int status = 0;

            waitpid(j->proc[i].pid, &status, 0);
            if (!j->dying) {
                mx_job_fail(j, "the process of h%d ended by itself, status %#x", i,
                            (unsigned)status);
            }
            j->proc[i].pid = 0;
            proc_forget(&j->proc[i]);
        }
    }
}

int mx_procs_alive(const struct mx_job *j)
{
    int n = 0;

    for (int i = 0; i < j->o->hosts; i++) {
        n += j->proc[i].pid > 0;
    }
    return n;
}
