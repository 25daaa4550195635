/*
 * What goes over the TCP streams of the TCP device (tcpdev.h): frames of a fixed head, little
 * endian, and the two hellos that begin a stream. Pure.
 *
 * A dialler carries the requests of its queue pairs, and gets what the listener's answer: a stream
 * has requests in one direction and answers in the other.
 *
 *     dialler                               listener
 *       hello {magic, version, nonce}  --->
 *                                      <---  hello {magic, version, nonce}, proof
 *       proof                          --->
 *       WRITE, READ ...                --->
 *                                      <---  ACK, NAK, RESPONSE ...
 *
 * Each end proves that it knows the listener's secret, which lies in the listener's GID: that comes
 * by the out-of-band channel, which is authenticated. Each frame's head ends with a SipHash over it
 * and its number in the stream, by a key of secret and nonces: what was not sent by the other end,
 * or is out of step, is noticed before its first byte is used.
 */
#ifndef TCPDEV_FRAME_H
#define TCPDEV_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/r2_siphash.h"

#define TCPDEV_VERSION     1
#define TCPDEV_FRAME_SIZE  56
#define TCPDEV_HELLO_SIZE  24
#define TCPDEV_PROOF_SIZE  8
#define TCPDEV_SECRET_SIZE 10
#define TCPDEV_CHUNK       65536 /* bytes behind a head at most */

enum tcpdev_op {
    TCPDEV_WRITE = 1, /* one chunk of an RDMA write */
    TCPDEV_READ,      /* @len bytes are wanted */
    TCPDEV_RESPONSE,  /* they are behind it */
    TCPDEV_ACK,       /* all messages up to @msn are done */
    TCPDEV_NAK,       /* message @msn is not, by @imm: enum tcpdev_nak */
    TCPDEV_OPS
};

enum tcpdev_nak {
    TCPDEV_NAK_NOT_READY = 1, /* there is no such queue pair, or it does not receive yet */
    TCPDEV_NAK_ACCESS,        /* the key does not allow that */
    TCPDEV_NAKS
};

#define TCPDEV_LAST 1 /* of @flags: the message ends with this chunk */
#define TCPDEV_IMM  2 /* @imm is immediate data, in network byte order as verbs have it */

struct tcpdev_frame {
    uint8_t op, flags;
    uint32_t to, from; /* queue pair numbers, as the frame travels */
    uint32_t msn;      /* number of the message, counted from the sender's PSN */
    uint32_t len;      /* bytes behind the head; READ: bytes wanted, none behind it */
    uint32_t off;      /* of those in the message */
    uint64_t addr;     /* of the first of them, at the other end */
    uint32_t key;
    uint32_t imm;
};

/* Bytes behind the head of @f. */
uint32_t tcpdev_frame_payload(const struct tcpdev_frame *f);

void tcpdev_frame_pack(const struct tcpdev_frame *f, struct r2_siphash_key key, uint64_t number,
                       uint8_t out[TCPDEV_FRAME_SIZE]);
/* NULL, or what is wrong with it. @number: how many frames of the stream came before it. */
const char *tcpdev_frame_parse(const uint8_t in[TCPDEV_FRAME_SIZE], struct r2_siphash_key key,
                               uint64_t number, struct tcpdev_frame *f);

void tcpdev_hello_pack(const uint8_t nonce[16], uint8_t out[TCPDEV_HELLO_SIZE]);
/* NULL, or what is wrong with it. */
const char *tcpdev_hello_check(const uint8_t in[TCPDEV_HELLO_SIZE]);

/* Of a stream whose hellos are @dialler and @listener. */
struct tcpdev_keys {
    struct r2_siphash_key proof_of_listener, proof_of_dialler, requests, answers;
};
void tcpdev_keys_derive(const uint8_t secret[TCPDEV_SECRET_SIZE],
                        const uint8_t dialler[TCPDEV_HELLO_SIZE],
                        const uint8_t listener[TCPDEV_HELLO_SIZE], struct tcpdev_keys *keys);
void tcpdev_proof_pack(struct r2_siphash_key key, uint8_t out[TCPDEV_PROOF_SIZE]);
/* In constant time. */
bool tcpdev_proof_is_right(struct r2_siphash_key key, const uint8_t in[TCPDEV_PROOF_SIZE]);

#endif
