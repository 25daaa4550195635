#include "tests/lab/lab_watch.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tests/lab/lab_util.h"

static int epoll_fd = -1;

void lab_watch_init(void)
{
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        lab_die(1, "epoll: %s", strerror(errno));
    }
}

void lab_watch_set(struct lab_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    int op = w->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;

    if (w->fd < 0 || events == w->events) {
        return;
    }
    if (epoll_ctl(epoll_fd, op, w->fd, &ev) != 0) {
        lab_die(1, "epoll: %s", strerror(errno));
    }
    w->events = events;
}

void lab_watch_close(struct lab_watch *w)
{
    if (w->fd >= 0) {
        lab_watch_set(w, 0);
        close(w->fd);
        w->fd = -1;
    }
}

void lab_watch_run(void)
{
    struct epoll_event ev;

    if (epoll_wait(epoll_fd, &ev, 1, -1) == 1) {
        struct lab_watch *w = ev.data.ptr;
        w->ready(w, ev.events);
    }
}
