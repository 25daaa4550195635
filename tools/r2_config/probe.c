#include "tools/r2_config/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_perf/abi_view.h"

#define RECORD_MAX 1200

/*
 * The child's words, one record a line: a letter, a blank, text.
 *     T why a name was not it    P path        S one table      N name of the newest one
 *     L log line                 I "rc ms"     D "rc ndev"      d one device   H listen's rc
 */
static int record_fd; /* in the child */

static __attribute__((format(printf, 2, 3))) void record_write(char kind, const char *fmt, ...)
{
    char text[RECORD_MAX];
    va_list ap;
    size_t n;

    snprintf(text, sizeof(text), "%c ", kind);
    va_start(ap, fmt);
    vsnprintf(text + 2, sizeof(text) - 3, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++) {
        *c = *c == '\n' ? ' ' : *c;
    }
    n = strlen(text);
    text[n++] = '\n';
    if (write(record_fd, text, n) != (ssize_t)n) {
        _exit(1); /* nobody listens any more */
    }
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static __attribute__((format(printf, 5, 6))) void
plugin_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    record_write('L', "%s %s", level == ABI_LOG_WARN ? "WARN" : "INFO", text);
}

static void *file_try(const char *file)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL) {
        record_write('T', "%s", dlerror());
    }
    return lib;
}

/* NCCL's rule: the name as it is; then, unless it is a path or a file name already, as the middle
 * of one. */
static void *name_try(const char *name)
{
    size_t n = strlen(name);
    int file_name = strchr(name, '/') ||
                    (n > 6 && strncmp(name, "lib", 3) == 0 && strcmp(name + n - 3, ".so") == 0);
    char file[512];
    void *lib = file_try(name);

    if (lib || file_name) {
        return lib;
    }
    snprintf(file, sizeof(file), "libnccl-net-%.480s.so", name);
    return file_try(file);
}

static void plugin_ask(const struct abi_net *net)
{
    struct abi_props props;
    double from = now_ms();
    char handle[ABI_HANDLE_BYTES] = "";
    void *comm = NULL;
    int rc = net->init(plugin_log), n = 0;

    record_write('I', "%d %.3f", rc, now_ms() - from);
    if (rc != 0) {
        return;
    }
    rc = net->devices(&n);
    record_write('D', "%d %d", rc, n);
    for (int i = 0; rc == 0 && i < n; i++) {
        memset(&props, 0, sizeof(props));
        if (net->get_properties(i, &props) == 0 && props.name) {
            record_write('d', "%s", props.name);
        }
    }
    if (rc == 0 && n > 0) {
        /* where options that cannot be obeyed come to light; what it opens ends with this process
         */
        record_write('H', "%d", net->listen(0, handle, &comm));
    }
}

static void child_run(const char *name, const char *ours)
{
    const struct abi_net *net;
    struct link_map *map = NULL;
    char real[PATH_MAX], symbol[32];
    void *lib = name_try(name);

    if (lib == NULL) {
        return;
    }
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map) {
        record_write('P', "%s", realpath(map->l_name, real) ? real : map->l_name);
    }
    for (int v = 12; v >= 5; v--) {
        snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
        if (dlsym(lib, symbol)) {
            record_write('S', "v%d", v);
        }
    }
    net = abi_view_find(lib, 0);
    if (net == NULL || net->name == NULL) {
        return;
    }
    record_write('N', "%s", net->name);
    if (strcasecmp(net->name, ours) == 0) {
        plugin_ask(net);
    }
}

/* --- the parent --- */

static void text_keep(char *to, size_t len, const char *text)
{
    snprintf(to, len, "%s", text);
}

static void record_take(struct probe *p, char kind, const char *text)
{
    size_t used = strlen(p->tables);

    switch (kind) {
    case 'T':
        text_keep(p->tried[p->tried[0][0] != '\0'], sizeof(p->tried[0]), text);
        break;
    case 'P':
        text_keep(p->path, sizeof(p->path), text);
        break;
    case 'S':
        snprintf(p->tables + used, sizeof(p->tables) - used, "%s%s", used ? " " : "", text);
        break;
    case 'N':
        text_keep(p->name, sizeof(p->name), text);
        break;
    case 'L':
        if (p->lines < PROBE_LINES) {
            p->line[p->lines] = strdup(text);
            p->lines += p->line[p->lines] != NULL;
        }
        break;
    case 'I':
        p->asked = sscanf(text, "%d %lf", &p->init_rc, &p->init_ms) == 2;
        break;
    case 'D':
        (void)sscanf(text, "%d %d", &p->devices_rc, &p->ndev);
        break;
    case 'H':
        p->listened = sscanf(text, "%d", &p->listen_rc) == 1;
        break;
    case 'd':
        if (p->devices < PROBE_DEVICES) {
            text_keep(p->device[p->devices++], sizeof(p->device[0]), text);
        }
        break;
    default:
        break;
    }
}

/* Reads records until the child's end of the pipe closes; 0, or -1 when that takes too long. */
static int records_read(struct probe *p, int fd, int limit_ms)
{
    double end = now_ms() + limit_ms, left;
    char buf[2 * RECORD_MAX];
    size_t used = 0;
    ssize_t n;

    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char *line = buf, *nl;

        left = end - now_ms();
        if (left <= 0 || poll(&wait, 1, (int)left + 1) <= 0) {
            if (left > 0 && errno == EINTR) {
                continue;
            }
            return -1;
        }
        n = read(fd, buf + used, sizeof(buf) - 1 - used);
        if (n <= 0) {
            return 0;
        }
        used += (size_t)n;
        buf[used] = '\0';
        while ((nl = memchr(line, '\n', used - (size_t)(line - buf))) != NULL) {
            *nl = '\0';
            if (nl - line >= 2) {
                record_take(p, line[0], line + 2);
            }
            line = nl + 1;
        }
        used -= (size_t)(line - buf);
        memmove(buf, line, used);
        if (used >= sizeof(buf) - 1) {
            used = 0; /* no record is as long */
        }
    }
}

static void child_end(struct probe *p, pid_t pid, int hung, int limit_ms)
{
    int status;

    if (hung) {
        kill(pid, SIGKILL);
        snprintf(p->end, sizeof(p->end), "it had not ended after %.1f s", limit_ms / 1e3);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!hung && WIFSIGNALED(status)) {
        snprintf(p->end, sizeof(p->end), "it died of %s", strsignal(WTERMSIG(status)));
    } else if (!hung && WEXITSTATUS(status) != 0) {
        snprintf(p->end, sizeof(p->end), "it ended the process with status %d",
                 WEXITSTATUS(status));
    }
}

int probe_run(struct probe *p, const char *name, const char *ours, int limit_ms)
{
    int fd[2], hung;
    pid_t pid;

    memset(p, 0, sizeof(*p));
    if (pipe(fd) != 0) {
        return -1;
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        int saved = errno;

        close(fd[0]);
        close(fd[1]);
        errno = saved;
        return -1;
    }
    if (pid == 0) {
        close(fd[0]);
        record_fd = fd[1];
        child_run(name, ours);
        _exit(0); /* nothing of the plugin's is to run at exit: what it said is out */
    }
    close(fd[1]);
    hung = records_read(p, fd[0], limit_ms) != 0;
    close(fd[0]);
    child_end(p, pid, hung, limit_ms);
    return 0;
}

void probe_free(struct probe *p)
{
    for (int i = 0; i < p->lines; i++) {
        free(p->line[i]);
    }
    p->lines = 0;
}
