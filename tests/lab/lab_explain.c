#include "tests/lab/lab_explain.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/wait.h>

#define THREADS_MAX      40
#define KERNEL_LINES_MAX 12
#define KERNEL_READ_ALL  3 /* syslog(2): the whole buffer, which is left as it is */

__attribute__((format(printf, 2, 3))) static void line_put(struct lab_buf *out, const char *fmt,
                                                           ...)
{
    char text[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    lab_buf_put(out, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* The first line of /proc/@task/@file; "?" where it cannot be read, or is empty. */
static void task_line(const char *task, const char *file, char *out, size_t size)
{
    char path[96];

    snprintf(path, sizeof(path), "/proc/%.48s/%.16s", task, file);
    if (lab_file_line(path, out, size) != 0) {
        snprintf(out, size, "?");
    }
}

/* The letter of the state, behind the name, which may have anything in it, and in the last field of
 * a process that has ended its wait status. */
static char task_state(const char *task, char *end, size_t size)
{
    char text[512], *p, *last;
    int status;

    task_line(task, "stat", text, sizeof(text));
    p = strrchr(text, ')');
    last = strrchr(text, ' ');
    end[0] = '\0';
    if (p == NULL || p[1] != ' ') {
        return '?';
    }
    if (p[2] == 'Z') {
        status = atoi(last);
        snprintf(end, size, ", ended with %d",
                 WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
    return p[2];
}

/* "f < g < h", innermost first, of lines such as "[<0>] f+0x1f/0x80". */
static void task_stack(const char *task, char *out, size_t size)
{
    char path[96], text[160];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%.48s/stack", task);
    f = fopen(path, "re");
    out[0] = '\0';
    while (f != NULL && n < size && fgets(text, sizeof(text), f) != NULL) {
        char *name = strchr(text, ' ');

        if (name != NULL) {
            name[strcspn(name, "+\n")] = '\0';
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? " <" : "", name);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

static void thread_explain(const char *pid, const char *tid, struct lab_buf *out)
{
    char task[64], name[32], place[64], call[160], stack[640], end[32], state;

    snprintf(task, sizeof(task), "%.16s/task/%.16s", pid, tid);
    task_line(task, "comm", name, sizeof(name));
    task_line(task, "wchan", place, sizeof(place));
    task_line(task, "syscall", call, sizeof(call));
    task_stack(task, stack, sizeof(stack));
    call[strcspn(call, " ")] = '\0';
    state = task_state(task, end, sizeof(end));
    line_put(out, "lab: process %s thread %s %s: state %c in %s%s, system call %s;%s\n", pid, tid,
             name, state, strcmp(place, "0") == 0 ? "-" : place, end, call,
             stack[0] != '\0' ? stack : " no stack");
}

/* What has let go of its group on its way out is still shown as of it, "(deleted)" perhaps. */
static bool process_in_job(const char *pid, unsigned number)
{
    char text[128], group[32];
    size_t n = (size_t)snprintf(group, sizeof(group), "0::/job%u", number);

    task_line(pid, "cgroup", text, sizeof(text));
    return strncmp(text, group, n) == 0 && !isdigit((unsigned char)text[n]);
}

/* What says that something is wrong; not the dozens of lines of a stack. */
static bool kernel_line_tells(const char *line)
{
    static const char *const words[] = {"WARNING", "BUG",         "Oops",       "NETDEV",
                                        "lockup",  "blocked for", "throttling", "infiniband rxe",
                                        "virtio",  NULL};
    int i;

    for (i = 0; words[i] != NULL && strstr(line, words[i]) == NULL; i++) {
    }
    return words[i] != NULL;
}

static void kernel_explain(struct lab_buf *out)
{
    static char text[1 << 18];
    const char *told[KERNEL_LINES_MAX];
    int n = klogctl(KERNEL_READ_ALL, text, sizeof(text) - 1), lines = 0, i;
    char *p;

    text[n > 0 ? n : 0] = '\0';
    for (p = strtok(text, "\n"); p != NULL; p = strtok(NULL, "\n")) {
        if (kernel_line_tells(p)) {
            told[lines++ % KERNEL_LINES_MAX] = p;
        }
    }
    for (i = lines > KERNEL_LINES_MAX ? lines - KERNEL_LINES_MAX : 0; i < lines; i++) {
        line_put(out, "lab: kernel: %s\n", told[i % KERNEL_LINES_MAX]);
    }
}

/* The numbers among the names of folder @path, in order; the caller frees them by numbers_free. */
static int numbers_list(const char *path, struct dirent ***list)
{
    int n = scandir(path, list, NULL, versionsort), kept = 0, i;

    for (i = 0; i < n; i++) {
        if (isdigit((unsigned char)(*list)[i]->d_name[0])) {
            (*list)[kept++] = (*list)[i];
        } else {
            free((*list)[i]);
        }
    }
    if (n < 0) {
        *list = NULL;
    }
    return kept;
}

static void numbers_free(struct dirent **list, int n)
{
    while (n > 0) {
        free(list[--n]);
    }
    free(list);
}

static int process_explain(const char *pid, int room, struct lab_buf *out)
{
    struct dirent **tids;
    char path[64];
    int n, i;

    snprintf(path, sizeof(path), "/proc/%.16s/task", pid);
    n = numbers_list(path, &tids);
    for (i = 0; i < n && i < room; i++) {
        thread_explain(pid, tids[i]->d_name, out);
    }
    numbers_free(tids, n);
    return n;
}

void lab_explain_job(unsigned number, struct lab_buf *out)
{
    struct dirent **pids;
    int n = numbers_list("/proc", &pids), threads = 0, i;

    for (i = 0; i < n; i++) {
        if (process_in_job(pids[i]->d_name, number)) {
            int room = threads < THREADS_MAX ? THREADS_MAX - threads : 0;

            threads += process_explain(pids[i]->d_name, room, out);
        }
    }
    numbers_free(pids, n);
    if (threads > THREADS_MAX) {
        line_put(out, "lab: and %d more threads\n", threads - THREADS_MAX);
    } else if (threads == 0) {
        line_put(out, "lab: no process of the command is left\n");
    }
    kernel_explain(out);
}
