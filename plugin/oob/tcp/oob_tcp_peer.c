/* Peers: who they are, which channel is in use, when to dial. */
#include "oob_tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/r2_log.h"

static struct tcp_peer *to_peer(struct r2_oob_peer *p)
{
    return (struct tcp_peer *)p;
}

static struct tcp_peer **bucket(struct tcp_oob *o, const uint64_t uuid[2])
{
    return &o->hash[(uuid[0] ^ uuid[1]) % OOB_PEER_BUCKETS];
}

struct tcp_peer *oob_peer_find(struct tcp_oob *o, const uint64_t uuid[2])
{
    struct tcp_peer *p = *bucket(o, uuid);

    while (p != NULL && oob_uuid_compare(p->name.uuid, uuid) != 0) {
        p = p->next_hash;
    }
    return p;
}

struct tcp_peer *oob_peer_create(struct tcp_oob *o, const uint64_t uuid[2])
{
    struct tcp_peer *p = calloc(1, sizeof(*p)), **b = bucket(o, uuid);

    if (p == NULL) {
        return NULL;
    }
    p->oob = o;
    memcpy(p->name.uuid, uuid, sizeof(p->name.uuid));
    p->next_hash = *b;
    *b = p;
    p->next_all = o->peers;
    o->peers = p;
    return p;
}

static void peer_free(struct tcp_oob *o, struct tcp_peer **at)
{
    struct tcp_peer *p = *at, **h = bucket(o, p->name.uuid);

    while (*h != p) {
        h = &(*h)->next_hash;
    }
    *h = p->next_hash;
    *at = p->next_all;
    if (o->self == p) {
        o->self = NULL;
    }
    free(p);
}

void oob_peer_reap(struct tcp_oob *o)
{
    struct tcp_peer **at = &o->peers;

    while (*at != NULL) {
        if ((*at)->refs == 0 && (*at)->chans == 0 && !(*at)->self) {
            peer_free(o, at);
        } else {
            at = &(*at)->next_all;
        }
    }
}

void oob_peer_free_all(struct tcp_oob *o)
{
    while (o->peers != NULL) {
        peer_free(o, &o->peers);
    }
    while (o->note.first != NULL) {
        struct tcp_note *n = o->note.first;
        o->note.first = n->next;
        free(n);
    }
}

static socklen_t sockaddr_fill(const struct tcp_peer *p, struct sockaddr_storage *ss)
{
    memset(ss, 0, sizeof(*ss));
    if (p->name.family == 4) {
        struct sockaddr_in *s = (struct sockaddr_in *)ss;
        s->sin_family = AF_INET;
        s->sin_port = htons(p->name.port);
        memcpy(&s->sin_addr, p->name.addr, 4);
        return sizeof(*s);
    }
    struct sockaddr_in6 *s = (struct sockaddr_in6 *)ss;
    s->sin6_family = AF_INET6;
    s->sin6_port = htons(p->name.port);
    memcpy(&s->sin6_addr, p->name.addr, 16);
    /* a scope is a number of the host that uses it: between link-local addresses that is our own
     * interface */
    if (p->name.addr[0] == 0xfe && (p->name.addr[1] & 0xc0) == 0x80) {
        s->sin6_scope_id = p->oob->name.scope ? p->oob->name.scope : p->name.scope;
    }
    return sizeof(*s);
}

static void redial_schedule(struct tcp_peer *p)
{
    uint64_t r = 0;

    p->oob->env.random(p->oob->env.arg, &r, sizeof(r));
    p->dial_at = p->oob->turn.now + oob_backoff_ns(p->attempt, r);
    if (p->attempt < 30) {
        p->attempt++;
    }
    oob_tcp_touch(p->oob);
}

/* *@err: of connect(). NULL: no channel. */
static struct tcp_chan *dial_begin(struct tcp_peer *p, int *err)
{
    struct sockaddr_storage ss;
    socklen_t len = sockaddr_fill(p, &ss);
    struct tcp_chan *c = NULL;
    int one = 1, fd;

    oob_fork_hold();
    fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        *err = connect(fd, (struct sockaddr *)&ss, len) == 0 ? 0 : errno;
        c = oob_chan_create(p->oob, fd, p, CHAN_CONNECTING);
    }
    oob_fork_release();
    return c;
}

void oob_peer_dial(struct tcp_peer *p)
{
    int err = 0;
    struct tcp_chan *c = dial_begin(p, &err);

    if (c == NULL) {
        oob_peer_lost(p, NULL, 0);
        return;
    }
    p->dial = c;
    if (err == 0) {
        oob_auth_begin(c);
    } else if (err != EINPROGRESS) {
        oob_chan_fail(c, err == ECONNREFUSED);
    }
}

void oob_peer_lost(struct tcp_peer *p, struct tcp_chan *c, int refused)
{
    struct tcp_oob *o = p->oob;

    /* a dial that failed beside a channel that stands is nobody's business */
    if (o->stopping || p->cur != NULL) {
        return;
    }
    if (c != NULL && c->id != 0 && c->id == p->last_id) {
        R2_INFO_MANY(R2_LOG_CHANNEL_LOST, "out-of-band channel to %s lost", p->str);
    }
    if (p->refs > 0) {
        redial_schedule(p);
    }
    o->ev.down(o->ev.arg, (struct r2_oob_peer *)p, refused);
}

void oob_peer_adopt(struct tcp_peer *p, struct tcp_chan *c)
{
    struct tcp_oob *o = p->oob;
    struct tcp_chan *old = p->cur;
    int quiet = 0;

    if (old != NULL && old->by_us != c->by_us && c->lost_id != old->id) {
        /* both dialled at once: nothing is lost, the old one only runs dry */
        quiet = 1;
        oob_chan_drain(old, 0);
    } else if (old != NULL) {
        /* the peer has left it: what it wrote before comes first */
        oob_chan_read(old);
        if (old->state != CHAN_DEAD && p->cur == old) {
            oob_chan_fail(old, 0);
        }
    }
    if (c->state == CHAN_DEAD || o->stopping) {
        return;
    }
    if (p->dial == c) {
        p->dial = NULL;
    }
    /* a dial of ours that has not spoken for itself yet is of no more use */
    if (p->dial != NULL && p->dial->state < CHAN_AUTH) {
        oob_chan_close(p->dial);
    }
    oob_chan_move(c, CHAN_UP);
    o->count.reconnects += p->last_id != 0 && !quiet;
    p->cur = c;
    p->last_id = c->id;
    p->attempt = 0;
    if (!quiet) {
        o->ev.up(o->ev.arg, (struct r2_oob_peer *)p);
    }
}

static bool name_is_sound(const struct r2_oob_name *n)
{
    return (n->uuid[0] | n->uuid[1]) != 0 && (n->family == 4 || n->family == 6) && n->port != 0;
}

struct r2_oob_peer *oob_peer_get(struct r2_oob *oob, const struct r2_oob_name *name)
{
    struct tcp_oob *o = (struct tcp_oob *)oob;
    struct tcp_peer *p;

    if (!name_is_sound(name)) {
        errno = EINVAL;
        return NULL;
    }
    p = oob_peer_find(o, name->uuid);
    if (p == NULL) {
        p = oob_peer_create(o, name->uuid);
    }
    if (p == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    p->name = *name;
    p->has_secret = 1;
    oob_tcp_addr_text(&p->name, p->str, sizeof(p->str));
    if (oob_uuid_compare(name->uuid, o->name.uuid) == 0) {
        p->self = 1;
        o->self = p;
    }
    if (p->refs++ == 0) {
        p->attempt = 0;
        p->dial_at = 0;
    }
    oob_tcp_touch(o);
    return (struct r2_oob_peer *)p;
}

void oob_peer_ref(struct r2_oob_peer *peer)
{
    to_peer(peer)->refs++;
}

void oob_peer_put(struct r2_oob_peer *peer)
{
    struct tcp_peer *p = to_peer(peer);

    if (p == NULL || --p->refs > 0 || p->self) {
        return;
    }
    if (p->dial != NULL) {
        oob_chan_close(p->dial);
    }
    if (p->cur != NULL) {
        oob_chan_drain(p->cur, 1);
    }
    oob_tcp_touch(p->oob);
}

const uint64_t *oob_peer_uuid(const struct r2_oob_peer *peer)
{
    return ((const struct tcp_peer *)peer)->name.uuid;
}

const char *oob_peer_str(const struct r2_oob_peer *peer)
{
    return ((const struct tcp_peer *)peer)->str;
}

bool oob_peer_is_up(const struct r2_oob_peer *peer)
{
    const struct tcp_peer *p = (const struct tcp_peer *)peer;

    return p->self ? p->oob->self_up : p->cur != NULL;
}

static int self_send(struct tcp_oob *o, const void *msg, size_t len)
{
    struct tcp_note *n;

    if (o->note.bytes + len + sizeof(*n) > OOB_QUEUE_MAX) {
        o->count.queue_full++;
        errno = EAGAIN;
        return -1;
    }
    n = malloc(sizeof(*n) + len);
    if (n == NULL) {
        return -1;
    }
    n->next = NULL;
    n->len = len;
    if (len > 0) {
        memcpy(n->data, msg, len);
    }
    *o->note.last = n;
    o->note.last = &n->next;
    o->note.bytes += len + sizeof(*n);
    oob_tcp_touch(o);
    return 0;
}

int oob_peer_send(struct r2_oob_peer *peer, const void *msg, size_t len)
{
    struct tcp_peer *p = to_peer(peer);
    struct tcp_oob *o = p->oob;

    if (len > R2_OOB_MAX_MESSAGE) {
        errno = EMSGSIZE;
        return -1;
    }
    if (!oob_peer_is_up(peer) || (!p->self && p->cur->err != 0)) {
        errno = ENOTCONN;
        return -1;
    }
    if (p->self) {
        if (self_send(o, msg, len) != 0) {
            return -1;
        }
    } else {
        struct tcp_chan *c = p->cur;
        if (c->tx.tail - c->tx.head + len > OOB_QUEUE_MAX) {
            o->count.queue_full++;
            errno = EAGAIN;
            return -1;
        }
        if (oob_chan_put_frame(c, OOB_DATA, msg, len) != 0) {
            return -1;
        }
        oob_chan_flush(c);
    }
    o->count.sent++;
    o->count.bytes_sent += len;
    return 0;
}

void oob_self_deliver(struct tcp_oob *o)
{
    /* what the upcalls queue now waits for the next turn: a process that answers itself must not
     * keep us here */
    struct tcp_note *n = o->note.first;

    if (o->self == NULL || o->stopping) {
        return;
    }
    o->note.first = NULL;
    o->note.last = &o->note.first;
    o->note.bytes = 0;
    if (!o->self_up) {
        o->self_up = 1;
        o->ev.up(o->ev.arg, (struct r2_oob_peer *)o->self);
    }
    while (n != NULL) {
        struct tcp_note *next = n->next;
        o->count.received++;
        o->count.bytes_received += n->len;
        o->ev.message(o->ev.arg, (struct r2_oob_peer *)o->self, n->data, n->len);
        free(n);
        n = next;
    }
}
