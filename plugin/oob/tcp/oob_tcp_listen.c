/*
 * The socket that an endpoint listens on, and what a child of fork() does with the sockets. The
 * kernel refuses connections to a process that has ended, and closes those that it had, which is
 * how others learn of that: a child that kept the sockets would be connected to in the place of the
 * process that has gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oob/oob_ifsel.h"
#include "oob_tcp.h"

#define LISTEN_BACKLOG                                                                             \
    4096 /* a start storm of a large job; net.core.somaxconn has the last word                     \
          */

/* Guards the list, the lists of channels of those in it, and that their descriptors are theirs. An
 * endpoint's own thread, which alone changes these, reads them without. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tcp_oob *all; /* those that listen, or did */

void oob_fork_hold(void)
{
    pthread_mutex_lock(&all_lock);
}

void oob_fork_release(void)
{
    pthread_mutex_unlock(&all_lock);
}

static void fork_child(void)
{
    for (struct tcp_oob *o = all; o; o = o->door.next) {
        close(o->door.fd);
        o->door.fd = -1;
        for (struct tcp_chan *c = o->chans; c; c = c->next) {
            close(c->fd);
            c->fd = -1;
        }
    }
    all = NULL;
    oob_fork_release();
}

static void fork_register(void)
{
    pthread_atfork(oob_fork_hold, oob_fork_release, fork_child);
}

static int listen_bind(struct tcp_oob *o, const struct oob_if *i)
{
    struct sockaddr_in s4 = {.sin_family = AF_INET};
    struct sockaddr_in6 s6 = {.sin6_family = AF_INET6, .sin6_scope_id = i->scope};
    struct sockaddr *sa = i->family == 4 ? (struct sockaddr *)&s4 : (struct sockaddr *)&s6;
    socklen_t len = i->family == 4 ? sizeof(s4) : sizeof(s6);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &o->door.fd};

    memcpy(&s4.sin_addr, i->addr, 4);
    memcpy(&s6.sin6_addr, i->addr, 16);
    o->door.fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (o->door.fd < 0 || bind(o->door.fd, sa, len) != 0 ||
        listen(o->door.fd, LISTEN_BACKLOG) != 0 || getsockname(o->door.fd, sa, &len) != 0 ||
        epoll_ctl(o->epfd, EPOLL_CTL_ADD, o->door.fd, &e) != 0) {
        return -1;
    }
    o->name.family = i->family;
    o->name.port = ntohs(i->family == 4 ? s4.sin_port : s6.sin6_port);
    o->name.scope = i->scope;
    memcpy(o->name.addr, i->addr, sizeof(o->name.addr));
    return 0;
}

int oob_listen_open(struct tcp_oob *o, const struct oob_if *i)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int rc, err;

    pthread_once(&once, fork_register);
    oob_fork_hold();
    rc = listen_bind(o, i);
    err = errno;
    if (rc == 0) {
        o->door.next = all;
        all = o;
    } else if (o->door.fd >= 0) {
        close(o->door.fd);
        o->door.fd = -1;
    }
    oob_fork_release();
    errno = err;
    return rc;
}

void oob_fd_close(const struct tcp_oob *o, int *fd)
{
    epoll_ctl(o->epfd, EPOLL_CTL_DEL, *fd, NULL);
    shutdown(*fd, SHUT_RDWR);
    close(*fd);
    *fd = -1;
}

void oob_listen_close(struct tcp_oob *o)
{
    if (o->door.fd < 0) {
        return;
    }
    oob_fork_hold();
    oob_fd_close(o, &o->door.fd);
    oob_fork_release();
}

void oob_listen_forget(struct tcp_oob *o)
{
    oob_listen_close(o);
    oob_fork_hold();
    for (struct tcp_oob **at = &all; *at; at = &(*at)->door.next) {
        if (*at == o) {
            *at = o->door.next;
            break;
        }
    }
    oob_fork_release();
}
