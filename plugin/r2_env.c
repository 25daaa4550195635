#include "r2_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "r2_log.h"

static uint64_t clock_now_ns(void *arg)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* For kernels or sandboxes that refuse getrandom. Returns the bytes read. */
static size_t urandom_read(uint8_t *out, size_t len)
{
    size_t got = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    while (got < len) {
        ssize_t n = read(fd, out + got, len - got);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    close(fd);
    return got;
}

/* The secrets of the out-of-band channel come from here: with no source of randomness there is no safe way to go on. */
static void system_random(void *arg, void *out, unsigned len)
{
    uint8_t *p = out;
    size_t got = 0;

    while (got < len) {
        ssize_t n = getrandom(p + got, len - got, 0);
        if (n > 0)
            got += (size_t)n;
        else if (n < 0 && errno != EINTR)
            break;
    }
    if (got < len)
        got += urandom_read(p + got, len - got);
    if (got < len) {
        R2_WARN("neither getrandom nor /dev/urandom gives random bytes: secrets cannot be made");
        r2_log_flush();
        abort();
    }
}

static void kick_nobody(void *arg)
{
}

static void kick_no_worker(void *arg, int device)
{
}

void r2_env_default(struct r2_env *env)
{
    env->arg = NULL;
    env->now_ns = clock_now_ns;
    env->random = system_random;
    env->threads = 1;
    env->kick_service = kick_nobody;
    env->kick_worker = kick_no_worker;
}
