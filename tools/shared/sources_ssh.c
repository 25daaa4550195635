/* r2_stat --json on other hosts, over ssh. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/shared/patience.h"
#include "tools/shared/sources.h"

#define AT_ONCE 16
#define MOST    (64u << 20) /* bytes of an answer */

/* A run of ssh. */
struct run {
    struct sources_remote *to; /* NULL: free */
    int at;                    /* its number */
    pid_t pid;
    int out, err; /* -1: closed */
    char *text;
    size_t n, room;
    char said[200]; /* the first line of its errors */
    int64_t end_ms;
};

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* In the child. Never returns. No password is asked for, and nothing is read from the terminal. */
static void ssh_exec(const char *host, const char *dir, int seconds, const int fd[2])
{
    char timeout[40];
    int null = open("/dev/null", O_RDONLY);
    const char *args[12] = {"ssh", "-o", "BatchMode=yes", "-o",     timeout,
                            "--",  host, "r2_stat",       "--json", NULL};

    snprintf(timeout, sizeof(timeout), "ConnectTimeout=%d", seconds);
    if (dir) {
        args[9] = "--run-dir";
        args[10] = dir;
    }
    dup2(null, 0);
    dup2(fd[0], 1);
    dup2(fd[1], 2);
    execvp(args[0], (char *const *)args);
    dprintf(2, "ssh: %s\n", strerror(errno));
    _exit(127);
}

static void run_begin(struct run *r, const struct sources *s, struct sources_remote *to, int at)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};

    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || (r->pid = fork()) < 0) {
        snprintf(to->why, sizeof(to->why), "%s", strerror(errno));
        for (int i = 0; i < 2; i++) {
            if (out[i] >= 0) {
                close(out[i]);
            }
            if (err[i] >= 0) {
                close(err[i]);
            }
        }
        return;
    }
    if (r->pid == 0) {
        ssh_exec(to->host, s->dir, s->seconds, (int[]){out[1], err[1]});
    }
    close(out[1]);
    close(err[1]);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    *r = (struct run){.to = to,
                      .at = at,
                      .pid = r->pid,
                      .out = out[0],
                      .err = err[0],
                      .end_ms = now_ms() + (int64_t)s->seconds * 1000};
}

/* 0; -1: it is more than an answer has, or there is no memory. */
static int out_take(struct run *r)
{
    ssize_t got;

    if (r->room - r->n < 65536) {
        size_t room = r->room ? 2 * r->room : 1u << 18;
        char *more = room <= 2 * (size_t)MOST ? realloc(r->text, room) : NULL;

        if (more == NULL) {
            return -1;
        }
        r->text = more;
        r->room = room;
    }
    got = read(r->out, r->text + r->n, r->room - r->n - 1);
    if (got > 0) {
        r->n += (size_t)got;
    } else if (got == 0 || errno != EINTR) {
        close(r->out);
        r->out = -1;
    }
    return r->n <= MOST ? 0 : -1;
}

static void err_take(struct run *r)
{
    char text[512];
    ssize_t got = read(r->err, text, sizeof(text) - 1);

    if (got <= 0) {
        if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            close(r->err);
            r->err = -1;
        }
        return;
    }
    text[got] = '\0';
    if (r->said[0] == '\0') {
        snprintf(r->said, sizeof(r->said), "%.*s", (int)strcspn(text, "\r\n"), text);
        for (char *c = r->said; *c; c++) {
            *c = (unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c;
        }
    }
}

/* What came is taken, or why nothing did is noted. @late: it is stopped, else it has ended with
 * @status. */
static void run_end(const struct sources_take *t, struct run *r, const char *late, int status)
{
    char *why = r->to->why;
    size_t room = sizeof(r->to->why);

    if (late) {
        kill(r->pid, SIGKILL);
        while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR) {
        }
        snprintf(why, room, "%s", late);
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        snprintf(why, room, "%s", r->said[0] ? r->said : "ssh r2_stat --json ended with an error");
    } else {
        if (r->text) {
            r->text[r->n] = '\0';
        }
        if (r->text == NULL || t->json(t->arg, r->at, r->text) != 0) {
            snprintf(why, room, "what it answered is not what r2_stat --json prints");
        }
    }
    if (r->out >= 0) {
        close(r->out);
    }
    if (r->err >= 0) {
        close(r->err);
    }
    free(r->text);
    memset(r, 0, sizeof(*r));
}

/* One look at all that run. */
static void turn(const struct sources_take *t, struct run *run, int seconds)
{
    struct pollfd p[2 * AT_ONCE];
    char late[64];

    for (int i = 0; i < AT_ONCE; i++) {
        p[2 * i] = (struct pollfd){.fd = run[i].to ? run[i].out : -1, .events = POLLIN};
        p[2 * i + 1] = (struct pollfd){.fd = run[i].to ? run[i].err : -1, .events = POLLIN};
    }
    poll(p, 2 * AT_ONCE, 100);
    snprintf(late, sizeof(late), "no answer within %d s", seconds);
    for (int i = 0; i < AT_ONCE; i++) {
        struct run *r = &run[i];
        int bad = 0, status = 0;

        if (r->to == NULL) {
            continue;
        }
        if (r->out >= 0 && p[2 * i].revents) {
            bad = out_take(r);
        }
        if (r->err >= 0 && p[2 * i + 1].revents) {
            err_take(r);
        }
        if (bad || now_ms() >= r->end_ms) {
            run_end(t, r, bad ? "its answer is too long" : late, 0);
        } else if (r->out < 0 && waitpid(r->pid, &status, WNOHANG) == r->pid) {
            if (r->err >= 0) { /* a connection that others share may keep it open */
                err_take(r);
            }
            run_end(t, r, NULL, status);
        }
    }
}

/* Which hosts it still waits for, the first ones by name. */
static void hosts_say(const struct run *run, int busy, int left, double waited_s)
{
    char names[200] = "";
    size_t n = 0;

    for (int i = 0; i < AT_ONCE && n < sizeof(names); i++) {
        if (run[i].to) {
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
                                  run[i].to->host);
        }
    }
    fprintf(stderr, "%s: after %.0f s waits for answers of %d hosts: %s%s",
            program_invocation_short_name, waited_s, busy + left, names,
            n >= sizeof(names) || left ? ", ...\n" : "\n");
}

void sources_ssh_read(const struct sources *s, const struct sources_take *t,
                      struct sources_remote *r, int n)
{
    struct run run[AT_ONCE] = {0};
    struct patience p = {0};
    int64_t since = now_ms();
    int next = 0, busy;

    do {
        busy = 0;
        for (int i = 0; i < AT_ONCE; i++) {
            while (run[i].to == NULL && next < n) {
                run_begin(&run[i], s, &r[next], next);
                next++;
            }
            busy += run[i].to != NULL;
        }
        if (busy) {
            turn(t, run, s->seconds);
            busy = 0;
            for (int i = 0; i < AT_ONCE; i++) {
                busy += run[i].to != NULL;
            }
            if (busy && patience_is_due(&p, (double)(now_ms() - since) / 1e3)) {
                hosts_say(run, busy, n - next, p.said_s);
            }
        }
    } while (busy || next < n);
}
