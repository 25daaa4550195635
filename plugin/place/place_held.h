/*
 * The shadow communicators of one rank: which are made, and which are to be freed and may be. The
 * user's own, number 0, is none of them. Pure; the caller's lock of the rank is held around all
 * calls (place_member.h). No function blocks.
 */
#ifndef PLACE_HELD_H
#define PLACE_HELD_H

#include <stdbool.h>

#include "place_member.h"
#include "place_note.h"

struct place_held {
    uint32_t latest; /* number: what is older has been */
    struct place_held_slot {
        uint32_t comm;
        uint8_t state; /* enum place_held_state */
        bool drop;     /* nobody wants it any more */
        bool taken;    /* a thread makes or frees it */
        bool used;     /* an operation has begun on it */
        unsigned busy; /* operations that have begun on it and whose calls have not returned */
    } slot[PLACE_HELD];
};

/* The only writer of a slot's state; false: that is no legal move, and nothing changes. */
bool place_held_move(struct place_held_slot *s, enum place_held_state to);

/* The slot of @comm, NULL: there is none (any more). */
struct place_held_slot *place_held_find(struct place_held *h, uint32_t comm);

/* The hub asks for @comm: its slot, now PLACE_HELD_PROMISED. NULL: there is, or was, one of that
 * number, or there is no place, in which case the hub asks again. */
struct place_held_slot *place_held_promise(struct place_held *h, uint32_t comm);

/* All have promised: its slot, now PLACE_HELD_MAKING. NULL: it is made already, or given up. */
struct place_held_slot *place_held_make(struct place_held *h, uint32_t comm);

/* The hub wants @comm freed; the user ends the communicator, and all of them are to be, and no
 * other is promised. What is being made then is for the caller to break off; what was promised is
 * kept until the hub says "make", and fails, or that it is not needed. */
bool place_held_drop(struct place_held *h, uint32_t comm); /* false: that was known */
void place_held_drop_all(struct place_held *h);

/* One that can be freed now: nobody wants it, no operation uses it or can come to (@m), and no
 * thread has it; NULL: none. The caller frees it and then calls place_held_move(s,
 * PLACE_HELD_NOT). */
struct place_held_slot *place_held_free(struct place_held *h, const struct place_member *m);

#endif
