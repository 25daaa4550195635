/* Hello and proof of the secret, both roles. The messages are drawn in oob_wire.h. */
#include "oob_tcp.h"

#include <string.h>

#include "base/r2_log.h"

static void hello_fill(struct tcp_oob *o, struct oob_hello *h, uint8_t kind, const uint64_t to[2])
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
    h->scope = o->name.scope;
    memcpy(h->addr, o->name.addr, sizeof(h->addr));
}

void oob_auth_begin(struct tcp_chan *c)
{
    struct oob_hello h;
    struct tcp_peer *p = c->peer;

    hello_fill(c->oob, &h, OOB_HELLO_DIAL, p->name.uuid);
    /* whoever dialled us knows our secret; a name brings the peer's */
    c->own_secret = !p->has_secret;
    h.secret_of = c->own_secret ? OOB_SECRET_DIALLER : OOB_SECRET_LISTENER;
    h.lost_id = c->lost_id = p->last_id;
    oob_hello_pack(&h, c->dial_hello);
    oob_chan_move(c, CHAN_HELLO);
    if (oob_chan_put(c, c->dial_hello, OOB_HELLO_SIZE) != 0) {
        oob_chan_fail(c, 0);
        return;
    }
    oob_chan_flush(c);
}

/* Once per dialler, and not without end: a uuid costs a stranger nothing. */
static void version_warn_once(struct tcp_chan *c, const struct oob_hello *h)
{
    struct tcp_oob *o = c->oob;

    if (c->peer != NULL) {
        if (c->peer->warned) {
            return;
        }
        c->peer->warned = 1;
        R2_WARN(
            "out-of-band channel: %s speaks version %u, this process version %u: no channel is possible",
            c->peer->str, h->version, OOB_VERSION);
        return;
    }
    if (!oob_logged_first(&o->versions, h->from)) {
        return;
    }
    R2_WARN(
        "out-of-band channel: process %016llx dials with version %u, this process has version %u: no channel is "
        "possible",
        (unsigned long long)h->from[0], h->version, OOB_VERSION);
}

/* The other's hello is used up. */
static void hello_consume(struct tcp_chan *c)
{
    c->rx.head += OOB_HELLO_SIZE;
}

/* Says why and half closes; what else arrives is dropped. Not closed at once: an RST would overtake
 * the reason. */
static int refuse(struct tcp_chan *c, const struct oob_hello *h, uint8_t code)
{
    uint8_t bytes[OOB_HELLO_SIZE];
    struct oob_hello answer;

    hello_fill(c->oob, &answer, OOB_HELLO_ANSWER, h->from);
    answer.code = code;
    oob_hello_pack(&answer, bytes);
    c->rx.head = c->rx.tail = 0;
    if (oob_chan_put(c, bytes, sizeof(bytes)) != 0) {
        oob_chan_close(c);
    }
    oob_chan_drain(c, 1);
    return -1;
}

/* The secret that @h claims to know; NULL: there is none. */
static const uint8_t *secret_of(struct tcp_oob *o, const struct oob_hello *h)
{
    struct tcp_peer *p;

    if (h->secret_of == OOB_SECRET_LISTENER) {
        return o->name.secret;
    }
    p = oob_peer_find(o, h->from);
    return p != NULL && p->has_secret ? p->name.secret : NULL;
}

static int hello_of_dialler(struct tcp_chan *c, const struct oob_hello *h)
{
    struct tcp_oob *o = c->oob;
    uint8_t bytes[OOB_HELLO_SIZE];
    struct oob_hello answer;
    const uint8_t *secret;

    if (oob_uuid_compare(h->to, o->name.uuid) != 0) {
        oob_tcp_stranger(o, c, OOB_STRANGER_LOST);
        return refuse(c, h, OOB_HELLO_WRONG_UUID);
    }
    secret = secret_of(o, h);
    if (secret == NULL || oob_uuid_compare(h->from, o->name.uuid) == 0) {
        oob_tcp_stranger(o, c, OOB_STRANGER_UNKNOWN);
        oob_chan_close(c);
        return -1;
    }
    hello_fill(o, &answer, OOB_HELLO_ANSWER, h->from);
    oob_hello_pack(&answer, bytes);
    oob_keys_derive(secret, c->rx.data + c->rx.head, bytes, &c->keys);
    hello_consume(c);
    c->theirs = *h;
    c->lost_id = h->lost_id;
    oob_chan_move(c, CHAN_AUTH);
    c->since = o->turn.now;
    if (oob_chan_put(c, bytes, sizeof(bytes)) != 0) {
        oob_chan_close(c);
        return -1;
    }
    oob_chan_flush(c);
    return 1;
}

static int hello_of_listener(struct tcp_chan *c, const struct oob_hello *h)
{
    struct tcp_peer *p = c->peer;

    /*
     * Somebody else listens where the peer was, or our own socket was given the very port it dials
     * and talks to itself: nobody is there.
     */
    if (h->kind != OOB_HELLO_ANSWER || h->code == OOB_HELLO_WRONG_UUID ||
        oob_uuid_compare(h->from, p->name.uuid) != 0) {
        oob_chan_fail(c, 1);
        return -1;
    }
    oob_keys_derive(c->own_secret ? c->oob->name.secret : p->name.secret, c->dial_hello,
                    c->rx.data + c->rx.head, &c->keys);
    hello_consume(c);
    c->theirs = *h;
    oob_chan_move(c, CHAN_AUTH);
    if (oob_chan_put_frame(c, OOB_AUTH, NULL, 0) != 0) {
        oob_chan_fail(c, 0);
        return -1;
    }
    oob_chan_flush(c);
    return 1;
}

int oob_auth_hello(struct tcp_chan *c)
{
    struct oob_hello h;

    switch (oob_hello_parse(c->rx.data + c->rx.head, c->rx.tail - c->rx.head, &h)) {
    case OOB_PARSE_MORE:
        return 0;
    case OOB_PARSE_VERSION:
        if (c->peer == NULL && oob_uuid_compare(h.to, c->oob->name.uuid) != 0) {
            break;
        }
        version_warn_once(c, &h);
        if (c->peer == NULL) {
            return refuse(c, &h, OOB_HELLO_VERSION);
        }
        oob_chan_fail(c, 0);
        return -1;
    case OOB_PARSE_OK:
        if (c->peer != NULL) {
            return hello_of_listener(c, &h);
        }
        if (h.kind == OOB_HELLO_DIAL) {
            return hello_of_dialler(c, &h);
        }
        break;
    case OOB_PARSE_BAD:
        break;
    }
    oob_tcp_stranger(c->oob, c, OOB_STRANGER_GARBAGE);
    oob_chan_fail(c, 0);
    return -1;
}

/* The dialler has proved the secret: it is who its hello says, or somebody who has that process's
 * name, which is as good. */
static int dialler_proved(struct tcp_chan *c)
{
    struct tcp_oob *o = c->oob;
    struct tcp_peer *p = oob_peer_find(o, c->theirs.from);
    uint8_t code = OOB_AUTH_ACCEPT;

    if (p == NULL) {
        p = oob_peer_create(o, c->theirs.from);
    }
    if (p == NULL) {
        oob_chan_close(c);
        return -1;
    }
    if (p->name.port == 0) {
        p->name.family = c->theirs.family;
        p->name.port = c->theirs.port;
        p->name.scope = c->theirs.scope;
        memcpy(p->name.addr, c->theirs.addr, sizeof(p->name.addr));
        oob_tcp_addr_text(&p->name, p->str, sizeof(p->str));
    }
    oob_door_leave(c);
    c->peer = p;
    p->chans++;
    c->id = c->keys.id;
    if (p->cur != NULL) {
        struct oob_rivals r = {o->name.uuid,  p->name.uuid, 0,
                               p->cur->by_us, c->lost_id,   p->cur->id};
        if (!oob_rivals_new_stays(&r)) {
            code = OOB_AUTH_DUPLICATE;
        }
    }
    if (oob_chan_put_frame(c, OOB_AUTH, &code, 1) != 0) {
        oob_chan_fail(c, 0);
        return -1;
    }
    oob_chan_flush(c);
    if (code == OOB_AUTH_ACCEPT) {
        oob_peer_adopt(p, c);
        return c->state == CHAN_DEAD ? -1 : 0;
    }
    /* if the peer has in truth lost the channel that we keep, this finds out at once */
    if (oob_chan_put_frame(p->cur, OOB_PING, NULL, 0) == 0) {
        oob_chan_flush(p->cur);
    }
    oob_chan_drain(c, 1);
    return 0;
}

static int listener_proved(struct tcp_chan *c, uint8_t code)
{
    struct tcp_oob *o = c->oob;
    struct tcp_peer *p = c->peer;

    c->id = c->keys.id;
    if (code == OOB_AUTH_DUPLICATE) {
        oob_chan_fail(c, 0);
        return -1;
    }
    if (p->cur != NULL) {
        struct oob_rivals r = {o->name.uuid,  p->name.uuid, 1,
                               p->cur->by_us, c->lost_id,   p->cur->id};
        if (!oob_rivals_new_stays(&r)) {
            oob_chan_drain(c, 0);
            return 0;
        }
    }
    oob_peer_adopt(p, c);
    return c->state == CHAN_DEAD ? -1 : 0;
}

int oob_auth_frame(struct tcp_chan *c, const struct oob_frame *f)
{
    size_t want = c->by_us ? 1 : 0;

    if (f->type != OOB_AUTH || f->len != want ||
        (want == 1 && f->payload[0] > OOB_AUTH_DUPLICATE)) {
        oob_tcp_bad_frame(c, c->by_us ? c->peer->name.uuid : c->theirs.from,
                          f->type != OOB_AUTH ? OOB_BAD_TYPE : OOB_BAD_LENGTH);
        oob_chan_fail(c, 0);
        return -1;
    }
    return c->by_us ? listener_proved(c, f->payload[0]) : dialler_proved(c);
}
