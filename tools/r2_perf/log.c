#include "tools/r2_perf/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tools/r2_perf/abi.h"
#include "tools/r2_perf/util.h"

static const char *const subsys_names[] = {
    "INIT", "COLL",  "P2P",  "SHM",       "NET", "GRAPH",   "TUNING", "ENV",     "ALLOC",
    "CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS",    "DESTROY", "ALLOC_HOST"};
#define LOG_SUBSYS_DEFAULT (0x1 | 0x80 | 0x1000) /* INIT, ENV, BOOTSTRAP */

static struct {
    pthread_mutex_t lock; /* guards file, last_warning and switches */
    FILE *file;
    int level;
    unsigned long mask;
    char host[64];
    char last_warning[1024];
    struct log_switch switches[LOG_SWITCHES_MAX];
    int nswitches;
    _Atomic uint64_t failovers; /* a counter that is only ever read as a total */
} log_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int log_level_parse(const char *text)
{
    static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    for (int i = 0; text && i < 6; i++) {
        if (!strcasecmp(text, names[i])) {
            return i;
        }
    }
    return ABI_LOG_NONE;
}

/* "NET,INIT" shows those; "^NET" shows all others; "ALL" all. */
static unsigned long log_mask_parse(const char *text)
{
    if (!text) {
        return LOG_SUBSYS_DEFAULT;
    }
    int invert = *text == '^';
    unsigned long mask = 0;
    char copy[512], *save = NULL;
    snprintf(copy, sizeof(copy), "%s", text + invert);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (!strcasecmp(word, "ALL")) {
            mask = ~0ul;
        }
        for (size_t i = 0; i < sizeof(subsys_names) / sizeof(subsys_names[0]); i++) {
            mask |= strcasecmp(word, subsys_names[i]) ? 0 : 1ul << i;
        }
    }
    return invert ? ~mask : mask;
}

/* NCCL_DEBUG_FILE with %h (host), %p (process) and %%. */
static FILE *log_file_open(const char *pattern, const char *host)
{
    char path[4096];
    size_t n = 0;
    for (const char *p = pattern; *p && n + 80 < sizeof(path); p++) {
        if (*p != '%' || !p[1]) {
            path[n++] = *p;
            continue;
        }
        p++;
        if (*p == 'h') {
            n += (size_t)snprintf(path + n, sizeof(path) - n, "%s", host);
        } else if (*p == 'p') {
            n += (size_t)snprintf(path + n, sizeof(path) - n, "%d", (int)getpid());
        } else {
            path[n++] = *p;
        }
    }
    path[n] = '\0';
    FILE *f = fopen(path, "w");
    if (!f) {
        fprintf(stderr, "%s: NCCL_DEBUG_FILE %s cannot be opened: %m; logging to stderr\n",
                program_invocation_short_name, path);
    }
    return f;
}

void log_setup(const char *host)
{
    const char *pattern = getenv("NCCL_DEBUG_FILE");
    snprintf(log_state.host, sizeof(log_state.host), "%s", host);
    log_state.host[strcspn(log_state.host, ".")] = '\0';
    log_state.level = log_level_parse(getenv("NCCL_DEBUG"));
    log_state.mask = log_mask_parse(getenv("NCCL_DEBUG_SUBSYS"));
    if (pattern && *pattern && log_state.level > ABI_LOG_VERSION) {
        log_state.file = log_file_open(pattern, log_state.host);
    }
    if (!log_state.file) {
        log_state.file = stderr;
    }
}

static void log_line_print(int level, const char *file, int line, const char *text)
{
    int pid = (int)getpid(), tid = (int)syscall(SYS_gettid);
    if (level == ABI_LOG_WARN) {
        char when[32];
        time_t now = time(NULL);
        struct tm tm;
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&now, &tm));
        fprintf(log_state.file, "\n[%s] %s:%d:%d [0] %s:%d NCCL WARN %s\n", when, log_state.host,
                pid, tid, file ? file : "?", line, text);
    } else {
        fprintf(log_state.file, "%s:%d:%d [0] NCCL %s %s\n", log_state.host, pid, tid,
                level == ABI_LOG_TRACE ? "TRACE" : "INFO", text);
    }
    fflush(log_state.file);
}

/* Lock held. */
static void log_switch_note(const char *text)
{
    const char *began = strstr(text, ", began "), *stall = strstr(text, ", stall ");
    struct log_switch *s = &log_state.switches[log_state.nswitches];
    if (!began || log_state.nswitches == LOG_SWITCHES_MAX) {
        return;
    }
    s->end_ns = util_now_ns();
    s->began_ns = s->end_ns - strtoull(began + strlen(", began "), NULL, 10) * 1000;
    s->stall_ns = stall ? strtoull(stall + strlen(", stall "), NULL, 10) * 1000 : 0;
    s->over = stall || strstr(text, ", nothing waited");
    log_state.nswitches++;
}

void log_line_write(int level, unsigned long flags, const char *file, int line, const char *fmt,
                    ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (strstr(text, "NET/R2") && strstr(text, "DOWN")) {
        atomic_fetch_add_explicit(&log_state.failovers, 1, memory_order_relaxed);
    }
    pthread_mutex_lock(&log_state.lock);
    if (strncmp(text, "NET/R2 : switch: ", 17) == 0) {
        log_switch_note(text);
    }
    if (level == ABI_LOG_WARN) {
        memcpy(log_state.last_warning, text, sizeof(text));
    }
    if (level <= log_state.level && (flags & log_state.mask)) {
        log_line_print(level, file, line, text);
    }
    pthread_mutex_unlock(&log_state.lock);
}

void log_warning_get(char *text, size_t bytes)
{
    pthread_mutex_lock(&log_state.lock);
    snprintf(text, bytes, "%s", log_state.last_warning);
    pthread_mutex_unlock(&log_state.lock);
}

uint64_t log_failovers_count(void)
{
    return atomic_load_explicit(&log_state.failovers, memory_order_relaxed);
}

int log_switches_get(struct log_switch *out)
{
    pthread_mutex_lock(&log_state.lock);
    int n = log_state.nswitches;
    memcpy(out, log_state.switches, (size_t)n * sizeof(*out));
    pthread_mutex_unlock(&log_state.lock);
    return n;
}
