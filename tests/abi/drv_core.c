#include "tests/abi/drv.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct drv drv = {.peer = -1};

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_warn[1024];

void drv_fail(const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s side %d: %s:%d: %s\n", drv.name, drv.side, file, line, text);
    _exit(1);
}

void drv_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&log_lock);
    if (level == ABI_LOG_WARN) {
        snprintf(last_warn, sizeof(last_warn), "%s", text);
    }
    if (getenv("DRV_LOG")) {
        fprintf(stderr, "%s side %d: %s:%d %s\n", drv.name, drv.side, file, line, text);
    }
    pthread_mutex_unlock(&log_lock);
}

const char *drv_last_warn(void)
{
    static char copy[sizeof(last_warn)];

    pthread_mutex_lock(&log_lock);
    memcpy(copy, last_warn, sizeof(copy));
    pthread_mutex_unlock(&log_lock);
    return copy;
}

void drv_load(void)
{
    drv.lib = dlopen(drv.plugin, RTLD_NOW | RTLD_LOCAL);
    NEED(drv.lib != NULL, "%s", dlerror());
    drv_table_use(drv.abi);
}

void drv_table_use(int version)
{
    drv.net = abi_view_find(drv.lib, version);
    NEED(drv.net != NULL, "no table of version %d (0: any)", version);
    NEED(version == 0 || abi_view.version == version, "version %d instead of %d", abi_view.version,
         version);
    abi_view.optional = 1;
}

void drv_init(void)
{
    OK(drv.net->init(drv_logger));
    OK(drv.net->devices(&drv.ndev));
    NEED(drv.ndev > 0, "%d devices", drv.ndev);
}

uint64_t drv_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint32_t drv_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void io_all(int writing, char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = writing ? send(drv.peer, p, n, MSG_NOSIGNAL) : recv(drv.peer, p, n, 0);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        NEED(k > 0, "the other side is gone");
        p += k;
        n -= (size_t)k;
    }
}

/* The socket's buffer holds what is swapped here, so both may write first. */
void drv_swap(const void *mine, void *theirs, size_t n)
{
    if (drv.peer < 0) {
        memmove(theirs, mine, n);
        return;
    }
    io_all(1, (char *)mine, n);
    io_all(0, theirs, n);
}

void drv_barrier(void)
{
    char mine = 1, theirs;

    drv_swap(&mine, &theirs, 1);
}
