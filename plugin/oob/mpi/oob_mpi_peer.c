/* Peers: who they are, which way they go, their queues, the way from MPI to TCP. */
#include "oob_mpi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct mpi_peer *to_peer(struct r2_oob_peer *p)
{
    return (struct mpi_peer *)p;
}

static struct mpi_peer **bucket(struct mpi_oob *o, const uint64_t uuid[2])
{
    return &o->hash[(uuid[0] ^ uuid[1]) % MPI_PEER_BUCKETS];
}

struct mpi_peer *mpi_peer_find(struct mpi_oob *o, const uint64_t uuid[2])
{
    struct mpi_peer *p = *bucket(o, uuid);

    while (p != NULL && oob_uuid_compare(p->name.uuid, uuid) != 0) {
        p = p->next_hash;
    }
    return p;
}

struct mpi_peer *mpi_peer_create(struct mpi_oob *o, const uint64_t uuid[2], enum mpi_via via)
{
    struct mpi_peer *p = calloc(1, sizeof(*p)), **b = bucket(o, uuid);

    if (p == NULL) {
        return NULL;
    }
    p->oob = o;
    memcpy(p->name.uuid, uuid, sizeof(p->name.uuid));
    p->via = via;
    p->rank = -1;
    p->out_last = &p->out;
    p->next_hash = *b;
    *b = p;
    p->next_all = o->peers;
    o->peers = p;
    return p;
}

void mpi_peer_text(struct mpi_peer *p)
{
    char addr[INET6_ADDRSTRLEN] = "?";

    inet_ntop(p->name.family == 6 ? AF_INET6 : AF_INET, p->name.addr, addr, sizeof(addr));
    snprintf(p->str, sizeof(p->str),
             p->name.family == 6 ? "MPI rank %d at [%s]:%u" : "MPI rank %d at %s:%u", p->rank, addr,
             p->name.port);
}

/* ---- queue ---- */

static void queue_pop(struct mpi_peer *p)
{
    struct world_out *m = p->out;

    p->out = *world_out_next(m);
    if (p->out == NULL) {
        p->out_last = &p->out;
    }
    p->out_bytes -= world_out_len(m);
    world_abandon(m);
}

/* Hands to MPI what the window lets through. Makes no call that waits, however loaded the host is.
 */
static void queue_post(struct mpi_peer *p)
{
    struct world_out *m = p->out;

    for (int i = 0; m != NULL && i < MPI_WINDOW; i++, m = *world_out_next(m)) {
        if (world_posted(m)) {
            continue;
        }
        if (world_post(m) != 0) {
            break;
        }
        p->out_posted++;
    }
}

void mpi_peer_queue(struct mpi_peer *p, struct world_out *m)
{
    *p->out_last = m;
    p->out_last = world_out_next(m);
    p->out_bytes += world_out_len(m);
    /*
     * What is through is found by progress() alone: a test of a request lets MPI give its processor
     * away, and a caller with many messages would lose it with each.
     */
    queue_post(p);
    mpi_touch(p->oob);
}

int mpi_peer_pump(struct mpi_peer *p)
{
    int n = 0;

    while (p->out_posted > 0 && world_through(p->out)) {
        queue_pop(p);
        p->out_posted--;
        n++;
    }
    queue_post(p);
    return n;
}

void mpi_peer_drop_queue(struct mpi_peer *p, int all)
{
    struct world_out **at = &p->out;

    while (*at != NULL) {
        struct world_out *m = *at;
        if (world_posted(m) && !all) {
            at = world_out_next(m);
            continue;
        }
        *at = *world_out_next(m);
        p->out_bytes -= world_out_len(m);
        world_abandon(m);
    }
    p->out_last = at;
    if (all) {
        p->out_posted = 0;
    }
}

/* ---- loss, and the way to TCP ---- */

static void redial_schedule(struct mpi_peer *p)
{
    uint64_t r = 0;

    p->oob->env.random(p->oob->env.arg, &r, sizeof(r));
    p->dial_at = p->oob->now + oob_backoff_ns(p->attempt, r);
    if (p->attempt < 30) {
        p->attempt++;
    }
}

void mpi_peer_lost(struct mpi_peer *p, int refused)
{
    struct mpi_oob *o = p->oob;

    if (p->cur.state == MPI_CHAN_UP) {
        MPI_INFO_LOG(o, "out-of-band channel to %s lost", p->str);
    }
    mpi_chan_move(p, &p->cur, MPI_CHAN_NONE);
    mpi_chan_move(p, &p->dial, MPI_CHAN_NONE);
    mpi_peer_drop_queue(p, 0);
    if (p->refs > 0) {
        redial_schedule(p);
    }
    mpi_touch(o);
    if (!o->stopping) {
        o->ev.down(o->ev.arg, (struct r2_oob_peer *)p, refused);
    }
}

/* As TCP knows it: what is said of MPI there means nothing. */
static struct r2_oob_name tcp_name(const struct r2_oob_name *name)
{
    struct r2_oob_name n = *name;

    if (n.world != 0) {
        n.world = 0, n.scope = 0;
    }
    return n;
}

/* The TCP peer is referenced for as long as ours is, and knows the name when we do. -1 with errno.
 */
static int tcp_hold(struct mpi_peer *p)
{
    const struct r2_oob_ops *tcp = p->oob->tcp->ops;
    struct r2_oob_name n = tcp_name(&p->name);

    if (p->tcp_ref || p->refs == 0) {
        return 0;
    }
    if (p->has_name) {
        struct r2_oob_peer *t = tcp->peer_get(p->oob->tcp, &n);
        if (t == NULL) {
            return -1;
        }
        p->tcp = t;
    } else if (p->tcp != NULL) {
        tcp->peer_ref(p->tcp);
    } else {
        return 0; /* it has our name and we not its: it will come */
    }
    p->tcp_ref = 1;
    return 0;
}

static void tcp_release(struct mpi_peer *p)
{
    if (p->tcp_ref) {
        p->oob->tcp->ops->peer_put(p->tcp);
    }
    p->tcp_ref = 0;
    p->tcp = NULL; /* may be freed from now on; an upcall brings it back */
}

void mpi_peer_to_tcp(struct mpi_peer *p)
{
    struct mpi_oob *o = p->oob;
    int was_up = p->cur.state == MPI_CHAN_UP;

    if (p->via == MPI_VIA_TCP) {
        return;
    }
    p->via = MPI_VIA_TCP;
    mpi_chan_drop_all(p);
    mpi_peer_drop_queue(p, 1);
    MPI_INFO_LOG(o, "out-of-band channel to %s goes by TCP from now on", p->str);
    mpi_touch(o);
    if (was_up && !o->stopping) {
        o->ev.down(o->ev.arg, (struct r2_oob_peer *)p, 0);
    }
    if (tcp_hold(p) != 0) {
        MPI_INFO_LOG(o, "out-of-band channel to %s: no TCP either: %s", p->str, strerror(errno));
    }
}

/* ---- upcalls of TCP ---- */

void mpi_tcp_message(void *arg, struct r2_oob_peer *tcp, const void *msg, size_t len)
{
    struct mpi_oob *o = arg;
    struct mpi_peer *p = mpi_peer_find(o, o->tcp->ops->peer_uuid(tcp));

    if (p != NULL && p->via == MPI_VIA_TCP && !o->stopping) {
        o->ev.message(o->ev.arg, (struct r2_oob_peer *)p, msg, len);
    }
}

/*
 * A peer that goes by MPI comes by TCP only when MPI is over at its end, or never was: it has
 * proved the secret. So both ends of a pair use the same way, whoever found out first.
 */
void mpi_tcp_up(void *arg, struct r2_oob_peer *tcp)
{
    struct mpi_oob *o = arg;
    const uint64_t *uuid = o->tcp->ops->peer_uuid(tcp);
    struct mpi_peer *p = mpi_peer_find(o, uuid);

    if (p == NULL) {
        p = mpi_peer_create(o, uuid, MPI_VIA_TCP);
    }
    if (p == NULL) {
        return;
    }
    mpi_peer_to_tcp(p);
    p->tcp = tcp;
    (void)tcp_hold(p);
    if (!o->stopping) {
        o->ev.up(o->ev.arg, (struct r2_oob_peer *)p);
    }
}

void mpi_tcp_down(void *arg, struct r2_oob_peer *tcp, int refused)
{
    struct mpi_oob *o = arg;
    struct mpi_peer *p = mpi_peer_find(o, o->tcp->ops->peer_uuid(tcp));

    if (p == NULL || p->via != MPI_VIA_TCP) {
        return;
    }
    if (!o->stopping) {
        o->ev.down(o->ev.arg, (struct r2_oob_peer *)p, refused);
    }
    if (!p->tcp_ref) {
        p->tcp = NULL;
    }
    mpi_touch(o);
}

/* ---- memory ---- */

static int in_use(const struct mpi_peer *p)
{
    return p->refs > 0 || p->out != NULL || p->tcp != NULL || p->cur.state != MPI_CHAN_NONE ||
           p->ans.state != MPI_CHAN_NONE;
}

static void peer_free(struct mpi_oob *o, struct mpi_peer **at)
{
    struct mpi_peer *p = *at, **h = bucket(o, p->name.uuid);

    while (*h != p) {
        h = &(*h)->next_hash;
    }
    *h = p->next_hash;
    *at = p->next_all;
    mpi_peer_drop_queue(p, 1);
    free(p);
}

void mpi_peer_reap(struct mpi_oob *o)
{
    struct mpi_peer **at = &o->peers;

    while (*at != NULL) {
        if (in_use(*at)) {
            at = &(*at)->next_all;
        } else {
            peer_free(o, at);
        }
    }
}

void mpi_peer_free_all(struct mpi_oob *o)
{
    while (o->peers != NULL) {
        peer_free(o, &o->peers);
    }
}

/* ---- ops ---- */

/* The peer has an endpoint in our own MPI job, and MPI is not over. */
static int name_in_world(const struct mpi_oob *o, const struct r2_oob_name *n)
{
    return !o->leaving && n->world != 0 && n->world == o->name.world &&
           n->scope >> 24 == o->name.scope >> 24 &&
           (n->scope & WORLD_RANK_MAX) < (uint32_t)world_size();
}

static bool name_is_sound(const struct r2_oob_name *n)
{
    return (n->uuid[0] | n->uuid[1]) != 0 && (n->family == 4 || n->family == 6) && n->port != 0;
}

struct r2_oob_peer *mpi_peer_get(struct r2_oob *oob, const struct r2_oob_name *name)
{
    struct mpi_oob *o = (struct mpi_oob *)oob;
    int self = oob_uuid_compare(name->uuid, o->name.uuid) == 0, known;
    struct mpi_peer *p;

    if (!name_is_sound(name)) {
        errno = EINVAL;
        return NULL;
    }
    p = mpi_peer_find(o, name->uuid);
    known = p != NULL;
    if (!known) {
        p = mpi_peer_create(o, name->uuid,
                            !self && name_in_world(o, name) ? MPI_VIA_MPI : MPI_VIA_TCP);
    }
    if (p == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    if (known && p->tcp_ref && !p->has_name) {
        tcp_release(p); /* taken again by name */
    }
    p->name = *name;
    p->has_name = 1;
    if (p->via == MPI_VIA_MPI && p->rank < 0) {
        p->rank = (int)(name->scope & WORLD_RANK_MAX);
    }
    mpi_peer_text(p);
    if (p->refs++ == 0) {
        p->attempt = 0;
        p->dial_at = 0;
    }
    if (p->via == MPI_VIA_TCP && tcp_hold(p) != 0) {
        p->refs--;
        mpi_touch(o);
        return NULL;
    }
    mpi_touch(o);
    return (struct r2_oob_peer *)p;
}

void mpi_peer_ref(struct r2_oob_peer *peer)
{
    struct mpi_peer *p = to_peer(peer);

    p->refs++;
    if (p->via == MPI_VIA_TCP) {
        (void)tcp_hold(p);
    }
}

void mpi_peer_put(struct r2_oob_peer *peer)
{
    struct mpi_peer *p = to_peer(peer);

    if (p == NULL || --p->refs > 0) {
        return;
    }
    if (p->via == MPI_VIA_TCP) {
        tcp_release(p);
    } else {
        mpi_chan_move(p, &p->dial, MPI_CHAN_NONE);
        mpi_chan_fin(p, MPI_FIN_CLOSE);
    }
    mpi_touch(p->oob);
}

const uint64_t *mpi_peer_uuid(const struct r2_oob_peer *peer)
{
    return ((const struct mpi_peer *)peer)->name.uuid;
}

const char *mpi_peer_str(const struct r2_oob_peer *peer)
{
    const struct mpi_peer *p = (const struct mpi_peer *)peer;

    if (p->via == MPI_VIA_TCP && p->tcp != NULL) {
        return p->oob->tcp->ops->peer_str(p->tcp);
    }
    return p->str;
}

bool mpi_peer_is_up(const struct r2_oob_peer *peer)
{
    const struct mpi_peer *p = (const struct mpi_peer *)peer;

    if (p->via == MPI_VIA_TCP) {
        return p->tcp != NULL && p->oob->tcp->ops->peer_is_up(p->tcp);
    }
    return p->cur.state == MPI_CHAN_UP;
}

int mpi_peer_send(struct r2_oob_peer *peer, const void *msg, size_t len)
{
    struct mpi_peer *p = to_peer(peer);
    struct mpi_oob *o = p->oob;

    if (len > R2_OOB_MAX_MESSAGE) {
        errno = EMSGSIZE;
        return -1;
    }
    if (!mpi_peer_is_up(peer)) {
        errno = ENOTCONN;
        return -1;
    }
    if (p->via == MPI_VIA_TCP) {
        return o->tcp->ops->send(p->tcp, msg, len);
    }
    if (p->out_bytes + len > MPI_QUEUE_MAX) {
        o->count.queue_full++;
        errno = EAGAIN;
        return -1;
    }
    if (mpi_chan_put(p, &p->cur, MPI_KIND_FRAME, OOB_DATA, msg, len) != 0) {
        return -1;
    }
    o->count.sent++;
    o->count.bytes_sent += len;
    return 0;
}
