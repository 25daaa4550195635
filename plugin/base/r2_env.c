#include "r2_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "r2_siphash.h"
#include "r2_time.h"

static uint64_t clock_now_ns(void *arg)
{
    return r2_clock_ns(CLOCK_MONOTONIC);
}

/* For kernels or sandboxes that refuse getrandom. Returns the bytes read. */
static size_t urandom_read(uint8_t *out, size_t len)
{
    size_t got = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return 0;
    }
    while (got < len) {
        ssize_t n = read(fd, out + got, len - got);
        if (n > 0) {
            got += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    close(fd);
    return got;
}

/*
 * Last resort, for a sandbox without getrandom and without /dev: the 16 random bytes that the
 * kernel gives every process at exec are the key, a counter and the clock the text. A library must
 * neither end the process nor make a secret that can be guessed.
 */
static void auxv_fill(uint8_t *out, size_t len)
{
    static atomic_uint_fast64_t counter;
    const uint8_t *seed = (const uint8_t *)getauxval(AT_RANDOM);
    uint8_t zero[16] = {0};
    struct r2_siphash_key key = r2_siphash_key(seed ? seed : zero);

    while (len > 0) {
        uint64_t text[3] = {clock_now_ns(NULL), (uint64_t)getpid(),
                            atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed)};
        uint64_t word = r2_siphash(key, text, sizeof(text));
        size_t n = len < sizeof(word) ? len : sizeof(word);
        memcpy(out, &word, n);
        out += n;
        len -= n;
    }
}

static void system_random(void *arg, void *out, unsigned len)
{
    uint8_t *p = out;
    size_t got = 0;

    while (got < len) {
        ssize_t n = getrandom(p + got, len - got, 0);
        if (n > 0) {
            got += (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            break;
        }
    }
    if (got < len) {
        got += urandom_read(p + got, len - got);
    }
    if (got < len) {
        auxv_fill(p + got, len - got);
    }
}

static void thread_wait(void *arg, uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
                               .tv_nsec = (long)(ns % 1000000000)};

    nanosleep(&t, NULL);
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
    env->wait = thread_wait;
    env->threads = 1;
    env->kick_service = kick_nobody;
    env->kick_worker = kick_no_worker;
}
