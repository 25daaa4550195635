/*
 * Channels over MPI: hello, proof of the secret, frames, the end. The messages are those drawn in
 * oob_wire.h.
 *
 * MPI keeps the order between two ranks and loses nothing, so a channel needs no connection: a dial
 * begins one, and what an older one still has under way arrives before it. A dial that arrives
 * while a channel is in use therefore means that the dialler has lost that channel. Of two dials
 * that cross, the smaller uuid's counts.
 */
#include "oob_mpi.h"

#include <errno.h>
#include <string.h>

void mpi_chan_move(struct mpi_peer *p, struct mpi_chan *c, enum mpi_chan_state to)
{
    static const char *const names[MPI_CHAN_STATES] = {"none", "hello", "auth", "up"};
    static const unsigned char legal[MPI_CHAN_STATES][MPI_CHAN_STATES] = {
        [MPI_CHAN_NONE] = {[MPI_CHAN_HELLO] = 1, [MPI_CHAN_AUTH] = 1},
        [MPI_CHAN_HELLO] = {[MPI_CHAN_NONE] = 1, [MPI_CHAN_AUTH] = 1},
        [MPI_CHAN_AUTH] = {[MPI_CHAN_NONE] = 1, [MPI_CHAN_UP] = 1},
        [MPI_CHAN_UP] = {[MPI_CHAN_NONE] = 1},
    };
    enum mpi_chan_state from = c->state;

    if (from == to) {
        return;
    }
    if (!legal[from][to]) {
        MPI_WARN_LOG(p->oob, "a channel to %s cannot go from %s to %s", p->str, names[from],
                     names[to]);
        return;
    }
    MPI_TRACE_LOG(p->oob, "channel to %s %s -> %s", p->str, names[from], names[to]);
    c->state = to;
}

void mpi_chan_drop_all(struct mpi_peer *p)
{
    mpi_chan_move(p, &p->cur, MPI_CHAN_NONE);
    mpi_chan_move(p, &p->dial, MPI_CHAN_NONE);
    mpi_chan_move(p, &p->ans, MPI_CHAN_NONE);
}

/* What it was is over. */
static void chan_begin(struct mpi_peer *p, struct mpi_chan *c, uint64_t id, int by_us,
                       enum mpi_chan_state state)
{
    mpi_chan_move(p, c, MPI_CHAN_NONE);
    memset(c, 0, sizeof(*c));
    c->id = id;
    c->by_us = (uint8_t)by_us;
    c->deadline = p->oob->now + p->oob->hello_timeout;
    mpi_chan_move(p, c, state);
}

static int message_put(struct mpi_peer *p, int rank, const struct world_head *h, const void *data,
                       size_t len)
{
    struct world_out *m = world_out(rank, h, data, len);

    if (m == NULL) {
        errno = ENOMEM;
        return -1;
    }
    mpi_peer_queue(p, m);
    return 0;
}

static struct world_head head_to(const struct mpi_peer *p, enum mpi_kind kind, uint64_t chan)
{
    return (struct world_head){.magic = WORLD_MAGIC,
                               .kind = (uint8_t)kind,
                               .chan = chan,
                               .from = {p->oob->name.uuid[0], p->oob->name.uuid[1]},
                               .to = {p->name.uuid[0], p->name.uuid[1]}};
}

int mpi_chan_put(struct mpi_peer *p, struct mpi_chan *c, enum mpi_kind kind, uint8_t type,
                 const void *msg, size_t len)
{
    struct world_head h = head_to(p, kind, c->id);
    size_t n = oob_frame_pack(p->oob->frame, type, msg, len, c->tx_seq,
                              c->by_us ? c->keys.dialler : c->keys.listener);

    if (message_put(p, p->rank, &h, p->oob->frame, n) != 0) {
        return -1;
    }
    c->tx_seq++;
    return 0;
}

void mpi_chan_fin(struct mpi_peer *p, enum mpi_fin code)
{
    uint8_t c = (uint8_t)code;

    if (p->cur.state != MPI_CHAN_UP) {
        return;
    }
    (void)mpi_chan_put(p, &p->cur, MPI_KIND_FIN, OOB_PING, &c, 1);
    mpi_chan_move(p, &p->cur, MPI_CHAN_NONE);
}

static void hello_fill(struct mpi_oob *o, struct oob_hello *h, uint8_t kind, const uint64_t to[2])
{
    memset(h, 0, sizeof(*h));
    h->version = OOB_VERSION;
    h->features = OOB_FEATURES;
    h->kind = kind;
    memcpy(h->from, o->name.uuid, sizeof(h->from));
    memcpy(h->to, to, sizeof(h->to));
    o->env.random(o->env.arg, h->nonce, sizeof(h->nonce));
    h->family = o->name.family;
    h->port = o->name.port;
    memcpy(h->addr, o->name.addr, sizeof(h->addr));
}

void mpi_chan_dial(struct mpi_peer *p)
{
    struct mpi_oob *o = p->oob;
    struct world_head head;
    struct oob_hello h;
    uint64_t id = 0;

    if (p->gone || p->rank < 0) {
        mpi_peer_lost(p, p->gone);
        return;
    }
    o->env.random(o->env.arg, &id, sizeof(id));
    chan_begin(p, &p->dial, id, 1, MPI_CHAN_HELLO);
    hello_fill(o, &h, OOB_HELLO_DIAL, p->name.uuid);
    p->dial.own_secret = !p->has_name;
    h.secret_of = p->dial.own_secret ? OOB_SECRET_DIALLER : OOB_SECRET_LISTENER;
    oob_hello_pack(&h, p->dial.hello);
    head = head_to(p, MPI_KIND_DIAL, id);
    if (message_put(p, p->rank, &head, p->dial.hello, OOB_HELLO_SIZE) != 0) {
        mpi_peer_lost(p, 0);
    }
}

/* To somebody who may be nobody's peer: only the message is kept, by MPI. */
static void refuse(struct mpi_oob *o, const struct world_in *m, const struct world_head *head,
                   enum mpi_stranger kind)
{
    static const char *const what[MPI_STRANGERS] = {
        [MPI_STRANGER_GARBAGE] = "its first bytes are not of this protocol",
        [MPI_STRANGER_UNKNOWN] = "it is not known",
        [MPI_STRANGER_SECRET] = "its secret is wrong",
    };
    struct world_head h = {.magic = WORLD_MAGIC,
                           .kind = MPI_KIND_REFUSE,
                           .code = 1, /* an endpoint is here */
                           .chan = head->chan,
                           .from = {head->to[0], head->to[1]},
                           .to = {head->from[0], head->from[1]}};
    struct world_out *out = world_out(m->source, &h, NULL, 0);

    o->count.strangers++;
    if ((o->strangers_logged >> kind & 1) == 0) {
        MPI_INFO_LOG(
            o,
            "out-of-band channel: MPI rank %d dropped: %s; later ones of this kind are only counted",
            m->source, what[kind]);
    }
    o->strangers_logged |= (uint8_t)(1u << kind);
    if (out == NULL) {
        return;
    }
    (void)world_post(out);
    world_abandon(out);
}

/* A bad frame of somebody who was let in, or whom we dialled: counts it, and says the first of each
 * process. */
static void bad_frame(struct mpi_peer *p, enum oob_bad why)
{
    struct mpi_oob *o = p->oob;

    o->count.bad_frames++;
    if (oob_logged_first(&o->bad, p->name.uuid)) {
        MPI_WARN_LOG(
            o,
            "out-of-band channel: bad frame from %s (process %016llx) dropped, the channel closed: %s; later "
            "ones are only counted",
            p->str, (unsigned long long)p->name.uuid[0], oob_bad_text(why));
    }
    mpi_peer_lost(p, 0);
}

static const uint8_t *secret_of(struct mpi_oob *o, const struct mpi_peer *p,
                                const struct oob_hello *h)
{
    if (h->secret_of == OOB_SECRET_LISTENER) {
        return o->name.secret;
    }
    return p != NULL && p->has_name ? p->name.secret : NULL;
}

/* Somebody dials. */
static void dial_take(struct mpi_oob *o, const struct world_in *m, const struct world_head *head,
                      const uint8_t *data)
{
    struct mpi_peer *p = mpi_peer_find(o, head->from);
    uint8_t bytes[OOB_HELLO_SIZE];
    struct oob_hello h, answer;
    struct world_head back;
    const uint8_t *secret;

    if (oob_hello_parse(data, m->len - sizeof(*head), &h) != OOB_PARSE_OK ||
        h.kind != OOB_HELLO_DIAL || oob_uuid_compare(h.from, head->from) != 0 ||
        oob_uuid_compare(h.to, o->name.uuid) != 0) {
        refuse(o, m, head, MPI_STRANGER_GARBAGE);
        return;
    }
    secret = secret_of(o, p, &h);
    if (secret == NULL || oob_uuid_compare(h.from, o->name.uuid) == 0 ||
        (p != NULL && (p->via != MPI_VIA_MPI || (p->rank >= 0 && p->rank != m->source)))) {
        refuse(o, m, head, MPI_STRANGER_UNKNOWN);
        return;
    }
    if (p == NULL) {
        p = mpi_peer_create(o, h.from, MPI_VIA_MPI);
    }
    if (p == NULL) {
        return;
    }
    if (p->dial.state != MPI_CHAN_NONE && oob_uuid_compare(o->name.uuid, p->name.uuid) < 0) {
        return; /* crossed: ours counts */
    }
    mpi_chan_move(p, &p->dial, MPI_CHAN_NONE);
    chan_begin(p, &p->ans, head->chan, 0, MPI_CHAN_AUTH);
    p->ans.source = m->source;
    hello_fill(o, &answer, OOB_HELLO_ANSWER, h.from);
    oob_hello_pack(&answer, bytes);
    oob_keys_derive(secret, data, bytes, &p->ans.keys);
    if (!p->has_name && p->rank < 0) {
        p->name.family = h.family;
        p->name.port = h.port;
        memcpy(p->name.addr, h.addr, sizeof(p->name.addr));
    }
    back = head_to(p, MPI_KIND_ANSWER, head->chan);
    if (message_put(p, m->source, &back, bytes, sizeof(bytes)) != 0) {
        mpi_chan_move(p, &p->ans, MPI_CHAN_NONE);
    }
}

static void answer_take(struct mpi_peer *p, const struct world_in *m, const struct world_head *head,
                        const uint8_t *data)
{
    struct mpi_oob *o = p->oob;
    struct mpi_chan *c = &p->dial;
    struct oob_hello h;

    if (c->state != MPI_CHAN_HELLO || c->id != head->chan) {
        return;
    }
    p->unanswered = 0;
    if (oob_hello_parse(data, m->len - sizeof(*head), &h) != OOB_PARSE_OK ||
        h.kind != OOB_HELLO_ANSWER || oob_uuid_compare(h.from, p->name.uuid) != 0) {
        bad_frame(p, OOB_BAD_TYPE);
        return;
    }
    oob_keys_derive(c->own_secret ? o->name.secret : p->name.secret, c->hello, data, &c->keys);
    mpi_chan_move(p, c, MPI_CHAN_AUTH);
    if (mpi_chan_put(p, c, MPI_KIND_FRAME, OOB_AUTH, NULL, 0) != 0) {
        mpi_peer_lost(p, 0);
    }
}

/* @c, the peer's dial or ours, has proved itself. */
static void adopt(struct mpi_peer *p, struct mpi_chan *c)
{
    struct mpi_oob *o = p->oob;
    struct mpi_chan chan = *c;

    mpi_chan_move(p, c, MPI_CHAN_NONE);
    if (o->stopping || p->via != MPI_VIA_MPI) {
        return;
    }
    chan.last_rx = o->now;
    o->count.reconnects += p->was_up;
    if (!p->was_up) {
        MPI_INFO_LOG(o, "out-of-band channel to %s is up", p->str);
    }
    mpi_chan_drop_all(p);
    p->cur = chan;
    mpi_chan_move(p, &p->cur, MPI_CHAN_UP);
    p->was_up = 1;
    p->gone = 0;
    p->attempt = p->unanswered = 0;
    o->ev.up(o->ev.arg, (struct r2_oob_peer *)p);
}

static void dialler_proved(struct mpi_peer *p)
{
    static const uint8_t accept = OOB_AUTH_ACCEPT;

    if (p->rank < 0) {
        p->rank = p->ans.source;
        mpi_peer_text(p);
    }
    if (p->cur.state == MPI_CHAN_UP) {
        mpi_peer_lost(p, 0); /* its end has lost that one before it dialled */
    }
    if (mpi_chan_put(p, &p->ans, MPI_KIND_FRAME, OOB_AUTH, &accept, 1) == 0) {
        adopt(p, &p->ans);
    } else {
        mpi_chan_move(p, &p->ans, MPI_CHAN_NONE);
    }
}

static void fin_take(struct mpi_peer *p, const struct oob_frame *f)
{
    uint8_t code = f->len == 1 ? f->payload[0] : 0;

    if (code == MPI_FIN_LEAVE) {
        mpi_peer_to_tcp(p);
        return;
    }
    p->gone = code == MPI_FIN_GONE;
    if (p->gone) {
        mpi_peer_drop_queue(p, 1); /* nobody takes it */
    }
    mpi_peer_lost(p, 0);
}

static void frame_take(struct mpi_peer *p, const struct oob_frame *f)
{
    struct mpi_oob *o = p->oob;

    switch (f->type) {
    case OOB_DATA:
        if (o->stopping) {
            return;
        }
        o->count.received++;
        o->count.bytes_received += f->len;
        o->ev.message(o->ev.arg, (struct r2_oob_peer *)p, f->payload, f->len);
        return;
    case OOB_PING:
        (void)mpi_chan_put(p, &p->cur, MPI_KIND_FRAME, OOB_PONG, NULL, 0);
        return;
    case OOB_PONG:
        return;
    default:
        bad_frame(p, OOB_BAD_TYPE);
    }
}

static struct mpi_chan *chan_of(struct mpi_peer *p, uint64_t id)
{
    struct mpi_chan *all[] = {&p->cur, &p->dial, &p->ans};

    for (int i = 0; i < 3; i++) {
        if (all[i]->state >= MPI_CHAN_AUTH && all[i]->id == id) {
            return all[i];
        }
    }
    return NULL; /* of a channel that is no more */
}

/* The one frame of a message. @unknown: the AUTH of @c is awaited, else anything but that. 0, or -1
 * with *@why. */
static int sealed_parse(const struct mpi_chan *c, const uint8_t *data, size_t len, int unknown,
                        struct oob_frame *f, enum oob_bad *why)
{
    enum oob_parse rc =
        oob_frame_parse(data, len, unknown ? OOB_AUTH_MAX : R2_OOB_MAX_MESSAGE, c->rx_seq,
                        c->by_us ? c->keys.listener : c->keys.dialler, f);

    if (rc != OOB_PARSE_OK) {
        *why = rc == OOB_PARSE_BAD ? f->why : OOB_BAD_CUT;
    } else if (unknown != (f->type == OOB_AUTH)) {
        *why = OOB_BAD_TYPE;
    } else if (f->total != len || (unknown && f->len != (c->by_us ? 1 : 0))) {
        *why = OOB_BAD_LENGTH;
    } else {
        return 0;
    }
    return -1;
}

/* A frame, or the frame of a FIN. */
static void sealed_take(struct mpi_peer *p, const struct world_in *m, const struct world_head *head,
                        const uint8_t *data)
{
    struct mpi_chan *c = chan_of(p, head->chan);
    struct mpi_oob *o = p->oob;
    size_t len = m->len - sizeof(*head);
    struct oob_frame f;
    enum oob_bad why;
    int unknown;

    if (c == NULL) {
        return;
    }
    if ((c == &p->ans ? c->source : p->rank) != m->source) {
        o->count.strangers++;
        return;
    }
    unknown = c->state == MPI_CHAN_AUTH;
    if (sealed_parse(c, data, len, unknown, &f, &why) != 0) {
        if (c == &p->ans) {
            mpi_chan_move(p, c, MPI_CHAN_NONE);
            refuse(o, m, head, MPI_STRANGER_SECRET);
            return;
        }
        bad_frame(p, why);
        return;
    }
    c->rx_seq++;
    c->last_rx = o->now;
    if (!unknown && head->kind == MPI_KIND_FIN) {
        fin_take(p, &f);
    } else if (!unknown) {
        frame_take(p, &f);
    } else if (c == &p->ans) {
        dialler_proved(p);
    } else {
        adopt(p, c);
    }
}

/* Not sealed, but it comes from the very rank that was dialled. @code 0: no endpoint of this uuid
 * is there. */
static void refuse_take(struct mpi_peer *p, const struct world_head *head)
{
    if (p->dial.state == MPI_CHAN_NONE || p->dial.id != head->chan) {
        return;
    }
    p->unanswered = 0;
    if (head->code == 0 && !p->was_up) {
        mpi_peer_to_tcp(p); /* of another MPI job whose mark happens to be ours */
    } else {
        mpi_peer_lost(p, head->code == 0);
    }
}

void mpi_chan_message(struct mpi_oob *o, const struct world_in *m)
{
    const uint8_t *data = m->data + sizeof(struct world_head);
    struct world_head head;
    struct mpi_peer *p;

    memcpy(&head, m->data, sizeof(head)); /* the box is for those that have one */
    if (head.kind == MPI_KIND_DIAL) {
        if (!o->leaving && !o->stopping) {
            dial_take(o, m, &head, data);
        }
        return;
    }
    p = mpi_peer_find(o, head.from);
    if (p == NULL || p->via != MPI_VIA_MPI) {
        return;
    }
    if (head.kind == MPI_KIND_FRAME || head.kind == MPI_KIND_FIN) {
        sealed_take(p, m, &head, data);
    } else if (p->rank != m->source) {
        o->count.strangers +=
            p->rank >= 0; /* -1: what came of an answer to a dialler that is gone */
    } else if (head.kind == MPI_KIND_ANSWER) {
        answer_take(p, m, &head, data);
    } else if (head.kind == MPI_KIND_REFUSE) {
        refuse_take(p, &head);
    }
}

static void dial_expired(struct mpi_peer *p)
{
    int never = p->dial.state == MPI_CHAN_HELLO && !p->was_up && ++p->unanswered >= MPI_UNANSWERED;

    if (never && p->has_name) {
        mpi_peer_to_tcp(p);
    } else {
        mpi_peer_lost(p, 0);
    }
}

static uint64_t up_scan(struct mpi_peer *p)
{
    struct mpi_oob *o = p->oob;
    struct mpi_chan *c = &p->cur;
    uint64_t last;

    if (o->now >= c->last_rx + 3 * o->keepalive) {
        mpi_peer_lost(p, 0);
        return o->now;
    }
    last = c->last_rx > c->last_ping ? c->last_rx : c->last_ping;
    if (o->now >= last + o->keepalive) {
        c->last_ping = last = o->now;
        if (p->out == NULL) {
            (void)mpi_chan_put(p, c, MPI_KIND_FRAME, OOB_PING, NULL, 0);
        }
    }
    return last + o->keepalive < c->last_rx + 3 * o->keepalive ? last + o->keepalive
                                                               : c->last_rx + 3 * o->keepalive;
}

void mpi_chan_excuse(struct mpi_peer *p, uint64_t away)
{
    p->cur.last_rx += away;
    p->dial.deadline += away;
    p->ans.deadline += away;
    p->out_deadline += p->out_deadline != 0 ? away : 0;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A peer that nobody needs any more is kept for the last messages to it, but not for ever. */
static uint64_t queue_scan(struct mpi_peer *p)
{
    uint64_t now = p->oob->now;

    if (p->out == NULL || p->refs > 0 || p->cur.state != MPI_CHAN_NONE ||
        p->ans.state != MPI_CHAN_NONE) {
        p->out_deadline = 0;
    } else if (p->out_deadline == 0) {
        p->out_deadline = now + p->oob->hello_timeout;
    } else if (p->out_deadline <= now) {
        mpi_peer_drop_queue(p, 1);
    }
    return p->out != NULL && p->out_deadline != 0 ? p->out_deadline : UINT64_MAX;
}

uint64_t mpi_chan_scan(struct mpi_peer *p)
{
    struct mpi_oob *o = p->oob;
    uint64_t next;

    next = queue_scan(p);
    if (p->ans.state != MPI_CHAN_NONE && p->ans.deadline <= o->now) {
        mpi_chan_move(p, &p->ans, MPI_CHAN_NONE);
    }
    if (p->ans.state != MPI_CHAN_NONE) {
        next = sooner(next, p->ans.deadline);
    }
    if (p->cur.state == MPI_CHAN_UP) {
        return sooner(next, up_scan(p));
    }
    if (p->dial.state != MPI_CHAN_NONE && p->dial.deadline <= o->now) {
        dial_expired(p);
    }
    if (p->via != MPI_VIA_MPI) {
        return next;
    }
    if (p->dial.state != MPI_CHAN_NONE) {
        return sooner(next, p->dial.deadline);
    }
    if (p->refs == 0 || p->ans.state != MPI_CHAN_NONE || o->leaving) {
        return next;
    }
    if (p->dial_at <= o->now) {
        mpi_chan_dial(p);
    }
    return sooner(next, p->dial.state != MPI_CHAN_NONE ? p->dial.deadline : p->dial_at);
}
