/*
 * Bytes of the TCP out-of-band channel, and the decisions about channels, as pure functions: no
 * socket, clock, memory or log.
 *
 * A channel begins with one hello each way (oob_hello, fixed size), then frames. Both hellos, with
 * fresh nonces, and the shared secret give the keys of this channel, so that nothing of another
 * channel can be replayed into it:
 *
 *     dialler                                   listener
 *        hello (who, to whom, nonce)  ------->
 *                                     <-------  hello (nonce, or a refusal)
 *        AUTH                         ------->  proves the secret
 *                                     <-------  AUTH (accepted, or: keep the other channel)
 *        DATA, PING, PONG             <------>  DATA, PING, PONG
 *
 * Frame: head (16 bytes), payload, MAC (8 bytes) over head and payload. Integers are little endian.
 */
#ifndef OOB_WIRE_H
#define OOB_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/r2_siphash.h"
#include "r2_oob.h"

#define OOB_VERSION     1
#define OOB_FEATURES    0u /* bits both ends have are in force; unknown bits are ignored */
#define OOB_HELLO_SIZE  96
#define OOB_HELLO_FIXED 48 /* this much has the same place in every version */
#define OOB_FRAME_HEAD  16
#define OOB_FRAME_MAC   8
#define OOB_FRAME_MAX   (OOB_FRAME_HEAD + R2_OOB_MAX_MESSAGE + OOB_FRAME_MAC)
#define OOB_AUTH_MAX    64 /* payload of a frame before the sender is authenticated */

enum oob_hello_kind { OOB_HELLO_DIAL = 1, OOB_HELLO_ANSWER = 2 };
enum oob_hello_code { OOB_HELLO_OK = 0, OOB_HELLO_VERSION = 1, OOB_HELLO_WRONG_UUID = 2 };
enum oob_secret_of { OOB_SECRET_LISTENER = 0, OOB_SECRET_DIALLER = 1 };

struct oob_hello {
    uint16_t version;
    uint32_t features;
    uint8_t kind;      /* enum oob_hello_kind */
    uint8_t secret_of; /* enum oob_secret_of: whose name brought the secret */
    uint8_t code;      /* enum oob_hello_code, of an answer */
    uint64_t from[2], to[2];
    uint8_t nonce[16];
    uint64_t lost_id; /* the last channel with this peer that the dialler has seen established, 0 =
                         none */
    /* where the sender listens */
    uint8_t family;
    uint16_t port;
    uint32_t scope;
    uint8_t addr[16];
};

enum oob_parse {
    OOB_PARSE_OK,
    OOB_PARSE_MORE,   /* a beginning; read more */
    OOB_PARSE_BAD,    /* not ours, or tampered with */
    OOB_PARSE_VERSION /* ours, of another version: only version, kind, code, from, to are set */
};

/* What is wrong with a frame. */
enum oob_bad {
    OOB_BAD_LENGTH, /* more than may be, or not what its type has */
    OOB_BAD_TYPE,   /* unknown, or not to be said now */
    OOB_BAD_NUMBER, /* not the next one */
    OOB_BAD_TAG,    /* the MAC */
    OOB_BAD_CUT,    /* it ends too soon */
    OOB_BAD_REASONS
};
/* For the log. */
const char *oob_bad_text(enum oob_bad why);

void oob_hello_pack(const struct oob_hello *h, uint8_t out[OOB_HELLO_SIZE]);
/* Bad bytes are found as early as possible, not only when the hello is complete. */
enum oob_parse oob_hello_parse(const uint8_t *in, size_t len, struct oob_hello *out);

struct oob_keys {
    struct r2_siphash_key dialler, listener; /* MACs of what each end sends */
    uint64_t id;                             /* of the channel, never 0, known to both ends only */
};
void oob_keys_derive(const uint8_t secret[16], const uint8_t dial[OOB_HELLO_SIZE],
                     const uint8_t answer[OOB_HELLO_SIZE], struct oob_keys *out);

enum oob_frame_type { OOB_AUTH = 1, OOB_DATA, OOB_PING, OOB_PONG };
enum oob_auth_code { OOB_AUTH_ACCEPT = 0, OOB_AUTH_DUPLICATE = 1 };

struct oob_frame {
    uint8_t type;
    const uint8_t *payload; /* within the input */
    size_t len;
    size_t total;     /* bytes of the input this frame took */
    enum oob_bad why; /* it is bad */
};

/* Writes a frame of OOB_FRAME_HEAD + @len + OOB_FRAME_MAC bytes; returns that. @seq counts the
 * frames of one direction from 0. */
size_t oob_frame_pack(uint8_t *out, uint8_t type, const void *payload, size_t len, uint64_t seq,
                      struct r2_siphash_key key);

/*
 * @seq: the number that this frame must have. A length over @max_payload is bad as soon as the head
 * is in. Where it says BAD, only @why of *@out is set.
 */
enum oob_parse oob_frame_parse(const uint8_t *in, size_t len, size_t max_payload, uint64_t seq,
                               struct r2_siphash_key key, struct oob_frame *out);

/* Bytes the frame that starts at @in will take, 0 while the head is not complete. Valid only after
 * oob_frame_parse() said MORE. */
size_t oob_frame_size(const uint8_t *in, size_t len);

/*
 * Two channels stand between the same two processes: is it the new one that stays?
 * @by_us: dialled by this end. @new_lost: lost_id of the new channel's dialler. Both ends come to
 * the same answer:
 *  - two dials of the same process: it has given up the first one, so the new one stays;
 *  - the dialler of the new one has seen the present one die: the new one stays;
 *  - else both dialled at once: the one that the smaller uuid dialled stays.
 */
struct oob_rivals {
    const uint64_t *our_uuid, *peer_uuid;
    int new_by_us, cur_by_us;
    uint64_t new_lost, cur_id;
};
int oob_rivals_new_stays(const struct oob_rivals *r);

/*
 * Who has dialled and has not proved the secret yet, when all places of such diallers are taken:
 * who is thrown out first. Those who have said nothing go before those whose hello names this
 * process; among equals, who comes from the address with the most of them, so that one address
 * cannot take the others' places however many sockets it opens; and then who has waited longest. It
 * may be an honest process whose thread has not come round to answer: nobody goes before his time,
 * and nobody goes in the place of another whose time has not come.
 */
#define OOB_WAIT_SILENT_NS  50000000ull  /* an honest hello is on its way at once */
#define OOB_WAIT_GREETED_NS 500000000ull /* its thread may be in a storm of its own */
struct oob_waiter {
    int greeted;     /* its hello was taken, AUTH is awaited */
    unsigned beside; /* waiters from its address, itself included */
    uint64_t since;  /* the time that it has been silent, or greeted, from */
};
uint64_t oob_waiter_due(const struct oob_waiter *w);
int oob_waiter_goes_before(const struct oob_waiter *a, const struct oob_waiter *b);

/* Order of uuids: <0, 0, >0. */
int oob_uuid_compare(const uint64_t a[2], const uint64_t b[2]);

/* Of whom the log has a line already. Bounded: a uuid costs nobody anything. */
#define OOB_LOGGED_MAX 8
struct oob_logged {
    uint64_t uuid[OOB_LOGGED_MAX][2];
    int count;
};
/* 1: @uuid deserves a line, for the first and only time; 0: it has had one, or too many others
 * have. */
int oob_logged_first(struct oob_logged *s, const uint64_t uuid[2]);

/* Wait before dial number @attempt (0 = the first repetition): 10 ms doubling up to 1 s, the upper
 * half of it at random. */
uint64_t oob_backoff_ns(unsigned attempt, uint64_t random);

#endif
