#include "oob_wire.h"

#include <string.h>

#define MAGIC 0x424f3252u /* "R2OB" */

#define BACKOFF_MIN_NS 10000000ull
#define BACKOFF_MAX_NS 1000000000ull

static void le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void le32(uint8_t *p, uint32_t v)
{
    le16(p, (uint16_t)v);
    le16(p + 2, (uint16_t)(v >> 16));
}

static void le64(uint8_t *p, uint64_t v)
{
    le32(p, (uint32_t)v);
    le32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/*
 * Hello, offsets: 0 magic, 4 version, 6 size, 8 features, 12 kind, 13 secret_of, 14 code, 15 zero,
 * 16 from, 32 to, 48 nonce, 64 lost_id, 72 family, 73 zero, 74 port, 76 scope, 80 addr; 96 in all.
 */
void oob_hello_pack(const struct oob_hello *h, uint8_t out[OOB_HELLO_SIZE])
{
    memset(out, 0, OOB_HELLO_SIZE);
    le32(out, MAGIC);
    le16(out + 4, h->version);
    le16(out + 6, OOB_HELLO_SIZE);
    le32(out + 8, h->features);
    out[12] = h->kind;
    out[13] = h->secret_of;
    out[14] = h->code;
    le64(out + 16, h->from[0]);
    le64(out + 24, h->from[1]);
    le64(out + 32, h->to[0]);
    le64(out + 40, h->to[1]);
    memcpy(out + 48, h->nonce, 16);
    le64(out + 64, h->lost_id);
    out[72] = h->family;
    le16(out + 74, h->port);
    le32(out + 76, h->scope);
    memcpy(out + 80, h->addr, 16);
}

enum oob_parse oob_hello_parse(const uint8_t *in, size_t len, struct oob_hello *out)
{
    uint8_t magic[4];

    le32(magic, MAGIC);
    if (memcmp(in, magic, len < 4 ? len : 4) != 0) {
        return OOB_PARSE_BAD;
    }
    if (len < OOB_HELLO_FIXED) {
        return OOB_PARSE_MORE;
    }
    memset(out, 0, sizeof(*out));
    out->version = get16(in + 4);
    out->features = get32(in + 8);
    out->kind = in[12];
    out->secret_of = in[13];
    out->code = in[14];
    out->from[0] = get64(in + 16);
    out->from[1] = get64(in + 24);
    out->to[0] = get64(in + 32);
    out->to[1] = get64(in + 40);
    if ((out->kind != OOB_HELLO_DIAL && out->kind != OOB_HELLO_ANSWER) ||
        (out->from[0] | out->from[1]) == 0) {
        return OOB_PARSE_BAD;
    }
    if (out->version != OOB_VERSION) {
        return OOB_PARSE_VERSION;
    }
    if (get16(in + 6) != OOB_HELLO_SIZE || in[15] != 0 || out->secret_of > OOB_SECRET_DIALLER ||
        out->code > OOB_HELLO_WRONG_UUID) {
        return OOB_PARSE_BAD;
    }
    if (len < OOB_HELLO_SIZE) {
        return OOB_PARSE_MORE;
    }
    memcpy(out->nonce, in + 48, 16);
    out->lost_id = get64(in + 64);
    out->family = in[72];
    out->port = get16(in + 74);
    out->scope = get32(in + 76);
    memcpy(out->addr, in + 80, 16);
    return OOB_PARSE_OK;
}

void oob_keys_derive(const uint8_t secret[16], const uint8_t dial[OOB_HELLO_SIZE],
                     const uint8_t answer[OOB_HELLO_SIZE], struct oob_keys *out)
{
    uint8_t text[2 * OOB_HELLO_SIZE + 1];
    struct r2_siphash_key key = r2_siphash_key(secret);
    uint64_t word[5];

    memcpy(text, dial, OOB_HELLO_SIZE);
    memcpy(text + OOB_HELLO_SIZE, answer, OOB_HELLO_SIZE);
    for (int i = 0; i < 5; i++) {
        text[2 * OOB_HELLO_SIZE] = (uint8_t)i;
        word[i] = r2_siphash(key, text, sizeof(text));
    }
    out->dialler = (struct r2_siphash_key){word[0], word[1]};
    out->listener = (struct r2_siphash_key){word[2], word[3]};
    out->id = word[4] ? word[4] : 1;
}

/* Frame head: 0 payload length  4 type  5 zero (3)  8 seq */
size_t oob_frame_pack(uint8_t *out, uint8_t type, const void *payload, size_t len, uint64_t seq,
                      struct r2_siphash_key key)
{
    le32(out, (uint32_t)len);
    le32(out + 4, type);
    le64(out + 8, seq);
    if (len > 0) {
        memcpy(out + OOB_FRAME_HEAD, payload, len);
    }
    le64(out + OOB_FRAME_HEAD + len, r2_siphash(key, out, OOB_FRAME_HEAD + len));
    return OOB_FRAME_HEAD + len + OOB_FRAME_MAC;
}

size_t oob_frame_size(const uint8_t *in, size_t len)
{
    return len < OOB_FRAME_HEAD ? 0 : OOB_FRAME_HEAD + (size_t)get32(in) + OOB_FRAME_MAC;
}

/* All differences are checked before the answer: the time it takes tells nothing about the right
 * MAC. */
static int mac_differs(const uint8_t *mac, uint64_t want)
{
    uint8_t bytes[OOB_FRAME_MAC], diff = 0;

    le64(bytes, want);
    for (int i = 0; i < OOB_FRAME_MAC; i++) {
        diff |= (uint8_t)(mac[i] ^ bytes[i]);
    }
    return diff != 0;
}

const char *oob_bad_text(enum oob_bad why)
{
    static const char *const text[OOB_BAD_REASONS] = {
        [OOB_BAD_LENGTH] = "its length cannot be",
        [OOB_BAD_TYPE] = "its type is not one that may come now",
        [OOB_BAD_NUMBER] = "its number is not the next one: replayed, or one is missing",
        [OOB_BAD_TAG] = "its tag is wrong: changed on the way, or of another sender",
        [OOB_BAD_CUT] = "it is truncated",
    };

    return (unsigned)why < OOB_BAD_REASONS ? text[why] : "?";
}

static enum oob_parse frame_bad(struct oob_frame *f, enum oob_bad why)
{
    f->why = why;
    return OOB_PARSE_BAD;
}

enum oob_parse oob_frame_parse(const uint8_t *in, size_t len, size_t max_payload, uint64_t seq,
                               struct r2_siphash_key key, struct oob_frame *out)
{
    size_t payload, total;

    if (len < OOB_FRAME_HEAD) {
        return OOB_PARSE_MORE;
    }
    payload = get32(in);
    if (payload > max_payload) {
        return frame_bad(out, OOB_BAD_LENGTH);
    }
    if (get32(in + 4) > OOB_PONG || get32(in + 4) < OOB_AUTH) {
        return frame_bad(out, OOB_BAD_TYPE);
    }
    if (get64(in + 8) != seq) {
        return frame_bad(out, OOB_BAD_NUMBER);
    }
    total = OOB_FRAME_HEAD + payload + OOB_FRAME_MAC;
    if (len < total) {
        return OOB_PARSE_MORE;
    }
    if (mac_differs(in + OOB_FRAME_HEAD + payload, r2_siphash(key, in, OOB_FRAME_HEAD + payload))) {
        return frame_bad(out, OOB_BAD_TAG);
    }
    out->type = in[4];
    out->payload = in + OOB_FRAME_HEAD;
    out->len = payload;
    out->total = total;
    return OOB_PARSE_OK;
}

int oob_uuid_compare(const uint64_t a[2], const uint64_t b[2])
{
    if (a[0] != b[0]) {
        return a[0] < b[0] ? -1 : 1;
    }
    return a[1] < b[1] ? -1 : a[1] > b[1];
}

int oob_logged_first(struct oob_logged *s, const uint64_t uuid[2])
{
    for (int i = 0; i < s->count; i++) {
        if (oob_uuid_compare(s->uuid[i], uuid) == 0) {
            return 0;
        }
    }
    if (s->count == OOB_LOGGED_MAX) {
        return 0;
    }
    memcpy(s->uuid[s->count++], uuid, sizeof(s->uuid[0]));
    return 1;
}

int oob_rivals_new_stays(const struct oob_rivals *r)
{
    int we_are_smaller = oob_uuid_compare(r->our_uuid, r->peer_uuid) < 0;

    if (r->new_by_us == r->cur_by_us || r->new_lost == r->cur_id) {
        return 1;
    }
    return r->new_by_us == we_are_smaller;
}

uint64_t oob_backoff_ns(unsigned attempt, uint64_t random)
{
    uint64_t wait = attempt >= 7 ? BACKOFF_MAX_NS : BACKOFF_MIN_NS << attempt;

    if (wait > BACKOFF_MAX_NS) {
        wait = BACKOFF_MAX_NS;
    }
    return wait / 2 + random % (wait / 2 + 1);
}

uint64_t oob_waiter_due(const struct oob_waiter *w)
{
    return w->since + (w->greeted ? OOB_WAIT_GREETED_NS : OOB_WAIT_SILENT_NS);
}

int oob_waiter_goes_before(const struct oob_waiter *a, const struct oob_waiter *b)
{
    if (a->greeted != b->greeted) {
        return !a->greeted;
    }
    if (a->beside != b->beside) {
        return a->beside > b->beside;
    }
    return a->since < b->since;
}
