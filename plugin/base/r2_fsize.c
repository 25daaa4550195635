#include "r2_fsize.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

static void only(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGXFSZ);
}

void r2_fsize_begin(struct r2_fsize *g)
{
    sigset_t xfsz, pending;

    only(&xfsz);
    g->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &g->mask);
}

void r2_fsize_end(const struct r2_fsize *g)
{
    const struct timespec now = {0};
    int err = errno;
    sigset_t xfsz;

    only(&xfsz);
    while (!g->was_pending && sigtimedwait(&xfsz, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &g->mask, NULL);
    errno = err;
}
