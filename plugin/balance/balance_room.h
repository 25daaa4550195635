/*
 * Who makes room for whom (docs/balance.md, "Making room"). A connection that cannot use its home
 * NIC any more *stands in* on others, which then carry more than those that are left; connections
 * that are at home there can move, though nothing of theirs has failed. Pure; plain numbers.
 */
#ifndef BALANCE_ROOM_H
#define BALANCE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#define BALANCE_ROOM_LEAST 65536 /* bytes, or bytes per second: less of a NIC says nothing */

/* --- S --- */

/* A connection that sends and whose home NIC pair is usable. In bytes per second lately. */
struct balance_room_facts {
    bool some_stand_in;   /* connections of this host that send, on whatever NIC */
    uint64_t home, bound; /* what its home NIC here sends in all, and of those that stand in */
    uint64_t elsewhere;   /* what the one sends that sends least, of the NICs of its other usable
                             NIC pairs */
    uint32_t first, now;  /* Mb/s that the other end announced of its home NIC, the most so far
                             and now; 0: not known */
    bool is_making;       /* it makes room now */
};

/*
 * Whether it should use its other NIC pairs, too: where a sixteenth or more of what its home NIC
 * sends stands in, and another NIC sends less than four fifths of that; or where the other end says
 * that an eighth or more of its NIC is taken. One that does so goes on until both are nearly over:
 * once room is made, the NICs move alike. Where nothing is known, it stays as it was.
 */
bool balance_room_wants(const struct balance_room_facts *f);

/* Whether a 64th or more of what a NIC sends stands in: nobody begins to make room there; who does
 * goes on until it is a 16th (@is_used). */
bool balance_room_is_bound(uint64_t all, uint64_t bound, bool is_used);

/* --- R --- */

/* What comes in over a NIC, in bytes lately. */
struct balance_in {
    uint32_t mbps; /* of its port; 0: not known, and the NIC is left out */
    uint64_t all;
    uint64_t bound; /* ... from hosts of which some connection stands in: what of that can move
                       has moved */
    uint64_t fixed; /* ... bound, or of connections at home on a NIC that is not crowded */
};

/*
 * Which of @n NICs (at most 32) are crowded: an eighth or more of what comes in is bound, and one
 * of @nics, those that can take some of it, has less than four fifths of it, each by its rate. One
 * of @was stays so until less than a 32nd is bound, or where nothing is known.
 */
uint32_t balance_room_crowded(const struct balance_in *in, int n, uint32_t nics, uint32_t was);

/* The load per Mb/s to which @nics fill when @move bytes are spread over them so that the largest
 * is as small as it can be; fixed is what they have. 0: nothing moves, or no rate is known. */
double balance_room_level(const struct balance_in *in, uint32_t nics, uint64_t move);

/* What a sender is told, that has @part (0 to 1) of what can move, and of what is fixed own[]. */
struct balance_room_sender {
    double part;
    uint64_t own[32];
};

/*
 * left[]: Mb/s of each NIC that are left for that sender: all of those that are not crowded, of the
 * others the part that it would fill at @level, by that of the NIC of @nics that has most room; a
 * 32nd at least, so that it is tried again. Who divides what can move by left[] fills all of them
 * to the same level.
 */
void balance_room_left(const struct balance_in *in, int n, uint32_t nics, uint32_t crowded,
                       double level, const struct balance_room_sender *s, uint32_t *left);

/* Whether @left is worth telling to who was told @told, of a port of @mbps: a tenth of the port, or
 * that nothing is taken any more. */
bool balance_room_is_news(uint32_t told, uint32_t left, uint32_t mbps);

#endif
