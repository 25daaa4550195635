/* The endpoint: listener, turns, timers, the end. */
#include "oob_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/r2_log.h"
#include "oob/oob_ifsel.h"

#define EVENTS_PER_TURN 64

static struct tcp_oob *to_tcp(struct r2_oob *oob)
{
    return (struct tcp_oob *)oob;
}

void oob_tcp_touch(struct tcp_oob *o)
{
    uint64_t one = 1;

    if (o->rescan) {
        return;
    }
    o->rescan = 1;
    /* a full counter cannot be: 1 is written only once per turn */
    if (!o->in_progress && write(o->wakefd, &one, sizeof(one)) < 0) {
        R2_WARN("out-of-band channel: eventfd: %s", strerror(errno));
    }
}

void oob_tcp_addr_text(const struct r2_oob_name *n, char *out, size_t len)
{
    char text[INET6_ADDRSTRLEN] = "?";

    inet_ntop(n->family == 6 ? AF_INET6 : AF_INET, n->addr, text, sizeof(text));
    snprintf(out, len, n->family == 6 ? "[%s]:%u" : "%s:%u", text, n->port);
}

/* Who is at the other end of @c: the address, "?" where it has gone already. */
static void far_end_text(const struct tcp_chan *c, char *out, size_t len)
{
    struct sockaddr_storage ss = {0};
    socklen_t size = sizeof(ss);
    struct r2_oob_name n = {0};

    if (getpeername(c->fd, (struct sockaddr *)&ss, &size) != 0) {
        snprintf(out, len, "?");
        return;
    }
    n.family = ss.ss_family == AF_INET6 ? 6 : 4;
    if (n.family == 6) {
        memcpy(n.addr, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
        n.port = ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
    } else {
        memcpy(n.addr, &((struct sockaddr_in *)&ss)->sin_addr, 4);
        n.port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
    }
    oob_tcp_addr_text(&n, out, len);
}

void oob_tcp_stranger(struct tcp_oob *o, const struct tcp_chan *c, enum oob_stranger kind)
{
    static const char *const what[OOB_STRANGERS] = {
        [OOB_STRANGER_GARBAGE] = "its first bytes are not of this protocol",
        [OOB_STRANGER_CUT] = "it closed in the middle of its hello",
        [OOB_STRANGER_SILENT] = "it sends no hello",
        [OOB_STRANGER_CROWD] = "too many send no hello",
        [OOB_STRANGER_LOST] = "it dials another process",
        [OOB_STRANGER_UNKNOWN] = "it is not known",
        [OOB_STRANGER_SECRET] = "its secret is wrong",
    };
    char text[72];

    o->count.strangers++;
    if (o->door.strangers_logged >> kind & 1) {
        return;
    }
    o->door.strangers_logged |= (uint8_t)(1u << kind);
    far_end_text(c, text, sizeof(text));
    R2_INFO(
        "out-of-band channel: stranger %s dropped: %s; later ones of this kind are only counted",
        text, what[kind]);
}

void oob_tcp_bad_frame(const struct tcp_chan *c, const uint64_t from[2], enum oob_bad why)
{
    struct tcp_oob *o = c->oob;
    char text[72];

    o->count.bad_frames++;
    if (!oob_logged_first(&o->bad, from)) {
        return;
    }
    far_end_text(c, text, sizeof(text));
    R2_WARN(
        "out-of-band channel: bad frame from %s (process %016llx) dropped, the channel closed: %s; later ones are "
        "only counted",
        c->peer != NULL ? c->peer->str : text, (unsigned long long)from[0], oob_bad_text(why));
}

static void deadline_min(uint64_t *next, uint64_t t)
{
    if (t < *next) {
        *next = t;
    }
}

/* @c has been silent for too long, as far as it was read. It may have spoken since: a turn has an
 * end, and this process may have stood still. */
static bool has_spoken(struct tcp_chan *c)
{
    oob_chan_read(c);
    return c->state != CHAN_UP || c->last_rx == c->oob->turn.now;
}

static void chan_scan(struct tcp_chan *c, uint64_t *next)
{
    struct tcp_oob *o = c->oob;
    uint64_t last;

    if (c->state == CHAN_DEAD) {
        return;
    }
    if (c->err != 0) {
        oob_chan_fail(c, 0);
        return;
    }
    if (c->state != CHAN_UP) {
        if (c->deadline > o->turn.now) {
            deadline_min(next, c->deadline);
            return;
        }
        if (c->peer == NULL && c->state != CHAN_DRAIN) {
            oob_tcp_stranger(o, c, OOB_STRANGER_SILENT);
        }
        oob_chan_fail(c, 0);
        return;
    }
    if (o->turn.now - c->last_rx >= 3 * o->keepalive && !has_spoken(c)) {
        oob_chan_fail(c, 0);
    }
    if (c->state != CHAN_UP) {
        return;
    }
    last = c->last_rx > c->last_ping ? c->last_rx : c->last_ping;
    if (o->turn.now - last >= o->keepalive) {
        c->last_ping = last = o->turn.now;
        if (c->tx.tail == c->tx.head && oob_chan_put_frame(c, OOB_PING, NULL, 0) == 0) {
            oob_chan_flush(c);
        }
    }
    deadline_min(next, last + o->keepalive);
    deadline_min(next, c->last_rx + 3 * o->keepalive);
}

/* Everything that time or a call outside of progress() has made due. Returns the next deadline. */
static uint64_t scan(struct tcp_oob *o)
{
    uint64_t next = UINT64_MAX;

    for (struct tcp_chan *c = o->chans; c != NULL; c = c->next) {
        chan_scan(c, &next);
    }
    for (struct tcp_peer *p = o->peers; p != NULL; p = p->next_all) {
        if (p->refs == 0 || p->self || p->cur != NULL || p->dial != NULL || o->stopping) {
            continue;
        }
        if (p->dial_at <= o->turn.now) {
            oob_peer_dial(p);
        } else {
            deadline_min(&next, p->dial_at);
        }
    }
    deadline_min(&next, oob_door_scan(o));
    return next;
}

bool oob_tcp_turn_is_over(const struct tcp_oob *o)
{
    return o->env.now_ns(o->env.arg) - o->turn.began >= OOB_TURN_NS;
}

/*
 * One at a time: what is not taken stays in front, and a channel that has more to say stands behind
 * all others, so that each has its turn however many there are.
 */
static void events_handle(struct tcp_oob *o)
{
    struct epoll_event e;
    uint64_t ignored;

    for (int i = 0; i < EVENTS_PER_TURN && (i == 0 || !oob_tcp_turn_is_over(o)); i++) {
        if (epoll_wait(o->epfd, &e, 1, 0) != 1) {
            return;
        }
        if (e.data.ptr == &o->wakefd) {
            (void)!read(o->wakefd, &ignored, sizeof(ignored));
        } else if (e.data.ptr == &o->door.fd) {
            oob_door_accept(o);
        } else {
            oob_chan_event(e.data.ptr, e.events);
        }
    }
}

static uint64_t tcp_progress(struct r2_oob *oob, uint64_t now_ns)
{
    struct tcp_oob *o = to_tcp(oob);
    int again;

    o->turn.began = o->env.now_ns(o->env.arg);
    o->turn.now = now_ns;
    o->in_progress = 1;
    events_handle(o);
    oob_self_deliver(o);
    /* one more round for what the upcalls and the scan itself have left: a new dial counts towards
     * the deadline */
    for (int i = 0; i < 2 && (o->rescan || now_ns >= o->turn.next); i++) {
        o->rescan = 0;
        o->turn.next = scan(o);
    }
    oob_chan_reap(o);
    oob_peer_reap(o);
    o->in_progress = 0;
    again = o->rescan || o->note.first != NULL;
    o->rescan = 0;
    if (again) {
        o->turn.next = now_ns;
        oob_tcp_touch(o);
    }
    return o->turn.next;
}

static void tcp_destroy(struct r2_oob *oob)
{
    struct tcp_oob *o = to_tcp(oob);

    o->stopping = 1;
    o->in_progress = 1;
    for (struct tcp_chan *c = o->chans; c != NULL; c = c->next) {
        oob_chan_close(c);
    }
    oob_chan_reap(o);
    oob_peer_free_all(o);
    oob_listen_forget(o);
    close(o->wakefd);
    close(o->epfd);
    free(o);
}

static int tcp_fd(struct r2_oob *oob)
{
    return to_tcp(oob)->epfd;
}

static void tcp_name_get(struct r2_oob *oob, struct r2_oob_name *name)
{
    *name = to_tcp(oob)->name;
}

static void tcp_counters(struct r2_oob *oob, struct r2_oob_counters *out)
{
    *out = to_tcp(oob)->count;
}

static void tcp_drain(struct r2_oob *oob, uint64_t limit_ns)
{
    struct tcp_oob *o = to_tcp(oob);
    uint64_t now = o->env.now_ns(o->env.arg), end = now + limit_ns;

    o->stopping = 1;
    o->turn.now = now;
    oob_listen_close(o);
    for (struct tcp_chan *c = o->chans; c != NULL; c = c->next) {
        if (c->state == CHAN_UP || c->state == CHAN_DRAIN) {
            oob_chan_drain(c, 1);
        } else {
            oob_chan_close(c);
        }
        c->deadline = end;
    }
    while (now < end) {
        struct pollfd p = {.fd = o->epfd, .events = POLLIN};
        uint64_t left_ms = (end - now + 999999) / 1000000;
        tcp_progress(oob, now);
        if (o->chans == NULL) {
            return;
        }
        (void)poll(&p, 1, left_ms > 1000 ? 1000 : (int)left_ms);
        now = o->env.now_ns(o->env.arg);
    }
    tcp_progress(oob, end);
}

static const struct r2_oob_ops tcp_ops = {
    .name = "tcp",
    .destroy = tcp_destroy,
    .fd = tcp_fd,
    .progress = tcp_progress,
    .name_get = tcp_name_get,
    .peer_get = oob_peer_get,
    .peer_ref = oob_peer_ref,
    .peer_put = oob_peer_put,
    .peer_uuid = oob_peer_uuid,
    .peer_str = oob_peer_str,
    .peer_is_up = oob_peer_is_up,
    .send = oob_peer_send,
    .drain = tcp_drain,
    .counters = tcp_counters,
};

static int wake_open(struct tcp_oob *o)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &o->wakefd};

    o->epfd = epoll_create1(EPOLL_CLOEXEC);
    o->wakefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return o->epfd < 0 || o->wakefd < 0 ? -1 : epoll_ctl(o->epfd, EPOLL_CTL_ADD, o->wakefd, &e);
}

static void identity_make(struct tcp_oob *o)
{
    do {
        o->env.random(o->env.arg, o->name.uuid, sizeof(o->name.uuid));
    } while ((o->name.uuid[0] | o->name.uuid[1]) == 0);
    o->env.random(o->env.arg, o->name.secret, sizeof(o->name.secret));
}

static void create_undo(struct tcp_oob *o)
{
    if (o == NULL) {
        return;
    }
    oob_listen_forget(o);
    if (o->wakefd >= 0) {
        close(o->wakefd);
    }
    if (o->epfd >= 0) {
        close(o->epfd);
    }
    free(o);
}

struct r2_oob *r2_oob_tcp_create(const struct r2_oob_tcp_config *cfg,
                                 const struct r2_oob_events *ev, char *why, size_t why_len)
{
    const char *spec = cfg->ifname ? cfg->ifname : "", *family = cfg->family ? cfg->family : "";
    struct tcp_oob *o = calloc(1, sizeof(*o));
    struct oob_if *list = calloc(OOB_IF_MAX, sizeof(*list));
    char text[72];
    int n, i;

    if (o != NULL) {
        o->epfd = o->wakefd = o->door.fd = -1;
    }
    if (o == NULL || list == NULL) {
        snprintf(why, why_len, "out of memory");
        goto err;
    }
    o->base.ops = &tcp_ops;
    o->ev = *ev;
    o->hello_timeout = cfg->hello_timeout_ns ? cfg->hello_timeout_ns : OOB_HELLO_TIMEOUT;
    o->keepalive = cfg->keepalive_ns ? cfg->keepalive_ns : OOB_KEEPALIVE;
    o->door.places = oob_door_places();
    o->note.last = &o->note.first;
    o->turn.next = UINT64_MAX;
    r2_env_default(&o->env);
    o->turn.now = o->env.now_ns(o->env.arg);
    identity_make(o);
    n = oob_ifsel_read(list, OOB_IF_MAX);
    if (n < 0) {
        snprintf(why, why_len, "the interfaces of this host cannot be listed: %s", strerror(errno));
        goto err;
    }
    i = oob_ifsel_pick(list, n, spec, family, cfg->avoid, why, why_len);
    if (i < 0) {
        goto err;
    }
    if (wake_open(o) != 0 || oob_listen_open(o, &list[i]) != 0) {
        snprintf(why, why_len, "no out-of-band socket on %s: %s", list[i].name, strerror(errno));
        goto err;
    }
    oob_tcp_addr_text(&o->name, text, sizeof(text));
    R2_INFO("out-of-band channel listens on %s (%s)", text, list[i].name);
    free(list);
    return &o->base;

err:
    free(list);
    create_undo(o);
    return NULL;
}
