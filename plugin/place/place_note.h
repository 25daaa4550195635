/*
 * What a rank and the hub of its communicator (place_meet.h) send each other, as bytes; each is a
 * message of the out-of-band channel, which may lose it. Integers are little endian. Pure; any
 * thread; does not block.
 *
 *     version 1, kind 1, 0 (2), rank that sends or receives it 4, key of the communicator 8; then
 *     FACTS 49: struct place_facts in its order, without padding
 *     HEARD 4: seq of the facts
 *     ASK, DROP 4: communicator
 *     MAKE 136: communicator 4, rank in it 4, its ncclUniqueId 128
 *     MSG 20: struct place_msg: kind 1, answer 1, 0 (2), attempt 4, to 4, at 8
 */
#ifndef PLACE_NOTE_H
#define PLACE_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "place_meet.h"
#include "place_msg.h"

#define PLACE_NOTE_VERSION 1
#define PLACE_NOTE_MAX     152 /* bytes of the longest */
#define PLACE_NOTE_HEAD    16
#define PLACE_RANKS_MAX    (1 << 20)
#define PLACE_HELD         2 /* shadows of a rank: one in use, one that comes or goes */

enum place_note_kind {
    PLACE_NOTE_FACTS = 1, /* rank: what it is and has; again until it is heard */
    PLACE_NOTE_HEARD,     /* hub: ... */
    PLACE_NOTE_ASK,       /* hub: promise to enter a new communicator; again until the facts say */
    PLACE_NOTE_MAKE,      /* hub: all have: enter it; again until ... */
    PLACE_NOTE_DROP,      /* hub: free one when nothing uses it; again until they have it no more */
    PLACE_NOTE_MSG        /* either: place_member.h, place_leader.h */
};

enum place_held_state {
    PLACE_HELD_NOT,      /* no communicator */
    PLACE_HELD_PROMISED, /* entered when all have promised: who waits in ncclCommInitRank for one
                            that does not come waits until it is broken off */
    PLACE_HELD_MAKING,
    PLACE_HELD_READY, /* made and connected, and the tuner has taken it */
    PLACE_HELD_FAILED,
    PLACE_HELD_STATES
};

enum place_can {
    PLACE_CAN_NOT, /* this rank switches no more */
    PLACE_CAN,
    PLACE_HAS_LEFT, /* the user has ended the communicator at this rank, where nothing waits */
    PLACE_CANS
};

struct place_facts {
    uint32_t seq; /* grows with each change; the first is 1 */
    uint32_t rank, ranks;
    uint32_t mbps; /* MB/s of one NIC when all is well; 0: not known */
    uint64_t host; /* the same for all ranks of a host, and for no others */
    uint64_t begun;
    uint16_t nics, usable; /* 0 of 0: not known */
    uint16_t used; /* NICs that this rank's connections are at home on, whether usable or not */
    uint8_t can;   /* enum place_can */
    struct {
        uint8_t state; /* enum place_held_state */
        uint32_t comm;
    } held[PLACE_HELD];
};

struct place_note {
    uint8_t kind;
    uint32_t rank; /* of the user's communicator */
    uint64_t key;
    union {
        struct place_facts facts;
        uint32_t heard;
        struct {
            uint32_t comm, rank;
            uint8_t id[PLACE_ID_BYTES];
        } make;
        uint32_t comm; /* of PLACE_NOTE_ASK, _DROP */
        struct place_msg msg;
    };
};

/* Returns the bytes in @out. */
size_t place_note_pack(const struct place_note *note, uint8_t out[PLACE_NOTE_MAX]);

/* NULL, or what is wrong with it; a sender of another version is one such thing. */
const char *place_note_parse(const uint8_t *in, size_t len, struct place_note *note);

#endif
