/*
 * The door: who has dialled and has not proved the secret yet has one of a bounded number of
 * places. A dialler with the secret keeps its place for two round trips; a stranger until it is
 * thrown out. While all places are taken the kernel's backlog keeps the others, hello and all, and
 * whose turn it is to go is decided by oob_waiter_goes_before().
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "oob_tcp.h"

#define ACCEPTS_PER_TURN 64           /* channels that stand want their turn too */
#define PAUSE_NS         100000000ull /* with no descriptor left accept() would only fail again */
#define FD_SHARE         8 /* of the process's descriptors, one in so many may be a stranger's */

int oob_door_places(void)
{
    struct rlimit l;
    rlim_t n = OOB_PLACES_MAX;

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur != RLIM_INFINITY) {
        n = l.rlim_cur / FD_SHARE;
    }
    return n < OOB_PLACES_MIN ? OOB_PLACES_MIN : n > OOB_PLACES_MAX ? OOB_PLACES_MAX : (int)n;
}

static void listen_watch(struct tcp_oob *o, int on)
{
    struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.ptr = &o->door.fd};

    if (o->door.fd >= 0 && o->door.paused == on &&
        epoll_ctl(o->epfd, EPOLL_CTL_MOD, o->door.fd, &e) == 0) {
        o->door.paused = !on;
        oob_tcp_touch(o); /* its deadline counts */
    }
}

/* The row of the address that @fd comes from; the first that is free where it has none. Never
 * NULL: rows are as many as places. */
static struct tcp_source *source_of(struct tcp_oob *o, int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof(ss);
    struct tcp_source *free_row = &o->door.source[0];
    uint8_t addr[16] = {0};

    if (getpeername(fd, (struct sockaddr *)&ss, &len) != 0) {
        ss.ss_family = AF_UNSPEC; /* it has gone already: all such are one */
    }
    if (ss.ss_family == AF_INET6) {
        memcpy(addr, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
    } else if (ss.ss_family == AF_INET) {
        memcpy(addr, &((struct sockaddr_in *)&ss)->sin_addr, 4);
    }
    for (int i = 0; i < OOB_PLACES_MAX; i++) {
        struct tcp_source *s = &o->door.source[i];
        if (s->waiting == 0) {
            free_row = s;
        } else if (memcmp(s->addr, addr, sizeof(addr)) == 0) {
            return s;
        }
    }
    memcpy(free_row->addr, addr, sizeof(addr));
    return free_row;
}

void oob_door_enter(struct tcp_chan *c)
{
    c->source = source_of(c->oob, c->fd);
    c->source->waiting++;
    c->oob->door.pending++;
}

void oob_door_leave(struct tcp_chan *c)
{
    c->source->waiting--;
    c->source = NULL;
    c->oob->door.pending--;
    oob_tcp_touch(c->oob); /* a paused listener is opened again by the scan */
}

static struct oob_waiter waiter_of(const struct tcp_chan *c)
{
    return (struct oob_waiter){
        .greeted = c->state == CHAN_AUTH, .beside = c->source->waiting, .since = c->since};
}

/* The first to go; NULL: nobody waits. */
static struct tcp_chan *first_to_go(struct tcp_oob *o)
{
    struct tcp_chan *first = NULL;
    struct oob_waiter best = {0};

    for (struct tcp_chan *c = o->chans; c != NULL; c = c->next) {
        struct oob_waiter w;
        if (c->state == CHAN_DEAD || c->source == NULL) {
            continue;
        }
        w = waiter_of(c);
        if (first == NULL || oob_waiter_goes_before(&w, &best)) {
            first = c;
            best = w;
        }
    }
    return first;
}

/*
 * Throws out the first to go, if he has had his time. Where this thread, and not the dialler, was
 * late, the words are in the socket: they are read first, and who has spoken is checked anew.
 * 0: no; *@when is when to ask again.
 */
static int make_room(struct tcp_oob *o, uint64_t *when)
{
    struct tcp_chan *c;

    *when = UINT64_MAX;
    while ((c = first_to_go(o)) != NULL) {
        struct oob_waiter w = waiter_of(c);
        enum chan_state state = c->state;
        int before = o->door.pending;
        *when = oob_waiter_due(&w);
        if (*when > o->turn.now) {
            return 0;
        }
        oob_chan_read(c);
        if (o->door.pending < before) {
            return 1; /* proved, or gone by itself */
        }
        if (c->state != state) {
            continue; /* a state is left for good: this loop ends */
        }
        oob_tcp_stranger(o, c, OOB_STRANGER_CROWD);
        oob_chan_close(c);
        return 1;
    }
    return 0;
}

static void pause_until(struct tcp_oob *o, uint64_t when)
{
    o->door.at = when;
    listen_watch(o, 0);
}

/* accept() has no descriptor, which it says also where nobody waits: one of ours may be a
 * stranger's. 1: there is one again. */
static int make_descriptor(struct tcp_oob *o)
{
    struct pollfd p = {.fd = o->door.fd, .events = POLLIN};
    uint64_t when;

    if (poll(&p, 1, 0) <= 0) {
        return 0;
    }
    if (make_room(o, &when)) {
        return 1;
    }
    o->door.starved = 1;
    pause_until(o, when < o->turn.now + PAUSE_NS ? when : o->turn.now + PAUSE_NS);
    return 0;
}

/* 0, or why there is none. */
static int accept_one(struct tcp_oob *o)
{
    int one = 1, fd, err = 0;

    oob_fork_hold();
    fd = accept4(o->door.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        err = errno;
    } else {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)oob_chan_create(o, fd, NULL, CHAN_HELLO);
    }
    oob_fork_release();
    return err;
}

void oob_door_accept(struct tcp_oob *o)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        uint64_t when;
        int err;
        if (o->door.pending >= o->door.places && !make_room(o, &when)) {
            pause_until(o, when);
            return;
        }
        err = accept_one(o);
        if (err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM) {
            if (!make_descriptor(o)) {
                return;
            }
        } else if (err != 0) {
            return;
        }
    }
}

uint64_t oob_door_scan(struct tcp_oob *o)
{
    if (!o->door.paused) {
        return UINT64_MAX;
    }
    if (o->door.at > o->turn.now && (o->door.starved || o->door.pending >= o->door.places)) {
        return o->door.at;
    }
    o->door.starved = 0;
    listen_watch(o, 1);
    return UINT64_MAX;
}
