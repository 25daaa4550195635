/* The channel between the two processes of a rig: in order, without loss, unless the test drops,
 * changes or cuts. */
#include "tests/support/proto_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define OOB_NS (5 * RIG_US)

struct r2_oob_peer {
    struct rig_oob *oob;
    int refs, up, tell;
};

struct rig_packet {
    struct rig_packet *next;
    uint64_t due;
    size_t len;
    uint8_t data[];
};

struct rig_oob {
    struct r2_oob base;
    struct rig_side *side;
    struct r2_oob_events ev;
    struct r2_oob_peer peer; /* the other process */
    struct rig_packet *in, **tail;
};

static void wake(void *arg)
{
    rig_kick(arg);
}

static struct rig_side *other(const struct rig_side *s)
{
    return &s->rig->side[!s->index];
}

static void packet_put(struct rig_side *to, const void *msg, size_t len)
{
    struct rig_packet *k = malloc(sizeof(*k) + len);

    ck_assert_ptr_nonnull(k);
    k->next = NULL;
    k->due = rig_now(to->rig) + OOB_NS;
    k->len = len;
    memcpy(k->data, msg, len);
    *to->oob->tail = k;
    to->oob->tail = &k->next;
    fab_inproc_at(to->rig->f, k->due, wake, to);
}

static void oob_destroy(struct r2_oob *oob)
{
    struct rig_oob *o = (struct rig_oob *)oob;
    struct rig_packet *k;

    while ((k = o->in) != NULL) {
        o->in = k->next;
        free(k);
    }
    o->side->oob = NULL;
    free(o);
}

static int oob_fd(struct r2_oob *oob)
{
    return -1;
}

static uint64_t oob_progress(struct r2_oob *oob, uint64_t now)
{
    struct rig_oob *o = (struct rig_oob *)oob;
    struct rig_packet *k;

    if (o->peer.tell) {
        o->peer.tell = 0;
        o->peer.up = !o->side->rig->oob_cut;
        if (o->peer.up) {
            o->ev.up(o->ev.arg, &o->peer);
        } else {
            o->ev.down(o->ev.arg, &o->peer, 0);
        }
    }
    while ((k = o->in) != NULL && k->due <= now) {
        o->in = k->next;
        if (o->in == NULL) {
            o->tail = &o->in;
        }
        if (!o->side->rig->oob_cut) {
            o->ev.message(o->ev.arg, &o->peer, k->data, k->len);
        }
        free(k);
    }
    return o->in ? o->in->due : UINT64_MAX;
}

static void oob_name_get(struct r2_oob *oob, struct r2_oob_name *name)
{
    memset(name, 0, sizeof(*name));
    name->uuid[0] = 1 + (uint64_t)((struct rig_oob *)oob)->side->index;
    name->uuid[1] = 7;
}

static void dial(struct rig_side *s)
{
    if (s->oob && !s->oob->peer.up) {
        s->oob->peer.tell = 1;
        fab_inproc_at(s->rig->f, rig_now(s->rig) + OOB_NS, wake, s);
    }
}

static struct r2_oob_peer *oob_peer_get(struct r2_oob *oob, const struct r2_oob_name *name)
{
    struct rig_oob *o = (struct rig_oob *)oob;

    dial(o->side);
    dial(other(o->side));
    o->peer.refs++;
    return &o->peer;
}

static void oob_peer_ref(struct r2_oob_peer *p)
{
    p->refs++;
}

static void oob_peer_put(struct r2_oob_peer *p)
{
    ck_assert_int_gt(p->refs, 0);
    p->refs--;
}

static const uint64_t *oob_peer_uuid(const struct r2_oob_peer *p)
{
    static const uint64_t uuid[2][2] = {{1, 7}, {2, 7}};

    return uuid[!p->oob->side->index];
}

static const char *oob_peer_str(const struct r2_oob_peer *p)
{
    return p->oob->side->index ? "process 0" : "process 1";
}

static bool oob_peer_is_up(const struct r2_oob_peer *p)
{
    return p->up;
}

static void remember(struct rig *r, int from, int type, const union fo_body *b)
{
    if (r->sent_count < RIG_MAX_SENT) {
        r->sent[r->sent_count] =
            (struct rig_sent){.at = rig_now(r), .from = from, .type = type, .body = *b};
        r->sent_count++;
    }
}

/* Takes the message apart, shows each record to the filter, and packs what is left. */
static int oob_send(struct r2_oob_peer *p, const void *msg, size_t len)
{
    static uint8_t out[R2_OOB_MAX_MESSAGE];
    static union fo_body b;
    struct rig_side *s = p->oob->side;
    struct rig *r = s->rig;
    struct r2_reader in = {.p = msg, .end = (const uint8_t *)msg + len};
    const char *why = "";
    size_t n = 0;
    int type;

    if (!p->up || r->oob_cut || other(s)->oob == NULL) {
        return -1;
    }
    while ((memset(&b, 0, sizeof(b)), type = fo_unpack(&in, &b, &why)) > 0) {
        remember(r, s->index, type, &b);
        if (r->filter == NULL || r->filter(r, s->index, type, &b)) {
            size_t one = fo_pack((enum fo_type)type, &b, out + n, sizeof(out) - n);

            ck_assert_uint_gt(one, 0);
            n += one;
        }
    }
    ck_assert_msg(type == 0, "process %d sends what it could not read itself: %s", s->index, why);
    if (n) {
        packet_put(other(s), out, n);
    }
    return 0;
}

static void oob_drain(struct r2_oob *oob, uint64_t limit_ns)
{
}

static void oob_counters(struct r2_oob *oob, struct r2_oob_counters *out)
{
    memset(out, 0, sizeof(*out));
}

static const struct r2_oob_ops oob_ops = {
    .name = "rig",
    .destroy = oob_destroy,
    .fd = oob_fd,
    .progress = oob_progress,
    .name_get = oob_name_get,
    .peer_get = oob_peer_get,
    .peer_ref = oob_peer_ref,
    .peer_put = oob_peer_put,
    .peer_uuid = oob_peer_uuid,
    .peer_str = oob_peer_str,
    .peer_is_up = oob_peer_is_up,
    .send = oob_send,
    .drain = oob_drain,
    .counters = oob_counters,
};

struct r2_oob *rig_oob_create(void *arg, const struct r2_oob_events *ev, char *why, size_t why_len)
{
    struct rig_side *s = arg;
    struct rig_oob *o = calloc(1, sizeof(*o));

    ck_assert_ptr_nonnull(o);
    o->base.ops = &oob_ops;
    o->side = s;
    o->ev = *ev;
    o->peer.oob = o;
    o->tail = &o->in;
    s->oob = o;
    return &o->base;
}

void rig_inject_bytes(struct rig *r, int to, const void *msg, size_t len)
{
    packet_put(&r->side[to], msg, len);
}

void rig_inject(struct rig *r, int to, enum fo_type type, const union fo_body *body)
{
    uint8_t out[FO_MAX_RECORD];
    size_t n = fo_pack(type, body, out, sizeof(out));

    ck_assert_uint_gt(n, 0);
    rig_inject_bytes(r, to, out, n);
}

void rig_oob_cut(struct rig *r, int cut)
{
    r->oob_cut = cut;
    for (int i = 0; i < 2; i++) {
        r->side[i].oob->peer.tell = 1;
        rig_kick(&r->side[i]);
    }
}

unsigned rig_count(const struct rig *r, int from, int type)
{
    unsigned n = 0;

    for (unsigned i = 0; i < r->sent_count; i++) {
        n += r->sent[i].from == from && r->sent[i].type == type;
    }
    return n;
}
