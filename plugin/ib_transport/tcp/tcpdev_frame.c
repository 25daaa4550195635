#include "tcpdev_frame.h"

#include <string.h>

#include "base/r2_wire.h"

static const uint8_t magic[6] = {'R', '2', 'T', 'C', 'P', 0};

uint32_t tcpdev_frame_payload(const struct tcpdev_frame *f)
{
    return f->op == TCPDEV_WRITE || f->op == TCPDEV_RESPONSE ? f->len : 0;
}

/* Head and number, hashed: a frame that is repeated or left out is as wrong as a foreign one. */
static uint64_t frame_mac(const uint8_t *head, struct r2_siphash_key key, uint64_t number)
{
    uint8_t bytes[TCPDEV_FRAME_SIZE];
    struct r2_writer w = {bytes, bytes + sizeof(bytes), 0};

    r2_put_bytes(&w, head, TCPDEV_FRAME_SIZE - 8);
    r2_put(&w, number, 8);
    return r2_siphash(key, bytes, sizeof(bytes));
}

void tcpdev_frame_pack(const struct tcpdev_frame *f, struct r2_siphash_key key, uint64_t number,
                       uint8_t out[TCPDEV_FRAME_SIZE])
{
    struct r2_writer w = {out, out + TCPDEV_FRAME_SIZE, 0};

    r2_put(&w, f->op, 1);
    r2_put(&w, f->flags, 1);
    r2_put(&w, 0, 2);
    r2_put(&w, f->to, 4);
    r2_put(&w, f->from, 4);
    r2_put(&w, f->msn, 4);
    r2_put(&w, f->len, 4);
    r2_put(&w, f->off, 4);
    r2_put(&w, f->addr, 8);
    r2_put(&w, f->key, 4);
    r2_put(&w, f->imm, 4);
    r2_put(&w, 0, 8);
    r2_put(&w, frame_mac(out, key, number), 8);
}

const char *tcpdev_frame_parse(const uint8_t in[TCPDEV_FRAME_SIZE], struct r2_siphash_key key,
                               uint64_t number, struct tcpdev_frame *f)
{
    struct r2_reader r = {in, in + TCPDEV_FRAME_SIZE, 0};
    uint64_t rest, mac;

    f->op = (uint8_t)r2_get(&r, 1);
    f->flags = (uint8_t)r2_get(&r, 1);
    rest = r2_get(&r, 2);
    f->to = (uint32_t)r2_get(&r, 4);
    f->from = (uint32_t)r2_get(&r, 4);
    f->msn = (uint32_t)r2_get(&r, 4);
    f->len = (uint32_t)r2_get(&r, 4);
    f->off = (uint32_t)r2_get(&r, 4);
    f->addr = r2_get(&r, 8);
    f->key = (uint32_t)r2_get(&r, 4);
    f->imm = (uint32_t)r2_get(&r, 4);
    rest |= r2_get(&r, 8);
    mac = r2_get(&r, 8);
    if (mac != frame_mac(in, key, number)) {
        return "a frame that the other end has not sent";
    }
    if (f->op == 0 || f->op >= TCPDEV_OPS || rest != 0 ||
        (f->flags & ~(TCPDEV_LAST | TCPDEV_IMM)) != 0) {
        return "a frame of an unknown kind";
    }
    if (f->len > TCPDEV_CHUNK || f->off > UINT32_MAX - f->len || f->addr > UINT64_MAX - f->len) {
        return "a frame beyond the bounds";
    }
    if (f->op == TCPDEV_NAK && (f->imm == 0 || f->imm >= TCPDEV_NAKS)) {
        return "a NAK of an unknown kind";
    }
    return NULL;
}

void tcpdev_hello_pack(const uint8_t nonce[16], uint8_t out[TCPDEV_HELLO_SIZE])
{
    struct r2_writer w = {out, out + TCPDEV_HELLO_SIZE, 0};

    r2_put_bytes(&w, magic, sizeof(magic));
    r2_put(&w, TCPDEV_VERSION, 2);
    r2_put_bytes(&w, nonce, 16);
}

const char *tcpdev_hello_check(const uint8_t in[TCPDEV_HELLO_SIZE])
{
    if (memcmp(in, magic, sizeof(magic)) != 0) {
        return "it is no stream of this protocol";
    }
    if ((in[6] | in[7] << 8) != TCPDEV_VERSION) {
        return "it has another version of this protocol";
    }
    return NULL;
}

/* A key of 16 bytes for one purpose, of all that both ends know. */
static struct r2_siphash_key key_of(const uint8_t secret[TCPDEV_SECRET_SIZE],
                                    const uint8_t dialler[TCPDEV_HELLO_SIZE],
                                    const uint8_t listener[TCPDEV_HELLO_SIZE], uint8_t purpose)
{
    uint8_t bytes[2 * TCPDEV_HELLO_SIZE + 2], seed[16] = {0};
    struct r2_siphash_key k;

    memcpy(seed, secret, TCPDEV_SECRET_SIZE);
    memcpy(bytes, dialler, TCPDEV_HELLO_SIZE);
    memcpy(bytes + TCPDEV_HELLO_SIZE, listener, TCPDEV_HELLO_SIZE);
    bytes[sizeof(bytes) - 2] = purpose;
    bytes[sizeof(bytes) - 1] = 0;
    k.k0 = r2_siphash(r2_siphash_key(seed), bytes, sizeof(bytes));
    bytes[sizeof(bytes) - 1] = 1;
    k.k1 = r2_siphash(r2_siphash_key(seed), bytes, sizeof(bytes));
    return k;
}

void tcpdev_keys_derive(const uint8_t secret[TCPDEV_SECRET_SIZE],
                        const uint8_t dialler[TCPDEV_HELLO_SIZE],
                        const uint8_t listener[TCPDEV_HELLO_SIZE], struct tcpdev_keys *keys)
{
    keys->proof_of_listener = key_of(secret, dialler, listener, 1);
    keys->proof_of_dialler = key_of(secret, dialler, listener, 2);
    keys->requests = key_of(secret, dialler, listener, 3);
    keys->answers = key_of(secret, dialler, listener, 4);
}

void tcpdev_proof_pack(struct r2_siphash_key key, uint8_t out[TCPDEV_PROOF_SIZE])
{
    struct r2_writer w = {out, out + TCPDEV_PROOF_SIZE, 0};

    r2_put(&w, r2_siphash(key, NULL, 0), 8);
}

bool tcpdev_proof_is_right(struct r2_siphash_key key, const uint8_t in[TCPDEV_PROOF_SIZE])
{
    uint8_t right[TCPDEV_PROOF_SIZE], differs = 0;

    tcpdev_proof_pack(key, right);
    for (int i = 0; i < TCPDEV_PROOF_SIZE; i++) {
        differs |= (uint8_t)(right[i] ^ in[i]);
    }
    return differs == 0;
}
