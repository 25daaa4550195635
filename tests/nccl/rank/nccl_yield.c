#include "tests/nccl/rank/nccl_yield.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GAP_NS   100000 /* calls further apart than this are no loop of one that waits */
#define IN_A_ROW 10     /* calls that are what they are elsewhere, before they sleep */
#define SLEEP_NS 20000  /* as long as a block of the stand-in sleeps (kernel_wait.c) */

/* Written once by nccl_yield_sleep(), before NCCL is loaded. Relaxed: a thread that misses it
 * yields. */
static atomic_bool sleeps;

void nccl_yield_sleep(void)
{
    atomic_store_explicit(&sleeps, true, memory_order_relaxed);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Of this thread: calls in a row that had nothing to do, and when the last one returned. */
static _Thread_local struct {
    int64_t last;
    unsigned in_a_row;
} vain;

/* A call that had nothing to do. Whether it is one of a loop that waits, and has slept for that. */
static bool has_slept(void)
{
    bool sleep;

    if (!atomic_load_explicit(&sleeps, memory_order_relaxed)) {
        return false;
    }
    vain.in_a_row = now_ns() - vain.last < GAP_NS ? vain.in_a_row + 1 : 1;
    sleep = vain.in_a_row > IN_A_ROW;
    if (sleep) {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
    vain.last = now_ns();
    return sleep;
}

/* These take the place of the C library's for everything in this process. */

__attribute__((visibility("default"))) int sched_yield(void)
{
    int saved = errno;

    if (!has_slept()) {
        syscall(SYS_sched_yield);
    }
    errno = saved;
    return 0;
}

/* @rc as it is and errno with it; where that is "not yet", behind a sleep. What has something ends
 * the row: a stream that is read until it is empty does not wait. */
static long unless_yet(long rc)
{
    int saved = errno;

    if (rc < 0 && (saved == EAGAIN || saved == EWOULDBLOCK)) {
        (void)has_slept();
        errno = saved;
    } else {
        vain.in_a_row = 0;
    }
    return rc;
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    return unless_yet(syscall(SYS_recvfrom, fd, bytes, len, flags, NULL, NULL));
}

__attribute__((visibility("default"))) int accept(int fd, struct sockaddr *peer, socklen_t *len)
{
    return (int)unless_yet(syscall(SYS_accept, fd, peer, len));
}

__attribute__((visibility("default"))) int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int ready = (int)syscall(SYS_poll, fds, n, timeout_ms);

    if (ready == 0 && timeout_ms == 0) {
        (void)has_slept();
    } else {
        vain.in_a_row = 0;
    }
    return ready;
}
