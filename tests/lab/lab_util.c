#include "tests/lab/lab_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "plugin/base/r2_time.h"

uint64_t lab_clock_now(void)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

int lab_clock_left_ms(uint64_t deadline_ns)
{
    uint64_t now, ms;

    if (deadline_ns == UINT64_MAX) {
        return -1;
    }
    now = lab_clock_now();
    if (deadline_ns <= now) {
        return 0;
    }
    ms = (deadline_ns - now + LAB_NS_PER_MS - 1) / LAB_NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

char *lab_buf_room(struct lab_buf *b, size_t n)
{
    size_t len = lab_buf_len(b), cap;

    if (b->cap - b->tail >= n) {
        return b->mem + b->tail;
    }
    if (len > 0 && b->head > 0) {
        memmove(b->mem, b->mem + b->head, len);
    }
    b->head = 0;
    b->tail = len;
    if (b->cap - len < n) {
        for (cap = b->cap != 0 ? b->cap : 4096; cap - len < n; cap *= 2) {
        }
        b->mem = realloc(b->mem, cap);
        if (b->mem == NULL) {
            lab_die(1, "no memory for a buffer of %zu bytes", cap);
        }
        b->cap = cap;
    }
    return b->mem + b->tail;
}

void lab_buf_put(struct lab_buf *b, const void *data, size_t n)
{
    if (n > 0) {
        memcpy(lab_buf_room(b, n), data, n);
        b->tail += n;
    }
}

void lab_buf_take(struct lab_buf *b, size_t n)
{
    b->head += n;
    if (b->head == b->tail) {
        b->head = b->tail = 0;
    }
}

void lab_buf_free(struct lab_buf *b)
{
    free(b->mem);
    memset(b, 0, sizeof(*b));
}

static void complain(const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, ap);
    fflush(stdout);
    fprintf(stderr, "lab: %s\n", text);
}

void lab_die(int status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    exit(status);
}

int lab_complain(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    complain(fmt, ap);
    va_end(ap);
    return -1;
}

int lab_file_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    char *got;

    if (f == NULL) {
        return -1;
    }
    got = fgets(out, (int)size, f);
    fclose(f);
    if (got == NULL) {
        errno = ENODATA;
        return -1;
    }
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

int lab_number_parse(const char *text, long min, long max, long *out)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || v < min || v > max) {
        return -1;
    }
    *out = v;
    return 0;
}

int lab_real_parse(const char *text, double min, double max, double *out)
{
    char *end;
    double v;

    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(v) || v < min || v > max) {
        return -1;
    }
    *out = v;
    return 0;
}

static int unix_address(const char *path, struct sockaddr_un *sa)
{
    memset(sa, 0, sizeof(*sa));
    sa->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(sa->sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(sa->sun_path, path);
    return 0;
}

int lab_unix_listen(const char *path)
{
    struct sockaddr_un sa;
    int fd;

    if (unix_address(path, &sa) != 0) {
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    unlink(path);
    if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0 || listen(fd, 16) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

int lab_unix_connect(const char *path)
{
    struct sockaddr_un sa;
    int fd;

    if (unix_address(path, &sa) != 0) {
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}
