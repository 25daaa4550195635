#include "tests/lab/lab_proc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KILL_LIMIT_NS      (10 * LAB_NS_PER_S)
#define CONSOLE_MAX        (1u << 20)
#define CONSOLE_TAIL_LINES 25

/* Whether the command line of @pid has the lab's name. Its words are separated by NUL. */
static bool proc_is_ours(long pid)
{
    char path[64], id[64], cmdline[16384];
    size_t n;
    FILE *f;

    if (lab_file_line("id", id, sizeof(id)) != 0 || strlen(id) < 8) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
    f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    n = fread(cmdline, 1, sizeof(cmdline), f);
    fclose(f);
    return memmem(cmdline, n, id, strlen(id)) != NULL;
}

int lab_proc_open(const char *name)
{
    char path[64], line[32];
    long pid;
    int fd;

    snprintf(path, sizeof(path), "%.32s.pid", name);
    if (lab_file_line(path, line, sizeof(line)) != 0 ||
        lab_number_parse(line, 2, INT32_MAX, &pid) != 0) {
        return -1;
    }
    fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (fd >= 0 && !proc_is_ours(pid)) {
        close(fd);
        return -1;
    }
    return fd;
}

int lab_proc_kill(const char *name)
{
    int fd = lab_proc_open(name), rc = 1;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (fd < 0) {
        return 0;
    }
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) != 0 && errno != ESRCH) {
        rc = lab_complain("%s: kill: %s", name, strerror(errno));
    } else if (poll(&p, 1, lab_clock_left_ms(lab_clock_now() + KILL_LIMIT_NS)) == 0) {
        rc = lab_complain("%s: killed, but does not end", name);
    }
    close(fd);
    return rc;
}

static size_t console_read(const char *path, char *text)
{
    FILE *f = fopen(path, "re");
    size_t n = 0;

    if (f != NULL) {
        n = fread(text, 1, CONSOLE_MAX, f);
        fclose(f);
    }
    text[n] = '\0';
    return n;
}

static void console_print_tail(const char *host, const char *text, size_t n)
{
    const char *p = text + n;
    int lines = 0;

    while (p > text && lines <= CONSOLE_TAIL_LINES) {
        lines += *--p == '\n';
    }
    fprintf(stderr, "---- last lines of the console of %s\n%s\n----\n", host,
            n > 0 ? p : "(nothing)");
}

int lab_proc_await_boot(const char *host, uint64_t deadline)
{
    char path[32], up[32], *text = malloc(CONSOLE_MAX + 1), sink[4096];
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), vm = lab_proc_open(host), rc = -1;
    struct pollfd p[2] = {{.fd = watch, .events = POLLIN}, {.fd = vm, .events = POLLIN}};
    size_t n;

    snprintf(path, sizeof(path), "%.8s.console", host);
    snprintf(up, sizeof(up), "lab: %.8s is up", host);
    if (text == NULL || watch < 0 || vm < 0 || inotify_add_watch(watch, path, IN_MODIFY) < 0) {
        lab_complain("%s: its VM does not run, or has no console", host);
        goto out;
    }
    for (;;) {
        bool ended = p[1].revents != 0;
        n = console_read(path, text);
        if (strstr(text, up) != NULL) {
            rc = 0;
            break;
        }
        if (ended || lab_clock_left_ms(deadline) == 0) {
            lab_complain(ended ? "%s: the VM ended while it booted" : "%s: not up within the limit",
                         host);
            console_print_tail(host, text, n);
            break;
        }
        poll(p, 2, lab_clock_left_ms(deadline));
        while (read(watch, sink, sizeof(sink)) > 0) {
        }
    }
out:
    free(text);
    close(watch);
    close(vm);
    return rc;
}
